/* Conditioning a matrix-normal weight on whole columns and rows: see condition.h.
 *
 * Columns come first; what they leave is matrix normal again, with the same covariance of
 * rows, and rows are columns of its transpose. */
#include "exec/linalg/blas.h"
#include "passes/posterior/condition_internal.h"

#include <stdlib.h>
#include <string.h>

/* A matrix [n, m] and the covariance of its columns [m, m], of which `count` are given.
 */
typedef struct Side {
    int64_t n, m, count;
    const bool *given; /* by column */
    double *mean;      /* [n, m] */
    double *value;     /* [n, m]; read where given */
    double *covariance;
} Side;

static bool is_given(const ConditionPart *part, int64_t i) {
    return condition_mark(part, i) == MARK_GIVEN;
}

/* Finds the rows and the columns all of whose elements are given. Slices of a matrix are
 * whole lines, so these cover what is given. */
static void find_lines(const ConditionPart *part, bool *row, bool *column) {
    const int64_t n = storage_tensor(part->storage)->dim[0],
                  m = storage_tensor(part->storage)->dim[1];
    for (int64_t i = 0; i < n; i++) row[i] = true;
    for (int64_t j = 0; j < m; j++) column[j] = true;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) {
            row[i] &= is_given(part, i * m + j);
            column[j] &= is_given(part, i * m + j);
        }
}

/* X = V_JJ^-1 [V_JK, (C - M_J)^T]: `right` [count, m + n] holds the two side by side. */
static int solve_side(const Side *s, const int64_t *given, double *square,
                      double *right) {
    const int64_t wide = s->m + s->n;
    for (int64_t a = 0; a < s->count; a++) {
        const int64_t j = given[a];
        for (int64_t b = 0; b < s->count; b++)
            square[a * s->count + b] = s->covariance[j * s->m + given[b]];
        memcpy(right + a * wide, s->covariance + j * s->m, (size_t)s->m * sizeof *right);
        for (int64_t i = 0; i < s->n; i++)
            right[a * wide + s->m + i] = s->value[i * s->m + j] - s->mean[i * s->m + j];
    }
    const int info = cholesky_f64(s->count, square);
    if (info == 0) cholesky_solve_f64(false, s->count, square, wide, right, wide);
    return info;
}

/* With L L^T = V_JJ, Y = L^-1 V_J. and Z = L^-1 (C - M_J)^T: M + Z^T Y and V - Y^T Y, of
 * which the given columns are then set. */
static int condition_side(Side *s) {
    if (s->count == 0) return 0;
    const int64_t wide = s->m + s->n;
    int64_t *given = memory_alloc((size_t)s->count, sizeof *given), found = 0;
    double *square = memory_alloc((size_t)(s->count * s->count), sizeof *square);
    double *right = memory_alloc((size_t)(s->count * wide), sizeof *right);
    for (int64_t j = 0; j < s->m; j++)
        if (s->given[j]) given[found++] = j;
    const int info = solve_side(s, given, square, right);
    if (info == 0) {
        gemm_f64(true, false, s->n, s->m, s->count, 1, right + s->m, wide, right, wide, 1,
                 s->mean, s->m);
        gemm_f64(true, false, s->m, s->m, s->count, -1, right, wide, right, wide, 1,
                 s->covariance, s->m);
    }
    free(given);
    free(square);
    free(right);
    return info;
}

/* Given columns: their values, no variance. Elsewhere rounding may leave a variance below
 * zero, and two halves that differ. */
static void clean_side(Side *s) {
    for (int64_t j = 0; j < s->m; j++)
        for (int64_t k = 0; k <= j; k++) {
            double v = s->covariance[j * s->m + k];
            if (s->given[j] || s->given[k] || (j == k && v < 0)) v = 0;
            s->covariance[j * s->m + k] = s->covariance[k * s->m + j] = v;
        }
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t j = 0; j < s->m; j++)
            if (s->given[j]) s->mean[i * s->m + j] = s->value[i * s->m + j];
}

static void transpose(const double *in, int64_t n, int64_t m, double *out) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) out[j * n + i] = in[i * m + j];
}

