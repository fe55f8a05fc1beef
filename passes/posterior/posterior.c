/* Posterior, gathering: see posterior.h. */
#include "passes/posterior/posterior.h"

#include "exec/linalg/blas.h"
#include "passes/posterior/posterior_internal.h"

#include <stdlib.h>

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

static Status allocate(PosteriorPart *part, Diag *diag) {
    Tensor *area[6];
    const int count = areas(part, area);
    for (int i = 0; i < count; i++)
        TRY(tensor_create(area[i], area[i]->dtype, area[i]->rank, area[i]->dim, diag));
    return STATUS_OK;
}

static bool is_trained(const Storage *storage, const TrainOptions *train) {
    return dtype_is_real(storage_tensor(storage)->dtype) && !storage->frozen &&
           !train_freezes(train, storage->name);
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
        if (!is_trained(storage, train)) continue;
        PosteriorPart *part = &p->parts[p->part_count++];
        shape_part(p, part, storage);
        p->elements += tensor_count(storage_tensor(storage));
        if (ctx->plan)
            storage_set_gaussian(storage, part->normal);
        else
            TRY(allocate(part, diag));
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

double *posterior_area(const Tensor *tensor) {
    return (double *)(uintptr_t)tensor_data(tensor);
}

/* Running mean and sum of squares (Welford, 1962). */
static void take_diagonal(PosteriorPart *part, const Tensor *sample, int64_t taken) {
    double *mean = posterior_area(&part->mean), *square = posterior_area(&part->square);
    double x[POSTERIOR_CHUNK];
    const int64_t total = tensor_count(sample);
    for (int64_t at = 0; at < total; at += POSTERIOR_CHUNK) {
        const int64_t n = posterior_chunk(total, at);
        tensor_read_f64(sample, at, n, x);
        for (int64_t i = 0; i < n; i++) {
            const double away = x[i] - mean[at + i];
            mean[at + i] += away / (double)(taken + 1);
            square[at + i] += away * (x[i] - mean[at + i]);
        }
    }
}

static void take_low_rank(PosteriorPart *part, const Tensor *sample, int64_t taken) {
    const Tensor *factor = &part->normal->factor;
    float *samples = (float *)(uintptr_t)tensor_data(factor);
    tensor_read_f32(sample, 0, factor->dim[1], samples + taken * factor->dim[1]);
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
    double *d = posterior_area(&away), *mean = posterior_area(&part->mean);
    tensor_read_f64(sample, 0, total, d);
    for (int64_t i = 0; i < total; i++) {
        d[i] -= (double)first[i];
        mean[i] += d[i];
    }
    gemm_f64(false, true, n, n, m, 1, d, m, d, m, 1, posterior_area(&part->row), n);
    syrk_f64(m, n, d, m, 1, posterior_area(&part->column));
    tensor_release(&away);
    return STATUS_OK;
}

static Status take_part(const Posterior *p, PosteriorPart *part, const Tensor *sample,
                        Diag *diag) {
    switch (part->normal->form) {
    case GAUSSIAN_DIAGONAL: take_diagonal(part, sample, p->taken); break;
    case GAUSSIAN_LOW_RANK: take_low_rank(part, sample, p->taken); break;
    case GAUSSIAN_KRON: return take_kron(part, sample, p->taken, diag);
    case GAUSSIAN_FORM_COUNT: break;
    }
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
        TRY(take_part(p, part, sample, diag));
    }
    p->taken++;
    return STATUS_OK;
}
