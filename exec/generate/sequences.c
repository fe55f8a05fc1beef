/* Sequences: see exec/generate/sequences.h.
 *
 *     place       where values and states lie
 *     run_rows    a step for some rows and units
 *     run_shared  every step shared out among the threads, a meeting before each
 *     run_apart   every thread takes its rows through all steps
 *
 * With many rows for each thread, threads go apart: each reads all weights, which its
 * rows pay for, and none waits for another. With fewer, the units of products are shared
 * out, so that a weight is read by one thread alone; states by sequences and units; all
 * else by rows. Tokens of prompts wait until their rows fill a run, or something asks
 * for what comes behind them: those of many short prompts are one product. */
#include "exec/generate/sequences.h"

#include "exec/generate/step_graph.h"
#include "exec/run/team.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_TOKENS = 256, /* tokens taken at once of a prompt */
    APART_ROWS = 16,    /* rows of a thread for which it may read all weights */
    ALIGNMENT = 64      /* bytes */
};

/* Where a step's value and states lie, in units of rows and slots. */
typedef struct SequenceStep {
    int64_t at;                   /* of the value, in floats of a row */
    size_t state_bytes, state_at; /* of a slot */
} SequenceStep;

/* Rows whose values lie together: those of a thread that goes apart, or all. */
typedef struct Area {
    int64_t first, rows;
} Area;

struct Sequences {
    StepGraph *graph;
    SequencesOptions options;
    Team *team;
    SequenceStep *steps;
    int64_t row_floats; /* of all values of a row */
    size_t state_bytes; /* of a slot */
    Buf *values, *states, *scratch;
    int64_t scratch_floats; /* of a thread */
    int64_t *length;        /* by slot: tokens so far */

    /* rows of the run at hand */
    int64_t rows, room;
    int32_t *token, *ones;
    int64_t *slot, *position;
    bool prompt;    /* they are of prompts, and logits are not wanted */
    int64_t *first; /* rows of a slot lie together: the first of each, and the end */
    int64_t groups;
    Area *areas;
    int area_count;
    Ticker ticker;
};

/* ---- making ---- */

static size_t round_up(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Places of values, which take memory in turn, and of states, which do not. */
static void place(Sequences *s) {
    const StepGraph *g = s->graph;
    ValuePool pool = value_pool_open(g->arena, g);
    s->steps = ARENA_ARRAY(g->arena, SequenceStep, (size_t)g->step_count);
    for (int i = 0; i < g->step_count; i++) {
        const TokenStep *step = &g->steps[i];
        SequenceStep *placed = &s->steps[i];
        placed->at = value_pool_take(&pool, g->values[i].width, i, g->values[i].last + 1);
        if (!step->kernel->state_bytes) continue;
        placed->state_at = s->state_bytes;
        placed->state_bytes =
            round_up(step->kernel->state_bytes(step->node, s->options.capacity));
        s->state_bytes += placed->state_bytes;
    }
    s->row_floats = pool.floats;
}

static Status reserve(Sequences *s, Diag *diag) {
    const StepGraph *g = s->graph;
    const size_t threads = (size_t)s->options.threads, slots = (size_t)s->options.slots;
    s->room = s->options.slots > BLOCK_TOKENS ? s->options.slots : BLOCK_TOKENS;
    const size_t room = (size_t)s->room;
    s->length = ARENA_ARRAY(g->arena, int64_t, slots);
    s->token = ARENA_ARRAY(g->arena, int32_t, room);
    s->ones = ARENA_ARRAY(g->arena, int32_t, room);
    s->slot = ARENA_ARRAY(g->arena, int64_t, room);
    s->position = ARENA_ARRAY(g->arena, int64_t, room);
    s->first = ARENA_ARRAY(g->arena, int64_t, room + 1);
    s->areas = ARENA_ARRAY(g->arena, Area, threads);
    for (size_t i = 0; i < room; i++) s->ones[i] = 1;
    s->scratch_floats = step_graph_scratch(g, s->room);
    s->scratch_floats =
        (int64_t)(round_up((size_t)s->scratch_floats * sizeof(float)) / sizeof(float));
    size_t bytes;
    if (__builtin_mul_overflow(slots, s->state_bytes, &bytes))
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "no room for the states of %zu sequences", slots);
    TRY(buf_create(&s->states, bytes + ALIGNMENT, diag));
    TRY(buf_create(&s->values, room * (size_t)s->row_floats * sizeof(float), diag));
    return buf_create(&s->scratch,
                      threads * (size_t)s->scratch_floats * sizeof(float) + ALIGNMENT,
                      diag);
}

