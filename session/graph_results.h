/* Graph results: values of a graph, computed for all samples of some inputs and kept
 * whole. */
#ifndef COMPRESS_SESSION_GRAPH_RESULTS_H
#define COMPRESS_SESSION_GRAPH_RESULTS_H

#include "exec/run/forward.h"
#include "io/formats/checkpoint.h"
#include "ir/batches.h"
#include "ir/graph.h"

typedef struct GraphResults {
    Node **nodes;         /* in an arena, like the tensors' names */
    NamedTensor *tensors; /* float32; tensors[i] has the values of nodes[i] */
    int count, capacity;
} GraphResults;

/* Room for `capacity` results. */
GraphResults graph_results_create(Arena *arena, int capacity);

/* Adds a value, with room for all samples: `sizes` are those of the data, N its samples.
 * Does nothing if there is no more room. Fails with STATUS_MODEL for a value that is not
 * real or has no row for each sample. */
Status graph_results_add(GraphResults *results, const char *name, Node *node,
                         const int64_t sizes[DIM_SYMBOLS], Diag *diag);

/* Samples of a run of the graph. */
enum { RESULTS_SAMPLES = 16 };

/* Computes them for all samples of `data`. Fails as forward_batches does. */
Status graph_results_compute(GraphResults *results, Graph *graph, const Batches *data,
                             int threads, const Watch *watch, Diag *diag);

/* The same with a prepared graph, whose results are these. */
Status graph_results_compute_by(GraphResults *results, Forward *ready,
                                const Batches *data, int threads, const Watch *watch,
                                Diag *diag);

/* Drops the tensors' data. */
void graph_results_release(GraphResults *results);

#endif
