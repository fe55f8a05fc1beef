/* Prior: see exec/train/prior.h. */
#include "exec/train/prior.h"

#include "exec/loops/loops.h"
#include "exec/plan/weight_layout.h"
#include "exec/run/parallel.h"
#include "ir/random.h"
#include "ir/storage.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements drawn by one thread at a time. */
#define BLOCK ((int64_t)8192)

struct Prior {
    const TrainOptions *options;
    Graph *graph;
    double factor; /* lambda / n */
    PriorPart *parts;
    int part_count;
    int64_t weight_count, count; /* elements of the flat array, of the prior's own */
    float *weights;              /* the flat array */
    float *mean, *variance;      /* [count]: the prior, scaled */
    float *values;               /* [weight_count + count]; NULL for map */
    Buf *state;
};

/* ---- which storages ---- */

/* Whether the storage is trained under a prior: it has a Gaussian and is not frozen. */
static bool has_prior(const TrainOptions *options, const Storage *storage) {
    return options->objective != OBJECTIVE_LIKELIHOOD && storage->gaussian &&
           !storage->frozen && dtype_is_real(storage->tensor.dtype);
}

/* Elements of the prior's own arrays. */
static int64_t count_elements(const Graph *graph, const TrainOptions *options) {
    int64_t total = 0;
    for (int i = 0; i < graph->storage_count; i++)
        if (has_prior(options, graph->storages[i]))
            total += params_room(graph->storages[i]);
    return total;
}

Status prior_check(const Graph *graph, const TrainOptions *options, Diag *diag) {
    if (options->objective == OBJECTIVE_LIKELIHOOD) return STATUS_OK;
    for (int i = 0; i < graph->storage_count; i++)
        if (has_prior(options, graph->storages[i])) return STATUS_OK;
    Status status = diag_fail(diag, STATUS_MODEL, LOC_NONE, "objective",
                              "expected weights with a Gaussian prior among those that "
                              "are trained, found none");
    diag_hint(diag, "estimate_posterior, or remove_layer with prior: gaussian, comes "
                    "before; else use objective: likelihood");
    return status;
}

/* ---- setting up ---- */

/* Elements of `state`: prior, values of q, gradient by log variances. */
static int64_t state_count(const TrainOptions *options, int64_t weights, int64_t count) {
    return 2 * count +
           (options->objective == OBJECTIVE_VARIATIONAL ? weights + count : 0);
}

int64_t prior_room(const Graph *graph, const TrainOptions *options) {
    return options->objective == OBJECTIVE_VARIATIONAL ? count_elements(graph, options)
                                                       : 0;
}

size_t prior_bytes(const Graph *graph, const TrainOptions *options) {
    if (options->objective == OBJECTIVE_LIKELIHOOD) return 0;
    const int64_t weights = params_layout(graph, NULL);
    const int64_t state = state_count(options, weights, count_elements(graph, options));
    return (size_t)(state + prior_room(graph, options)) * sizeof(float);
}

static void add_parts(Prior *prior, const Params *params) {
    const Graph *graph = prior->graph;
    prior->parts = memory_alloc((size_t)graph->storage_count + 1, sizeof *prior->parts);
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        if (!has_prior(prior->options, storage)) continue;
        prior->parts[prior->part_count++] =
            (PriorPart){storage, params_offset(params, storage), prior->count,
                        tensor_count(&storage->tensor)};
        prior->count += params_room(storage);
    }
}

static Status add_state(Prior *prior, Diag *diag) {
    const int64_t count = state_count(prior->options, prior->weight_count, prior->count);
    TRY(buf_create(&prior->state, (size_t)count * sizeof(float), diag));
    prior->mean = (float *)(uintptr_t)buf_data(prior->state);
    prior->variance = prior->mean + prior->count;
    if (prior->options->objective != OBJECTIVE_VARIATIONAL) return STATUS_OK;
    prior->values = prior->variance + prior->count;
    memcpy(prior->values, prior->weights, (size_t)prior->weight_count * sizeof(float));
    return STATUS_OK;
}

