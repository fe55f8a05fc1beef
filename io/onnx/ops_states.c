/* Ops with a state: linear attention with its feature maps, and recurrences. */
#include "io/onnx/onnx_export.h"

#include <math.h>

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

const char *onnx_op_linear_attention(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const bool causal = node_flag(node, "causal"), own = x->cached && causal;
    const int64_t H = node_heads(node), G = node_key_heads(node);
    const int64_t f = node->in[0]->type.dim[2] / H, e = node->type.dim[2] / H;
    const char *q = onnx_split_heads(b, onnx_operand(x, node, 0), H, f);
    const char *k = onnx_split_heads(b, onnx_operand(x, node, 1), G, f);
    const char *v = onnx_split_heads(b, onnx_operand(x, node, 2), G, e);
    /* Values with a column of ones, [N, G, S, e + 1]: products with it give numerator and
     * denominator together. */
    v = ONNX_NODE(b, "Pad", v, ONNX_VECTOR(b, 0, 0, 0, 0, 0, 0, 0, 1), onnx_real(b, 1));
    const char *mask = token_mask(x, node, own);
    if (mask) k = ONNX_NODE(b, "Mul", k, mask);
    const char *rows = NULL;
    if (causal) {
        const char *keys = onnx_repeat_heads(b, k, G, H, f);
        rows = among_own(x, node, q, keys, onnx_repeat_heads(b, v, G, H, e + 1));
    }
    if (own || !causal) {
        const int64_t dim[] = {0, G, f, e + 1};
        const char *const names[] = {ONNX_BATCH, NULL, NULL, NULL};
        const char *sum = ONNX_NODE(b, "MatMul", ONNX_TRANSPOSE(b, k, 0, 1, 3, 2), v);
        const char *state = sum;
        if (own) {
            state =
                onnx_state_in(x, arena_printf(b->arena, "past_recurrent.%d", node->layer),
                              dim, names, 4);
            sum = ONNX_NODE(b, "Add", state, sum);
            onnx_state_out(x, arena_printf(b->arena, "present_recurrent.%d", node->layer),
                           sum, dim, names, 4);
        }
        state = onnx_repeat_heads(b, state, G, H, e + 1);
        const char *before = ONNX_NODE(b, "MatMul", q, state);
        rows = rows ? ONNX_NODE(b, "Add", before, rows) : before;
    }
    const char *zero = ONNX_VECTOR(b, 0), *at = ONNX_VECTOR(b, e);
    const char *below = onnx_slice(b, rows, at, ONNX_VECTOR(b, e + 1), 3);
    below = ONNX_NODE(b, "Max", below, onnx_real(b, node_real(node, "eps")));
    rows = ONNX_NODE(b, "Div", onnx_slice(b, rows, zero, at, 3), below);
    return onnx_join_heads(b, rows, node->type.dim[2]);
}

/* ---- recurrences ---- */

/* A weight as ONNX's recurrent operators have them, with a first axis for directions. */
static const char *direction(OnnxExport *x, const Node *node, int i, OnnxForm form) {
    const Tensor *tensor = &onnx_storage(node, i)->tensor;
    const int64_t dim[] = {1, tensor->dim[0], tensor->rank > 1 ? tensor->dim[1] : 0};
    return onnx_weight(x->b, onnx_storage(node, i), form, dim, tensor->rank + 1);
}

/* A value in f32 where real values are f16, and back: onnxruntime has the recurrent
 * operators in f32 alone. */
static const char *to_single(OnnxBuild *b, const char *value) {
    return b->real == ONNX_F32 ? value : onnx_cast(b, value, ONNX_F32);
}
static const char *from_single(OnnxBuild *b, const char *value) {
    return b->real == ONNX_F32 ? value : onnx_cast(b, value, b->real);
}

/* Operator `op` over the tokens; states (NULL = zeros) are [1, N, H]. All its values are
 * f32; those of the tokens come out as [T, 1, N, H]. */
static const char *recurrence(OnnxExport *x, const Node *node, const char *op,
                              OnnxForm form, const char *hidden, const char *cell) {
    OnnxBuild *b = x->b;
    const int32_t real = b->real;
    const char *tokens = to_single(b, onnx_operand(x, node, 0));
    if (hidden) hidden = to_single(b, hidden);
    if (cell) cell = to_single(b, cell);
    b->real = ONNX_F32;
    tokens = ONNX_TRANSPOSE(b, tokens, 1, 0, 2);
    const char *weight = direction(x, node, 1, form);
    const char *state = direction(x, node, 2, form), *bias = "";
    if (node_has(node, 3)) {
        /* [1, 2 W]: those of the input and zeros for those of the state */
        bias = direction(x, node, 3, form);
        bias =
            ONNX_NODE(b, "Pad", bias, ONNX_VECTOR(b, 0, 0, 0, node->in[3]->type.dim[0]));
    }
    const char *in[] = {tokens, weight, state, bias, "", hidden, cell};
    const char *y = onnx_node(b, op, in, cell ? 7 : hidden ? 6 : 4);
    onnx_set_int(b, "hidden_size", node->type.dim[2]);
    b->real = real;
    return y;
}

