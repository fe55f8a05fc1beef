/* Linear attention: feature maps, the state that stands for all tokens before, and the
 * near window that has softmax beside it. See exec/ops/linear_attention.c and
 * linear_near.h. */
#include "io/onnx/write/onnx_export.h"

#include <math.h>

/* What scores of keys that are not near lose: with it, exp is 0 in every type. */
enum { FAR_AWAY = 10000 };

/* Bound of the exponent of a gate with a slope, that of exec/ops/linear_near.h. */
enum { GAIN_MAX = 30 };

/* ---- feature maps ---- */

/* fn(u) of features u [N, G, share T, f]; `shift` is |s x|^2 / 2 of the same rows. */
static const char *apply_feature(OnnxBuild *b, const Node *node, const char *u,
                                 const char *shift, int64_t width) {
    if (node_chooses(node, "fn", "relu")) return ONNX_NODE(b, "Relu", u);
    if (node_chooses(node, "fn", "hedgehog")) {
        const char *negative = onnx_softmax(b, ONNX_NODE(b, "Neg", u), -1);
        return onnx_concat(b, -1, onnx_softmax(b, u, -1), negative);
    }
    if (node_chooses(node, "fn", "exp")) {
        const char *top = ONNX_NODE(b, "ReduceMax", u);
        onnx_set_ints(b, "axes", ONNX_I64S(-1), 1);
        return ONNX_NODE(b, "Exp", ONNX_NODE(b, "Sub", u, top));
    }
    if (shift) {
        u = ONNX_NODE(b, "Exp", ONNX_NODE(b, "Sub", u, shift));
        return ONNX_NODE(b, "Mul", u, onnx_real(b, 1 / sqrt((double)width)));
    }
    u = ONNX_NODE(b, "Elu", u);
    return ONNX_NODE(b, "Add", u, onnx_real(b, 1));
}

const char *onnx_op_feature_map(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const Storage *weight = onnx_storage(node, 1), *bias = onnx_storage(node, 2);
    const int64_t heads = node_heads(node), all = node->in[0]->type.dim[2];
    const int64_t groups = weight ? weight->tensor.dim[0] : heads;
    const int64_t width = node->type.dim[2] / heads;
    const char *u = onnx_operand(x, node, 0), *shift = NULL;
    if (node_real(node, "scale") != 1)
        u = ONNX_NODE(b, "Mul", u, onnx_real(b, node_real(node, "scale")));
    u = ONNX_RESHAPE(b, u, 0, 0, groups, heads / groups, all / heads);
    u = ONNX_TRANSPOSE(b, u, 0, 2, 3, 1, 4);
    if (node_chooses(node, "fn", "positive")) {
        shift = ONNX_NODE(b, "ReduceSum", ONNX_NODE(b, "Mul", u, u), ONNX_VECTOR(b, -1));
        onnx_set_int(b, "keepdims", 1);
        shift = ONNX_NODE(b, "Mul", shift, onnx_real(b, 0.5));
    }
    if (weight) {
        const int64_t dim[] = {groups, 1, weight->tensor.dim[1], all / heads};
        const char *matrix = onnx_weight(b, weight, ONNX_AS_IT_IS, dim, 4);
        u = ONNX_NODE(b, "MatMul", u, ONNX_TRANSPOSE(b, matrix, 0, 1, 3, 2));
    }
    if (bias) {
        const int64_t dim[] = {groups, 1, 1, bias->tensor.dim[1]};
        u = ONNX_NODE(b, "Add", u, onnx_weight(b, bias, ONNX_AS_IT_IS, dim, 4));
    }
    u = apply_feature(b, node, u, shift, width);
    return ONNX_RESHAPE(b, ONNX_TRANSPOSE(b, u, 0, 3, 1, 2, 4), 0, 0, node->type.dim[2]);
}

/* ---- linear attention ---- */

/* The mask of the source's tokens [N, 1, S, 1] as real numbers, NULL when all count. */
static const char *token_mask(OnnxExport *x, const Node *node, bool own) {
    OnnxBuild *b = x->b;
    const char *mask = onnx_named(x, node, "mask");
    if (own && x->key_mask) {
        mask = onnx_kept(b, "mask of these");
        if (!mask) {
            mask = onnx_slice(b, x->key_mask, onnx_past(x, node->type.dim[1]),
                              ONNX_VECTOR(b, INT64_MAX), 1);
            onnx_keep(b, "mask of these", mask);
        }
    }
    if (!mask) return NULL;
    const char *key = arena_printf(b->arena, "tokens %s", mask);
    const char *kept = onnx_kept(b, key);
    if (kept) return kept;
    mask = onnx_unsqueeze(b, onnx_mask_real(x, mask), 1);
    return onnx_keep(b, key, onnx_unsqueeze(b, mask, 3));
}

