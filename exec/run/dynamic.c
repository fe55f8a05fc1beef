/* Dynamic inference: see exec/run/dynamic.h.
 *
 * A lane takes a chunk of samples from stage to stage until none is left. It has three
 * workspaces: the first stage's, which holds the columns until they are handed over, and
 * two that the later stages use in turn, each reading what it takes over from the
 * other. */
#include "exec/run/dynamic.h"

#include "exec/run/dynamic_cut.h"
#include "exec/run/feed.h"
#include "exec/run/lanes.h"
#include "exec/run/ranks.h"

#include <stdlib.h>
#include <string.h>

enum { WORKSPACES = 3 };

/* One lane's chunk and what becomes of it. */
typedef struct DynamicLane {
    Workspace *workspace[WORKSPACES];
    Feed feed;
    const int64_t *index; /* of the chunk's samples in the data set */
    int stage;            /* to run next */
    int64_t left;         /* samples still in */
    int64_t *sample;      /* by row of the stage: which sample of the chunk it is */
    int64_t *row;         /* by row: where it stood in the stage before */
    ExitState *state;     /* by sample of the chunk, as the two below */
    int *exit;
    float *logits;
    double flops, seconds;
} DynamicLane;

struct Dynamic {
    Graph *graph; /* whole */
    Node *const *exits;
    Cut cut;
    Params *params;
    int64_t sizes[DIM_SYMBOLS]; /* that plans were made for */
    bool planned;
    int lanes;           /* that there is memory for: */
    DynamicLane *memory; /* by lane */

    /* of the run */
    const ExitRule *rule;
    DynamicSink sink;
    void *self;
};

/* ---- one stage of one lane ---- */

static Workspace *workspace_of(const DynamicLane *lane, int stage) {
    return lane->workspace[stage == 0 ? 0 : 2 - stage % 2];
}

/* Moves the rows that go on from the stage before into this stage's inputs, and checks
 * plain inputs, which this stage may be the first to use as indices. */
static Status take_over(DynamicLane *lane, const Stage *stage, Diag *diag) {
    const Workspace *before = workspace_of(lane, lane->stage - 1);
    Workspace *now = workspace_of(lane, lane->stage);
    for (int i = 0; i < stage->carry_count; i++) {
        const Carry *carry = &stage->carries[i];
        const PlanNode *input = workspace_input_node(now, carry->to->name);
        char *to = workspace_input(now, carry->to->name);
        const char *from = workspace_value(before, carry->from);
        const size_t bytes = (size_t)(input->count / lane->left) * sizeof(float);
        for (int64_t r = 0; r < lane->left; r++)
            memcpy(to + (size_t)r * bytes, from + (size_t)lane->row[r] * bytes, bytes);
        if (carry->to == carry->from)
            TRY(feed_check_rows(&lane->feed, now, carry->to->name, lane->index,
                                lane->sample, lane->left, diag));
    }
    return STATUS_OK;
}

/* Asks the rule; those that stay are moved to the front of the lane's lists. */
static void choose(const Dynamic *d, DynamicLane *lane) {
    const int k = lane->stage;
    const int64_t classes = d->cut.classes;
    const float *z = workspace_value(workspace_of(lane, k), d->cut.stages[k].logits);
    const bool last = k + 1 == d->cut.count;
    int64_t stay = 0;
    for (int64_t r = 0; r < lane->left; r++, z += classes) {
        const int64_t s = lane->sample[r];
        if (!last && !exit_leaves(d->rule, &lane->state[s], k, z, classes)) {
            lane->sample[stay] = s;
            lane->row[stay++] = r;
            continue;
        }
        lane->exit[s] = k;
        memcpy(lane->logits + s * classes, z, (size_t)classes * sizeof *z);
    }
    lane->left = stay;
}

/* Fetches the samples of `what`, or takes over what is left of them from the stage
 * before, and runs the stage. Fetching and planning are not part of the time. */
