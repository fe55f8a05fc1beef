/* linear_attention with its state S[f, e] and z[f] for each head of keys, the units:
 * S += k v^T, z += k, then q S / max(q . z, eps) for the heads of queries that share it.
 *
 * With a window w the state has a ring of w tokens behind S and z: near keys [w, d],
 * features [w, f] and values [w, e]. Token t goes to place t mod w; what stood there has
 * become far and goes into S and z. So the state is as large at any length. */
#include "exec/generate/step.h"
#include "exec/ops/linear_near.h"

#include <string.h>

typedef struct LinearSizes {
    int64_t heads, groups, share; /* share: query heads of a head of keys */
    int64_t f, e;
    int64_t window, d; /* window: 0 = none, at most the capacity */
    float eps, scale;
} LinearSizes;

static LinearSizes open_sizes(const Node *node, int64_t capacity) {
    const LinearAttentionAttrs *attrs = node->attrs;
    LinearSizes s = {.heads = attrs->heads,
                     .groups = heads_of_keys(attrs->heads, attrs->kv_heads),
                     .eps = (float)attrs->eps};
    s.share = s.heads / s.groups;
    s.f = node->in[LINEAR_Q]->type.dim[2] / s.heads;
    s.e = node->in[LINEAR_V]->type.dim[2] / s.groups;
    if (!attrs->window) return s;
    s.window = attrs->window < capacity ? attrs->window : capacity;
    s.d = node->in[LINEAR_NEAR_Q]->type.dim[2] / s.heads;
    s.scale = (float)(attrs->scale > 0 ? attrs->scale : 1 / sqrt((double)s.d));
    return s;
}

/* Floats of S and z, and of all that a head of keys has. */
static int64_t sum_floats(const LinearSizes *s) {
    return s->f * (s->e + 1);
}
static int64_t head_floats(const LinearSizes *s) {
    return sum_floats(s) + s->window * (s->d + s->f + s->e);
}

static Status check(const Node *node, Diag *diag) {
    if (((const LinearAttentionAttrs *)node->attrs)->causal) return STATUS_OK;
    return diag_fail(
        diag, STATUS_MODEL, node->loc, NULL,
        "linear_attention: expected causal=true to generate, found attention "
        "to later tokens");
}

static int64_t units(const Node *node) {
    return open_sizes(node, 1).groups;
}

static size_t state_bytes(const Node *node, int64_t capacity) {
    const LinearSizes s = open_sizes(node, capacity);
    return (size_t)(s.groups * head_floats(&s)) * sizeof(float);
}

/* Weights of the near keys. */
static int64_t scratch_floats(const Node *node, int64_t capacity, int64_t count) {
    (void)count;
    return open_sizes(node, capacity).window;
}

/* S and z of one head, and its ring. */
typedef struct State {
    float *S, *z;
    float *keys, *features, *values;
} State;