static int64_t count_lines(const bool *given, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += given[i];
    return count;
}

/* What one storage takes while it is worked on. */
typedef struct Kron {
    int64_t n, m;
    bool *row, *column;
    double *mean, *value, *turned_mean, *turned_value; /* [n, m], [m, n] */
    double *row_covariance, *column_covariance;
} Kron;

static Kron kron_open(const ConditionPart *part) {
    const Gaussian *g = part->normal;
    Kron k = {.n = g->mean.dim[0], .m = g->mean.dim[1]};
    const size_t n = (size_t)k.n, m = (size_t)k.m;
    k.row = memory_alloc(n + 1, sizeof *k.row);
    k.column = memory_alloc(m + 1, sizeof *k.column);
    find_lines(part, k.row, k.column);
    double **area[] = {&k.mean, &k.value, &k.turned_mean, &k.turned_value};
    for (int i = 0; i < 4; i++) *area[i] = memory_alloc(n * m + 1, sizeof(double));
    k.row_covariance = memory_alloc(n * n + 1, sizeof(double));
    k.column_covariance = memory_alloc(m * m + 1, sizeof(double));
    tensor_read_f64(&g->mean, 0, part->count, k.mean);
    tensor_read_f64(&g->row, 0, k.n * k.n, k.row_covariance);
    tensor_read_f64(&g->column, 0, k.m * k.m, k.column_covariance);
    memcpy(k.value, part->value, n * m * sizeof(double));
    return k;
}

static void kron_close(Kron *k) {
    free(k->row);
    free(k->column);
    free(k->mean);
    free(k->value);
    free(k->turned_mean);
    free(k->turned_value);
    free(k->row_covariance);
    free(k->column_covariance);
}

static int kron_run(Kron *k) {
    Side columns = {k->n,    k->m,     count_lines(k->column, k->m), k->column,
                    k->mean, k->value, k->column_covariance};
    int info = condition_side(&columns);
    if (info) return info;
    clean_side(&columns);
    transpose(k->mean, k->n, k->m, k->turned_mean);
    transpose(k->value, k->n, k->m, k->turned_value);
    Side rows = {k->m,
                 k->n,
                 count_lines(k->row, k->n),
                 k->row,
                 k->turned_mean,
                 k->turned_value,
                 k->row_covariance};
    info = condition_side(&rows);
    if (info) return info;
    clean_side(&rows);
    transpose(k->turned_mean, k->m, k->n, k->mean);
    return 0;
}

static Status kron_store(const Kron *k, Gaussian *g, Diag *diag) {
    TRY(tensor_write_f64(&g->mean, 0, k->n * k->m, k->mean, diag));
    TRY(tensor_write_f64(&g->row, 0, k->n * k->n, k->row_covariance, diag));
    return tensor_write_f64(&g->column, 0, k->m * k->m, k->column_covariance, diag);
}

/* All of it is given: nothing is left that could be correlated. */
static Status set_all(const ConditionPart *part, Diag *diag) {
    Gaussian *g = part->normal;
    const double zero = 0;
    TRY(tensor_write_f64(&g->mean, 0, part->count, part->value, diag));
    for (int64_t i = 0; i < tensor_count(&g->row); i++)
        TRY(tensor_write_f64(&g->row, i, 1, &zero, diag));
    for (int64_t i = 0; i < tensor_count(&g->column); i++)
        TRY(tensor_write_f64(&g->column, i, 1, &zero, diag));
    return STATUS_OK;
}

Status condition_kron(const Conditioning *c, const ConditionPart *part) {
    if (part->given == 0) return STATUS_OK;
    if (part->given == part->count) return set_all(part, c->diag);
    Kron k = kron_open(part);
    const int info = kron_run(&k);
    Status status = STATUS_OK;
    if (info > 0)
        status = condition_fail_singular(c, part, 0);
    else if (info < 0)
        status = diag_fail(c->diag, STATUS_MEMORY, c->ctx->source.at, c->ctx->source.key,
                           "not enough memory for '%s'", part->storage->name);
    else
        status = kron_store(&k, part->normal, c->diag);
    kron_close(&k);
    return status;
}
