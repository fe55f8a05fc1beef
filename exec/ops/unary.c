/* to_real(x integer) -> the same numbers, real. unary(x): y = fn(x), element by element;
 * dx = fn'(x) dy, 0 where fn is a step. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"

/* ---- to_real ---- */

static const Operand INTEGERS[] = {{"x", OPERAND_REQUIRED | OPERAND_INTEGER, "any shape"},
                                   {NULL, 0, NULL}};

static Status to_real_infer(const Node *node, Type *out, Diag *diag) {
    (void)diag;
    *out = node->in[0]->type;
    out->dtype = DTYPE_F32;
    return STATUS_OK;
}

static void to_real_forward(const Call *call) {
    const int32_t *restrict x = call->in[0].data;
    REAL *restrict y = call->out.data;
    for (int64_t i = 0; i < call->out.count; i++) y[i] = (REAL)x[i];
}

static void to_real_backward(const Call *call) {
    (void)call; /* integers have no gradient */
}

OP_RECORD(to_real) = {
    OP_ID(to_real),         .summary = "integers as real numbers",
    .operands = INTEGERS,   .traits = OP_TENSOR,
    .infer = to_real_infer,
};

KERNEL(to_real) = {
    .forward = to_real_forward,
    .backward = to_real_backward,
};

/* ---- unary ---- */

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "any shape"}, {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_CHOICE(UnaryAttrs, fn, UNARY_NAMES, "function; round goes to the nearest even"),
    F_END};

static Status infer(const Node *node, Type *out, Diag *diag) {
    (void)diag;
    *out = node->in[0]->type;
    return STATUS_OK;
}

KERNEL_INLINE REAL value_of(UnaryFn fn, REAL x) {
    switch (fn) {
    case UNARY_ABS: return x < 0 ? -x : x;
    case UNARY_EXP: return exp_real(x);
    case UNARY_LOG: return (REAL)log((double)x); /* of any number */
    case UNARY_SQRT: return (REAL)sqrt((double)x);
    case UNARY_RECIPROCAL: return 1 / x;
    case UNARY_ERF: return erf_real(x);
    case UNARY_SIN: return (REAL)sin((double)x);
    case UNARY_COS: return (REAL)cos((double)x);
    case UNARY_FLOOR: return (REAL)floor((double)x);
    case UNARY_CEIL: return (REAL)ceil((double)x);
    case UNARY_ROUND: return (REAL)nearbyint((double)x);
    case UNARY_TRUNC: return (REAL)trunc((double)x);
    case UNARY_SIGN: return (REAL)((x > 0) - (x < 0));
    default: return x;
    }
}

KERNEL_INLINE REAL slope_of(UnaryFn fn, REAL x) {
    switch (fn) {
    case UNARY_ABS: return (REAL)((x > 0) - (x < 0));
    case UNARY_EXP: return exp_real(x);
    case UNARY_LOG: return 1 / x;
    case UNARY_SQRT: return (REAL)(0.5 / sqrt((double)x));
    case UNARY_RECIPROCAL: return -1 / (x * x);
    case UNARY_ERF: return (REAL)M_2_SQRTPI * exp_real(-x * x);
    case UNARY_SIN: return (REAL)cos((double)x);
    case UNARY_COS: return (REAL)-sin((double)x);
    default: return 0;
    }
}

static UnaryFn function_of(const Call *call) {
    return (UnaryFn)((const UnaryAttrs *)call->attrs)->fn;
}

static void forward(const Call *call) {
    const UnaryFn fn = function_of(call);
    const REAL *restrict x = call->in[0].data;
    REAL *restrict y = call->out.data;
    for (int64_t i = 0; i < call->out.count; i++) y[i] = value_of(fn, x[i]);
}

static void backward(const Call *call) {
    const UnaryFn fn = function_of(call);
    const REAL *restrict x = call->in[0].data, *restrict dy = call->d_out.data;
    REAL *restrict dx = call->d_in[0].data;
    const bool add = call->d_in[0].accumulate;
    for (int64_t i = 0; dx && i < call->d_out.count; i++)
        dx[i] = (add ? dx[i] : 0) + slope_of(fn, x[i]) * dy[i];
}

OP_RECORD(unary) = {
    OP_ID(unary),
    .summary = "a function of each element",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(UnaryAttrs),
    .traits = OP_TENSOR | OP_ELEMENTWISE | OP_ROWWISE,
    .reads = READS_IN(0),
    .infer = infer,
};

KERNEL(unary) = {
    .step = STEP(elementwise),
    .forward = forward,
    .backward = backward,
};
