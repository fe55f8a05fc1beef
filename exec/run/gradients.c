/* Gradients over a data set: see exec/run/gradients.h. */
#include "exec/run/gradients.h"

#include "exec/run/feed.h"
#include "exec/run/lanes.h"
#include "exec/run/ranks.h"
#include "exec/train/gradient_exchange.h"
#include "exec/train/rank_parts.h"
#include "ir/arena.h"

#include <stdlib.h>
#include <string.h>

typedef struct Gradients {
    const GradientRun *run;
    int64_t total; /* samples */
    Lanes *lanes;  /* one */
    Feed feed;
    Workspace *workspace;
    PlanCache *plans;
    float *gradient; /* what batches are added to */
    /* of batch_gradients alone: */
    GradientReduce *reduce;
    void *self;
    double *numbers; /* of one batch */
    double *sums;
    int64_t count;
} Gradients;

static int64_t sample_count(const GradientRun *run) {
    const int64_t all = run->data->count;
    return run->limit > 0 && run->limit < all ? run->limit : all;
}

static Status gradients_open(Gradients *g, const GradientRun *run, Diag *diag) {
    PlanOptions options = {.loss = run->loss};
    *g = (Gradients){.run = run, .total = sample_count(run), .feed = {.data = run->data}};
    TRY(feed_check(run->graph, &run->loss, 1, run->data, options.sizes, diag));
    g->plans = plan_cache_create(run->graph, run->data, &options, PLAN_CACHE_BYTES);
    g->lanes = lanes_create(run->threads, 1, run->watch);
    TRY(lanes_share(g->lanes, diag));
    TRY(feed_open(&g->feed, run->data, run->batch_size, diag));
    TRY(workspace_create(&g->workspace, diag));
    workspace_share(g->workspace, lanes_team(g->lanes, 0));
    return STATUS_OK;
}

static void gradients_close(Gradients *g) {
    plan_cache_destroy(g->plans);
    workspace_destroy(g->workspace);
    lanes_destroy(g->lanes);
    feed_close(&g->feed);
}

/* Adds `share` times the gradient of one batch: fetch, forward, backward. */
static Status add_gradient(Gradients *g, const Fetch *what, double share, Diag *diag) {
    TRY(workspace_bind_cached(g->workspace, g->plans, what->n, what, g->run->params,
                              diag));
    TRY(feed_fetch(&g->feed, g->workspace, what, diag));
    run_forward(g->workspace, (RunMode){0});
    run_backward(g->workspace, (RunMode){0}, share, g->gradient);
    return STATUS_OK;
}

/* ---- the mean ---- */

/* LaneSamples. */
static Status add_batch(void *self, const Fetch *what, int lane, Diag *diag) {
    Gradients *g = self;
    (void)lane;
    return add_gradient(g, what, (double)what->n / (double)g->total, diag);
}

static int64_t part_count(int64_t samples, int64_t batch_size) {
    const int64_t batches = lanes_chunks(samples, batch_size);
    return batches < GRADIENT_PARTS ? batches : GRADIENT_PARTS;
}

/* The tree has at most one gradient waiting at each of its levels, and the next one. */
int mean_gradient_buffers(int64_t samples, int64_t batch_size) {
    const int64_t parts = part_count(samples, batch_size);
    int buffers = 1;
    while (((int64_t)1 << buffers) <= parts) buffers++;
    return buffers;
}

/* The first sample of a part. */
static int64_t part_start(const Gradients *g, int64_t part, int64_t parts) {
    const int64_t batch = g->run->batch_size;
    const int64_t start = lanes_chunks(g->total, batch) * part / parts * batch;
    return start < g->total ? start : g->total;
}

/* Adds up the batches of a part, one of those in `own`. */
static Status run_part(Gradients *g, const ShardRange *own, int64_t part, Diag *diag) {
    const int64_t first = part_start(g, part, own->shards);
    const int64_t begin = part_start(g, own->first, own->shards);
    LaneSweep sweep = {.data = g->run->data,
                       .total = part_start(g, part + 1, own->shards) - first,
                       .chunk = g->run->batch_size,
                       .run = add_batch,
                       .done = first - begin,
                       .all = part_start(g, own->end, own->shards) - begin,
                       .self = g};
    sweep.order = memory_alloc((size_t)sweep.total, sizeof *sweep.order);
    for (int64_t i = 0; i < sweep.total; i++) sweep.order[i] = first + i;
    const Status status = lanes_sweep(g->lanes, &sweep, diag);
    free(sweep.order);
    return status;
}

/* Adds up what the tree has whole in parts [first, end), and frees what was added. */
static void join_parts(const ShardRange *own, int64_t end, float **gradients,
                       int64_t count) {
    const ShardRange done = {own->first, end, own->shards};
    gradient_tree_add(&done, gradients, 0, count);
    for (int64_t part = done.first; part < end; part++)
        if (gradients[part] && gradient_tree_joins(&done, part)) {
            free(gradients[part]);
            gradients[part] = NULL;
        }
}

