/* Half the squared Mahalanobis distance of given values: see relevance.h.
 *
 * Elements of the forms diagonal and low_rank are streamed in chunks: with d = c - mu, N
 * the independent variances and G = F N^-1/2, [K, chunk],
 *
 *     d^T S^-1 d = sum d^2 / N - b^T (I + A)^-1 b,   A = sum G G^T,  b = sum G N^-1/2 d
 *
 * (Woodbury). A matrix normal of rows U and columns V adds tr(U^-1 D V^-1 D^T). */
#include "passes/posterior/relevance.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1024 };

typedef struct RelevanceSum {
    PassContext *ctx;
    double total;    /* of squares */
    int64_t known;   /* elements with a Gaussian */
    int64_t samples; /* K of low_rank; 0 = none was met */
    double *a, *b;   /* [K, K], [K] */
    /* A chunk: f is [K, CHUNK]. */
    int count;
    double *delta, *noise, *f;
} RelevanceSum;

static Status fail_singular(const RelevanceSum *s, const Storage *storage, Diag *diag) {
    step_fail(s->ctx, diag,
              "the posterior of \"%s\" is singular: some of its values have no variance "
              "of their own",
              storage->name);
    diag_hint(diag, "`jitter` of estimate_posterior adds some");
    return STATUS_MODEL;
}

/* ---- diagonal and low rank ---- */

/* Whether nothing is asked of element i of the chunk: it has its value for certain. */
static bool is_certain(const RelevanceSum *s, int i, int64_t samples) {
    bool certain = s->noise[i] == 0 && s->delta[i] == 0;
    for (int64_t k = 0; k < samples && certain; k++) certain = s->f[k * CHUNK + i] == 0;
    return certain;
}

/* Adds the chunk to the sums and empties it. */
static Status flush(RelevanceSum *s, const Storage *storage, int64_t samples,
                    Diag *diag) {
    for (int i = 0; i < s->count; i++) {
        if (is_certain(s, i, samples)) s->noise[i] = 1;
        if (!(s->noise[i] > 0)) return fail_singular(s, storage, diag);
        const double scale = 1 / sqrt(s->noise[i]);
        s->delta[i] *= scale;
        s->total += s->delta[i] * s->delta[i];
        for (int64_t k = 0; k < samples; k++) s->f[k * CHUNK + i] *= scale;
    }
    if (samples && s->count) {
        gemm_f64(false, true, samples, samples, s->count, 1, s->f, CHUNK, s->f, CHUNK, 1,
                 s->a, samples);
        gemm_f64(false, false, samples, 1, s->count, 1, s->f, CHUNK, s->delta, 1, 1, s->b,
                 1);
    }
    s->known += s->count;
    s->count = 0;
    return STATUS_OK;
}

/* Adds `count` elements of a storage from `first` on. */
static Status add_run(RelevanceSum *s, const ConditionSlice *slice, int64_t first,
                      int64_t count, Diag *diag) {
    const Gaussian *gaussian = storage_gaussian(slice->storage);
    const int64_t samples = gaussian_samples(gaussian);
    const int64_t elements = tensor_count(&gaussian->mean);
    while (count > 0) {
        const int64_t room = CHUNK - s->count, n = count < room ? count : room;
        double *delta = s->delta + s->count;
        tensor_read_f64(&gaussian->mean, first, n, delta);
        tensor_read_f64(&gaussian->diagonal, first, n, s->noise + s->count);
        for (int64_t i = 0; i < n; i++)
            delta[i] =
                (slice->values ? slice->values[first + i] : slice->value) - delta[i];
        for (int64_t k = 0; k < samples; k++)
            tensor_read_f64(&gaussian->factor, k * elements + first, n,
                            s->f + k * CHUNK + s->count);
        s->count += (int)n;
        first += n;
        count -= n;
        if (s->count == CHUNK) TRY(flush(s, slice->storage, samples, diag));
    }
    return STATUS_OK;
}

