/* Decoder: see exec/generate/decode.h.
 *
 *     share_out   which steps threads share, and where they meet
 *     place       where values lie
 *     run_token   one token
 *     run_block   the tokens of a prompt but the last
 *
 * One token: every thread walks the steps, does its units or, of light steps, everything,
 * and meets the others where that was laid down. The tokens of a prompt but the last go
 * through the same kernels in blocks, as far as states depend on them: steps without
 * weights or states shared out by tokens, the others by units, a meeting before each.
 *
 * A value that every thread computes for itself lies in each thread's own memory; one
 * whose parts are computed by several is shared, and threads meet before one of them
 * reads parts of another. */
#include "exec/generate/decode.h"

#include "exec/generate/step_graph.h"
#include "exec/run/team.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    BLOCK_TOKENS = 256, /* tokens taken at once of a prompt */
    THREADS_MAX = 256
};

/* What there is of a step of the graph, and of the value it makes, beside these. */
typedef struct PlacedStep {
    bool meet;        /* begins with a meeting */
    int phase;        /* meetings before it, that one included */
    bool alone;       /* every thread does all of it for itself */
    bool shared;      /* its value: the threads write parts of one */
    int64_t at;       /* its value: floats into the shared memory, or each thread's */
    int64_t block_at; /* its value: floats into the memory for BLOCK_TOKENS tokens */
    Buf *state;       /* NULL = none */
} PlacedStep;

struct Decoder {
    Arena *arena;
    StepGraph *graph;      /* which others may run as well */
    DecodeOptions options; /* threads: the number there are */
    Team *team;
    PlacedStep *steps;
    Buf *shared, *block;
    Buf **own;       /* by thread: its values, then scratch */
    StepCall **call; /* by thread: of each step, for one token */
    int32_t token[BLOCK_TOKENS], ones[BLOCK_TOKENS];
    int64_t position;
    int64_t count; /* tokens of the current run */
    Ticker ticker;
};

/* ---- sharing out ---- */

/* A step must wait for the others when it reads parts of a value that was written since
 * the last meeting and that they wrote: always when it has no units, else unless its
 * units read the same parts that their thread wrote. *fresh: whether it reads such a
 * value at all. */
static bool must_meet(const Decoder *decoder, int s, int phase, bool *fresh) {
    const StepGraph *g = decoder->graph;
    const TokenStep *step = &g->steps[s];
    const int threads = decoder->options.threads;
    bool others = false;
    *fresh = false;
    for (int i = 0; i < step->node->in_count; i++) {
        if (step->in[i].from != FROM_VALUE) continue;
        const PlacedStep *made = &decoder->steps[step->in[i].index];
        const int64_t units = g->steps[step->in[i].index].units;
        if (!made->shared || made->phase != phase) continue;
        *fresh = true;
        /* Shared out, both numbers of units give a thread the same parts. */
        const bool aligned =
            units == step->units || (units % threads == 0 && step->units % threads == 0);
        if (step->units == 0 || !(step->kernel->local & READS_IN(i)) || !aligned)
            others = true;
    }
    return others;
}

/* Light steps are shared out only where that saves a meeting: when a thread's units read
 * what it has just written itself. */
static void share_out(Decoder *decoder) {
    const StepGraph *g = decoder->graph;
    int phase = 0;
    for (int s = 0; s < g->step_count; s++) {
        PlacedStep *step = &decoder->steps[s];
        bool fresh;
        step->meet = must_meet(decoder, s, phase, &fresh);
        phase += step->meet;
        step->phase = phase;
        step->alone = g->steps[s].units == 0 ||
                      (g->steps[s].kernel->share == STEP_LIGHT && (step->meet || !fresh));
        step->shared = !step->alone && decoder->options.threads > 1;
    }
}

/* ---- placing ---- */

/* Time in a thread's own memory is the step; in shared memory it is the meetings, as only
 * after one are all threads done with what was before. The logits are never free. */
