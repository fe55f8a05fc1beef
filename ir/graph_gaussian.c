/* Gaussians of the storages of a graph: see graph.h and gaussian.h. */
#include "ir/graph.h"

#include <string.h>

void storage_drop_gaussian(Storage *storage) {
    gaussian_release(storage->gaussian);
    storage->gaussian = NULL;
}

int graph_gaussian_count(const Graph *graph) {
    int count = 0;
    for (int i = 0; i < graph->storage_count; i++)
        count += graph->storages[i]->gaussian != NULL;
    return count;
}

void graph_drop_gaussians(Graph *graph) {
    for (int i = 0; i < graph->storage_count; i++)
        storage_drop_gaussian(graph->storages[i]);
}

void graph_drop_unfit_gaussians(Graph *graph) {
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        if (storage->gaussian && !gaussian_fits(storage->gaussian, &storage->tensor))
            storage_drop_gaussian(storage);
    }
}

Status storage_average_gaussians(Storage *const *from, int count, Diag *diag) {
    enum { MOST = 1024 };
    Gaussian *gaussian[MOST];
    bool one = true, repeated = count > MOST, done = false;
    for (int i = 0; i < count && i < MOST; i++) {
        gaussian[i] = from[i]->gaussian;
        one &= from[i] == from[0];
        for (int j = 0; j < i; j++) repeated |= from[i] == from[j];
    }
    if (one) return STATUS_OK;
    if (!repeated) TRY(gaussian_average(gaussian, count, &done, diag));
    if (!done) storage_drop_gaussian(from[0]);
    return STATUS_OK;
}

/* Compares one storage's Gaussian with the first one and the first of form low_rank. */
static Status check_one(const Storage *storage, const Gaussian *first, int64_t samples,
                        Status status, Diag *diag) {
    const Gaussian *g = storage->gaussian;
    if (!gaussian_fits(g, &storage->tensor))
        return diag_fail(diag, status, LOC_NONE, storage->name,
                         "the posterior does not have the shape of the weights");
    if (strcmp(g->origin, first->origin) != 0)
        return diag_fail(diag, status, LOC_NONE, storage->name,
                         "the posterior belongs to another model: expected that of %s, "
                         "found that of %s",
                         first->origin, g->origin);
    if (g->form == GAUSSIAN_LOW_RANK && gaussian_samples(g) != samples)
        return diag_fail(diag, status, LOC_NONE, storage->name,
                         "expected a posterior of %lld samples like the others, found "
                         "%lld",
                         (long long)samples, (long long)gaussian_samples(g));
    return STATUS_OK;
}

Status graph_check_gaussians(const Graph *graph, Status status, Diag *diag) {
    const Gaussian *first = NULL;
    int64_t samples = 0;
    for (int i = 0; i < graph->storage_count; i++) {
        const Gaussian *g = graph->storages[i]->gaussian;
        if (!g) continue;
        if (!first) first = g;
        if (!samples) samples = gaussian_samples(g);
        TRY(check_one(graph->storages[i], first, samples, status, diag));
    }
    return STATUS_OK;
}
