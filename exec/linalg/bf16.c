/* Products in bfloat16: by panels (exec/linalg/bf16_panels.h), or of rounded floats. */
#include "exec/linalg/bf16.h"

#include "exec/linalg/bf16_panels.h"
#include "exec/linalg/gemm.h"
#include "ir/half.h"

bool bf16_native(void) {
    return bf16_panels_here();
}

const char *bf16_products(void) {
    return bf16_tiles_here() ? "amx_bf16" : bf16_native() ? "avx512_bf16" : "float";
}

int64_t bf16_unit(void) {
    return bf16_left_unit();
}

static void round_floats(float *restrict out, const float *restrict in, int64_t count) {
    for (int64_t i = 0; i < count; i++) out[i] = bf16_to_float(bf16_from_float(in[i]));
}

/* Where the panels of columns lie behind those of rows. */
static char *columns_of(const Bf16Matrix *matrix) {
    const bool both = matrix->sides & BF16_ROWS;
    return (char *)matrix->data +
           (both ? bf16_right_bytes(matrix->rows, matrix->columns) : 0);
}

size_t bf16_bytes(const Bf16Matrix *matrix) {
    const int64_t rows = matrix->rows, columns = matrix->columns;
    if (!bf16_native()) return bf16_scratch(rows, columns);
    return (matrix->sides & BF16_ROWS ? bf16_right_bytes(rows, columns) : 0) +
           (matrix->sides & BF16_COLUMNS ? bf16_right_bytes(columns, rows) : 0);
}

void bf16_round(const Bf16Matrix *matrix, const float *w) {
    const int64_t rows = matrix->rows, columns = matrix->columns;
    if (!bf16_native()) {
        round_floats(matrix->data, w, rows * columns);
        return;
    }
    if (matrix->sides & BF16_ROWS)
        bf16_pack_right(matrix->data, w, rows, columns, columns, 1);
    if (matrix->sides & BF16_COLUMNS)
        bf16_pack_right(columns_of(matrix), w, columns, rows, 1, columns);
}

void bf16_times(const Bf16Matrix *matrix, Bf16Sides side, int64_t m, const float *a,
                bool add, float *c, void *scratch) {
    const bool by_rows = side == BF16_ROWS;
    const int64_t n = by_rows ? matrix->rows : matrix->columns;
    const int64_t k = by_rows ? matrix->columns : matrix->rows;
    if (bf16_native()) {
        bf16_pack_left(scratch, a, m, k, k, 1);
        bf16_multiply(scratch, by_rows ? matrix->data : columns_of(matrix), m, n, k, add,
                      c);
        return;
    }
    round_floats(scratch, a, m * k);
    gemm_f32(false, by_rows, m, n, k, 1, scratch, k, matrix->data, by_rows ? k : n,
             add ? 1 : 0, c, n);
}

void bf16_outer(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                const float *b, bool add, float *c, void *scratch) {
    void *right = (char *)scratch + bf16_scratch(m, k);
    if (bf16_native()) {
        bf16_pack_left(scratch, a, m, k, 1, lda);
        bf16_pack_right(right, b, n, k, 1, n);
        bf16_multiply(scratch, right, m, n, k, add, c);
        return;
    }
    for (int64_t i = 0; i < k; i++)
        round_floats((float *)scratch + i * m, a + i * lda, m);
    round_floats(right, b, n * k);
    gemm_f32(true, false, m, n, k, 1, scratch, m, right, n, add ? 1 : 0, c, n);
}

size_t bf16_scratch(int64_t m, int64_t k) {
    const size_t left = bf16_left_bytes(m, k), right = bf16_right_bytes(m, k);
    if (bf16_native()) return left > right ? left : right; /* they may be either */
    return ((size_t)(m * k) * sizeof(float) + 63) / 64 * 64;
}
