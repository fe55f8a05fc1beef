/* Sizes, plans and memory of a training run: see exec/train/train_internal.h. */
#include "exec/train/train_internal.h"

#include <stdlib.h>
#include <string.h>

/* A micro-batch is chosen so that its largest value has about this many bytes (half of a
 * second-level cache), but matrix products have at least this many rows. */
#define MICRO_BYTES ((int64_t)512 << 10)
#define MICRO_ROWS  ((int64_t)256)

int64_t shard_samples(const Trainer *trainer, int64_t count, int64_t s) {
    return count / trainer->shard_count + (s < count % trainer->shard_count);
}

int64_t shard_first(const Trainer *trainer, int64_t count, int64_t s) {
    const int64_t rest = count % trainer->shard_count;
    return count / trainer->shard_count * s + (s < rest ? s : rest);
}

bool train_freezes(const TrainOptions *options, const char *name) {
    return name_matches_any(&options->freeze, name) ||
           (options->only.count > 0 && !name_matches_any(&options->only, name));
}

void freeze_storages(Graph *graph, const TrainOptions *options, bool *was) {
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        was[i] = storage->frozen;
        if (train_freezes(options, storage->name)) storage->frozen = true;
    }
}

void restore_frozen(Graph *graph, const bool *was) {
    for (int i = 0; i < graph->storage_count; i++) graph->storages[i]->frozen = was[i];
}

/* ---- plans ---- */

/* Bytes of the largest value of one sample, and rows of matrices it brings. */
static void measure_sample(const Plan *plan, int64_t *bytes, int64_t *rows) {
    *bytes = *rows = 1;
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *node = &plan->nodes[i];
        if (node->forward < 0 || node->type.rank == 0) continue;
        const int64_t size = node->count * (int64_t)sizeof(float);
        const int64_t height = node->count / node->type.dim[node->type.rank - 1];
        if (size > *bytes) *bytes = size;
        if (height > *rows) *rows = height;
    }
}

static Status choose_micro(Trainer *trainer, Diag *diag) {
    const int64_t shard = shard_samples(trainer, trainer->batch, 0);
    trainer->micro = trainer->options->micro_batch;
    if (trainer->micro == 0) {
        PlanCache single = {.graph = trainer->graph,
                            .data = trainer->data,
                            .options = trainer->plans.options};
        int64_t bytes = 1, rows = 1;
        Status status = plan_cache_need(&single, 1, NULL, diag);
        if (status == STATUS_OK) measure_sample(single.plans[0], &bytes, &rows);
        plan_cache_close(&single);
        TRY(status);
        const int64_t fitting = MICRO_BYTES / bytes;
        const int64_t filling = (MICRO_ROWS + rows - 1) / rows;
        const int64_t most = fitting > filling ? fitting : filling;
        const int64_t runs = (shard + most - 1) / most;
        trainer->micro = (shard + runs - 1) / runs; /* runs of about equal size */
    }
    if (trainer->micro > shard) trainer->micro = shard;
    return STATUS_OK;
}

/* The micro-batch from sample `first` on of a shard ending at `end`. */
static Micro micro_from(const Trainer *trainer, int64_t first, int64_t end) {
    const int64_t left = end - first;
    const int64_t n = left < trainer->micro ? left : trainer->micro;
    const int64_t *index = trainer->samples + first;
    Micro micro = {.what = {.index = index,
                            .n = n,
                            .key = trainer->augment,
                            .mask_key = trainer->key},
                   .first = first,
                   .end = end};
    batches_pad(trainer->data, &micro.what);
    return micro;
}

Micro micro_first(const Trainer *trainer, int64_t s) {
    const int64_t first = shard_first(trainer, trainer->sample_count, s);
    return micro_from(trainer, first,
                      first + shard_samples(trainer, trainer->sample_count, s));
}

Micro micro_next(const Trainer *trainer, const Micro *micro) {
    return micro_from(trainer, micro->first + micro->what.n, micro->end);
}

/* Plans for the micro-batches of one shard of the current step. */
static Status plan_shard(Trainer *trainer, int64_t s, Diag *diag) {
    for (Micro m = micro_first(trainer, s); m.what.n > 0; m = micro_next(trainer, &m))
        TRY(plan_cache_need(&trainer->plans, m.what.n, &m.what, diag));
    return STATUS_OK;
}

Status trainer_plan_step(Trainer *trainer, Diag *diag) {
    for (int64_t s = 0; s < trainer->shard_count; s++) TRY(plan_shard(trainer, s, diag));
    return STATUS_OK;
}

/* The first and the last shard have all the numbers of samples there are. Sequences are
 * planned for the longest, which takes the most memory. */
static Status plan_batch(Trainer *trainer, int64_t count, Diag *diag) {
    const Batches *data = trainer->data;
    const Fetch longest = {.tokens = data && data->length ? data->max_tokens : 0,
                           .source = data && data->source_length ? data->max_source : 0};
    const int64_t shards[] = {shard_samples(trainer, count, 0),
                              shard_samples(trainer, count, trainer->shard_count - 1)};
    for (int i = 0; i < 2; i++) {
        if (shards[i] >= trainer->micro)
            TRY(plan_cache_need(&trainer->plans, trainer->micro, &longest, diag));
        TRY(plan_cache_need(&trainer->plans, shards[i] % trainer->micro, &longest, diag));
    }
    return STATUS_OK;
}

