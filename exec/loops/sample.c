/* Loops over logits: see exec/loops/loops.h. */
#include "exec/ops/kernel_math.h"

#include "exec/loops/loops.h"

float REAL_FN(largest_logit)(const float *x, int64_t n) {
    float best = -INFINITY;
    int odd = 0;
#pragma omp simd reduction(max : best) reduction(| : odd)
    for (int64_t i = 0; i < n; i++) {
        best = x[i] > best ? x[i] : best;
        odd |= x[i] != x[i];
    }
    return odd ? NAN : best;
}

double REAL_FN(exp_weights)(float *restrict weights, const float *restrict x, int64_t n,
                            float top, float factor) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        weights[i] = exp_real((x[i] - top) * factor);
        sum += (double)weights[i];
    }
    return sum;
}
