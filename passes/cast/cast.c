/* cast: the weights in another element type. The numbers are in ir/cast.c. */
#include "ir/cast.h"

#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/linears.h"

typedef enum Activations { ACTIVATIONS_KEEP, ACTIVATIONS_FLOAT } Activations;

typedef struct CastOptions {
    int dtype, activations;
} CastOptions;

static const Field fields[] = {
    F_CHOICE(CastOptions, dtype, "f16|bf16|f32", "element type of all weights",
             .required = true),
    F_CHOICE(CastOptions, activations, "keep|float",
             "float: linear layers that round what they read do so no more"),
    F_END,
};

static const CastOptions defaults = {0};

/* Whether the type holds all that the weights may be. */
static bool widens_all(const Graph *graph, DType dtype) {
    for (int i = 0; i < graph->storage_count; i++) {
        const DType from = storage_tensor(graph->storages[i])->dtype;
        if (dtype_is_real(from) && !dtype_widens(from, dtype)) return false;
    }
    return true;
}

/* Linear layers that rounded what they read do so no more; `*count` of them. */
static Status stop_rounding(Graph *graph, int64_t *count, Diag *diag) {
    *count = 0;
    for (Node *node = graph->first; node; node = node->next) {
        if (!node_is(node, &op_linear) ||
            ((const LinearAttrs *)node->attrs)->act == LINEAR_ACT_FLOAT)
            continue;
        TRY(node_set(graph, node, diag, "act=float"));
        ++*count;
    }
    return STATUS_OK;
}

static Status cast_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    static const DType TYPES[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    const CastOptions *options = opaque;
    const DType dtype = TYPES[options->dtype];
    CastReport report;
    ctx->exact = widens_all(model->graph, dtype);
    TRY(model_cast(model, dtype, &report, diag));
    if (options->activations == ACTIVATIONS_FLOAT) {
        int64_t count;
        TRY(stop_rounding(model->graph, &count, diag));
        ctx->exact &= count == 0;
        tree_put_int(ctx->arena, ctx->record, "unrounded_inputs", count);
    }
    tree_put_int(ctx->arena, ctx->record, "storages", report.storages);
    tree_put_int(ctx->arena, ctx->record, "parameters", report.elements);
    if (ctx->plan) return STATUS_OK;
    tree_put_real(ctx->arena, ctx->record, "largest_error", report.error);
    if (report.worst)
        tree_put_string(ctx->arena, ctx->record, "worst_storage", report.worst);
    tree_put_int(ctx->arena, ctx->record, "subnormals", report.subnormals);
    tree_put_int(ctx->arena, ctx->record, "zeros", report.zeros);
    return STATUS_OK;
}

const Pass pass_cast = {
    .name = "cast",
    .summary = "round all weights to f16, bf16 or f32",
    .fields = fields,
    .options_size = sizeof(CastOptions),
    .defaults = &defaults,
    .exactness = PASS_BOUNDED,
    .effects = {.takes = MODEL_QUANTISED},
    .run = cast_run,
};
