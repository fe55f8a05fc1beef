/* Tsvd: see exec/linalg/tsvd.h.
 *
 *     G = E^T E              tall_gram, lower triangle
 *     G = Q T Q^T            symmetric_reduce, T tridiagonal
 *     T z = lambda z         all values, and the vectors of the largest `rank`
 *     V = Q z, sigma = sqrt(lambda), left = E V, right = V^T
 *
 * Squaring halves the digits: what is under 1e-3 of the largest singular value is lost in
 * f32. The spectrum computed tells when that happened; a sample of the rows tells most
 * such matrices before the first, lost, attempt. The eigenproblem itself is always in
 * f64. */
#include "exec/linalg/tsvd.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "exec/linalg/tall.h"
#include "exec/run/parallel.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* f32 serves when the eigenvalue below the cut is at least this part of the largest. Just
 * above it the f32 vectors cost 1e-8 of the error and its prediction is off by 2e-4; ten
 * times lower it would be 2e-7 and 3e-3. */
#define STEEP_RATIO 1e-4

/* Rows sampled per rank, and rows of E per row sampled for a sample to be worth its time.
 */
enum { SAMPLE_PER_RANK = 2, SAMPLE_SHARE = 8 };

/* The largest diagonal element of an f32 Gram matrix in which no product that matters has
 * left the normal range. */
#define GRAM_LEAST 1e-24
#define GRAM_MOST  1e37

/* The eigenproblem of a symmetric matrix and its memory. */
typedef struct Eigen {
    Buf *buf;
    int64_t width, count;     /* of the matrix; vectors wanted */
    double *matrix;           /* [width, width]; then the transformation */
    double *d, *e, *tau;      /* its tridiagonal form */
    double *values, *scratch; /* all eigenvalues, ascending */
    double *vectors;          /* [count, width], ascending */
    int info[2];
} Eigen;

static Status eigen_create(Eigen *eigen, int64_t width, int64_t count, Diag *diag) {
    const size_t n = (size_t)width;
    *eigen = (Eigen){.width = width, .count = count};
    TRY(buf_create(&eigen->buf, n * (n + (size_t)count + 5) * sizeof(double), diag));
    eigen->matrix = (double *)(uintptr_t)buf_data(eigen->buf);
    eigen->vectors = eigen->matrix + n * n;
    eigen->d = eigen->vectors + n * (size_t)count;
    eigen->e = eigen->d + n;
    eigen->tau = eigen->e + n;
    eigen->values = eigen->tau + n;
    eigen->scratch = eigen->values + n;
    return STATUS_OK;
}

Status eigen_check(int info, Diag *diag) {
    if (info == 0) return STATUS_OK;
    if (info < 0)
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "out of memory in an eigenvalue problem");
    return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                     "an eigenvalue problem did not converge");
}

/* All values (task 0) or the vectors (task 1) of the tridiagonal form. */
static void eigen_task(void *self, int64_t task, int worker) {
    (void)worker;
    Eigen *eigen = self;
    const int64_t n = eigen->width;
    if (task == 0)
        eigen->info[0] = tridiagonal_values(n, eigen->values, eigen->scratch);
    else
        eigen->info[1] =
            tridiagonal_vectors(n, eigen->count, eigen->d, eigen->e, eigen->vectors);
}

/* Solves for the values and, when count > 0, the vectors of the tridiagonal form. */
static Status eigen_solve(Eigen *eigen, int threads, Diag *diag) {
    const size_t bytes = (size_t)eigen->width * sizeof(double);
    TRY(eigen_check(
        symmetric_reduce(eigen->width, eigen->matrix, eigen->d, eigen->e, eigen->tau),
        diag));
    memcpy(eigen->values, eigen->d, bytes);
    memcpy(eigen->scratch, eigen->e, bytes);
    parallel_for(eigen->count > 0 ? 2 : 1, threads, eigen_task, eigen);
    TRY(eigen_check(eigen->info[0], diag));
    return eigen_check(eigen->info[1], diag);
}