/* What queries [N, H, T, f] find among the keys of their own tokens, none behind them:
 * tril(q k^T) v'. */
static const char *among_own(OnnxExport *x, const Node *node, const char *q,
                             const char *k, const char *v) {
    OnnxBuild *b = x->b;
    const int64_t T = node->type.dim[1];
    const char *key = arena_printf(b->arena, "lower %d", (int)T);
    const char *scores = ONNX_NODE(b, "MatMul", q, ONNX_TRANSPOSE(b, k, 0, 1, 3, 2));
    const char *lower = onnx_kept(b, key);
    if (!lower) {
        /* Tokens of this call by themselves: those before are in the state. */
        const bool cached = x->cached;
        x->cached = false;
        lower = onnx_keep(b, key, onnx_cast(b, onnx_causal(x, T), b->real));
        x->cached = cached;
    }
    return ONNX_NODE(b, "MatMul", ONNX_NODE(b, "Mul", scores, lower), v);
}

/* Values with a column of ones, [N, G, S, e + 1]: products with it give numerator and
 * denominator together. */
static const char *with_ones(OnnxBuild *b, const char *v) {
    return ONNX_NODE(b, "Pad", v, ONNX_VECTOR(b, 0, 0, 0, 0, 0, 0, 0, 1),
                     onnx_real(b, 1));
}

/* Numerators over denominators of at least `least`, as tokens [N, T, H e]. */
static const char *divide(OnnxBuild *b, const Node *node, const char *rows,
                          const char *least) {
    const int64_t e = node->type.dim[2] / node_heads(node);
    const char *zero = ONNX_VECTOR(b, 0), *at = ONNX_VECTOR(b, e);
    const char *below = onnx_slice(b, rows, at, ONNX_VECTOR(b, e + 1), 3);
    if (least) below = ONNX_NODE(b, "Max", below, least);
    rows = ONNX_NODE(b, "Div", onnx_slice(b, rows, zero, at, 3), below);
    return onnx_join_heads(b, rows, node->type.dim[2]);
}

/* The sum of k v' over the tokens before, which comes in; it goes out with that of keys
 * and values [N, G, S, .] added. */
static const char *sum_before(OnnxExport *x, const Node *node, const char *k,
                              const char *v, int64_t features, int64_t values) {
    OnnxBuild *b = x->b;
    const int64_t dim[] = {0, node_key_heads(node), features, values};
    const char *const names[] = {ONNX_BATCH, NULL, NULL, NULL};
    const char *sum = ONNX_NODE(b, "MatMul", ONNX_TRANSPOSE(b, k, 0, 1, 3, 2), v);
    const char *state = onnx_state_in(
        x, arena_printf(b->arena, "past_recurrent.%d", node->layer), dim, names, 4);
    sum = ONNX_NODE(b, "Add", state, sum);
    onnx_state_out(x, arena_printf(b->arena, "present_recurrent.%d", node->layer), sum,
                   dim, names, 4);
    return state;
}

/* ---- the near window ---- */

/* The keys that queries may see: where states come in, the last w tokens before them (the
 * ring) and their own, L = w + T of them, else their own T. */
typedef struct Window {
    const Node *node;
    bool own;                             /* states come in */
    int64_t width;                        /* w */
    int64_t groups, features, near, wide; /* G, f, d, e + 1 */
    const char *near_k, *k, *v;           /* [N, G, L, .] */
    const char *valid; /* [N, 1, L, 1]: 1 = a token that takes part; NULL = all do */
} Window;

/* Columns of the ring from `first` on, and where the next begin. */
static const char *columns(OnnxBuild *b, const char *ring, int64_t *first,
                           int64_t count) {
    const char *from = ONNX_VECTOR(b, *first);
    *first += count;
    return onnx_slice(b, ring, from, ONNX_VECTOR(b, *first), 3);
}

/* Puts the ring in front of the tokens' own keys and values, and hands out the next one.
 * What falls out of it joins the sum of all before, which is returned as it was. */
