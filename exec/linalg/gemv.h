/* Products of a matrix with one vector or a few: what generation does most.
 *
 * Weights are packed once in panels of 16 rows: element (r, k) of W[M, K] is lane r % 16
 * of the k-th group of 16 of panel r / 16; missing rows of the last panel are zero. A
 * panel is read from front to back and no sum runs across lanes. Every result is one sum
 * over k in order, whatever rows and vectors are computed together, so that its bytes
 * depend neither on the threads nor on how many tokens are taken at once. */
#ifndef COMPRESS_EXEC_LINALG_GEMV_H
#define COMPRESS_EXEC_LINALG_GEMV_H

#include "ir/tensor.h"

enum { PANEL_ROWS = 16 };

/* How weights are kept. bf16: rounded to nearest even; columns k and k + 1 (k even) of a
 * row share 32 bits, the even one low. Sums are float either way. */
typedef enum StepWeights { STEP_F32, STEP_BF16 } StepWeights;

typedef struct Matrix {
    int64_t rows, columns; /* M, K */
    StepWeights kind;
    const void *data; /* 64-byte aligned */
} Matrix;

/* Bytes of the packed weights. */
size_t matrix_bytes(const Matrix *matrix);

/* Packs a real tensor of M * K elements [M, K], or [K, M] with `transposed`, into
 * matrix_bytes bytes of zeros at `data`. */
void matrix_pack(const Matrix *matrix, const Tensor *weight, bool transposed, void *data);

/* y[t, r] = sum_k W[r, k] x[t, k] + bias[r] for rows first .. last - 1 and `count`
 * vectors, whose rows lie ldx and ldy apart; bias may be NULL. */
void matrix_times(const Matrix *matrix, int64_t first, int64_t last, const float *bias,
                  const float *x, int64_t ldx, float *y, int64_t ldy, int64_t count);

/* y[t, c] = sum_k w[k * step + c] x[t, k] for 16 * panels columns c, of which panel p
 * starts at w + p * gap. K may be 0. */
typedef struct Panels {
    const float *w;
    int64_t step, gap, panels, K;
} Panels;
void panels_times(const Panels *panels, const float *x, int64_t ldx, float *y,
                  int64_t ldy, int64_t count);

#endif
