/* attention to a source: keys and values were computed once, from the source alone. One
 * query a row; scores lie in the sentence's prepared memory, of all heads and twice where
 * they are mixed. */
#include "exec/generate/steps/mixing.h"

enum { Q = ATTENTION_Q, K = ATTENTION_K, V = ATTENTION_V, MASK = ATTENTION_MASK };

typedef struct CrossSizes {
    int64_t heads, groups;
    int64_t d, e, q_width, k_width, v_width, out_width;
    float scale;
} CrossSizes;

static CrossSizes open_sizes(const Node *node) {
    const AttentionAttrs *attrs = node->attrs;
    CrossSizes s = {.heads = attrs->heads,
                    .groups = heads_of_keys(attrs->heads, attrs->kv_heads),
                    .q_width = node->in[Q]->type.dim[2],
                    .k_width = node->in[K]->type.dim[2],
                    .v_width = node->in[V]->type.dim[2],
                    .out_width = node->type.dim[2]};
    s.d = s.q_width / s.heads;
    s.e = s.v_width / s.groups;
    s.scale = (float)(attrs->scale > 0 ? attrs->scale : 1 / sqrt((double)s.d));
    return s;
}

/* Keys and values of the source, everything else of the target. */
static Status check(const Node *node, Diag *diag) {
    const AttentionAttrs *attrs = node->attrs;
    if (attrs->causal || attrs->reach || attrs->cap > 0)
        return diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                         "attention: expected causal=false, reach=0 and cap=0 for "
                         "attention to a source");
    return step_check_absent(node, MASK + 1, mixing_readable(node), diag);
}

static size_t source_bytes(const Node *node, int64_t source) {
    const AttentionAttrs *attrs = node->attrs;
    const int64_t rows = mixing_wanted(node) ? 2 * attrs->heads : 1;
    return (size_t)(rows * source) * sizeof(float);
}

/* A row's query, its sentence's keys and values, its result. */
typedef struct CrossRow {
    const float *q, *k, *v;
    const int32_t *mask; /* NULL = all tokens count */
    int64_t source;
    float *scores, *out;
} CrossRow;

static void score_head(const CrossSizes *s, const CrossRow *row, int64_t head,
                       float *scores) {
    const float *q = row->q + head * s->d;
    const float *k = row->k + head / (s->heads / s->groups) * s->d;
    for (int64_t j = 0; j < row->source; j++)
        scores[j] = s->scale * row_dot(q, k + j * s->k_width, s->d);
}

static void add_values(const CrossSizes *s, const CrossRow *row, int64_t head,
                       const float *weights) {
    const float *v = row->v + head / (s->heads / s->groups) * s->e;
    float *restrict out = row->out + head * s->e;
    for (int64_t c = 0; c < s->e; c++) out[c] = 0;
    for (int64_t j = 0; j < row->source; j++) {
        const float *restrict value = v + j * s->v_width;
        for (int64_t c = 0; c < s->e && weights[j] != 0; c++)
            out[c] += weights[j] * value[c];
    }
}

/* Without a token that counts the result is 0. */
static void attend(const CrossSizes *s, const CrossRow *row) {
    for (int64_t h = 0; h < s->heads; h++) {
        score_head(s, row, h, row->scores);
        for (int64_t j = 0; row->mask && j < row->source; j++)
            if (row->mask[j] == 0) row->scores[j] = -INFINITY;
        softmax_row(row->scores, row->source);
        add_values(s, row, h, row->scores);
    }
}

static void attend_mixed(const CrossSizes *s, const Mixing *mixing, const CrossRow *row) {
    const int64_t S = row->source;
    for (int64_t h = 0; h < s->heads; h++) score_head(s, row, h, row->scores + h * S);
    const float *weights =
        mixing_weights(mixing, row->scores, row->scores + s->heads * S, S, S, row->mask);
    for (int64_t h = 0; h < s->heads; h++) add_values(s, row, h, weights + h * S);
}

static void run_rows(const StepCall *call, const StepRows *rows) {
    const CrossSizes s = open_sizes(call->node);
    const Mixing mixing = mixing_of(call, s.heads);
    const bool masked = node_has(call->node, MASK), mixed = mixing_wanted(call->node);
    const int64_t S = rows->source;
    for (int64_t r = 0; r < call->count; r++) {
        const int64_t sentence = rows->sentence[r];
        const CrossRow row = {
            .q = (const float *)call->in[Q] + r * s.q_width,
            .k = (const float *)call->in[K] + sentence * S * s.k_width,
            .v = (const float *)call->in[V] + sentence * S * s.v_width,
            .mask = masked ? (const int32_t *)call->in[MASK] + sentence * S : NULL,
            .source = S,
            .scores = step_prepared(rows, sentence),
            .out = call->out + r * s.out_width};
        if (mixed)
            attend_mixed(&s, &mixing, &row);
        else
            attend(&s, &row);
    }
}

STEP_KERNEL(cross_attention) = {
    .share = STEP_UNITS,
    .check = check,
    .sources = READS_IN(K) | READS_IN(V) | READS_IN(MASK),
    .source_bytes = source_bytes,
    .run_rows = run_rows,
};
