/* Development: see passes/evaluate/development.h. */
#include "passes/evaluate/development.h"

#include "ir/storage.h"

/* An evaluation of a model, with a context of its own. */
static Evaluation evaluation_of(const Development *d, PassContext *ctx, Model *model) {
    ctx->record = tree_new(ctx->arena, TREE_MAP, LOC_NONE);
    ctx->times = tree_new(ctx->arena, TREE_MAP, LOC_NONE);
    return (Evaluation){.ctx = ctx,
                        .model = model,
                        .options = &d->options,
                        .data_option = "dev",
                        .metric_option = "dev_metric"};
}

/* Hashes of weights that were taken while measuring would not follow what training writes
 * next. */
static void forget_hashes(const Graph *trained) {
    for (int i = 0; i < trained->storage_count; i++)
        if (!trained->storages[i]->frozen)
            buf_drop_digests(storage_tensor(trained->storages[i])->buf);
}

/* TrainMeasure.measure: a copy of the model gets the weights, so that the model keeps its
 * own until training is done. The progress that is told is that of training. */
static Status measure(void *self, double *value, Diag *diag) {
    const Development *d = self;
    const Watch quiet = {.self = d->ctx->watch ? d->ctx->watch->self : NULL,
                         .cancelled = d->ctx->watch ? d->ctx->watch->cancelled : NULL};
    PassContext ctx = *d->ctx;
    Model *model = model_copy(d->model);
    ctx.arena = arena_create();
    ctx.watch = &quiet;
    ctx.uses = NULL; /* noted by development_open */
    Evaluation e = evaluation_of(d, &ctx, model);
    Status status = d->weights.take(d->weights.self, model->graph, diag);
    if (status == STATUS_OK) status = evaluation_run(&e, diag);
    *value = e.value;
    model_destroy(model);
    forget_hashes(d->weights.trained);
    arena_destroy(ctx.arena);
    return status;
}

Status development_open(Development *d, PassContext *ctx, Model *model,
                        const DevelopmentWeights *weights, const TrainOptions *train,
                        Diag *diag) {
    *d = (Development){.ctx = ctx,
                       .model = model,
                       .weights = *weights,
                       .options = evaluate_defaults,
                       .measure = {.self = d, .measure = measure}};
    d->options.data = train->dev;
    d->options.metric = train->dev_metric;
    d->options.exits = EVALUATE_LAST;
    PassContext planning = *ctx;
    planning.plan = true;
    Evaluation e = evaluation_of(d, &planning, model);
    TRY(evaluation_run(&e, diag));
    d->metric = e.metric_name;
    d->measure.less = METRICS_OF_LOSS & 1u << e.metric;
    return STATUS_OK;
}
