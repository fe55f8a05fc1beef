/* Operators that work element by element, and reductions. See eval.h. */
#include "io/onnx/net/eval.h"

#include "ir/half.h"

#include <math.h>

#define ONE_FN(name, value)                                                              \
    static double name(double x) {                                                       \
        return value;                                                                    \
    }
#define TWO_FN(name, value)                                                              \
    static double name(double a, double b) {                                             \
        return value;                                                                    \
    }

/* ---- functions of one number ---- */

ONE_FN(fn_neg, -x)
ONE_FN(fn_abs, fabs(x))
ONE_FN(fn_relu, x > 0 ? x : 0)
ONE_FN(fn_sigmoid, 1 / (1 + exp(-x)))
ONE_FN(fn_softplus, x > 30 ? x : log1p(exp(x)))
ONE_FN(fn_reciprocal, 1 / x)
ONE_FN(fn_rsqrt, 1 / sqrt(x))
ONE_FN(fn_sign, x > 0 ? 1 : x < 0 ? -1 : 0)
ONE_FN(fn_not, x == 0)
ONE_FN(fn_round, nearbyint(x))
ONE_FN(fn_gelu, 0.5 * x * (1 + erf(x * M_SQRT1_2)))
ONE_FN(fn_gelu_tanh,
       0.5 * x * (1 + tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x))))
ONE_FN(fn_silu, x *fn_sigmoid(x))
ONE_FN(fn_hard_swish, x *fmax(0, fmin(1, x / 6 + 0.5)))
ONE_FN(fn_isnan, isnan(x) != 0)
ONE_FN(fn_isinf, isinf(x) != 0)
ONE_FN(fn_identity, x)

/* ---- and of two ---- */

