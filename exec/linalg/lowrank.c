/* LowRank: see exec/linalg/lowrank.h.
 *
 *     P = W L                     W itself without L
 *     G = P P^T or P^T P          the smaller one; G = Q T Q^T, T tridiagonal
 *     T z = s^2 z                 all values first, the vectors once the rank is known
 *     M <= K: U = Q z, B = U,     A = U^T W
 *     M > K:  V = Q z, B = P V,   A = V^T L^-1
 *
 * Then columns of B and rows of A are scaled to equal norms. */
#include "exec/linalg/lowrank.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "exec/linalg/tsvd.h"
#include "ir/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Share of the squared singular values that rounding hides. */
#define ROUNDING_ENERGY 1e-12

static bool is_tall(const LowRank *low) {
    return low->rows > low->columns;
}

/* ---- singular values ---- */

/* Room for the smaller Gram matrix, its tridiagonal form and values, and W L. */
static Status make_room(LowRank *low, Diag *diag) {
    const size_t n = (size_t)low->count;
    const size_t product = low->l ? (size_t)(low->rows * low->columns) : 0;
    TRY(buf_create(&low->buf, (n * (n + 4) + product) * sizeof(double), diag));
    low->squares = (double *)(uintptr_t)buf_data(low->buf);
    low->d = low->squares + n;
    low->e = low->d + n;
    low->tau = low->e + n;
    low->matrix = low->tau + n;
    low->product = product ? low->matrix + n * n : low->w;
    return STATUS_OK;
}

/* P = W L and the lower triangle of the smaller Gram matrix. */
static void fill_gram(LowRank *low) {
    const int64_t M = low->rows, K = low->columns;
    if (low->l)
        gemm_f64(false, false, M, K, K, 1, low->w, K, low->l, K, 0,
                 low->matrix + low->count * low->count, K);
    if (is_tall(low))
        syrk_f64(K, M, low->product, K, 0, low->matrix);
    else
        gemm_f64(false, true, M, M, K, 1, low->product, K, low->product, K, 0,
                 low->matrix, M);
}

static bool has_finite_diagonal(const LowRank *low) {
    for (int64_t i = 0; i < low->count; i++)
        if (!isfinite(low->matrix[i * low->count + i])) return false;
    return true;
}

static Status find_squares(LowRank *low, Diag *diag) {
    const int64_t n = low->count;
    TRY(eigen_check(symmetric_reduce(n, low->matrix, low->d, low->e, low->tau), diag));
    double *scratch = memory_alloc((size_t)n, sizeof *scratch);
    memcpy(low->squares, low->d, (size_t)n * sizeof(double));
    memcpy(scratch, low->e, (size_t)n * sizeof(double));
    const int info = tridiagonal_values(n, low->squares, scratch);
    free(scratch);
    TRY(eigen_check(info, diag));
    for (int64_t i = 0; i < n - 1 - i; i++) { /* the largest first */
        const double swapped = low->squares[i];
        low->squares[i] = low->squares[n - 1 - i];
        low->squares[n - 1 - i] = swapped;
    }
    for (int64_t i = 0; i < n; i++) low->squares[i] = fmax(low->squares[i], 0);
    return STATUS_OK;
}

Status low_rank_open(LowRank *out, const double *w, int64_t rows, int64_t columns,
                     const double *l, Diag *diag) {
    LowRank low = {.rows = rows,
                   .columns = columns,
                   .count = rows < columns ? rows : columns,
                   .w = w,
                   .l = l};
    Status status = make_room(&low, diag);
    if (status == STATUS_OK) {
        fill_gram(&low);
        status = has_finite_diagonal(&low)
                     ? find_squares(&low, diag)
                     : diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                                 "expected finite numbers, found NaN or an infinity");
    }
    if (status != STATUS_OK)
        low_rank_close(&low);
    else
        *out = low;
    return status;
}

int64_t low_rank_by_energy(const LowRank *low, double energy) {
    double total = 0, tail = 0;
    for (int64_t i = low->count - 1; i >= 0; i--) total += low->squares[i];
    const double allowed = fmax(1 - energy, ROUNDING_ENERGY) * total;
    int64_t rank = low->count;
    while (rank > 1 && tail + low->squares[rank - 1] <= allowed)
        tail += low->squares[--rank];
    return rank;
}

/* ---- factors ---- */

/* The eigenvectors of the `rank` largest values, as rows, the largest first. */
static Status find_vectors(double *z, const LowRank *low, int64_t rank, Diag *diag) {
    const int64_t n = low->count;
    double *d = memory_alloc((size_t)n, 2 * sizeof *d), *e = d + n;
    memcpy(d, low->d, (size_t)n * sizeof *d);
    memcpy(e, low->e, (size_t)n * sizeof *e);
    int info = tridiagonal_vectors(n, rank, d, e, z);
    if (info == 0) info = symmetric_restore(n, low->matrix, low->tau, rank, z);
    free(d);
    TRY(eigen_check(info, diag));
    for (int64_t i = 0; i < rank - 1 - i; i++) {
        double *a = z + i * n, *b = z + (rank - 1 - i) * n;
        for (int64_t j = 0; j < n; j++) {
            const double swapped = a[j];
            a[j] = b[j];
            b[j] = swapped;
        }
    }
    return STATUS_OK;
}

