/* Measures on activations and gradients: see cka.h. */
#include "exec/linalg/cka.h"

#include "exec/linalg/blas.h"
#include "exec/plan/plan_cache.h"
#include "exec/run/feed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Double copy of x[samples, width] with every column centred. */
static double *centred(const float *x, int64_t width, int64_t samples) {
    double *out = memory_alloc((size_t)(samples * width), sizeof(double));
    for (int64_t c = 0; c < width; c++) {
        double mean = 0;
        for (int64_t i = 0; i < samples; i++) mean += x[i * width + c];
        mean /= (double)samples;
        for (int64_t i = 0; i < samples; i++)
            out[i * width + c] = x[i * width + c] - mean;
    }
    return out;
}

/* ||A^T B||_F^2 of a[samples, m] and b[samples, n]. */
static double cross_square(const double *a, int64_t m, const double *b, int64_t n,
                           int64_t samples) {
    double *product = memory_alloc((size_t)(m * n), sizeof(double));
    gemm_f64(true, false, m, n, samples, 1, a, m, b, n, 0, product, n);
    double sum = 0;
    for (int64_t i = 0; i < m * n; i++) sum += product[i] * product[i];
    free(product);
    return sum;
}

double linear_cka(const float *x, int64_t x_width, const float *y, int64_t y_width,
                  int64_t samples) {
    double *a = centred(x, x_width, samples), *b = centred(y, y_width, samples);
    const double xy = cross_square(a, x_width, b, y_width, samples);
    const double xx = cross_square(a, x_width, a, x_width, samples);
    const double yy = cross_square(b, y_width, b, y_width, samples);
    free(a);
    free(b);
    return xx > 0 && yy > 0 ? xy / (sqrt(xx) * sqrt(yy)) : (double)NAN;
}

/* What goes from batch to batch. */
typedef struct Sweep {
    Graph *graph;
    Node *loss;
    const Params *params;
    int64_t total; /* samples */
    Feed feed;
    Workspace *workspace;
    PlanCache plans;
    int64_t *index;
    float *gradient;
    GradientSink sink; /* NULL = gradients add up */
    void *self;
} Sweep;

/* One batch of samples from `first` on: fetch, forward, backward. */
static Status add_batch(Sweep *sweep, int64_t first, int64_t n, Diag *diag) {
    for (int64_t i = 0; i < n; i++) sweep->index[i] = first + i;
    Fetch what = {.index = sweep->index, .n = n};
    batches_pad(sweep->feed.data, &what);
    TRY(plan_cache_need(&sweep->plans, n, &what, diag));
    TRY(workspace_bind(sweep->workspace, plan_cache_find(&sweep->plans, n, &what),
                       sweep->params, diag));
    TRY(feed_fetch(&sweep->feed, sweep->workspace, &what, diag));
    run_forward(sweep->workspace, (RunMode){0});
    const double share = sweep->sink ? 1 : (double)n / (double)sweep->total;
    run_backward(sweep->workspace, (RunMode){0}, share, sweep->gradient);
    if (!sweep->sink) return STATUS_OK;
    sweep->sink(sweep->self, n, sweep->total, sweep->gradient);
    const size_t count = (size_t)params_gradient_count(sweep->params);
    memset(sweep->gradient, 0, count * sizeof(float));
    return STATUS_OK;
}

static Status run_batches(Sweep *sweep, const Batches *data, int64_t batch_size,
                          const Watch *watch, Diag *diag) {
    TRY(feed_check(sweep->graph, &sweep->loss, 1, data, sweep->plans.options.sizes,
                   diag));
    TRY(feed_open(&sweep->feed, data, batch_size, diag));
    TRY(workspace_create(&sweep->workspace, diag));
    for (int64_t first = 0; first < sweep->total; first += batch_size) {
        const int64_t left = sweep->total - first;
        if (watch && watch->cancelled && watch->cancelled(watch->self))
            return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
        TRY(add_batch(sweep, first, left < batch_size ? left : batch_size, diag));
    }
    return STATUS_OK;
}

Status mean_gradient(Graph *graph, Node *loss, const Params *params, const Batches *data,
                     int64_t limit, int64_t batch_size, const Watch *watch,
                     float *gradient, Diag *diag) {
    return batch_gradients(graph, loss, params, data, limit, batch_size, watch, gradient,
                           NULL, NULL, diag);
}

Status batch_gradients(Graph *graph, Node *loss, const Params *params,
                       const Batches *data, int64_t limit, int64_t batch_size,
                       const Watch *watch, float *gradient, GradientSink sink, void *self,
                       Diag *diag) {
    Sweep sweep = {.graph = graph,
                   .loss = loss,
                   .params = params,
                   .plans = {.graph = graph, .data = data, .options = {.loss = loss}},
                   .total = limit > 0 && limit < data->count ? limit : data->count,
                   .feed = {.data = data},
                   .index = memory_alloc((size_t)batch_size, sizeof(int64_t)),
                   .gradient = gradient,
                   .sink = sink,
                   .self = self};
    Status status = run_batches(&sweep, data, batch_size, watch, diag);
    plan_cache_close(&sweep.plans);
    workspace_destroy(sweep.workspace);
    feed_close(&sweep.feed);
    free(sweep.index);
    return status;
}
