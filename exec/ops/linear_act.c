/* Activations of 8 bits: see linear_act.h. This file is compiled without fused sums. */
#include "exec/ops/linear_act.h"

#include "ir/quantised.h"

#include <math.h>
#include <string.h>

enum { MOST = 127 };

/* The bits of a REAL without the sign: ordered as the numbers are, NaN above all. */
#ifdef REAL_IS_DOUBLE
typedef uint64_t Bits;
#else
typedef uint32_t Bits;
#endif
static const Bits UNSIGNED = (Bits)-1 >> 1;

/* The largest |x|; NaN where there is one. */
static REAL largest(int64_t K, const REAL *x) {
    Bits most = 0;
    REAL value;
    for (int64_t k = 0; k < K; k++) {
        Bits bits;
        memcpy(&bits, x + k, sizeof bits);
        bits &= UNSIGNED;
        most = bits > most ? bits : most;
    }
    memcpy(&value, &most, sizeof value);
    return value;
}

#ifdef REAL_IS_DOUBLE
#define ROUND rint
#else
#define ROUND rintf
#endif

/* 127 / max|x| of a row, 0 where there is nothing to round, and its scale. */
static REAL row_factor(int64_t K, const REAL *x, REAL *scale) {
    const REAL most = largest(K, x), by = MOST / most;
    const bool whole = isfinite(by);
    *scale = whole ? most / MOST : isnan(most) ? most : 0;
    return whole ? by : 0;
}

REAL REAL_FN(round_row)(int64_t K, const REAL *x, int8_t *q) {
    REAL scale;
    const REAL by = row_factor(K, x, &scale);
    for (int64_t k = 0; k < K; k++) q[k] = by > 0 ? (int8_t)ROUND(x[k] * by) : 0;
    return scale;
}

void REAL_FN(rounded_rows)(int64_t R, int64_t K, const REAL *x, REAL *out) {
    for (int64_t r = 0; r < R; r++, x += K, out += K) {
        REAL scale;
        const REAL by = row_factor(K, x, &scale);
        for (int64_t k = 0; k < K; k++) out[k] = (by > 0 ? ROUND(x[k] * by) : 0) * scale;
    }
}

void REAL_FN(rounded_weights)(int round, int64_t rows, int64_t width, const REAL *w,
                              REAL *out, float *row) {
    static const int64_t GROUP[] = {0, 0, 32, 64, 128};
    const Tensor type = {.dtype = round == 1 ? DTYPE_Q8 : DTYPE_Q4,
                         .group = round == 1 ? width : GROUP[round]};
    for (int64_t r = 0; r < rows; r++, w += width, out += width) {
        for (int64_t k = 0; k < width; k++) row[k] = (float)w[k];
        for (int64_t first = 0; first < width; first += type.group) {
            const int64_t left = width - first;
            const int64_t count = left < type.group ? left : type.group;
            const Grid grid = quantised_best_grid(&type, row + first, count);
            for (int64_t k = first; k < first + count; k++)
                out[k] = (REAL)(grid_round(&grid, (double)row[k]) - grid.zero) *
                         (REAL)grid.scale;
        }
    }
}

void REAL_FN(linear_whole)(int64_t R, int64_t M, int64_t K, const REAL *x,
                           const int8_t *w, const float *scale_w, const REAL *b, REAL *y,
                           int8_t *scratch) {
    for (int64_t r = 0; r < R; r++, x += K, y += M) {
        const REAL scale = REAL_FN(round_row)(K, x, scratch);
        for (int64_t m = 0; m < M; m++) {
            int32_t sum = 0;
            for (int64_t k = 0; k < K; k++) sum += w[m * K + k] * scratch[k];
            const REAL product = (REAL)sum * (scale * (REAL)scale_w[m]);
            y[m] = b ? product + b[m] : product;
        }
    }
}
