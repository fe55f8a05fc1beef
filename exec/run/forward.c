/* Forward over a data set: see exec/run/forward.h. */
#include "exec/run/forward.h"

#include "exec/run/feed.h"
#include "exec/run/lanes.h"

#include <stdlib.h>
#include <string.h>

/* One thread's means of running a chunk. */
typedef struct ForwardLane {
    Workspace *workspace;
    Feed feed;
} ForwardLane;

typedef struct Forward {
    Node *const *results;
    int result_count;
    const float **values; /* of the results of the chunk that is delivered */
    Params *params;
    PlanCache *plans;
    Lanes *lanes;
    ForwardLane *memory; /* by lane */
    ForwardSink sink;
    void *self;
} Forward;

static Status run_chunk(void *self, const Fetch *what, int lane, Diag *diag) {
    const Forward *f = self;
    ForwardLane *memory = &f->memory[lane];
    TRY(workspace_bind_cached(memory->workspace, f->plans, what->n, what, f->params,
                              diag));
    TRY(feed_fetch(&memory->feed, memory->workspace, what, diag));
    run_forward(memory->workspace, (RunMode){0});
    return STATUS_OK;
}

static Status deliver_chunk(void *self, const Fetch *what, int lane, Diag *diag) {
    const Forward *f = self;
    const ForwardLane *memory = &f->memory[lane];
    for (int i = 0; i < f->result_count; i++)
        f->values[i] = workspace_value(memory->workspace, f->results[i]);
    return f->sink(f->self, what, f->values, (const void *const *)memory->feed.column,
                   diag);
}

static Status forward_run(Forward *f, Graph *graph, LaneSweep *sweep,
                          const int64_t sizes[DIM_SYMBOLS], Diag *diag) {
    PlanOptions options = {.precision = PRECISION_F32,
                           .results = f->results,
                           .result_count = f->result_count};
    memcpy(options.sizes, sizes, sizeof options.sizes);
    f->plans = plan_cache_create(graph, sweep->data, &options, PLAN_CACHE_BYTES);
    f->values = memory_alloc((size_t)f->result_count + 1, sizeof *f->values);
    f->memory = memory_alloc((size_t)lanes_count(f->lanes), sizeof *f->memory);
    TRY(params_create_packed(&f->params, graph, lanes_chunks(sweep->total, sweep->chunk),
                             diag));
    for (int i = 0; i < lanes_count(f->lanes); i++) {
        TRY(feed_open(&f->memory[i].feed, sweep->data, sweep->chunk, diag));
        TRY(workspace_create(&f->memory[i].workspace, diag));
    }
    return lanes_sweep(f->lanes, sweep, diag);
}

static void forward_close(Forward *f) {
    for (int i = 0; f->memory && i < lanes_count(f->lanes); i++) {
        workspace_destroy(f->memory[i].workspace);
        feed_close(&f->memory[i].feed);
    }
    free(f->memory);
    free(f->values);
    params_destroy(f->params);
    plan_cache_destroy(f->plans);
    lanes_destroy(f->lanes);
}

Status forward_batches(Graph *graph, Node *const *results, int result_count,
                       const Batches *data, int64_t limit, int64_t batch_size,
                       int threads, const Watch *watch, ForwardSink sink, void *self,
                       Diag *diag) {
    int64_t sizes[DIM_SYMBOLS] = {0};
    LaneSweep sweep = {.data = data,
                       .total = limit > 0 && limit < data->count ? limit : data->count,
                       .chunk = batch_size > 0 ? batch_size : 1,
                       .by_length = true,
                       .run = run_chunk,
                       .deliver = deliver_chunk};
    if (sweep.total <= 0) return STATUS_OK;
    if (sweep.chunk > sweep.total) sweep.chunk = sweep.total;
    TRY(feed_check(graph, results, result_count, data, sizes, diag));
    sweep.tokens = sizes[DIM_INDEX(DIM_T)];
    sweep.source = sizes[DIM_INDEX(DIM_S)];
    Forward f = {.results = results,
                 .result_count = result_count,
                 .lanes =
                     lanes_create(threads, lanes_chunks(sweep.total, sweep.chunk), watch),
                 .sink = sink,
                 .self = self};
    sweep.self = &f;
    const Status status = forward_run(&f, graph, &sweep, sizes, diag);
    forward_close(&f);
    return status;
}