/* [T, 1, N, H] as [N, T, H]. */
static const char *by_sample(OnnxBuild *b, const char *y) {
    return from_single(b, ONNX_TRANSPOSE(b, onnx_squeeze(b, y, 1), 1, 0, 2));
}

const char *onnx_op_rnn(OnnxExport *x, const Node *node) {
    const char *y = recurrence(x, node, "RNN", ONNX_AS_IT_IS, NULL, NULL);
    const char *fn = node_chooses(node, "fn", "tanh")      ? "Tanh"
                     : node_chooses(node, "fn", "sigmoid") ? "Sigmoid"
                                                           : "Relu";
    onnx_set_text(x->b, "activations", fn);
    return by_sample(x->b, y);
}

/* Row `i` of a state [N, 2, H], as [1, N, H]. */
static const char *half_of(OnnxBuild *b, const char *state, int64_t i) {
    state = onnx_slice(b, state, ONNX_VECTOR(b, i), ONNX_VECTOR(b, i + 1), 1);
    return ONNX_TRANSPOSE(b, state, 1, 0, 2);
}

/* A decoder's state is h and c, one under the other. */
const char *onnx_op_lstm(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    if (!x->cached)
        return by_sample(b, recurrence(x, node, "LSTM", ONNX_GATES, NULL, NULL));
    const int64_t dim[] = {0, 2, node->type.dim[2]};
    const char *const names[] = {ONNX_BATCH, NULL, NULL};
    const char *in = onnx_state_in(
        x, arena_printf(b->arena, "past_recurrent.%d", node->layer), dim, names, 3);
    const char *hidden = half_of(b, in, 0), *cell = half_of(b, in, 1);
    const char *y = recurrence(x, node, "LSTM", ONNX_GATES, hidden, cell);
    const char *last = onnx_more(b), *state = onnx_more(b);
    const char *out = onnx_concat(b, 0, last, state);
    out = from_single(b, ONNX_TRANSPOSE(b, out, 1, 0, 2));
    onnx_state_out(x, arena_printf(b->arena, "present_recurrent.%d", node->layer), out,
                   dim, names, 3);
    return by_sample(b, y);
}

/* ---- the decoder of a recurrent translation model ---- */

/* What attention_lstm has before its first token. */
typedef struct Decoder {
    const Node *node;
    int64_t width;      /* M */
    const char *memory; /* [N, S, R] */
    const char *keys;   /* [N, S, L]; NULL without alignment */
    const char *limits; /* added to scores [N, S]; NULL = all count */
    const char *mean;   /* context without alignment [N, R] */
} Decoder;

static const char *matrix(OnnxExport *x, const Node *node, const char *name) {
    const Storage *storage = onnx_storage(node, op_operand_index(node->op, name));
    const char *key = arena_printf(x->b->arena, "transposed %s", storage->name);
    const char *kept = onnx_kept(x->b, key);
    if (kept) return kept;
    const char *weight = onnx_weight(x->b, storage, ONNX_AS_IT_IS, NULL, 0);
    return onnx_keep(x->b, key, ONNX_TRANSPOSE(x->b, weight, 1, 0));
}

/* Mean of the tokens of the memory that count. */
static const char *mean_of(OnnxExport *x, const char *memory, const char *mask) {
    OnnxBuild *b = x->b;
    if (!mask) {
        const char *mean = ONNX_NODE(b, "ReduceMean", memory);
        onnx_set_ints(b, "axes", ONNX_I64S(1), 1);
        onnx_set_int(b, "keepdims", 0);
        return mean;
    }
    const char *weight = onnx_mask_real(x, mask);
    const char *count = ONNX_NODE(b, "ReduceSum", weight, ONNX_VECTOR(b, 1));
    onnx_set_int(b, "keepdims", 1);
    count = ONNX_NODE(b, "Max", count, onnx_real(b, 1));
    const char *sum = ONNX_NODE(b, "MatMul", onnx_unsqueeze(b, weight, 1), memory);
    return ONNX_NODE(b, "Div", onnx_squeeze(b, sum, 1), count);
}

static Decoder decoder_of(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const char *mask = onnx_named(x, node, "mask");
    Decoder d = {.node = node,
                 .width = node->type.dim[2],
                 .memory = onnx_named(x, node, "memory")};
    if (!node_operand(node, "align_score")) {
        d.mean = mean_of(x, d.memory, mask);
        return d;
    }
    d.keys = ONNX_NODE(b, "MatMul", d.memory, matrix(x, node, "align_memory"));
    if (!mask) return d;
    d.limits = ONNX_NODE(b, "Sub", onnx_mask_real(x, mask), onnx_real(b, 1));
    d.limits = ONNX_NODE(b, "Mul", d.limits, onnx_real(b, 10000));
    return d;
}

