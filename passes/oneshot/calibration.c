/* Calibration: see calibration.h.
 *
 * Samples go through in chunks of fixed composition, about equally long ones together, so
 * that what is kept of a chunk is found again. Lanes run chunks, those of all ranks; rows
 * are handed over in the order of the chunks, in every rank all of them. */
#include "passes/oneshot/calibration.h"

#include "exec/ops.h"
#include "exec/run/feed.h"
#include "exec/run/lanes.h"
#include "exec/run/ranks.h"
#include "ir/model_parts.h"
#include "ir/random.h"
#include "ir/resident.h"
#include "passes/fault.h"
#include "passes/oneshot/calibration_keep.h"
#include "passes/run_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_SAMPLES = 16 };
/* A Gram matrix, and what methods make of it: factor, inverse, and rows that wait. */
enum { GRAM_MATRICES = 3 };

struct Calibration {
    PassContext *ctx;
    Graph *graph;
    const CalibrationOptions *options;
    const Batches *data;
    int64_t *order; /* the samples, in chunks */
    int64_t samples, chunks;
    int calls, expected;
    bool steady;
    Arena *arena; /* of what is kept */
    Kept kept;
};

/* ---- opening ---- */

/* Draws the samples and puts those of a length together. */
static void draw_samples(Calibration *c) {
    const int64_t count = c->data->count;
    int64_t *all = memory_alloc((size_t)count, sizeof *all);
    random_permutation(random_key_name(c->ctx->seed, "calibration"), all, count);
    if (c->samples == count)
        for (int64_t i = 0; i < count; i++) all[i] = i;
    c->order = memory_alloc((size_t)c->samples, sizeof *c->order);
    memcpy(c->order, all, (size_t)c->samples * sizeof *c->order);
    batches_sort(c->data, c->order, c->samples);
    free(all);
}

/* Bytes of the Gram matrices of the block that needs the most of them; 0 without. */
static size_t gram_bytes(Node *const *values, int count, bool grams) {
    size_t most = 0, block = 0;
    for (int i = 0; i < count && grams; i++) {
        const size_t width = (size_t)node_width(values[i]);
        if (i > 0 && values[i]->layer != values[i - 1]->layer) block = 0;
        block += GRAM_MATRICES * width * width * sizeof(double);
        if (block > most) most = block;
    }
    return most;
}

static Status plan_memory(PassContext *ctx, const DataUse *use, const Batches *data,
                          const CalibrationOptions *options, bool grams, Diag *diag) {
    const int64_t samples =
        options->samples < data->count ? options->samples : data->count;
    const DataRun run = {.graph = use->graph,
                         .roots = use->roots + (use->root_count - 1),
                         .root_count = 1,
                         .data = data,
                         .batch = CHUNK_SAMPLES,
                         .by_layer = true};
    const size_t squares = gram_bytes(use->roots, use->root_count, grams);
    return use->root_count == 0
               ? STATUS_OK
               : step_plan_run(ctx, &run,
                               squares +
                                   kept_bytes(use->roots, use->root_count, data, samples),
                               diag);
}

static Status open_set(Calibration **out, PassContext *ctx, Graph *graph,
                       Node *const *values, int count, const CalibrationOptions *options,
                       bool grams, Diag *diag) {
    const DataUse use = {.graph = graph, .roots = values, .root_count = count};
    Batches *data = NULL;
    *out = NULL;
    TRY(step_data(ctx, options->data, &use, &data, diag));
    if (!data) return STATUS_OK;
    if (data->count == 0)
        return step_fail_option(ctx, "data", diag,
                                "expected samples to calibrate with, found none in data "
                                "set \"%s\"",
                                options->data);
    if (ctx->plan && data->count < options->samples)
        option_warn(&ctx->source, "samples", diag,
                    "data set \"%s\" has %lld samples, all of which are used",
                    options->data, (long long)data->count);
    if (ctx->plan) return plan_memory(ctx, &use, data, options, grams, diag);
    Calibration *c = memory_alloc(1, sizeof *c);
    *c = (Calibration){.ctx = ctx, .graph = graph, .options = options, .data = data};
    c->samples = options->samples < data->count ? options->samples : data->count;
    c->chunks = lanes_chunks(c->samples, CHUNK_SAMPLES);
    draw_samples(c);
    *out = c;
    return STATUS_OK;
}

