/* Ops on tensors of any shape: nearly each is an operator of ONNX. Shapes with symbols
 * are computed from those of the inputs. */
#include "io/onnx/write/onnx_export.h"

#include <math.h>

/* ---- shapes ---- */

/* A symbol's size, a vector of one element. */
static const char *size_of_symbol(OnnxExport *x, int64_t symbol) {
    if (symbol != DIM_N) return onnx_length(x, symbol);
    const char *kept = onnx_kept(x->b, "samples");
    for (const Node *node = x->graph->first; node && !kept; node = node->next)
        if (node_is_input(node) && node->type.rank > 0 && node->type.dim[0] == DIM_N &&
            x->values[node->id])
            kept = onnx_keep(x->b, "samples", onnx_dim(x->b, x->values[node->id], 0));
    return kept;
}

/* A dimension, a vector of one element: its factors, multiplied. */
static const char *size_of(OnnxExport *x, int64_t dim) {
    const int64_t number = dim_number(dim);
    const char *product = dim >= 0 || number != 1 ? ONNX_VECTOR(x->b, number) : NULL;
    for (int64_t symbol = DIM_N; symbol >= -DIM_SYMBOLS; symbol--)
        for (int k = 0; k < dim_power(dim, symbol); k++) {
            const char *size = size_of_symbol(x, symbol);
            product = product ? ONNX_NODE(x->b, "Mul", product, size) : size;
        }
    return product;
}

/* A shape, a vector; `free_dim` is left for Reshape to find out (-1 = none is). */
static const char *shape_of(OnnxExport *x, const Type *type, int free_dim) {
    const char *part[RANK_MAX];
    int64_t number[RANK_MAX];
    bool known = true;
    for (int d = 0; d < type->rank; d++) {
        number[d] = d == free_dim ? -1 : type->dim[d];
        known = known && (number[d] >= 0 || d == free_dim);
    }
    if (known) return onnx_i64s(x->b, number, type->rank);
    for (int d = 0; d < type->rank; d++)
        part[d] = d == free_dim ? ONNX_VECTOR(x->b, -1) : size_of(x, type->dim[d]);
    if (type->rank == 1) return part[0];
    const char *shape = onnx_node(x->b, "Concat", part, type->rank);
    onnx_set_int(x->b, "axis", 0);
    return shape;
}

const char *onnx_op_reshape(OnnxExport *x, const Node *node) {
    int last = -1; /* one dimension that is no number follows from the others */
    for (int d = 0; d < node->type.rank; d++)
        if (node->type.dim[d] < 0) last = d;
    const char *u = onnx_operand(x, node, 0);
    return ONNX_NODE(x->b, "Reshape", u, shape_of(x, &node->type, last));
}

const char *onnx_op_expand(OnnxExport *x, const Node *node) {
    const char *u = onnx_operand(x, node, 0);
    return ONNX_NODE(x->b, "Expand", u, shape_of(x, &node->type, -1));
}

const char *onnx_op_transpose(OnnxExport *x, const Node *node) {
    const IntList axes = node_integers(node, "axes");
    return onnx_transpose(x->b, onnx_operand(x, node, 0), axes.items, axes.count);
}

/* ---- parts ---- */

/* The end of a slice of so many indices, one behind the last; ends that would count from
 * the other side are far beyond it. */
static const char *slice_end(OnnxExport *x, const Node *node) {
    const int64_t start = node_integer(node, "start"), step = node_integer(node, "step"),
                  size = node->type.dim[node_integer(node, "axis")];
    if (size < 0 && step < 0) return ONNX_VECTOR(x->b, INT64_MIN + 1);
    if (size < 0) {
        const char *end =
            ONNX_NODE(x->b, "Mul", size_of(x, size), ONNX_VECTOR(x->b, step));
        return ONNX_NODE(x->b, "Add", end, ONNX_VECTOR(x->b, start));
    }
    const int64_t last = start + (size - 1) * step;
    if (step > 0)
        return ONNX_VECTOR(x->b, start < 0 && last == -1 ? INT64_MAX : last + 1);
    return ONNX_VECTOR(x->b, start >= 0 && last == 0 ? INT64_MIN + 1 : last - 1);
}

const char *onnx_op_slice(OnnxExport *x, const Node *node) {
    const char *u = onnx_operand(x, node, 0), *end = slice_end(x, node);
    const char *start = ONNX_VECTOR(x->b, node_integer(node, "start"));
    return ONNX_NODE(x->b, "Slice", u, start, end,
                     ONNX_VECTOR(x->b, node_integer(node, "axis")),
                     ONNX_VECTOR(x->b, node_integer(node, "step")));
}

const char *onnx_op_gather(OnnxExport *x, const Node *node) {
    const char *u = onnx_operand(x, node, 0);
    const char *at = onnx_cast(x->b, onnx_operand(x, node, 1), ONNX_I64);
    return onnx_gather(x->b, u, at, node_integer(node, "axis"));
}

