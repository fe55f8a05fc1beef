/* attention: multi-head attention with everything that changes its scores, with the keys
 * and values of the tokens before in decoders that write token by token. */
#include "io/onnx/write/onnx_export.h"
#include "ir/buckets.h"

#include <math.h>
#include <stdlib.h>

/* What scores of keys that take no part lose: with it, exp is 0 in every type. */
enum { MASKED = -10000, BETWEEN_REGIONS = -100 };

/* Buckets of relative positions of keys by distance (see exec/ops/relative_position.h):
 * 7 for rows times 7 for columns. */
enum { STEPS = 7, BUCKETS = STEPS * STEPS };

/* One node's sizes. With windows, samples are the windows and queries and keys the tokens
 * of one. */
typedef struct Attention {
    const Node *node;
    int64_t heads, groups, width, value_width; /* H, G, d, e */
    int64_t grid_h, grid_w, skip, window, shift, reach;
    int64_t queries, keys; /* may be symbols */
    bool causal;
} Attention;

static Attention attention_of(const Node *node) {
    const int64_t *q = node->in[0]->type.dim, *v = node->in[2]->type.dim;
    Attention a = {.node = node,
                   .heads = node_heads(node),
                   .groups = node_key_heads(node),
                   .grid_h = node_integer(node, "grid_h"),
                   .grid_w = node_integer(node, "grid_w"),
                   .skip = node_integer(node, "skip"),
                   .window = node_integer(node, "window"),
                   .shift = node_integer(node, "shift"),
                   .reach = node_integer(node, "reach"),
                   .queries = q[1],
                   .keys = v[1],
                   .causal = node_flag(node, "causal")};
    a.width = q[2] / a.heads;
    a.value_width = v[2] / a.groups;
    if (a.window) a.queries = a.keys = a.window * a.window;
    return a;
}

/* ---- heads ---- */

/* Operand x [N, T, heads * width], or its windows, with tokens apart from heads. */
static const char *tokens_of(OnnxExport *x, const Attention *a, const char *value,
                             int64_t heads, int64_t width) {
    return a->window ? ONNX_RESHAPE(x->b, value, -1, a->queries, heads, width)
                     : ONNX_RESHAPE(x->b, value, 0, 0, heads, width);
}

/* Keys or values [N, G, S, d] of the tokens before and these, which go out as a state. */
static const char *with_past(OnnxExport *x, const Attention *a, const char *value,
                             const char *what, int64_t width) {
    Arena *arena = x->b->arena;
    const int64_t dim[] = {0, a->groups, 0, width};
    const char *const before[] = {ONNX_BATCH, NULL, ONNX_PAST, NULL};
    const char *const after[] = {ONNX_BATCH, NULL, ONNX_TOTAL, NULL};
    const char *name = arena_printf(arena, "%d.%s", a->node->layer, what);
    const char *past =
        onnx_state_in(x, arena_printf(arena, "past_key_values.%s", name), dim, before, 4);
    value = onnx_concat(x->b, 2, past, value);
    x->key_states++;
    return onnx_state_out(x, arena_printf(arena, "present.%s", name), value, dim, after,
                          4);
}

/* Whether a node attends to the tokens that are written, not to a source. */
static bool is_own(const OnnxExport *x, const Attention *a) {
    return x->cached && a->causal && a->keys == DIM_T;
}

/* Keys as [N, H, d, S]. */
static const char *keys_of(OnnxExport *x, const Attention *a) {
    OnnxBuild *b = x->b;
    const char *k = x->cross[0];
    if (!k) {
        k = tokens_of(x, a, onnx_operand(x, a->node, 1), a->groups, a->width);
        if (a->groups == a->heads && !is_own(x, a))
            return ONNX_TRANSPOSE(b, k, 0, 2, 3, 1);
        k = ONNX_TRANSPOSE(b, k, 0, 2, 1, 3);
    }
    if (is_own(x, a))
        k = with_past(x, a, k, x->key_mask ? "key" : "decoder.key", a->width);
    k = onnx_repeat_heads(b, k, a->groups, a->heads, a->width);
    return ONNX_TRANSPOSE(b, k, 0, 1, 3, 2);
}

/* Values as [N, H, S, e]. */
static const char *values_of(OnnxExport *x, const Attention *a) {
    const char *v = x->cross[1];
    if (!v) {
        v = tokens_of(x, a, onnx_operand(x, a->node, 2), a->groups, a->value_width);
        v = ONNX_TRANSPOSE(x->b, v, 0, 2, 1, 3);
    }
    if (is_own(x, a))
        v = with_past(x, a, v, x->key_mask ? "value" : "decoder.value", a->value_width);
    return onnx_repeat_heads(x->b, v, a->groups, a->heads, a->value_width);
}

