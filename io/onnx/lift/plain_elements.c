/* Plain ops of operators that work element by element, and of reductions. See
 * lift_plain.h. */
#include "io/onnx/lift/lift_plain.h"
#include "io/onnx/lift/lift_rows.h"
#include "io/onnx/net/eval.h"

#include <float.h>
#include <math.h>
#include <string.h>

static bool is_integer(const NetValue *value) {
    return value->probe[0] && array_is_integer(value->probe[0]);
}

static Node *activated(Lift *lift, const NetNode *node, const char *fn, Node *x) {
    return x ? lift_op(lift, node, "activation", &x, 1, "fn=%s", fn) : NULL;
}

/* 1 - x of what is 0 or 1. */
static Node *negated(Lift *lift, const NetNode *node, Node *x) {
    return plain_with(lift, node, "equal", x, 0);
}

/* ---- one operand ---- */

static Node *rule_unary(Lift *lift, NetNode *node, NetValue *value) {
    (void)value;
    return plain_unary(lift, node, plain_row(node)->fn, plain_operand(lift, node, 0));
}

static Node *rule_activation(Lift *lift, NetNode *node, NetValue *value) {
    const char *fn = plain_row(node)->fn;
    (void)value;
    if (strcmp(fn, "gelu") == 0 && net_string_is(node, "approximate", "tanh", "none"))
        fn = "gelu_tanh";
    return activated(lift, node, fn, plain_operand(lift, node, 0));
}

static Node *rule_negative(Lift *lift, NetNode *node, NetValue *value) {
    (void)value;
    return plain_scaled(lift, node, plain_operand(lift, node, 0), -1);
}

static Node *rule_not(Lift *lift, NetNode *node, NetValue *value) {
    (void)value;
    return negated(lift, node, plain_operand(lift, node, 0));
}

static Node *rule_rsqrt(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_unary(lift, node, "sqrt", plain_operand(lift, node, 0));
    (void)value;
    return plain_unary(lift, node, "reciprocal", x);
}

/* log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)). */
static Node *rule_softplus(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    (void)value;
    Node *y = plain_scaled(lift, node, plain_unary(lift, node, "abs", x), -1);
    y = plain_with(lift, node, "add", plain_unary(lift, node, "exp", y), 1);
    y = plain_unary(lift, node, "log", y);
    return plain_binary(lift, node, "add", y, activated(lift, node, "relu", x));
}

static Node *rule_hard_swish(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    (void)value;
    Node *y = plain_with(lift, node, "add", plain_scaled(lift, node, x, 1.0 / 6), 0.5);
    y = plain_with(lift, node, "maximum", plain_with(lift, node, "minimum", y, 1), 0);
    return plain_binary(lift, node, "multiply", x, y);
}

static Node *rule_quick_gelu(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    (void)value;
    Node *y = plain_scaled(lift, node, x, net_real(node, "alpha", 1.702));
    return plain_binary(lift, node, "multiply", x, activated(lift, node, "sigmoid", y));
}

static Node *rule_leaky(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    (void)value;
    Node *in[3] = {plain_with(lift, node, "greater", x, 0), x,
                   plain_scaled(lift, node, x, net_real(node, "alpha", 0.01))};
    return in[0] && in[2] ? lift_op(lift, node, "where", in, 3, NULL) : NULL;
}

static Node *rule_is_nan(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    (void)value;
    return negated(lift, node, plain_binary(lift, node, "equal", x, x));
}

static Node *rule_clip(Lift *lift, NetNode *node, NetValue *value) {
    static const char *const FN[2] = {"maximum", "minimum"};
    static const char *const NAMES[2] = {"min", "max"};
    Node *x = plain_operand(lift, node, 0);
    (void)value;
    for (int side = 0; side < 2; side++) {
        const bool operand = net_operand(node, 1 + side) != NULL;
        const OnnxAttribute *attribute = net_attribute(node, NAMES[side]);
        double bound = attribute ? net_real(node, NAMES[side], 0) : 0;
        if (!operand && !attribute) continue;
        if (operand && !plain_number(node, 1 + side, &bound))
            x = plain_binary(lift, node, FN[side], x,
                             plain_operand(lift, node, 1 + side));
        else
            x = plain_with(lift, node, FN[side], x, bound);
    }
    return x;
}