Status calibration_open(Calibration **out, PassContext *ctx, Graph *graph,
                        Node *const *values, int count, const CalibrationOptions *options,
                        Diag *diag) {
    return open_set(out, ctx, graph, values, count, options, true, diag);
}

Status calibration_open_rows(Calibration **out, PassContext *ctx, Graph *graph,
                             Node *const *values, int count,
                             const CalibrationOptions *options, Diag *diag) {
    return open_set(out, ctx, graph, values, count, options, false, diag);
}

static void drop_kept(Calibration *c) {
    kept_free(&c->kept);
    if (c->arena) arena_destroy(c->arena);
    c->arena = NULL;
}

void calibration_restart(Calibration *c) {
    drop_kept(c);
    c->steady = false;
}

void calibration_close(Calibration *c) {
    if (!c) return;
    calibration_restart(c);
    free(c->order);
    free(c);
}

int64_t calibration_samples(const Calibration *c) {
    return c->samples;
}

int calibration_threads(const Calibration *c) {
    return c->ctx->threads;
}

void calibration_expect(Calibration *c, int calls, bool steady) {
    c->expected = c->calls + calls;
    c->steady = steady;
}

void calibration_warn_rows(const Calibration *c, int64_t rows, int64_t columns,
                           Diag *diag) {
    if (rows >= columns) return;
    const double wanted = ceil((double)c->samples * (double)columns / (double)rows);
    const bool more = c->data->count > c->samples;
    option_warn(&c->ctx->source, more ? "data|samples" : "data", diag,
                "%lld rows for %lld columns: damping decides; more samples: about %.0f "
                "for as many rows%s",
                (long long)rows, (long long)columns, wanted,
                more ? "" : ", which the data set does not have");
}

void calibration_record(const Calibration *c, Tree *into) {
    Arena *arena = c->ctx->arena;
    Tree *map = tree_put_map(arena, into, "calibration");
    tree_put_string(arena, map, "data", c->options->data);
    tree_put_int(arena, map, "samples", c->samples);
}

/* ---- one call ---- */

/* One thread's means of running a chunk, and what came of it. */
typedef struct Lane {
    Workspace *workspace;
    Feed feed;
    CalibrationRows *rows; /* by value */
    float **room;          /* by value: for rows that count where others do not */
    int64_t *room_numbers;
} Lane;

typedef struct Sweep {
    Calibration *c;
    Node *const *values; /* of the model */
    int count;
    CalibrationSink *sink;
    void *self;
    Kept next; /* what this call keeps */
    KeptGraph copy;
    Params *params;
    PlanCache *plans;
    Lanes *lanes;
    Lane *memory;           /* by lane; and one for what other ranks have run */
    int64_t tokens, source; /* of data of one length */
} Sweep;

/* Samples of a chunk, and how they are padded. */
static Fetch chunk_of(const Sweep *s, int64_t chunk) {
    const Calibration *c = s->c;
    const int64_t first = chunk * CHUNK_SAMPLES, left = c->samples - first;
    Fetch what = {.index = c->order + first,
                  .n = left < CHUNK_SAMPLES ? left : CHUNK_SAMPLES};
    batches_pad(c->data, &what);
    if (!what.tokens) what.tokens = s->tokens;
    if (!what.source) what.source = s->source;
    return what;
}

/* The sizes of a chunk's dimensions. */
static void sizes_of(const Sweep *s, const Fetch *what, int64_t sizes[DIM_SYMBOLS]) {
    const Batches *data = s->c->data;
    sizes[DIM_INDEX(DIM_N)] = what->n;
    sizes[DIM_INDEX(DIM_T)] = what->tokens;
    sizes[DIM_INDEX(DIM_S)] = what->source;
    sizes[DIM_INDEX(DIM_M)] = data->masked ? batches_masked(data, what->tokens) : 0;
}

static int64_t count_numbers(const Sweep *s, const Type *type, const Fetch *what) {
    int64_t sizes[DIM_SYMBOLS];
    Type bound;
    sizes_of(s, what, sizes);
    return type_bind(type, sizes, &bound) ? type_count(&bound) : 0;
}

