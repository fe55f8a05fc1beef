/* Translator: one token for all hypotheses. See exec/generate/translate_internal.h.
 *
 * Steps without a state take all rows in one call, so that weights are read once; those
 * with one, or that depend on the position, take rows one by one unless they have a
 * kernel for several. */
#include "exec/generate/translate_internal.h"

#include <stdlib.h>
#include <string.h>

static char *bytes_of(const Buf *buf) {
    return (char *)(uintptr_t)buf_data(buf);
}

/* ---- memory ---- */

static Status renew(Buf **buf, size_t bytes, Diag *diag) {
    buf_release(*buf);
    *buf = NULL;
    return buf_create(buf, bytes + 64, diag);
}

static size_t round_up(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Prepared memory for so many sentences of so many tokens; sets where each step's lies.
 */
static size_t place_prepared(Translator *t, int64_t sentences, int64_t source) {
    size_t total = 0;
    for (int s = 0; s < t->decoder->step_count; s++) {
        const DecodeStep *step = &t->decoder->steps[s];
        TranslateStep *more = &t->steps[s];
        if (!step->kernel->source_bytes) continue;
        more->prepared_bytes = round_up(step->kernel->source_bytes(step->node, source));
        more->prepared_at = total;
        total += more->prepared_bytes * (size_t)sentences;
    }
    return total;
}

static void free_rows(TranslateLane *lane) {
    free(lane->token);
    free(lane->sentence);
    free(lane->slot);
    free(lane->ones);
    free(lane->state);
}

static void make_rows(TranslateLane *lane, int64_t rows) {
    free_rows(lane);
    lane->token = memory_alloc((size_t)rows, sizeof *lane->token);
    lane->sentence = memory_alloc((size_t)rows, sizeof *lane->sentence);
    lane->slot = memory_alloc((size_t)rows, sizeof *lane->slot);
    lane->ones = memory_alloc((size_t)rows, sizeof *lane->ones);
    lane->state = memory_alloc((size_t)rows, sizeof *lane->state);
    for (int64_t i = 0; i < rows; i++) lane->ones[i] = 1;
}

static Status reserve_rows(Translator *t, int64_t sentences, Diag *diag) {
    const int64_t rows = sentences * t->options.hypotheses;
    const size_t count = (size_t)rows;
    const size_t scratch =
        (size_t)decode_scratch(t->decoder, t->options.max_length, rows) * sizeof(float);
    for (int i = 0; i < lanes_count(t->lanes); i++) {
        TranslateLane *lane = &t->memory[i];
        make_rows(lane, rows);
        TRY(renew(&lane->values, count * (size_t)t->row_floats * sizeof(float), diag));
        TRY(renew(&lane->states, count * t->state_bytes, diag));
        TRY(renew(&lane->scratch, scratch, diag));
    }
    t->rows_room = rows;
    t->sentences_room = sentences;
    return STATUS_OK;
}

Status translate_reserve(Translator *t, int64_t sentences, int64_t source, Diag *diag) {
    const bool more = sentences > t->sentences_room;
    if (more) TRY(reserve_rows(t, sentences, diag));
    if (!more && source <= t->source_room) return STATUS_OK;
    if (source > t->source_room) t->source_room = source;
    const size_t bytes = place_prepared(t, t->sentences_room, t->source_room);
    for (int i = 0; i < lanes_count(t->lanes); i++)
        TRY(renew(&t->memory[i].prepared, bytes, diag));
    return STATUS_OK;
}

void lane_close(TranslateLane *lane) {
    free_rows(lane);
    free(lane->source_data);
    buf_release(lane->values);
    buf_release(lane->scratch);
    buf_release(lane->states);
    buf_release(lane->prepared);
    workspace_destroy(lane->workspace);
}

/* ---- one step ---- */

static char *state_of(const TranslateLane *lane, int s, int64_t slot) {
    const TranslateStep *more = &lane->translator->steps[s];
    return bytes_of(lane->states) + more->state_at * (size_t)lane->translator->rows_room +
           more->state_bytes * (size_t)slot;
}

static float *value_of(const TranslateLane *lane, int value) {
    const Translator *t = lane->translator;
    return buf_floats(lane->values) + t->steps[value].at * t->rows_room;
}

/* Operand `i` from row `row` on; values of the source from the first sentence on. */
static const void *operand_of(const TranslateLane *lane, const DecodeStep *step, int i,
                              int64_t row) {
    const DecodeOperand *in = &step->in[i];
    const Node *node = step->node->in[i];
    if (!node) return NULL;
    if (in->source >= 0) return lane->source_data[in->source];
    if (in->value >= 0) return value_of(lane, in->value) + row * in->width;
    if (node->storage) return in->fixed;
    return (node == lane->translator->decoder->ids ? lane->token : lane->ones) + row;
}

static StepCall call_of(const TranslateLane *lane, int s, const void **in, int64_t row,
                        int64_t count) {
    const Translator *t = lane->translator;
    const DecodeStep *step = &t->decoder->steps[s];
    for (int i = 0; i < step->node->in_count; i++) in[i] = operand_of(lane, step, i, row);
    return (StepCall){.node = step->node,
                      .attrs = step->node->attrs,
                      .in = in,
                      .out = value_of(lane, step->value) +
                             row * t->decoder->values[step->value].width,
                      .position = lane->position,
                      .count = count,
                      .capacity = t->options.max_length,
                      .scratch = buf_floats(lane->scratch)};
}

static StepRows rows_of(const TranslateLane *lane, int s) {
    const Translator *t = lane->translator;
    const TranslateStep *more = &t->steps[s];
    StepRows rows = {.state = lane->state,
                     .sentence = lane->sentence,
                     .source = lane->source,
                     .prepared_bytes = more->prepared_bytes};
    if (lane->prepared) rows.prepared = bytes_of(lane->prepared) + more->prepared_at;
    return rows;
}

static void run_step(TranslateLane *lane, int s) {
    const DecodeStep *step = &lane->translator->decoder->steps[s];
    const StepKernel *kernel = step->kernel;
    const void *in[DECODE_OPERANDS_MAX];
    const int64_t units = step->units > 0 ? step->units : 1;
    for (int64_t r = 0; r < lane->rows && kernel->state_bytes; r++)
        lane->state[r] = state_of(lane, s, lane->slot[r]);
    if (kernel->run_rows) {
        const StepCall call = call_of(lane, s, in, 0, lane->rows);
        const StepRows rows = rows_of(lane, s);
        kernel->run_rows(&call, &rows);
        return;
    }
    const bool together = !kernel->state_bytes && !kernel->position;
    for (int64_t r = 0; r < lane->rows; r += together ? lane->rows : 1) {
        StepCall call = call_of(lane, s, in, r, together ? lane->rows : 1);
        if (kernel->state_bytes) call.state = lane->state[r];
        kernel->run(&call, 0, units);
    }
}

void lane_step(TranslateLane *lane) {
    for (int s = 0; s < lane->translator->decoder->step_count; s++) run_step(lane, s);
    lane->position++;
}

const float *lane_logits(const TranslateLane *lane, int64_t row) {
    const Decoder *decoder = lane->translator->decoder;
    return value_of(lane, decoder->logits_value) +
           row * decoder->values[decoder->logits_value].width;
}

void lane_copy(TranslateLane *lane, int64_t from, int64_t to) {
    const Translator *t = lane->translator;
    for (int s = 0; s < t->decoder->step_count; s++)
        if (t->steps[s].state_bytes > 0)
            memcpy(state_of(lane, s, to), state_of(lane, s, from),
                   t->steps[s].state_bytes);
}

/* ---- the source ---- */

static void prepare(TranslateLane *lane) {
    const Decoder *decoder = lane->translator->decoder;
    const void *in[DECODE_OPERANDS_MAX];
    for (int s = 0; s < decoder->step_count; s++) {
        const StepKernel *kernel = decoder->steps[s].kernel;
        if (!kernel->prepare) continue;
        const StepCall call = call_of(lane, s, in, 0, lane->sentences);
        const StepRows rows = rows_of(lane, s);
        kernel->prepare(&call, &rows);
    }
}

static void feed(TranslateLane *lane, const char *name, const int32_t *from) {
    int32_t *to = workspace_input(lane->workspace, name);
    const size_t count = (size_t)(lane->sentences * lane->source);
    if (to) memcpy(to, from + lane->first * lane->source, count * sizeof *to);
}

Status lane_encode(TranslateLane *lane, const Sentences *all, Diag *diag) {
    Translator *t = lane->translator;
    const Decoder *decoder = t->decoder;
    const Fetch what = {.source = lane->source};
    lane->position = 0;
    if (decoder->source_count == 0) return STATUS_OK;
    TRY(workspace_bind_cached(lane->workspace, t->plans, lane->sentences, &what,
                              t->params, diag));
    feed(lane, "input_ids", all->ids);
    feed(lane, "attention_mask", all->mask);
    run_forward(lane->workspace, (RunMode){0});
    for (int i = 0; i < decoder->source_count; i++)
        lane->source_data[i] =
            workspace_value(lane->workspace, decoder->source_values[i]);
    prepare(lane);
    return STATUS_OK;
}
