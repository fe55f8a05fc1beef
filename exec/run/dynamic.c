/* Dynamic inference: see exec/run/dynamic.h.
 *
 * Chunks of samples are run in rounds, one chunk per thread. A thread goes from stage to
 * stage until no sample is left, or no plan is there for as many as are; then the main
 * thread makes the plans that are missing, and all go on. So nothing but plans that are
 * new is allocated, and after a while a round is one parallel run. A lane has three
 * workspaces: the first stage's, which holds the columns until they are handed over, and
 * two that the later stages use in turn, each reading what it takes over from the
 * other. */
#include "exec/run/dynamic.h"

#include "exec/plan/workspace.h"
#include "exec/run/dynamic_cut.h"
#include "exec/run/feed.h"
#include "exec/run/parallel.h"
#include "exec/run/ticker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACES = 3 };

/* Plans that a stage keeps from one round to the next. */
enum { PLANS = 64 };

/* One thread's chunk. */
typedef struct Lane {
    Workspace *workspace[WORKSPACES];
    Feed feed;
    Diag *diag; /* faults are found again by the main thread, which reports them */
    Fetch what;
    int stage;        /* to run next */
    int64_t left;     /* samples still in */
    int64_t *sample;  /* by row of the stage: which sample of the chunk it is */
    int64_t *row;     /* by row: where it stood in the stage before */
    ExitState *state; /* by sample of the chunk, as the two below */
    int *exit;
    float *logits;
    double flops, seconds;
    Status status;
} Lane;

typedef struct Dynamic {
    Cut cut;
    const ExitRule *rule;
    const Batches *data;
    int64_t total, chunk;
    int threads;
    Params *params;
    int64_t *order;
    Lane *lanes;
    Ticker ticker;
} Dynamic;

/* ---- opening and closing ---- */

static void sort_samples(Dynamic *d) {
    d->order = memory_alloc((size_t)d->total, sizeof *d->order);
    for (int64_t i = 0; i < d->total; i++) d->order[i] = i;
    batches_sort(d->data, d->order, d->total);
}

static Status open_lane(Lane *lane, const Dynamic *d, Diag *diag) {
    const size_t chunk = (size_t)d->chunk;
    lane->diag = diag_create();
    lane->sample = memory_alloc(chunk, sizeof *lane->sample);
    lane->row = memory_alloc(chunk, sizeof *lane->row);
    lane->state = memory_alloc(chunk, sizeof *lane->state);
    lane->exit = memory_alloc(chunk, sizeof *lane->exit);
    lane->logits = memory_alloc(chunk, (size_t)d->cut.classes * sizeof *lane->logits);
    for (int i = 0; i < WORKSPACES && i < d->cut.count; i++)
        TRY(workspace_create(&lane->workspace[i], diag));
    return feed_open(&lane->feed, d->data, d->chunk, diag);
}

static void close_lane(Lane *lane) {
    for (int i = 0; i < WORKSPACES; i++) workspace_destroy(lane->workspace[i]);
    feed_close(&lane->feed);
    diag_destroy(lane->diag);
    free(lane->sample);
    free(lane->row);
    free(lane->state);
    free(lane->exit);
    free(lane->logits);
}

static Status dynamic_open(Dynamic *d, Graph *graph, Node *const *exits, int exit_count,
                           Diag *diag) {
    int64_t sizes[DIM_SYMBOLS] = {0};
    TRY(feed_check(graph, exits, exit_count, d->data, sizes, diag));
    TRY(cut_open(&d->cut, graph, exits, exit_count, diag));
    for (int k = 0; k < exit_count; k++) {
        PlanCache *plans = &d->cut.stages[k].plans;
        plans->data = d->data;
        memcpy(plans->options.sizes, sizes, sizeof sizes);
    }
    if (d->chunk > d->total) d->chunk = d->total;
    const int64_t chunks = (d->total + d->chunk - 1) / d->chunk;
    if (d->threads < 1) d->threads = 1;
    if (d->threads > chunks) d->threads = (int)chunks;
    sort_samples(d);
    TRY(params_create(&d->params, d->cut.graph, PRECISION_F32, false, diag));
    d->lanes = memory_alloc((size_t)d->threads, sizeof *d->lanes);
    for (int i = 0; i < d->threads; i++) TRY(open_lane(&d->lanes[i], d, diag));
    return STATUS_OK;
}

