/* 8-bit activations: what linear does with `act`. */
#ifndef COMPRESS_EXEC_OPS_LINEAR_ACT_H
#define COMPRESS_EXEC_OPS_LINEAR_ACT_H

#include "exec/ops/kernel.h"

/* Rounds a row of K numbers to whole numbers from -127 to 127 times a scale, which is
 * returned: q = rint(x (127 / max|x|)), scale = max|x| / 127. A row of zeros, or so small
 * that 127 / max|x| overflows, has the scale 0; one with NaN or an infinity NaN. */
REAL REAL_FN(round_row)(int64_t K, const REAL *x, int8_t *q);

/* The numbers that these represent, scale q, for R rows. `x` may be `out`. */
void REAL_FN(rounded_rows)(int64_t R, int64_t K, const REAL *x, REAL *out);

/* y[R, M] = (sum over k of q w) (scale_x scale_w) + b for whole numbers q of the rows of
 * x and w[M, K] of weights: sums of 32 bits, then in REAL one product of the scales, one
 * product and one sum, none of them fused, so bytes are the same on every processor.
 * `scratch` has K bytes. `b` may be NULL. */
void REAL_FN(linear_whole)(int64_t R, int64_t M, int64_t K, const REAL *x,
                           const int8_t *w, const float *scale_w, const REAL *b, REAL *y,
                           int8_t *scratch);

/* The values of weights [rows, width] after rounding to type `round` of
 * LINEAR_ROUND_NAMES, by quantised_best_grid. `row` has room for a row. */
void REAL_FN(rounded_weights)(int round, int64_t rows, int64_t width, const REAL *w,
                              REAL *out, float *row);

#endif
