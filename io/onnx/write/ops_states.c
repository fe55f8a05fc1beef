/* Recurrences. */
#include "io/onnx/write/onnx_export.h"

#include <math.h>

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
