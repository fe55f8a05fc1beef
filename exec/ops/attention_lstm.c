/* attention_lstm(memory[N, S, R], weight_in[4 M, K], weight_context[4 M, R], bias[4 M],
 *                x[N, T, K]?, steps[N, T]?, mask[N, S]?, align_memory[L, R]?,
 *                align_state[L, M]?, align_score[1, L]?) -> y[N, T, M]
 *
 * The decoder of Bahdanau et al. (2015) with the LSTM cell of equations 2.15 to 2.24 of
 * the paper on Bayesian distillation. From s_0 = y_0 = 0, with rows of the weights in the
 * order i, f, g, o (as in lstm):
 * i, f, o = sigmoid, g = tanh of weight_in u_t + weight_context c_t + bias, where u_t is
 * x_t or, without x, the last result y_{t-1};
 * s_t = f s_{t-1} + i g, y_t = o tanh(s_t).
 * The context is c_t = sum_j p_tj memory_j with p_t = softmax over the tokens that count
 * of align_score tanh(align_memory memory_j + align_state s_{t-1}) or, without alignment,
 * the mean of the memory's tokens that count. It is 0 where none counts.
 *
 * In training, with embedding[V, K]? and head[V, M]?, a row x_t from the second on is
 * read with the probability teacher_forcing; else u_t is the row of the embedding whose
 * score head y_{t-1} is the largest (scheduled sampling, Bengio et al., 2015).
 *
 * Products with the state are one matrix product for each token, over all samples. */
#include "exec/ops/attention_lstm.h"
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "ir/random.h"

#include <string.h>

