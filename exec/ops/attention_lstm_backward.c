/* Backward through time of attention_lstm: see attention_lstm.c.
 *
 * From the last token to the first, with da the gradient before the gates' functions,
 * ds that of the cell and dy that of the result:
 * dc = da weight_context; dp_j = dc . memory_j; de_j = p_j (dp_j - sum p dp);
 * with v = tanh(key_j + query_t): dz_j = de_j align_score (1 - v^2), dquery = sum_j dz_j,
 * dkey_j += dz_j; then dquery align_state goes to ds of t - 1 and, without x,
 * da weight_in to dy of t - 1. v is computed again: T S L values are too many to keep.
 * What is left are products over all tokens. */
#include "exec/ops/attention_lstm.h"
#include "exec/ops/gradient.h"
#include "exec/ops/recurrence.h"

/* Scratch of a backward run. */
typedef struct Back {
    AttentionLstm a;
    REAL *da;        /* [N, T, 4 M] */
    REAL *da_sum;    /* [N, 4 M]: of all tokens, for the mean */
    REAL *ds, *dy;   /* [N, M]: what t + 1 handed back */
    REAL *d_context; /* [N, R] */
    REAL *d_query;   /* [N, T, L] */
    REAL *d_key;     /* [N, S, L] */
    REAL *d_weight;  /* [S] */
    REAL *d_score;   /* [L] */
    REAL *d_seen;    /* [N, T, K], for words of its own */
    REAL *d_memory;  /* the operand's gradient, or NULL */
} Back;

/* Elements of scratch; with `at` their places too. */
static int64_t lay_out(Back *b, REAL *at) {
    const AttentionLstm *a = &b->a;
    const int64_t tokens = a->N * a->T, cells = a->N * a->M;
    const int64_t query = tokens * a->L, key = a->N * a->S * a->L;
    const int64_t seen = a->V > 0 ? tokens * a->K : 0;
    const int64_t sizes[] = {tokens * a->wide,
                             a->N * a->wide,
                             cells,
                             cells,
                             a->N * a->R,
                             query,
                             key,
                             a->S,
                             a->L,
                             seen};
    REAL **const places[] = {&b->da,        &b->da_sum,  &b->ds,    &b->dy,
                             &b->d_context, &b->d_query, &b->d_key, &b->d_weight,
                             &b->d_score,   &b->d_seen};
    int64_t total = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *places[i] = at ? at + total : NULL;
        total += sizes[i];
    }
    return total;
}

size_t REAL_FN(attention_lstm_scratch)(const AttentionLstm *a) {
    Back b = {.a = *a};
    return (size_t)lay_out(&b, NULL) * sizeof(REAL);
}

/* ---- attention ---- */

/* Gradients of one source token's score: of its key, the query and align_score. */
static void score_back(const Back *b, REAL d, const REAL *restrict key,
                       const REAL *restrict query, REAL *restrict d_key,
                       REAL *restrict d_query) {
    const REAL *restrict score = b->a.align_score;
    REAL *restrict d_score = b->d_score;
    for (int64_t l = 0; l < b->a.L; l++) {
        const REAL v = tanh_real(key[l] + query[l]);
        const REAL dz = d * score[l] * (1 - v * v);
        d_score[l] += d * v;
        d_key[l] += dz;
        d_query[l] += dz;
    }
}

/* One target token of sample n, from the gradient of its context. */
static void attend_back(const Back *b, int64_t n, int64_t t) {
    const AttentionLstm *a = &b->a;
    const int64_t row = n * a->T + t, S = a->S, R = a->R, L = a->L;
    const REAL *weight = a->weight + row * S, *dc = b->d_context + n * R;
    REAL *d_query = b->d_query + row * L, mean = 0;
    for (int64_t s = 0; s < S; s++) {
        const int64_t at = (n * S + s) * R;
        b->d_weight[s] = row_dot(dc, a->memory + at, R);
        mean += weight[s] * b->d_weight[s];
        if (b->d_memory) additive_add(b->d_memory + at, weight[s], dc, R);
    }
    memset(d_query, 0, (size_t)L * sizeof(REAL));
    for (int64_t s = 0; s < S; s++) {
        const int64_t at = (n * S + s) * L;
        if (weight[s] != 0)
            score_back(b, weight[s] * (b->d_weight[s] - mean), a->key + at,
                       a->query + row * L, b->d_key + at, d_query);
    }
}

/* ---- through time ---- */

static void go_back(const Back *b, const REAL *d_out) {
    const AttentionLstm *a = &b->a;
    const int64_t T = a->T, M = a->M, wide = a->wide;
    memset(b->ds, 0, (size_t)(a->N * M) * sizeof(REAL));
    memset(b->dy, 0, (size_t)(a->N * M) * sizeof(REAL));
    memset(b->d_key, 0, (size_t)(a->N * a->S * a->L) * sizeof(REAL));
    memset(b->d_score, 0, (size_t)a->L * sizeof(REAL));
    for (int64_t t = T - 1; t >= 0; t--) {
        for (int64_t n = 0; n < a->N; n++) {
            const int64_t r = n * T + t;
            const LstmCell cell = {a->gates + r * wide, a->cell + r * M,
                                   t ? a->cell + (r - 1) * M : NULL, d_out + r * M, M};
            lstm_cell_back(cell, b->dy + n * M, b->ds + n * M, b->da + r * wide);
        }
        if (a->aligned) /* the contexts' gradients, and the cells' of t - 1 */
            gemm(false, false, a->N, a->R, wide, 1, b->da + t * wide, T * wide,
                 a->weight_context, a->R, 0, b->d_context, a->R);
        for (int64_t n = 0; a->aligned && n < a->N; n++) attend_back(b, n, t);
        if (a->aligned && t > 0)
            gemm(false, false, a->N, M, a->L, 1, b->d_query + t * a->L, T * a->L,
                 a->align_state, M, 1, b->ds, M);
        if (!a->x && t > 0)
            gemm(false, false, a->N, M, wide, 1, b->da + t * wide, T * wide, a->weight_in,
                 M, 0, b->dy, M);
    }
}

