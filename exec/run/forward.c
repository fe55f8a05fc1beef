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

struct Forward {
    Graph *graph;
    Node *const *results;
    int result_count;
    const float **values; /* of the results of the chunk that is delivered */
    Params *params;
    PlanCache *plans;
    int64_t sizes[DIM_SYMBOLS]; /* that plans were made for */
    int lanes;                  /* that there is memory for: */
    ForwardLane *memory;        /* by lane */
    ForwardSink sink;
    void *self;
};

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

/* ---- what stays ---- */

/* Memory for so many lanes, that which is there first. */
static Status open_memory(Forward *f, int lanes, Diag *diag) {
    if (f->lanes >= lanes) return STATUS_OK;
    f->memory = memory_grow(f->memory, (size_t)lanes, sizeof *f->memory);
    for (; f->lanes < lanes; f->lanes++) {
        f->memory[f->lanes] = (ForwardLane){0};
        TRY(workspace_create(&f->memory[f->lanes].workspace, diag));
    }
    return STATUS_OK;
}

static void close_plans(Forward *f) {
    plan_cache_destroy(f->plans);
    f->plans = NULL;
}

/* Plans for data of these sizes, those that are there if they are for the same. The data
 * are gone before them, unless masks are asked for. */
static void open_plans(Forward *f, const Batches *data,
                       const int64_t sizes[DIM_SYMBOLS]) {
    if (f->plans && !data->masked && memcmp(f->sizes, sizes, sizeof f->sizes) == 0)
        return;
    PlanOptions options = {.precision = PRECISION_F32,
                           .results = f->results,
                           .result_count = f->result_count};
    memcpy(options.sizes, sizes, sizeof options.sizes);
    memcpy(f->sizes, sizes, sizeof f->sizes);
    close_plans(f);
    f->plans = plan_cache_create(f->graph, data->masked ? data : NULL, &options,
                                 PLAN_CACHE_BYTES);
}

static Forward *forward_new(Graph *graph, Node *const *results, int result_count) {
    Forward *f = memory_alloc(1, sizeof *f);
    *f = (Forward){.graph = graph, .results = results, .result_count = result_count};
    f->values = memory_alloc((size_t)result_count + 1, sizeof *f->values);
    return f;
}

Status forward_open(Forward **out, Graph *graph, Node *const *results, int result_count,
                    int64_t runs, Diag *diag) {
    graph_number(graph); /* plans of several threads then write nothing to it */
    Forward *f = forward_new(graph, results, result_count);
    const Status status = params_create_packed(&f->params, graph, runs, diag);
    if (status == STATUS_OK)
        *out = f;
    else
        forward_close(f);
    return status;
}

Forward *forward_beside(const Forward *f) {
    Forward *beside = forward_new(f->graph, f->results, f->result_count);
    beside->params = params_retain(f->params);
    return beside;
}

void forward_close(Forward *f) {
    if (!f) return;
    for (int i = 0; i < f->lanes; i++) workspace_destroy(f->memory[i].workspace);
    free(f->memory);
    close_plans(f);
    params_destroy(f->params);
    free(f->values);
    free(f);
}

/* ---- runs ---- */

static LaneSweep sweep_of(const Batches *data, int64_t limit, int64_t batch_size) {
    LaneSweep sweep = lanes_sweep_of(data, limit, batch_size);
    sweep.run = run_chunk;
    sweep.deliver = deliver_chunk;
    sweep.pack = pack_chunk;
    sweep.unpack = unpack_chunk;
    return sweep;
}

/* In lanes that share the threads. */
static Status run_lanes(Forward *f, Lanes *lanes, const LaneSweep *sweep, Diag *diag) {
    const int count = lanes_count(lanes);
    TRY(open_memory(f, count, diag));
    TRY(lanes_share(lanes, diag));
    Status status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        workspace_share(f->memory[i].workspace, lanes_team(lanes, i));
        status = feed_open(&f->memory[i].feed, sweep->data, sweep->chunk, diag);
    }
    if (status == STATUS_OK) status = lanes_sweep(lanes, sweep, diag);
    for (int i = 0; i < count; i++) {
        workspace_share(f->memory[i].workspace, NULL);
        feed_close(&f->memory[i].feed);
    }
    return status;
}

/* The sweep over data that was checked. */
static Status run_sweep(Forward *f, LaneSweep *sweep, const int64_t sizes[DIM_SYMBOLS],
                        int threads, const Watch *watch, ForwardSink sink, void *self,
                        Diag *diag) {
    sweep->tokens = sizes[DIM_INDEX(DIM_T)];
    sweep->source = sizes[DIM_INDEX(DIM_S)];
    sweep->self = f;
    f->sink = sink;
    f->self = self;
    open_plans(f, sweep->data, sizes);
    Lanes *lanes = lanes_create(threads, lanes_chunks(sweep->total, sweep->chunk), watch);
    const Status status = run_lanes(f, lanes, sweep, diag);
    lanes_destroy(lanes);
    if (sweep->data->masked) close_plans(f);
    return status;
}

Status forward_over(Forward *f, const Batches *data, int64_t limit, int64_t batch_size,
                    int threads, const Watch *watch, ForwardSink sink, void *self,
                    Diag *diag) {
    int64_t sizes[DIM_SYMBOLS] = {0};
    LaneSweep sweep = sweep_of(data, limit, batch_size);
    if (sweep.total <= 0) return STATUS_OK;
    TRY(feed_check(f->graph, f->results, f->result_count, data, sizes, diag));
    return run_sweep(f, &sweep, sizes, threads, watch, sink, self, diag);
}

Status forward_batches(Graph *graph, Node *const *results, int result_count,
                       const Batches *data, int64_t limit, int64_t batch_size,
                       int threads, const Watch *watch, ForwardSink sink, void *self,
                       Diag *diag) {
    Forward *f = NULL;
    int64_t sizes[DIM_SYMBOLS] = {0};
    LaneSweep sweep = sweep_of(data, limit, batch_size);
    if (sweep.total <= 0) return STATUS_OK;
    TRY(feed_check(graph, results, result_count, data, sizes, diag)); /* before memory */
    Status status = forward_open(&f, graph, results, result_count,
                                 lanes_chunks(sweep.total, sweep.chunk), diag);
    if (status == STATUS_OK)
        status = run_sweep(f, &sweep, sizes, threads, watch, sink, self, diag);
    forward_close(f);
    return status;
}
