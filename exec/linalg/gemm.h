/* Products of matrices in plain row-major terms, by the chosen method
 * (exec/linalg/products.h): for floats our own loops, OpenBLAS or oneDNN, for doubles
 * OpenBLAS; by plain loops if a size is beyond what libraries can count.
 *
 * Every call runs only on the calling thread: parallelism is over samples, outside. */
#ifndef COMPRESS_EXEC_LINALG_GEMM_H
#define COMPRESS_EXEC_LINALG_GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* C[m, n] = alpha op(A) op(B) + beta C, row-major, op = transpose when the flag is set;
 * lda, ldb, ldc are row strides of the matrices as stored. None of the six is limited. */
void gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
              const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
              float *c, int64_t ldc);
void gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
              const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
              double *c, int64_t ldc);

#endif
