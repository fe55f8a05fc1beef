/* Posterior: gathering samples, and Gaussians from what was gathered. See posterior.h. */
#include "passes/posterior/posterior.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements handled together. */
enum { CHUNK = 512 };

/* Elements of the chunk at `at` of `total`. */
static int64_t chunk_at(int64_t total, int64_t at) {
    return total - at < CHUNK ? total - at : CHUNK;
}

/* ---- opening ---- */

static GaussianForm form_of(Posterior *p, const Tensor *tensor) {
    const GaussianForm form = (GaussianForm)p->options->covariance;
    if (form != GAUSSIAN_KRON) return form;
    if (tensor->rank != 2) return GAUSSIAN_DIAGONAL;
    if (tensor->dim[0] <= POSTERIOR_KRON_MOST && tensor->dim[1] <= POSTERIOR_KRON_MOST)
        return form;
    p->wide++;
    return GAUSSIAN_DIAGONAL;
}

/* The areas of a part, as shapes. */
static void shape_part(Posterior *p, PosteriorPart *part, Storage *storage) {
    const Tensor *like = storage_tensor(storage);
    const GaussianForm form = form_of(p, like);
    part->storage = storage;
    part->normal =
        gaussian_create(p->model->arena, form, DTYPE_F32, like, p->options->samples, "");
    const Tensor wide = tensor_shape(DTYPE_F64, like->rank, like->dim);
    if (form != GAUSSIAN_LOW_RANK) part->mean = wide;
    if (form == GAUSSIAN_DIAGONAL) part->square = wide;
    if (form != GAUSSIAN_KRON) return;
    const int64_t n = like->dim[0], m = like->dim[1];
    part->first = tensor_shape(DTYPE_F32, 2, like->dim);
    part->row = tensor_shape(DTYPE_F64, 2, (int64_t[]){n, n});
    part->column = tensor_shape(DTYPE_F64, 2, (int64_t[]){m, m});
}

/* The areas that gathering writes; those that a form lacks have rank 0. */
static int areas(PosteriorPart *part, Tensor *out[6]) {
    Tensor *const all[] = {&part->mean, &part->square, &part->first, &part->row,
                           &part->column};
    int count = 0;
    const GaussianForm form = part->normal->form;
    if (form == GAUSSIAN_DIAGONAL) out[count++] = all[0], out[count++] = all[1];
    if (form == GAUSSIAN_LOW_RANK) out[count++] = &part->normal->factor;
    if (form == GAUSSIAN_KRON) {
        out[count++] = all[0];
        for (int i = 2; i < 5; i++) out[count++] = all[i];
    }
    return count;
}

Status posterior_open(Posterior *p, PassContext *ctx, Model *model,
                      const PosteriorOptions *options, const TrainOptions *train,
                      Diag *diag) {
    Graph *graph = model->graph;
    *p = (Posterior){.ctx = ctx, .options = options, .model = model};
    p->parts = ARENA_ARRAY(ctx->arena, PosteriorPart, (size_t)graph->storage_count + 1);
    graph_drop_gaussians(graph);
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        if (!dtype_is_real(storage_tensor(storage)->dtype) || storage->frozen ||
            train_freezes(train, storage->name))
            continue;
        PosteriorPart *part = &p->parts[p->part_count++];
        shape_part(p, part, storage);
        p->elements += tensor_count(storage_tensor(storage));
        if (ctx->plan) {
            storage_set_gaussian(storage, part->normal);
            continue;
        }
        Tensor *area[6];
        const int count = areas(part, area);
        for (int a = 0; a < count; a++)
            TRY(tensor_create(area[a], area[a]->dtype, area[a]->rank, area[a]->dim,
                              diag));
    }
    if (p->elements > 0) return STATUS_OK;
    return step_fail(ctx, diag, "expected weights that are trained, found none");
}

size_t posterior_bytes(const Posterior *p) {
    size_t bytes = 0;
    for (int i = 0; i < p->part_count; i++) {
        Tensor *area[6];
        const int count = areas(&p->parts[i], area);
        for (int a = 0; a < count; a++)
            if (area[a] != &p->parts[i].normal->factor) bytes += tensor_bytes(area[a]);
        bytes += gaussian_bytes(p->parts[i].normal);
    }
    return bytes;
}

void posterior_close(Posterior *p) {
    for (int i = 0; i < p->part_count; i++) {
        PosteriorPart *part = &p->parts[i];
        tensor_release(&part->mean);
        tensor_release(&part->square);
        tensor_release(&part->first);
        tensor_release(&part->row);
        tensor_release(&part->column);
        if (storage_gaussian(part->storage) != part->normal)
            gaussian_release(part->normal);
    }
    p->part_count = 0;
}