TWO_FN(fn_add, a + b)
TWO_FN(fn_sub, a - b)
TWO_FN(fn_mul, a *b)
TWO_FN(fn_div, a / b)
TWO_FN(fn_pow, pow(a, b))
TWO_FN(fn_min, isnan(a) || a < b ? a : b)
TWO_FN(fn_max, isnan(a) || a > b ? a : b)
TWO_FN(fn_equal, a == b)
TWO_FN(fn_less, a < b)
TWO_FN(fn_less_equal, a <= b)
TWO_FN(fn_greater, a > b)
TWO_FN(fn_greater_equal, a >= b)
TWO_FN(fn_and, a != 0 && b != 0)
TWO_FN(fn_or, a != 0 || b != 0)
TWO_FN(fn_xor, (a != 0) != (b != 0))
static double fn_mod(double a, double b) {
    const double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
TWO_FN(fn_fmod, fmod(a, b))
TWO_FN(fn_quotient, b == 0 ? 0 : trunc(a / b))

/* ---- types ---- */

/* The number as a type holds it; integers wrap around. */
static double number_as(int32_t type, double x) {
    switch (type) {
    case ONNX_F32: return (double)(float)x;
    case ONNX_F64: return x;
    case ONNX_F16: return (double)f16_to_float(f16_from_float((float)x));
    case ONNX_BF16: return (double)bf16_to_float(bf16_from_float((float)x));
    case ONNX_BOOL: return x != 0;
    case ONNX_I64:
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT64: return trunc(x);
    default: break;
    }
    const double range = ldexp(1, 8 * (int)net_element_bytes(type));
    const bool is_signed = type == ONNX_I8 || type == ONNX_I32 ||
                           type == ONNX__TENSOR_PROTO__DATA_TYPE__INT16;
    if (!isfinite(x)) return 0;
    double rest = fmod(trunc(x), range);
    if (rest < 0) rest += range;
    return is_signed && rest >= range / 2 ? rest - range : rest;
}

/* ---- running them ---- */

/* The shape that operands are broadcast to. */
static bool broadcast_shape(EvalCall *call, int *rank, int64_t *dim) {
    *rank = 0;
    for (int i = 0; i < call->in_count; i++)
        if (call->in[i] && call->in[i]->rank > *rank) *rank = call->in[i]->rank;
    for (int k = 0; k < *rank; k++) dim[k] = 1;
    for (int i = 0; i < call->in_count; i++) {
        const Array *array = call->in[i];
        for (int k = 0; array && k < array->rank; k++) {
            int64_t *to = &dim[*rank - array->rank + k];
            if (*to != array->dim[k] && *to != 1 && array->dim[k] != 1)
                return eval_fault(call, "its operands' shapes do not go together");
            if (array->dim[k] != 1) *to = array->dim[k];
        }
    }
    return true;
}

static bool run_one(EvalCall *call) {
    const EvalRow *row = eval_find(call->node->op);
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    const bool test = row->one == fn_not || row->one == fn_isnan || row->one == fn_isinf;
    Array *y = eval_result(call, 0, test ? ONNX_BOOL : x->type, x->rank, x->dim,
                           x->data != NULL);
    if (!y) return false;
    for (int64_t i = 0; y->data && i < y->count; i++)
        y->data[i] = number_as(y->type, row->one(x->data[i]));
    return true;
}

/* IsInf with one of the signs left out. */
static bool run_isinf(EvalCall *call) {
    if (!run_one(call)) return false;
    Array *y = call->out[0];
    const bool negative = net_int(call->node, "detect_negative", 1) != 0;
    const bool positive = net_int(call->node, "detect_positive", 1) != 0;
    for (int64_t i = 0; y->data && i < y->count; i++) {
        const double x = call->in[0]->data[i];
        y->data[i] = isinf(x) && (x > 0 ? positive : negative);
    }
    return true;
}

/* Operands two by two, from the left. */
static bool fold_two(EvalCall *call, double (*two)(double, double), int32_t type) {
    int rank;
    int64_t dim[NET_RANK_MAX], step[NET_RANK_MAX], index[NET_RANK_MAX] = {0};
    if (!eval_has(call, 1) || !broadcast_shape(call, &rank, dim)) return false;
    Array *y = eval_result(call, 0, type, rank, dim, eval_knows(call));
    if (!y || !y->data || y->count == 0) return y != NULL;
    for (int k = 0; k < call->in_count; k++) {
        const Array *x = call->in[k];
        if (!x) continue;
        array_broadcast(x, rank, step);
        int64_t at = 0;
        do {
            int64_t from = 0;
            for (int d = 0; d < rank; d++) from += index[d] * step[d];
            y->data[at] = k == 0 ? x->data[from] : two(y->data[at], x->data[from]);
            at++;
        } while (array_next(rank, dim, index));
    }
    for (int64_t i = 0; i < y->count; i++) y->data[i] = number_as(type, y->data[i]);
    return true;
}

static bool is_test(double (*two)(double, double)) {
    return two == fn_equal || two == fn_less || two == fn_less_equal ||
           two == fn_greater || two == fn_greater_equal || two == fn_and ||
           two == fn_or || two == fn_xor;
}

static bool run_two(EvalCall *call) {
    double (*two)(double, double) = eval_find(call->node->op)->two;
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    if (two == fn_div && array_is_integer(x)) two = fn_quotient;
    if (two == fn_mod && net_int(call->node, "fmod", 0)) two = fn_fmod;
    /* ids less themselves: zeros of their shape, from which positions are counted */
    if (two == fn_sub && call->in_count == 2 && x == call->in[1] && array_is_integer(x))
        return eval_result(call, 0, x->type, x->rank, x->dim, true) != NULL;
    return fold_two(call, two, is_test(two) ? ONNX_BOOL : x->type);
}

static bool run_mean(EvalCall *call) {
    if (!eval_has(call, 1) || !fold_two(call, fn_add, call->in[0]->type)) return false;
    Array *y = call->out[0];
    for (int64_t i = 0; y->data && i < y->count; i++) y->data[i] /= call->in_count;
    return true;
}

static bool run_where(EvalCall *call) {
    int rank;
    int64_t dim[NET_RANK_MAX], step[3][NET_RANK_MAX], index[NET_RANK_MAX] = {0};
    if (!eval_has(call, 3) || !broadcast_shape(call, &rank, dim)) return false;
    Array *y = eval_result(call, 0, call->in[1]->type, rank, dim, eval_knows(call));
    if (!y || !y->data || y->count == 0) return y != NULL;
    for (int k = 0; k < 3; k++) array_broadcast(call->in[k], rank, step[k]);
    int64_t to = 0;
    do {
        int64_t at[3] = {0};
        for (int k = 0; k < 3; k++)
            for (int d = 0; d < rank; d++) at[k] += index[d] * step[k][d];
        const int from = call->in[0]->data[at[0]] != 0 ? 1 : 2;
        y->data[to++] = call->in[from]->data[at[from]];
    } while (array_next(rank, dim, index));
    return true;
}

static bool run_cast(EvalCall *call) {
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0], *like = eval_in(call, 1);
    const int32_t type = like ? like->type : (int32_t)net_int(call->node, "to", 0);
    if (!net_element_bytes(type)) return eval_fault(call, "it makes no numbers");
    Array *y = eval_result(call, 0, type, x->rank, x->dim, x->data != NULL);
    if (!y) return false;
    for (int64_t i = 0; y->data && i < y->count; i++)
        y->data[i] = number_as(type, x->data[i]);
    return true;
}