static const char *take_ring(OnnxExport *x, Window *window, const char *mask) {
    OnnxBuild *b = x->b;
    const Node *node = window->node;
    const int64_t width = window->near + window->features + window->wide + 1;
    const int64_t dim[] = {0, window->groups, window->width, width};
    const char *const names[] = {ONNX_BATCH, NULL, NULL, NULL};
    const char *ones = onnx_slice(b, window->v, ONNX_VECTOR(b, window->wide - 1),
                                  ONNX_VECTOR(b, window->wide), 3);
    const char *valid = mask ? ONNX_NODE(b, "Mul", ones, mask) : ones;
    const char *now = onnx_concat(b, 3, window->near_k, window->k);
    now = onnx_concat(b, 3, now, onnx_concat(b, 3, window->v, valid));
    const char *ring = onnx_state_in(
        x, arena_printf(b->arena, "past_conv.%d", node->layer), dim, names, 4);
    ring = onnx_concat(b, 2, ring, now);
    const char *last =
        onnx_slice(b, ring, ONNX_VECTOR(b, -window->width), ONNX_VECTOR(b, INT64_MAX), 2);
    onnx_state_out(x, arena_printf(b->arena, "present_conv.%d", node->layer), last, dim,
                   names, 4);
    int64_t at = 0;
    window->near_k = columns(b, ring, &at, window->near);
    window->k = columns(b, ring, &at, window->features);
    window->v = columns(b, ring, &at, window->wide);
    valid = columns(b, ring, &at, 1);
    window->valid = onnx_slice(b, valid, ONNX_VECTOR(b, 0), ONNX_VECTOR(b, 1), 1);
    const char *zero = ONNX_VECTOR(b, 0), *count = onnx_length(x, node->type.dim[1]);
    return sum_before(x, node, onnx_slice(b, window->k, zero, count, 2),
                      onnx_slice(b, window->v, zero, count, 2), window->features,
                      window->wide);
}

/* How far keys stand behind the last one that is too old, [T, L]: 1 to w are near, 0 and
 * less far, more than w later than the query. */
static const char *ages(OnnxExport *x, const Window *window) {
    OnnxBuild *b = x->b;
    const int64_t T = window->node->type.dim[1], w = window->width;
    const char *key = arena_printf(b->arena, "ages %d %lld", (int)T, (long long)w);
    const char *kept = onnx_kept(b, key);
    if (kept) return kept;
    const char *count = onnx_length(x, T);
    const char *end = ONNX_NODE(b, "Add", count, ONNX_VECTOR(b, w));
    const char *keys = onnx_range(b, ONNX_VECTOR(b, window->own ? 0 : w), end);
    const char *queries = onnx_range(b, ONNX_VECTOR(b, 0), count);
    return onnx_keep(
        b, key,
        ONNX_NODE(b, "Sub", onnx_unsqueeze(b, keys, 0), onnx_unsqueeze(b, queries, 1)));
}

/* The pairs of ages(x) that are near, 1 and 0 as real numbers [N or 1, 1, T, L]. */
static const char *near_pairs(OnnxExport *x, const Window *window) {
    OnnxBuild *b = x->b;
    const char *age = ages(x, window);
    const char *behind = ONNX_NODE(b, "Greater", age, onnx_i64(b, 0));
    const char *before = ONNX_NODE(b, "LessOrEqual", age, onnx_i64(b, window->width));
    const char *near = onnx_cast(b, ONNX_NODE(b, "And", behind, before), b->real);
    if (!window->valid) return near;
    return ONNX_NODE(b, "Mul", near, ONNX_TRANSPOSE(b, window->valid, 0, 1, 3, 2));
}

/* g of every head and query, [1, H, 1, 1] or with a slope [N, H, T, 1]; `top` is m. */
static const char *near_gain(OnnxExport *x, const Node *node, const char *top) {
    OnnxBuild *b = x->b;
    const int64_t H = node_heads(node);
    const char *gate = ONNX_RESHAPE(b, onnx_named(x, node, "gate"), 1, H, 1, 1);
    const char *slope = onnx_named(x, node, "slope");
    if (!slope) return ONNX_NODE(b, "Sigmoid", gate);
    slope = ONNX_NODE(b, "Mul", top, ONNX_RESHAPE(b, slope, 1, H, 1, 1));
    const char *exponent = ONNX_NODE(b, "Add", slope, gate);
    exponent = ONNX_NODE(b, "Max", exponent, onnx_real(b, -GAIN_MAX));
    return ONNX_NODE(b, "Exp", ONNX_NODE(b, "Min", exponent, onnx_real(b, GAIN_MAX)));
}

