/* What the files of the decoder share.
 *
 *     decode_graph.c    nodes to steps, and what cannot be generated with
 *     decode_weights.c  packs the weights in the order of the steps
 *     decode_layout.c   who does what, where threads meet, where values lie
 *     decode.c          runs the steps
 *
 * A value that every thread computes for itself lies in each thread's own memory; one
 * whose parts are computed by several is shared, and threads meet before one of them
 * reads parts of another. */
#ifndef COMPRESS_EXEC_GENERATE_DECODE_INTERNAL_H
#define COMPRESS_EXEC_GENERATE_DECODE_INTERNAL_H

#include "exec/generate/decode.h"
#include "exec/generate/decode_team.h"
#include "ir/arena.h"

enum {
    BLOCK_TOKENS = 64,       /* tokens taken at once of a prompt */
    DECODE_OPERANDS_MAX = 12 /* of a step */
};

/* Weights of one storage as steps read them. */
typedef struct DecodeWeight {
    struct DecodeWeight *next;
    const Storage *storage;
    bool packed, transposed; /* not packed: plain float */
    Matrix matrix;           /* packed */
    size_t at, bytes;        /* in Decoder.weights */
} DecodeWeight;

typedef struct DecodeOperand {
    int value;            /* of Decoder.values; -1 = none */
    const void *fixed;    /* the same for all threads; NULL without value = absent */
    DecodeWeight *weight; /* what `fixed` becomes when weights are packed */
    int64_t width;        /* elements of a token; 0 = the same for all tokens */
    int source;           /* of Decoder.source_values, above all this; -1 = none */
} DecodeOperand;

typedef struct DecodeValue {
    int64_t width;
    bool shared;
    int64_t units;    /* shared: how many parts were shared out */
    int phase;        /* meetings before the step that makes it */
    int last;         /* step that reads it last */
    bool wanted;      /* of the tokens of a prompt before the last one */
    int64_t at;       /* floats into the shared memory, or each thread's */
    int64_t block_at; /* floats into the memory for BLOCK_TOKENS tokens */
} DecodeValue;

typedef struct DecodeStep {
    const Node *node;
    const StepKernel *kernel;
    DecodeOperand in[DECODE_OPERANDS_MAX];
    int64_t units; /* 0 = none */
    int value;     /* the result */
    int phase;     /* meetings before it, the one it begins with included */
    bool meet;     /* begins with a meeting */
    bool alone;    /* every thread does all of it for itself */
    bool block;    /* runs for the tokens of a prompt before the last one */
    Buf *state;    /* NULL = none */
} DecodeStep;

struct Decoder {
    Arena *arena;
    Graph *graph;
    DecodeOptions options; /* threads: the number there are */
    Team *team;
    const Node *ids, *logits;
    int64_t index_limit; /* ids are below it */

    /* Encoder-decoder models: the steps are those of the target; what they read of the
     * source is computed before them. */
    bool has_source;
    bool *of_target;      /* by node id: depends on the target's tokens */
    Node **source_values; /* that steps read */
    int source_count;

    DecodeStep *steps;
    int step_count;
    DecodeValue *values;
    int value_count;
    int logits_value;

    DecodeWeight *first_weight, *last_weight;
    Buf *weights;
    size_t row_bytes; /* of tables, read for each token */

    Buf *shared, *block;
    Buf **own;       /* by thread: its values, then scratch */
    StepCall **call; /* by thread: of each step */
    int32_t token[BLOCK_TOKENS], ones[BLOCK_TOKENS];
    int64_t position;
    int64_t count; /* tokens of the current run */
};

/* Fills steps and values (widths, readers) from the graph. STATUS_MODEL. */
Status decode_collect(Decoder *decoder, Diag *diag);

/* Memory that values take in turn. Each has a time from which on it is free. */
typedef struct Slot {
    int64_t at, floats;
    int free;
} Slot;

typedef struct Pool {
    Slot *slots;
    int count;
    int64_t floats;
} Pool;

/* Empty memory for so many values; the slots lie in the arena. */
Pool pool_open(Arena *arena, int values);

/* Memory from time `now` until `until`: the smallest free slot that is large enough, or a
 * new one. Returns its place, in floats. */
int64_t pool_take(Pool *pool, int64_t floats, int now, int until);

/* Allocates and fills the weights that the steps name. */
Status decode_pack(Decoder *decoder, Diag *diag);

/* Floats of scratch that any step takes for up to `count` tokens. */
int64_t decode_scratch(const Decoder *decoder, int64_t capacity, int64_t count);

/* The floats of a buffer that only the decoder writes. */
static inline float *buf_floats(const Buf *buf) {
    return (float *)(uintptr_t)buf_data(buf);
}

/* Shares the steps out, places values, allocates them and the states, makes the calls. */
Status decode_layout(Decoder *decoder, Diag *diag);

#endif