/* Whether f32 loses the eigenvalues at the cut after the largest `rank`. */
static bool is_steep(const Eigen *eigen, int64_t rank) {
    const int64_t n = eigen->width, below = rank < n ? rank : n - 1;
    return eigen->values[n - 1 - below] < STEEP_RATIO * eigen->values[n - 1];
}

/* Largest element of the diagonal, NaN when one is NaN. */
static double largest_diagonal(const Eigen *eigen) {
    double largest = 0;
    for (int64_t i = 0; i < eigen->width; i++) {
        const double x = eigen->matrix[i * eigen->width + i];
        if (!(x <= largest)) largest = x;
        if (isnan(x)) break;
    }
    return largest;
}

/* Whether a sample of evenly spaced rows is steep. The sample has fewer rows than E has
 * columns, so its own row products have the same spectrum and are less work. */
static Status sample_is_steep(bool *steep, const Tensor *e, int64_t rank, Diag *diag) {
    const int64_t rows = e->dim[0], width = e->dim[1], count = SAMPLE_PER_RANK * rank;
    *steep = false;
    if (count > width || count > rows / SAMPLE_SHARE) return STATUS_OK;
    Eigen eigen;
    TRY(eigen_create(&eigen, count, 0, diag));
    Buf *buf = NULL;
    Status status = buf_create(&buf, (size_t)(count * width) * sizeof(double), diag);
    if (status == STATUS_OK) {
        double *sample = (double *)(uintptr_t)buf_data(buf);
        for (int64_t i = 0; i < count; i++)
            tensor_read_f64(e, rows / count * i * width, width, sample + i * width);
        gemm_f64(false, true, count, count, width, 1, sample, width, sample, width, 0,
                 eigen.matrix, count);
        if (isfinite(largest_diagonal(&eigen))) {
            status = eigen_solve(&eigen, 1, diag);
            *steep = status == STATUS_OK && is_steep(&eigen, rank);
        }
    }
    buf_release(buf);
    buf_release(eigen.buf);
    return status;
}

static Status check_matrix(const Tensor *e, int64_t rank, Diag *diag) {
    char shape[SHAPE_TEXT_BYTES];
    shape_text(shape, e->rank, e->dim);
    if (e->rank != 2 || !dtype_is_real(e->dtype) || e->dim[0] < 1 || e->dim[1] < 1)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected a matrix of real numbers, found %s %s",
                         dtype_name(e->dtype), shape);
    if (e->dim[1] > SYMMETRIC_WIDTH_MAX)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected a matrix of at most %d columns, found %s",
                         SYMMETRIC_WIDTH_MAX, shape);
    const int64_t most = e->dim[0] < e->dim[1] ? e->dim[0] : e->dim[1];
    if (rank < 1 || rank > most)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, "rank",
                         "expected 1 to %lld for a matrix of shape %s, found %lld",
                         (long long)most, shape, (long long)rank);
    return STATUS_OK;
}

/* The Gram matrix in f64 has NaN, an infinity, or an overflow on its diagonal, or E does
 * not fit f32. */
static Status fail_range(const Tensor *e, Diag *diag) {
    const int64_t at = tensor_find_nonfinite(e), width = e->dim[1];
    if (at >= 0)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected finite numbers, found NaN or an infinity in row %lld, "
                         "column %lld of the matrix",
                         (long long)(at / width), (long long)(at % width));
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "expected a matrix with singular values in the range of f32, found "
                     "larger ones");
}

/* Computes the Gram matrix, in f32 or f64, and solves it. *retry: f32 does not serve. */
static Status solve_gram(Eigen *eigen, const Tensor *e, bool wide, int threads,
                         bool *retry, Diag *diag) {
    TRY(tall_gram(eigen->matrix, e, wide, threads, diag));
    const double largest = largest_diagonal(eigen);
    *retry = !wide && !(largest >= GRAM_LEAST && largest <= GRAM_MOST);
    if (*retry) return STATUS_OK;
    if (!isfinite(largest)) return fail_range(e, diag);
    TRY(eigen_solve(eigen, threads, diag));
    *retry = !wide && is_steep(eigen, eigen->count);
    return STATUS_OK;
}