static const Operand OPERANDS[] = {
    {"memory", OPERAND_REQUIRED, "states of the source [N, S, R]"},
    {"weight_in", OPERAND_REQUIRED, "[4 M, K]"},
    {"weight_context", OPERAND_REQUIRED, "[4 M, R]"},
    {"bias", OPERAND_REQUIRED, "[4 M]"},
    {"x", OPERAND_OPTIONAL, "tokens of the target [N, T, K]; else the last result"},
    {"steps", OPERAND_OPTIONAL | OPERAND_INTEGER, "without x: [N, T], for its shape"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, S]: 0 = token takes no part"},
    {"align_memory", OPERAND_OPTIONAL, "additive attention: U1 [L, R]"},
    {"align_state", OPERAND_OPTIONAL, "additive attention: U2 [L, M]"},
    {"align_score", OPERAND_OPTIONAL, "additive attention: U0 [1, L]"},
    {"embedding", OPERAND_OPTIONAL, "of the words [V, K], for teacher_forcing"},
    {"head", OPERAND_OPTIONAL | OPERAND_CONSTANT,
     "that chooses words by the result [V, M], for teacher_forcing"},
    {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_REAL(AttentionLstmAttrs, teacher_forcing, 0, 1,
           "share of the rows of x that are read in training; in place of the others "
           "stands the embedding of the word that head chooses by the last result"),
    F_END,
};

static const AttentionLstmAttrs DEFAULTS = {.teacher_forcing = 1};

/* ---- shapes ---- */

static Status check_weights(const Node *node, Diag *diag) {
    const Type *memory = &node->in[ALSTM_MEMORY]->type;
    const Type *weight = &node->in[ALSTM_WEIGHT_IN]->type;
    TRY(infer_rank(node, ALSTM_MEMORY, 3, 3, diag));
    TRY(infer_known(node, ALSTM_MEMORY, 2, diag));
    TRY(infer_rank(node, ALSTM_WEIGHT_IN, 2, 2, diag));
    TRY(infer_known(node, ALSTM_WEIGHT_IN, 0, diag));
    TRY(infer_known(node, ALSTM_WEIGHT_IN, 1, diag));
    if (weight->dim[0] % LSTM_GATES)
        return infer_fail(node, ALSTM_WEIGHT_IN, diag, "rows for four gates");
    const int64_t context[] = {weight->dim[0], memory->dim[2]};
    TRY(infer_shape(node, ALSTM_WEIGHT_CONTEXT, 2, context, diag));
    return infer_shape(node, ALSTM_BIAS, 1, context, diag);
}

/* The number of target tokens, from x or steps. */
static Status check_target(const Node *node, int64_t *tokens, Diag *diag) {
    const int64_t *memory = node->in[ALSTM_MEMORY]->type.dim;
    const int64_t *weight = node->in[ALSTM_WEIGHT_IN]->type.dim;
    const bool x = node_has(node, ALSTM_X), steps = node_has(node, ALSTM_STEPS);
    if (x == steps)
        return infer_fail(node, ALSTM_MEMORY, diag,
                          "one of x and steps beside it, found %s", x ? "both" : "none");
    const int from = x ? ALSTM_X : ALSTM_STEPS;
    TRY(infer_rank(node, from, x ? 3 : 2, x ? 3 : 2, diag));
    TRY(infer_dim(node, from, 0, memory[0], "the samples of memory", diag));
    if (x) TRY(infer_dim(node, from, 2, weight[1], "the columns of weight_in", diag));
    *tokens = node->in[from]->type.dim[1];
    if (x) return STATUS_OK;
    return infer_dim(node, ALSTM_WEIGHT_IN, 1, weight[0] / LSTM_GATES,
                     "the width of the result, as there is no x", diag);
}

static Status check_alignment(const Node *node, Diag *diag) {
    const int64_t *memory = node->in[ALSTM_MEMORY]->type.dim;
    const int64_t cell = node->in[ALSTM_WEIGHT_IN]->type.dim[0] / LSTM_GATES;
    int given = 0;
    for (int i = ALSTM_ALIGN_MEMORY; i <= ALSTM_ALIGN_SCORE; i++)
        given += node_has(node, i);
    if (given == 0) return STATUS_OK;
    if (given < 3)
        return infer_fail(node, ALSTM_MEMORY, diag,
                          "all of align_memory, align_state and align_score beside it, "
                          "or none");
    TRY(infer_rank(node, ALSTM_ALIGN_MEMORY, 2, 2, diag));
    TRY(infer_known(node, ALSTM_ALIGN_MEMORY, 0, diag));
    TRY(infer_dim(node, ALSTM_ALIGN_MEMORY, 1, memory[2], "the width of memory", diag));
    const int64_t width = node->in[ALSTM_ALIGN_MEMORY]->type.dim[0];
    const int64_t state[] = {width, cell}, score[] = {1, width};
    TRY(infer_shape(node, ALSTM_ALIGN_STATE, 2, state, diag));
    return infer_shape(node, ALSTM_ALIGN_SCORE, 2, score, diag);
}

/* What words of its own need. */
static Status check_feedback(const Node *node, Diag *diag) {
    const AttentionLstmAttrs *attrs = node->attrs;
    const int64_t *weight = node->in[ALSTM_WEIGHT_IN]->type.dim;
    const bool embedding = node_has(node, ALSTM_EMBEDDING);
    if (!(attrs->teacher_forcing >= 0 && attrs->teacher_forcing <= 1))
        return infer_fail_attr(node, "teacher_forcing", diag,
                               "a number from 0 to 1, found %g", attrs->teacher_forcing);
    if (embedding != node_has(node, ALSTM_HEAD))
        return infer_fail(node, ALSTM_MEMORY, diag,
                          "both of embedding and head beside it, or none");
    if (!embedding) return STATUS_OK;
    if (!node_has(node, ALSTM_X))
        return infer_fail(node, ALSTM_EMBEDDING, diag, "x beside it");
    TRY(infer_rank(node, ALSTM_EMBEDDING, 2, 2, diag));
    TRY(infer_known(node, ALSTM_EMBEDDING, 0, diag));
    TRY(infer_dim(node, ALSTM_EMBEDDING, 1, weight[1], "the width of x", diag));
    const int64_t head[] = {node->in[ALSTM_EMBEDDING]->type.dim[0],
                            weight[0] / LSTM_GATES};
    return infer_shape(node, ALSTM_HEAD, 2, head, diag);
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    int64_t tokens = 0;
    TRY(check_weights(node, diag));
    TRY(check_target(node, &tokens, diag));
    TRY(check_alignment(node, diag));
    TRY(check_feedback(node, diag));
    const int64_t *memory = node->in[ALSTM_MEMORY]->type.dim;
    if (node_has(node, ALSTM_MASK)) TRY(infer_shape(node, ALSTM_MASK, 2, memory, diag));
    const int64_t cell = node->in[ALSTM_WEIGHT_IN]->type.dim[0] / LSTM_GATES;
    *out = real_type(3, (const int64_t[]){memory[0], tokens, cell});
    return STATUS_OK;
}

/* ---- sizes ---- */

/* Next `count` elements of what is kept; NULL while planning. */
static REAL *keep(AttentionLstm *a, const Call *call, int64_t count) {
    REAL *at = call->aux ? (REAL *)((char *)call->aux + a->aux_bytes) : NULL;
    a->aux_bytes += (size_t)count * sizeof(REAL);
    return at;
}

void REAL_FN(attention_lstm_open)(AttentionLstm *a, const Call *call) {
    const View *memory = &call->in[ALSTM_MEMORY], *weight = &call->in[ALSTM_WEIGHT_IN];
    *a = (AttentionLstm){
        .N = call->out.dim[0],
        .T = call->out.dim[1],
        .S = memory->dim[1],
        .R = memory->dim[2],
        .M = call->out.dim[2],
        .K = weight->dim[1],
        .wide = weight->dim[0],
        .aligned = node_has(call->node, ALSTM_ALIGN_SCORE),
        .memory = memory->data,
        .weight_in = weight->data,
        .weight_context = call->in[ALSTM_WEIGHT_CONTEXT].data,
        .x = call_data(call, ALSTM_X),
        .mask = call_data(call, ALSTM_MASK),
        .align_memory = call_data(call, ALSTM_ALIGN_MEMORY),
        .align_state = call_data(call, ALSTM_ALIGN_STATE),
        .align_score = call_data(call, ALSTM_ALIGN_SCORE),
        .embedding = call_data(call, ALSTM_EMBEDDING),
        .head = call_data(call, ALSTM_HEAD),
        .y = call->out.data,
    };
    if (a->aligned) a->L = call->in[ALSTM_ALIGN_MEMORY].dim[0];
    const int64_t tokens = a->N * a->T, contexts = a->aligned ? tokens : a->N;
    a->gates = keep(a, call, tokens * a->wide);
    a->cell = keep(a, call, tokens * a->M);
    a->context = keep(a, call, contexts * a->R);
    a->weight = keep(a, call, a->aligned ? tokens * a->S : 0);
    a->key = keep(a, call, a->N * a->S * a->L);
    a->query = keep(a, call, tokens * a->L);
    if (!node_has(call->node, ALSTM_EMBEDDING)) return;
    const AttentionLstmAttrs *attrs = call->attrs;
    a->V = call->in[ALSTM_EMBEDDING].dim[0];
    a->feeding = call->training && attrs->teacher_forcing < 1;
    a->seen = keep(a, call, tokens * a->K);
    a->word = (int32_t *)keep(a, call, tokens);
}

static size_t aux_bytes(const Call *call) {
    AttentionLstm a;
    REAL_FN(attention_lstm_open)(&a, call);
    return a.aux_bytes;
}

/* Gates of the mean context [N, 4 M], then scores of words [N, V]; or what the backward
 * takes. */
static size_t scratch_bytes(const Call *call) {
    AttentionLstm a;
    REAL_FN(attention_lstm_open)(&a, call);
    const size_t scores = (size_t)(a.N * a.V) * sizeof(REAL);
    const size_t back = REAL_FN(attention_lstm_scratch)(&a);
    return scores > back ? scores : back;
}

static double flops(const Call *call) {
    AttentionLstm a;
    REAL_FN(attention_lstm_open)(&a, call);
    const double N = (double)a.N, tokens = N * (double)a.T, S = (double)a.S;
    const double R = (double)a.R, L = (double)a.L, wide = (double)a.wide;
    const double in = 2 * tokens * wide * (double)a.K;
    if (!a.aligned) return in + 2 * N * wide * R + N * S * R;
    return in + 2 * tokens * wide * R + 2 * N * S * L * R + 2 * tokens * L * (double)a.M +
           2 * tokens * S * (L + R);
}

/* ---- forward ---- */

/* Mean of the tokens of each sample that count. */
static void average_memory(const AttentionLstm *a) {
    for (int64_t n = 0; n < a->N; n++) {
        REAL *c = a->context + n * a->R;
        const int64_t count = alstm_count(a, n);
        const REAL share = count ? 1 / (REAL)count : 0;
        memset(c, 0, (size_t)a->R * sizeof(REAL));
        for (int64_t s = 0; s < a->S; s++)
            if (alstm_keeps(a, n, s))
                additive_add(c, share, a->memory + (n * a->S + s) * a->R, a->R);
    }
}

/* Sums of all gates that do not wait for the recurrence. */
static void start_gates(const AttentionLstm *a, const REAL *bias, REAL *scratch) {
    const int64_t tokens = a->N * a->T, wide = a->wide;
    if (!a->aligned) {
        average_memory(a);
        for (int64_t n = 0; n < a->N; n++) put_row(scratch + n * wide, bias, wide, false);
        gemm(false, true, a->N, wide, a->R, 1, a->context, a->R, a->weight_context, a->R,
             1, scratch, wide);
    }
    for (int64_t r = 0; r < tokens; r++)
        put_row(a->gates + r * wide, a->aligned ? bias : scratch + r / a->T * wide, wide,
                false);
    if (a->x && !a->feeding)
        gemm(false, true, tokens, wide, a->K, 1, a->x, a->K, a->weight_in, a->K, 1,
             a->gates, wide);
}

/* Weights and context of one target token. */
static void attend(const AttentionLstm *a, int64_t n, int64_t t) {
    const int64_t row = n * a->T + t;
    REAL *weight = a->weight + row * a->S, *c = a->context + row * a->R;
    const REAL *query = a->query + row * a->L;
    for (int64_t s = 0; s < a->S; s++)
        weight[s] = alstm_keeps(a, n, s) ? additive_score(a->key + (n * a->S + s) * a->L,
                                                          query, a->align_score, a->L)
                                         : -(REAL)INFINITY;
    softmax_row(weight, a->S);
    memset(c, 0, (size_t)a->R * sizeof(REAL));
    for (int64_t s = 0; s < a->S; s++)
        if (weight[s] != 0)
            additive_add(c, weight[s], a->memory + (n * a->S + s) * a->R, a->R);
}

/* The contexts of token t of all samples, and their part of the gates. */
static void attend_all(const AttentionLstm *a, int64_t t) {
    REAL *query = a->query + t * a->L;
    const int64_t stride = a->T * a->L;
    if (t > 0)
        gemm(false, true, a->N, a->L, a->M, 1, a->cell + (t - 1) * a->M, a->T * a->M,
             a->align_state, a->M, 0, query, stride);
    for (int64_t n = 0; n < a->N && t == 0; n++)
        memset(query + n * stride, 0, (size_t)a->L * sizeof(REAL));
    for (int64_t n = 0; n < a->N; n++) attend(a, n, t);
    gemm(false, true, a->N, a->wide, a->R, 1, a->context + t * a->R, a->T * a->R,
         a->weight_context, a->R, 1, a->gates + t * a->wide, a->T * a->wide);
}

static int32_t find_largest(const REAL *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (int32_t)best;
}

/* Whether row t of x is read in sample n. */
static bool reads_x(const Call *call, int64_t n, int64_t t) {
    const AttentionLstmAttrs *attrs = call->attrs;
    const uint64_t draw = (uint64_t)(call->first + n) << 32 | (uint64_t)t;
    return t == 0 || random_uniform(call->key, draw) < attrs->teacher_forcing;
}

/* What the gates see at token t, and its part of them. */
static void feed(const AttentionLstm *a, const Call *call, int64_t t) {
    const int64_t T = a->T, K = a->K, M = a->M;
    REAL *scores = call->scratch;
    if (t > 0)
        gemm(false, true, a->N, a->V, M, 1, a->y + (t - 1) * M, T * M, a->head, M, 0,
             scores, a->V);
    for (int64_t n = 0; n < a->N; n++) {
        const int64_t r = n * T + t;
        const bool given = reads_x(call, n, t);
        a->word[r] = given ? -1 : find_largest(scores + n * a->V, a->V);
        put_row(a->seen + r * K, given ? a->x + r * K : a->embedding + a->word[r] * K, K,
                false);
    }
    gemm(false, true, a->N, a->wide, K, 1, a->seen + t * K, T * K, a->weight_in, K, 1,
         a->gates + t * a->wide, T * a->wide);
}

static void forward(const Call *call) {
    AttentionLstm a;
    REAL_FN(attention_lstm_open)(&a, call);
    const int64_t T = a.T, M = a.M;
    REAL *y = call->out.data;
    start_gates(&a, call->in[ALSTM_BIAS].data, call->scratch);
    if (a.aligned)
        gemm(false, true, a.N * a.S, a.L, a.R, 1, a.memory, a.R, a.align_memory, a.R, 0,
             a.key, a.L);
    for (int64_t t = 0; t < T; t++) {
        if (a.aligned) attend_all(&a, t);
        if (a.feeding) feed(&a, call, t);
        if (!a.x && t > 0)
            gemm(false, true, a.N, a.wide, M, 1, y + (t - 1) * M, T * M, a.weight_in, M,
                 1, a.gates + t * a.wide, T * a.wide);
        for (int64_t r = t; r < a.N * T; r += T)
            lstm_cell_step(a.gates + r * a.wide, t ? a.cell + (r - 1) * M : NULL,
                           a.cell + r * M, y + r * M, M);
    }
}

OP_RECORD(attention_lstm) = {
    OP_ID(attention_lstm),
    .summary = "LSTM cell over target tokens whose gates see additive attention to a "
               "source, or its mean",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(AttentionLstmAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_STOCHASTIC,
    .reads = READS_IN(ALSTM_MEMORY) | READS_IN(ALSTM_WEIGHT_IN) |
             READS_IN(ALSTM_WEIGHT_CONTEXT) | READS_IN(ALSTM_X) | READS_IN(ALSTM_MASK) |
             READS_IN(ALSTM_ALIGN_MEMORY) | READS_IN(ALSTM_ALIGN_STATE) |
             READS_IN(ALSTM_ALIGN_SCORE) | READS_OUT,
    .infer = infer,
    .flops = flops,
};

KERNEL(attention_lstm) = {
    .aux_bytes = aux_bytes,
    .scratch_bytes = scratch_bytes,
    .step = STEP(attention_lstm),
    .forward = forward,
    .backward = REAL_FN(attention_lstm_backward),
};