/* ---- taking a sample ---- */

/* The numbers of an area of type F64, which is nobody else's. */
static double *numbers_of(const Tensor *tensor) {
    return (double *)(uintptr_t)tensor_data(tensor);
}

/* Running mean and sum of squares (Welford, 1962). */
static void take_diagonal(PosteriorPart *part, const Tensor *sample, int64_t taken) {
    double *mean = numbers_of(&part->mean), *square = numbers_of(&part->square);
    double x[CHUNK];
    const int64_t total = tensor_count(sample);
    for (int64_t at = 0; at < total; at += CHUNK) {
        const int64_t n = chunk_at(total, at);
        tensor_read_f64(sample, at, n, x);
        for (int64_t i = 0; i < n; i++) {
            const double away = x[i] - mean[at + i];
            mean[at + i] += away / (double)(taken + 1);
            square[at + i] += away * (x[i] - mean[at + i]);
        }
    }
}

/* Adds the products of one sample's deviation from the first. */
static Status take_kron(PosteriorPart *part, const Tensor *sample, int64_t taken,
                        Diag *diag) {
    const int64_t n = sample->dim[0], m = sample->dim[1], total = n * m;
    float *first = (float *)(uintptr_t)tensor_data(&part->first);
    if (taken == 0) {
        tensor_read_f32(sample, 0, total, first);
        return STATUS_OK;
    }
    Tensor away;
    TRY(tensor_create(&away, DTYPE_F64, 2, sample->dim, diag));
    double *d = numbers_of(&away), *mean = numbers_of(&part->mean);
    tensor_read_f64(sample, 0, total, d);
    for (int64_t i = 0; i < total; i++) {
        d[i] -= (double)first[i];
        mean[i] += d[i];
    }
    gemm_f64(false, true, n, n, m, 1, d, m, d, m, 1, numbers_of(&part->row), n);
    syrk_f64(m, n, d, m, 1, numbers_of(&part->column));
    tensor_release(&away);
    return STATUS_OK;
}

Status posterior_take(Posterior *p, const Graph *graph, Diag *diag) {
    if (p->taken == p->options->samples)
        return diag_fail(diag, STATUS_INTERNAL, p->ctx->source.at, p->ctx->source.key,
                         "more samples than the %lld of the posterior",
                         (long long)p->options->samples);
    for (int i = 0; i < p->part_count; i++) {
        PosteriorPart *part = &p->parts[i];
        const Storage *source = graph_storage(graph, part->storage->name);
        const Tensor *sample = source ? storage_tensor(source) : NULL;
        if (!sample || !sample->buf || !tensor_same_shape(sample, &part->normal->mean))
            return diag_fail(diag, STATUS_INTERNAL, p->ctx->source.at,
                             part->storage->name, "a sample lacks these weights");
        if (tensor_find_nonfinite(sample) >= 0)
            return step_fail(p->ctx, diag, "sample %lld: '%s' is not finite",
                             (long long)p->taken + 1, part->storage->name);
        const Tensor *factor = &part->normal->factor;
        switch (part->normal->form) {
        case GAUSSIAN_DIAGONAL: take_diagonal(part, sample, p->taken); break;
        case GAUSSIAN_LOW_RANK:
            tensor_read_f32(sample, 0, factor->dim[1],
                            (float *)(uintptr_t)tensor_data(factor) +
                                p->taken * factor->dim[1]);
            break;
        case GAUSSIAN_KRON: TRY(take_kron(part, sample, p->taken, diag)); break;
        case GAUSSIAN_FORM_COUNT: break;
        }
    }
    p->taken++;
    return STATUS_OK;
}

/* ---- the state of a training run ---- */

/* What the areas of each form are called, in the order of `areas`. */
static const char *const AREA_NAMES[GAUSSIAN_FORM_COUNT][4] = {
    [GAUSSIAN_DIAGONAL] = {"posterior_mean/", "posterior_square/"},
    [GAUSSIAN_LOW_RANK] = {"posterior_samples/"},
    [GAUSSIAN_KRON] = {"posterior_mean/", "posterior_first/", "posterior_row/",
                       "posterior_column/"}};

/* An area's shape in a state: of samples those that were taken. */
static Tensor area_shape(const PosteriorPart *part, const Tensor *area, int64_t taken) {
    Tensor shape = tensor_shape(area->dtype, area->rank, area->dim);
    if (part->normal->form == GAUSSIAN_LOW_RANK) shape.dim[0] = taken;
    return shape;
}