/* Which rows of a value [N, tokens, K] count: those that a mask of the data set has as 1,
 * or without one the first of each sample up to its length; of windows those that are put
 * back on the grid; with none of these all. */
typedef struct RowFilter {
    const int32_t *mask; /* by row */
    int64_t (*length)(const Batches *data, int64_t sample);
    const Node *windows; /* the window_reverse behind the value */
    int64_t tokens;
} RowFilter;

/* The node that puts the rows of a value back on a grid, behind ops that leave them in
 * their places; NULL = there is none. */
static const Node *find_windows(const Sweep *s, const Node *value) {
    const Node *row = value;
    for (const Node *node = value->next; node; node = node->next) {
        bool reads = false;
        for (int i = 0; i < node->in_count; i++) reads |= node->in[i] == row;
        if (!reads) continue;
        if (node_is(node, &op_window_reverse)) return node;
        if (!node_has_trait(node, OP_ROWWISE | OP_ELEMENTWISE) ||
            graph_use_count(s->c->graph, row) > 1)
            return NULL;
        row = node;
    }
    return NULL;
}

/* Whether a token of windows is one of the grid, and not what fills it up. */
static bool is_on_grid(const Node *windows, int64_t token) {
    const int64_t window = node_integer(windows, "window");
    const int64_t height = node_integer(windows, "grid_h");
    const int64_t width = node_integer(windows, "grid_w");
    const int64_t shift = node_integer(windows, "shift");
    const int64_t down = (height + window - 1) / window;
    const int64_t across = (width + window - 1) / window;
    const int64_t number = token / (window * window), place = token % (window * window);
    const int64_t row = number / across * window + place / window + shift;
    const int64_t column = number % across * window + place % window + shift;
    return row % (down * window) < height && column % (across * window) < width;
}

/* Whether the rows of a value are samples times `tokens`. */
static bool has_tokens(const Type *type, int64_t tokens) {
    int64_t rows, expected;
    return dims_product(type->rank - 1, type->dim, &rows) &&
           dim_times(DIM_N, tokens, &expected) && rows == expected;
}

static RowFilter find_filter(const Sweep *s, const Node *value, const Fetch *what,
                             const Lane *lane) {
    const Batches *data = s->c->data;
    const Type *type = &value->type;
    for (int i = 0; i < data->column_count; i++) {
        const Column *column = &data->columns[i];
        const Node *input = graph_find_input(s->c->graph, column->name);
        if (!input_is_mask(column->name) || column->type.rank != 1) continue;
        if (has_tokens(type, input ? input->type.dim[1] : column->type.dim[0]))
            return (RowFilter){.mask = lane->feed.column[i]};
    }
    if (data->length && has_tokens(type, DIM_T))
        return (RowFilter){.length = data->length, .tokens = what->tokens};
    if (data->source_length && has_tokens(type, DIM_S))
        return (RowFilter){.length = data->source_length, .tokens = what->source};
    const Node *windows = type->rank == 3 ? find_windows(s, value) : NULL;
    return (RowFilter){.windows = windows, .tokens = windows ? type->dim[1] : 0};
}

static bool row_counts(const Sweep *s, const RowFilter *filter, const Fetch *what,
                       int64_t row) {
    if (filter->mask) return filter->mask[row] != 0;
    if (filter->windows) return is_on_grid(filter->windows, row % filter->tokens);
    if (!filter->length) return true;
    const int64_t sample = what->index[row / filter->tokens];
    return row % filter->tokens < filter->length(s->c->data, sample);
}

static bool row_is_finite(const float *row, int64_t width) {
    float sum = 0;
    for (int64_t i = 0; i < width; i++) sum += row[i] * 0.0F;
    return sum == 0;
}

static Status fail_finite(const Sweep *s, const Node *value, int64_t sample, Diag *diag) {
    char place[64] = "";
    if (value->stack && value->layer >= 0)
        snprintf(place, sizeof place, "%.40s.%d: ", value->stack, value->layer);
    return step_fail(s->c->ctx, diag,
                     "%sa value of \"%s\" is not finite, for sample %lld of data set "
                     "\"%s\"",
                     place, role_name(value->role), (long long)sample,
                     s->c->options->data);
}

