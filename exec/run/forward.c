/* Forward over a data set: see forward_batches in exec/train/train.h.
 *
 * Chunks of samples are run in rounds, one chunk per thread; after each round the results
 * go to the sink in order. */
#include "exec/plan/plan_cache.h"
#include "exec/run/feed.h"
#include "exec/run/parallel.h"
#include "exec/run/ticker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One thread's chunk. */
typedef struct Lane {
    Workspace *workspace;
    Feed feed;
    Diag *diag; /* faults are found again by the main thread, which reports them */
    Fetch what;
    Status status;
} Lane;

typedef struct Sweep {
    Graph *graph;
    Node *const *results;
    int result_count;
    const Batches *data;
    int64_t total, chunk;
    int threads;
    Params *params;
    int64_t *order;
    PlanCache plans;
    Lane *lanes;
    const float **values;
    Ticker ticker;
} Sweep;

/* By length where samples have lengths, so that those of a chunk are about equally long.
 */
static void sort_samples(Sweep *sweep) {
    sweep->order = memory_alloc((size_t)sweep->total, sizeof *sweep->order);
    for (int64_t i = 0; i < sweep->total; i++) sweep->order[i] = i;
    batches_sort(sweep->data, sweep->order, sweep->total);
}

static Status open_lane(Lane *lane, const Sweep *sweep, Diag *diag) {
    lane->diag = diag_create();
    TRY(feed_open(&lane->feed, sweep->data, sweep->chunk, diag));
    return workspace_create(&lane->workspace, diag);
}

static Status sweep_open(Sweep *sweep, Diag *diag) {
    int64_t sizes[DIM_SYMBOLS] = {0};
    TRY(feed_check(sweep->graph, sweep->results, sweep->result_count, sweep->data, sizes,
                   diag));
    if (sweep->chunk > sweep->total) sweep->chunk = sweep->total;
    const int64_t chunks = (sweep->total + sweep->chunk - 1) / sweep->chunk;
    if (sweep->threads < 1) sweep->threads = 1;
    if (sweep->threads > chunks) sweep->threads = (int)chunks;
    sweep->plans = (PlanCache){.graph = sweep->graph,
                               .data = sweep->data,
                               .options = {.precision = PRECISION_F32,
                                           .results = sweep->results,
                                           .result_count = sweep->result_count}};
    memcpy(sweep->plans.options.sizes, sizes, sizeof sizes);
    sort_samples(sweep);
    TRY(params_create(&sweep->params, sweep->graph, PRECISION_F32, false, diag));
    sweep->values = memory_alloc((size_t)sweep->result_count + 1, sizeof *sweep->values);
    sweep->lanes = memory_alloc((size_t)sweep->threads, sizeof *sweep->lanes);
    for (int i = 0; i < sweep->threads; i++)
        TRY(open_lane(&sweep->lanes[i], sweep, diag));
    return STATUS_OK;
}

static void sweep_close(Sweep *sweep) {
    for (int i = 0; sweep->lanes && i < sweep->threads; i++) {
        Lane *lane = &sweep->lanes[i];
        workspace_destroy(lane->workspace);
        feed_close(&lane->feed);
        diag_destroy(lane->diag);
    }
    free(sweep->lanes);
    free(sweep->values);
    params_destroy(sweep->params);
    plan_cache_close(&sweep->plans);
    free(sweep->order);
}

static Status run_lane(const Sweep *sweep, Lane *lane, Diag *diag) {
    const Plan *plan = plan_cache_find(&sweep->plans, lane->what.n, &lane->what);
    TRY(workspace_bind(lane->workspace, plan, sweep->params, diag));
    TRY(feed_fetch(&lane->feed, lane->workspace, &lane->what, diag));
    run_forward(lane->workspace, (RunMode){0});
    return STATUS_OK;
}

static void lane_body(void *self, int64_t i, int worker) {
    (void)worker; /* lane i has a workspace of its own */
    Sweep *sweep = self;
    Lane *lane = &sweep->lanes[i];
    lane->status = run_lane(sweep, lane, lane->diag);
}

static Status deliver(Sweep *sweep, Lane *lane, ForwardSink sink, void *self,
                      Diag *diag) {
    if (lane->status != STATUS_OK) TRY(run_lane(sweep, lane, diag));
    for (int i = 0; i < sweep->result_count; i++)
        sweep->values[i] = workspace_value(lane->workspace, sweep->results[i]);
    return sink(self, &lane->what, sweep->values, (const void *const *)lane->feed.column,
                diag);
}

/* Runs chunks from sample `first` on, one for each thread; *next is where to go on. */
static Status run_round(Sweep *sweep, int64_t first, int64_t *next, ForwardSink sink,
                        void *self, Diag *diag) {
    const int64_t *sizes = sweep->plans.options.sizes; /* of data of one length */
    int count = 0;
    for (; count < sweep->threads && first < sweep->total; count++) {
        Lane *lane = &sweep->lanes[count];
        const int64_t left = sweep->total - first;
        lane->what = (Fetch){.index = sweep->order + first,
                             .n = left < sweep->chunk ? left : sweep->chunk};
        batches_pad(sweep->data, &lane->what);
        if (!lane->what.tokens) lane->what.tokens = sizes[DIM_INDEX(DIM_T)];
        if (!lane->what.source) lane->what.source = sizes[DIM_INDEX(DIM_S)];
        TRY(plan_cache_need(&sweep->plans, lane->what.n, &lane->what, diag));
        first += lane->what.n;
    }
    *next = first;
    parallel_for(count, sweep->threads, lane_body, sweep);
    for (int i = 0; i < count; i++)
        TRY(deliver(sweep, &sweep->lanes[i], sink, self, diag));
    return STATUS_OK;
}

static Status sweep_run(Sweep *sweep, ForwardSink sink, void *self, Diag *diag) {
    for (int64_t first = 0; first < sweep->total;) {
        if (ticker_cancelled(&sweep->ticker))
            return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                             "stopped after %lld of %lld samples", (long long)first,
                             (long long)sweep->total);
        TRY(run_round(sweep, first, &first, sink, self, diag));
        ticker_progress(&sweep->ticker, first, sweep->total, NAN, first == sweep->total);
    }
    return STATUS_OK;
}

Status forward_batches(Graph *graph, Node *const *results, int result_count,
                       const Batches *data, int64_t limit, int64_t batch_size,
                       int threads, const Watch *watch, ForwardSink sink, void *self,
                       Diag *diag) {
    Sweep sweep = {.graph = graph,
                   .results = results,
                   .result_count = result_count,
                   .data = data,
                   .total = limit > 0 && limit < data->count ? limit : data->count,
                   .chunk = batch_size > 0 ? batch_size : 1,
                   .threads = threads,
                   .ticker = {.watch = watch}};
    if (sweep.total <= 0) return STATUS_OK;
    Status status = sweep_open(&sweep, diag);
    if (status == STATUS_OK) status = sweep_run(&sweep, sink, self, diag);
    sweep_close(&sweep);
    return status;
}
