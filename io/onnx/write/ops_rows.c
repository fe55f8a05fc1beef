/* Ops that work row by row: projections, norms, activations, embeddings, positions. */
#include "io/onnx/write/onnx_export.h"
#include "io/onnx/write/onnx_few_bits.h"
#include "ir/rotary_angles.h"

#include <math.h>
#include <stdlib.h>

/* ---- projections ---- */

const char *onnx_linear_matrix(OnnxExport *x, const Node *node) {
    const Storage *storage = onnx_storage(node, 1);
    const Tensor *weight = &storage->tensor;
    if (node_flag(node, "transposed"))
        return onnx_weight(x->b, storage, ONNX_AS_IT_IS, NULL, 0);
    int index = 0;
    while (x->graph->storages[index] != storage) index++;
    if (x->whole[index] && !dtype_is_quantised(weight->dtype))
        return onnx_weight(x->b, storage, ONNX_TRANSPOSED, NULL, 0);
    const char *key = arena_printf(x->b->arena, "transposed %s", storage->name);
    const char *kept = onnx_kept(x->b, key);
    if (kept) return kept;
    const int64_t flat[] = {weight->dim[0],
                            node->in[0]->type.dim[node->in[0]->type.rank - 1]};
    const char *matrix =
        onnx_weight(x->b, storage, ONNX_AS_IT_IS, weight->rank > 2 ? flat : NULL, 2);
    return onnx_keep(x->b, key, ONNX_TRANSPOSE(x->b, matrix, 1, 0));
}

const char *onnx_op_linear(OnnxExport *x, const Node *node) {
    const char *y = onnx_few_bits_product(x, node);
    if (!y) {
        y = onnx_operand(x, node, 0);
        y = ONNX_NODE(x->b, "MatMul", y,
                      onnx_storage(node, 1) ? onnx_linear_matrix(x, node)
                                            : onnx_operand(x, node, 1));
    }
    return node_has(node, 2) ? ONNX_NODE(x->b, "Add", y, onnx_operand(x, node, 2)) : y;
}

/* ---- element by element ---- */

/* The later value comes first, as in PyTorch's `hidden_states + input_tensor`, which
 * onnxruntime's fusions look for. */
const char *onnx_op_add(OnnxExport *x, const Node *node) {
    const Node *a = node->in[0], *b = node->in[1];
    const bool turn = b->id > a->id && type_equal(&a->type, &b->type);
    const char *first = onnx_operand(x, node, turn);
    return ONNX_NODE(x->b, "Add", first, onnx_operand(x, node, !turn));
}

const char *onnx_op_multiply(OnnxExport *x, const Node *node) {
    const char *a = onnx_operand(x, node, 0);
    return ONNX_NODE(x->b, "Mul", a, onnx_operand(x, node, 1));
}

const char *onnx_op_layer_scale(OnnxExport *x, const Node *node) {
    return onnx_op_multiply(x, node);
}

const char *onnx_op_scale(OnnxExport *x, const Node *node) {
    return ONNX_NODE(x->b, "Mul", onnx_operand(x, node, 0),
                     onnx_real(x->b, node_real(node, "by")));
}

/* What is there for training alone leaves values as they are. */
const char *onnx_op_scale_gradient(OnnxExport *x, const Node *node) {
    return onnx_operand(x, node, 0);
}

const char *onnx_op_dropout(OnnxExport *x, const Node *node) {
    return onnx_operand(x, node, 0);
}

static const char *gelu(OnnxBuild *b, const char *u) {
    const char *y = ONNX_NODE(b, "Div", u, onnx_real(b, sqrt(2.0)));
    y = ONNX_NODE(b, "Erf", y);
    y = ONNX_NODE(b, "Add", y, onnx_real(b, 1));
    y = ONNX_NODE(b, "Mul", u, y);
    return ONNX_NODE(b, "Mul", y, onnx_real(b, 0.5));
}

