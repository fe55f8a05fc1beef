/* Step kernels: what an op does for the next tokens of one sequence, in float32.
 *
 * A step works on rows: a value [1, T, D] is T rows of D floats, T = 1 when a token is
 * generated. What later tokens need from earlier ones is the node's state. Every token's
 * result has the same bytes whether it is computed alone or with others, and for any
 * number of threads. See exec/generate/decode.h for how steps are put together. */
#ifndef COMPRESS_EXEC_GENERATE_STEP_H
#define COMPRESS_EXEC_GENERATE_STEP_H

#include "exec/loops/loops.h"

typedef struct StepCall {
    const Node *node;
    const void *attrs;
    const void *const *in; /* by operand, NULL = absent: rows of float (int32_t for
                              integers); for weights, a Matrix or Tensor for the operands
                              that the kernel names, else float */
    float *out;            /* rows; NULL = only the state is wanted */
    void *state;           /* the node's; contents undefined at position 0 */
    int64_t position;      /* of the first token, from 0 */
    int64_t count;         /* tokens */
    int64_t capacity;      /* most tokens of the sequence */
    float *scratch;        /* scratch_floats of this thread, 64-byte aligned */
} StepCall;

/* Several hypotheses, one token each at the same position: what StepCall.count rows read
 * in addition to the operands. Operands computed from a source are [sentences, source,
 * ...], and row r uses those of its sentence. */
typedef struct StepRows {
    void *const *state;      /* by row: the node's */
    const int64_t *sentence; /* by row */
    int64_t source;          /* tokens of every sentence's source, padding included */
    char *prepared;          /* by sentence: source_bytes, filled by prepare */
    size_t prepared_bytes;   /* from one sentence to the next */
} StepRows;

/* What was prepared for a sentence. */
static inline void *step_prepared(const StepRows *rows, int64_t sentence) {
    return rows->prepared + (size_t)sentence * rows->prepared_bytes;
}

/* How threads share one token's work; several tokens are distributed by tokens if there
 * is neither a state nor a matrix. */
typedef enum StepShare {
    STEP_UNITS,  /* by units; it pays */
    STEP_LIGHT,  /* each thread may as well do all of it itself */
    STEP_ALIAS,  /* nothing to do: the result is the first operand */
    STEP_SERIAL, /* as STEP_UNITS, but a token's units need all units of the token before:
                    several tokens are one thread's work */
} StepShare;

typedef struct StepKernel {
    StepShare share;
    unsigned matrices; /* operands READS_IN(i) that are packed weights: const Matrix * */
    unsigned tables; /* operands that are weights as stored, read by rows: const Tensor */
    unsigned local; /* operands of which unit u of n reads the u-th of n parts of a row */
    bool position;  /* without a state, the result still depends on the position */

    /* Number of units, of which run takes a range; unit u of n writes the u-th of n
     * parts of a row. NULL, or 0 for a node: no units, run is called with [0, 1). */
    int64_t (*units)(const Node *node);

    /* Whether the node can run token by token: if not, STATUS_MODEL, naming what
     * cannot. */
    Status (*check)(const Node *node, Diag *diag);

    /* Whether a matrix operand is stored [K, M]; NULL = [M, K] always. */
    bool (*is_transposed)(const Node *node);

    /* Bytes of state to set aside for `capacity` tokens, and how many of them `position`
     * tokens fill; NULL = no state. */
    size_t (*state_bytes)(const Node *node, int64_t capacity);
    size_t (*filled_bytes)(const Node *node, int64_t position);

    /* Copies a state that holds `position` tokens; NULL = all its bytes. */
    void (*copy_state)(const Node *node, int64_t capacity, int64_t position,
                       const void *from, void *to);

    /* Scratch of a call for up to `count` tokens; NULL = none. */
    int64_t (*scratch_floats)(const Node *node, int64_t capacity, int64_t count);

    void (*run)(const StepCall *call, int64_t first, int64_t last);

    /* The only operands that may be values of the source; 0 = none may be. */
    unsigned sources;

    /* All work of several hypotheses. NULL: run does it, row by row if there is a state
     * or the position matters. */
    void (*run_rows)(const StepCall *call, const StepRows *rows);

    /* The kernel to use if an operand is a value of the source; NULL = this one. */
    const struct StepKernel *source;

    /* What is computed once for each sentence of call->count: bytes of it, of which
     * prepare may leave some to run_rows. NULL = nothing. */
    size_t (*source_bytes)(const Node *node, int64_t source);
    void (*prepare)(const StepCall *call, const StepRows *rows);
} StepKernel;

/* A step kernel of this set, and the value for Kernel.step: sets in double have none.
 */
#define STEP_KERNEL(name) const StepKernel REAL_FN(step_##name)
#ifdef REAL_IS_DOUBLE
#define STEP(name) NULL
#else
#define STEP(name) (&REAL_FN(step_##name))
#endif

/* One for each op that takes part in generation, or for several alike: rows that have
 * nothing to do with each other, elements, nothing to do. */
extern STEP_KERNEL(rows);
extern STEP_KERNEL(elementwise);
extern STEP_KERNEL(alias);
extern STEP_KERNEL(embedding);
extern STEP_KERNEL(add_position);
extern STEP_KERNEL(sinusoid);
extern STEP_KERNEL(linear);
extern STEP_KERNEL(rotary);
extern STEP_KERNEL(rms_norm);
extern STEP_KERNEL(attention);
extern STEP_KERNEL(cross_attention);
extern STEP_KERNEL(feature_map);
extern STEP_KERNEL(linear_attention);
extern STEP_KERNEL(cross_linear_attention);
extern STEP_KERNEL(lstm);
extern STEP_KERNEL(attention_lstm);

/* Elements of one token of a type whose only symbols are samples and tokens; 0 when it
 * has others. */
int64_t step_width(const Type *type);

/* Fails with STATUS_MODEL when an operand from `first` on is given, except those in
 * `except` (READS_IN); names it. */
Status step_check_absent(const Node *node, int first, unsigned except, Diag *diag);

/* Operand `i`'s node, NULL when absent. */
static inline const Node *step_operand(const Node *node, int i) {
    return i < node->in_count ? node->in[i] : NULL;
}

#endif