static Status add_elements(RelevanceSum *s, const ConditionSlice *slice, Diag *diag) {
    const Tensor *tensor = storage_tensor(slice->storage);
    const int64_t samples = gaussian_samples(storage_gaussian(slice->storage));
    if (samples && !s->samples) {
        s->samples = samples;
        s->a = memory_alloc((size_t)(samples * samples), sizeof *s->a);
        s->b = memory_alloc((size_t)samples, sizeof *s->b);
        s->f = memory_alloc((size_t)samples * CHUNK, sizeof *s->f);
    }
    if (slice->axis < 0) {
        TRY(add_run(s, slice, 0, tensor_count(tensor), diag));
        return flush(s, slice->storage, samples, diag);
    }
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < slice->axis; i++) outer *= tensor->dim[i];
    for (int i = slice->axis + 1; i < tensor->rank; i++) inner *= tensor->dim[i];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < slice->count; i++)
            TRY(add_run(s, slice,
                        (o * tensor->dim[slice->axis] + slice->index[i]) * inner, inner,
                        diag));
    return flush(s, slice->storage, samples, diag);
}

/* ---- matrix normal ---- */

/* Cholesky factor of the entries of a covariance that belong to a slice; to be freed.
 * NULL when it is singular. */
static double *factor_part(const Tensor *covariance, const int64_t *index,
                           int64_t count) {
    const int64_t size = covariance->dim[0];
    double *row = memory_alloc((size_t)size, sizeof *row);
    double *lower = memory_alloc((size_t)(count * count), sizeof *lower);
    for (int64_t i = 0; i < count; i++) {
        tensor_read_f64(covariance, (index ? index[i] : i) * size, size, row);
        for (int64_t j = 0; j < count; j++)
            lower[i * count + j] = row[index ? index[j] : j];
    }
    free(row);
    if (cholesky_f64(count, lower) == 0) return lower;
    free(lower);
    return NULL;
}

/* The same of a whole side, kept for the next slice of the storage; borrowed. */
static double *factor_side(RelevanceCache *cache, const Storage *storage, bool of_rows) {
    const Gaussian *gaussian = storage_gaussian(storage);
    if (cache->lower && cache->storage == storage && cache->of_rows == of_rows)
        return cache->lower;
    const Tensor *covariance = of_rows ? &gaussian->row : &gaussian->column;
    double *lower = factor_part(covariance, NULL, covariance->dim[0]);
    relevance_release(cache);
    *cache = (RelevanceCache){storage, of_rows, lower};
    return lower;
}

/* c - mu of a part of a matrix: [rows, columns]. */
static void read_delta(const ConditionSlice *slice, int64_t rows, int64_t columns,
                       double *delta) {
    const Tensor *mean = &storage_gaussian(slice->storage)->mean;
    const int64_t width = mean->dim[1];
    double *row = memory_alloc((size_t)width, sizeof *row);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = (slice->axis == 0 ? slice->index[i] : i) * width;
        tensor_read_f64(mean, at, width, row);
        for (int64_t j = 0; j < columns; j++) {
            const int64_t c = slice->axis == 1 ? slice->index[j] : j;
            delta[i * columns + j] =
                (slice->values ? slice->values[at + c] : slice->value) - row[c];
        }
    }
    free(row);
}

