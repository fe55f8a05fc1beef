/* How kernels that add to a gradient several times initialise it. */
#ifndef COMPRESS_EXEC_OPS_GRADIENT_H
#define COMPRESS_EXEC_OPS_GRADIENT_H

#include "exec/ops/kernel.h"

#include <string.h>

/* Gradient of operand `i`; NULL when the operand is absent or its gradient is not
 * needed. */
static inline REAL *gradient_of(const Call *call, int i) {
    return i < call->in_count ? call->d_in[i].data : NULL;
}

/* Zeroes the gradient of operand `i`, which must be needed. */
static inline void gradient_zero(const Call *call, int i) {
    memset(call->d_in[i].data, 0, (size_t)call->d_in[i].count * sizeof(REAL));
}

/* The gradient of operand `i`, ready to be added to: zeroed unless it accumulates. */
static inline REAL *gradient_to_add(const Call *call, int i) {
    REAL *gradient = gradient_of(call, i);
    if (gradient && !call->d_in[i].accumulate) gradient_zero(call, i);
    return gradient;
}

/* Whether the first contribution to the gradient of operand `i` must be added. A gradient
 * that does not accumulate may be overwritten, unless another operand's gradient is in
 * the same place (one node used twice): then it is zeroed here. */
static inline bool gradient_adds(const Call *call, int i) {
    REAL *gradient = gradient_of(call, i);
    if (!gradient || call->d_in[i].accumulate) return true;
    for (int j = 0; j < call->in_count; j++)
        if (j != i && call->d_in[j].data == gradient) {
            gradient_zero(call, i);
            return true;
        }
    return false;
}

#endif
