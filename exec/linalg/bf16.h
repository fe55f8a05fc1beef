/* bf16: products of matrices whose elements are rounded to bfloat16 (float's range, 8
 * bits of precision) and whose sums are float, as mixed-precision training has them.
 *
 * If the processor multiplies such numbers (AVX512_BF16, up to twice the rate of float;
 * tiles of AMX, five times and more), our own kernels do this; elsewhere, and with
 * --processor, whose levels lack it, the rounded values are multiplied as floats, at the
 * speed of float. The factors are the same; sums differ in their last bits, as between
 * processors.
 *
 * Every element is one sum in a fixed order over k, so a row of a product depends only
 * on its operands: not on the rows computed with it, nor on threads. (As floats, this
 * depends on the linear-algebra library.) The instructions treat numbers below 2^-126 as
 * 0. All matrices are dense and row-major; all functions run on the calling thread and
 * allocate nothing. */
#ifndef COMPRESS_EXEC_LINALG_BF16_H
#define COMPRESS_EXEC_LINALG_BF16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the processor's own instructions are used. */
bool bf16_native(void);

/* The method of multiplication, for records: "amx_bf16", "avx512_bf16" or "float". */
const char *bf16_products(void);

/* Rows of a product that are computed together: ranges of rows should be multiples of
 * this. */
int64_t bf16_unit(void);

/* Which products a matrix W[rows, columns] takes part in: with its rows, a W^T, with its
 * columns, a W, or both. */
typedef enum Bf16Sides { BF16_ROWS = 1, BF16_COLUMNS = 2 } Bf16Sides;

/* A rounded matrix, as products need it. */
typedef struct Bf16Matrix {
    int64_t rows, columns;
    int sides;  /* Bf16Sides, or both */
    void *data; /* bf16_bytes, 64-byte aligned */
} Bf16Matrix;

/* Bytes that data has. */
size_t bf16_bytes(const Bf16Matrix *matrix);

/* Rounds the values w[rows, columns] into data. */
void bf16_round(const Bf16Matrix *matrix, const float *w);

/* BF16_ROWS: c[m, rows] = a[m, columns] W^T; BF16_COLUMNS: c[m, columns] = a[m, rows] W;
 * with `add`, added to c. a is rounded on the way, for which `scratch`, 64-byte aligned,
 * has bf16_scratch(m, length of the sums) bytes. */
void bf16_times(const Bf16Matrix *matrix, Bf16Sides side, int64_t m, const float *a,
                bool add, float *c, void *scratch);

/* c[m, n] = a[k, m]^T b[k, n], or with `add` added to c; lda >= m is the row stride of
 * a. Both are rounded on the way, for which `scratch` has bf16_scratch(m, k) +
 * bf16_scratch(n, k) bytes. */
void bf16_outer(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                const float *b, bool add, float *c, void *scratch);

/* Bytes of m vectors of k rounded elements; a multiple of 64. */
size_t bf16_scratch(int64_t m, int64_t k);

#endif
