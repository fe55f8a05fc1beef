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

/* Columns of panels at any distance, for panels_times (exec/loops/loops.h). */
typedef struct Panels {
    const float *w;
    int64_t step, gap, panels, K;
} Panels;

#endif
