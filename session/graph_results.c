/* Values of a graph for all samples. */
#include "session/graph_results.h"

#include <string.h>

GraphResults graph_results_create(Arena *arena, int capacity) {
    return (GraphResults){.nodes = ARENA_ARRAY(arena, Node *, (size_t)capacity + 1),
                          .tensors =
                              ARENA_ARRAY(arena, NamedTensor, (size_t)capacity + 1),
                          .capacity = capacity};
}

Status graph_results_add(GraphResults *results, const char *name, Node *node,
                         const int64_t sizes[DIM_SYMBOLS], Diag *diag) {
    Type type;
    if (node->type.dtype != DTYPE_F32 || node->type.rank == 0 ||
        node->type.dim[0] != DIM_N || !type_bind(&node->type, sizes, &type))
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, name,
                         "expected a real output with samples as its first dimension");
    if (results->count == results->capacity) return STATUS_OK;
    NamedTensor *tensor = &results->tensors[results->count];
    tensor->name = name;
    TRY(tensor_create(&tensor->tensor, DTYPE_F32, type.rank, type.dim, diag));
    results->nodes[results->count++] = node;
    return STATUS_OK;
}

/* What the sink works on. */
typedef struct Collection {
    GraphResults *results;
    int64_t samples;
} Collection;

/* ForwardSink: copies the results of some samples to their place. */
static Status collect(void *self, const Fetch *what, const float *const *values,
                      const void *const *columns, Diag *diag) {
    const Collection *collection = self;
    (void)columns;
    for (int i = 0; i < collection->results->count; i++) {
        Tensor *tensor = &collection->results->tensors[i].tensor;
        const int64_t per = tensor_count(tensor) / collection->samples;
        void *data = NULL;
        TRY(tensor_writable(tensor, &data, diag));
        for (int64_t s = 0; s < what->n; s++)
            memcpy((float *)data + what->index[s] * per, values[i] + s * per,
                   (size_t)per * sizeof(float));
    }
    return STATUS_OK;
}

Status graph_results_compute(GraphResults *results, Graph *graph, const Batches *data,
                             int threads, const Watch *watch, Diag *diag) {
    Collection collection = {results, data->count};
    return forward_batches(graph, results->nodes, results->count, data, 0,
                           RESULTS_SAMPLES, threads, watch, collect, &collection, diag);
}

Status graph_results_compute_by(GraphResults *results, Forward *ready,
                                const Batches *data, int threads, const Watch *watch,
                                Diag *diag) {
    Collection collection = {results, data->count};
    return forward_over(ready, data, 0, RESULTS_SAMPLES, threads, watch, collect,
                        &collection, diag);
}

void graph_results_release(GraphResults *results) {
    for (int i = 0; i < results->count; i++) tensor_release(&results->tensors[i].tensor);
    results->count = 0;
}