static void dynamic_close(Dynamic *d) {
    for (int i = 0; d->lanes && i < d->threads; i++) close_lane(&d->lanes[i]);
    free(d->lanes);
    params_destroy(d->params);
    free(d->order);
    cut_close(&d->cut);
}

/* ---- one stage of one lane ---- */

static Workspace *workspace_of(const Lane *lane, int stage) {
    return lane->workspace[stage == 0 ? 0 : 1 + stage % 2];
}

/* Moves the rows that go on from the stage before into this stage's inputs. */
static void take_over(Lane *lane, const Stage *stage) {
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
    }
}

/* Plain inputs that a later stage is the first to use as indices. */
static Status check_rows(const Lane *lane, const Stage *stage, Diag *diag) {
    for (int i = 0; i < stage->carry_count; i++) {
        const Carry *carry = &stage->carries[i];
        if (carry->to != carry->from) continue;
        TRY(feed_check_rows(&lane->feed, workspace_of(lane, lane->stage), carry->to->name,
                            lane->what.index, lane->sample, lane->left, diag));
    }
    return STATUS_OK;
}

/* Asks the rule; those that stay are moved to the front of the lane's lists. */
static void choose(const Dynamic *d, Lane *lane) {
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

/* Fetches samples, or takes them over from the stage before, and runs the stage. Fetching
 * is not part of the time. */
static Status run_stage(const Dynamic *d, Lane *lane, const Plan *plan, Diag *diag) {
    const Stage *stage = &d->cut.stages[lane->stage];
    Workspace *workspace = workspace_of(lane, lane->stage);
    double start = ticker_seconds();
    TRY(workspace_bind(workspace, plan, d->params, diag));
    if (lane->stage == 0) {
        TRY(feed_fetch(&lane->feed, workspace, &lane->what, diag));
        start = ticker_seconds();
    } else {
        take_over(lane, stage);
        TRY(check_rows(lane, stage, diag));
    }
    run_forward(workspace, (RunMode){0});
    choose(d, lane);
    lane->stage++;
    lane->flops += plan_flops(plan);
    lane->seconds += ticker_seconds() - start;
    return STATUS_OK;
}

/* Plan for what a lane has to do next, NULL when there is none yet. */
static const Plan *find_plan(const Dynamic *d, const Lane *lane) {
    const PlanCache *plans = &d->cut.stages[lane->stage].plans;
    return plan_cache_find(plans, lane->left, &lane->what);
}

/* Runs stages as long as their plans are there. */
static Status run_lane(const Dynamic *d, Lane *lane, Diag *diag) {
    const Plan *plan;
    while (lane->left > 0 && (plan = find_plan(d, lane)))
        TRY(run_stage(d, lane, plan, diag));
    return STATUS_OK;
}

static void lane_body(void *self, int64_t i, int worker) {
    (void)worker; /* lane i has workspaces of its own */
    const Dynamic *d = self;
    d->lanes[i].status = run_lane(d, &d->lanes[i], d->lanes[i].diag);
}

/* ---- rounds ---- */

/* A chunk of samples from `first` on; returns the first after it. */
static int64_t start_lane(const Dynamic *d, Lane *lane, int64_t first) {
    const int64_t rest = d->total - first;
    lane->what =
        (Fetch){.index = d->order + first, .n = rest < d->chunk ? rest : d->chunk};
    batches_pad(d->data, &lane->what);
    lane->left = lane->what.n;
    lane->stage = 0;
    for (int64_t s = 0; s < lane->what.n; s++) {
        lane->sample[s] = s;
        lane->state[s] = (ExitState){0};
    }
    return first + lane->what.n;
}

/* Forgets the plans of stages that have many; what they were for stays. */
static void trim_plans(Dynamic *d) {
    for (int k = 0; k < d->cut.count; k++) {
        PlanCache *plans = &d->cut.stages[k].plans;
        const PlanCache empty = {
            .graph = plans->graph, .data = plans->data, .options = plans->options};
        if (plans->count <= PLANS) continue;
        plan_cache_close(plans);
        *plans = empty;
    }
}

/* Makes the plans that lanes wait for; *any: whether one does. */
static Status make_plans(Dynamic *d, int lanes, bool *any, Diag *diag) {
    *any = false;
    for (int i = 0; i < lanes; i++) {
        const Lane *lane = &d->lanes[i];
        if (lane->left == 0) continue;
        PlanCache *plans = &d->cut.stages[lane->stage].plans;
        TRY(plan_cache_need(plans, lane->left, &lane->what, diag));
        *any = true;
    }
    return STATUS_OK;
}

/* Runs the chunks of a round to their ends. */
static Status run_lanes(Dynamic *d, int lanes, Diag *diag) {
    bool any;
    trim_plans(d);
    for (;;) {
        TRY(make_plans(d, lanes, &any, diag));
        if (!any) return STATUS_OK;
        parallel_for(lanes, d->threads, lane_body, d);
        for (int i = 0; i < lanes; i++)
            if (d->lanes[i].status != STATUS_OK) TRY(run_lane(d, &d->lanes[i], diag));
    }
}

/* Runs chunks from sample `first` on, one for each thread; *next is where to go on. */
static Status run_round(Dynamic *d, int64_t first, int64_t *next, DynamicSink sink,
                        void *self, Diag *diag) {
    int lanes = 0;
    while (lanes < d->threads && first < d->total)
        first = start_lane(d, &d->lanes[lanes++], first);
    *next = first;
    TRY(run_lanes(d, lanes, diag));
    for (int i = 0; i < lanes; i++) {
        const Lane *lane = &d->lanes[i];
        TRY(sink(self, &lane->what, lane->exit, lane->logits,
                 (const void *const *)lane->feed.column, diag));
    }
    return STATUS_OK;
}

static Status dynamic_run(Dynamic *d, DynamicSink sink, void *self, Diag *diag) {
    for (int64_t first = 0; first < d->total;) {
        if (ticker_cancelled(&d->ticker))
            return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                             "stopped after %lld of %lld samples", (long long)first,
                             (long long)d->total);
        TRY(run_round(d, first, &first, sink, self, diag));
        ticker_progress(&d->ticker, first, d->total, NAN, first == d->total);
    }
    return STATUS_OK;
}