/* ---- weights ---- */

/* What the gates see beside the context, and its weight. */
static void input_back(const Back *b, REAL *dx, REAL *dw) {
    const AttentionLstm *a = &b->a;
    const int64_t tokens = a->N * a->T;
    if (dx && !a->feeding)
        gemm(false, false, tokens, a->K, a->wide, 1, b->da, a->wide, a->weight_in, a->K,
             1, dx, a->K);
    if (dw && a->x)
        gemm(true, false, a->wide, a->K, tokens, 1, b->da, a->wide,
             a->feeding ? a->seen : a->x, a->K, 1, dw, a->K);
    if (dw && !a->x) recurrence_add_shifted(a->N, a->T, b->da, a->wide, a->y, a->M, dw);
}

/* Rows of x and of the embedding that the gates saw. */
static void seen_back(const Back *b, REAL *dx, REAL *d_embedding) {
    const AttentionLstm *a = &b->a;
    const int64_t tokens = a->N * a->T, K = a->K;
    gemm(false, false, tokens, K, a->wide, 1, b->da, a->wide, a->weight_in, K, 0,
         b->d_seen, K);
    for (int64_t r = 0; r < tokens; r++) {
        const bool given = a->word[r] < 0;
        REAL *to = given ? dx : d_embedding;
        if (to) put_row(to + (given ? r : a->word[r]) * K, b->d_seen + r * K, K, true);
    }
}

/* The mean context: its gradient goes in equal parts to the tokens that count. */
static void mean_back(const Back *b, REAL *dw) {
    const AttentionLstm *a = &b->a;
    const int64_t wide = a->wide, R = a->R;
    for (int64_t r = 0; r < a->N * a->T; r++)
        put_row(b->da_sum + r / a->T * wide, b->da + r * wide, wide, r % a->T > 0);
    if (dw) gemm(true, false, wide, R, a->N, 1, b->da_sum, wide, a->context, R, 1, dw, R);
    if (!b->d_memory) return;
    gemm(false, false, a->N, R, wide, 1, b->da_sum, wide, a->weight_context, R, 0,
         b->d_context, R);
    for (int64_t n = 0; n < a->N; n++) {
        const int64_t count = alstm_count(a, n);
        const REAL share = count ? 1 / (REAL)count : 0;
        for (int64_t s = 0; s < a->S; s++)
            if (alstm_keeps(a, n, s))
                additive_add(b->d_memory + (n * a->S + s) * R, share,
                             b->d_context + n * R, R);
    }
}

/* The weights of additive attention, and the memory by way of its keys. */
static void alignment_back(const Back *b, REAL *d_context, REAL *const d[3]) {
    const AttentionLstm *a = &b->a;
    const int64_t keys = a->N * a->S, tokens = a->N * a->T;
    if (d_context)
        gemm(true, false, a->wide, a->R, tokens, 1, b->da, a->wide, a->context, a->R, 1,
             d_context, a->R);
    if (d[0])
        gemm(true, false, a->L, a->R, keys, 1, b->d_key, a->L, a->memory, a->R, 1, d[0],
             a->R);
    if (d[1]) recurrence_add_shifted(a->N, a->T, b->d_query, a->L, a->cell, a->M, d[1]);
    if (d[2]) put_row(d[2], b->d_score, a->L, true);
    if (b->d_memory)
        gemm(false, false, keys, a->R, a->L, 1, b->d_key, a->L, a->align_memory, a->R, 1,
             b->d_memory, a->R);
}

void REAL_FN(attention_lstm_backward)(const Call *call) {
    Back b = {0};
    REAL_FN(attention_lstm_open)(&b.a, call);
    lay_out(&b, call->scratch);
    REAL *d[ALSTM_OPERANDS];
    for (int i = 0; i < ALSTM_OPERANDS; i++) d[i] = gradient_to_add(call, i);
    b.d_memory = d[ALSTM_MEMORY];
    go_back(&b, call->d_out.data);
    input_back(&b, d[ALSTM_X], d[ALSTM_WEIGHT_IN]);
    if (b.a.feeding) seen_back(&b, d[ALSTM_X], d[ALSTM_EMBEDDING]);
    if (b.a.aligned)
        alignment_back(&b, d[ALSTM_WEIGHT_CONTEXT], d + ALSTM_ALIGN_MEMORY);
    else
        mean_back(&b, d[ALSTM_WEIGHT_CONTEXT]);
    for (int64_t r = 0; d[ALSTM_BIAS] && r < b.a.N * b.a.T; r++)
        put_row(d[ALSTM_BIAS], b.da + r * b.a.wide, b.a.wide, true);
}