/* Decides the precision and solves: values and vectors of E^T E. */
static Status solve(Eigen *eigen, bool *wide, const Tensor *e, int threads, Diag *diag) {
    bool retry = false;
    TRY(sample_is_steep(wide, e, eigen->count, diag));
    TRY(solve_gram(eigen, e, *wide, threads, &retry, diag));
    if (retry) {
        *wide = true;
        TRY(solve_gram(eigen, e, true, threads, &retry, diag));
    }
    const int64_t n = eigen->width;
    if (!(sqrt(fmax(eigen->values[n - 1], 0)) <= FLT_MAX / 2)) return fail_range(e, diag);
    return eigen_check(
        symmetric_restore(n, eigen->matrix, eigen->tau, eigen->count, eigen->vectors),
        diag);
}

/* Singular values, error and energy from the eigenvalues. */
static void set_spectrum(Tsvd *out, const Eigen *eigen, int64_t rows) {
    const int64_t n = eigen->width;
    double *sigma = (double *)(uintptr_t)tensor_data(&out->sigma), part[2] = {0, 0};
    for (int64_t i = n - 1; i >= 0; i--) { /* the smallest first */
        const double value = i < rows ? fmax(eigen->values[n - 1 - i], 0) : 0;
        sigma[i] = sqrt(value);
        part[i < eigen->count] += value;
    }
    out->error = part[0];
    out->energy = part[1] > 0 ? part[1] / (part[0] + part[1]) : 1;
}

/* Vectors in f32, largest value first, signs fixed. */
static void set_right(float *right, const Eigen *eigen) {
    const int64_t n = eigen->width;
    for (int64_t i = 0; i < eigen->count; i++) {
        const double *vector = eigen->vectors + (eigen->count - 1 - i) * n;
        float *row = right + i * n, largest = 0;
        for (int64_t c = 0; c < n; c++) {
            row[c] = (float)vector[c];
            if (fabsf(row[c]) > fabsf(largest)) largest = row[c];
        }
        for (int64_t c = 0; c < n && largest < 0; c++) row[c] = -row[c];
    }
}

static Status make_result(Tsvd *out, const Eigen *eigen, const Tensor *e, int threads,
                          Diag *diag) {
    const int64_t rows = e->dim[0], width = e->dim[1], rank = eigen->count;
    const int64_t left[] = {rows, rank}, right[] = {rank, width};
    TRY(tensor_create(&out->left, DTYPE_F32, 2, left, diag));
    TRY(tensor_create(&out->right, DTYPE_F32, 2, right, diag));
    TRY(tensor_create(&out->sigma, DTYPE_F64, 1, &width, diag));
    set_spectrum(out, eigen, rows);
    float *vectors = (float *)(uintptr_t)tensor_data(&out->right);
    set_right(vectors, eigen);
    return tall_project((float *)(uintptr_t)tensor_data(&out->left), e, vectors, rank,
                        threads, diag);
}

Status tsvd(Tsvd *out, const Tensor *e, int64_t rank, int threads, Diag *diag) {
    TRY(check_matrix(e, rank, diag));
    blas_init();
    Eigen eigen;
    TRY(eigen_create(&eigen, e->dim[1], rank, diag));
    Tsvd result = {0};
    Status status = solve(&eigen, &result.double_precision, e, threads, diag);
    if (status == STATUS_OK) status = make_result(&result, &eigen, e, threads, diag);
    buf_release(eigen.buf);
    if (status == STATUS_OK)
        *out = result;
    else
        tsvd_release(&result);
    return status;
}

void tsvd_release(Tsvd *result) {
    tensor_release(&result->left);
    tensor_release(&result->right);
    tensor_release(&result->sigma);
}
