/* Products with weights that are packed once: with one vector or a few, which is most of
 * generation's work, and with the rows of many samples.
 *
 * Weights lie in panels of 16 rows: element (r, k) of W[M, K] is lane r % 16 of the k-th
 * group of 16 of panel r / 16; missing rows of the last panel are zero. A panel is read
 * from front to back and no sum runs across lanes. Every result is one sum over k in
 * order, whichever rows and vectors are computed together, so its bytes depend neither
 * on threads nor on the number of tokens processed at once. */
#ifndef COMPRESS_EXEC_LINALG_GEMV_H
#define COMPRESS_EXEC_LINALG_GEMV_H

#include "ir/tensor.h"

enum { PANEL_ROWS = 16 };

/* How weights are kept.
 *
 * bf16: rounded to nearest even; columns k and k + 1 (k even) of a row share 32 bits, the
 * even one low.
 *
 * q8, q4: the whole numbers of a quantised tensor (ir/quantised.h), which become floats
 * in registers. q8: a byte for each; a row's sum is multiplied by its scale. q4: a group
 * of columns begins with the 16 rows' scales (float16) and, where there are any, zero
 * points (bytes); columns k and k + 1 of a row share a byte, the even one low. Each group
 * is summed by itself and multiplied by the scale.
 *
 * int8: the whole numbers of a q8 tensor for products of whole numbers; the rows' scales
 * follow the panels. Columns 4 j .. 4 j + 3 of a row are 32 bits, the first one lowest,
 * each a byte w + 128; columns beyond the last do not count. Vectors are rounded to
 * whole numbers as well, q = rint(x (127 / max|x|)), s_x = max|x| / 127, and y = (sum_k
 * w q) (s_x s_w) + b in float, without fused sums: the same bytes on every processor. A
 * vector of zeros, or so small that 127 / max|x| overflows, counts as zeros; one with
 * NaN or an infinity gives NaN. K is at most INTEGER_COLUMNS_MAX, so that sums fit 32
 * bits.
 *
 * int4: those of a q4 tensor. A group begins as it does with q4; columns 8 j .. 8 j + 7
 * of a row follow, in 32 bits: the lower four bits of byte i are column 8 j + i, the
 * upper ones 8 j + 4 + i. Columns beyond the last do not count. Vectors are rounded as
 * for int8, and y = (sum_g s_g sum_(k in g) (w - z_g) q) s_x + b: whole numbers within a
 * group, then float in order of the groups, without fused sums: the same bytes on every
 * processor.
 *
 * All other kinds have float sums. */
typedef enum StepWeights {
    STEP_F32,
    STEP_BF16,
    STEP_Q8,
    STEP_Q4,
    STEP_INT8,
    STEP_INT4
} StepWeights;

enum { INTEGER_MOST = 127, INTEGER_COLUMNS_MAX = 1 << 16 };

/* Ways to sum products of whole numbers: in plain C, of pairs of 16 bits (SSE4.1, AVX2,
 * AVX-512), of quads of 8 bits (AVX-512 VNNI), of tiles (AMX; int4 is summed in quads
 * there). */
typedef enum IntegerWay {
    INTEGER_PLAIN,
    INTEGER_PAIRS,
    INTEGER_QUADS,
    INTEGER_TILES,
    INTEGER_WAYS
} IntegerWay;

typedef struct Matrix {
    int64_t rows, columns; /* M, K */
    StepWeights kind;
    const void *data; /* 64-byte aligned */
    int64_t group;    /* q4, int4: columns of a group, 32 or a multiple */
    bool zeros;       /* q4, int4: whether groups have zero points */
} Matrix;

/* Whether products with this kind round the vectors. */
static inline bool matrix_rounds(const Matrix *matrix) {
    return matrix->kind == STEP_INT8 || matrix->kind == STEP_INT4;
}

/* The matrix that keeps a tensor's rows, or with `transposed` its columns, in this way,
 * without data. Quantised kinds need a tensor of their type, not transposed. */
Matrix matrix_of(const Tensor *weight, bool transposed, StepWeights kind);

/* Bytes of the packed weights. */
size_t matrix_bytes(const Matrix *matrix);

/* Bytes of a panel, from one column (of bf16 and q4: pair of columns; of int8: four; of
 * int4: eight) to the next, and before the first one of a group of q4 and int4. */
int64_t matrix_panel_bytes(const Matrix *matrix);
int64_t matrix_step_bytes(const Matrix *matrix);
int64_t matrix_head_bytes(const Matrix *matrix);

/* Packs a real tensor of M * K elements [M, K], or [K, M] with `transposed`, into
 * matrix_bytes bytes of zeros at `data`. Quantised kinds take the numbers as they are. */
void matrix_pack(const Matrix *matrix, const Tensor *weight, bool transposed, void *data);

/* The same for int8 from whole numbers q[M, K] and a scale for each row. */
void matrix_pack_int8(const Matrix *matrix, const int8_t *q, const float *scale,
                      void *data);

/* Scales of the rows of q8 and int8, and zeros up to a whole panel. */
const float *matrix_scales(const Matrix *matrix);

/* Most panels that are packed at once while they are multiplied, and the bytes that
 * floats of K columns take for that, for weights_times (exec/loops/loops.h). */
enum { ROOM_PANELS = 4 };
static inline size_t matrix_room_bytes(int64_t columns) {
    return (size_t)columns * ROOM_PANELS * PANEL_ROWS * sizeof(float);
}

/* Columns of panels at any distance, for panels_times (exec/loops/loops.h). */
typedef struct Panels {
    const float *w;
    int64_t step, gap, panels, K;
    bool add; /* sums continue from those in y: the same bytes as all columns at once */
} Panels;

#endif
