/* Loops over weights, moments and gradients: see exec/loops/loops.h. */
#include "exec/loops/loops.h"

#include <math.h>

void REAL_FN(update_adamw)(float *restrict w, const float *restrict g, float *restrict m,
                           float *restrict v, int64_t n, const Update *update) {
    const Update u = *update;
    const float rest1 = 1 - u.beta1, rest2 = 1 - u.beta2;
    for (int64_t i = 0; i < n; i++) {
        const float d = u.scale * g[i];
        m[i] = u.beta1 * m[i] + rest1 * d;
        v[i] = u.beta2 * v[i] + rest2 * (d * d);
        w[i] = u.shrink * w[i] - u.rate * m[i] / (sqrtf(v[i]) * u.root + u.eps);
    }
}

void REAL_FN(update_momentum)(float *restrict w, const float *restrict g,
                              float *restrict m, int64_t n, const Update *update) {
    const Update u = *update;
    for (int64_t i = 0; i < n; i++) {
        m[i] = u.beta1 * m[i] + u.scale * g[i];
        w[i] = u.shrink * w[i] - u.rate * m[i];
    }
}

void REAL_FN(update_plain)(float *restrict w, const float *restrict g, int64_t n,
                           const Update *update) {
    const Update u = *update;
    for (int64_t i = 0; i < n; i++) w[i] = u.shrink * w[i] - u.rate * (u.scale * g[i]);
}

void REAL_FN(update_average)(float *restrict a, const float *restrict w, int64_t n,
                             float decay) {
    for (int64_t i = 0; i < n; i++) a[i] += (1 - decay) * (w[i] - a[i]);
}

void REAL_FN(add_floats)(float *restrict to, const float *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

double REAL_FN(sum_squares)(const float *x, int64_t n) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}