/* The context [N, R] that a state [N, M] looks for. */
static const char *context_of(OnnxBuild *b, const Decoder *d, const char *to_state,
                              const char *to_score, const char *state) {
    if (d->mean) return d->mean;
    const char *query = onnx_unsqueeze(b, ONNX_NODE(b, "MatMul", state, to_state), 1);
    const char *score = ONNX_NODE(b, "Tanh", ONNX_NODE(b, "Add", d->keys, query));
    score = onnx_squeeze(b, ONNX_NODE(b, "MatMul", score, to_score), 2);
    if (d->limits) score = ONNX_NODE(b, "Add", score, d->limits);
    score = onnx_unsqueeze(b, onnx_softmax(b, score, 1), 1);
    return onnx_squeeze(b, ONNX_NODE(b, "MatMul", score, d->memory), 1);
}

/* Block `i` of the sums of four gates [N, 4 M]. */
static const char *gate(OnnxBuild *b, const Decoder *d, const char *sums, int64_t i,
                        const char *fn) {
    const char *from = ONNX_VECTOR(b, i * d->width);
    const char *part = onnx_slice(b, sums, from, ONNX_VECTOR(b, (i + 1) * d->width), 1);
    return ONNX_NODE(b, fn, part);
}

/* One token: the body of a Scan from the cell s [N, M], the result y [N, M] and the
 * token's row to the next s and y, and y once more for all results. */
static OnnxBuild *one_token(OnnxExport *x, const Decoder *d, bool fed,
                            const char *to_state, const char *to_score) {
    OnnxBuild *outer = x->b, *b = onnx_build_inside(outer);
    Arena *arena = b->arena;
    const char *s = arena_printf(arena, "%s/cell", b->scope);
    const char *y = arena_printf(arena, "%s/result", b->scope);
    const char *token = arena_printf(arena, "%s/token", b->scope);
    const char *to_in = matrix(x, d->node, "weight_in");
    const char *to_context = matrix(x, d->node, "weight_context");
    const char *bias = onnx_named(x, d->node, "bias");
    onnx_input(b, s, b->real, NULL, NULL, -1);
    onnx_input(b, y, b->real, NULL, NULL, -1);
    onnx_input(b, token, fed ? b->real : ONNX_I64, NULL, NULL, -1);
    const char *context = context_of(b, d, to_state, to_score, s);
    const char *sums = ONNX_NODE(b, "MatMul", fed ? token : y, to_in);
    sums = ONNX_NODE(b, "Add", sums, ONNX_NODE(b, "MatMul", context, to_context));
    sums = ONNX_NODE(b, "Add", sums, bias);
    const char *in = gate(b, d, sums, 0, "Sigmoid"),
               *keep = gate(b, d, sums, 1, "Sigmoid");
    const char *new = gate(b, d, sums, 2, "Tanh"), *out = gate(b, d, sums, 3, "Sigmoid");
    const char *cell = ONNX_NODE(b, "Mul", keep, s);
    cell = ONNX_NODE(b, "Add", cell, ONNX_NODE(b, "Mul", in, new));
    const char *result = ONNX_NODE(b, "Mul", out, ONNX_NODE(b, "Tanh", cell));
    onnx_output(b, cell, b->real, NULL, NULL, -1);
    onnx_output(b, result, b->real, NULL, NULL, -1);
    onnx_output(b, ONNX_NODE(b, "Identity", result), b->real, NULL, NULL, -1);
    return b;
}

const char *onnx_op_attention_lstm(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const Decoder d = decoder_of(x, node);
    const char *token = onnx_named(x, node, "x"), *to_state = NULL, *to_score = NULL;
    const bool fed = token != NULL;
    if (!fed) token = onnx_named(x, node, "steps");
    if (d.keys) {
        to_state = matrix(x, node, "align_state");
        to_score = matrix(x, node, "align_score");
    }
    const char *cell, *result;
    const int64_t dim[] = {0, 2, d.width};
    const char *const names[] = {ONNX_BATCH, NULL, NULL};
    if (x->cached) {
        const char *in = onnx_state_in(
            x, arena_printf(b->arena, "past_recurrent.%d", node->layer), dim, names, 3);
        cell = onnx_gather(b, in, onnx_i64(b, 0), 1);
        result = onnx_gather(b, in, onnx_i64(b, 1), 1);
    } else {
        const char *shape =
            ONNX_NODE(b, "Concat", onnx_dim(b, d.memory, 0), ONNX_VECTOR(b, d.width));
        onnx_set_int(b, "axis", 0);
        cell = result = ONNX_NODE(b, "Expand", onnx_real(b, 0), shape);
    }
    OnnxBuild *body = one_token(x, &d, fed, to_state, to_score);
    const char *in[] = {cell, result, token};
    cell = onnx_node(b, "Scan", in, 3);
    result = onnx_more(b);
    const char *all = onnx_more(b);
    onnx_set_int(b, "num_scan_inputs", 1);
    onnx_set_ints(b, "scan_input_axes", ONNX_I64S(1), 1);
    onnx_set_ints(b, "scan_output_axes", ONNX_I64S(1), 1);
    onnx_set_body(b, "body", body);
    if (!x->cached) return all;
    cell = onnx_unsqueeze(b, cell, 1);
    const char *out = onnx_concat(b, 1, cell, onnx_unsqueeze(b, result, 1));
    onnx_state_out(x, arena_printf(b->arena, "present_recurrent.%d", node->layer), out,
                   dim, names, 3);
    return all;
}
