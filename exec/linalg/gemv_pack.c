/* Packing of matrices: see exec/linalg/gemv.h. */
#include "exec/linalg/gemv.h"

#include "ir/half.h"

size_t matrix_bytes(const Matrix *matrix) {
    const size_t rows = (size_t)(matrix->rows + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
    const size_t columns = (size_t)matrix->columns;
    return rows * 4 * (matrix->kind == STEP_BF16 ? (columns + 1) / 2 : columns);
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
