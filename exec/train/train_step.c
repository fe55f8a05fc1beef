/* The gradient of one training step: see exec/train/train_internal.h. */
#include "exec/train/train_internal.h"

#include "exec/run/parallel.h"

#include <math.h>
#include <string.h>

static void add_losses(const Trainer *trainer, Shard *shard, const Workspace *workspace,
                       int64_t n) {
    for (int i = 0; i <= trainer->part_count; i++) {
        const Node *node = i == 0 ? trainer->loss : trainer->parts[i - 1];
        const float *value = workspace_value(workspace, node);
        shard->loss[i] += (double)n * (double)*value;
    }
}

Status micro_bind(const Trainer *trainer, Worker *worker, const Micro *micro,
                  Diag *diag) {
    const Plan *plan = plan_cache_find(&trainer->plans, micro->what.n, &micro->what);
    return workspace_bind(worker->workspace, plan, trainer->params, diag);
}

/* One micro-batch: forward and backward. */
static Status run_micro(const Trainer *trainer, Worker *worker, Shard *shard,
                        const Micro *micro, float *gradient, Diag *diag) {
    Workspace *workspace = worker->workspace;
    const int64_t n = micro->what.n;
    const RunMode mode = {.training = true,
                          .key = trainer->key,
                          .first = micro->first,
                          .rows = trainer_share_rows(trainer, worker, n)};
    TRY(micro_bind(trainer, worker, micro, diag));
    TRY(feed_fetch(&worker->feed, workspace, &micro->what, diag));
    run_forward(workspace, mode);
    add_losses(trainer, shard, workspace, n);
    run_backward(workspace, mode, (double)n / (double)trainer->sample_count, gradient);
    return STATUS_OK;
}

/* The main thread asks whether to go on, the others hear of it. */
static bool must_stop(Trainer *trainer, int worker) {
    if (worker == 0 && ticker_cancelled(&trainer->ticker))
        atomic_store(&trainer->stop, true);
    return atomic_load(&trainer->stop);
}

static Status run_shard(Trainer *trainer, int64_t s, int worker, Diag *diag) {
    Shard *shard = &trainer->shards[s];
    float *gradient = trainer->gradients[s];
    memset(gradient, 0, buf_bytes(shard->buf));
    for (int i = 0; i <= trainer->part_count; i++) shard->loss[i] = 0;
    for (Micro m = micro_first(trainer, s); m.what.n > 0; m = micro_next(trainer, &m)) {
        if (must_stop(trainer, worker)) return STATUS_INTERRUPTED;
        TRY(run_micro(trainer, &trainer->workers[worker], shard, &m, gradient, diag));
    }
    return STATUS_OK;
}

/* ---- all shards ---- */

typedef struct Round {
    Trainer *trainer;
    ShardWork *work;
} Round;

static void shard_body(void *self, int64_t s, int worker) {
    const Round *round = self;
    Trainer *trainer = round->trainer;
    trainer->shards[s].status =
        round->work(trainer, s, worker, trainer->workers[worker].diag);
}

/* Reports the first shard that failed by doing its work again. */
static Status report_shard(const Round *round, int64_t s, Diag *diag) {
    const Status failed = round->trainer->shards[s].status;
    const Status again = round->work(round->trainer, s, 0, diag);
    if (again != STATUS_OK) return again;
    return diag_fail(diag, failed, LOC_NONE, NULL, "fetching samples failed once (%s)",
                     status_help(failed));
}

Status trainer_each_shard(Trainer *trainer, ShardWork *work, Diag *diag) {
    Round round = {trainer, work};
    parallel_for(trainer->shard_count, trainer->worker_count, shard_body, &round);
    if (atomic_load(&trainer->stop)) return STATUS_INTERRUPTED;
    for (int64_t s = 0; s < trainer->shard_count; s++)
        if (trainer->shards[s].status != STATUS_OK) return report_shard(&round, s, diag);
    return STATUS_OK;
}

static void sum_losses(Trainer *trainer) {
    for (int i = 0; i <= trainer->part_count; i++) {
        double sum = 0;
        for (int64_t s = 0; s < trainer->shard_count; s++)
            sum += trainer->shards[s].loss[i];
        trainer->losses[i] = sum / (double)trainer->sample_count;
    }
}

Status trainer_gradient(Trainer *trainer, double *norm, Diag *diag) {
    TRY(trainer_plan_step(trainer, diag));
    TRY(trainer_count_rows(trainer, diag));
    optimizer_draw(trainer->optimizer, trainer->key, trainer->threads);
    TRY(trainer_each_shard(trainer, run_shard, diag));
    sum_losses(trainer);
    *norm = optimizer_sum(trainer->optimizer, trainer->gradients, trainer->shard_count,
                          trainer->threads);
    trainer->prior = optimizer_prior(trainer->optimizer);
    return STATUS_OK;
}
