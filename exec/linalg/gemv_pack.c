/* Packing of matrices: see exec/linalg/gemv.h. */
#include "exec/linalg/gemv.h"

#include "ir/half.h"

#include <string.h>

enum { QUAD = 4, OFFSET = 128 }; /* of int8 */

static size_t panel_count(const Matrix *matrix) {
    return (size_t)(matrix->rows + PANEL_ROWS - 1) / PANEL_ROWS;
}

/* Bytes of the panels alone. */
static size_t panel_bytes(const Matrix *matrix) {
    const size_t columns = (size_t)matrix->columns;
    size_t words = columns;
    if (matrix->kind == STEP_BF16) words = (columns + 1) / 2;
    if (matrix->kind == STEP_INT8) words = (columns + QUAD - 1) / QUAD;
    return panel_count(matrix) * PANEL_ROWS * sizeof(uint32_t) * words;
}

size_t matrix_bytes(const Matrix *matrix) {
    const size_t scales = panel_count(matrix) * PANEL_ROWS * sizeof(float);
    return panel_bytes(matrix) + (matrix->kind == STEP_INT8 ? scales : 0);
}

const float *matrix_scales(const Matrix *matrix) {
    return (const float *)((const char *)matrix->data + panel_bytes(matrix));
}

void matrix_pack_int8(const Matrix *matrix, const int8_t *q, const float *scale,
                      void *data) {
    const int64_t M = matrix->rows, K = matrix->columns;
    const int64_t gap = (K + QUAD - 1) / QUAD * QUAD * PANEL_ROWS;
    memset(data, OFFSET, panel_bytes(matrix));
    for (int64_t row = 0; row < M; row++) {
        uint8_t *to = (uint8_t *)data + row / PANEL_ROWS * gap + row % PANEL_ROWS * QUAD;
        for (int64_t k = 0; k < K; k++)
            to[k / QUAD * QUAD * PANEL_ROWS + k % QUAD] =
                (uint8_t)(q[row * K + k] + OFFSET);
    }
    memcpy((char *)data + panel_bytes(matrix), scale, (size_t)M * sizeof *scale);
}

static void put_element(const Matrix *matrix, void *data, int64_t row, int64_t k,
                        float value) {
    const int64_t panel = row / PANEL_ROWS, lane = row % PANEL_ROWS;
    if (matrix->kind == STEP_F32) {
        ((float *)data)[(panel * matrix->columns + k) * PANEL_ROWS + lane] = value;
        return;
    }
    const int64_t pairs = (matrix->columns + 1) / 2;
    uint32_t *word = (uint32_t *)data + (panel * pairs + k / 2) * PANEL_ROWS + lane;
    *word |= (uint32_t)bf16_from_float(value) << (k % 2 ? 16 : 0);
}

void matrix_pack(const Matrix *matrix, const Tensor *weight, bool transposed,
                 void *data) {
    enum { PIECE = 1024 };
    float piece[PIECE];
    const int64_t width = transposed ? matrix->rows : matrix->columns;
    const int64_t total = matrix->rows * matrix->columns;
    for (int64_t at = 0, n; at < total; at += n) { /* pieces of rows as they are stored */
        const int64_t major = at / width, minor = at % width;
        n = width - minor < PIECE ? width - minor : PIECE;
        tensor_read_f32(weight, at, n, piece);
        for (int64_t i = 0; i < n; i++)
            put_element(matrix, data, transposed ? minor + i : major,
                        transposed ? major : minor + i, piece[i]);
    }
}