/* ---- relative positions ---- */

/* The biases of a table by offset [(2 h - 1) (2 w - 1), H] as [1, H, T, S]: 0 for the
 * first `skip` tokens. */
static const char *table_bias(OnnxExport *x, const Attention *a, const char *table) {
    OnnxBuild *b = x->b;
    const int64_t h = a->window ? a->window : a->grid_h;
    const int64_t w = a->window ? a->window : a->grid_w, count = h * w;
    int64_t *rows = memory_alloc((size_t)(count * count), sizeof *rows);
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < count; j++)
            rows[i * count + j] =
                (i / w - j / w + h - 1) * (2 * w - 1) + i % w - j % w + w - 1;
    const char *at = onnx_indices(b, rows, ONNX_I64S(count, count), 2);
    free(rows);
    const char *bias = onnx_gather(b, table, at, 0);
    bias = onnx_unsqueeze(b, ONNX_TRANSPOSE(b, bias, 2, 0, 1), 0);
    if (!a->window && a->skip)
        bias =
            ONNX_NODE(b, "Pad", bias, ONNX_VECTOR(b, 0, 0, a->skip, a->skip, 0, 0, 0, 0));
    return bias;
}

/* The biases of a table by bucket [B, H] as [1, H, T, S]: looked up by offset, those
 * farther than the last bucket's first taken for that. Layers of one table share them. */
static const char *bucket_bias(OnnxExport *x, const Attention *a, const char *table) {
    OnnxBuild *b = x->b;
    const Node *node = a->node;
    const Buckets buckets = {node_integer(node, "buckets"),
                             node_integer(node, "distance"),
                             node_flag(node, "bidirectional")};
    const int64_t far = buckets.distance, count = 2 * far + 1;
    const char *key =
        arena_printf(b->arena, "biases %s %lld %d %lld %lld", table, (long long)far,
                     buckets.both_sides, (long long)a->queries, (long long)a->keys);
    const char *kept = onnx_kept(b, key);
    if (kept) return kept;
    int32_t *bucket = memory_alloc((size_t)count, sizeof *bucket);
    int64_t *rows = memory_alloc((size_t)count, sizeof *rows);
    buckets_fill(&buckets, far, far, bucket);
    for (int64_t i = 0; i < count; i++) rows[i] = bucket[i];
    const char *by_offset =
        onnx_gather(b, table, onnx_indices(b, rows, ONNX_I64S(count), 1), 0);
    free(rows);
    free(bucket);
    const char *at = onnx_offsets(x, a->queries, a->keys);
    at =
        ONNX_NODE(b, "Min", ONNX_NODE(b, "Max", at, onnx_i64(b, -far)), onnx_i64(b, far));
    at = ONNX_NODE(b, "Add", at, onnx_i64(b, far));
    const char *bias = onnx_gather(b, by_offset, at, 0);
    bias = ONNX_TRANSPOSE(b, bias, 2, 0, 1);
    return onnx_keep(b, key, onnx_unsqueeze(b, bias, 0));
}

/* rho(distance) + 3. */
static int64_t step_of(int64_t distance) {
    static const int NEAR[] = {0, 1, 2, 2};
    const int64_t length = distance < 0 ? -distance : distance;
    const int64_t step = length < 4 ? NEAR[length] : 3;
    return (distance < 0 ? -step : step) + STEPS / 2;
}

/* q [N, H, T, d] times the vectors of relative positions [d, 49], by query and key. The
 * first `skip` tokens take a column of zeros behind the others. */
static const char *contextual_bias(OnnxExport *x, const Attention *a, const char *q,
                                   const char *vectors, const char *scores) {
    OnnxBuild *b = x->b;
    const int64_t skip = a->window ? 0 : a->skip, w = a->window ? a->window : a->grid_w;
    const int64_t count = a->queries;
    int64_t *buckets = memory_alloc((size_t)(count * count), sizeof *buckets);
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < count; j++) {
            const int64_t from = i - skip, to = j - skip;
            buckets[i * count + j] =
                from < 0 || to < 0
                    ? BUCKETS
                    : STEPS * step_of(from / w - to / w) + step_of(from % w - to % w);
        }
    const char *at = onnx_indices(b, buckets, ONNX_I64S(1, 1, count, count), 4);
    free(buckets);
    if (skip) vectors = ONNX_NODE(b, "Pad", vectors, ONNX_VECTOR(b, 0, 0, 0, 1));
    const char *by_bucket = ONNX_NODE(b, "MatMul", q, vectors);
    at = ONNX_NODE(b, "Expand", at, ONNX_NODE(b, "Shape", scores));
    const char *bias = ONNX_NODE(b, "GatherElements", by_bucket, at);
    onnx_set_int(b, "axis", 3);
    return bias;
}