static Status fill(Sequences *s, Graph *graph, Diag *diag) {
    const SequencesOptions *options = &s->options;
    if (options->capacity < 1 || options->slots < 1 || options->threads < 1)
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                         "sequences without room for tokens");
    const StepGraphOptions steps = {.capacity = options->capacity,
                                    .weights = options->weights};
    TRY(step_graph_create(&s->graph, graph, &steps, diag));
    place(s);
    TRY(reserve(s, diag));
    return team_create(&s->team, options->threads, diag);
}

Status sequences_create(Sequences **out, Graph *graph, const SequencesOptions *options,
                        Diag *diag) {
    Sequences *s = memory_alloc(1, sizeof *s);
    s->options = *options;
    s->ticker.watch = options->watch;
    const Status status = fill(s, graph, diag);
    if (status == STATUS_OK)
        *out = s;
    else
        sequences_destroy(s);
    return status;
}

void sequences_destroy(Sequences *sequences) {
    if (!sequences) return;
    team_destroy(sequences->team);
    buf_release(sequences->values);
    buf_release(sequences->states);
    buf_release(sequences->scratch);
    step_graph_destroy(sequences->graph);
    free(sequences);
}

/* ---- one step ---- */

static char *state_of(const Sequences *s, int step, int64_t slot) {
    const SequenceStep *placed = &s->steps[step];
    return (char *)buf_floats(s->states) + placed->state_at * (size_t)s->options.slots +
           placed->state_bytes * (size_t)slot;
}

static float *value_of(const Sequences *s, int value, const Area *area, int64_t row) {
    return buf_floats(s->values) + area->first * s->row_floats +
           s->steps[value].at * area->rows +
           (row - area->first) * s->graph->values[value].width;
}

static const void *row_operand(const Sequences *s, const TokenOperand *in,
                               const Area *area, int64_t row) {
    switch (in->from) {
    case FROM_VALUE: return value_of(s, in->index, area, row);
    case FROM_IDS: return s->token + row;
    case FROM_MASK: return s->ones + row;
    default: return in->data; /* weights, or nothing */
    }
}

/* Rows of the same slot from `row` on, in front of `last`. */
static int64_t same_slot(const Sequences *s, int64_t row, int64_t last) {
    int64_t end = row + 1;
    while (end < last && s->slot[end] == s->slot[row]) end++;
    return end - row;
}

/* A step for rows first .. last - 1 of an area: in one call, unless they have states or
 * their positions count; then the rows of each slot. */
static void run_rows(const Sequences *s, int index, int me, const Area *area,
                     int64_t first, int64_t last, int64_t unit, int64_t end) {
    const TokenStep *step = &s->graph->steps[index];
    const StepKernel *kernel = step->kernel;
    const void *in[STEP_OPERANDS_MAX];
    const bool together = !kernel->state_bytes && !kernel->position;
    for (int64_t row = first, count; row < last; row += count) {
        count = together ? last - first : same_slot(s, row, last);
        for (int i = 0; i < step->node->in_count; i++)
            in[i] = row_operand(s, &step->in[i], area, row);
        const bool wanted = !s->prompt || s->graph->values[index].wanted;
        const StepCall call = {
            .node = step->node,
            .attrs = step->node->attrs,
            .in = in,
            .out = wanted ? value_of(s, index, area, row) : NULL,
            .state = kernel->state_bytes ? state_of(s, index, s->slot[row]) : NULL,
            .position = s->position[row],
            .count = count,
            .capacity = s->options.capacity,
            .scratch = buf_floats(s->scratch) + me * s->scratch_floats};
        kernel->run(&call, unit, end);
    }
}

/* ---- sharing out ---- */