static void place(Decoder *decoder, ValuePool *shared, ValuePool *own, ValuePool *block) {
    const StepGraph *g = decoder->graph;
    for (int s = 0; s < g->step_count; s++) {
        PlacedStep *step = &decoder->steps[s];
        const TokenValue *value = &g->values[s];
        const bool kept = value->last == g->step_count;
        const int last = kept ? INT_MAX - 1 : value->last;
        const int phase = kept ? INT_MAX - 1 : decoder->steps[last].phase;
        if (step->shared)
            step->at = value_pool_take(shared, value->width, step->phase, phase + 1);
        else
            step->at = value_pool_take(own, value->width, s, last + 1);
        if (value->wanted)
            step->block_at =
                value_pool_take(block, value->width * BLOCK_TOKENS, s, last + 1);
    }
}

static float *value_data(const Decoder *decoder, int value, int thread) {
    const PlacedStep *made = &decoder->steps[value];
    return buf_floats(made->shared ? decoder->shared : decoder->own[thread]) + made->at;
}

/* An operand of one token for a thread. */
static const void *token_operand(const Decoder *decoder, const TokenOperand *in,
                                 int thread) {
    switch (in->from) {
    case FROM_VALUE: return value_data(decoder, in->index, thread);
    case FROM_IDS: return decoder->token;
    case FROM_MASK: return decoder->ones;
    default: return in->data; /* weights, or nothing */
    }
}

/* Thread `thread`'s calls for one token: made once, so that a token costs no more than
 * its kernels. */
static void make_calls(Decoder *decoder, int thread, int64_t scratch) {
    const StepGraph *g = decoder->graph;
    StepCall *calls = ARENA_ARRAY(decoder->arena, StepCall, (size_t)g->step_count);
    decoder->call[thread] = calls;
    for (int s = 0; s < g->step_count; s++) {
        const TokenStep *step = &g->steps[s];
        const Buf *state = decoder->steps[s].state;
        const int count = step->node->in_count;
        const void **in = ARENA_ARRAY(decoder->arena, const void *, (size_t)count);
        for (int i = 0; i < count; i++)
            in[i] = token_operand(decoder, &step->in[i], thread);
        calls[s] = (StepCall){.node = step->node,
                              .attrs = step->node->attrs,
                              .in = in,
                              .out = value_data(decoder, s, thread),
                              .state = state ? buf_floats(state) : NULL,
                              .count = 1,
                              .capacity = decoder->options.capacity,
                              .scratch = buf_floats(decoder->own[thread]) + scratch};
    }
}

static Status create_states(Decoder *decoder, Diag *diag) {
    const StepGraph *g = decoder->graph;
    for (int s = 0; s < g->step_count; s++) {
        const TokenStep *step = &g->steps[s];
        if (!step->kernel->state_bytes) continue;
        const size_t bytes =
            step->kernel->state_bytes(step->node, decoder->options.capacity);
        TRY(buf_create(&decoder->steps[s].state, bytes, diag));
    }
    return STATUS_OK;
}

/* Shares the steps out, places values, allocates them and the states, makes the calls. */
static Status lay_out(Decoder *decoder, Diag *diag) {
    const StepGraph *g = decoder->graph;
    Arena *arena = decoder->arena;
    ValuePool shared = value_pool_open(arena, g), own = value_pool_open(arena, g);
    ValuePool block = value_pool_open(arena, g);
    decoder->steps = ARENA_ARRAY(arena, PlacedStep, (size_t)g->step_count);
    share_out(decoder);
    place(decoder, &shared, &own, &block);
    TRY(create_states(decoder, diag));
    const size_t size = sizeof(float);
    TRY(buf_create(&decoder->shared, (size_t)shared.floats * size, diag));
    TRY(buf_create(&decoder->block, (size_t)block.floats * size, diag));
    const int64_t scratch = step_graph_scratch(g, BLOCK_TOKENS);
    const size_t bytes = (size_t)(own.floats + scratch) * size;
    const int threads = decoder->options.threads;
    decoder->own = ARENA_ARRAY(arena, Buf *, (size_t)threads);
    decoder->call = ARENA_ARRAY(arena, StepCall *, (size_t)threads);
    for (int i = 0; i < threads; i++) {
        TRY(buf_create(&decoder->own[i], bytes, diag));
        make_calls(decoder, i, own.floats);
    }
    return STATUS_OK;
}

/* ---- running ---- */

/* First of `count` units that thread `me` does. */
static int64_t share_of(const Decoder *decoder, int64_t count, int me) {
    return count * me / decoder->options.threads;
}

