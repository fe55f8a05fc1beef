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
    const char *packed; /* results that another rank may have computed; NULL = they are in
                           the workspace */
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

/* LanePack: of each result its bytes, in a whole number of PACK_ALIGN, and before them
 * how many they are. */
enum { PACK_ALIGN = 64 };

static size_t packed_bytes(size_t bytes) {
    return (bytes + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN;
}

static void pack_chunk(void *self, const Fetch *what, int lane, Text *out) {
    static const char FILL[PACK_ALIGN];
    const Forward *f = self;
    const Workspace *workspace = f->memory[lane].workspace;
    (void)what;
    for (int i = 0; i < f->result_count; i++) {
        const uint64_t bytes = workspace_value_bytes(workspace, f->results[i]);
        text_bytes(out, (const char *)&bytes, sizeof bytes);
        text_bytes(out, FILL, PACK_ALIGN - sizeof bytes);
        text_bytes(out, workspace_value(workspace, f->results[i]), (size_t)bytes);
        text_bytes(out, FILL, packed_bytes((size_t)bytes) - (size_t)bytes);
    }
}

static Status unpack_chunk(void *self, const Fetch *what, int lane, const char *bytes,
                           Diag *diag) {
    const Forward *f = self;
    ForwardLane *memory = &f->memory[lane];
    memory->packed = bytes;
    return feed_fetch_columns(&memory->feed, what, diag);
}

/* Results of the chunk that a lane has. */
static void find_values(const Forward *f, const ForwardLane *memory) {
    const char *at = memory->packed;
    for (int i = 0; i < f->result_count; i++) {
        f->values[i] = at ? (const float *)(const void *)(at + PACK_ALIGN)
                          : workspace_value(memory->workspace, f->results[i]);
        uint64_t bytes = 0;
        if (at) memcpy(&bytes, at, sizeof bytes);
        if (at) at += PACK_ALIGN + packed_bytes((size_t)bytes);
    }
}

static Status deliver_chunk(void *self, const Fetch *what, int lane, Diag *diag) {
    const Forward *f = self;
    const ForwardLane *memory = &f->memory[lane];
    find_values(f, memory);
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
                       .deliver = deliver_chunk,
                       .pack = pack_chunk,
                       .unpack = unpack_chunk};
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