/* First of `count` pieces that thread `me` does. */
static int64_t share_of(const Sequences *s, int64_t count, int me) {
    return count * me / s->options.threads;
}

/* The first of `count` pieces of `size`, which begin at `base`, that is not in front of
 * `edge`. */
static int64_t piece_from(int64_t edge, int64_t base, int64_t size, int64_t count) {
    if (edge <= base) return 0;
    const int64_t piece = (edge - base + size - 1) / size;
    return piece < count ? piece : count;
}

/* A thread's part of a step with states: pieces are the units of each sequence, as long
 * as it has rows. */
static void run_states(const Sequences *s, int index, int me, int64_t units) {
    const int64_t all = s->rows * units;
    const int64_t from = share_of(s, all, me), to = share_of(s, all, me + 1);
    for (int64_t i = 0; i < s->groups; i++) {
        const int64_t first = s->first[i], last = s->first[i + 1];
        const int64_t unit = piece_from(from, first * units, last - first, units);
        const int64_t end = piece_from(to, first * units, last - first, units);
        if (unit < end) run_rows(s, index, me, s->areas, first, last, unit, end);
    }
}

/* First row of those sequences that a thread does alone. */
static int64_t serial_from(const Sequences *s, int me) {
    const int64_t edge = share_of(s, s->rows, me);
    int64_t i = 0;
    while (i < s->groups && s->first[i] < edge) i++;
    return s->first[i];
}

static void run_step(const Sequences *s, int index, int me) {
    const TokenStep *step = &s->graph->steps[index];
    const StepKernel *kernel = step->kernel;
    const int64_t units = step->units > 0 ? step->units : 1;
    int64_t rows[] = {0, s->rows}, shared[] = {0, units};
    if (kernel->state_bytes && kernel->share != STEP_SERIAL) {
        run_states(s, index, me, units);
        return;
    }
    if (kernel->share == STEP_SERIAL) {
        rows[0] = serial_from(s, me);
        rows[1] = serial_from(s, me + 1);
    } else if (step->units == 0 || !kernel->matrices) {
        rows[0] = share_of(s, s->rows, me);
        rows[1] = share_of(s, s->rows, me + 1);
    } else {
        shared[0] = share_of(s, units, me);
        shared[1] = share_of(s, units, me + 1);
    }
    if (rows[0] < rows[1] && shared[0] < shared[1])
        run_rows(s, index, me, s->areas, rows[0], rows[1], shared[0], shared[1]);
}

static void run_shared(void *self, int me) {
    const Sequences *s = self;
    for (int i = 0; i < s->graph->step_count; i++) {
        if (s->prompt && !s->graph->steps[i].block) continue;
        team_meet(s->team);
        run_step(s, i, me);
    }
}

static void run_apart(void *self, int me) {
    const Sequences *s = self;
    const Area *area = &s->areas[me];
    for (int i = 0; i < s->graph->step_count; i++) {
        const int64_t units = s->graph->steps[i].units;
        run_rows(s, i, me, area, area->first, area->first + area->rows, 0,
                 units > 0 ? units : 1);
    }
}

static void find_groups(Sequences *s) {
    s->groups = 0;
    for (int64_t row = 0; row < s->rows; row += same_slot(s, row, s->rows))
        s->first[s->groups++] = row;
    s->first[s->groups] = s->rows;
}

static void run(Sequences *s) {
    find_groups(s);
    const int threads = s->options.threads;
    const bool apart = !s->prompt && s->rows >= (int64_t)threads * APART_ROWS;
    s->area_count = apart ? threads : 1;
    for (int i = 0; i < s->area_count; i++) {
        const int64_t first = apart ? share_of(s, s->rows, i) : 0;
        const int64_t last = apart ? share_of(s, s->rows, i + 1) : s->rows;
        s->areas[i] = (Area){first, last - first};
    }
    team_run(s->team, apart ? run_apart : run_shared, s);
}

/* ---- tokens ---- */