/* Room for so many numbers of a value. */
static float *lane_room(Lane *lane, int value, int64_t numbers) {
    if (lane->room_numbers[value] < numbers) {
        free(lane->room[value]);
        lane->room[value] = memory_alloc((size_t)numbers, sizeof(float));
        lane->room_numbers[value] = numbers;
    }
    return lane->room[value];
}

/* Finds the rows of value i that count, and puts them behind each other where others lie
 * between them. */
static Status take_rows(const Sweep *s, int i, const Fetch *what, Lane *lane,
                        Diag *diag) {
    const Node *value = s->values[i];
    const Type *type = &value->type;
    const int64_t width = type->dim[type->rank - 1];
    const int64_t numbers = count_numbers(s, type, what), rows = numbers / width;
    const float *x = workspace_value(lane->workspace, s->copy.results[i]);
    const RowFilter filter = find_filter(s, value, what, lane);
    float *to = NULL; /* until a row does not count */
    CalibrationRows *out = &lane->rows[i];
    *out = (CalibrationRows){x, 0, width};
    for (int64_t row = 0; row < rows; row++, x += width) {
        if (!row_counts(s, &filter, what, row)) {
            if (to) continue;
            to = lane_room(lane, i, numbers);
            memcpy(to, out->x, (size_t)(out->count * width) * sizeof *to);
            out->x = to;
            continue;
        }
        if (!row_is_finite(x, width))
            return fail_finite(s, value, what->index[row * what->n / rows], diag);
        if (to) memcpy(to + out->count * width, x, (size_t)width * sizeof *x);
        out->count++;
    }
    return STATUS_OK;
}

/* Keeps what crosses the next place, and lets go of what the chunk started from. */
static Status keep_chunk(const Sweep *s, int64_t chunk, const Fetch *what,
                         const Lane *lane, Diag *diag) {
    for (int i = 0; i < s->next.count; i++) {
        const Node *node = s->copy.results[s->count + i];
        const size_t bytes =
            (size_t)count_numbers(s, &s->next.types[i], what) * sizeof(float);
        float *values = malloc(bytes + 1);
        if (!values)
            return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                             "out of memory for the values of calibration samples");
        memcpy(values, workspace_value(lane->workspace, node), bytes);
        s->next.values[i][chunk] = values;
    }
    for (int i = 0; i < s->c->kept.count && s->next.count > 0; i++) {
        free(s->c->kept.values[i][chunk]);
        s->c->kept.values[i][chunk] = NULL;
    }
    return STATUS_OK;
}

/* LaneSamples: runs a chunk, from what is kept of it. What is kept stays in the rank that
 * runs the chunk. */
static Status run_chunk(void *self, const Fetch *what, int lane, Diag *diag) {
    const Sweep *s = self;
    const Kept *kept = &s->c->kept;
    const int64_t chunk = (what->index - s->c->order) / CHUNK_SAMPLES;
    Lane *memory = &s->memory[lane];
    TRY(workspace_bind_cached(memory->workspace, s->plans, what->n, what, s->params,
                              diag));
    TRY(feed_fetch(&memory->feed, memory->workspace, what, diag));
    for (int i = 0; i < kept->count; i++) {
        void *input = workspace_input(memory->workspace, s->copy.inputs[i]->name);
        if (input)
            memcpy(input, kept->values[i][chunk],
                   (size_t)count_numbers(s, &kept->types[i], what) * sizeof(float));
    }
    run_forward(memory->workspace, (RunMode){0});
    for (int i = 0; i < s->count; i++) TRY(take_rows(s, i, what, memory, diag));
    return keep_chunk(s, chunk, what, memory, diag);
}

/* LaneSamples. */
static Status deliver_chunk(void *self, const Fetch *what, int lane, Diag *diag) {
    const Sweep *s = self;
    (void)what;
    return s->sink(s->self, s->memory[lane].rows, diag);
}