static const char *gelu_tanh(OnnxBuild *b, const char *u) {
    const char *half = ONNX_NODE(b, "Mul", u, onnx_real(b, 0.5));
    const char *y = ONNX_NODE(b, "Pow", u, onnx_real(b, 3));
    y = ONNX_NODE(b, "Mul", y, onnx_real(b, 0.044715));
    y = ONNX_NODE(b, "Add", u, y);
    y = ONNX_NODE(b, "Mul", y, onnx_real(b, 0.79788456080286535588));
    y = ONNX_NODE(b, "Tanh", y);
    y = ONNX_NODE(b, "Add", y, onnx_real(b, 1));
    return ONNX_NODE(b, "Mul", half, y);
}

const char *onnx_op_activation(OnnxExport *x, const Node *node) {
    const char *u = onnx_operand(x, node, 0);
    if (node_chooses(node, "fn", "gelu")) return gelu(x->b, u);
    if (node_chooses(node, "fn", "gelu_tanh")) return gelu_tanh(x->b, u);
    if (node_chooses(node, "fn", "relu")) return ONNX_NODE(x->b, "Relu", u);
    if (node_chooses(node, "fn", "tanh")) return ONNX_NODE(x->b, "Tanh", u);
    const char *sigmoid = ONNX_NODE(x->b, "Sigmoid", u);
    return node_chooses(node, "fn", "silu") ? ONNX_NODE(x->b, "Mul", u, sigmoid)
                                            : sigmoid;
}

const char *onnx_op_softmax(OnnxExport *x, const Node *node) {
    const char *u = onnx_operand(x, node, 0);
    const double temperature = node_real(node, "temperature");
    if (temperature != 1) u = ONNX_NODE(x->b, "Div", u, onnx_real(x->b, temperature));
    return onnx_softmax(x->b, u, -1);
}

/* ---- norms ---- */

const char *onnx_op_layer_norm(OnnxExport *x, const Node *node) {
    const char *u = onnx_operand(x, node, 0), *weight = onnx_operand(x, node, 1);
    const char *bias = onnx_operand(x, node, 2);
    const char *y = bias ? ONNX_NODE(x->b, "LayerNormalization", u, weight, bias)
                         : ONNX_NODE(x->b, "LayerNormalization", u, weight);
    onnx_set_int(x->b, "axis", -1);
    onnx_set_real(x->b, "epsilon", node_real(node, "eps"));
    return y;
}

/* Squares may be beyond f16, so the norm is computed in f32. */
const char *onnx_op_rms_norm(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const int32_t real = b->real;
    const int64_t heads = node_integer(node, "heads"), width = node_width(node);
    const char *u = onnx_operand(x, node, 0), *weight = onnx_operand(x, node, 1);
    if (heads > 1) u = ONNX_RESHAPE(b, u, 0, 0, heads, width / heads);
    if (real != ONNX_F32) u = onnx_cast(b, u, ONNX_F32);
    b->real = ONNX_F32;
    const char *y = ONNX_NODE(b, "Pow", u, onnx_real(b, 2));
    y = ONNX_NODE(b, "ReduceMean", y);
    onnx_set_ints(b, "axes", ONNX_I64S(-1), 1);
    onnx_set_int(b, "keepdims", 1);
    y = ONNX_NODE(b, "Add", y, onnx_real(b, node_real(node, "eps")));
    y = ONNX_NODE(b, "Sqrt", y);
    y = ONNX_NODE(b, "Div", u, y);
    b->real = real;
    if (real != ONNX_F32) y = onnx_cast(b, y, real);
    if (node_flag(node, "unit_offset"))
        weight = ONNX_NODE(b, "Add", weight, onnx_real(b, 1));
    y = ONNX_NODE(b, "Mul", y, weight);
    return heads > 1 ? ONNX_RESHAPE(b, y, 0, 0, width) : y;
}

