/* attention with a cache of keys and values; heads of keys and values are units.
 *
 * State of a head: keys in panels of 16 tokens, [tokens / 16, d, 16], so that the scores
 * of 16 tokens are one panel times the query; then values [tokens, e], e rounded up to
 * whole panels, whose rows times the probabilities are again panels.
 *
 * All queries that read a head of keys (those of several tokens, or those of one token
 * that share it) go through the cache together, a stretch of tokens after the other, none
 * farther back than a query sees: weights of a stretch are exp(score - m), m the largest
 * score so far; when it grows, sums and results so far are multiplied by exp(old - new)
 * (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018). A stretch
 * and the scores of a group of queries stay in the second-level cache. Stretches begin at
 * multiples of their length, so a query's result does not depend on the others.
 *
 * Heads that are mixed are one unit: a token's scores of all heads lie beside each other,
 * for all tokens that it sees. */
#include "exec/generate/steps/mixing.h"

#include <string.h>

enum { Q = ATTENTION_Q, K = ATTENTION_K, V = ATTENTION_V };

/* Tokens of a stretch and, where a group has more than FEW queries, of the parts of it
 * that stay in the first-level cache; queries of a group, and the distance of their rows
 * of scores, which is no power of two. */
enum { STRETCH = 512, PART = 64, FEW = 8, GROUP = 32, ROW = STRETCH + PANEL_ROWS };

typedef struct AttentionSizes {
    int64_t heads, groups, share; /* share: query heads of a head of keys */
    int64_t d, e, wide;           /* wide: e in whole panels */
    int64_t tokens;               /* capacity in whole panels */
    int64_t reach;                /* tokens that a query sees at most */
    float scale, cap;             /* cap: 0 = none */
    bool mixed;                   /* heads with each other */
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
    s.mixed = mixing_wanted(node);
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
    return step_check_absent(
        node, ATTENTION_BIAS,
        mixing_readable(node) | (fits ? READS_IN(ATTENTION_REL_BIAS) : 0), diag);
}