static void fill_report(const Dynamic *d, DynamicReport *report) {
    *report = (DynamicReport){.samples = d->total};
    for (int i = 0; i < d->threads; i++) {
        report->flops += d->lanes[i].flops;
        report->seconds += d->lanes[i].seconds;
    }
}

Status dynamic_batches(Graph *graph, Node *const *exits, int exit_count,
                       const ExitRule *rule, const Batches *data, int64_t limit,
                       int64_t batch_size, int threads, const Watch *watch,
                       DynamicSink sink, void *self, DynamicReport *report, Diag *diag) {
    Dynamic d = {.rule = rule,
                 .data = data,
                 .total = limit > 0 && limit < data->count ? limit : data->count,
                 .chunk = batch_size > 0 ? batch_size : 1,
                 .threads = threads,
                 .ticker = {.watch = watch}};
    *report = (DynamicReport){0};
    if (d.total <= 0) return STATUS_OK;
    Status status = dynamic_open(&d, graph, exits, exit_count, diag);
    if (status == STATUS_OK) status = dynamic_run(&d, sink, self, diag);
    if (status == STATUS_OK) fill_report(&d, report);
    dynamic_close(&d);
    return status;
}

/* ---- cost ---- */

/* Tokens and masked positions where neither the graph nor the caller gives a number. */
enum { TOKENS = 128, MASKED = 20 };

/* Sums up the stages at these sizes. */
static Status sum_flops(Cut *cut, const int64_t sizes[DIM_SYMBOLS], double *flops,
                        Diag *diag) {
    double sum = 0;
    for (int k = 0; k < cut->count; k++) {
        PlanCache *plans = &cut->stages[k].plans;
        memcpy(plans->options.sizes, sizes, sizeof plans->options.sizes);
        TRY(plan_cache_need(plans, 1, NULL, diag));
        sum += plan_flops(plan_cache_find(plans, 1, NULL));
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
    if (status == STATUS_OK) status = sum_flops(&cut, sizes, flops, diag);
    cut_close(&cut);
    return status;
}
