/* Loops over weights, moments and gradients: see exec/loops/loops.h. */
#include "exec/loops/loops.h"

#include "ir/half.h"

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

/* 32 bits that look random, of element i under a key: multiplications spread the low bits
 * upwards, shifts the high ones down again. The upper and the lower half of them round a
 * number each. */
static inline uint32_t scatter_bits(uint32_t i, uint32_t key) {
    uint32_t bits = (i ^ key) * 0x9e3779b1u;
    bits = (bits ^ bits >> 15) * 0x85ebca77u;
    bits = (bits ^ bits >> 13) * 0xc2b2ae3du;
    return bits ^ bits >> 16;
}

/* To one of the two neighbours in bfloat16, the nearer one more often, so that the mean
 * is the number itself: adds 16 drawn bits to those that are cut off. Numbers must not be
 * NaN. */
static inline uint16_t round_drawn(float value, uint32_t drawn) {
    return (uint16_t)((float_bits(value) + drawn) >> 16);
}

void REAL_FN(update_adamw_bf16)(float *restrict w, const float *restrict g,
                                uint16_t *restrict m, uint16_t *restrict v, int64_t n,
                                const Update *update, uint32_t key, uint32_t first) {
    const Update u = *update;
    const float rest1 = 1 - u.beta1, rest2 = 1 - u.beta2;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t drawn = scatter_bits(first + (uint32_t)i, key);
        const float d = u.scale * g[i];
        const float mean = u.beta1 * bf16_to_float(m[i]) + rest1 * d;
        const float square = u.beta2 * bf16_to_float(v[i]) + rest2 * (d * d);
        m[i] = round_drawn(mean, drawn & 0xffff);
        v[i] = round_drawn(square, drawn >> 16);
        w[i] = u.shrink * w[i] - u.rate * mean / (sqrtf(square) * u.root + u.eps);
    }
}

void REAL_FN(update_momentum_bf16)(float *restrict w, const float *restrict g,
                                   uint16_t *restrict m, int64_t n, const Update *update,
                                   uint32_t key, uint32_t first) {
    const Update u = *update;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t drawn = scatter_bits(first + (uint32_t)i, key);
        const float mean = u.beta1 * bf16_to_float(m[i]) + u.scale * g[i];
        m[i] = round_drawn(mean, drawn & 0xffff);
        w[i] = u.shrink * w[i] - u.rate * mean;
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