void posterior_save(const Posterior *p, TrainState *state) {
    tree_put_int(state->arena, state->numbers, "posterior_taken", p->taken);
    for (int i = 0; i < p->part_count && p->taken > 0; i++) {
        PosteriorPart *part = &p->parts[i];
        Tensor *area[6];
        const int count = areas(part, area);
        for (int a = 0; a < count; a++) {
            const Tensor shape = area_shape(part, area[a], p->taken);
            train_state_view(state, AREA_NAMES[part->normal->form][a],
                             part->storage->name, shape.dtype, shape.rank, shape.dim,
                             tensor_data(area[a]));
        }
    }
}

static Status load_area(const PosteriorPart *part, const Tensor *area, const char *prefix,
                        TrainState *state, int64_t taken, Diag *diag) {
    const Tensor *found = NULL;
    const Tensor shape = area_shape(part, area, taken);
    TRY(train_state_find(&found, state, prefix, part->storage->name, shape.dtype,
                         shape.rank, shape.dim, diag));
    memcpy((void *)(uintptr_t)tensor_data(area), tensor_data(found), tensor_bytes(found));
    return STATUS_OK;
}

/* Sums of squares that are none would become variances. */
static Status check_squares(const PosteriorPart *part, Diag *diag) {
    const bool squares = part->normal->form == GAUSSIAN_DIAGONAL;
    const double *square = squares ? numbers_of(&part->square) : NULL;
    const int64_t count = squares ? tensor_count(&part->square) : 0;
    for (int64_t i = 0; i < count; i++)
        if (square[i] < 0)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                             "the state of the training has a negative sum of squares of "
                             "'%s', element %lld",
                             part->storage->name, (long long)i);
    return STATUS_OK;
}

Status posterior_load(Posterior *p, TrainState *state, int64_t taken, Diag *diag) {
    TRY(train_state_int(&taken, state, "posterior_taken", taken, taken, diag));
    for (int i = 0; i < p->part_count && taken > 0; i++) {
        PosteriorPart *part = &p->parts[i];
        Tensor *area[6];
        const int count = areas(part, area);
        for (int a = 0; a < count; a++)
            TRY(load_area(part, area[a], AREA_NAMES[part->normal->form][a], state, taken,
                          diag));
        TRY(check_squares(part, diag));
    }
    p->taken = taken;
    return STATUS_OK;
}

/* ---- from what was gathered to Gaussians ----
 *
 * First every part gets the covariance of its samples, which gives the mean variance of
 * all of them, on which the jitter depends; then jitter, scale and floor. */

/* What the variances are like in the end. */
typedef struct Spread {
    double sum, least, most;
    int64_t elements, raised; /* raised to the floor */
} Spread;

static void spread_add(Spread *s, double variance, bool raised) {
    if (s->elements == 0 || variance < s->least) s->least = variance;
    if (s->elements == 0 || variance > s->most) s->most = variance;
    s->sum += variance;
    s->elements++;
    s->raised += raised;
}

/* ---- the samples' covariance ---- */

static double count_of(const Posterior *p) {
    return (double)(p->options->samples - 1);
}

/* Writes the mean of the samples, where that is asked for. */
static Status put_mean(const Posterior *p, PosteriorPart *part, int64_t at, int64_t n,
                       const double *mean, Diag *diag) {
    if (p->options->mean != POSTERIOR_MEAN_SAMPLES) return STATUS_OK;
    return tensor_write_f64(&part->normal->mean, at, n, mean, diag);
}

/* The samples become deviations over sqrt(K - 1). */
static Status centre_low_rank(const Posterior *p, PosteriorPart *part, double *sum,
                              Diag *diag) {
    const int64_t samples = part->normal->factor.dim[0];
    const int64_t total = part->normal->factor.dim[1];
    float *factor = (float *)(uintptr_t)tensor_data(&part->normal->factor);
    const double scale = 1 / sqrt(count_of(p));
    double mean[CHUNK];
    for (int64_t at = 0; at < total; at += CHUNK) {
        const int64_t n = chunk_at(total, at);
        for (int64_t i = 0; i < n; i++) mean[i] = 0;
        for (int64_t k = 0; k < samples; k++)
            for (int64_t i = 0; i < n; i++)
                mean[i] += (double)factor[k * total + at + i] / (double)samples;
        for (int64_t k = 0; k < samples; k++)
            for (int64_t i = 0; i < n; i++) {
                float *x = &factor[k * total + at + i];
                const double away = ((double)*x - mean[i]) * scale;
                *x = (float)away;
                *sum += away * away;
            }
        TRY(put_mean(p, part, at, n, mean, diag));
    }
    return STATUS_OK;
}