/* Identity, Dropout, and Cast, which may round to integers or ask what is not 0. */
static Node *rule_cast(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = value->slot == 0 ? plain_operand(lift, node, 0) : NULL;
    if (!x || !value->probe[0] || !node->in[0]->probe[0]) return NULL;
    const int32_t from = node->in[0]->probe[0]->type, to = value->probe[0]->type;
    if (to == ONNX_BOOL && from != ONNX_BOOL)
        return negated(lift, node, negated(lift, node, x));
    if (is_integer(value) && !is_integer(node->in[0]))
        return plain_unary(lift, node, "trunc", x);
    return x;
}

/* ---- two operands ---- */

/* What fn(number, b) is of b. */
static Node *number_first(Lift *lift, const NetNode *node, const char *fn, double number,
                          Node *b) {
    if (strcmp(fn, "subtract") == 0)
        return plain_with(lift, node, "add", plain_scaled(lift, node, b, -1), number);
    if (strcmp(fn, "divide") == 0)
        return plain_scaled(lift, node, plain_unary(lift, node, "reciprocal", b), number);
    if (strcmp(fn, "less") == 0) return plain_with(lift, node, "greater", b, number);
    if (strcmp(fn, "greater") == 0) return plain_with(lift, node, "less", b, number);
    if (strcmp(fn, "power") != 0) return plain_with(lift, node, fn, b, number);
    if (!(number > 0)) return lift_stop(lift, node, "a power of a number below 0");
    return plain_unary(lift, node, "exp", plain_scaled(lift, node, b, log(number)));
}

/* Whether operands may change places: what is stored comes second then. */
static bool is_turned(const NetNode *node, const char *fn, int i, int j) {
    static const char *const EITHER[] = {"add", "multiply", "minimum", "maximum",
                                         "equal"};
    bool either = false;
    for (size_t k = 0; k < sizeof EITHER / sizeof *EITHER; k++)
        either = either || strcmp(fn, EITHER[k]) == 0;
    return either && net_operand(node, i) && net_operand(node, j) &&
           value_is_fixed(node->in[i]) && !value_is_fixed(node->in[j]);
}

/* Operands `i` and `j`; one may be a number. */
static Node *two_operands(Lift *lift, const NetNode *node, const char *fn, int i, int j) {
    double number;
    if (is_turned(node, fn, i, j)) return two_operands(lift, node, fn, j, i);
    const bool first = net_operand(node, i) && net_operand(node, j) &&
                       node->in[i]->probe[0] && node->in[j]->probe[0] &&
                       node->in[i]->probe[0]->rank <= node->in[j]->probe[0]->rank;
    if (plain_number(node, j, &number))
        return plain_with(lift, node, fn, plain_operand(lift, node, i), number);
    if (first && plain_number(node, i, &number))
        return number_first(lift, node, fn, number, plain_operand(lift, node, j));
    Node *a = plain_operand(lift, node, i);
    return a ? plain_binary(lift, node, fn, a, plain_operand(lift, node, j)) : NULL;
}

/* Integers are divided towards 0. */
static Node *rule_binary(Lift *lift, NetNode *node, NetValue *value) {
    const char *fn = plain_row(node)->fn;
    Node *y = two_operands(lift, node, fn, 0, 1);
    if (strcmp(fn, "divide") == 0 && is_integer(value))
        return plain_unary(lift, node, "trunc", y);
    return y;
}

/* The opposite of a comparison. */
static Node *rule_opposite(Lift *lift, NetNode *node, NetValue *value) {
    return negated(lift, node, rule_binary(lift, node, value));
}