/* ---- masks ---- */

/* Which of up to four parts of a turned grid a token of a window comes from. */
static int64_t region_of(const Attention *a, int64_t row, int64_t column, int64_t token,
                         int64_t down, int64_t across) {
    const int64_t first = a->window - a->shift;
    return 2 * (row == down - 1 && token / a->window >= first) +
           (column == across - 1 && token % a->window >= first);
}

/* Scores [N W, H, T, T] of shifted windows, less 100 between tokens of different parts.
 */
static const char *part_regions(OnnxExport *x, const Attention *a, const char *scores) {
    OnnxBuild *b = x->b;
    const int64_t down = (a->grid_h + a->window - 1) / a->window;
    const int64_t across = (a->grid_w + a->window - 1) / a->window;
    const int64_t windows = down * across, T = a->queries;
    float *limit = memory_alloc((size_t)(windows * T * T), sizeof *limit);
    for (int64_t at = 0; at < windows * T * T; at++) {
        const int64_t window = at / (T * T), i = at / T % T, j = at % T;
        const int64_t row = window / across, column = window % across;
        limit[at] = region_of(a, row, column, i, down, across) ==
                            region_of(a, row, column, j, down, across)
                        ? 0
                        : BETWEEN_REGIONS;
    }
    const char *mask = onnx_f32s(b, limit, ONNX_I64S(1, windows, 1, T, T), 5);
    free(limit);
    scores = ONNX_RESHAPE(b, scores, -1, windows, a->heads, T, T);
    return ONNX_RESHAPE(b, ONNX_NODE(b, "Add", scores, mask), -1, a->heads, T, T);
}

/* The mask of keys [N, S] that counts for a node, NULL when all do. */
static const char *key_mask(OnnxExport *x, const Attention *a) {
    OnnxBuild *b = x->b;
    const char *mask = onnx_named(x, a->node, "mask");
    if (is_own(x, a)) mask = x->key_mask;
    if (mask && a->window) mask = ONNX_RESHAPE(b, mask, -1, a->keys);
    return mask;
}

/* A mask [N, S] as [N, 1, 1, S]. */
static const char *over_scores(OnnxBuild *b, const char *mask) {
    return onnx_unsqueeze(b, onnx_unsqueeze(b, mask, 1), 2);
}

/* Both of two conditions, of which either may be NULL: none. */
static const char *both_of(OnnxBuild *b, const char *one, const char *two) {
    if (!one || !two) return one ? one : two;
    const char *key = arena_printf(b->arena, "both %s %s", one, two);
    const char *kept = onnx_kept(b, key);
    return kept ? kept : onnx_keep(b, key, ONNX_NODE(b, "And", one, two));
}

/* Which keys a query may attend to, as bool [N or 1, 1, T or 1, S]; NULL = all. */
static const char *allowed_keys(OnnxExport *x, const Attention *a, const char *mask) {
    OnnxBuild *b = x->b;
    const char *causal = a->causal ? onnx_causal(x, a->queries) : NULL;
    const char *near = a->reach ? onnx_near(x, a->queries, a->reach, !a->causal) : NULL;
    const char *seen = both_of(b, causal, near);
    if (!mask) return seen;
    const char *key = arena_printf(b->arena, "mask of keys %s", mask);
    const char *allowed = onnx_kept(b, key);
    if (!allowed)
        allowed = onnx_keep(b, key, over_scores(b, onnx_cast(b, mask, ONNX_BOOL)));
    return both_of(b, allowed, seen);
}

/* What is added to scores: 0, or MASKED for keys that take no part; NULL = nothing. A
 * mask of keys alone becomes (1 - mask) * MASKED, for onnxruntime's fusion. */
static const char *limits_of(OnnxExport *x, const Attention *a, const char *mask) {
    OnnxBuild *b = x->b;
    if (!mask && !a->causal && !a->reach) return NULL;
    const char *key =
        arena_printf(b->arena, "limits %s %d %lld", mask ? mask : "",
                     a->causal || a->reach ? (int)a->queries : 0, (long long)a->reach);
    const char *value = onnx_kept(b, key);
    if (value) return value;
    if (a->causal || a->reach) {
        value = ONNX_NODE(b, "Where", allowed_keys(x, a, mask), onnx_real(b, 0),
                          onnx_real(b, MASKED));
    } else {
        value = onnx_cast(b, over_scores(b, mask), b->real);
        value = ONNX_NODE(b, "Sub", onnx_real(b, 1), value);
        value = ONNX_NODE(b, "Mul", value, onnx_real(b, MASKED));
    }
    return onnx_keep(b, key, value);
}