static State open_state(const LinearSizes *s, void *state, int64_t group) {
    float *S = (float *)state + group * head_floats(s);
    float *ring = S + sum_floats(s);
    return (State){S, S + s->f * s->e, ring, ring + s->window * s->d,
                   ring + s->window * (s->d + s->f)};
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

/* Puts a token into the ring; the token that it replaces is far from now on. */
static void push(const LinearSizes *s, State state, int64_t token, const float *near_k,
                 const float *k, const float *v) {
    const int64_t place = token % s->window;
    float *feature = state.features + place * s->f, *value = state.values + place * s->e;
    if (token >= s->window) take(s, state, feature, value);
    put_row(state.keys + place * s->d, near_k, s->d, false);
    put_row(feature, k, s->f, false);
    put_row(value, v, s->e, false);
}

/* Gate or slope of the heads; NULL = none. */
static const float *head_numbers(const StepCall *call, int operand) {
    return step_operand(call->node, operand) ? call->in[operand] : NULL;
}

/* out = (sum p v + q S) / (sum p + q . z) with p = g e^(s - m) of the near keys. */
static void give_near(const LinearSizes *s, State state, int64_t token,
                      const LinearGain *gain, const float *near_q,
                      const float *restrict q, float *p, float *restrict out) {
    const int64_t count = token < s->window ? token + 1 : s->window;
    for (int64_t j = 0; j < count; j++)
        p[j] = s->scale * row_dot(near_q, state.keys + j * s->d, s->d);
    const float top = row_max(p, count), gate = linear_gain(gain, top);
    float below = gate * exp_row(p, count, top);
    for (int64_t c = 0; c < s->e; c++) out[c] = 0;
    for (int64_t j = 0; j < count; j++) {
        const float *restrict row = state.values + j * s->e;
        const float weight = gate * p[j];
        for (int64_t c = 0; c < s->e; c++) out[c] += weight * row[c];
    }
    if (token >= s->window) below += row_dot(q, state.z, s->f);
    for (int64_t i = 0; token >= s->window && i < s->f; i++) {
        const float *restrict row = state.S + i * s->e;
        for (int64_t c = 0; c < s->e; c++) out[c] += q[i] * row[c];
    }
    const float inverse = 1 / (below < LINEAR_NEAR_LEAST ? LINEAR_NEAR_LEAST : below);
    for (int64_t c = 0; c < s->e; c++) out[c] *= inverse;
}

static void run_token(const LinearSizes *s, const StepCall *call, State state,
                      int64_t group, int64_t t) {
    const int64_t row = t * s->groups + group, token = call->position + t;
    const float *k = (const float *)call->in[LINEAR_K] + row * s->f;
    const float *v = (const float *)call->in[LINEAR_V] + row * s->e;
    const float *gate = head_numbers(call, LINEAR_GATE);
    const float *slope = head_numbers(call, LINEAR_SLOPE);
    if (s->window)
        push(s, state, token, (const float *)call->in[LINEAR_NEAR_K] + row * s->d, k, v);
    else
        take(s, state, k, v);
    for (int64_t i = 0; i < s->share && call->out; i++) {
        const int64_t head = row * s->share + i;
        const float *q = (const float *)call->in[LINEAR_Q] + head * s->f;
        float *out = call->out + head * s->e;
        if (!s->window) {
            give(s, state, q, out);
            continue;
        }
        const LinearGain gain = linear_gain_of(gate, slope, group * s->share + i);
        give_near(s, state, token, &gain,
                  (const float *)call->in[LINEAR_NEAR_Q] + head * s->d, q, call->scratch,
                  out);
    }
}

static void run_group(const LinearSizes *s, const StepCall *call, int64_t group) {
    const State state = open_state(s, call->state, group);
    if (call->position == 0) memset(state.S, 0, (size_t)sum_floats(s) * sizeof(float));
    for (int64_t t = 0; t < call->count; t++) run_token(s, call, state, group, t);
}

static void run(const StepCall *call, int64_t first, int64_t last) {
    const LinearSizes s = open_sizes(call->node, call->capacity);
    for (int64_t group = first; group < last; group++) run_group(&s, call, group);
}

STEP_KERNEL(linear_attention) = {
    .share = STEP_UNITS,
    .local = READS_IN(LINEAR_Q) | READS_IN(LINEAR_K) | READS_IN(LINEAR_V) |
             READS_IN(LINEAR_NEAR_Q) | READS_IN(LINEAR_NEAR_K),
    .units = units,
    .check = check,
    .state_bytes = state_bytes,
    .filled_bytes = state_bytes,
    .scratch_floats = scratch_floats,
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
    const int32_t *mask =
        step_operand(call->node, LINEAR_MASK) ? call->in[LINEAR_MASK] : NULL;
    memset(state.S, 0, (size_t)sum_floats(s) * sizeof(float));
    for (int64_t j = 0; j < rows->source; j++) {
        const int64_t token = sentence * rows->source + j;
        const int64_t row = token * s->groups + group;
        if (mask && mask[token] == 0) continue;
        take(s, state, (const float *)call->in[LINEAR_K] + row * s->f,
             (const float *)call->in[LINEAR_V] + row * s->e);
    }
}

static void prepare(const StepCall *call, const StepRows *rows) {
    const LinearSizes s = open_sizes(call->node, 0);
    for (int64_t i = 0; i < call->count; i++)
        for (int64_t group = 0; group < s.groups; group++)
            take_source(&s, call, rows, i, group);
}

static void run_rows(const StepCall *call, const StepRows *rows) {
    const LinearSizes s = open_sizes(call->node, 0);
    for (int64_t r = 0; r < call->count; r++) {
        void *state = step_prepared(rows, rows->sentence[r]);
        for (int64_t h = 0; h < s.heads; h++)
            give(&s, open_state(&s, state, h / s.share),
                 (const float *)call->in[LINEAR_Q] + (r * s.heads + h) * s.f,
                 call->out + (r * s.heads + h) * s.e);
    }
}

STEP_KERNEL(cross_linear_attention) = {
    .share = STEP_UNITS,
    .check = check_source,
    .sources = READS_IN(LINEAR_K) | READS_IN(LINEAR_V) | READS_IN(LINEAR_MASK),
    .run_rows = run_rows,
    .source_bytes = source_bytes,
    .prepare = prepare,
};
