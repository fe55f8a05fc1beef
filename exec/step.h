/* Step kernels: what an op does for one more token of one sequence, in float32.
 *
 * A step works on vectors: a value [1, 1, D] is D floats. Several threads share a step:
 * each does units [first, last) of it (rows of a matrix, heads), or, where units is NULL,
 * every thread does all of it into memory of its own. */
#ifndef COMPRESS_EXEC_STEP_H
#define COMPRESS_EXEC_STEP_H

#include "ir/graph.h"

typedef enum StepWeights { STEP_F32, STEP_BF16 } StepWeights;

typedef struct StepCall {
    const Node *node;
    const void *attrs;
    const void *const *in; /* by operand: float *, int32_t * for integers, NULL = absent;
                              weights as `weights` says for matrices, else float */
    float *out;
    void *state;      /* the node's, kept from token to token; zeros at the start */
    int64_t position; /* of this token, from 0 */
    int64_t capacity; /* most tokens */
    StepWeights weights;
    float *scratch; /* scratch_floats of this thread */
} StepCall;

typedef struct StepKernel {
    /* Units that threads may share out; NULL = none, every thread does the whole. */
    int64_t (*units)(const Node *node);
    /* Bytes of state for `capacity` tokens: all of it, and what `position` tokens use;
     * NULL = none. */
    size_t (*state_bytes)(const Node *node, int64_t capacity);
    int64_t (*scratch_floats)(const Node *node, int64_t capacity);
    void (*run)(const StepCall *call, int64_t first, int64_t last);
    /* Takes `count` tokens at once into the state, from the operands' values [count, D]
     * of a forward run over all of them, starting at `call->position`; NULL = no state.
     */
    void (*absorb)(const StepCall *call, int64_t count);
} StepKernel;

#endif