/* Scales the variances of a part and checks what was read. */
static Status scale_part(Prior *prior, const PriorPart *part, Diag *diag) {
    const double scale = prior->options->prior_scale;
    for (int64_t i = 0; i < part->count; i++) {
        const double mean = (double)prior->mean[part->at + i];
        const double variance = scale * (double)prior->variance[part->at + i];
        prior->variance[part->at + i] = (float)variance;
        if (isfinite(mean) && variance >= (double)FLT_MIN && variance <= (double)FLT_MAX)
            continue;
        diag_fail(diag, STATUS_MODEL, LOC_NONE, part->storage->name,
                  "element %lld: expected a prior with a positive variance, found mean "
                  "%g and variance %g",
                  (long long)i, mean, variance);
        diag_hint(diag, "estimate_posterior: prior_floor gives variances a floor; frozen "
                        "weights need no prior");
        return STATUS_MODEL;
    }
    return STATUS_OK;
}

static Status read_part(Prior *prior, const PriorPart *part, Diag *diag) {
    const Gaussian *gaussian = part->storage->gaussian;
    if (!gaussian_fits(gaussian, &part->storage->tensor) || !gaussian_has_data(gaussian))
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, part->storage->name,
                         "the Gaussian does not fit the weights or has no data");
    gaussian_mean_f32(gaussian, 0, part->count, prior->mean + part->at);
    gaussian_variance_f32(gaussian, 0, part->count, prior->variance + part->at);
    TRY(scale_part(prior, part, diag));
    if (!prior->values) return STATUS_OK;
    const double start = prior->options->init_variance; /* 0: that of the prior */
    float *rho = prior->values + prior_log_variances(prior, part);
    for (int64_t i = 0; i < part->count; i++)
        rho[i] = (float)log(start > 0 ? start : (double)prior->variance[part->at + i]);
    return STATUS_OK;
}

Status prior_create(Prior **out, Graph *graph, Params *params,
                    const TrainOptions *options, int64_t samples, Diag *diag) {
    *out = NULL;
    if (options->objective == OBJECTIVE_LIKELIHOOD) return STATUS_OK;
    TRY(prior_check(graph, options, diag));
    Prior *prior = memory_alloc(1, sizeof *prior);
    *prior = (Prior){.options = options,
                     .graph = graph,
                     .factor = options->prior_weight / (double)samples,
                     .weight_count = params_flat_count(params),
                     .weights = params_flat(params)};
    add_parts(prior, params);
    Status status = add_state(prior, diag);
    for (int i = 0; i < prior->part_count && status == STATUS_OK; i++)
        status = read_part(prior, &prior->parts[i], diag);
    if (status == STATUS_OK)
        *out = prior;
    else
        prior_destroy(prior);
    return status;
}

void prior_destroy(Prior *prior) {
    if (!prior) return;
    buf_release(prior->state);
    free(prior->parts);
    free(prior);
}

/* ---- parts ---- */

const PriorPart *prior_part(const Prior *prior, const Storage *storage) {
    for (int i = 0; prior && i < prior->part_count; i++)
        if (prior->parts[i].storage == storage) return &prior->parts[i];
    return NULL;
}

float *prior_values(Prior *prior) {
    return prior->values;
}

int64_t prior_deviations(const Prior *prior) {
    return prior && prior->values ? prior->count : 0;
}

int64_t prior_log_variances(const Prior *prior, const PriorPart *part) {
    return prior->weight_count + part->at;
}

/* ---- a step ---- */

typedef struct DrawJob {
    Prior *prior;
    uint64_t key;
} DrawJob;

