/* attention with a cache of keys and values; heads of keys and values are units.
 *
 * State of a head: keys in panels of 16 tokens, [tokens / 16, d, 16], so that the scores
 * of 16 tokens are one panel times the query; then values [tokens, e], e rounded up to
 * whole panels, whose rows times the probabilities are again panels. Queries go in groups
 * (those of several tokens, or those of one token that share a head of keys), for which
 * the cache is read once. */
#include "exec/generate/step.h"
#include "exec/ops/attention_blocks.h"
#include "exec/ops/kernel_math.h"

#include <string.h>

enum { Q = ATTENTION_Q, K = ATTENTION_K, V = ATTENTION_V, QUERIES = 8 };

typedef struct AttentionSizes {
    int64_t heads, groups, share; /* share: query heads of a head of keys */
    int64_t d, e, wide;           /* wide: e in whole panels */
    int64_t tokens;               /* capacity in whole panels */
    int64_t reach;                /* tokens that a query sees at most */
    float scale, cap;             /* cap: 0 = none */
    Buckets buckets;              /* of distances, when there is a table of biases */
    const float *table;           /* [buckets, heads] of a call; NULL = there is none */
    const int32_t *bucket_end; /* behind the bucket of distance 0; farther ones before */
} AttentionSizes;

static int64_t round_up(int64_t n) {
    return (n + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
}

static AttentionSizes open_sizes(const Node *node, int64_t capacity) {
    const AttentionAttrs *attrs = node->attrs;
    AttentionSizes s = {.heads = attrs->heads,
                        .groups = heads_of_keys(attrs->heads, attrs->kv_heads)};
    s.share = s.heads / s.groups;
    s.d = node->in[Q]->type.dim[2] / s.heads;
    s.e = node->in[V]->type.dim[2] / s.groups;
    s.wide = round_up(s.e);
    s.tokens = round_up(capacity);
    s.reach = attrs->reach ? attrs->reach : s.tokens;
    s.cap = (float)attrs->cap;
    s.scale = (float)(attrs->scale > 0 ? attrs->scale : 1 / sqrt((double)s.d));
    s.buckets = (Buckets){attrs->buckets, attrs->distance, attrs->bidirectional};
    return s;
}

static Status check(const Node *node, Diag *diag) {
    const AttentionAttrs *attrs = node->attrs;
    if (!attrs->causal)
        return diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                         "attention: expected causal=true to generate, found attention "
                         "to later tokens");
    const Node *table = step_operand(node, ATTENTION_REL_BIAS);
    const bool fits = attrs->buckets > 0 && table && table->storage;
    return step_check_absent(node, ATTENTION_BIAS,
                             fits ? READS_IN(ATTENTION_REL_BIAS) : 0, diag);
}

static int64_t units(const Node *node) {
    return open_sizes(node, 1).groups;
}

static size_t state_bytes(const Node *node, int64_t capacity) {
    const AttentionSizes s = open_sizes(node, capacity);
    return (size_t)(s.groups * s.tokens * (s.d + s.wide)) * sizeof(float);
}

static size_t filled_bytes(const Node *node, int64_t position) {
    const AttentionSizes s = open_sizes(node, 1);
    return (size_t)(s.groups * position * (s.d + s.e)) * sizeof(float);
}

/* The panels of keys that are begun, and the values. */
static void copy_state(const Node *node, int64_t capacity, int64_t position,
                       const void *from, void *to) {
    const AttentionSizes s = open_sizes(node, capacity);
    const int64_t head = s.tokens * (s.d + s.wide);
    for (int64_t group = 0; group < s.groups; group++) {
        const float *old = (const float *)from + group * head;
        float *new = (float *)to + group *head;
        memcpy(new, old, (size_t)(round_up(position) * s.d) * sizeof(float));
        memcpy(new + s.tokens *s.d, old + s.tokens * s.d,
               (size_t)(position * s.wide) * sizeof(float));
    }
}

/* Scores [8, tokens], then results [8, wide], then buckets [tokens]. */
static int64_t scratch_floats(const Node *node, int64_t capacity, int64_t count) {
    (void)count;
    const AttentionSizes s = open_sizes(node, capacity);
    return QUERIES * (s.tokens + s.wide) + (s.buckets.count ? s.tokens : 0);
}

/* One head of keys: its part of the state. */
typedef struct Cache {
    float *keys, *values;
} Cache;

static void put_token(const AttentionSizes *s, Cache cache, int64_t token,
                      const float *restrict key, const float *restrict value) {
    float *restrict keys = cache.keys + token / PANEL_ROWS * PANEL_ROWS * s->d;
    for (int64_t j = 0; j < s->d; j++) keys[j * PANEL_ROWS + token % PANEL_ROWS] = key[j];
    float *restrict values = cache.values + token * s->wide;
    for (int64_t j = 0; j < s->e; j++) values[j] = value[j];
}

/* `n` queries, `step` floats apart; query i sees first + i * more keys. */
typedef struct Group {
    const float *q;
    float *out;
    int64_t n, q_step, out_step, first, more;
    int64_t head, head_step; /* of the first query, and to that of the next */
} Group;

