/* Gradients over a data set: see exec/run/gradients.h.
 *
 * One lane: a gradient is as large as the weights, and the sum has one order. */
#include "exec/run/gradients.h"

#include "exec/run/feed.h"
#include "exec/run/lanes.h"

#include <string.h>

typedef struct Gradients {
    const Params *params;
    int64_t total; /* samples */
    Feed feed;
    Workspace *workspace;
    PlanCache *plans;
    float *gradient;
    GradientSink sink; /* NULL = gradients add up */
    void *self;
} Gradients;

/* One batch: fetch, forward, backward. */
static Status add_batch(void *self, const Fetch *what, int lane, Diag *diag) {
    Gradients *g = self;
    (void)lane;
    TRY(workspace_bind_cached(g->workspace, g->plans, what->n, what, g->params, diag));
    TRY(feed_fetch(&g->feed, g->workspace, what, diag));
    run_forward(g->workspace, (RunMode){0});
    const double share = g->sink ? 1 : (double)what->n / (double)g->total;
    run_backward(g->workspace, (RunMode){0}, share, g->gradient);
    if (!g->sink) return STATUS_OK;
    g->sink(g->self, what->n, g->total, g->gradient);
    const size_t count = (size_t)params_gradient_count(g->params);
    memset(g->gradient, 0, count * sizeof(float));
    return STATUS_OK;
}

Status batch_gradients(Graph *graph, Node *loss, const Params *params,
                       const Batches *data, int64_t limit, int64_t batch_size,
                       const Watch *watch, float *gradient, GradientSink sink, void *self,
                       Diag *diag) {
    PlanOptions options = {.loss = loss};
    Gradients g = {.params = params,
                   .total = limit > 0 && limit < data->count ? limit : data->count,
                   .feed = {.data = data},
                   .gradient = gradient,
                   .sink = sink,
                   .self = self};
    const LaneSweep sweep = {.data = data,
                             .total = g.total,
                             .chunk = batch_size,
                             .run = add_batch,
                             .self = &g};
    TRY(feed_check(graph, &loss, 1, data, options.sizes, diag));
    g.plans = plan_cache_create(graph, data, &options, PLAN_CACHE_BYTES);
    Lanes *lanes = lanes_create(1, 1, watch);
    Status status = feed_open(&g.feed, data, sweep.chunk, diag);
    if (status == STATUS_OK) status = workspace_create(&g.workspace, diag);
    if (status == STATUS_OK) status = lanes_sweep(lanes, &sweep, diag);
    lanes_destroy(lanes);
    plan_cache_destroy(g.plans);
    workspace_destroy(g.workspace);
    feed_close(&g.feed);
    return status;
}

Status mean_gradient(Graph *graph, Node *loss, const Params *params, const Batches *data,
                     int64_t limit, int64_t batch_size, const Watch *watch,
                     float *gradient, Diag *diag) {
    return batch_gradients(graph, loss, params, data, limit, batch_size, watch, gradient,
                           NULL, NULL, diag);
}
