/* Keep: the values that calibration keeps between two calls, and the graph that starts
 * from them. */
#ifndef COMPRESS_PASSES_ONESHOT_CALIBRATION_KEEP_H
#define COMPRESS_PASSES_ONESHOT_CALIBRATION_KEEP_H

#include "ir/batches.h"
#include "ir/graph.h"

/* Values of a place in the graph behind which nothing else that was computed before it is
 * read: by chunk of samples. */
typedef struct Kept {
    Node **nodes; /* of the model's graph */
    Type *types;  /* as they were then */
    int count;
    float ***values; /* [count][chunks], NULL = not there */
    int64_t chunks;
} Kept;

/* Frees the values; the rest is in arenas. */
void kept_free(Kept *kept);

/* Whether the nodes are still in the graph with the same types: else what is kept is of
 * no use. */
bool kept_fits(const Kept *kept, const Graph *graph);

/* Finds the narrowest place between what is kept and the first of `values`, or with
 * `behind` the last one, which it may then lie behind; the latest of equals: what crosses
 * it, without values. Of no count when there is no better place than that which is kept.
 * Everything is in the arena but `values`. */
void kept_find(Kept *out, Arena *arena, Graph *graph, const Kept *now,
               Node *const *values, int count, bool behind, int64_t chunks);

/* Bytes that are kept at most. */
#define KEPT_BYTES ((int64_t)2 << 30)

/* Bytes of what crosses from one block to the next, of all samples: of the widest of
 * `values`, before and behind a block. From shapes alone. */
size_t kept_bytes(Node *const *values, int count, const Batches *data, int64_t samples);

/* A graph that computes results from kept values and inputs alone. */
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
