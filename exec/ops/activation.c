/* activation(x): y = f(x) elementwise; dx = f'(x) dy. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/tiles.h"

#define SQRT_HALF      ((REAL)0.70710678118654752440)
#define INV_SQRT_2PI   ((REAL)0.39894228040143267794)
#define SQRT_2_OVER_PI ((REAL)0.79788456080286535588)
#define GELU_CUBIC     ((REAL)0.044715)

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "any shape"}, {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_CHOICE(ActivationAttrs, fn, ACTIVATION_NAMES, "the function"), F_END};

static const ActivationAttrs DEFAULTS = {.fn = ACTIVATION_GELU};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const int fn = ((const ActivationAttrs *)node->attrs)->fn;
    if (fn < 0 || fn > ACTIVATION_SILU)
        return infer_fail_attr(node, "fn", diag, "one of %s", ACTIVATION_NAMES);
    *out = node->in[0]->type;
    return STATUS_OK;
}

/* Distribution function of the standard normal: for float, exp of a polynomial in |x| is
 * that of -|x|, to 3e-8 / max(1, |x|). */
#ifdef REAL_IS_DOUBLE
KERNEL_INLINE double normal_cdf(double x) {
    return 0.5 * erfc(-x * SQRT_HALF);
}
#else
KERNEL_INLINE float normal_cdf(float x) {
    const float a = fabsf(x);
    float p = -1.92143824e-06f;
    p = p * a + 2.67698636e-05f;
    p = p * a + -0.00012653236f;
    p = p * a + -0.000101109468f;
    p = p * a + 0.00490434331f;
    p = p * a + -0.0363937126f;
    p = p * a + -0.318296587f;
    p = p * a + -0.797885687f;
    p = p * a + -0.693147166f;
    const float tail = a > 6.0f ? 0.0f : exp_real(p);
    return x < 0 ? tail : 1.0f - tail;
}
#endif

/* Each function and its derivative. */
KERNEL_INLINE REAL gelu(REAL x) {
    return x * normal_cdf(x);
}

KERNEL_INLINE REAL gelu_slope(REAL x) {
    const REAL density = INV_SQRT_2PI * exp_real((REAL)-0.5 * x * x);
    return normal_cdf(x) + x * density;
}

/* (1 + tanh(u)) / 2 = sigmoid(2 u) */
KERNEL_INLINE REAL gelu_tanh(REAL x) {
    return x * sigmoid_real(2 * SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
}

KERNEL_INLINE REAL gelu_tanh_slope(REAL x) {
    const REAL s = sigmoid_real(2 * SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
    const REAL slope = 2 * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
    return s + x * s * (1 - s) * slope;
}

KERNEL_INLINE REAL relu(REAL x) {
    return x < 0 ? 0 : x;
}

KERNEL_INLINE REAL relu_slope(REAL x) {
    return x > 0 ? 1 : 0;
}

KERNEL_INLINE REAL tanh_slope(REAL x) {
    const REAL t = tanh_real(x);
    return 1 - t * t;
}

KERNEL_INLINE REAL sigmoid_slope(REAL x) {
    const REAL s = sigmoid_real(x);
    return s * (1 - s);
}

KERNEL_INLINE REAL silu(REAL x) {
    return x * sigmoid_real(x);
}

KERNEL_INLINE REAL silu_slope(REAL x) {
    const REAL s = sigmoid_real(x);
    return s * (1 + x * (1 - s));
}

/* Defines f_all and f_back: a function and its gradient over arrays. */
#define DEFINE_LOOPS(name, f, slope)                                                     \
    static void name##_all(REAL *restrict y, const REAL *restrict x, int64_t count) {    \
        for (int64_t i = 0; i < count; i++) y[i] = f(x[i]);                              \
    }                                                                                    \
    static void name##_back(REAL *restrict dx, const REAL *restrict x,                   \
                            const REAL *restrict dy, int64_t count, bool accumulate) {   \
        if (accumulate)                                                                  \
            for (int64_t i = 0; i < count; i++) dx[i] += slope(x[i]) * dy[i];            \
        else                                                                             \
            for (int64_t i = 0; i < count; i++) dx[i] = slope(x[i]) * dy[i];             \
    }
DEFINE_LOOPS(gelu, gelu, gelu_slope)
DEFINE_LOOPS(gelu_tanh, gelu_tanh, gelu_tanh_slope)
DEFINE_LOOPS(relu, relu, relu_slope)
DEFINE_LOOPS(tanh, tanh_real, tanh_slope)
DEFINE_LOOPS(sigmoid, sigmoid_real, sigmoid_slope)
DEFINE_LOOPS(silu, silu, silu_slope)

/* In the order of Activation. */
static const struct {
    void (*all)(REAL *, const REAL *, int64_t);
    void (*back)(REAL *, const REAL *, const REAL *, int64_t, bool);
} FUNCTIONS[] = {
    {gelu_all, gelu_back}, {gelu_tanh_all, gelu_tanh_back}, {relu_all, relu_back},
    {tanh_all, tanh_back}, {sigmoid_all, sigmoid_back},     {silu_all, silu_back},
};

static void forward(const Call *call) {
    const int fn = ((const ActivationAttrs *)call->attrs)->fn;
    const Range r = call_range(call, call->out.count, TILE_UNIT);
    FUNCTIONS[fn].all((REAL *)call->out.data + r.first,
                      (const REAL *)call->in[0].data + r.first, r.end - r.first);
}

static void backward(const Call *call) {
    const int fn = ((const ActivationAttrs *)call->attrs)->fn;
    const View *dx = &call->d_in[0];
    const Range r = call_range(call, call->out.count, TILE_UNIT);
    if (dx->data)
        FUNCTIONS[fn].back(
            (REAL *)dx->data + r.first, (const REAL *)call->in[0].data + r.first,
            (const REAL *)call->d_out.data + r.first, r.end - r.first, dx->accumulate);
}

OP_RECORD(activation) = {
    OP_ID(activation),
    .summary = "elementwise fn(x)",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(ActivationAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_ELEMENTWISE | OP_ROWWISE,
    .reads = READS_IN(0),
    .infer = infer,
};

KERNEL(activation) = {
    .step = STEP(elementwise),
    .forward = forward,
    .backward = backward,
    .forward_tiles = element_tiles,
    .backward_tiles = element_tiles,
};