static int64_t units(const Node *node) {
    const AttentionSizes s = open_sizes(node, 1);
    return s.mixed ? 1 : s.groups;
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

/* Queries that go through the cache together: of tokens, or of a token's heads. */
static int64_t queries_of(const AttentionSizes *s, int64_t count) {
    return count > s->share ? count : s->share;
}

/* Scores of a group; queries, results, largest scores and sums of all; then buckets. Of
 * mixed heads all scores twice, a query and a result. */
static int64_t bucket_offset(const AttentionSizes *s, int64_t count) {
    if (s->mixed) return 2 * s->heads * s->tokens + round_up(s->d) + s->wide;
    return GROUP * ROW + queries_of(s, count) * (s->d + s->wide + 2);
}

static int64_t scratch_floats(const Node *node, int64_t capacity, int64_t count) {
    const AttentionSizes s = open_sizes(node, capacity);
    return bucket_offset(&s, count) + (s.buckets.count ? s.tokens : 0);
}

/* One head of keys: its part of the state. */
typedef struct Cache {
    float *keys, *values;
} Cache;

static Cache cache_of(const AttentionSizes *s, const StepCall *call, int64_t group) {
    float *keys = (float *)call->state + group * s->tokens * (s->d + s->wide);
    return (Cache){keys, keys + s->tokens * s->d};
}

static void put_token(const AttentionSizes *s, Cache cache, int64_t token,
                      const float *restrict key, const float *restrict value) {
    float *restrict keys = cache.keys + token / PANEL_ROWS * PANEL_ROWS * s->d;
    for (int64_t j = 0; j < s->d; j++) keys[j * PANEL_ROWS + token % PANEL_ROWS] = key[j];
    float *restrict values = cache.values + token * s->wide;
    for (int64_t j = 0; j < s->e; j++) values[j] = value[j];
}

/* `n` queries; query i sees first + i * more keys, or those within reach. */
typedef struct Queries {
    const float *q;
    float *out;
    int64_t n, q_step, out_step, first, more;
    int64_t head, head_step; /* of the first query, and to that of the next */

    /* in scratch */
    float *scores;        /* [GROUP, ROW], column 0 is the stretch's first token */
    float *scaled, *sums; /* [n, d]: scale q; [n, wide]: weights times values */
    float *top, *total;   /* [n]: largest score so far; sum of the weights */
} Queries;

static void open_queries(Queries *g, const AttentionSizes *s, float *scratch) {
    g->scores = scratch;
    g->scaled = scratch + GROUP * ROW;
    g->sums = g->scaled + g->n * s->d;
    g->top = g->sums + g->n * s->wide;
    g->total = g->top + g->n;
    for (int64_t i = 0; i < g->n; i++) {
        for (int64_t j = 0; j < s->d; j++)
            g->scaled[i * s->d + j] = s->scale * g->q[i * g->q_step + j];
        for (int64_t j = 0; j < s->wide; j++) g->sums[i * s->wide + j] = 0;
        g->top[i] = -INFINITY;
        g->total[i] = 0;
    }
}

/* Tokens that query i sees are first_seen .. end_seen - 1. */
static int64_t end_seen(const Queries *g, int64_t i) {
    return g->first + i * g->more;
}
static int64_t first_seen(const AttentionSizes *s, const Queries *g, int64_t i) {
    const int64_t end = end_seen(g, i);
    return end > s->reach ? end - s->reach : 0;
}

/* Tokens begin .. end - 1 of the stretch at `at` and the queries i .. i + n - 1 that one
 * of them is seen by. */
typedef struct Stretch {
    int64_t at, begin, end, i, n;
} Stretch;

/* Adds a head's biases to the scores of tokens from .. to - 1 for a query behind `count`.
 */
static void add_bias(const AttentionSizes *s, int64_t head, int64_t count, int64_t from,
                     int64_t to, float *restrict row) {
    const float *restrict column = s->table + head;
    const int32_t *restrict bucket = s->bucket_end - count + from;
    for (int64_t j = 0; j < to - from; j++) row[j] += column[bucket[j] * s->heads];
}

/* Turns query i's scores into weights, 0 for tokens that it does not see. */
static void weigh(const AttentionSizes *s, Queries *g, const Stretch *x, int64_t i) {
    const int64_t first = first_seen(s, g, i), end = end_seen(g, i);
    const int64_t from = first > x->begin ? first : x->begin;
    const int64_t to = end < x->end ? end : x->end, n = to - from;
    float *all = g->scores + (i - x->i) * ROW;
    float *row = all + (from - x->at);
    for (int64_t j = x->begin; j < from && j < x->end; j++) all[j - x->at] = 0;
    for (int64_t j = to > x->begin ? to : x->begin; j < x->end; j++) all[j - x->at] = 0;
    if (n <= 0) return;
    if (s->table) add_bias(s, g->head + i * g->head_step, end, from, to, row);
    for (int64_t j = 0; s->cap > 0 && j < n; j++)
        row[j] = s->cap * tanh_real(row[j] / s->cap);
    const float most = row_max(row, n), old = g->top[i];
    if (most > old) {
        const float factor = exp_real(old - most);
        g->top[i] = most;
        g->total[i] *= factor;
        for (int64_t j = 0; j < s->wide; j++) g->sums[i * s->wide + j] *= factor;
    }
    g->total[i] += exp_row(row, n, g->top[i] == -INFINITY ? 0 : g->top[i]);
}

/* Scores of a group, and its weights times the values. */
static void multiply_keys(const AttentionSizes *s, Cache cache, Queries *g,
                          const Stretch *x, int64_t part) {
    for (int64_t at = x->begin, n; at < x->end; at += n) {
        n = x->end - at < part ? x->end - at : part;
        const Panels keys = {.w = cache.keys + at * s->d,
                             .step = PANEL_ROWS,
                             .gap = PANEL_ROWS * s->d,
                             .panels = round_up(n) / PANEL_ROWS,
                             .K = s->d};
        REAL_FN(panels_times)
        (&keys, g->scaled + x->i * s->d, s->d, g->scores + at - x->at, ROW, x->n);
    }
}

static void multiply_values(const AttentionSizes *s, Cache cache, Queries *g,
                            const Stretch *x, int64_t part) {
    for (int64_t at = x->begin, n; at < x->end; at += n) {
        n = x->end - at < part ? x->end - at : part;
        const Panels values = {.w = cache.values + at * s->wide,
                               .step = s->wide,
                               .gap = PANEL_ROWS,
                               .panels = s->wide / PANEL_ROWS,
                               .K = n,
                               .add = true};
        REAL_FN(panels_times)
        (&values, g->scores + at - x->at, ROW, g->sums + x->i * s->wide, s->wide, x->n);
    }
}

/* The part of a stretch that a group of queries sees. */
static void attend_stretch(const AttentionSizes *s, Cache cache, Queries *g, int64_t at,
                           int64_t i) {
    const int64_t left = g->n - i, n = left < GROUP ? left : GROUP;
    const int64_t first = first_seen(s, g, i), end = end_seen(g, i + n - 1);
    Stretch x = {at, at, at + STRETCH, i, n};
    if (first > x.begin) x.begin = first / PANEL_ROWS * PANEL_ROWS;
    if (end < x.end) x.end = end;
    if (x.begin >= x.end) return;
    const int64_t part = n > FEW ? PART : STRETCH;
    multiply_keys(s, cache, g, &x, part);
    for (int64_t j = i; j < i + n; j++) weigh(s, g, &x, j);
    multiply_values(s, cache, g, &x, part);
}

static void attend(const AttentionSizes *s, Cache cache, Queries *g, float *scratch) {
    open_queries(g, s, scratch);
    const int64_t first = first_seen(s, g, 0) / STRETCH * STRETCH;
    for (int64_t at = first; at < end_seen(g, g->n - 1); at += STRETCH)
        for (int64_t i = 0; i < g->n; i += GROUP) attend_stretch(s, cache, g, at, i);
    for (int64_t i = 0; i < g->n; i++) {
        const float *restrict sums = g->sums + i * s->wide;
        float *restrict out = g->out + i * g->out_step;
        const float total = g->total[i];
        const float factor = total > 0 || isnan(total) ? 1 / total : 0;
        for (int64_t j = 0; j < s->e; j++) out[j] = factor * sums[j];
    }
}

/* Finds the buckets of all keys that a call's last query sees; they lie behind scores and
 * results. */
static void find_buckets(AttentionSizes *s, const StepCall *call) {
    if (!node_has(call->node, ATTENTION_REL_BIAS)) return;
    s->table = call->in[ATTENTION_REL_BIAS];
    const int64_t before = call->position + call->count - 1;
    int32_t *bucket = (int32_t *)(void *)(call->scratch + bucket_offset(s, call->count));
    buckets_fill(&s->buckets, before, 0, bucket);
    s->bucket_end = bucket + before + 1;
}

/* The queries of one token that share the head of keys. */
static void attend_token(const AttentionSizes *s, Cache cache, const StepCall *call,
                         int64_t group) {
    const int64_t head = group * s->share;
    Queries g = {.q = (const float *)call->in[Q] + head * s->d,
                 .out = call->out + head * s->e,
                 .n = s->share,
                 .q_step = s->d,
                 .out_step = s->e,
                 .first = call->position + 1,
                 .head = head,
                 .head_step = 1};
    attend(s, cache, &g, call->scratch);
}

/* One query head at several tokens. */
static void attend_head(const AttentionSizes *s, Cache cache, const StepCall *call,
                        int64_t head) {
    Queries g = {.q = (const float *)call->in[Q] + head * s->d,
                 .out = call->out + head * s->e,
                 .n = call->count,
                 .q_step = s->heads * s->d,
                 .out_step = s->heads * s->e,
                 .first = call->position + 1,
                 .more = 1,
                 .head = head};
    attend(s, cache, &g, call->scratch);
}

/* ---- mixed heads ---- */

/* Scores of a head for the tokens from .. end - 1, of which `from` begins a panel. */
static void score_head(const AttentionSizes *s, Cache cache, const float *q, int64_t head,
                       int64_t from, int64_t end, float *scaled, float *row) {
    const Panels keys = {.w = cache.keys + from * s->d,
                         .step = PANEL_ROWS,
                         .gap = PANEL_ROWS * s->d,
                         .panels = round_up(end - from) / PANEL_ROWS,
                         .K = s->d};
    for (int64_t j = 0; j < s->d; j++) scaled[j] = s->scale * q[j];
    REAL_FN(panels_times)(&keys, scaled, s->d, row, s->tokens, 1);
    if (s->table) add_bias(s, head, end, from, end, row);
    for (int64_t j = 0; s->cap > 0 && j < end - from; j++)
        row[j] = s->cap * tanh_real(row[j] / s->cap);
}

/* A token, the call's t-th, whose heads are mixed. */
static void attend_mixed(const AttentionSizes *s, const StepCall *call, int64_t t) {
    const Mixing mixing = mixing_of(call, s->heads);
    const int64_t end = call->position + t + 1;
    const int64_t first = end > s->reach ? end - s->reach : 0;
    const int64_t from = first / PANEL_ROWS * PANEL_ROWS;
    float *scores = call->scratch, *spare = scores + s->heads * s->tokens;
    float *scaled = spare + s->heads * s->tokens, *sums = scaled + round_up(s->d);
    for (int64_t h = 0; h < s->heads; h++)
        score_head(s, cache_of(s, call, h),
                   (const float *)call->in[Q] + (t * s->heads + h) * s->d, h, from, end,
                   scaled, scores + h * s->tokens);
    const float *weights =
        mixing_weights(&mixing, scores + (first - from), spare + (first - from),
                       end - first, s->tokens, NULL);
    for (int64_t h = 0; h < s->heads; h++) {
        const Panels values = {.w = cache_of(s, call, h).values + first * s->wide,
                               .step = s->wide,
                               .gap = PANEL_ROWS,
                               .panels = s->wide / PANEL_ROWS,
                               .K = end - first};
        REAL_FN(panels_times)
        (&values, weights + h * s->tokens, s->tokens, sums, s->wide, 1);
        memcpy(call->out + (t * s->heads + h) * s->e, sums, (size_t)s->e * sizeof *sums);
    }
}

/* ---- a call ---- */

/* Puts the call's tokens into the state of a head of keys. */
static void put_tokens(const AttentionSizes *s, const StepCall *call, int64_t group) {
    const float *k = call->in[K], *v = call->in[V];
    for (int64_t t = 0; t < call->count; t++)
        put_token(s, cache_of(s, call, group), call->position + t,
                  k + (t * s->groups + group) * s->d, v + (t * s->groups + group) * s->e);
}

static void run_mixed(const AttentionSizes *s, const StepCall *call) {
    for (int64_t head = 0; head < s->heads; head++) put_tokens(s, call, head);
    for (int64_t t = 0; call->out && t < call->count; t++) attend_mixed(s, call, t);
}

static void run(const StepCall *call, int64_t first, int64_t last) {
    AttentionSizes s = open_sizes(call->node, call->capacity);
    if (call->out) find_buckets(&s, call);
    if (s.mixed) {
        run_mixed(&s, call);
        return;
    }
    for (int64_t group = first; group < last; group++) {
        const Cache cache = cache_of(&s, call, group);
        put_tokens(&s, call, group);
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
