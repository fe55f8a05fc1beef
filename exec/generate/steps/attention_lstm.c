/* attention_lstm for several hypotheses: one product for all rows wherever a weight is
 * read. State: cell, then last result. Prepared for a sentence: with alignment the keys
 * [S, L] of its source and room for scores [S], else the mean [R] of its memory. */
#include "exec/ops/attention_lstm.h"
#include "exec/generate/step.h"

typedef struct AttentionLstmSizes {
    int64_t R, M, K, L; /* widths: memory, cell, input, alignment */
    bool aligned;
} AttentionLstmSizes;

static AttentionLstmSizes open_sizes(const Node *node) {
    AttentionLstmSizes s = {.R = node->in[ALSTM_MEMORY]->type.dim[2],
                            .M = node->type.dim[2],
                            .K = node->in[ALSTM_WEIGHT_IN]->type.dim[1],
                            .aligned = node_has(node, ALSTM_ALIGN_SCORE)};
    if (s.aligned) s.L = node->in[ALSTM_ALIGN_MEMORY]->type.dim[0];
    return s;
}

static size_t state_bytes(const Node *node, int64_t capacity) {
    (void)capacity;
    return (size_t)(2 * node->type.dim[2]) * sizeof(float);
}

static size_t filled_bytes(const Node *node, int64_t position) {
    (void)position;
    return state_bytes(node, 1);
}

/* Of each row: gates, what the context adds to them, cell or input, query, context. */
static int64_t scratch_floats(const Node *node, int64_t capacity, int64_t count) {
    (void)capacity;
    const AttentionLstmSizes s = open_sizes(node);
    return count * (2 * LSTM_GATES * s.M + s.M + s.L + s.R);
}

/* ---- once for each sentence ---- */

static size_t source_bytes(const Node *node, int64_t source) {
    const AttentionLstmSizes s = open_sizes(node);
    return (size_t)(s.aligned ? source * (s.L + 1) : s.R) * sizeof(float);
}

static const int32_t *mask_of(const StepCall *call, const StepRows *rows,
                              int64_t sentence) {
    if (!node_has(call->node, ALSTM_MASK)) return NULL;
    return (const int32_t *)call->in[ALSTM_MASK] + sentence * rows->source;
}

static void average(const AttentionLstmSizes *s, const float *memory, const int32_t *mask,
                    int64_t S, float *restrict mean) {
    int64_t count = 0;
    for (int64_t j = 0; j < S; j++) count += !mask || mask[j] != 0;
    const float share = count ? 1 / (float)count : 0;
    for (int64_t r = 0; r < s->R; r++) mean[r] = 0;
    for (int64_t j = 0; j < S; j++)
        if (!mask || mask[j] != 0) additive_add(mean, share, memory + j * s->R, s->R);
}

static void prepare(const StepCall *call, const StepRows *rows) {
    const AttentionLstmSizes s = open_sizes(call->node);
    const int64_t S = rows->source;
    for (int64_t i = 0; i < call->count; i++) {
        const float *memory = (const float *)call->in[ALSTM_MEMORY] + i * S * s.R;
        if (s.aligned) REAL_FN(matrix_times)
        (call->in[ALSTM_ALIGN_MEMORY], 0, s.L, NULL, memory, s.R, step_prepared(rows, i),
         s.L, S);
        else average(&s, memory, mask_of(call, rows, i), S, step_prepared(rows, i));
    }
}

/* ---- one token ---- */

/* Rows of one half of the states, zeros before the first token. */
static void gather(const StepCall *call, const StepRows *rows, int64_t half, int64_t M,
                   float *out) {
    for (int64_t r = 0; r < call->count; r++) {
        const float *state = (const float *)rows->state[r] + half * M;
        for (int64_t j = 0; j < M; j++) out[r * M + j] = call->position ? state[j] : 0;
    }
}

/* The memory of a sentence weighted by a query. */
static void attend(const AttentionLstmSizes *s, const StepCall *call,
                   const StepRows *rows, int64_t sentence, const float *query,
                   float *restrict context) {
    const int64_t S = rows->source;
    const int32_t *mask = mask_of(call, rows, sentence);
    const float *memory = (const float *)call->in[ALSTM_MEMORY] + sentence * S * s->R;
    float *keys = step_prepared(rows, sentence), *weight = keys + S * s->L;
    for (int64_t j = 0; j < S; j++)
        weight[j] = !mask || mask[j] != 0
                        ? additive_score(keys + j * s->L, query,
                                         call->in[ALSTM_ALIGN_SCORE], s->L)
                        : -INFINITY;
    softmax_row(weight, S);
    for (int64_t r = 0; r < s->R; r++) context[r] = 0;
    for (int64_t j = 0; j < S; j++)
        if (weight[j] != 0) additive_add(context, weight[j], memory + j * s->R, s->R);
}

/* The contexts of all rows; `cells` are the cells before, `query` is scratch. */
static void find_contexts(const AttentionLstmSizes *s, const StepCall *call,
                          const StepRows *rows, const float *cells, float *query,
                          float *context) {
    if (s->aligned) REAL_FN(matrix_times)
    (call->in[ALSTM_ALIGN_STATE], 0, s->L, NULL, cells, s->M, query, s->L, call->count);
    for (int64_t r = 0; r < call->count; r++) {
        float *row = context + r * s->R;
        if (s->aligned)
            attend(s, call, rows, rows->sentence[r], query + r * s->L, row);
        else
            put_row(row, step_prepared(rows, rows->sentence[r]), s->R, false);
    }
}

static void run_rows(const StepCall *call, const StepRows *rows) {
    const AttentionLstmSizes s = open_sizes(call->node);
    const int64_t n = call->count, wide = LSTM_GATES * s.M;
    float *gates = call->scratch, *more = gates + n * wide, *half = more + n * wide;
    float *query = half + n * s.M, *context = query + n * s.L;
    const bool x = node_has(call->node, ALSTM_X);
    if (!x) gather(call, rows, 1, s.M, half);
    REAL_FN(matrix_times)
    (call->in[ALSTM_WEIGHT_IN], 0, wide, call->in[ALSTM_BIAS],
     x ? call->in[ALSTM_X] : half, s.K, gates, wide, n);
    gather(call, rows, 0, s.M, half);
    find_contexts(&s, call, rows, half, query, context);
    REAL_FN(matrix_times)
    (call->in[ALSTM_WEIGHT_CONTEXT], 0, wide, NULL, context, s.R, more, wide, n);
    for (int64_t i = 0; i < n * wide; i++) gates[i] += more[i];
    for (int64_t r = 0; r < n; r++) {
        float *state = rows->state[r];
        float *y = state + s.M;
        lstm_cell_next(gates + r * wide, call->position > 0, 0, s.M, state, y, s.M);
        put_row(call->out + r * s.M, y, s.M, false);
    }
}

STEP_KERNEL(attention_lstm) = {
    .share = STEP_SERIAL,
    .matrices = READS_IN(ALSTM_WEIGHT_IN) | READS_IN(ALSTM_WEIGHT_CONTEXT) |
                READS_IN(ALSTM_ALIGN_MEMORY) | READS_IN(ALSTM_ALIGN_STATE),
    .sources = READS_IN(ALSTM_MEMORY) | READS_IN(ALSTM_MASK),
    .state_bytes = state_bytes,
    .filled_bytes = filled_bytes,
    .scratch_floats = scratch_floats,
    .run_rows = run_rows,
    .source_bytes = source_bytes,
    .prepare = prepare,
};
