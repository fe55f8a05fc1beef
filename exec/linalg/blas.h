/* BLAS and LAPACK: the only door to the linear-algebra library, in plain row-major
 * terms.
 *
 * Every call runs only on the calling thread: parallelism is over samples, outside. */
#ifndef COMPRESS_EXEC_LINALG_BLAS_H
#define COMPRESS_EXEC_LINALG_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the library single-threaded. Call before any thread uses it. Further calls do
 * nothing. */
void blas_init(void);

/* The same for the duration of a call from a host that also uses the library. The
 * release restores the host's number of threads; if a fork has ended those threads, they
 * start again when the host's own products need them. Several threads may hold it: only
 * the first hold and the last release have an effect. */
void blas_hold(void);
void blas_release(void);

/* Makes the library use the kernels `core` ("SkylakeX"; NULL = no change) if it chose
 * its oldest ones by itself, as it does on every processor newer than the library, at a
 * fifth of the speed. Does nothing if OPENBLAS_CORETYPE names kernels, or the library
 * has only one set. Call before anything is computed. */
void blas_suit(const char *core);

/* Whether the library's threads are OpenMP's, whose number is set separately for each
 * calling thread (parallel_alone in exec/run/parallel.h). */
bool blas_by_openmp(void);

/* Number of threads that the library was built for: 128 in Debian. With more it warns,
 * and with some hundreds more it writes past its tables. */
int blas_threads_most(void);

/* Name of the processor whose kernels the library has chosen: "Haswell". */
const char *blas_core(void);

/* Version of the library and how it was built, as it reports. */
const char *blas_library(void);

/* gemm_f32 and gemm_f64 (exec/linalg/gemm.h) by the library, for sizes and strides below
 * 2^31. */
void blas_gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                   float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                   float beta, float *c, int64_t ldc);
void blas_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                   double alpha, const double *a, int64_t lda, const double *b,
                   int64_t ldb, double beta, double *c, int64_t ldc);

/* Lower triangle of C[n, n] = A^T A + beta C for A[k, n], all row-major; lda is the row
 * stride of A, below 2^31. The upper triangle is not touched. */
void syrk_f32(int64_t n, int64_t k, const float *a, int64_t lda, float beta, float *c);
void syrk_f64(int64_t n, int64_t k, const double *a, int64_t lda, double beta, double *c);

/* Cholesky factor L of a symmetric positive definite A[n, n], L L^T = A, row-major in its
 * lower triangle; the upper one is not touched. Returns 0, k > 0 when the leading minor
 * of order k is not positive, or a negative number when memory is short. */
int cholesky_f64(int64_t n, double *a);

/* B[n, m] becomes L^-1 B, or with `transposed` L^-T B; row-major, ldb its row stride.
 * Both in turn solve A X = B. */
void cholesky_solve_f64(bool transposed, int64_t n, const double *l, int64_t m, double *b,
                        int64_t ldb);

/* Eigenvalues and vectors of a symmetric matrix in LAPACK's steps, so that one reduction
 * can yield all values but only some vectors. Each returns 0, a positive number when it
 * does not converge, or a negative one when memory is short. n is at most
 * SYMMETRIC_WIDTH_MAX and the input finite.
 *
 * symmetric_reduce: the lower triangle of A[n, n] to tridiagonal form with diagonal d[n]
 * and off-diagonal e[n] (n - 1 used); A and tau[n] then hold the transformation. */
#define SYMMETRIC_WIDTH_MAX 46340 /* its square fits 31 bits */
int symmetric_reduce(int64_t n, double *a, double *d, double *e, double *tau);

/* All eigenvalues of the tridiagonal matrix, ascending, in place of d; e is destroyed. */
int tridiagonal_values(int64_t n, double *d, double *e);

/* Eigenvectors of the `count` largest eigenvalues of the tridiagonal matrix as the rows
 * of z[count, n], eigenvalues ascending; d and e are destroyed. */
int tridiagonal_vectors(int64_t n, int64_t count, double *d, double *e, double *z);

/* Transforms the rows of z[count, n] from the tridiagonal matrix back to the symmetric
 * one. LAPACK writes to A and restores it, so threads cannot share one A. */
int symmetric_restore(int64_t n, double *a, const double *tau, int64_t count, double *z);

/* All singular values of A[m, n], row-major, largest first, into sigma[min(m, n)]; A is
 * destroyed. Returns 0, a positive number when it does not converge, or a negative one
 * when memory is short or A holds NaN. The smaller side is at most SYMMETRIC_WIDTH_MAX,
 * the larger one below 2^31. */
int singular_values_f64(int64_t m, int64_t n, double *a, double *sigma);

#endif