static Status run_stage(const Dynamic *d, DynamicLane *lane, const Fetch *what,
                        const Plan *plan, Diag *diag) {
    const Stage *stage = &d->cut.stages[lane->stage];
    Workspace *workspace = workspace_of(lane, lane->stage);
    double start = ticker_seconds();
    TRY(workspace_bind(workspace, plan, d->params, diag));
    if (lane->stage == 0) {
        TRY(feed_fetch(&lane->feed, workspace, what, diag));
        start = ticker_seconds();
    } else {
        TRY(take_over(lane, stage, diag));
    }
    run_forward(workspace, (RunMode){0});
    choose(d, lane);
    lane->stage++;
    lane->flops += plan_flops(plan);
    lane->seconds += ticker_seconds() - start;
    return STATUS_OK;
}

static Status run_chunk(void *self, const Fetch *what, int i, Diag *diag) {
    const Dynamic *d = self;
    DynamicLane *lane = &d->memory[i];
    lane->index = what->index;
    lane->left = what->n;
    lane->stage = 0;
    for (int64_t s = 0; s < what->n; s++) {
        lane->sample[s] = s;
        lane->state[s] = (ExitState){0};
    }
    while (lane->left > 0) {
        Plan *plan = NULL;
        TRY(plan_cache_get(d->cut.stages[lane->stage].plans, lane->left, what, &plan,
                           diag));
        const Status status = run_stage(d, lane, what, plan, diag);
        plan_destroy(plan);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

/* LanePack: the exits, then the logits. */
static void pack_chunk(void *self, const Fetch *what, int i, Text *out) {
    const Dynamic *d = self;
    const DynamicLane *lane = &d->memory[i];
    const size_t samples = (size_t)what->n;
    text_bytes(out, (const char *)lane->exit, samples * sizeof *lane->exit);
    text_bytes(out, (const char *)lane->logits,
               samples * (size_t)d->cut.classes * sizeof *lane->logits);
}

static Status unpack_chunk(void *self, const Fetch *what, int i, const char *bytes,
                           Diag *diag) {
    const Dynamic *d = self;
    DynamicLane *lane = &d->memory[i];
    const size_t exits = (size_t)what->n * sizeof *lane->exit;
    memcpy(lane->exit, bytes, exits);
    memcpy(lane->logits, bytes + exits,
           (size_t)what->n * (size_t)d->cut.classes * sizeof *lane->logits);
    return feed_fetch_columns(&lane->feed, what, diag);
}

static Status deliver_chunk(void *self, const Fetch *what, int i, Diag *diag) {
    const Dynamic *d = self;
    const DynamicLane *lane = &d->memory[i];
    return d->sink(d->self, what, lane->exit, lane->logits,
                   (const void *const *)lane->feed.column, diag);
}

/* ---- what stays ---- */

Status dynamic_open(Dynamic **out, Graph *graph, Node *const *exits, int exit_count,
                    int64_t runs, Diag *diag) {
    Dynamic *d = memory_alloc(1, sizeof *d);
    *d = (Dynamic){.graph = graph, .exits = exits};
    Status status = cut_open(&d->cut, graph, exits, exit_count, diag);
    if (status == STATUS_OK)
        status = params_create_packed(&d->params, d->cut.graph, runs, diag);
    if (status == STATUS_OK)
        *out = d;
    else
        dynamic_close(d);
    return status;
}

void dynamic_close(Dynamic *d) {
    if (!d) return;
    for (int i = 0; i < d->lanes; i++)
        for (int k = 0; k < WORKSPACES; k++) workspace_destroy(d->memory[i].workspace[k]);
    free(d->memory);
    params_destroy(d->params);
    cut_close(&d->cut);
    free(d);
}

/* Memory for so many lanes, that which is there first. */
static Status open_memory(Dynamic *d, int lanes, Diag *diag) {
    if (d->lanes >= lanes) return STATUS_OK;
    d->memory = memory_grow(d->memory, (size_t)lanes, sizeof *d->memory);
    while (d->lanes < lanes) {
        DynamicLane *lane = &d->memory[d->lanes++];
        *lane = (DynamicLane){0};
        for (int k = 0; k < WORKSPACES && k < d->cut.count; k++)
            TRY(workspace_create(&lane->workspace[k], diag));
    }
    return STATUS_OK;
}

/* Plans for data of these sizes, those that are there if they are for the same. The data
 * are gone before them, unless masks are asked for. */
static void open_plans(Dynamic *d, const Batches *data,
                       const int64_t sizes[DIM_SYMBOLS]) {
    if (d->planned && !data->masked && memcmp(d->sizes, sizes, sizeof d->sizes) == 0)
        return;
    memcpy(d->sizes, sizes, sizeof d->sizes);
    cut_plan(&d->cut, data->masked ? data : NULL, sizes);
    d->planned = !data->masked;
}

/* ---- a run ---- */

static Status open_lane(DynamicLane *lane, const Dynamic *d, const LaneSweep *sweep,
                        Team *team, Diag *diag) {
    const size_t chunk = (size_t)sweep->chunk;
    lane->sample = memory_alloc(chunk, sizeof *lane->sample);
    lane->row = memory_alloc(chunk, sizeof *lane->row);
    lane->state = memory_alloc(chunk, sizeof *lane->state);
    lane->exit = memory_alloc(chunk, sizeof *lane->exit);
    lane->logits = memory_alloc(chunk, (size_t)d->cut.classes * sizeof *lane->logits);
    lane->flops = lane->seconds = 0;
    for (int k = 0; k < WORKSPACES && k < d->cut.count; k++)
        workspace_share(lane->workspace[k], team);
    return feed_open(&lane->feed, sweep->data, sweep->chunk, diag);
}

static void close_lane(DynamicLane *lane) {
    for (int k = 0; k < WORKSPACES; k++)
        if (lane->workspace[k]) workspace_share(lane->workspace[k], NULL);
    feed_close(&lane->feed);
    free(lane->sample);
    free(lane->row);
    free(lane->state);
    free(lane->exit);
    free(lane->logits);
    lane->sample = lane->row = NULL;
    lane->state = NULL;
    lane->exit = NULL;
    lane->logits = NULL;
}

/* In lanes that share the threads; adds up what they took. */
static Status run_lanes(Dynamic *d, Lanes *lanes, const LaneSweep *sweep,
                        DynamicReport *report, Diag *diag) {
    const int count = lanes_count(lanes);
    TRY(open_memory(d, count, diag));
    TRY(lanes_share(lanes, diag));
    Status status = STATUS_OK;
    for (int i = 0; i < count && status == STATUS_OK; i++)
        status = open_lane(&d->memory[i], d, sweep, lanes_team(lanes, i), diag);
    if (status == STATUS_OK) status = lanes_sweep(lanes, sweep, diag);
    for (int i = 0; i < count; i++) {
        report->flops += d->memory[i].flops;
        report->seconds += d->memory[i].seconds;
        close_lane(&d->memory[i]);
    }
    return status;
}

/* Adds up what all ranks took; FLOPs are whole numbers. */
static Status sum_reports(DynamicReport *report, Diag *diag) {
    const int ranks = ranks_count(), me = ranks_number();
    double *took = memory_alloc(2 * (size_t)ranks, sizeof *took);
    took[2 * me] = report->flops;
    took[2 * me + 1] = report->seconds;
    const Status status = ranks_gather(took, ranks, 2 * sizeof *took, diag);
    report->flops = report->seconds = 0;
    for (int r = 0; r < ranks; r++) {
        report->flops += took[2 * r];
        report->seconds += took[2 * r + 1];
    }
    free(took);
    return status;
}

static LaneSweep sweep_of(const Batches *data, int64_t limit, int64_t batch_size) {
    LaneSweep sweep = lanes_sweep_of(data, limit, batch_size);
    sweep.run = run_chunk;
    sweep.deliver = deliver_chunk;
    sweep.pack = pack_chunk;
    sweep.unpack = unpack_chunk;
    return sweep;
}

/* The sweep over data that was checked. */
static Status run_sweep(Dynamic *d, LaneSweep *sweep, const int64_t sizes[DIM_SYMBOLS],
                        const ExitRule *rule, int threads, const Watch *watch,
                        DynamicSink sink, void *self, DynamicReport *report, Diag *diag) {
    sweep->self = d;
    d->rule = rule;
    d->sink = sink;
    d->self = self;
    open_plans(d, sweep->data, sizes);
    Lanes *lanes = lanes_create(threads, lanes_chunks(sweep->total, sweep->chunk), watch);
    Status status = run_lanes(d, lanes, sweep, report, diag);
    lanes_destroy(lanes);
    if (status == STATUS_OK) status = sum_reports(report, diag);
    if (status != STATUS_OK) *report = (DynamicReport){0};
    if (status == STATUS_OK) report->samples = sweep->total;
    return status;
}

Status dynamic_over(Dynamic *d, const ExitRule *rule, const Batches *data, int64_t limit,
                    int64_t batch_size, int threads, const Watch *watch, DynamicSink sink,
                    void *self, DynamicReport *report, Diag *diag) {
    int64_t sizes[DIM_SYMBOLS] = {0};
    LaneSweep sweep = sweep_of(data, limit, batch_size);
    *report = (DynamicReport){0};
    if (sweep.total <= 0) return STATUS_OK;
    TRY(feed_check(d->graph, d->exits, d->cut.count, data, sizes, diag));
    return run_sweep(d, &sweep, sizes, rule, threads, watch, sink, self, report, diag);
}

Status dynamic_batches(Graph *graph, Node *const *exits, int exit_count,
                       const ExitRule *rule, const Batches *data, int64_t limit,
                       int64_t batch_size, int threads, const Watch *watch,
                       DynamicSink sink, void *self, DynamicReport *report, Diag *diag) {
    Dynamic *d = NULL;
    int64_t sizes[DIM_SYMBOLS] = {0};
    LaneSweep sweep = sweep_of(data, limit, batch_size);
    *report = (DynamicReport){0};
    if (sweep.total <= 0) return STATUS_OK;
    TRY(feed_check(graph, exits, exit_count, data, sizes, diag)); /* before memory */
    Status status = dynamic_open(&d, graph, exits, exit_count,
                                 lanes_chunks(sweep.total, sweep.chunk), diag);
    if (status == STATUS_OK)
        status =
            run_sweep(d, &sweep, sizes, rule, threads, watch, sink, self, report, diag);
    dynamic_close(d);
    return status;
}

/* ---- cost ---- */

/* Tokens and masked positions where neither the graph nor the caller gives a number. */
enum { TOKENS = 128, MASKED = 20 };

/* Sums up the stages of one sample. */
static Status sum_flops(const Cut *cut, double *flops, Diag *diag) {
    double sum = 0;
    for (int k = 0; k < cut->count; k++) {
        Plan *plan = NULL;
        TRY(plan_cache_get(cut->stages[k].plans, 1, NULL, &plan, diag));
        sum += plan_flops(plan);
        plan_destroy(plan);
        flops[k] = sum;
    }
    return STATUS_OK;
}

Status dynamic_flops(Graph *graph, Node *const *exits, int exit_count, int64_t tokens,
                     double *flops, Diag *diag) {
    const int64_t open = tokens > 0 ? tokens : TOKENS;
    int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = 1,
                                  [DIM_INDEX(DIM_T)] = open,
                                  [DIM_INDEX(DIM_S)] = open,
                                  [DIM_INDEX(DIM_M)] = MASKED};
    if (tokens == 0) plan_fit_sizes(graph, exits, exit_count, sizes);
    Cut cut;
    Status status = cut_open(&cut, graph, exits, exit_count, diag);
    if (status == STATUS_OK) {
        cut_plan(&cut, NULL, sizes);
        status = sum_flops(&cut, flops, diag);
    }
    cut_close(&cut);
    return status;
}