/* Any number of operands, from the left. */
static Node *rule_fold(Lift *lift, NetNode *node, NetValue *value) {
    const char *fn = plain_row(node)->fn;
    if (node->in_count == 2) return rule_binary(lift, node, value);
    Node *y = plain_operand(lift, node, 0);
    for (int i = 1; i < node->in_count; i++)
        y = plain_binary(lift, node, fn, y, plain_operand(lift, node, i));
    return y;
}

static Node *rule_mean(Lift *lift, NetNode *node, NetValue *value) {
    return plain_scaled(lift, node, rule_fold(lift, node, value), 1.0 / node->in_count);
}

/* a - b floor(a / b), or with fmod towards 0. */
static Node *rule_mod(Lift *lift, NetNode *node, NetValue *value) {
    Node *a = plain_operand(lift, node, 0), *b = plain_operand(lift, node, 1);
    (void)value;
    Node *whole = plain_unary(lift, node, net_int(node, "fmod", 0) ? "trunc" : "floor",
                              plain_binary(lift, node, "divide", a, b));
    return plain_binary(lift, node, "subtract", a,
                        plain_binary(lift, node, "multiply", b, whole));
}

static Node *rule_where(Lift *lift, NetNode *node, NetValue *value) {
    double number[3] = {0};
    Node *in[3] = {plain_operand(lift, node, 0)};
    (void)value;
    if (!in[0]) return NULL;
    for (int i = 1; i < 3; i++)
        if (!plain_number(node, i, &number[i]) && !(in[i] = plain_operand(lift, node, i)))
            return NULL;
    return lift_op(lift, node, "where", in, 3, "a_number=%s b_number=%s",
                   short_decimal(lift, number[1]), short_decimal(lift, number[2]));
}

/* ---- reductions ---- */

/* Dimensions that a node reduces, as IR text "[1, 2]"; NULL when they are not known, ""
 * when there are none. */
static const char *axes_text(Lift *lift, const NetNode *node, int rank) {
    int count = 0;
    const int64_t *list = net_ints(node, "axes", &count);
    const NetValue *operand = net_operand(node, 1);
    const Array *array = operand ? operand->probe[0] : NULL;
    bool reduced[NET_RANK_MAX] = {false};
    if (operand && (!array || !array->data || array->count > NET_RANK_MAX)) return NULL;
    if (array) count = (int)array->count;
    if (count == 0 && net_int(node, "noop_with_empty_axes", 0)) return "";
    for (int d = 0; d < rank && count == 0; d++) reduced[d] = true;
    for (int i = 0; i < count; i++) {
        int axis;
        if (!eval_axis(array ? eval_integer(array->data[i]) : list[i], rank, &axis))
            return NULL;
        reduced[axis] = true;
    }
    const char *text = "";
    for (int d = 0; d < rank; d++)
        if (reduced[d])
            text = arena_printf(lift->arena, "%s%s%d", text, *text ? ", " : "[", d);
    return *text ? arena_printf(lift->arena, "%s]", text) : text;
}

static Node *reduced(Lift *lift, const NetNode *node, const char *fn, Node *x) {
    const char *axes = x ? axes_text(lift, node, x->type.rank) : NULL;
    if (!axes) return NULL;
    if (!*axes) return x;
    return lift_op(lift, node, "reduce", &x, 1, "fn=%s axes=%s keep=%s", fn, axes,
                   net_int(node, "keepdims", 1) ? "true" : "false");
}

static Node *rule_reduce(Lift *lift, NetNode *node, NetValue *value) {
    (void)value;
    return reduced(lift, node, plain_row(node)->fn, plain_operand(lift, node, 0));
}

/* Sums of absolute values or of squares, and the root of the latter. */
static Node *rule_norm(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    (void)value;
    x = net_is(node, "ReduceL1") ? plain_unary(lift, node, "abs", x)
                                 : plain_with(lift, node, "power", x, 2);
    x = reduced(lift, node, "sum", x);
    return net_is(node, "ReduceL2") ? plain_unary(lift, node, "sqrt", x) : x;
}