/* In f32: squares may be beyond f16. */
const char *onnx_op_normalize(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const int32_t real = b->real;
    const char *u = onnx_operand(x, node, 0);
    if (real != ONNX_F32) u = onnx_cast(b, u, ONNX_F32);
    b->real = ONNX_F32;
    const char *norm = ONNX_NODE(b, "ReduceL2", u);
    onnx_set_ints(b, "axes", ONNX_I64S(-1), 1);
    onnx_set_int(b, "keepdims", 1);
    norm = ONNX_NODE(b, "Max", norm, onnx_real(b, node_real(node, "eps")));
    const char *y = ONNX_NODE(b, "Div", u, norm);
    b->real = real;
    return real == ONNX_F32 ? y : onnx_cast(b, y, real);
}

/* ---- embeddings and positions ---- */

/* Rows are picked in the type that they are stored in, so that a table of half numbers
 * stays one. */
static const char *rows_of(OnnxExport *x, const Node *node, int table, const char *ids) {
    const Storage *storage = onnx_storage(node, table);
    if (!storage) return onnx_gather(x->b, onnx_operand(x, node, table), ids, 0);
    if (dtype_is_quantised(storage->tensor.dtype))
        return onnx_few_bits_rows(x->b, storage, ids, node->type.rank - 1);
    const char *rows =
        onnx_gather(x->b, onnx_stored(x->b, storage, ONNX_AS_IT_IS, NULL, 0), ids, 0);
    const bool same = onnx_data_type(storage->tensor.dtype) == x->b->real;
    return same ? rows : onnx_cast(x->b, rows, x->b->real);
}

const char *onnx_op_embedding(OnnxExport *x, const Node *node) {
    return rows_of(x, node, 1, onnx_operand(x, node, 0));
}

/* Positions of tokens of which `offset` - 1 are padding: offset - 1 for them, offset and
 * on for the others. */
static const char *positions_by_ids(OnnxBuild *b, const char *ids, int64_t offset) {
    const char *padding = onnx_i64(b, offset - 1);
    const char *counts = ONNX_NODE(b, "Not", ONNX_NODE(b, "Equal", ids, padding));
    counts = onnx_cast(b, counts, ONNX_I64);
    const char *numbers = ONNX_NODE(b, "CumSum", counts, onnx_i64(b, 1));
    return ONNX_NODE(b, "Add", ONNX_NODE(b, "Mul", numbers, counts), padding);
}

const char *onnx_op_add_position(OnnxExport *x, const Node *node) {
    const int64_t offset = node_integer(node, "offset");
    const char *ids = node_has(node, 2)
                          ? positions_by_ids(x->b, onnx_operand(x, node, 2), offset)
                          : onnx_positions(x, node->type.dim[1], offset);
    const char *rows = rows_of(x, node, 1, ids);
    return ONNX_NODE(x->b, "Add", onnx_operand(x, node, 0), rows);
}

/* Angles of positions [., T, width]: the position times each of `angles`. */
static const char *angles_of(OnnxExport *x, const Node *node, int64_t width,
                             const RotaryAngles *angles) {
    OnnxBuild *b = x->b;
    const char *at = onnx_positions(x, node->type.dim[1], node_integer(node, "offset"));
    double *exact = memory_alloc((size_t)width, sizeof *exact);
    float *turns = memory_alloc((size_t)width, sizeof *turns);
    rotary_angles(exact, width, angles);
    for (int64_t j = 0; j < width; j++) turns[j] = (float)exact[j];
    const int32_t real = b->real;
    b->real = ONNX_F32; /* positions may be beyond f16 */
    at = onnx_unsqueeze(b, onnx_cast(b, at, ONNX_F32), 2);
    at = ONNX_NODE(b, "Mul", at, onnx_f32s(b, turns, &width, 1));
    b->real = real;
    free(exact);
    free(turns);
    return at;
}

static const char *to_real(OnnxBuild *b, const char *y) {
    return b->real == ONNX_F32 ? y : onnx_cast(b, y, b->real);
}

