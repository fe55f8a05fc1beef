/* Conditioning with S = F^T F + N, and S = N alone: see condition.h.
 *
 * A first walk over v2's elements adds up A = F_2 N_2^-1 F_2^T and b = F_2 N_2^-1
 * (c - mu_2); I + A = L L^T; a second one over all elements adds F^T (I + A)^-1 b to the
 * means and replaces F by L^-1 F, both in blocks of columns. */
#include "exec/linalg/blas.h"
#include "passes/posterior/condition_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static bool is_zero_column(const LowRank *l, int64_t i) {
    for (int64_t k = 0; k < l->samples; k++)
        if (l->block[k * BLOCK + i] != 0) return false;
    return true;
}

/* ---- the first walk ---- */

/* Takes one given element; its column becomes row *rows of `tall`. An element that is
 * known already needs nothing. */
static Status take_given(LowRank *l, const ConditionPart *part, int64_t i, double noise,
                         double away, int64_t *rows) {
    const bool low_rank = part->normal->form == GAUSSIAN_LOW_RANK;
    const bool alone = !low_rank || is_zero_column(l, i);
    if (noise <= 0) {
        if (alone && away == 0) return STATUS_OK;
        return condition_fail_singular(l->c, part, noise);
    }
    ConditionReport *report = l->c->report;
    if (low_rank && (report->jitter == 0 || noise < report->jitter))
        report->jitter = noise;
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

static Status add_given(LowRank *l, const ConditionPart *part) {
    if (part->given == 0) return STATUS_OK;
    for (int64_t first = 0; first < part->count; first += BLOCK) {
        const int64_t left = part->count - first;
        TRY(add_block(l, part, first, left < BLOCK ? left : BLOCK));
    }
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
                         l->c->report->jitter);
    cholesky_solve_f64(false, samples, l->a, 1, l->b, 1);
    cholesky_solve_f64(true, samples, l->a, 1, l->b, 1);
    return STATUS_OK;
}

/* ---- the second walk ---- */

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
    for (int i = 0; i < c->part_count; i++)
        if (is_ours(&c->parts[i])) TRY(add_given(l, &c->parts[i]));
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
