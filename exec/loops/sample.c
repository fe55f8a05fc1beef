/* Loops over logits: see exec/loops/loops.h. */
#include "exec/ops/kernel_math.h"

#include "exec/loops/loops.h"

float REAL_FN(largest_logit)(const float *x, int64_t n) {
    enum { LANES = 16 };
    float most[LANES], best = -INFINITY;
    const int64_t whole = n / LANES * LANES;
    for (int l = 0; l < LANES; l++) most[l] = -INFINITY;
    for (int64_t i = 0; i < whole; i += LANES)
        for (int l = 0; l < LANES; l++) most[l] = x[i + l] > most[l] ? x[i + l] : most[l];
    for (int64_t i = whole; i < n; i++) best = x[i] > best ? x[i] : best;
    for (int l = 0; l < LANES; l++) best = most[l] > best ? most[l] : best;
    return best;
}

double REAL_FN(exp_weights)(float *restrict weights, const float *restrict x, int64_t n,
                            float top, float factor) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        const float weight = exp_real((x[i] - top) * factor);
        weights[i] = x[i] >= -INFINITY ? weight : 0; /* NaN is not */
        sum += (double)weights[i];
    }
    return sum;
}
