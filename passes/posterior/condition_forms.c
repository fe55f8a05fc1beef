/* Conditioning by form: see condition_forms.h. */
#include "passes/posterior/condition_forms.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- low rank and diagonal ----
 *
 * Conditioning with S = F^T F + N, and S = N alone: see condition.h.
 *
 * A first walk over v2's elements adds up A = F_2 N_2^-1 F_2^T and b = F_2 N_2^-1
 * (c - mu_2); I + A = L L^T; a second one over all elements adds F^T (I + A)^-1 b to the
 * means and replaces F by L^-1 F, both in blocks of columns. */

enum { BLOCK = 256 };

typedef struct LowRank {
    Conditioning *c;
    int64_t samples; /* K; 0 = all storages are diagonal */
    double *a;       /* [K, K]: A, I + A, then L in the lower triangle */
    double *b;       /* [K]: b, then (I + A)^-1 b */
    double *block;   /* [K, BLOCK]: columns of F */
    double *tall;    /* [BLOCK, K]: scaled columns of F_2 as rows */
    bool correlated; /* some given element has a column of F */
} LowRank;

/* Columns [first, first + n) of F, row stride BLOCK. */
static void read_block(const LowRank *l, const Gaussian *g, int64_t first, int64_t n) {
    const int64_t width = g->factor.dim[1];
    for (int64_t k = 0; k < l->samples; k++)
        tensor_read_f64(&g->factor, k * width + first, n, l->block + k * BLOCK);
}

/* The first walk. */

/* Takes one given element; its column becomes row *rows of `tall`. An element that is
 * known already needs nothing. */
static Status take_given(LowRank *l, const ConditionPart *part, int64_t i, double noise,
                         double away, int64_t *rows) {
    const bool low_rank = part->normal->form == GAUSSIAN_LOW_RANK;
    bool alone = true; /* its column of F is zero */
    for (int64_t k = 0; low_rank && alone && k < l->samples; k++)
        alone = l->block[k * BLOCK + i] == 0;
    if (noise <= 0) {
        if (alone && away == 0) return STATUS_OK;
        return condition_fail_singular(l->c, part, noise);
    }
    Conditioning *c = l->c;
    if (low_rank && (c->jitter == 0 || noise < c->jitter)) c->jitter = noise;
    if (alone) return STATUS_OK;
    const double root = 1 / sqrt(noise);
    for (int64_t k = 0; k < l->samples; k++) {
        const double scaled = l->block[k * BLOCK + i] * root;
        l->tall[*rows * l->samples + k] = scaled;
        l->b[k] += scaled * away * root;
    }
    ++*rows;
    return STATUS_OK;
}

static Status add_block(LowRank *l, const ConditionPart *part, int64_t first, int64_t n) {
    double mean[BLOCK], noise[BLOCK];
    int64_t rows = 0;
    const Gaussian *g = part->normal;
    if (g->form == GAUSSIAN_LOW_RANK) read_block(l, g, first, n);
    tensor_read_f64(&g->mean, first, n, mean);
    tensor_read_f64(&g->diagonal, first, n, noise);
    for (int64_t i = 0; i < n; i++)
        if (condition_mark(part, first + i) == MARK_GIVEN)
            TRY(take_given(l, part, i, noise[i], part->value[first + i] - mean[i],
                           &rows));
    if (rows == 0) return STATUS_OK;
    l->correlated = true;
    syrk_f64(l->samples, rows, l->tall, l->samples, 1, l->a);
    return STATUS_OK;
}

/* b becomes (I + A)^-1 b. */
static Status solve(LowRank *l) {
    const int64_t samples = l->samples;
    for (int64_t k = 0; k < samples; k++) l->a[k * samples + k] += 1;
    const int info = cholesky_f64(samples, l->a);
    if (info < 0)
        return diag_fail(l->c->diag, STATUS_MEMORY, l->c->ctx->source.at,
                         l->c->ctx->source.key, "not enough memory for %lld samples",
                         (long long)samples);
    if (info > 0)
        return step_fail(l->c->ctx, l->c->diag,
                         "the covariance of the parameters to be set is not positive "
                         "definite in double precision at a jitter of %g",
                         l->c->jitter);
    cholesky_solve_f64(false, samples, l->a, 1, l->b, 1);
    cholesky_solve_f64(true, samples, l->a, 1, l->b, 1);
    return STATUS_OK;
}

/* The second walk. */

/* Means and diagonal parts of a block: given elements become their values. */
static Status update_diagonal(const LowRank *l, const ConditionPart *part, int64_t first,
                              int64_t n, bool moves) {
    double mean[BLOCK], noise[BLOCK];
    Gaussian *g = part->normal;
    tensor_read_f64(&g->mean, first, n, mean);
    tensor_read_f64(&g->diagonal, first, n, noise);
    for (int64_t k = 0; moves && k < l->samples; k++)
        for (int64_t i = 0; i < n; i++) mean[i] += l->b[k] * l->block[k * BLOCK + i];
    for (int64_t i = 0; i < n; i++) {
        if (condition_mark(part, first + i) != MARK_GIVEN) continue;
        mean[i] = part->value[first + i];
        noise[i] = 0;
    }
    TRY(tensor_write_f64(&g->mean, first, n, mean, l->c->diag));
    if (part->given == 0) return STATUS_OK;
    return tensor_write_f64(&g->diagonal, first, n, noise, l->c->diag);
}

