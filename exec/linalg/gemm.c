/* Products of matrices: see exec/linalg/gemm.h. */
#include "exec/linalg/gemm.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/onednn.h"
#include "exec/linalg/products.h"
#include "exec/loops/loops.h"

#include <limits.h>

/* Whether a library's ints hold sizes and strides. */
static bool fits(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
    const int64_t most = INT_MAX;
    return m <= most && n <= most && k <= most && lda <= most && ldb <= most &&
           ldc <= most;
}

/* A product that is too large for the library, which counts in ints: a row or column of
 * it has gigabytes. No faster than loops are. */
#define GEMM_PLAIN(name, REAL)                                                           \
    static void name(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,        \
                     REAL alpha, const REAL *a, int64_t lda, const REAL *b, int64_t ldb, \
                     REAL beta, REAL *c, int64_t ldc) {                                  \
        for (int64_t i = 0; i < m; i++)                                                  \
            for (int64_t j = 0; j < n; j++) {                                            \
                double sum = 0;                                                          \
                for (int64_t l = 0; l < k; l++)                                          \
                    sum += (double)(trans_a ? a[l * lda + i] : a[i * lda + l]) *         \
                           (double)(trans_b ? b[j * ldb + l] : b[l * ldb + j]);          \
                REAL *to = &c[i * ldc + j];                                              \
                *to = (REAL)((double)alpha * sum +                                       \
                             (beta == 0 ? 0 : (double)beta * (double)*to));              \
            }                                                                            \
    }
GEMM_PLAIN(gemm_plain_f32, float)
GEMM_PLAIN(gemm_plain_f64, double)

/* Whether our own loops are worth packing panels of 16 columns: not for fewer columns, a
 * single row, or a few rows times a matrix that is transposed. */
static bool fills_panels(bool trans_b, int64_t m, int64_t n) {
    return n >= PANEL_ROWS && m >= (trans_b ? 12 : 2);
}

/* A single row is OpenBLAS's, which need not pack a matrix for it as oneDNN does. */
void gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
              const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
              float *c, int64_t ldc) {
    if (products_packed() && fills_panels(trans_b, m, n))
        loops_here()->multiply(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c,
                               ldc);
    else if (!fits(m, n, k, lda, ldb, ldc))
        gemm_plain_f32(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    else if (m == 1 || !products_onednn() ||
             !onednn_gemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
        blas_gemm_f32(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
              const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
              double *c, int64_t ldc) {
    if (!fits(m, n, k, lda, ldb, ldc))
        gemm_plain_f64(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    else
        blas_gemm_f64(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
