/* Rows that count, over a whole mini-batch: see exec/train/train_internal.h.
 *
 * A loss with Op.count_rows is the mean over the W rows of the mini-batch that count, W
 * being counted before the step's first run. A micro-batch of n of its N samples divides
 * its sum over rows by W n / N; as its gradient is seeded with n / N, what adds up is the
 * sum over all rows divided by W, however the mini-batch is cut.
 *
 * Rows that depend on integers which the graph computes are not known ahead; such a loss
 * is a mean of the micro-batches' means, each sample counting 1. */
#include "exec/train/train_internal.h"

#include <stdlib.h>

/* Whether the rows of a node are known as soon as inputs are. */
static bool counts_ahead(const Plan *plan, const PlanNode *node) {
    const Operand *operand = node->op->operands;
    if (!node->op->count_rows) return false;
    for (int i = 0; operand[i].name; i++) {
        const int from = node->in[i].node;
        if (!(operand[i].flags & OPERAND_INTEGER) || from < 0) continue;
        if (!node_is_leaf(plan->nodes[from].node)) return false;
    }
    return true;
}

void trainer_find_rows(Trainer *trainer) {
    const Plan *plan = trainer->plans.plans[0];
    trainer->id_count = plan->index_count;
    trainer->counted =
        memory_alloc((size_t)plan->node_count + 1, sizeof *trainer->counted);
    trainer->rows = memory_alloc((size_t)plan->index_count + 1, sizeof *trainer->rows);
    for (int i = 0; i < plan->index_count; i++) trainer->rows[i] = -1;
    for (int i = 0; i < plan->node_count; i++)
        if (counts_ahead(plan, &plan->nodes[i]))
            trainer->counted[trainer->counted_count++] = plan->nodes[i].node;
}

/* Adds up the rows of one shard. */
static Status count_shard(Trainer *trainer, int64_t s, int worker, Diag *diag) {
    Worker *by = &trainer->workers[worker];
    double *rows = trainer->shards[s].rows;
    for (int i = 0; i < trainer->counted_count; i++) rows[i] = 0;
    for (Micro m = micro_first(trainer, s); m.what.n > 0; m = micro_next(trainer, &m)) {
        TRY(micro_bind(trainer, by, &m, diag));
        TRY(feed_fetch_integers(&by->feed, by->workspace, &m.what, diag));
        for (int i = 0; i < trainer->counted_count; i++)
            rows[i] += workspace_count_rows(by->workspace, trainer->counted[i]);
    }
    return STATUS_OK;
}

Status trainer_count_rows(Trainer *trainer, Diag *diag) {
    if (trainer->counted_count == 0) return STATUS_OK;
    TRY(trainer_each_shard(trainer, count_shard, diag));
    for (int i = 0; i < trainer->counted_count; i++) {
        double sum = 0;
        for (int64_t s = 0; s < trainer->shard_count; s++)
            sum += trainer->shards[s].rows[i];
        trainer->rows[trainer->counted[i]->id] = sum;
    }
    return STATUS_OK;
}

const double *trainer_share_rows(const Trainer *trainer, Worker *worker, int64_t n) {
    if (trainer->counted_count == 0) return NULL;
    const double share = (double)n / (double)trainer->sample_count;
    for (int i = 0; i < trainer->id_count; i++)
        worker->rows[i] = trainer->rows[i] * share; /* below 0 stays so */
    return worker->rows;
}
