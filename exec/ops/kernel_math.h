/* Arithmetic shared by kernels, in the precision a file is compiled for.
 *
 * exp_real, tanh_real, erf_real and log_real are inlined; for float they are polynomials
 * without branches, so that loops over them vectorise, with relative error below 2.5e-7
 * (see tests/exec/test_kernels.c). For double they are libm's. */
#ifndef COMPRESS_EXEC_OPS_KERNEL_MATH_H
#define COMPRESS_EXEC_OPS_KERNEL_MATH_H

#include "exec/linalg/gemm.h"
#include "exec/ops/kernel.h"

#include <math.h>

/* Functions that must become part of the loop they are called in. */
#define KERNEL_INLINE static inline __attribute__((always_inline))

/* C[m, n] = alpha op(A) op(B) + beta C: see exec/linalg/blas.h. */
static inline void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                        REAL alpha, const REAL *a, int64_t lda, const REAL *b,
                        int64_t ldb, REAL beta, REAL *c, int64_t ldc) {
#ifdef REAL_IS_DOUBLE
    gemm_f64(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
#else
    gemm_f32(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
#endif
}

#ifdef REAL_IS_DOUBLE

KERNEL_INLINE double exp_real(double x) {
    return exp(x);
}
KERNEL_INLINE double tanh_real(double x) {
    return tanh(x);
}
KERNEL_INLINE double erf_real(double x) {
    return erf(x);
}
KERNEL_INLINE double log_real(double x) {
    return log(x);
}

#else

/* exp(x): x = n ln 2 + r with |r| <= ln 2 / 2, then a polynomial in r times 2^n. Results
 * below 2.5e-38 become 0, exp(-inf) included. */
KERNEL_INLINE float exp_real(float x) {
    const float low = -86.6f, high = 89.0f, rounder = 12582912.0f; /* 1.5 * 2^23 */
    float v = x > high ? high : x;
    v = v < low ? low : v;
    union {
        float f;
        int32_t i;
    } n = {.f = v * 1.44269504f + rounder}, scale;
    const float whole = n.f - rounder;
    const float r = (v - whole * 0.693145752f) - whole * 1.42860677e-6f;
    float q = 0.00139503605f;
    q = q * r + 0.00836888215f;
    q = q * r + 0.0416662071f;
    q = q * r + 0.166665189f;
    q = q * r + 0.500000009f;
    const float p = (q * r) * r + r + 1.0f;
    scale.i = (int32_t)((uint32_t)n.i << 23) + (126 << 23); /* 2^(n - 1) */
    const float y = p * scale.f * 2.0f;
    return x < low ? 0.0f : y;
}

/* tanh(x): odd polynomial near 0, else 1 - 2 / (exp(2 |x|) + 1). */
KERNEL_INLINE float tanh_real(float x) {
    const float z = x * x, a = fabsf(x);
    float p = -0.00552863382f;
    p = p * z + 0.0204833163f;
    p = p * z + -0.0536929681f;
    p = p * z + 0.133308998f;
    p = p * z + -0.333332629f;
    const float near = x + x * (z * p);
    const float far = copysignf(1.0f - 2.0f / (exp_real(2.0f * a) + 1.0f), x);
    return a < 0.625f ? near : far;
}

/* erf(x): odd polynomial near 0, else 1 - exp(polynomial in |x|); 1 beyond 4. */
KERNEL_INLINE float erf_real(float x) {
    const float z = x * x, b = fabsf(x), a = b > 4.0f ? 4.0f : b;
    float p = -0.000586208231f;
    p = p * z + 0.00496750689f;
    p = p * z + -0.0267488643f;
    p = p * z + 0.112813207f;
    p = p * z + -0.376124459f;
    p = p * z + 0.128379142f;
    const float near = x + x * p;
    float q = 0.000193809614f;
    q = q * a + -0.00302246489f;
    q = q * a + 0.0221447118f;
    q = q * a + -0.103762208f;
    q = q * a + -0.637373855f;
    q = q * a + -1.12756271f;
    q = q * a + -0.000222790445f;
    const float far = copysignf(1.0f - exp_real(q), x);
    return b < 0.94f ? near : far;
}

/* log(x) of a normal number above 0: x = 2^n c with c in [sqrt(1/2), sqrt(2)), log c = 2
 * atanh((c - 1) / (c + 1)), whose series ends at 2e-9. */
KERNEL_INLINE float log_real(float x) {
    union {
        float f;
        int32_t i;
    } c = {.f = x};
    const int32_t n = (c.i - 0x3f3504f3) >> 23; /* bits of sqrt(1/2) */
    c.i -= n * (1 << 23);
    const float f = (c.f - 1) / (c.f + 1), s = f * f;
    const float series = 1 + s * (1 / 3.0f + s * (1 / 5.0f + s * (1 / 7.0f + s / 9)));
    return (float)n * 0.693147181f + 2 * f * series;
}

#endif

/* 1 / (1 + exp(-x)), both ends safe. */
KERNEL_INLINE REAL sigmoid_real(REAL x) {
    return 1 / (1 + exp_real(-x));
}

/* Largest of n > 0 elements. */
static inline REAL row_max(const REAL *x, int64_t n) {
    REAL best = x[0];
#pragma omp simd reduction(max : best)
    for (int64_t i = 0; i < n; i++) best = x[i] > best ? x[i] : best;
    return best;
}

/* Sum of n elements, several partial sums at once. */
static inline REAL row_sum(const REAL *x, int64_t n) {
    REAL s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += x[i];
    return s;
}

/* Inner product of two rows. */
static inline REAL row_dot(const REAL *restrict x, const REAL *restrict y, int64_t n) {
    REAL s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

/* x[i] = exp(x[i] - shift); returns the sum. */
static inline REAL exp_row(REAL *x, int64_t n, REAL shift) {
    REAL s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) {
        const REAL e = exp_real(x[i] - shift);
        x[i] = e;
        s += e;
    }
    return s;
}

/* Softmax of a row in place. Elements may be -inf; a row of nothing but -inf becomes
 * zeros. */
static inline void softmax_row(REAL *x, int64_t n) {
    const REAL m = row_max(x, n);
    const REAL s = exp_row(x, n, isinf(m) && m < 0 ? 0 : m);
    const REAL inverse = s > 0 || isnan(s) ? 1 / s : 0;
    for (int64_t i = 0; i < n; i++) x[i] *= inverse;
}

/* log(sum of exp(x[i])); -inf for a row of nothing but -inf. */
static inline REAL log_sum_exp(const REAL *x, int64_t n) {
    const REAL m = row_max(x, n);
    if (isinf(m)) return m;
    REAL s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += exp_real(x[i] - m);
    return m + (REAL)log((double)s);
}

/* dst = src, or dst += src with `accumulate`. */
static inline void put_row(REAL *restrict dst, const REAL *restrict src, int64_t n,
                           bool accumulate) {
    if (accumulate)
        for (int64_t i = 0; i < n; i++) dst[i] += src[i];
    else
        for (int64_t i = 0; i < n; i++) dst[i] = src[i];
}

#endif