/* Copies the lower triangle of C[n, n] times `by` to both. */
static void mirror(double *c, int64_t n, double by) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) c[i * n + j] = c[j * n + i] = c[i * n + j] * by;
}

static double trace(const double *c, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += c[i * n + i];
    return sum;
}

/* U and V of posterior.h: products of deviations from the first sample less those of the
 * mean's deviation. */
static Status centre_kron(const Posterior *p, PosteriorPart *part, double *sum,
                          Diag *diag) {
    const int64_t n = part->mean.dim[0], m = part->mean.dim[1], total = n * m;
    const double samples = (double)p->options->samples;
    double *mean = numbers_of(&part->mean), *row = numbers_of(&part->row);
    double *column = numbers_of(&part->column);
    const float *first = tensor_data(&part->first);
    for (int64_t i = 0; i < total; i++) mean[i] /= samples;
    gemm_f64(false, true, n, n, m, -samples, mean, m, mean, m, 1, row, n);
    gemm_f64(true, false, m, m, n, -samples, mean, m, mean, m, 1, column, m);
    mirror(row, n, 1 / (count_of(p) * (double)m));
    const double height = trace(row, n) / (double)n;
    mirror(column, m, height > 0 ? 1 / (count_of(p) * (double)n * height) : 0);
    *sum += trace(row, n) * trace(column, m);
    for (int64_t i = 0; i < total; i++) mean[i] += (double)first[i];
    return put_mean(p, part, 0, total, mean, diag);
}

static Status centre_part(const Posterior *p, PosteriorPart *part, double *sum,
                          Diag *diag) {
    Tensor *mean = &part->normal->mean;
    const bool diagonal = part->normal->form == GAUSSIAN_DIAGONAL;
    double *square = diagonal ? numbers_of(&part->square) : NULL;
    const int64_t total = tensor_count(mean);
    if (p->options->mean == POSTERIOR_MEAN_SAMPLES)
        TRY(tensor_create(mean, DTYPE_F32, mean->rank, mean->dim, diag));
    else
        TRY(tensor_to_f32(mean, storage_tensor(part->storage), diag));
    switch (part->normal->form) {
    case GAUSSIAN_DIAGONAL: /* the squares become the variances */
        for (int64_t i = 0; i < total; i++) *sum += square[i] /= count_of(p);
        return put_mean(p, part, 0, total, numbers_of(&part->mean), diag);
    case GAUSSIAN_LOW_RANK: return centre_low_rank(p, part, sum, diag);
    case GAUSSIAN_KRON: return centre_kron(p, part, sum, diag);
    case GAUSSIAN_FORM_COUNT: break;
    }
    return STATUS_OK;
}

/* ---- jitter, scale and floor ---- */

/* Diagonal parts: `jitter`, and with form diagonal the variances, scaled, then raised so
 * that the variance reaches the floor. */
static Status finish_chunk(const Posterior *p, PosteriorPart *part, int64_t at, int64_t n,
                           double jitter, Spread *spread, Diag *diag) {
    const double scale = p->options->scale, floor = p->options->floor;
    double noise[CHUNK], variance[CHUNK];
    Gaussian *g = part->normal;
    const double *square =
        g->form == GAUSSIAN_DIAGONAL ? numbers_of(&part->square) : NULL;
    for (int64_t i = 0; i < n; i++)
        noise[i] = scale * (jitter + (square ? square[at + i] : 0));
    TRY(tensor_write_f64(&g->diagonal, at, n, noise, diag));
    gaussian_variance_f64(g, at, n, variance);
    for (int64_t i = 0; i < n; i++) {
        const double missing = floor - variance[i];
        if (missing > 0) noise[i] += missing;
        spread_add(spread, missing > 0 ? floor : variance[i], missing > 0);
    }
    return tensor_write_f64(&g->diagonal, at, n, noise, diag);
}

static Status finish_plain(const Posterior *p, PosteriorPart *part, double jitter,
                           Spread *spread, Diag *diag) {
    Gaussian *g = part->normal;
    TRY(gaussian_allocate(g, diag));
    float *factor = (float *)(uintptr_t)tensor_data(&g->factor);
    const int64_t size = g->form == GAUSSIAN_LOW_RANK ? tensor_count(&g->factor) : 0;
    const double root = sqrt(p->options->scale);
    for (int64_t i = 0; i < size; i++) factor[i] = (float)((double)factor[i] * root);
    const int64_t total = tensor_count(&g->mean);
    for (int64_t at = 0; at < total; at += CHUNK)
        TRY(finish_chunk(p, part, at, chunk_at(total, at), jitter, spread, diag));
    return STATUS_OK;
}