/* LaneReceive: the rows come from the rank that has them, value by value. */
static Status receive_chunk(void *self, const Fetch *what, int rank, int lane,
                            Diag *diag) {
    const Sweep *s = self;
    const bool own = rank == ranks_number();
    Lane *memory = &s->memory[own ? lane : lanes_count(s->lanes)];
    (void)what;
    TRY(ranks_broadcast(memory->rows, (size_t)s->count * sizeof *memory->rows, rank,
                        diag));
    for (int i = 0; i < s->count; i++) {
        CalibrationRows *rows = &memory->rows[i];
        const int64_t numbers = rows->count * rows->width;
        void *x = own ? (void *)(uintptr_t)rows->x : lane_room(memory, i, numbers);
        rows->x = x;
        TRY(ranks_broadcast(x, (size_t)numbers * sizeof *rows->x, rank, diag));
    }
    return s->sink(s->self, memory->rows, diag);
}

static Status sweep_chunks(Sweep *s, Diag *diag) {
    Calibration *c = s->c;
    const bool expected = c->expected > c->calls;
    const LaneSweep sweep = {.data = c->data,
                             .total = c->samples,
                             .chunk = CHUNK_SAMPLES,
                             .order = c->order,
                             .tokens = s->tokens,
                             .source = s->source,
                             .run = run_chunk,
                             .deliver = deliver_chunk,
                             .receive = receive_chunk,
                             .done = expected ? c->calls * c->samples : 0,
                             .all = expected ? c->expected * c->samples : c->samples,
                             .self = s};
    return lanes_sweep(s->lanes, &sweep, diag);
}

/* Finds what to keep, unless it would be too much, and the graph that computes it. */
static void sweep_graph(Sweep *s, Arena *arena) {
    Calibration *c = s->c;
    int64_t numbers = 0;
    kept_find(&s->next, arena, c->graph, &c->kept, s->values, s->count, c->steady,
              c->chunks);
    for (int64_t chunk = 0; chunk < c->chunks; chunk++) {
        const Fetch what = chunk_of(s, chunk);
        for (int i = 0; i < s->next.count; i++)
            numbers += count_numbers(s, &s->next.types[i], &what);
    }
    if (numbers * (int64_t)sizeof(float) > KEPT_BYTES) kept_free(&s->next);
    const int results = s->count + s->next.count;
    Node **list = ARENA_ARRAY(arena, Node *, (size_t)results + 1);
    for (int i = 0; i < results; i++)
        list[i] = i < s->count ? s->values[i] : s->next.nodes[i - s->count];
    kept_graph(&s->copy, arena, c->graph, &c->kept, list, results);
}

static Status sweep_run(Sweep *s, Arena *arena, Diag *diag) {
    Calibration *c = s->c;
    PlanOptions options = {.precision = PRECISION_F32};
    TRY(feed_check(c->graph, s->values, s->count, c->data, options.sizes, diag));
    s->tokens = options.sizes[DIM_INDEX(DIM_T)];
    s->source = options.sizes[DIM_INDEX(DIM_S)];
    sweep_graph(s, arena);
    options.results = s->copy.results;
    options.result_count = s->count + s->next.count;
    s->plans = plan_cache_create(s->copy.graph, c->data, &options, PLAN_CACHE_BYTES);
    s->lanes = lanes_create(c->ctx->threads, c->chunks, c->ctx->watch);
    s->memory = memory_alloc((size_t)lanes_count(s->lanes) + 1, sizeof *s->memory);
    for (int i = 0; i <= lanes_count(s->lanes); i++) {
        Lane *lane = &s->memory[i];
        lane->rows = ARENA_ARRAY(arena, CalibrationRows, (size_t)s->count);
        lane->room = ARENA_ARRAY(arena, float *, (size_t)s->count);
        lane->room_numbers = ARENA_ARRAY(arena, int64_t, (size_t)s->count);
    }
    TRY(params_create_stored(&s->params, s->copy.graph, diag));
    for (int i = 0; i < lanes_count(s->lanes); i++) {
        TRY(feed_open(&s->memory[i].feed, c->data, CHUNK_SAMPLES, diag));
        TRY(workspace_create(&s->memory[i].workspace, diag));
    }
    return sweep_chunks(s, diag);
}

