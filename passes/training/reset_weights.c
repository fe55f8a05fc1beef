/* reset_weights: draws weights anew from their initial distributions, for baselines that
 * start from nothing but a model's shape. */
#include "exec/train/train_options.h"
#include "ir/storage.h"
#include "passes/fault.h"

typedef struct ResetOptions {
    StringList weights;
} ResetOptions;

static const Field fields[] = {
    F_STRINGS(ResetOptions, weights, "storages to draw anew: names, * is any text"),
    F_END,
};

static const char *everything[] = {"*"};
static const ResetOptions defaults = {.weights = {everything, 1}};

static Status reset_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    const ResetOptions *options = opaque;
    int64_t parameters = 0;
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *storage = model->graph->storages[i];
        if (!name_matches_any(&options->weights, storage->name)) continue;
        parameters += tensor_count(storage_tensor(storage));
        storage_redraw(storage);
    }
    if (parameters == 0)
        return step_fail_option(ctx, "weights", diag,
                                "no weights of the model have such a name");
    step_warn_unmatched(ctx, model->graph, "weights", &options->weights, diag);
    tree_put_int(ctx->arena, ctx->record, "parameters", parameters);
    ctx->unsure = true;
    return ctx->plan ? STATUS_OK : model_init_weights(model, ctx->seed, diag);
}

const Pass pass_reset_weights = {
    .name = "reset_weights",
    .summary = "draw weights anew from their initial distributions: a baseline's start",
    .fields = fields,
    .options_size = sizeof(ResetOptions),
    .defaults = &defaults,
    .exactness = PASS_LOSSY,
    .effects = {.takes = MODEL_QUANTISED},
    .run = reset_run,
};