const char *onnx_op_concat(OnnxExport *x, const Node *node) {
    const char **part = ARENA_ARRAY(x->b->arena, const char *, (size_t)node->in_count);
    for (int i = 0; i < node->in_count; i++) part[i] = onnx_operand(x, node, i);
    const char *y = onnx_node(x->b, "Concat", part, node->in_count);
    onnx_set_int(x->b, "axis", node_integer(node, "axis"));
    return y;
}

/* ---- element by element ---- */

const char *onnx_op_to_real(OnnxExport *x, const Node *node) {
    return onnx_cast(x->b, onnx_operand(x, node, 0), x->b->real);
}

/* The operator of a function, ended by NULL. */
typedef struct Function {
    const char *fn, *operator;
} Function;

static const char *operator_of(const Node *node, const Function *row) {
    while (row->fn && !node_chooses(node, "fn", row->fn)) row++;
    return row->operator;
}

const char *onnx_op_unary(OnnxExport *x, const Node *node) {
    static const Function FUNCTIONS[] = {
        {"abs", "Abs"},   {"exp", "Exp"},     {"log", "Log"},
        {"sqrt", "Sqrt"}, {"erf", "Erf"},     {"reciprocal", "Reciprocal"},
        {"sin", "Sin"},   {"cos", "Cos"},     {"floor", "Floor"},
        {"ceil", "Ceil"}, {"round", "Round"}, {"sign", "Sign"},
        {NULL, NULL}};
    const char *u = onnx_operand(x, node, 0), *operator= operator_of(node, FUNCTIONS);
    if (operator) return ONNX_NODE(x->b, operator, u);
    const char *whole = ONNX_NODE(x->b, "Floor", ONNX_NODE(x->b, "Abs", u));
    return ONNX_NODE(x->b, "Mul", ONNX_NODE(x->b, "Sign", u), whole);
}

/* Numbers beyond f16 stand for infinity; as such they would make 0 times them NaN. */
static const char *number(OnnxBuild *b, double value) {
    const double most = b->real == ONNX_F16 ? 65504 : HUGE_VAL;
    return onnx_real(b, fmax(-most, fmin(most, value)));
}

const char *onnx_op_binary(OnnxExport *x, const Node *node) {
    static const Function FUNCTIONS[] = {{"add", "Add"},      {"subtract", "Sub"},
                                         {"multiply", "Mul"}, {"divide", "Div"},
                                         {"power", "Pow"},    {"minimum", "Min"},
                                         {"maximum", "Max"},  {NULL, NULL}},
                          COMPARISONS[] = {{"equal", "Equal"},
                                           {"less", "Less"},
                                           {"greater", "Greater"},
                                           {NULL, NULL}};
    const char *u = onnx_operand(x, node, 0), *v = onnx_operand(x, node, 1);
    const char *operator= operator_of(node, FUNCTIONS);
    if (!v) v = number(x->b, node_real(node, "number"));
    if (operator) return ONNX_NODE(x->b, operator, u, v);
    return onnx_cast(x->b, ONNX_NODE(x->b, operator_of(node, COMPARISONS), u, v),
                     x->b->real);
}

const char *onnx_op_where(OnnxExport *x, const Node *node) {
    const char *yes = onnx_operand(x, node, 1), *no = onnx_operand(x, node, 2);
    const char *condition =
        ONNX_NODE(x->b, "Greater", onnx_operand(x, node, 0), onnx_real(x->b, 0));
    return ONNX_NODE(x->b, "Where", condition,
                     yes ? yes : number(x->b, node_real(node, "a_number")),
                     no ? no : number(x->b, node_real(node, "b_number")));
}

/* ---- sums ---- */

const char *onnx_op_matmul(OnnxExport *x, const Node *node) {
    const char *a = onnx_operand(x, node, 0);
    return ONNX_NODE(x->b, "MatMul", a, onnx_operand(x, node, 1));
}

const char *onnx_op_reduce(OnnxExport *x, const Node *node) {
    static const Function FUNCTIONS[] = {
        {"mean", "ReduceMean"}, {"max", "ReduceMax"}, {"min", "ReduceMin"}, {NULL, NULL}};
    const IntList axes = node_integers(node, "axes");
    const char *u = onnx_operand(x, node, 0), *y;
    const char *operator= operator_of(node, FUNCTIONS);
    if (operator) {
        y = ONNX_NODE(x->b, operator, u);
        onnx_set_ints(x->b, "axes", axes.items, axes.count);
    } else { /* the only one whose axes are an operand by opset 17 */
        y = ONNX_NODE(x->b, "ReduceSum", u, onnx_i64s(x->b, axes.items, axes.count));
    }
    onnx_set_int(x->b, "keepdims", node_flag(node, "keep"));
    return y;
}

/* onnxruntime sums f32 alone. */
const char *onnx_op_cumsum(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const char *u = onnx_operand(x, node, 0);
    if (b->real != ONNX_F32) u = onnx_cast(b, u, ONNX_F32);
    u = ONNX_NODE(b, "CumSum", u, onnx_i64(b, node_integer(node, "axis")));
    onnx_set_int(b, "exclusive", node_flag(node, "exclusive"));
    onnx_set_int(b, "reverse", node_flag(node, "reverse"));
    return b->real == ONNX_F32 ? u : onnx_cast(b, u, b->real);
}