/* tr(U^-1 D V^-1 D^T) = |L_U^-1 D L_V^-T|^2 by the Cholesky factors; D is used up. */
static double matrix_distance(const double *u, int64_t rows, const double *v,
                              int64_t columns, double *delta) {
    double *turned = memory_alloc((size_t)(rows * columns), sizeof *turned), sum = 0;
    cholesky_solve_f64(false, rows, u, columns, delta, columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            turned[j * rows + i] = delta[i * columns + j];
    cholesky_solve_f64(false, columns, v, rows, turned, rows);
    for (int64_t i = 0; i < rows * columns; i++) sum += turned[i] * turned[i];
    free(turned);
    return sum;
}

static Status add_matrix(RelevanceSum *s, const ConditionSlice *slice,
                         RelevanceCache *cache, Diag *diag) {
    const Gaussian *gaussian = storage_gaussian(slice->storage);
    const bool cut_rows = slice->axis == 0;
    const int64_t rows = cut_rows ? slice->count : gaussian->row.dim[0];
    const int64_t columns = slice->axis == 1 ? slice->count : gaussian->column.dim[0];
    const double *whole = factor_side(cache, slice->storage, !cut_rows);
    double *part =
        factor_part(cut_rows ? &gaussian->row : &gaussian->column,
                    slice->axis < 0 ? NULL : slice->index, cut_rows ? rows : columns);
    if (whole && part) {
        double *delta = memory_alloc((size_t)(rows * columns), sizeof *delta);
        read_delta(slice, rows, columns, delta);
        s->total += matrix_distance(cut_rows ? part : whole, rows,
                                    cut_rows ? whole : part, columns, delta);
        s->known += rows * columns;
        free(delta);
    }
    free(part);
    return whole && part ? STATUS_OK : fail_singular(s, slice->storage, diag);
}

/* ---- together ---- */

static Status fail_unknown(PassContext *ctx, const ConditionSlice *given, int count,
                           Diag *diag) {
    const Status status =
        step_fail(ctx, diag, "\"%s\" has no posterior to tell its relevance by",
                  count ? given[0].storage->name : "");
    diag_hint(diag, "estimate_posterior gives one to the weights that it trains, see "
                    "`only` and `freeze`; some steps drop it, with a warning");
    return status;
}

Status relevance_check(PassContext *ctx, const ConditionSlice *given, int count,
                       Diag *diag) {
    for (int i = 0; i < count; i++)
        if (storage_gaussian(given[i].storage)) return STATUS_OK;
    return fail_unknown(ctx, given, count, diag);
}

static Status add_slices(RelevanceSum *s, const ConditionSlice *given, int count,
                         RelevanceCache *cache, Diag *diag) {
    for (int i = 0; i < count; i++) {
        const Gaussian *gaussian = storage_gaussian(given[i].storage);
        if (!gaussian) continue;
        if (gaussian->form == GAUSSIAN_KRON)
            TRY(add_matrix(s, &given[i], cache, diag));
        else
            TRY(add_elements(s, &given[i], diag));
    }
    if (s->known == 0) return fail_unknown(s->ctx, given, count, diag);
    const int64_t n = s->samples;
    if (n == 0) return STATUS_OK;
    /* Takes off what the directions that all elements share explain: |L^-1 b|^2 with
     * L L^T = I + A. */
    for (int64_t k = 0; k < n; k++) s->a[k * n + k] += 1;
    if (cholesky_f64(n, s->a) != 0)
        return step_fail(s->ctx, diag, "the posterior's directions are not finite");
    cholesky_solve_f64(false, n, s->a, 1, s->b, 1);
    for (int64_t k = 0; k < n; k++) s->total -= s->b[k] * s->b[k];
    return STATUS_OK;
}

Status relevance_of(double *out, PassContext *ctx, const ConditionSlice *given, int count,
                    RelevanceCache *cache, Diag *diag) {
    RelevanceCache own = {0};
    RelevanceSum s = {.ctx = ctx,
                      .delta = memory_alloc(CHUNK, sizeof(double)),
                      .noise = memory_alloc(CHUNK, sizeof(double))};
    const Status status = add_slices(&s, given, count, cache ? cache : &own, diag);
    *out = s.total / 2;
    free(s.delta);
    free(s.noise);
    free(s.a);
    free(s.b);
    free(s.f);
    relevance_release(&own);
    return status;
}

void relevance_release(RelevanceCache *cache) {
    free(cache->lower);
    *cache = (RelevanceCache){0};
}
