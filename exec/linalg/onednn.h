/* oneDNN: products with weights that are packed once, by a library that generates
 * kernels for the processor at hand. The only door to it, as exec/linalg/blas.h is to
 * BLAS.
 *
 * The library is an option of the build (COMPRESS_ONEDNN). Without it nothing here is
 * available, as onednn_has reports, and everything works by other means.
 *
 *     y[R, M] = x[R, K] W^T (+ b)      W of M rows of K; transposed: W^T is stored
 *
 * Every product runs only on the calling thread, whatever OMP_NUM_THREADS says; any
 * number of threads may multiply with the same weights at once. What a product needs for
 * a number of rows is made on first use, and kept for ONEDNN_SHAPES shapes; after that
 * nothing is allocated.
 *
 * A row of y depends only on its row of x and the weights, not on the rows computed with
 * it nor on threads: tests/exec/test_onednn.c checks it. */
#ifndef COMPRESS_EXEC_LINALG_ONEDNN_H
#define COMPRESS_EXEC_LINALG_ONEDNN_H

#include "ir/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Number of shapes and types of products whose kernels are kept, for the whole program;
 * the least recently used are dropped. */
#define ONEDNN_SHAPES 64

/* What is multiplied, and the sums: x by weights to y. */
typedef enum OnednnType {
    ONEDNN_F32,  /* float by float to float */
    ONEDNN_BF16, /* bfloat16 by bfloat16 to float */
    ONEDNN_S8,   /* int8 by int8 to int32, exact */
    ONEDNN_U8,   /* uint8 by int8 to int32, exact */
    ONEDNN_TYPES
} OnednnType;

/* Whether products of a type are available: the program was built with the library and
 * the processor has what they need. Float needs AVX-512, without which the library's
 * sums depend on the number of rows; bfloat16 needs AVX512_BF16 and no AMX, with which
 * sums again depend on it; int8 needs VNNI. --processor disables the latter two, since
 * its levels lack them. */
bool onednn_has(OnednnType type);

/* Name, version and the instructions that it uses: "oneDNN 2.6.3, avx512_core_bf16"; ""
 * if the program was built without it. */
const char *onednn_library(void);

typedef struct OnednnMatrix OnednnMatrix;

/* Packs weights: [m, k], or with `transposed` [k, m], row-major and dense; float for
 * ONEDNN_F32, bits of bfloat16 for ONEDNN_BF16, int8 otherwise. The values are copied.
 * Fails with STATUS_USAGE if onednn_has returns false, STATUS_MEMORY. */
Status onednn_pack(OnednnMatrix **out, OnednnType type, bool transposed, int64_t m,
                   int64_t k, const void *weights, Diag *diag);

/* Packs other weights of the same size in the same place; not while they are in use.
 * Fails with STATUS_MEMORY. */
Status onednn_pack_again(OnednnMatrix *matrix, bool transposed, const void *weights,
                         Diag *diag);

/* NULL is allowed. */
void onednn_free(OnednnMatrix *matrix);

/* Bytes that packed weights take. */
size_t onednn_bytes(const OnednnMatrix *matrix);

/* y[rows, m] = x[rows, k] W^T, and + bias[m], unless NULL, where sums are float. x is of
 * the matrix's type with rows `ldx` elements apart, y float or int32 and dense.
 * False if there is no memory for a new shape: then the caller multiplies by other
 * means, and y may hold anything. */
bool onednn_times(const OnednnMatrix *matrix, int64_t rows, const void *x, int64_t ldx,
                  const float *bias, void *y);

/* What gemm_f32 of exec/linalg/gemm.h does, by the library's kernels. False, with c
 * unchanged, if it is not done: in a program without the library, for dimensions of 0,
 * or without memory. Then the caller multiplies by other means. */
bool onednn_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                 const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                 float *c, int64_t ldc);

#endif