static Status check_token(const Sequences *s, int64_t position, int32_t token,
                          Diag *diag) {
    const int64_t limit = s->graph->index_limit, room = s->options.capacity;
    if (position >= room)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "sequence of more than %lld tokens, for which there is room",
                         (long long)room);
    if (token >= 0 && (limit == 0 || token < limit)) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "token %lld: expected an id from 0 to %lld, found %d",
                     (long long)position, (long long)limit - 1, token);
}

static int64_t put_row(Sequences *s, int64_t slot, int32_t token) {
    s->token[s->rows] = token;
    s->slot[s->rows] = slot;
    s->position[s->rows] = s->length[slot]++;
    return s->rows++;
}

/* Runs the rows of prompts that wait. */
static void finish_prompts(Sequences *s) {
    if (s->prompt && s->rows > 0) run(s);
    if (s->prompt) s->rows = 0;
    s->prompt = false;
}

Status sequences_begin(Sequences *sequences, int64_t slot, const int32_t *tokens,
                       int64_t count, Diag *diag) {
    Sequences *s = sequences;
    for (int64_t i = 0; i < count; i++) TRY(check_token(s, i, tokens[i], diag));
    for (int64_t row = 0; s->prompt && row < s->rows; row++)
        if (s->slot[row] == slot) finish_prompts(s);
    s->length[slot] = 0;
    if (!s->prompt) s->rows = 0;
    s->prompt = true;
    for (int64_t i = 0; i < count; i++) {
        put_row(s, slot, tokens[i]);
        if (s->rows < s->room) continue;
        TRY(ticker_go_on(&s->ticker, diag));
        run(s);
        s->rows = 0;
    }
    return STATUS_OK;
}

void sequences_copy(Sequences *sequences, int64_t from, int64_t to) {
    Sequences *s = sequences;
    finish_prompts(s);
    const int64_t length = s->length[from];
    for (int i = 0; i < s->graph->step_count && length > 0; i++) {
        const TokenStep *step = &s->graph->steps[i];
        const size_t bytes = s->steps[i].state_bytes;
        if (step->kernel->copy_state)
            step->kernel->copy_state(step->node, s->options.capacity, length,
                                     state_of(s, i, from), state_of(s, i, to));
        else if (bytes > 0)
            memcpy(state_of(s, i, to), state_of(s, i, from), bytes);
    }
    s->length[to] = length;
}

int64_t sequences_position(const Sequences *sequences, int64_t slot) {
    return sequences->length[slot];
}

void sequences_clear(Sequences *sequences) {
    finish_prompts(sequences);
    sequences->rows = 0;
}

Status sequences_add(Sequences *sequences, int64_t *row, int64_t slot, int32_t token,
                     Diag *diag) {
    finish_prompts(sequences);
    TRY(check_token(sequences, sequences->length[slot], token, diag));
    *row = put_row(sequences, slot, token);
    return STATUS_OK;
}

void sequences_step(Sequences *sequences) {
    finish_prompts(sequences);
    if (sequences->rows > 0) run(sequences);
}

const float *sequences_logits(const Sequences *sequences, int64_t row) {
    const Area *area = sequences->areas;
    while (row >= area->first + area->rows) area++;
    return value_of(sequences, sequences->graph->logits_value, area, row);
}

/* What sequences_each hands the threads. */
typedef struct EachRow {
    const Sequences *sequences;
    void (*body)(void *self, int64_t row);
    void *self;
} EachRow;

static void run_each(void *self, int me) {
    const EachRow *each = self;
    const Sequences *s = each->sequences;
    const int64_t last = share_of(s, s->rows, me + 1);
    for (int64_t row = share_of(s, s->rows, me); row < last; row++)
        each->body(each->self, row);
}

void sequences_each(Sequences *sequences, void (*body)(void *self, int64_t row),
                    void *self) {
    EachRow each = {sequences, body, self};
    team_run(sequences->team, run_each, &each);
}

/* ---- questions ---- */

int64_t sequences_vocabulary(const Sequences *sequences) {
    return step_graph_vocabulary(sequences->graph);
}

size_t sequences_state_bytes(const Sequences *sequences) {
    return sequences->state_bytes * (size_t)sequences->options.slots;
}

size_t sequences_weight_bytes(const Sequences *sequences) {
    return step_graph_weight_bytes(sequences->graph);
}
