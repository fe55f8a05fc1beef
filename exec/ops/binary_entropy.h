/* Shared by losses on independent binary labels. */
#ifndef COMPRESS_EXEC_OPS_BINARY_ENTROPY_H
#define COMPRESS_EXEC_OPS_BINARY_ENTROPY_H

#include "exec/ops/kernel_math.h"

/* log(1 + exp(x)) = -log(1 - sigmoid(x)), both ends safe. */
KERNEL_INLINE REAL softplus_real(REAL x) {
    const REAL size = x < 0 ? -x : x, above = x < 0 ? 0 : x;
    return above + log_real(1 + exp_real(-size));
}

#endif