static void run_token(void *self, int me) {
    Decoder *decoder = self;
    const StepGraph *g = decoder->graph;
    for (int s = 0; s < g->step_count; s++) {
        const TokenStep *step = &g->steps[s];
        const int64_t units = step->units > 0 ? step->units : 1;
        const bool alone = decoder->steps[s].alone;
        const int64_t first = alone ? 0 : share_of(decoder, units, me);
        const int64_t last = alone ? units : share_of(decoder, units, me + 1);
        StepCall *call = &decoder->call[me][s];
        if (decoder->steps[s].meet) team_meet(decoder->team);
        call->position = decoder->position;
        if (first < last) step->kernel->run(call, first, last);
    }
}

/* A step's call for tokens first .. last - 1 of the block; `in` has room for its
 * operands. */
static StepCall block_call(const Decoder *decoder, int s, int me, int64_t first,
                           int64_t last, const void **in) {
    const StepGraph *g = decoder->graph;
    const TokenStep *step = &g->steps[s];
    float *values = buf_floats(decoder->block);
    StepCall call = decoder->call[me][s];
    for (int i = 0; i < step->node->in_count; i++) {
        const TokenOperand *operand = &step->in[i];
        if (operand->from == FROM_VALUE)
            in[i] =
                values + decoder->steps[operand->index].block_at + first * operand->width;
        else if (operand->from == FROM_IDS)
            in[i] = decoder->token + first;
        else if (operand->from == FROM_MASK)
            in[i] = decoder->ones + first;
        else
            in[i] = operand->data;
    }
    const TokenValue *out = &g->values[s];
    call.in = in;
    call.out =
        out->wanted ? values + decoder->steps[s].block_at + first * out->width : NULL;
    call.position = decoder->position + first;
    call.count = last - first;
    return call;
}

static void run_block_step(const Decoder *decoder, int s, int me) {
    const TokenStep *step = &decoder->graph->steps[s];
    const StepKernel *kernel = step->kernel;
    const void *in[STEP_OPERANDS_MAX];
    int64_t units[] = {0, step->units > 0 ? step->units : 1};
    int64_t tokens[] = {0, decoder->count};
    const bool by_tokens =
        step->units == 0 || (!kernel->state_bytes && !kernel->matrices);
    int64_t *shared = by_tokens ? tokens : units;
    const int64_t all = shared[1];
    if (kernel->share != STEP_SERIAL) {
        shared[0] = share_of(decoder, all, me);
        shared[1] = share_of(decoder, all, me + 1);
    } else if (me > 0) {
        return;
    }
    if (shared[0] >= shared[1]) return;
    const StepCall call = block_call(decoder, s, me, tokens[0], tokens[1], in);
    kernel->run(&call, units[0], units[1]);
}

static void run_block(void *self, int me) {
    const Decoder *decoder = self;
    for (int s = 0; s < decoder->graph->step_count; s++) {
        if (!decoder->graph->steps[s].block) continue;
        team_meet(decoder->team);
        run_block_step(decoder, s, me);
    }
}

/* ---- tokens ---- */

static Status check_tokens(const Decoder *decoder, const int32_t *tokens, int64_t count,
                           Diag *diag) {
    const int64_t left = decoder->options.capacity - decoder->position;
    const int64_t limit = decoder->graph->index_limit;
    if (count > left)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "sequence of %lld tokens, there is room for %lld",
                         (long long)(decoder->position + count),
                         (long long)decoder->options.capacity);
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (limit > 0 && tokens[i] >= limit))
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                             "token %lld: expected an id from 0 to %lld, found %d",
                             (long long)(decoder->position + i), (long long)limit - 1,
                             tokens[i]);
    return STATUS_OK;
}

/* Runs `count` tokens, in a block unless the logits are wanted. */
static void take_tokens(Decoder *decoder, const int32_t *tokens, int64_t count,
                        void (*body)(void *self, int me)) {
    for (int64_t i = 0; i < count; i++) decoder->token[i] = tokens[i];
    decoder->count = count;
    team_run(decoder->team, body, decoder);
    decoder->position += count;
}