/* g e^(s - m) of near keys, 0 of all others, [N, H, T, L]. */
static const char *near_weights(OnnxExport *x, const Window *window, const char *near) {
    OnnxBuild *b = x->b;
    const Node *node = window->node;
    const int64_t H = node_heads(node), d = window->near;
    const double scale = node_real(node, "scale");
    const char *k = onnx_repeat_heads(b, window->near_k, window->groups, H, d);
    const char *q = onnx_split_heads(b, onnx_named(x, node, "near_q"), H, d);
    q = ONNX_NODE(b, "Mul", q, onnx_real(b, scale > 0 ? scale : 1 / sqrt((double)d)));
    const char *score = ONNX_NODE(b, "MatMul", q, ONNX_TRANSPOSE(b, k, 0, 1, 3, 2));
    const char *away = ONNX_NODE(b, "Sub", near, onnx_real(b, 1));
    away = ONNX_NODE(b, "Mul", away, onnx_real(b, FAR_AWAY));
    score = ONNX_NODE(b, "Add", ONNX_NODE(b, "Mul", score, near), away);
    const char *top = ONNX_NODE(b, "ReduceMax", score);
    onnx_set_ints(b, "axes", ONNX_I64S(-1), 1);
    score = ONNX_NODE(b, "Exp", ONNX_NODE(b, "Sub", score, top));
    const char *weight = ONNX_NODE(b, "Mul", score, near);
    if (!node_operand(node, "gate")) return weight;
    return ONNX_NODE(b, "Mul", weight, near_gain(x, node, top));
}

/* Linear attention with a window: q, k and v as heads, k of tokens that take part. */
static const char *attend_near(OnnxExport *x, const Node *node, bool own, const char *q,
                               const char *k, const char *v, const char *mask) {
    OnnxBuild *b = x->b;
    const int64_t H = node_heads(node), G = node_key_heads(node);
    Window window = {.node = node,
                     .own = own,
                     .width = node_integer(node, "window"),
                     .groups = G,
                     .features = node->in[0]->type.dim[2] / H,
                     .near = node_operand(node, "near_q")->type.dim[2] / H,
                     .wide = node->type.dim[2] / H + 1,
                     .k = k,
                     .v = v,
                     .valid = mask};
    window.near_k = onnx_split_heads(b, onnx_named(x, node, "near_k"), G, window.near);
    const char *state = own ? take_ring(x, &window, mask) : NULL;
    const char *near = near_pairs(x, &window);
    const char *far = ONNX_NODE(b, "LessOrEqual", ages(x, &window), onnx_i64(b, 0));
    const char *keys = onnx_repeat_heads(b, window.k, G, H, window.features);
    const char *weight = ONNX_NODE(b, "MatMul", q, ONNX_TRANSPOSE(b, keys, 0, 1, 3, 2));
    weight = ONNX_NODE(b, "Mul", weight, onnx_cast(b, far, b->real));
    weight = ONNX_NODE(b, "Add", weight, near_weights(x, &window, near));
    const char *values = onnx_repeat_heads(b, window.v, G, H, window.wide);
    const char *rows = ONNX_NODE(b, "MatMul", weight, values), *least = NULL;
    if (state) {
        state = onnx_repeat_heads(b, state, G, H, window.wide);
        rows = ONNX_NODE(b, "Add", rows, ONNX_NODE(b, "MatMul", q, state));
    }
    if (window.valid) { /* eps is for queries that have no key near */
        const char *any = ONNX_NODE(b, "ReduceMax", near);
        onnx_set_ints(b, "axes", ONNX_I64S(-1), 1);
        const char *none = ONNX_NODE(b, "Sub", onnx_real(b, 1), any);
        least = ONNX_NODE(b, "Mul", none, onnx_real(b, node_real(node, "eps")));
    }
    return divide(b, node, rows, least);
}

/* ---- the op ---- */

const char *onnx_op_linear_attention(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const bool causal = node_flag(node, "causal"), own = x->cached && causal;
    const int64_t H = node_heads(node), G = node_key_heads(node);
    const int64_t f = node->in[0]->type.dim[2] / H, e = node->type.dim[2] / H;
    const char *q = onnx_split_heads(b, onnx_operand(x, node, 0), H, f);
    const char *k = onnx_split_heads(b, onnx_operand(x, node, 1), G, f);
    const char *v = onnx_split_heads(b, onnx_operand(x, node, 2), G, e);
    v = with_ones(b, v);
    const char *mask = token_mask(x, node, own), *rows = NULL;
    if (mask) k = ONNX_NODE(b, "Mul", k, mask);
    if (node_integer(node, "window")) return attend_near(x, node, own, q, k, v, mask);
    if (causal) {
        const char *keys = onnx_repeat_heads(b, k, G, H, f);
        rows = among_own(x, node, q, keys, onnx_repeat_heads(b, v, G, H, e + 1));
    }
    if (own || !causal) {
        const char *state =
            own ? sum_before(x, node, k, v, f, e + 1)
                : ONNX_NODE(b, "MatMul", ONNX_TRANSPOSE(b, k, 0, 1, 3, 2), v);
        state = onnx_repeat_heads(b, state, G, H, e + 1);
        const char *before = ONNX_NODE(b, "MatMul", q, state);
        rows = rows ? ONNX_NODE(b, "Add", before, rows) : before;
    }
    return divide(b, node, rows, onnx_real(b, node_real(node, "eps")));
}
