/* What linear attention can report about a run besides its result. */
#ifndef COMPRESS_EXEC_RUN_CLAMP_COUNT_H
#define COMPRESS_EXEC_RUN_CLAMP_COUNT_H

#include "ir/graph.h"

/* Number of rows (a token and a head), and of those whose denominator q . z was below
 * eps: their share says how often the feature map finds nothing in common. */
typedef struct ClampCount {
    int64_t rows, clamped;
} ClampCount;

/* Adds the rows of one run of a linear_attention node in float32 to `count`. `sizes` are
 * those of its plan; q and k are the values of its first two operands, mask that of its
 * mask (NULL = none): results of the plan, from workspace_value. With `keep` [N, T],
 * only queries where it is not 0 are counted (padding is left out). */
void linear_attention_count(ClampCount *count, const Node *node,
                            const int64_t sizes[DIM_SYMBOLS], const float *q,
                            const float *k, const int32_t *mask, const int32_t *keep);

#endif
