/* Decoder: who does what, where threads meet, where values lie. See
 * exec/generate/decode_internal.h. */
#include "exec/generate/decode_internal.h"

#include <limits.h>
#include <string.h>

enum { ALIGNMENT = 16 }; /* floats */

/* ---- sharing out ---- */

/* Whether threads that share out `a` units and then `b` units get the same parts. */
static bool is_aligned(const Decoder *decoder, int64_t a, int64_t b) {
    const int threads = decoder->options.threads;
    return a == b || (a % threads == 0 && b % threads == 0);
}

/* What the operands that parts were written of since the last meeting allow. */
typedef struct Fresh {
    bool any;    /* there are such operands */
    bool others; /* with units, a thread would read parts of others */
} Fresh;

static Fresh find_fresh(const Decoder *decoder, const DecodeStep *step, int phase) {
    Fresh fresh = {false};
    for (int i = 0; i < step->node->in_count; i++) {
        if (step->in[i].value < 0) continue;
        const DecodeValue *value = &decoder->values[step->in[i].value];
        if (!value->shared || value->phase != phase) continue;
        fresh.any = true;
        if (step->units == 0 || !(step->kernel->local & READS_IN(i)) ||
            !is_aligned(decoder, value->units, step->units))
            fresh.others = true;
    }
    return fresh;
}

/* Light steps are shared out only where that saves a meeting. */
static void share_out(Decoder *decoder) {
    int phase = 0;
    for (int s = 0; s < decoder->step_count; s++) {
        DecodeStep *step = &decoder->steps[s];
        const Fresh fresh = find_fresh(decoder, step, phase);
        step->meet = fresh.others;
        phase += step->meet;
        step->phase = phase;
        step->alone = step->units == 0 ||
                      (step->kernel->share == STEP_LIGHT && (step->meet || !fresh.any));
        DecodeValue *value = &decoder->values[step->value];
        value->phase = phase;
        value->shared = !step->alone && decoder->options.threads > 1;
        value->units = step->units;
    }
}

/* ---- placing ---- */

Pool pool_open(Arena *arena, int values) {
    return (Pool){.slots = ARENA_ARRAY(arena, Slot, (size_t)values + 1)};
}

static int64_t round_up(int64_t floats) {
    return (floats + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int64_t pool_take(Pool *pool, int64_t floats, int now, int until) {
    Slot *best = NULL;
    for (int i = 0; i < pool->count; i++) {
        Slot *slot = &pool->slots[i];
        if (slot->free <= now && slot->floats >= floats &&
            (!best || slot->floats < best->floats))
            best = slot;
    }
    if (!best) {
        best = &pool->slots[pool->count++];
        *best = (Slot){.at = pool->floats, .floats = round_up(floats)};
        pool->floats += best->floats;
    }
    best->free = until;
    return best->at;
}

/* Time in a thread's own memory is the step; in shared memory it is the meetings, as only
 * after one are all threads done with what was before. */
static void place(Decoder *decoder, Pool *shared, Pool *own, Pool *block) {
    for (int s = 0; s < decoder->step_count; s++) {
        DecodeValue *value = &decoder->values[decoder->steps[s].value];
        const bool kept = value->last == decoder->step_count; /* the logits */
        const int last = kept ? INT_MAX - 1 : value->last;
        const int phase = kept ? INT_MAX - 1 : decoder->steps[last].phase;
        if (value->shared)
            value->at =
                pool_take(shared, value->width, decoder->steps[s].phase, phase + 1);
        else
            value->at = pool_take(own, value->width, s, last + 1);
        if (value->wanted)
            value->block_at = pool_take(block, value->width * BLOCK_TOKENS, s, last + 1);
    }
}

/* ---- memory and calls ---- */

static Status create_states(Decoder *decoder, Diag *diag) {
    for (int s = 0; s < decoder->step_count; s++) {
        DecodeStep *step = &decoder->steps[s];
        if (!step->kernel->state_bytes) continue;
        const size_t bytes =
            step->kernel->state_bytes(step->node, decoder->options.capacity);
        TRY(buf_create(&step->state, bytes, diag));
    }
    return STATUS_OK;
}

int64_t decode_scratch(const Decoder *decoder, int64_t capacity, int64_t count) {
    int64_t most = 0;
    for (int s = 0; s < decoder->step_count; s++) {
        const DecodeStep *step = &decoder->steps[s];
        if (!step->kernel->scratch_floats) continue;
        const int64_t floats = step->kernel->scratch_floats(step->node, capacity, count);
        if (floats > most) most = floats;
    }
    return most;
}

static float *value_data(const Decoder *decoder, int value, int thread) {
    const DecodeValue *v = &decoder->values[value];
    return buf_floats(v->shared ? decoder->shared : decoder->own[thread]) + v->at;
}

/* Thread `thread`'s calls for one token. */
static void make_calls(Decoder *decoder, int thread, int64_t scratch) {
    StepCall *calls = ARENA_ARRAY(decoder->arena, StepCall, (size_t)decoder->step_count);
    decoder->call[thread] = calls;
    for (int s = 0; s < decoder->step_count; s++) {
        const DecodeStep *step = &decoder->steps[s];
        const int count = step->node->in_count;
        const void **in = ARENA_ARRAY(decoder->arena, const void *, (size_t)count);
        for (int i = 0; i < count; i++)
            in[i] = step->in[i].value < 0
                        ? step->in[i].fixed
                        : value_data(decoder, step->in[i].value, thread);
        calls[s] = (StepCall){.node = step->node,
                              .attrs = step->node->attrs,
                              .in = in,
                              .out = value_data(decoder, step->value, thread),
                              .state = step->state ? buf_floats(step->state) : NULL,
                              .count = 1,
                              .capacity = decoder->options.capacity,
                              .scratch = buf_floats(decoder->own[thread]) + scratch};
    }
}

Status decode_layout(Decoder *decoder, Diag *diag) {
    share_out(decoder);
    const int values = decoder->value_count;
    Pool shared = pool_open(decoder->arena, values);
    Pool own = pool_open(decoder->arena, values);
    Pool block = pool_open(decoder->arena, values);
    place(decoder, &shared, &own, &block);
    TRY(create_states(decoder, diag));
    const size_t size = sizeof(float);
    TRY(buf_create(&decoder->shared, (size_t)shared.floats * size, diag));
    TRY(buf_create(&decoder->block, (size_t)block.floats * size, diag));
    const int64_t scratch =
        decode_scratch(decoder, decoder->options.capacity, BLOCK_TOKENS);
    const size_t bytes = (size_t)(own.floats + scratch) * size;
    const int threads = decoder->options.threads;
    decoder->own = ARENA_ARRAY(decoder->arena, Buf *, (size_t)threads);
    decoder->call = ARENA_ARRAY(decoder->arena, StepCall *, (size_t)threads);
    for (int i = 0; i < threads; i++) {
        TRY(buf_create(&decoder->own[i], bytes, diag));
        make_calls(decoder, i, own.floats);
    }
    return STATUS_OK;
}
