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

/* How weights are kept.
 *
 * bf16: rounded to nearest even; columns k and k + 1 (k even) of a row share 32 bits, the
 * even one low. Sums are float.
 *
 * int8: whole numbers from -127 to 127, and a scale s_w for each row, which lie behind
 * the panels. Columns 4 j .. 4 j + 3 of a row are 32 bits, the first one lowest, each a
 * byte w + 128; columns beyond the last count nothing. Vectors are rounded to whole
 * numbers as well, q = rint(x (127 / max|x|)), s_x = max|x| / 127, and y = (sum_k w q)
 * (s_x s_w) + b in float, without fused sums: the same bytes on every processor. A vector
 * of zeros, or so small that 127 / max|x| overflows, counts as zeros; one with NaN or an
 * infinity gives NaN. K is at most INTEGER_COLUMNS_MAX, so that sums fit 32 bits. */
typedef enum StepWeights { STEP_F32, STEP_BF16, STEP_INT8 } StepWeights;

enum { INTEGER_MOST = 127, INTEGER_COLUMNS_MAX = 1 << 17 };

/* Ways to sum products of whole numbers: in plain C, of pairs of 16 bits (SSE4.1, AVX2,
 * AVX-512), of quads of 8 bits (AVX-512 VNNI). */
typedef enum IntegerWay { INTEGER_PLAIN, INTEGER_PAIRS, INTEGER_QUADS } IntegerWay;

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

/* The same for whole numbers q[M, K] and a scale for each row: a matrix of int8. */
void matrix_pack_int8(const Matrix *matrix, const int8_t *q, const float *scale,
                      void *data);

/* Scales of the rows of a matrix of int8, and zeros up to a whole panel. */
const float *matrix_scales(const Matrix *matrix);

/* Columns of panels at any distance, for panels_times (exec/loops/loops.h). */
typedef struct Panels {
    const float *w;
    int64_t step, gap, panels, K;
} Panels;

#endif