Status decoder_append(Decoder *decoder, const int32_t *tokens, int64_t count,
                      Diag *diag) {
    TRY(check_tokens(decoder, tokens, count, diag));
    for (int64_t n; count > 1; tokens += n, count -= n) {
        TRY(ticker_go_on(&decoder->ticker, diag));
        n = count - 1 < BLOCK_TOKENS ? count - 1 : BLOCK_TOKENS;
        take_tokens(decoder, tokens, n, run_block);
    }
    if (count == 1) take_tokens(decoder, tokens, 1, run_token);
    return STATUS_OK;
}

Status decoder_step(Decoder *decoder, int32_t token, Diag *diag) {
    return decoder_append(decoder, &token, 1, diag);
}

/* ---- making ---- */

/* Takes over a reference to the graph. */
static Status open_decoder(Decoder **out, StepGraph *graph, const DecodeOptions *options,
                           Diag *diag) {
    Decoder *decoder = memory_alloc(1, sizeof *decoder);
    decoder->arena = arena_create();
    decoder->graph = graph;
    decoder->options = *options;
    decoder->ticker.watch = options->watch;
    long threads =
        options->threads > 0 ? options->threads : sysconf(_SC_NPROCESSORS_ONLN);
    if (threads < 1) threads = 1; /* sysconf may not know */
    decoder->options.threads = (int)(threads < THREADS_MAX ? threads : THREADS_MAX);
    for (int i = 0; i < BLOCK_TOKENS; i++) decoder->ones[i] = 1;
    Status status = lay_out(decoder, diag);
    if (status == STATUS_OK)
        status = team_create(&decoder->team, decoder->options.threads, diag);
    if (status == STATUS_OK)
        *out = decoder;
    else
        decoder_destroy(decoder);
    return status;
}

Status decoder_check(Graph *graph, Diag *diag) {
    const StepGraphOptions how = {.capacity = 1};
    return step_graph_check(graph, &how, diag);
}

Status decoder_create(Decoder **out, Graph *graph, const DecodeOptions *options,
                      Diag *diag) {
    StepGraph *steps = NULL;
    if (options->capacity < 1)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected room for at least 1 token, found %lld",
                         (long long)options->capacity);
    const StepGraphOptions how = {.capacity = options->capacity,
                                  .weights = options->weights};
    TRY(step_graph_create(&steps, graph, &how, diag));
    return open_decoder(out, steps, options, diag);
}

Status decoder_create_beside(Decoder **out, const Decoder *decoder, int threads,
                             Diag *diag) {
    DecodeOptions options = decoder->options;
    options.threads = threads;
    options.watch = NULL;
    return open_decoder(out, step_graph_retain(decoder->graph), &options, diag);
}

void decoder_watch(Decoder *decoder, const Watch *watch) {
    decoder->ticker.watch = watch;
}

void decoder_destroy(Decoder *decoder) {
    if (!decoder) return;
    team_destroy(decoder->team);
    for (int s = 0; decoder->steps && s < decoder->graph->step_count; s++)
        buf_release(decoder->steps[s].state);
    for (int i = 0; decoder->own && i < decoder->options.threads; i++)
        buf_release(decoder->own[i]);
    buf_release(decoder->shared);
    buf_release(decoder->block);
    step_graph_destroy(decoder->graph);
    arena_destroy(decoder->arena);
    free(decoder);
}

/* ---- questions ---- */

const float *decoder_logits(const Decoder *decoder) {
    return decoder->call[0][decoder->graph->logits_value].out;
}

int64_t decoder_vocabulary(const Decoder *decoder) {
    return step_graph_vocabulary(decoder->graph);
}

int64_t decoder_position(const Decoder *decoder) {
    return decoder->position;
}

void decoder_reset(Decoder *decoder) {
    decoder->position = 0;
}

size_t decoder_state_bytes(const Decoder *decoder) {
    const StepGraph *g = decoder->graph;
    size_t bytes = 0;
    for (int s = 0; s < g->step_count; s++)
        if (decoder->steps[s].state)
            bytes +=
                g->steps[s].kernel->filled_bytes(g->steps[s].node, decoder->position);
    return bytes;
}

size_t decoder_weight_bytes(const Decoder *decoder) {
    return step_graph_weight_bytes(decoder->graph);
}
