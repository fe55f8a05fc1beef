/* Keep: the values that calibration keeps between calls, and the graph that starts from
 * them. */
#ifndef COMPRESS_PASSES_ONESHOT_CALIBRATION_KEEP_H
#define COMPRESS_PASSES_ONESHOT_CALIBRATION_KEEP_H

#include "ir/batches.h"
#include "ir/graph.h"

/* Values at a place in the graph after which nothing else computed before it is read: by
 * chunk of samples. */
typedef struct Kept {
    Node **nodes; /* of the model's graph */
    Type *types;  /* as they were then */
    int count;
    float ***values; /* [count][chunks], NULL = not there */
    int64_t chunks;
} Kept;

/* Frees the values; the rest is in arenas. */
void kept_free(Kept *kept);

/* Whether the nodes are still in the graph with the same types; otherwise what is kept
 * is useless. */
bool kept_fits(const Kept *kept, const Graph *graph);

/* Finds the narrowest place (of equals, the latest) between what is kept and the first
 * of `values`, or with `behind` the last one, in which case the place may lie after it.
 * Returns what crosses it, without values; its count is 0 when no place is better than
 * the one kept. Everything except `values` is in the arena. */
void kept_find(Kept *out, Arena *arena, Graph *graph, const Kept *now,
               Node *const *values, int count, bool behind, int64_t chunks);

/* Most bytes that are kept. */
#define KEPT_BYTES ((int64_t)2 << 30)

/* Bytes that pass from one block to the next, for all samples: for the widest of
 * `values`, before and after a block. Computed from shapes only. */
size_t kept_bytes(Node *const *values, int count, const Batches *data, int64_t samples);

/* A graph that computes results from kept values and inputs only. */
typedef struct KeptGraph {
    Graph *graph;   /* a copy that shares weights */
    Node **results; /* of the copy */
    Node **inputs;  /* by kept value: its stand-in */
} KeptGraph;

/* Copies the graph, with inputs in place of the kept values. Call graph_release on the
 * copy; everything is in the arena. */
void kept_graph(KeptGraph *out, Arena *arena, Graph *graph, const Kept *kept,
                Node *const *results, int count);

#endif