/* This rank's parts: gradients[part] of those that are left, the first of them in
 * `into`. */
static Status run_parts(Gradients *g, const ShardRange *own, float *into,
                        float **gradients, Diag *diag) {
    const int64_t count = params_gradient_count(g->run->params);
    for (int64_t part = own->first; part < own->end; part++) {
        if (part > own->first && !(into = calloc((size_t)count, sizeof *into)))
            return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                             "out of memory for a gradient of %lld numbers",
                             (long long)count);
        g->gradient = gradients[part] = into;
        TRY(run_part(g, own, part, diag));
        join_parts(own, part + 1, gradients, count);
    }
    return STATUS_OK;
}

/* Adds up what is left in all ranks; all receive the sum. */
static Status share_parts(const Gradients *g, int64_t parts, float **gradients,
                          float *sum, Diag *diag) {
    const int64_t count = params_gradient_count(g->run->params);
    if (ranks_count() == 1) return STATUS_OK;
    GradientExchange *exchange =
        gradient_exchange_create(parts, count, 1, g->run->threads, NULL);
    Status status = gradient_exchange_begin(exchange, gradients, sum, diag);
    if (status == STATUS_OK) status = gradient_exchange_finish(exchange, diag);
    gradient_exchange_destroy(exchange);
    if (status == STATUS_OK) status = rank_parts_gather(sum, count, diag);
    return status;
}

Status mean_gradient(const GradientRun *run, float *gradient, Diag *diag) {
    float *gradients[GRADIENT_PARTS] = {0};
    Gradients g;
    Status status = gradients_open(&g, run, diag);
    const int64_t parts = part_count(g.total, run->batch_size);
    const ShardRange own = gradient_exchange_range(parts, ranks_number());
    if (status == STATUS_OK) status = run_parts(&g, &own, gradient, gradients, diag);
    status = ranks_agree(status, diag);
    if (status == STATUS_OK) status = share_parts(&g, parts, gradients, gradient, diag);
    for (int64_t part = own.first + 1; part < own.end; part++) free(gradients[part]);
    gradients_close(&g);
    return status;
}

/* ---- numbers of every batch ---- */

/* LaneSamples. */
static Status reduce_batch(void *self, const Fetch *what, int lane, Diag *diag) {
    Gradients *g = self;
    (void)lane;
    TRY(add_gradient(g, what, 1, diag));
    memset(g->numbers, 0, (size_t)g->count * sizeof *g->numbers);
    g->reduce(g->self, g->gradient, g->numbers);
    const size_t count = (size_t)params_gradient_count(g->run->params);
    memset(g->gradient, 0, count * sizeof *g->gradient);
    return STATUS_OK;
}

/* LaneSamples: delivers. */
static Status add_numbers(void *self, const Fetch *what, int lane, Diag *diag) {
    const Gradients *g = self;
    (void)lane, (void)diag;
    for (int64_t i = 0; i < g->count; i++)
        g->sums[i] += (double)what->n / (double)g->total * g->numbers[i];
    return STATUS_OK;
}

static void pack_numbers(void *self, const Fetch *what, int lane, Text *out) {
    const Gradients *g = self;
    (void)what, (void)lane;
    text_bytes(out, (const char *)g->numbers, (size_t)g->count * sizeof *g->numbers);
}

static Status unpack_numbers(void *self, const Fetch *what, int lane, const char *bytes,
                             Diag *diag) {
    const Gradients *g = self;
    (void)what, (void)lane, (void)diag;
    memcpy(g->numbers, bytes, (size_t)g->count * sizeof *g->numbers);
    return STATUS_OK;
}

Status batch_gradients(const GradientRun *run, GradientReduce *reduce, void *self,
                       double *sums, int64_t count, Diag *diag) {
    Gradients g;
    Status status = gradients_open(&g, run, diag);
    const LaneSweep sweep = {.data = run->data,
                             .total = g.total,
                             .chunk = run->batch_size,
                             .run = reduce_batch,
                             .deliver = add_numbers,
                             .pack = pack_numbers,
                             .unpack = unpack_numbers,
                             .self = &g};
    g.reduce = reduce;
    g.self = self;
    g.sums = sums;
    g.count = count;
    g.numbers = memory_alloc((size_t)count, sizeof *g.numbers);
    g.gradient =
        memory_alloc((size_t)params_gradient_count(run->params), sizeof *g.gradient);
    if (status == STATUS_OK) status = lanes_sweep(g.lanes, &sweep, diag);
    free(g.gradient);
    free(g.numbers);
    gradients_close(&g);
    return status;
}