/* b[r, M] = B^T and a[r, K] = A of the vectors z[r, count]. */
static void project(double *b, double *a, const double *z, const LowRank *low,
                    int64_t rank) {
    const int64_t M = low->rows, K = low->columns;
    if (!is_tall(low)) {
        memcpy(b, z, (size_t)(rank * M) * sizeof *b);
        gemm_f64(false, false, rank, K, M, 1, z, M, low->w, K, 0, a, K);
        return;
    }
    gemm_f64(false, true, rank, M, K, 1, z, K, low->product, K, 0, b, M);
    memcpy(a, z, (size_t)(rank * K) * sizeof *a);
    if (!low->l) return;
    double *turned = memory_alloc((size_t)(rank * K), sizeof *turned); /* L^-T V */
    for (int64_t i = 0; i < rank; i++)
        for (int64_t k = 0; k < K; k++) turned[k * rank + i] = z[i * K + k];
    cholesky_solve_f64(true, K, low->l, rank, turned, rank);
    for (int64_t i = 0; i < rank; i++)
        for (int64_t k = 0; k < K; k++) a[i * K + k] = turned[k * rank + i];
    free(turned);
}

static double norm_of(const double *x, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static double sign_of(const double *x, int64_t count) {
    int64_t most = 0;
    for (int64_t i = 1; i < count; i++)
        if (fabs(x[i]) > fabs(x[most])) most = i;
    return x[most] < 0 ? -1 : 1;
}

/* Puts a row, times `by`, where it belongs: a row of the tensor, or with `turned` a
 * column of `stride`. */
static void put_row(float *out, const double *row, int64_t count, int64_t i, double by,
                    bool turned, int64_t stride) {
    for (int64_t j = 0; j < count; j++)
        out[turned ? j * stride + i : i * count + j] = (float)(row[j] * by);
}

Status low_rank_factors(Tensor *second, Tensor *first, const LowRank *low, int64_t rank,
                        bool turned, Diag *diag) {
    const int64_t M = low->rows, K = low->columns;
    const int64_t b_dim[] = {turned ? rank : M, turned ? M : rank};
    const int64_t a_dim[] = {turned ? K : rank, turned ? rank : K};
    void *b_out = NULL, *a_out = NULL;
    Buf *buf = NULL;
    *second = *first = (Tensor){0};
    Status status =
        buf_create(&buf, (size_t)(rank * (low->count + M + K)) * sizeof(double), diag);
    if (status == STATUS_OK) status = tensor_create(second, DTYPE_F32, 2, b_dim, diag);
    if (status == STATUS_OK) status = tensor_create(first, DTYPE_F32, 2, a_dim, diag);
    if (status == STATUS_OK) status = tensor_writable(second, &b_out, diag);
    if (status == STATUS_OK) status = tensor_writable(first, &a_out, diag);
    double *z = buf ? (double *)(uintptr_t)buf_data(buf) : NULL;
    if (status == STATUS_OK) status = find_vectors(z, low, rank, diag);
    if (status == STATUS_OK) {
        double *b = z + rank * low->count, *a = b + rank * M;
        project(b, a, z, low, rank);
        for (int64_t i = 0; i < rank; i++) {
            const double size = norm_of(b + i * M, M), other = norm_of(a + i * K, K);
            const double sign = sign_of(a + i * K, K);
            const double by = size > 0 && other > 0 ? sqrt(other / size) : 0;
            put_row(b_out, b + i * M, M, i, sign * by, !turned, rank);
            put_row(a_out, a + i * K, K, i, by > 0 ? sign / by : 0, turned, rank);
        }
    }
    buf_release(buf);
    if (status == STATUS_OK) return status;
    tensor_release(second);
    tensor_release(first);
    return status;
}

/* ---- errors ---- */

Status low_rank_multiply(double *w, const Tensor *second, const Tensor *first,
                         bool turned, Diag *diag) {
    const int64_t M = second->dim[turned], rank = second->dim[!turned];
    const int64_t K = first->dim[!turned];
    Buf *buf = NULL;
    TRY(buf_create(&buf, (size_t)(rank * (M + K)) * sizeof(double), diag));
    double *b = (double *)(uintptr_t)buf_data(buf), *a = b + rank * M;
    tensor_read_f64(second, 0, rank * M, b);
    tensor_read_f64(first, 0, rank * K, a);
    gemm_f64(turned, turned, M, K, rank, 1, b, turned ? M : rank, a, turned ? rank : K, 0,
             w, K);
    buf_release(buf);
    return STATUS_OK;
}

/* Norms of D[M, K]; `seen` is room for D L. */
static LowRankNorms norms_of(const LowRank *low, const double *d, double *seen) {
    const int64_t M = low->rows, K = low->columns;
    const double plain = norm_of(d, M * K);
    if (!low->l) return (LowRankNorms){plain * plain, plain * plain};
    gemm_f64(false, false, M, K, K, 1, d, K, low->l, K, 0, seen, K);
    const double through = norm_of(seen, M * K);
    return (LowRankNorms){plain * plain, through * through};
}

Status low_rank_norms(LowRankNorms *whole, LowRankNorms *error, const LowRank *low,
                      const Tensor *second, const Tensor *first, bool turned,
                      Diag *diag) {
    const int64_t count = low->rows * low->columns;
    Buf *buf = NULL;
    TRY(buf_create(&buf, 2 * (size_t)count * sizeof(double), diag));
    double *d = (double *)(uintptr_t)buf_data(buf), *seen = d + count;
    Status status = low_rank_multiply(d, second, first, turned, diag);
    if (status == STATUS_OK) {
        for (int64_t i = 0; i < count; i++) d[i] = low->w[i] - d[i];
        *error = norms_of(low, d, seen);
        *whole = norms_of(low, low->w, seen);
    }
    buf_release(buf);
    return status;
}

void low_rank_close(LowRank *low) {
    buf_release(low->buf);
    low->buf = NULL;
}
