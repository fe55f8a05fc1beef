/* Decoder: see exec/generate/decode.h; how it is made in exec/generate/decode_internal.h.
 *
 * One token: every thread walks the steps, does its units or, of light steps, everything,
 * and meets the others where the layout says so. The tokens of a prompt but the last go
 * through the same kernels in blocks, as far as states depend on them: steps without
 * weights or states shared out by tokens, the others by units, a meeting before each. */
#include "exec/generate/decode_internal.h"

#include <stdlib.h>
#include <unistd.h>

enum { THREADS_MAX = 256 };

/* ---- running ---- */

/* First of `count` units that thread `me` does. */
static int64_t share_of(const Decoder *decoder, int64_t count, int me) {
    return count * me / decoder->options.threads;
}

static void run_step(const Decoder *decoder, const DecodeStep *step, StepCall *call,
                     int me) {
    const int64_t units = step->units > 0 ? step->units : 1;
    call->position = decoder->position;
    if (step->alone) {
        step->kernel->run(call, 0, units);
        return;
    }
    const int64_t first = share_of(decoder, units, me);
    const int64_t last = share_of(decoder, units, me + 1);
    if (first < last) step->kernel->run(call, first, last);
}

static void run_token(void *self, int me) {
    Decoder *decoder = self;
    for (int s = 0; s < decoder->step_count; s++) {
        const DecodeStep *step = &decoder->steps[s];
        if (step->meet) team_meet(decoder->team);
        run_step(decoder, step, &decoder->call[me][s], me);
    }
}

/* An operand's rows from token `token` of the block on. */
static const void *block_operand(const Decoder *decoder, const DecodeOperand *in,
                                 int64_t token) {
    const float *data = in->fixed;
    if (in->value >= 0)
        data =
            (const float *)buf_data(decoder->block) + decoder->values[in->value].block_at;
    return data ? data + token * in->width : NULL; /* ids are as wide as floats */
}

/* Tokens first .. last - 1 of the block. */
static StepCall block_call(const Decoder *decoder, int s, int me, int64_t first,
                           int64_t last, const void **in) {
    const DecodeStep *step = &decoder->steps[s];
    const DecodeValue *value = &decoder->values[step->value];
    StepCall call = decoder->call[me][s];
    for (int i = 0; i < step->node->in_count; i++)
        in[i] = block_operand(decoder, &step->in[i], first);
    const DecodeOperand out = {.value = step->value, .width = value->width};
    call.in = in;
    call.out =
        value->wanted ? (float *)(uintptr_t)block_operand(decoder, &out, first) : NULL;
    call.position = decoder->position + first;
    call.count = last - first;
    return call;
}

static void run_block_step(const Decoder *decoder, int s, int me) {
    const DecodeStep *step = &decoder->steps[s];
    const StepKernel *kernel = step->kernel;
    const void *in[DECODE_OPERANDS_MAX];
    int64_t units[2] = {0, step->units > 0 ? step->units : 1}, tokens[2];
    tokens[0] = 0;
    tokens[1] = decoder->count;
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
    for (int s = 0; s < decoder->step_count; s++) {
        if (!decoder->steps[s].block) continue;
        team_meet(decoder->team);
        run_block_step(decoder, s, me);
    }
}

/* ---- tokens ---- */

static Status check_tokens(const Decoder *decoder, const int32_t *tokens, int64_t count,
                           Diag *diag) {
    const int64_t left = decoder->options.capacity - decoder->position;
    if (count > left)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "sequence of %lld tokens, there is room for %lld",
                         (long long)(decoder->position + count),
                         (long long)decoder->options.capacity);
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 ||
            (decoder->index_limit > 0 && tokens[i] >= decoder->index_limit))
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                             "token %lld: expected an id from 0 to %lld, found %d",
                             (long long)(decoder->position + i),
                             (long long)decoder->index_limit - 1, tokens[i]);
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

static int choose_threads(int wanted) {
    long threads = wanted > 0 ? wanted : sysconf(_SC_NPROCESSORS_ONLN);
    if (threads < 1) threads = 1;
    return (int)(threads < THREADS_MAX ? threads : THREADS_MAX);
}

static Status decoder_fill(Decoder *decoder, Diag *diag) {
    if (decoder->options.capacity < 1)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected room for at least 1 token, found %lld",
                         (long long)decoder->options.capacity);
    for (int i = 0; i < BLOCK_TOKENS; i++) decoder->ones[i] = 1;
    TRY(decode_collect(decoder, diag));
    TRY(decode_pack(decoder, diag));
    TRY(decode_layout(decoder, diag));
    return team_create(&decoder->team, decoder->options.threads, diag);
}

Status decoder_create(Decoder **out, Graph *graph, const DecodeOptions *options,
                      Diag *diag) {
    Decoder *decoder = memory_alloc(1, sizeof *decoder);
    decoder->arena = arena_create();
    decoder->graph = graph;
    decoder->options = *options;
    decoder->options.threads = choose_threads(options->threads);
    const Status status = decoder_fill(decoder, diag);
    if (status == STATUS_OK)
        *out = decoder;
    else
        decoder_destroy(decoder);
    return status;
}

void decoder_destroy(Decoder *decoder) {
    if (!decoder) return;
    team_destroy(decoder->team);
    for (int s = 0; s < decoder->step_count; s++) buf_release(decoder->steps[s].state);
    for (int i = 0; decoder->own && i < decoder->options.threads; i++)
        buf_release(decoder->own[i]);
    buf_release(decoder->shared);
    buf_release(decoder->block);
    buf_release(decoder->weights);
    arena_destroy(decoder->arena);
    free(decoder);
}

/* ---- questions ---- */

const float *decoder_logits(const Decoder *decoder) {
    return decoder->call[0][decoder->step_count - 1].out;
}

int64_t decoder_vocabulary(const Decoder *decoder) {
    return decoder->values[decoder->logits_value].width;
}

int64_t decoder_position(const Decoder *decoder) {
    return decoder->position;
}

void decoder_reset(Decoder *decoder) {
    decoder->position = 0;
}

size_t decoder_state_bytes(const Decoder *decoder) {
    size_t bytes = 0;
    for (int s = 0; s < decoder->step_count; s++) {
        const DecodeStep *step = &decoder->steps[s];
        if (step->state)
            bytes += step->kernel->filled_bytes(step->node, decoder->position);
    }
    return bytes;
}

size_t decoder_weight_bytes(const Decoder *decoder) {
    size_t bytes = decoder->row_bytes;
    for (const DecodeWeight *w = decoder->first_weight; w; w = w->next) bytes += w->bytes;
    return bytes;
}