/* Bounds are operands since version 11, attributes before. */
static bool run_clip(EvalCall *call) {
    double least = net_real(call->node, "min", -INFINITY);
    double most = net_real(call->node, "max", INFINITY);
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0], *low = eval_in(call, 1), *high = eval_in(call, 2);
    Array *y = eval_result(call, 0, x->type, x->rank, x->dim, eval_knows(call));
    if (!y || !y->data) return y != NULL;
    if ((low && !array_scalar(low, &least)) || (high && !array_scalar(high, &most)))
        return eval_fault(call, "expected bounds that are one number each");
    for (int64_t i = 0; i < y->count; i++)
        y->data[i] = fmin(fmax(x->data[i], least), most);
    return true;
}

static bool run_gelu(EvalCall *call) {
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    const bool tanh_form = net_string_is(call->node, "approximate", "tanh", "none");
    Array *y = eval_result(call, 0, x->type, x->rank, x->dim, x->data != NULL);
    if (!y) return false;
    for (int64_t i = 0; y->data && i < y->count; i++)
        y->data[i] = tanh_form ? fn_gelu_tanh(x->data[i]) : fn_gelu(x->data[i]);
    return true;
}

static bool run_leaky(EvalCall *call) {
    const double slope = net_real(call->node, "alpha", 0.01);
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    Array *y = eval_result(call, 0, x->type, x->rank, x->dim, x->data != NULL);
    if (!y) return false;
    for (int64_t i = 0; y->data && i < y->count; i++)
        y->data[i] = x->data[i] < 0 ? slope * x->data[i] : x->data[i];
    return true;
}

/* QuickGelu of onnxruntime: x sigmoid(alpha x). */
static bool run_quick_gelu(EvalCall *call) {
    const double alpha = net_real(call->node, "alpha", 1.702);
    if (!eval_has(call, 1)) return false;
    const Array *x = call->in[0];
    Array *y = eval_result(call, 0, x->type, x->rank, x->dim, x->data != NULL);
    if (!y) return false;
    for (int64_t i = 0; y->data && i < y->count; i++)
        y->data[i] = x->data[i] * fn_sigmoid(alpha * x->data[i]);
    return true;
}

/* ---- reductions ---- */

typedef struct Reduction {
    const char *op;
    double start;
    double (*step)(double sum, double x);
    double (*end)(double sum, double count);
} Reduction;