/* Adds a head's biases to `count` keys, of which the query is the last. */
static void add_bias(const AttentionSizes *s, int64_t head, int64_t count,
                     float *restrict row) {
    const float *restrict column = s->table + head;
    const int32_t *restrict bucket = s->bucket_end - count;
    for (int64_t j = 0; j < count; j++) row[j] += column[bucket[j] * s->heads];
}

static void attend(const AttentionSizes *s, Cache cache, const Group *g, float *scratch) {
    float *scores = scratch, *sums = scratch + QUERIES * s->tokens;
    const int64_t seen = round_up(g->first + (g->n - 1) * g->more);
    const Panels keys = {cache.keys, PANEL_ROWS, PANEL_ROWS * s->d, seen / PANEL_ROWS,
                         s->d};
    REAL_FN(panels_times)(&keys, g->q, g->q_step, scores, s->tokens, g->n);
    for (int64_t i = 0; i < g->n; i++) {
        float *restrict row = scores + i * s->tokens;
        const int64_t count = g->first + i * g->more;
        const int64_t from = count > s->reach ? count - s->reach : 0;
        for (int64_t j = 0; j < count; j++) row[j] *= s->scale;
        if (s->table) add_bias(s, g->head + i * g->head_step, count, row);
        if (s->cap > 0)
            for (int64_t j = from; j < count; j++)
                row[j] = s->cap * tanh_real(row[j] / s->cap);
        softmax_row(row + from, count - from);
        for (int64_t j = 0; j < from; j++) row[j] = 0;
        for (int64_t j = count; j < seen; j++) row[j] = 0;
    }
    const Panels values = {cache.values, s->wide, PANEL_ROWS, s->wide / PANEL_ROWS,
                           g->first + (g->n - 1) * g->more};
    REAL_FN(panels_times)(&values, scores, s->tokens, sums, s->wide, g->n);
    for (int64_t i = 0; i < g->n; i++)
        put_row(g->out + i * g->out_step, sums + i * s->wide, s->e, false);
}

/* Finds the buckets of all keys that a call's last query sees; they lie behind scores and
 * results. */
static void find_buckets(AttentionSizes *s, const StepCall *call) {
    if (!node_has(call->node, ATTENTION_REL_BIAS)) return;
    s->table = call->in[ATTENTION_REL_BIAS];
    const int64_t before = call->position + call->count - 1;
    int32_t *bucket =
        (int32_t *)(void *)(call->scratch + QUERIES * (s->tokens + s->wide));
    buckets_fill(&s->buckets, before, 0, bucket);
    s->bucket_end = bucket + before + 1;
}

/* The queries of one token that share the head of keys. */
static void attend_token(const AttentionSizes *s, Cache cache, const StepCall *call,
                         int64_t group) {
    for (int64_t h = 0; h < s->share; h += QUERIES) {
        const int64_t head = group * s->share + h, left = s->share - h;
        const Group g = {.q = (const float *)call->in[Q] + head * s->d,
                         .out = call->out + head * s->e,
                         .n = left < QUERIES ? left : QUERIES,
                         .q_step = s->d,
                         .out_step = s->e,
                         .first = call->position + 1,
                         .head = head,
                         .head_step = 1};
        attend(s, cache, &g, call->scratch);
    }
}

/* One query head at several tokens. */
static void attend_head(const AttentionSizes *s, Cache cache, const StepCall *call,
                        int64_t head) {
    for (int64_t t = 0; t < call->count; t += QUERIES) {
        const int64_t left = call->count - t;
        const Group g = {.q = (const float *)call->in[Q] + (t * s->heads + head) * s->d,
                         .out = call->out + (t * s->heads + head) * s->e,
                         .n = left < QUERIES ? left : QUERIES,
                         .q_step = s->heads * s->d,
                         .out_step = s->heads * s->e,
                         .first = call->position + t + 1,
                         .more = 1,
                         .head = head};
        attend(s, cache, &g, call->scratch);
    }
}

static void run(const StepCall *call, int64_t first, int64_t last) {
    AttentionSizes s = open_sizes(call->node, call->capacity);
    const float *k = call->in[K], *v = call->in[V];
    if (call->out) find_buckets(&s, call);
    for (int64_t group = first; group < last; group++) {
        float *keys = (float *)call->state + group * s.tokens * (s.d + s.wide);
        const Cache cache = {keys, keys + s.tokens * s.d};
        for (int64_t t = 0; t < call->count; t++)
            put_token(&s, cache, call->position + t, k + (t * s.groups + group) * s.d,
                      v + (t * s.groups + group) * s.e);
        if (!call->out) continue;
        if (call->count == 1)
            attend_token(&s, cache, call, group);
        else
            for (int64_t h = 0; h < s.share; h++)
                attend_head(&s, cache, call, group * s.share + h);
    }
}

STEP_KERNEL(attention) = {
    .share = STEP_UNITS,
    .local = READS_IN(Q) | READS_IN(K) | READS_IN(V),
    .units = units,
    .check = check,
    .state_bytes = state_bytes,
    .filled_bytes = filled_bytes,
    .copy_state = copy_state,
    .scratch_floats = scratch_floats,
    .run = run,
    .source = STEP(cross_attention),
};
