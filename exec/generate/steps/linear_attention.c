/* linear_attention with its state S[f, e] and z[f] for each head of keys, the units:
 * S += k v^T, z += k, then q S / max(q . z, eps) for the heads of queries that share it.
 */
#include "exec/generate/step.h"
#include "exec/ops/kernel_math.h"

#include <string.h>

enum { Q, K, V, MASK };

typedef struct LinearSizes {
    int64_t heads, groups, share; /* share: query heads of a head of keys */
    int64_t f, e;
    float eps;
} LinearSizes;

static LinearSizes open_sizes(const Node *node) {
    const LinearAttentionAttrs *attrs = node->attrs;
    LinearSizes s = {.heads = attrs->heads,
                     .groups = heads_of_keys(attrs->heads, attrs->kv_heads),
                     .eps = (float)attrs->eps};
    s.share = s.heads / s.groups;
    s.f = node->in[Q]->type.dim[2] / s.heads;
    s.e = node->in[V]->type.dim[2] / s.groups;
    return s;
}

static Status check(const Node *node, Diag *diag) {
    if (((const LinearAttentionAttrs *)node->attrs)->causal) return STATUS_OK;
    return diag_fail(
        diag, STATUS_MODEL, node->loc, NULL,
        "linear_attention: expected causal=true to generate, found attention "
        "to later tokens");
}

static int64_t units(const Node *node) {
    return open_sizes(node).groups;
}

static size_t state_bytes(const Node *node, int64_t capacity) {
    (void)capacity;
    const LinearSizes s = open_sizes(node);
    return (size_t)(s.groups * s.f * (s.e + 1)) * sizeof(float);
}

/* S and z of one head. */
typedef struct State {
    float *S, *z;
} State;

static State open_state(const LinearSizes *s, void *state, int64_t group) {
    float *S = (float *)state + group * s->f * (s->e + 1);
    return (State){S, S + s->f * s->e};
}

/* S += k v^T and z += k. */
static void take(const LinearSizes *s, State state, const float *restrict k,
                 const float *restrict v) {
    for (int64_t i = 0; i < s->f; i++) {
        float *restrict row = state.S + i * s->e;
        for (int64_t j = 0; j < s->e; j++) row[j] += k[i] * v[j];
        state.z[i] += k[i];
    }
}

/* out = q S / max(q . z, eps). */
static void give(const LinearSizes *s, State state, const float *restrict q,
                 float *restrict out) {
    const float below = row_dot(q, state.z, s->f);
    const float inverse = 1 / (below < s->eps ? s->eps : below);
    for (int64_t j = 0; j < s->e; j++) out[j] = 0;
    for (int64_t i = 0; i < s->f; i++) {
        const float *restrict row = state.S + i * s->e;
        for (int64_t j = 0; j < s->e; j++) out[j] += q[i] * row[j];
    }
    for (int64_t j = 0; j < s->e; j++) out[j] *= inverse;
}

static void run_group(const LinearSizes *s, const StepCall *call, int64_t group) {
    const State state = open_state(s, call->state, group);
    if (call->position == 0)
        memset(state.S, 0, (size_t)(s->f * (s->e + 1)) * sizeof(float));
    for (int64_t t = 0; t < call->count; t++) {
        const int64_t row = t * s->groups + group;
        take(s, state, (const float *)call->in[K] + row * s->f,
             (const float *)call->in[V] + row * s->e);
        for (int64_t h = 0; h < s->share && call->out; h++)
            give(s, state, (const float *)call->in[Q] + (row * s->share + h) * s->f,
                 call->out + (row * s->share + h) * s->e);
    }
}

static void run(const StepCall *call, int64_t first, int64_t last) {
    const LinearSizes s = open_sizes(call->node);
    for (int64_t group = first; group < last; group++) run_group(&s, call, group);
}

STEP_KERNEL(linear_attention) = {
    .share = STEP_UNITS,
    .local = READS_IN(Q) | READS_IN(K) | READS_IN(V),
    .units = units,
    .check = check,
    .state_bytes = state_bytes,
    .filled_bytes = state_bytes,
    .run = run,
    .source = STEP(cross_linear_attention),
};

/* ---- to a source: S and z are made once for each sentence ---- */

static Status check_source(const Node *node, Diag *diag) {
    if (!((const LinearAttentionAttrs *)node->attrs)->causal) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                     "linear_attention: expected causal=false for attention to a source");
}

static size_t source_bytes(const Node *node, int64_t source) {
    return state_bytes(node, source);
}

static void take_source(const LinearSizes *s, const StepCall *call, const StepRows *rows,
                        int64_t sentence, int64_t group) {
    const State state = open_state(s, step_prepared(rows, sentence), group);
    const int32_t *mask = step_operand(call->node, MASK) ? call->in[MASK] : NULL;
    memset(state.S, 0, (size_t)(s->f * (s->e + 1)) * sizeof(float));
    for (int64_t j = 0; j < rows->source; j++) {
        const int64_t token = sentence * rows->source + j;
        const int64_t row = token * s->groups + group;
        if (mask && mask[token] == 0) continue;
        take(s, state, (const float *)call->in[K] + row * s->f,
             (const float *)call->in[V] + row * s->e);
    }
}

static void prepare(const StepCall *call, const StepRows *rows) {
    const LinearSizes s = open_sizes(call->node);
    for (int64_t i = 0; i < call->count; i++)
        for (int64_t group = 0; group < s.groups; group++)
            take_source(&s, call, rows, i, group);
}

static void run_rows(const StepCall *call, const StepRows *rows) {
    const LinearSizes s = open_sizes(call->node);
    for (int64_t r = 0; r < call->count; r++) {
        void *state = step_prepared(rows, rows->sentence[r]);
        for (int64_t h = 0; h < s.heads; h++)
            give(&s, open_state(&s, state, h / s.share),
                 (const float *)call->in[Q] + (r * s.heads + h) * s.f,
                 call->out + (r * s.heads + h) * s.e);
    }
}

STEP_KERNEL(cross_linear_attention) = {
    .share = STEP_UNITS,
    .check = check_source,
    .sources = READS_IN(K) | READS_IN(V) | READS_IN(MASK),
    .run_rows = run_rows,
    .source_bytes = source_bytes,
    .prepare = prepare,
};