Status trainer_plan(Trainer *trainer, const int64_t sizes[DIM_SYMBOLS], Diag *diag) {
    const TrainOptions *options = trainer->options;
    trainer->batch =
        options->batch_size < trainer->count ? options->batch_size : trainer->count;
    trainer->shard_count =
        options->shards < trainer->batch ? options->shards : trainer->batch;
    if (trainer->threads < 1) trainer->threads = 1;
    trainer->worker_count = trainer->threads < trainer->shard_count
                                ? trainer->threads
                                : (int)trainer->shard_count;
    trainer->plans = (PlanCache){.graph = trainer->graph,
                                 .data = trainer->data,
                                 .options = {.precision = PRECISION_F32,
                                             .loss = trainer->loss,
                                             .results = trainer->parts,
                                             .result_count = trainer->part_count}};
    memcpy(trainer->plans.options.sizes, sizes, sizeof trainer->plans.options.sizes);
    TRY(choose_micro(trainer, diag));
    TRY(plan_batch(trainer, trainer->batch, diag));
    return plan_batch(trainer, trainer->count % trainer->batch, diag);
}

/* ---- memory ---- */

static size_t gradient_bytes(const Trainer *trainer, int64_t count) {
    return (size_t)trainer->shard_count * (size_t)count * sizeof(float);
}

size_t trainer_bytes(const Trainer *trainer) {
    const Graph *graph = trainer->graph;
    const int64_t count = params_layout(graph, NULL);
    return plan_workspace_bytes(plan_cache_largest(&trainer->plans)) *
               (size_t)trainer->worker_count +
           gradient_bytes(trainer, count) + optimizer_bytes(graph, trainer->options);
}

/* The largest plan first, so that the workspace is allocated once. */
static Status open_worker(Worker *worker, const Trainer *trainer, Diag *diag) {
    worker->diag = diag_create();
    worker->rows = memory_alloc((size_t)trainer->id_count + 1, sizeof *worker->rows);
    TRY(feed_open(&worker->feed, trainer->data, trainer->micro, diag));
    TRY(workspace_create(&worker->workspace, diag));
    return workspace_bind(worker->workspace, plan_cache_largest(&trainer->plans),
                          trainer->params, diag);
}

static Status open_shards(Trainer *trainer, Diag *diag) {
    const size_t count = (size_t)trainer->shard_count;
    const size_t losses = (size_t)trainer->part_count + 1;
    const int64_t weights = params_gradient_count(trainer->params);
    trainer->shards = memory_alloc(count, sizeof *trainer->shards);
    trainer->gradients = memory_alloc(count, sizeof *trainer->gradients);
    trainer->losses = memory_alloc(losses, sizeof *trainer->losses);
    for (size_t s = 0; s < count; s++) {
        Shard *shard = &trainer->shards[s];
        shard->loss = memory_alloc(losses, sizeof *shard->loss);
        shard->rows =
            memory_alloc((size_t)trainer->counted_count + 1, sizeof *shard->rows);
        const int64_t elements = s == 0 ? optimizer_count(trainer->optimizer) : weights;
        TRY(buf_create(&shard->buf, (size_t)elements * sizeof(float), diag));
        trainer->gradients[s] = (float *)(uintptr_t)buf_data(shard->buf);
    }
    return STATUS_OK;
}

Status trainer_allocate(Trainer *trainer, Diag *diag) {
    TRY(params_create(&trainer->params, trainer->graph, PRECISION_F32, true, diag));
    TRY(optimizer_create(&trainer->optimizer, trainer->graph, trainer->plans.plans[0],
                         trainer->params, trainer->options, trainer->count, diag));
    trainer_find_rows(trainer);
    trainer->workers =
        memory_alloc((size_t)trainer->worker_count, sizeof *trainer->workers);
    for (int i = 0; i < trainer->worker_count; i++)
        TRY(open_worker(&trainer->workers[i], trainer, diag));
    return open_shards(trainer, diag);
}

static void close_shards(Trainer *trainer) {
    for (int64_t s = 0; trainer->shards && s < trainer->shard_count; s++) {
        buf_release(trainer->shards[s].buf);
        free(trainer->shards[s].loss);
        free(trainer->shards[s].rows);
    }
    free(trainer->shards);
    free(trainer->gradients);
    free(trainer->losses);
}

void trainer_close(Trainer *trainer) {
    for (int i = 0; trainer->workers && i < trainer->worker_count; i++) {
        Worker *worker = &trainer->workers[i];
        workspace_destroy(worker->workspace);
        feed_close(&worker->feed);
        diag_destroy(worker->diag);
        free(worker->rows);
    }
    free(trainer->workers);
    close_shards(trainer);
    free(trainer->counted);
    free(trainer->rows);
    optimizer_destroy(trainer->optimizer);
    params_destroy(trainer->params);
    plan_cache_close(&trainer->plans);
}
