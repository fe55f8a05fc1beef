/* attention to a source: keys and values were computed once, from the source alone. One
 * query a row; scores lie in the sentence's prepared memory. */
#include "exec/generate/step.h"
#include "exec/ops/kernel_math.h"

enum { Q, K, V, MASK };

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
    return step_check_absent(node, MASK + 1, 0, diag);
}

/* Scores of one query. */
static size_t source_bytes(const Node *node, int64_t source) {
    (void)node;
    return (size_t)source * sizeof(float);
}

/* One head of one row. Without a token that counts the result is 0. */
static void attend(const CrossSizes *s, const float *q, const float *k, const float *v,
                   const int32_t *mask, int64_t source, float *scores,
                   float *restrict out) {
    for (int64_t j = 0; j < source; j++)
        scores[j] = !mask || mask[j] != 0
                        ? s->scale * row_dot(q, k + j * s->k_width, s->d)
                        : -INFINITY;
    softmax_row(scores, source);
    for (int64_t c = 0; c < s->e; c++) out[c] = 0;
    for (int64_t j = 0; j < source; j++) {
        const float *restrict row = v + j * s->v_width;
        for (int64_t c = 0; c < s->e && scores[j] != 0; c++) out[c] += scores[j] * row[c];
    }
}

static void run_rows(const StepCall *call, const StepRows *rows) {
    const CrossSizes s = open_sizes(call->node);
    const int64_t S = rows->source, share = s.heads / s.groups;
    const bool masked = step_operand(call->node, MASK) != NULL;
    for (int64_t r = 0; r < call->count; r++) {
        const int64_t sentence = rows->sentence[r];
        const float *q = (const float *)call->in[Q] + r * s.q_width;
        const float *k = (const float *)call->in[K] + sentence * S * s.k_width;
        const float *v = (const float *)call->in[V] + sentence * S * s.v_width;
        const int32_t *mask =
            masked ? (const int32_t *)call->in[MASK] + sentence * S : NULL;
        float *scores = step_prepared(rows, sentence);
        for (int64_t h = 0; h < s.heads; h++)
            attend(&s, q + h * s.d, k + h / share * s.d, v + h / share * s.e, mask, S,
                   scores, call->out + r * s.out_width + h * s.e);
    }
}

STEP_KERNEL(cross_attention) = {
    .share = STEP_UNITS,
    .check = check,
    .sources = READS_IN(K) | READS_IN(V) | READS_IN(MASK),
    .source_bytes = source_bytes,
    .run_rows = run_rows,
};
