/* The gradient of one training step: see exec/train_internal.h. */
#include "exec/train_internal.h"

#include "exec/parallel.h"

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

/* Samples [first, first + n) of the step: forward and backward. */
static Status run_micro(const Trainer *trainer, Worker *worker, Shard *shard,
                        int64_t first, int64_t n, float *gradient, Diag *diag) {
    Workspace *workspace = worker->workspace;
    const int64_t *index = trainer->samples + first;
    const Fetch what = {index, n, batches_tokens(trainer->data, index, n),
                        trainer->augment};
    const Plan *plan = plan_cache_find(&trainer->plans, n, what.tokens);
    const RunMode mode = {.training = true, .key = trainer->key, .first = first};
    TRY(workspace_bind(workspace, plan, trainer->params, diag));
    TRY(feed_fetch(&worker->feed, workspace, &what, diag));
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
    int64_t first = shard_first(trainer, trainer->sample_count, s);
    const int64_t end = first + shard_samples(trainer, trainer->sample_count, s);
    memset(gradient, 0, buf_bytes(shard->buf));
    for (int i = 0; i <= trainer->part_count; i++) shard->loss[i] = 0;
    while (first < end) {
        if (must_stop(trainer, worker)) return STATUS_INTERRUPTED;
        const int64_t n = micro_samples(trainer, first, end);
        TRY(run_micro(trainer, &trainer->workers[worker], shard, first, n, gradient,
                      diag));
        first += n;
    }
    return STATUS_OK;
}

static void shard_body(void *self, int64_t s, int worker) {
    Trainer *trainer = self;
    trainer->shards[s].status =
        run_shard(trainer, s, worker, trainer->workers[worker].diag);
}

/* Reports the first shard that failed by running it again. */
static Status report_shard(Trainer *trainer, int64_t s, Diag *diag) {
    const Status failed = trainer->shards[s].status;
    const Status again = run_shard(trainer, s, 0, diag);
    if (again != STATUS_OK) return again;
    return diag_fail(diag, failed, LOC_NONE, NULL, "fetching samples failed once (%s)",
                     status_help(failed));
}

static Status check_shards(Trainer *trainer, Diag *diag) {
    if (atomic_load(&trainer->stop)) return STATUS_INTERRUPTED;
    for (int64_t s = 0; s < trainer->shard_count; s++)
        if (trainer->shards[s].status != STATUS_OK) return report_shard(trainer, s, diag);
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
    parallel_for(trainer->shard_count, trainer->worker_count, shard_body, trainer);
    TRY(check_shards(trainer, diag));
    sum_losses(trainer);
    *norm = optimizer_sum(trainer->optimizer, trainer->gradients, trainer->shard_count,
                          trainer->threads);
    return STATUS_OK;
}
