/* The one file that includes the BLAS header: see exec/blas.h.
 *
 * A product with one row is a vector times op(B), for which BLAS need not pack the
 * matrix. */
#include "exec/blas.h"

#include <cblas.h>
#include <string.h>

void blas_init(void) {
    openblas_set_num_threads(1);
}

static CBLAS_TRANSPOSE transpose(bool flag) {
    return flag ? CblasTrans : CblasNoTrans;
}

/* c[n] = alpha op(B)^T a + beta c; a has stride `step`. */
static void gemv_f32(bool trans_b, int64_t n, int64_t k, float alpha, const float *a,
                     int64_t step, const float *b, int64_t ldb, float beta, float *c) {
    if (beta == 0) memset(c, 0, (size_t)n * sizeof *c); /* c may hold NaN */
    cblas_sgemv(CblasRowMajor, transpose(!trans_b), (blasint)(trans_b ? n : k),
                (blasint)(trans_b ? k : n), alpha, b, (blasint)ldb, a, (blasint)step,
                beta, c, 1);
}

static void gemv_f64(bool trans_b, int64_t n, int64_t k, double alpha, const double *a,
                     int64_t step, const double *b, int64_t ldb, double beta, double *c) {
    if (beta == 0) memset(c, 0, (size_t)n * sizeof *c); /* c may hold NaN */
    cblas_dgemv(CblasRowMajor, transpose(!trans_b), (blasint)(trans_b ? n : k),
                (blasint)(trans_b ? k : n), alpha, b, (blasint)ldb, a, (blasint)step,
                beta, c, 1);
}

void gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
              const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
              float *c, int64_t ldc) {
    if (m == 1)
        gemv_f32(trans_b, n, k, alpha, a, trans_a ? lda : 1, b, ldb, beta, c);
    else
        cblas_sgemm(CblasRowMajor, transpose(trans_a), transpose(trans_b), (blasint)m,
                    (blasint)n, (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb, beta,
                    c, (blasint)ldc);
}

void gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
              const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
              double *c, int64_t ldc) {
    if (m == 1)
        gemv_f64(trans_b, n, k, alpha, a, trans_a ? lda : 1, b, ldb, beta, c);
    else
        cblas_dgemm(CblasRowMajor, transpose(trans_a), transpose(trans_b), (blasint)m,
                    (blasint)n, (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb, beta,
                    c, (blasint)ldc);
}