static void draw_block(void *self, int64_t block, int worker) {
    (void)worker;
    const DrawJob *job = self;
    Prior *prior = job->prior;
    const int64_t first = block * BLOCK, left = prior->weight_count - first;
    const int64_t n = left < BLOCK ? left : BLOCK;
    memcpy(prior->weights + first, prior->values + first, (size_t)n * sizeof(float));
    for (int i = 0; i < prior->part_count; i++) { /* what each part has in the block */
        const PriorPart *part = &prior->parts[i];
        const int64_t end = first + n, last = part->first + part->count;
        const int64_t from = first > part->first ? first : part->first;
        const int64_t to = end < last ? end : last, at = from - part->first;
        if (from >= to) continue;
        loops_here()->variational_draw(
            prior->weights + from, prior->values + from,
            prior->values + prior_log_variances(prior, part) + at, to - from,
            random_key_name(job->key, part->storage->name), at);
    }
}

void prior_draw(Prior *prior, uint64_t key, int threads) {
    if (!prior || !prior->values) return;
    DrawJob job = {prior, random_key_name(key, "weights")};
    parallel_for((prior->weight_count + BLOCK - 1) / BLOCK, threads, draw_block, &job);
}

double prior_add(const Prior *prior, const PriorPart *part, float *gradient,
                 int64_t first, int64_t n) {
    const int64_t i = first - part->first;
    const PriorRange range = {prior->mean + part->at + i, prior->variance + part->at + i};
    const float *w = prior->weights + first;
    float *g = gradient + first;
    const Loops *loops = loops_here();
    if (!prior->values)
        return prior->factor *
               loops->variational_add_density(g, w, range, n, prior->factor);
    const int64_t rho = prior_log_variances(prior, part) + i;
    return prior->factor * loops->variational_add_divergence(
                               g, gradient + rho, w, prior->values + first,
                               prior->values + rho, range, n, prior->factor);
}

/* ---- the end ---- */

void prior_restore_means(Prior *prior) {
    if (prior && prior->values)
        memcpy(prior->weights, prior->values,
               (size_t)prior->weight_count * sizeof(float));
}

/* q of a part: its mean is the weights, shared until one of the two is written. */
static Status make_posterior(Gaussian **out, const Prior *prior, const PriorPart *part,
                             Diag *diag) {
    const Storage *storage = part->storage;
    Gaussian *q = gaussian_create(prior->graph->arena, GAUSSIAN_DIAGONAL, DTYPE_F32,
                                  &storage->tensor, 0, storage->gaussian->origin);
    void *variance = NULL;
    q->mean = tensor_retain(&storage->tensor);
    Status status = gaussian_allocate(q, diag);
    if (status == STATUS_OK) status = tensor_writable(&q->diagonal, &variance, diag);
    if (status != STATUS_OK) {
        gaussian_release(q);
        return status;
    }
    const float *rho = prior->values + prior_log_variances(prior, part);
    for (int64_t i = 0; i < part->count; i++) ((float *)variance)[i] = expf(rho[i]);
    *out = q;
    return STATUS_OK;
}

void prior_plan(Graph *graph, const TrainOptions *options) {
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        if (options->objective != OBJECTIVE_VARIATIONAL) return;
        if (!has_prior(options, storage) || train_freezes(options, storage->name))
            continue;
        Gaussian *q = gaussian_create(graph->arena, GAUSSIAN_DIAGONAL, DTYPE_F32,
                                      &storage->tensor, 0, storage->gaussian->origin);
        storage_set_gaussian(storage, q);
    }
}

Status prior_finish(Prior *prior, Diag *diag) {
    if (!prior || !prior->values) return STATUS_OK;
    Gaussian **made = memory_alloc((size_t)prior->part_count + 1, sizeof *made);
    Status status = STATUS_OK;
    for (int i = 0; i < prior->part_count && status == STATUS_OK; i++)
        status = make_posterior(&made[i], prior, &prior->parts[i], diag);
    for (int i = 0; i < prior->part_count; i++) {
        if (status == STATUS_OK)
            storage_set_gaussian(prior->parts[i].storage, made[i]);
        else
            gaussian_release(made[i]);
    }
    free(made);
    return status;
}