TWO_FN(add_square, a + b * b)
TWO_FN(add_absolute, a + fabs(b))
TWO_FN(end_sum, ((void)b, a))
TWO_FN(end_mean, a / b)
TWO_FN(end_root, ((void)b, sqrt(a)))

static const Reduction REDUCTIONS[] = {
    {"ReduceSum", 0, fn_add, end_sum},        {"ReduceMean", 0, fn_add, end_mean},
    {"ReduceProd", 1, fn_mul, end_sum},       {"ReduceMax", -INFINITY, fn_max, end_sum},
    {"ReduceMin", INFINITY, fn_min, end_sum}, {"ReduceL1", 0, add_absolute, end_sum},
    {"ReduceL2", 0, add_square, end_root},    {"ReduceSumSquare", 0, add_square, end_sum},
};

/* Which dimensions are reduced; all of them where none is named, unless that means none.
 */
static bool reduced_axes(EvalCall *call, bool *reduced) {
    const Array *x = call->in[0];
    int64_t axes[NET_RANK_MAX];
    int count, axis;
    if (!eval_integers(call, 1, "axes", axes, &count)) return false;
    const bool all = count <= 0 && !net_int(call->node, "noop_with_empty_axes", 0);
    for (int d = 0; d < NET_RANK_MAX; d++) reduced[d] = all;
    for (int i = 0; i < count; i++) {
        if (!eval_axis(axes[i], x->rank, &axis)) return eval_fault(call, "no such axis");
        reduced[axis] = true;
    }
    return true;
}

static bool run_reduce(EvalCall *call) {
    bool reduced[NET_RANK_MAX];
    int64_t kept[NET_RANK_MAX], short_dim[NET_RANK_MAX], step[NET_RANK_MAX];
    int64_t index[NET_RANK_MAX] = {0}, each = 1;
    if (!eval_has(call, 1) || !reduced_axes(call, reduced)) return false;
    const Array *x = call->in[0];
    const bool keep = net_int(call->node, "keepdims", 1) != 0;
    const Reduction *reduction = REDUCTIONS;
    while (!net_is(call->node, reduction->op)) reduction++;
    int rank = 0;
    for (int d = 0; d < x->rank; d++) {
        kept[d] = reduced[d] ? 1 : x->dim[d];
        if (reduced[d]) each *= x->dim[d];
        if (keep || !reduced[d]) short_dim[rank++] = kept[d];
    }
    Array *y = eval_result(call, 0, x->type, rank, short_dim, x->data != NULL);
    if (!y || !y->data) return y != NULL;
    Array full = *y;
    full.rank = x->rank;
    for (int d = 0; d < x->rank; d++) full.dim[d] = kept[d];
    array_broadcast(&full, x->rank, step);
    for (int64_t i = 0; i < y->count; i++) y->data[i] = reduction->start;
    for (int64_t from = 0; from < x->count; from++) {
        int64_t to = 0;
        for (int d = 0; d < x->rank; d++) to += index[d] * step[d];
        y->data[to] = reduction->step(y->data[to], x->data[from]);
        array_next(x->rank, x->dim, index);
    }
    for (int64_t i = 0; i < y->count; i++)
        y->data[i] = number_as(y->type, reduction->end(y->data[i], (double)each));
    return true;
}

static bool run_cumsum(EvalCall *call) {
    double at;
    int axis;
    if (!eval_has(call, 2)) return false;
    const Array *x = call->in[0];
    Array *y = eval_result(call, 0, x->type, x->rank, x->dim, eval_knows(call));
    if (!y || !y->data) return y != NULL;
    if (!array_scalar(call->in[1], &at) || !eval_axis(eval_integer(at), x->rank, &axis))
        return eval_fault(call, "no such axis");
    const bool reverse = net_int(call->node, "reverse", 0) != 0;
    const bool exclusive = net_int(call->node, "exclusive", 0) != 0;
    const int64_t inner = array_stride(x, axis), n = x->dim[axis];
    for (int64_t i = 0; i < x->count; i++) {
        if (i / inner % (n ? n : 1) != 0) continue;
        double sum = 0;
        for (int64_t k = 0; k < n; k++) {
            const int64_t from = i + inner * (reverse ? n - 1 - k : k);
            y->data[from] = exclusive ? sum : sum + x->data[from];
            sum += x->data[from];
        }
    }
    return true;
}

