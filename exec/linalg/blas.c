/* The one file that includes the headers of BLAS and LAPACK: see exec/linalg/blas.h.
 *
 * A product with one row is a vector times op(B), for which BLAS need not pack the
 * matrix. LAPACK sees the column-major view of row-major data: a lower triangle is an
 * upper one and rows are columns, so nothing is transposed. */
#include "exec/linalg/blas.h"

#include <cblas.h>
#include <lapacke.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_THREADS_MOST = 128 }; /* where the library does not tell */

/* The number that the library goes by, which is in no header of it; NULL = hidden. */
extern int blas_cpu_number __attribute__((weak));

enum { BY_OPENMP = 2 };

bool blas_by_openmp(void) {
    return openblas_get_parallel() == BY_OPENMP;
}

/* A fork ends the library's own threads, and openblas_set_num_threads would start them
 * again, and end the program by SIGINT where the system gives none: the number alone is
 * set, and threads are started by the product that wants them. Where they are OpenMP's
 * the library asks OpenMP for the number as well. */
static void set_threads(int threads) {
    if (&blas_cpu_number && !blas_by_openmp())
        blas_cpu_number = threads;
    else
        openblas_set_num_threads(threads);
}

static void hold_library(void) {
    set_threads(1);
}

void blas_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, hold_library);
}

static struct {
    pthread_mutex_t lock;
    int count;   /* of those who hold it */
    int threads; /* before the first of them */
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};

void blas_hold(void) {
    pthread_mutex_lock(&held.lock);
    if (held.count++ == 0) {
        held.threads = openblas_get_num_threads();
        set_threads(1);
    }
    pthread_mutex_unlock(&held.lock);
}

void blas_release(void) {
    pthread_mutex_lock(&held.lock);
    if (--held.count == 0 && held.threads != 1) set_threads(held.threads);
    pthread_mutex_unlock(&held.lock);
}

/* Of a library with kernels for many processors, which exports them; they are in no
 * header of it. The first looks at the environment. */
void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));

void blas_suit(const char *core) {
    static const char OLDEST[] = "Prescott", VARIABLE[] = "OPENBLAS_CORETYPE";
    if (!core || getenv(VARIABLE) || strcmp(blas_core(), OLDEST) != 0 ||
        !gotoblas_dynamic_init || !gotoblas_dynamic_quit)
        return;
    setenv(VARIABLE, core, 1);
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    unsetenv(VARIABLE);
}

const char *blas_core(void) {
    return openblas_get_corename();
}

int blas_threads_most(void) {
    static const char KEY[] = "MAX_THREADS=";
    const char *key = strstr(openblas_get_config(), KEY);
    const int most = key ? atoi(key + sizeof KEY - 1) : 0;
    return most > 0 ? most : USUAL_THREADS_MOST;
}

const char *blas_library(void) {
    return openblas_get_config();
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

void blas_gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                   float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                   float beta, float *c, int64_t ldc) {
    if (m == 1)
        gemv_f32(trans_b, n, k, alpha, a, trans_a ? lda : 1, b, ldb, beta, c);
    else
        cblas_sgemm(CblasRowMajor, transpose(trans_a), transpose(trans_b), (blasint)m,
                    (blasint)n, (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb, beta,
                    c, (blasint)ldc);
}

void blas_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                   double alpha, const double *a, int64_t lda, const double *b,
                   int64_t ldb, double beta, double *c, int64_t ldc) {
    if (m == 1)
        gemv_f64(trans_b, n, k, alpha, a, trans_a ? lda : 1, b, ldb, beta, c);
    else
        cblas_dgemm(CblasRowMajor, transpose(trans_a), transpose(trans_b), (blasint)m,
                    (blasint)n, (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb, beta,
                    c, (blasint)ldc);
}

/* Rows that the library's ints can count; n is below 2^31, as C is a matrix of n^2. */
#define SYRK_ROWS ((int64_t)1 << 30)

void syrk_f32(int64_t n, int64_t k, const float *a, int64_t lda, float beta, float *c) {
    for (int64_t from = 0; from == 0 || from < k; from += SYRK_ROWS) {
        const int64_t rows = k - from < SYRK_ROWS ? k - from : SYRK_ROWS;
        cblas_ssyrk(CblasRowMajor, CblasLower, CblasTrans, (blasint)n, (blasint)rows, 1,
                    a + from * lda, (blasint)lda, from == 0 ? beta : 1, c, (blasint)n);
    }
}

void syrk_f64(int64_t n, int64_t k, const double *a, int64_t lda, double beta,
              double *c) {
    for (int64_t from = 0; from == 0 || from < k; from += SYRK_ROWS) {
        const int64_t rows = k - from < SYRK_ROWS ? k - from : SYRK_ROWS;
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, (blasint)n, (blasint)rows, 1,
                    a + from * lda, (blasint)lda, from == 0 ? beta : 1, c, (blasint)n);
    }
}

int cholesky_f64(int64_t n, double *a) {
    return LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', (lapack_int)n, a, (lapack_int)n);
}

void cholesky_solve_f64(bool transposed, int64_t n, const double *l, int64_t m, double *b,
                        int64_t ldb) {
    cblas_dtrsm(CblasRowMajor, CblasLeft, CblasLower, transpose(transposed), CblasNonUnit,
                (blasint)n, (blasint)m, 1, l, (blasint)n, b, (blasint)ldb);
}

int symmetric_reduce(int64_t n, double *a, double *d, double *e, double *tau) {
    return LAPACKE_dsytrd(LAPACK_COL_MAJOR, 'U', (lapack_int)n, a, (lapack_int)n, d, e,
                          tau);
}

int tridiagonal_values(int64_t n, double *d, double *e) {
    return LAPACKE_dsterf((lapack_int)n, d, e);
}

int tridiagonal_vectors(int64_t n, int64_t count, double *d, double *e, double *z) {
    double *values = malloc((size_t)n * sizeof *values);
    lapack_int *support = malloc(2 * (size_t)n * sizeof *support);
    lapack_int found = 0, info = -1;
    lapack_logical relative = 1;
    if (values && support) {
        info = LAPACKE_dstemr(LAPACK_COL_MAJOR, 'V', 'I', (lapack_int)n, d, e, 0, 0,
                              (lapack_int)(n - count + 1), (lapack_int)n, &found, values,
                              z, (lapack_int)n, (lapack_int)count, support, &relative);
        if (info == 0 && found != count) info = 1;
    }
    free(values);
    free(support);
    return info;
}

int symmetric_restore(int64_t n, double *a, const double *tau, int64_t count, double *z) {
    return LAPACKE_dormtr(LAPACK_COL_MAJOR, 'L', 'U', 'N', (lapack_int)n,
                          (lapack_int)count, a, (lapack_int)n, tau, z, (lapack_int)n);
}

int singular_values_f64(int64_t m, int64_t n, double *a, double *sigma) {
    double unused = 0;
    return LAPACKE_dgesdd(LAPACK_COL_MAJOR, 'N', (lapack_int)n, (lapack_int)m, a,
                          (lapack_int)n, sigma, &unused, 1, &unused, 1);
}