/* ---- the op ---- */

/* Heads of [N, H, T, S] mixed by a matrix [H, H]: a convolution of 1 x 1. */
static const char *mix(OnnxExport *x, const Attention *a, const char *maps,
                       const Storage *matrix) {
    const int64_t dim[] = {a->heads, a->heads, 1, 1};
    const char *weight = onnx_weight(x->b, matrix, ONNX_AS_IT_IS, dim, 4);
    return ONNX_NODE(x->b, "Conv", maps, weight);
}

static const Storage *storage_named(const Attention *a, const char *name) {
    return onnx_storage(a->node, op_operand_index(a->node->op, name));
}

/* scale q k^T with everything that is added before the mixing. */
static const char *scores_of(OnnxExport *x, const Attention *a, const char *q,
                             const char *k) {
    OnnxBuild *b = x->b;
    const double root = sqrt((double)a->width), scale = node_real(a->node, "scale");
    const char *vectors = onnx_named(x, a->node, "rel_key");
    const char *scores = ONNX_NODE(b, "MatMul", q, k);
    if (vectors)
        scores = ONNX_NODE(b, "Add", scores, contextual_bias(x, a, q, vectors, scores));
    if (scale == 0 || scale == 1 / root)
        scores = ONNX_NODE(b, "Div", scores, onnx_real(b, root));
    else
        scores = ONNX_NODE(b, "Mul", scores, onnx_real(b, scale));
    const char *bias = onnx_named(x, a->node, "bias");
    if (bias) scores = ONNX_NODE(b, "Add", scores, onnx_unsqueeze(b, bias, 0));
    const char *table = onnx_named(x, a->node, "rel_bias");
    const bool by_bucket = node_integer(a->node, "buckets") > 0;
    if (table)
        scores =
            ONNX_NODE(b, "Add", scores,
                      by_bucket ? bucket_bias(x, a, table) : table_bias(x, a, table));
    const double cap = node_real(a->node, "cap");
    if (cap == 0) return scores;
    scores = ONNX_NODE(b, "Tanh", ONNX_NODE(b, "Div", scores, onnx_real(b, cap)));
    return ONNX_NODE(b, "Mul", scores, onnx_real(b, cap));
}

/* mix_after_bias belongs to keys that may be attended to. */
static const char *mix_after(OnnxExport *x, const Attention *a, const char *maps,
                             const char *mask) {
    OnnxBuild *b = x->b;
    const Storage *bias = storage_named(a, "mix_after_bias");
    maps = mix(x, a, maps, storage_named(a, "mix_after"));
    if (!bias) return maps;
    const int64_t dim[] = {1, a->heads, 1, 1};
    const char *more = onnx_weight(b, bias, ONNX_AS_IT_IS, dim, 4);
    const char *allowed = allowed_keys(x, a, mask);
    if (allowed) more = ONNX_NODE(b, "Mul", more, onnx_cast(b, allowed, b->real));
    return ONNX_NODE(b, "Add", maps, more);
}

const char *onnx_op_attention(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const Attention a = attention_of(node);
    const char *q = tokens_of(x, &a, onnx_operand(x, node, 0), a.heads, a.width);
    q = ONNX_TRANSPOSE(b, q, 0, 2, 1, 3);
    const char *k = keys_of(x, &a), *v = values_of(x, &a), *mask = key_mask(x, &a);
    const char *maps = scores_of(x, &a, q, k);
    if (storage_named(&a, "mix_before"))
        maps = mix(x, &a, maps, storage_named(&a, "mix_before"));
    if (a.window && a.shift) maps = part_regions(x, &a, maps);
    const char *limits = limits_of(x, &a, mask);
    if (limits) maps = ONNX_NODE(b, "Add", maps, limits);
    maps = onnx_softmax(b, maps, -1);
    if (storage_named(&a, "mix_after")) maps = mix_after(x, &a, maps, mask);
    const char *y = ONNX_TRANSPOSE(b, ONNX_NODE(b, "MatMul", maps, v), 0, 2, 1, 3);
    return a.window ? ONNX_RESHAPE(b, y, -1, node->type.dim[1], node->type.dim[2])
                    : ONNX_RESHAPE(b, y, 0, 0, node->type.dim[2]);
}