#define ONE(op, fn)                                                                      \
    { op, run_one, EVAL_ELEMENTS, fn, NULL }
#define TWO(op, fn)                                                                      \
    { op, run_two, EVAL_ELEMENTS, NULL, fn }
#define ROW(op, run, kind)                                                               \
    { op, run, kind, NULL, NULL }
#define REDUCE(op) ROW(op, run_reduce, EVAL_NUMBERS)

const EvalRow eval_elements_rows[] = {
    ONE("Abs", fn_abs),
    ONE("Neg", fn_neg),
    ONE("Sqrt", sqrt),
    ONE("Exp", exp),
    ONE("Log", log),
    ONE("Erf", erf),
    ONE("Tanh", tanh),
    ONE("Sin", sin),
    ONE("Cos", cos),
    ONE("Sigmoid", fn_sigmoid),
    ONE("Relu", fn_relu),
    ONE("Softplus", fn_softplus),
    ONE("HardSwish", fn_hard_swish),
    ONE("Reciprocal", fn_reciprocal),
    ONE("Rsqrt", fn_rsqrt),
    ONE("Floor", floor),
    ONE("Ceil", ceil),
    ONE("Round", fn_round),
    ONE("Sign", fn_sign),
    ONE("Not", fn_not),
    ONE("IsNaN", fn_isnan),
    {"IsInf", run_isinf, EVAL_ELEMENTS, fn_isinf, NULL},
    ONE("Identity", fn_identity),
    TWO("Add", fn_add),
    TWO("Sub", fn_sub),
    TWO("Mul", fn_mul),
    TWO("Div", fn_div),
    TWO("Pow", fn_pow),
    TWO("Mod", fn_mod),
    TWO("Min", fn_min),
    TWO("Max", fn_max),
    TWO("Sum", fn_add),
    ROW("Mean", run_mean, EVAL_ELEMENTS),
    TWO("Equal", fn_equal),
    TWO("Less", fn_less),
    TWO("LessOrEqual", fn_less_equal),
    TWO("Greater", fn_greater),
    TWO("GreaterOrEqual", fn_greater_equal),
    TWO("And", fn_and),
    TWO("Or", fn_or),
    TWO("Xor", fn_xor),
    ROW("Where", run_where, EVAL_ELEMENTS),
    ROW("Cast", run_cast, EVAL_ELEMENTS),
    ROW("CastLike", run_cast, EVAL_ELEMENTS),
    ROW("Clip", run_clip, EVAL_ELEMENTS),
    ROW("LeakyRelu", run_leaky, EVAL_ELEMENTS),
    ROW("Gelu", run_gelu, EVAL_ELEMENTS),
    ONE("com.microsoft.Gelu", fn_gelu),
    ROW("com.microsoft.QuickGelu", run_quick_gelu, EVAL_ELEMENTS),
    ONE("com.microsoft.Silu", fn_silu),
    REDUCE("ReduceSum"),
    REDUCE("ReduceMean"),
    REDUCE("ReduceProd"),
    REDUCE("ReduceMax"),
    REDUCE("ReduceMin"),
    REDUCE("ReduceL1"),
    REDUCE("ReduceL2"),
    REDUCE("ReduceSumSquare"),
    ROW("CumSum", run_cumsum, EVAL_NUMBERS),
    {NULL, NULL, EVAL_SHAPE, NULL, NULL}};
