/* What weights start from when structure is gone: see prior.h. */
#include "passes/posterior/prior.h"

#include <string.h>

void slices_add(Arena *arena, SliceList *list, ConditionSlice slice) {
    if (list->count == list->capacity) {
        const int capacity = list->capacity ? 2 * list->capacity : 16;
        ConditionSlice *grown = ARENA_ARRAY(arena, ConditionSlice, (size_t)capacity);
        if (list->count) memcpy(grown, list->items, (size_t)list->count * sizeof *grown);
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->count++] = slice;
}

Status prior_require(PassContext *ctx, const Graph *graph, const char *option,
                     Diag *diag) {
    if (graph_gaussian_count(graph)) return STATUS_OK;
    step_fail(ctx, diag, "%s: expected a posterior of the model's weights, found none",
              option);
    diag_hint(diag, "`estimate_posterior` before this step gives them one");
    return STATUS_MODEL;
}

Status prior_condition(PassContext *ctx, Graph *graph, const SliceList *given,
                       const SliceList *removed, Diag *diag) {
    TRY(prior_require(ctx, graph, "prior: gaussian", diag));
    ConditionReport report = {0};
    const Condition condition = {given->items, given->count, removed->items,
                                 removed->count};
    TRY(condition_gaussians(ctx, graph, &condition, &report, diag));
    condition_record(ctx, "conditioning", &report);
    return STATUS_OK;
}

Status prior_redraw(PassContext *ctx, Model *model, Diag *diag) {
    const int known = graph_gaussian_count(model->graph);
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *storage = model->graph->storages[i];
        storage_redraw(storage);
        storage_drop_gaussian(storage);
    }
    if (known) tree_put_int(ctx->arena, ctx->record, "posteriors_dropped", known);
    return ctx->plan ? STATUS_OK : model_init_weights(model, ctx->seed, diag);
}
