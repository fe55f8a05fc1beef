/* Step graph: a graph cut into steps that make one token at a time, with the weights
 * packed in the order in which steps read them.
 *
 * A step is a node with the step kernel of its op; nodes that only pass their operand on
 * are left out. In an encoder-decoder model, the steps are those of the target, and what
 * they read from the source is computed before them. Which thread does which step, and
 * where values lie, is up to the code that runs them: exec/generate/decode.c for one
 * sequence and a team of threads, exec/generate/hypotheses.c for many sequences at
 * once. */
#ifndef COMPRESS_EXEC_GENERATE_STEP_GRAPH_H
#define COMPRESS_EXEC_GENERATE_STEP_GRAPH_H

#include "exec/generate/step.h"
#include "ir/arena.h"

#include <stdatomic.h>

/* Most operands of a step. */
enum { STEP_OPERANDS_MAX = 12 };

/* Weights of one storage as steps read them. */
typedef struct PackedWeight PackedWeight;

/* One operand: a value of an earlier step, a value of the source, one of the inputs, or
 * weights. */
typedef enum TokenSource {
    FROM_NOTHING,
    FROM_VALUE,  /* of StepGraph.values */
    FROM_SOURCE, /* of StepGraph.source_values */
    FROM_IDS,    /* the tokens' ids */
    FROM_MASK,   /* the tokens' mask, all ones */
    FROM_WEIGHT
} TokenSource;

typedef struct TokenOperand {
    TokenSource from;
    int index;            /* of a value */
    int64_t width;        /* elements of a token; 0 = the same for all tokens */
    const void *data;     /* of weights: Matrix, Tensor or floats, as the kernel says */
    PackedWeight *weight; /* what `data` points into; NULL = the graph's own tensor */
} TokenOperand;

/* Result of a step: one row for each token. */
typedef struct TokenValue {
    int64_t width;
    int last;    /* step that reads it last; step_count for the logits */
    bool wanted; /* of the tokens of a prompt before the last one */
} TokenValue;

typedef struct TokenStep {
    const Node *node;
    const StepKernel *kernel;
    TokenOperand in[STEP_OPERANDS_MAX];
    int64_t units; /* 0 = none */
    bool block; /* needed of the tokens of a prompt before the last one: it has a state,
                   or what has one depends on it */
} TokenStep;

/* What to make from a graph. */
typedef struct StepGraphOptions {
    int64_t capacity; /* most tokens of a sequence */
    StepWeights weights;
    bool has_source; /* encoder-decoder model: inputs of the target are those whose names
                        begin with "decoder_" */
} StepGraphOptions;

typedef struct StepGraph {
    atomic_int references;
    Arena *arena; /* also for arrays of the only thread that runs the steps */
    Graph *graph;
    StepGraphOptions options;
    const Node *ids, *logits;
    int64_t index_limit; /* ids are below it; 0 = any */

    TokenStep *steps;
    TokenValue *values; /* step s makes value s */
    int step_count;
    int logits_value;

    Node **source_values; /* that steps read */
    int source_count;

    PackedWeight *first_weight, *last_weight;
    Buf *weights;
    size_t row_bytes; /* of tables, read for each token */
} StepGraph;

/* Cuts output `logits` of a graph into steps and packs their weights. Fails with
 * STATUS_MODEL: inputs or output are missing, an op cannot run token by token (named), a
 * position table is too short for the capacity; and with STATUS_MEMORY. The graph must
 * outlive it, unchanged. */
Status step_graph_create(StepGraph **out, Graph *graph, const StepGraphOptions *options,
                         Diag *diag);

/* Checks that a graph can be cut into steps, without their weights. Fails as
 * step_graph_create does, with STATUS_MODEL. */
Status step_graph_check(Graph *graph, const StepGraphOptions *options, Diag *diag);

/* Another reference; step_graph_destroy drops one. Running the steps does not change it,
 * so several threads may do so at once. */
StepGraph *step_graph_retain(StepGraph *graph);

/* NULL is allowed. */
void step_graph_destroy(StepGraph *graph);

/* Tokens that the logits are over. */
int64_t step_graph_vocabulary(const StepGraph *graph);

/* Bytes of weights that all steps together read for a token. */
size_t step_graph_weight_bytes(const StepGraph *graph);

/* Most floats of scratch that any step takes for up to `count` tokens. */
int64_t step_graph_scratch(const StepGraph *graph, int64_t count);

/* ---- memory for values ---- */

/* A piece of memory that values use in turn, and the time from which it is free. */
typedef struct ValueSlot {
    int64_t at, floats;
    int free;
} ValueSlot;

typedef struct ValuePool {
    ValueSlot *slots;
    int count;
    int64_t floats; /* of all of them */
} ValuePool;

/* Empty memory with room for the values of a graph; the slots lie in the arena. */
ValuePool value_pool_open(Arena *arena, const StepGraph *graph);

/* Memory from time `now` until `until`: the smallest free slot that is large enough, or a
 * new one. Returns its place, in floats. */
int64_t value_pool_take(ValuePool *pool, int64_t floats, int now, int until);

/* The floats of a buffer that only its owner writes. */
static inline float *buf_floats(const Buf *buf) {
    return (float *)(uintptr_t)buf_data(buf);
}

#endif