/* Adds `by` to the diagonal. */
static void raise_diagonal(double *c, int64_t n, double by) {
    for (int64_t i = 0; i < n; i++) c[i * n + i] += by;
}

static double least_variance(const double *c, int64_t n) {
    double least = n > 0 ? c[0] : 0;
    for (int64_t i = 1; i < n; i++) least = fmin(least, c[i * n + i]);
    return least;
}

/* Raises the columns' variances until the smallest product reaches the floor. */
static bool reach_floor(double *row, int64_t n, double *column, int64_t m, double floor) {
    if (n == 0 || m == 0) return false;
    if (floor > 0 && least_variance(row, n) <= 0) raise_diagonal(row, n, sqrt(floor));
    const double height = least_variance(row, n), width = least_variance(column, m);
    if (height * width >= floor) return false;
    raise_diagonal(column, m, floor / height - width);
    return true;
}

static Status finish_kron(const Posterior *p, PosteriorPart *part, Spread *spread,
                          Diag *diag) {
    const int64_t n = part->mean.dim[0], m = part->mean.dim[1];
    double *row = numbers_of(&part->row), *column = numbers_of(&part->column);
    Gaussian *g = part->normal;
    TRY(gaussian_allocate(g, diag));
    raise_diagonal(row, n, p->options->jitter * trace(row, n) / (double)(n ? n : 1));
    raise_diagonal(column, m,
                   p->options->jitter * trace(column, m) / (double)(m ? m : 1));
    for (int64_t i = 0; i < m * m; i++) column[i] *= p->options->scale;
    const bool raised = reach_floor(row, n, column, m, p->options->floor);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++)
            spread_add(spread, row[i * n + i] * column[j * m + j], raised);
    TRY(tensor_write_f64(&g->row, 0, n * n, row, diag));
    return tensor_write_f64(&g->column, 0, m * m, column, diag);
}

/* ---- all of it ---- */

static void record(const Posterior *p, double variance, double jitter,
                   const Spread *spread, const char *origin) {
    Arena *arena = p->ctx->arena;
    Tree *map = p->ctx->record;
    size_t bytes = 0;
    for (int i = 0; i < p->part_count; i++) bytes += gaussian_bytes(p->parts[i].normal);
    tree_put_int(arena, map, "samples", p->taken);
    tree_put_int(arena, map, "elements", p->elements);
    tree_put_int(arena, map, "posterior_bytes", (int64_t)bytes);
    tree_put_real(arena, map, "samples_variance", variance);
    tree_put_real(arena, map, "jitter", jitter);
    tree_put_real(arena, map, "prior_scale", p->options->scale);
    tree_put_real(arena, map, "prior_floor", p->options->floor);
    tree_put_int(arena, map, "raised_to_floor", spread->raised);
    tree_put_real(arena, map, "mean_variance", spread->sum / (double)p->elements);
    tree_put_real(arena, map, "least_variance", spread->least);
    tree_put_real(arena, map, "largest_variance", spread->most);
    if (p->wide > 0) tree_put_int(arena, map, "diagonal_for_size", p->wide);
    tree_put_string(arena, map, "origin", origin);
}

Status posterior_finish(Posterior *p, Diag *diag) {
    double sum = 0;
    Spread spread = {0};
    if (p->taken != p->options->samples)
        return diag_fail(diag, STATUS_INTERNAL, p->ctx->source.at, p->ctx->source.key,
                         "expected %lld samples, found %lld",
                         (long long)p->options->samples, (long long)p->taken);
    for (int i = 0; i < p->part_count; i++) TRY(centre_part(p, &p->parts[i], &sum, diag));
    const double variance = sum / (double)p->elements;
    if (!(variance > 0) && p->options->floor <= 0) {
        const Status status = step_fail(
            p->ctx, diag,
            "expected samples of the weights that differ, found %lld that do not",
            (long long)p->taken);
        diag_hint(diag, "raise lr or final_lr, or give a prior_floor");
        return status;
    }
    const double jitter = p->options->jitter * variance;
    char hash[HASH_TEXT_BYTES];
    model_content_hash(p->model, hash);
    const char *origin = arena_strdup(p->model->arena, hash);
    for (int i = 0; i < p->part_count; i++) {
        PosteriorPart *part = &p->parts[i];
        if (part->normal->form == GAUSSIAN_KRON)
            TRY(finish_kron(p, part, &spread, diag));
        else
            TRY(finish_plain(p, part, jitter, &spread, diag));
        part->normal->origin = origin;
        storage_set_gaussian(part->storage, part->normal);
    }
    record(p, variance, jitter, &spread, origin);
    return STATUS_OK;
}