static Node *rule_cumsum(Lift *lift, NetNode *node, NetValue *value) {
    double at;
    int axis;
    Node *x = plain_operand(lift, node, 0);
    (void)value;
    if (!x || !plain_number(node, 1, &at) ||
        !eval_axis(eval_integer(at), x->type.rank, &axis))
        return NULL;
    return lift_op(lift, node, "cumsum", &x, 1, "axis=%d exclusive=%s reverse=%s", axis,
                   net_int(node, "exclusive", 0) ? "true" : "false",
                   net_int(node, "reverse", 0) ? "true" : "false");
}

const PlainRow plain_element_rows[] = {{"Abs", rule_unary, "abs"},
                                       {"Exp", rule_unary, "exp"},
                                       {"Log", rule_unary, "log"},
                                       {"Sqrt", rule_unary, "sqrt"},
                                       {"Reciprocal", rule_unary, "reciprocal"},
                                       {"Erf", rule_unary, "erf"},
                                       {"Sin", rule_unary, "sin"},
                                       {"Cos", rule_unary, "cos"},
                                       {"Floor", rule_unary, "floor"},
                                       {"Ceil", rule_unary, "ceil"},
                                       {"Round", rule_unary, "round"},
                                       {"Sign", rule_unary, "sign"},
                                       {"Tanh", rule_activation, "tanh"},
                                       {"Sigmoid", rule_activation, "sigmoid"},
                                       {"Relu", rule_activation, "relu"},
                                       {"Gelu", rule_activation, "gelu"},
                                       {"com.microsoft.Gelu", rule_activation, "gelu"},
                                       {"com.microsoft.Silu", rule_activation, "silu"},
                                       {"com.microsoft.QuickGelu", rule_quick_gelu, NULL},
                                       {"Neg", rule_negative, NULL},
                                       {"Not", rule_not, NULL},
                                       {"Rsqrt", rule_rsqrt, NULL},
                                       {"Softplus", rule_softplus, NULL},
                                       {"HardSwish", rule_hard_swish, NULL},
                                       {"LeakyRelu", rule_leaky, NULL},
                                       {"IsNaN", rule_is_nan, NULL},
                                       {"Clip", rule_clip, NULL},
                                       {"Identity", rule_cast, NULL},
                                       {"Dropout", rule_cast, NULL},
                                       {"Cast", rule_cast, NULL},
                                       {"CastLike", rule_cast, NULL},
                                       {"Add", rule_binary, "add"},
                                       {"Sub", rule_binary, "subtract"},
                                       {"Mul", rule_binary, "multiply"},
                                       {"Div", rule_binary, "divide"},
                                       {"Pow", rule_binary, "power"},
                                       {"Equal", rule_binary, "equal"},
                                       {"Less", rule_binary, "less"},
                                       {"Greater", rule_binary, "greater"},
                                       {"And", rule_binary, "minimum"},
                                       {"Or", rule_binary, "maximum"},
                                       {"Xor", rule_opposite, "equal"},
                                       {"LessOrEqual", rule_opposite, "greater"},
                                       {"GreaterOrEqual", rule_opposite, "less"},
                                       {"Min", rule_fold, "minimum"},
                                       {"Max", rule_fold, "maximum"},
                                       {"Sum", rule_fold, "add"},
                                       {"Mean", rule_mean, "add"},
                                       {"Mod", rule_mod, NULL},
                                       {"Where", rule_where, NULL},
                                       {"ReduceSum", rule_reduce, "sum"},
                                       {"ReduceMean", rule_reduce, "mean"},
                                       {"ReduceMax", rule_reduce, "max"},
                                       {"ReduceMin", rule_reduce, "min"},
                                       {"ReduceL1", rule_norm, NULL},
                                       {"ReduceL2", rule_norm, NULL},
                                       {"ReduceSumSquare", rule_norm, NULL},
                                       {"CumSum", rule_cumsum, NULL},
                                       {NULL, NULL, NULL}};
