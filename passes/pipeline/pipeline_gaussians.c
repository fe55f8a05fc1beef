/* Posteriors across steps: see pipeline_gaussians.h. */
#include "passes/pipeline/pipeline_gaussians.h"

#include "ir/storage.h"

KnownGaussians gaussians_known(const Graph *graph, Arena *arena) {
    KnownGaussians known = {0};
    const int most = graph_gaussian_count(graph);
    if (most > 0) known.storages = ARENA_ARRAY(arena, Storage *, (size_t)most);
    for (int i = 0; i < graph->storage_count; i++)
        if (graph->storages[i]->gaussian)
            known.storages[known.count++] = graph->storages[i];
    return known;
}

static void drop_unfit(Graph *graph) {
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        if (storage->gaussian && !gaussian_fits(storage->gaussian, &storage->tensor))
            storage_drop_gaussian(storage);
    }
}

void gaussians_follow(const KnownGaussians *known, PassContext *ctx, Graph *graph,
                      Diag *diag) {
    const Storage *first = NULL;
    int lost = 0;
    drop_unfit(graph);
    for (int i = 0; i < known->count; i++) {
        const Storage *storage = known->storages[i];
        if (storage->gaussian || graph_storage(graph, storage->name) != storage) continue;
        if (!first) first = storage;
        lost++;
    }
    if (!first || tree_get(ctx->record, "posteriors_dropped")) return;
    diag_warn(diag, ctx->source.at, ctx->source.key,
              "the posterior of %d of the weights is dropped, which this step changes "
              "otherwise than by cutting or averaging: first '%s'",
              lost, first->name);
    tree_put_int(ctx->arena, ctx->record, "posteriors_dropped", lost);
}