const char *onnx_op_add_sinusoid(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const RotaryAngles plain = {.theta = node_real(node, "theta")};
    const char *angles = angles_of(x, node, node->type.dim[2] / 2, &plain);
    const char *sine = ONNX_NODE(b, "Sin", angles);
    const char *waves = to_real(b, onnx_concat(b, 2, sine, ONNX_NODE(b, "Cos", angles)));
    return ONNX_NODE(b, "Add", onnx_operand(x, node, 0), waves);
}

static RotaryAngles angles_of_node(const Node *node) {
    const RotaryScaling scaling = node_chooses(node, "scaling", "linear") ? ROTARY_LINEAR
                                  : node_chooses(node, "scaling", "llama3")
                                      ? ROTARY_LLAMA3
                                  : node_chooses(node, "scaling", "yarn") ? ROTARY_YARN
                                                                          : ROTARY_PLAIN;
    return (RotaryAngles){node_real(node, "theta"),  scaling,
                          node_real(node, "factor"), node_real(node, "original"),
                          node_real(node, "slow"),   node_real(node, "fast"),
                          node_flag(node, "whole")};
}

/* Cosines and sines of all heads [., T, 1, r], one pair of values for all nodes that turn
 * alike. */
static void turns_of(OnnxExport *x, const Node *node, int64_t width, const char **cosine,
                     const char **sine) {
    OnnxBuild *b = x->b;
    const RotaryAngles a = angles_of_node(node);
    const double amplitude = node_real(node, "amplitude");
    const char *key = arena_printf(
        b->arena, "turns %d %lld %lld %a %d %a %a %a %a %d %a", (int)node->type.dim[1],
        (long long)width, (long long)node_integer(node, "offset"), a.theta,
        (int)a.scaling, a.factor, a.original, a.slow, a.fast, a.whole, amplitude);
    const char *cosines = arena_printf(b->arena, "%s cos", key);
    const char *sines = arena_printf(b->arena, "%s sin", key);
    *cosine = onnx_kept(b, cosines);
    *sine = onnx_kept(b, sines);
    if (*cosine) return;
    const char *angles = angles_of(x, node, width / 2, &a);
    angles = onnx_unsqueeze(b, onnx_concat(b, 2, angles, angles), 2);
    *cosine = to_real(b, ONNX_NODE(b, "Cos", angles));
    *sine = to_real(b, ONNX_NODE(b, "Sin", angles));
    if (amplitude != 1) {
        *cosine = ONNX_NODE(b, "Mul", *cosine, onnx_real(b, amplitude));
        *sine = ONNX_NODE(b, "Mul", *sine, onnx_real(b, amplitude));
    }
    onnx_keep(b, cosines, *cosine);
    onnx_keep(b, sines, *sine);
}

const char *onnx_op_rotary(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const int64_t heads = node_integer(node, "heads"), all = node->type.dim[2];
    const int64_t whole = all / heads, part = node_integer(node, "turned");
    const int64_t width = part ? part : whole;
    const char *cosine, *sine, *rest = NULL;
    turns_of(x, node, width, &cosine, &sine);
    const char *u = ONNX_RESHAPE(b, onnx_operand(x, node, 0), 0, 0, heads, whole);
    if (width < whole) {
        rest = onnx_slice(b, u, ONNX_VECTOR(b, width), ONNX_VECTOR(b, whole), 3);
        u = onnx_slice(b, u, ONNX_VECTOR(b, 0), ONNX_VECTOR(b, width), 3);
    }
    const char *middle = ONNX_VECTOR(b, width / 2);
    const char *low = onnx_slice(b, u, ONNX_VECTOR(b, 0), middle, 3);
    const char *high = onnx_slice(b, u, middle, ONNX_VECTOR(b, width), 3);
    const char *turned = onnx_concat(b, 3, ONNX_NODE(b, "Neg", high), low);
    const char *y = ONNX_NODE(b, "Mul", u, cosine);
    y = ONNX_NODE(b, "Add", y, ONNX_NODE(b, "Mul", turned, sine));
    if (rest) y = onnx_concat(b, 3, y, rest);
    return ONNX_RESHAPE(b, y, 0, 0, all);
}
