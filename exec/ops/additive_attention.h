/* Additive attention (Bahdanau et al., 2015): the score of a source token, and the
 * weighted sum of the attended values. */
#ifndef COMPRESS_EXEC_OPS_ADDITIVE_ATTENTION_H
#define COMPRESS_EXEC_OPS_ADDITIVE_ATTENTION_H

#include "exec/ops/kernel_math.h"

/* to += factor * from. */
static inline void additive_add(REAL *restrict to, REAL factor, const REAL *restrict from,
                                int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += factor * from[i];
}

/* score . tanh(key + query): how well a source token aligns. */
static inline REAL additive_score(const REAL *restrict key, const REAL *restrict query,
                                  const REAL *restrict score, int64_t L) {
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t l = 0; l < L; l++) sum += score[l] * tanh_real(key[l] + query[l]);
    return sum;
}

#endif