static void sweep_close(Sweep *s) {
    for (int i = 0; s->memory && i <= lanes_count(s->lanes); i++) {
        for (int v = 0; v < s->count; v++) free(s->memory[i].room[v]);
        workspace_destroy(s->memory[i].workspace);
        feed_close(&s->memory[i].feed);
    }
    free(s->memory);
    lanes_destroy(s->lanes);
    params_destroy(s->params);
    plan_cache_destroy(s->plans);
    if (s->copy.graph) graph_release(s->copy.graph);
    kept_free(&s->next);
}

/* Lets what the call kept take the place of what there was; after a failure nothing is
 * kept. */
static void sweep_keep(Sweep *s, Status status) {
    Calibration *c = s->c;
    if (status == STATUS_OK && s->next.count == 0) return;
    drop_kept(c);
    if (status != STATUS_OK) return;
    c->arena = arena_create();
    c->kept = s->next;
    const size_t count = (size_t)c->kept.count;
    c->kept.nodes = ARENA_ARRAY(c->arena, Node *, count);
    c->kept.types = ARENA_ARRAY(c->arena, Type, count);
    memcpy(c->kept.nodes, s->next.nodes, count * sizeof *c->kept.nodes);
    memcpy(c->kept.types, s->next.types, count * sizeof *c->kept.types);
    s->next = (Kept){0};
}

Status calibration_rows(Calibration *c, Node *const *values, int count,
                        CalibrationSink *sink, void *self, Diag *diag) {
    Arena *arena = arena_create();
    Sweep s = {.c = c, .values = values, .count = count, .sink = sink, .self = self};
    if (!kept_fits(&c->kept, c->graph)) drop_kept(c);
    resident_hold(true); /* workspaces are no weights */
    const Status status = sweep_run(&s, arena, diag);
    sweep_keep(&s, status);
    sweep_close(&s);
    resident_hold(false);
    arena_destroy(arena);
    c->calls++;
    return status;
}

/* ---- Gram matrices ---- */

typedef struct Gathering {
    Gram *grams;
    int count, threads;
} Gathering;

/* CalibrationSink. */
static Status add_rows(void *self, const CalibrationRows *rows, Diag *diag) {
    const Gathering *g = self;
    (void)diag;
    for (int i = 0; i < g->count; i++)
        gram_add(&g->grams[i], rows[i].x, rows[i].count, g->threads);
    return STATUS_OK;
}

Status calibration_finish(const Calibration *c, Gram *gram, const Node *value,
                          Diag *diag) {
    bool finite;
    TRY(gram_finish(gram, c->ctx->threads, &finite, diag));
    if (gram->rows == 0)
        return step_fail_option(c->ctx, "data", diag,
                                "expected tokens to calibrate with, found none in data "
                                "set \"%s\"",
                                c->options->data);
    if (finite) return STATUS_OK;
    return step_fail(c->ctx, diag,
                     "%s.%d: the values of \"%s\" are too large to be squared and summed "
                     "up",
                     value->stack ? value->stack : "", value->layer,
                     role_name(value->role));
}

Status calibration_gram(Calibration *c, Node *const *values, int count, Gram *grams,
                        Diag *diag) {
    Gathering g = {.grams = grams, .threads = c->ctx->threads};
    Status status = STATUS_OK;
    for (; g.count < count && status == STATUS_OK; g.count += status == STATUS_OK)
        status = gram_create(&grams[g.count], node_width(values[g.count]), diag);
    if (status == STATUS_OK)
        status = calibration_rows(c, values, count, add_rows, &g, diag);
    for (int i = 0; i < count && status == STATUS_OK; i++)
        status = calibration_finish(c, &grams[i], values[i], diag);
    for (int i = 0; i < g.count && status != STATUS_OK; i++) gram_destroy(&grams[i]);
    return status;
}

Status calibration_gram_of_all(Calibration *c, Node *const *values, int count, Gram *gram,
                               Diag *diag) {
    Gram *grams = memory_alloc((size_t)count, sizeof *grams);
    const Status status = calibration_gram(c, values, count, grams, diag);
    for (int i = 1; i < count && status == STATUS_OK; i++) {
        gram_merge(&grams[0], &grams[i]);
        gram_destroy(&grams[i]);
    }
    if (status == STATUS_OK) *gram = grams[0];
    free(grams);
    return status;
}