/* L^-1 F, zero at given elements. */
static Status update_factor(const LowRank *l, const ConditionPart *part, int64_t first,
                            int64_t n) {
    Gaussian *g = part->normal;
    const int64_t width = g->factor.dim[1];
    if (l->correlated) cholesky_solve_f64(false, l->samples, l->a, n, l->block, BLOCK);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0;
             condition_mark(part, first + i) == MARK_GIVEN && k < l->samples; k++)
            l->block[k * BLOCK + i] = 0;
    for (int64_t k = 0; k < l->samples; k++)
        TRY(tensor_write_f64(&g->factor, k * width + first, n, l->block + k * BLOCK,
                             l->c->diag));
    return STATUS_OK;
}

static Status update_part(const LowRank *l, ConditionPart *part) {
    const bool low_rank = part->normal->form == GAUSSIAN_LOW_RANK;
    const bool moves = low_rank && l->correlated;
    condition_begin(l->c, part);
    for (int64_t first = 0; (part->given || moves) && first < part->count;
         first += BLOCK) {
        const int64_t left = part->count - first, n = left < BLOCK ? left : BLOCK;
        if (low_rank) read_block(l, part->normal, first, n);
        TRY(update_diagonal(l, part, first, n, moves));
        if (low_rank) TRY(update_factor(l, part, first, n));
    }
    condition_end(l->c, part);
    return STATUS_OK;
}

static bool is_ours(const ConditionPart *part) {
    return part->normal->form != GAUSSIAN_KRON;
}

static Status run(LowRank *l) {
    Conditioning *c = l->c;
    for (int i = 0; i < c->part_count; i++) {
        const ConditionPart *part = &c->parts[i];
        if (!is_ours(part) || part->given == 0) continue;
        for (int64_t first = 0; first < part->count; first += BLOCK) {
            const int64_t left = part->count - first;
            TRY(add_block(l, part, first, left < BLOCK ? left : BLOCK));
        }
    }
    if (l->correlated) TRY(solve(l));
    for (int i = 0; i < c->part_count; i++)
        if (is_ours(&c->parts[i])) TRY(update_part(l, &c->parts[i]));
    return STATUS_OK;
}

Status condition_low_rank(Conditioning *c) {
    LowRank l = {.c = c};
    for (int i = 0; i < c->part_count && l.samples == 0; i++)
        l.samples = gaussian_samples(c->parts[i].normal);
    const size_t samples = (size_t)l.samples + 1;
    l.a = memory_alloc(samples * samples, sizeof *l.a);
    l.b = memory_alloc(samples, sizeof *l.b);
    l.block = memory_alloc(samples * BLOCK, sizeof *l.block);
    l.tall = memory_alloc(samples * BLOCK, sizeof *l.tall);
    const Status status = run(&l);
    free(l.a);
    free(l.b);
    free(l.block);
    free(l.tall);
    return status;
}

/* ---- kron ----
 *
 * Conditioning a matrix-normal weight on whole columns and rows: see condition.h.
 *
 * Columns come first; what they leave is matrix normal again, with the same covariance of
 * rows, and rows are columns of its transpose. */

/* A matrix [n, m] and the covariance of its columns [m, m], of which `count` are given.
 */
typedef struct KronSide {
    int64_t n, m, count;
    const bool *given; /* by column */
    double *mean;      /* [n, m] */
    double *value;     /* [n, m]; read where given */
    double *covariance;
} KronSide;

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
static int solve_side(const KronSide *s, const int64_t *given, double *square,
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
static int condition_side(KronSide *s) {
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
static void clean_side(KronSide *s) {
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

static int kron_run(Kron *k) {
    KronSide columns = {k->n,    k->m,     count_lines(k->column, k->m), k->column,
                        k->mean, k->value, k->column_covariance};
    int info = condition_side(&columns);
    if (info) return info;
    clean_side(&columns);
    transpose(k->mean, k->n, k->m, k->turned_mean);
    transpose(k->value, k->n, k->m, k->turned_value);
    KronSide rows = {k->m,
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

Status condition_kron(const Conditioning *c, const ConditionPart *part) {
    if (part->given == 0) return STATUS_OK;
    Gaussian *g = part->normal;
    if (part->given == part->count) { /* nothing is left that could be correlated */
        const double zero = 0;
        TRY(tensor_write_f64(&g->mean, 0, part->count, part->value, c->diag));
        for (int64_t i = 0; i < tensor_count(&g->row); i++)
            TRY(tensor_write_f64(&g->row, i, 1, &zero, c->diag));
        for (int64_t i = 0; i < tensor_count(&g->column); i++)
            TRY(tensor_write_f64(&g->column, i, 1, &zero, c->diag));
        return STATUS_OK;
    }
    Kron k = kron_open(part);
    const int info = kron_run(&k);
    Status status = STATUS_OK;
    if (info > 0)
        status = condition_fail_singular(c, part, 0);
    else if (info < 0)
        status = diag_fail(c->diag, STATUS_MEMORY, c->ctx->source.at, c->ctx->source.key,
                           "not enough memory for '%s'", part->storage->name);
    else
        status = tensor_write_f64(&g->mean, 0, k.n * k.m, k.mean, c->diag);
    if (status == STATUS_OK)
        status = tensor_write_f64(&g->row, 0, k.n * k.n, k.row_covariance, c->diag);
    if (status == STATUS_OK)
        status = tensor_write_f64(&g->column, 0, k.m * k.m, k.column_covariance, c->diag);
    free(k.row);
    free(k.column);
    free(k.mean);
    free(k.value);
    free(k.turned_mean);
    free(k.turned_value);
    free(k.row_covariance);
    free(k.column_covariance);
    return status;
}
