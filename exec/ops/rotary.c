/* rotary(x[N, T, D]) -> y: each head of width d = D / heads turns its pairs (j, j + d/2)
 * of token t by a = (offset + t) theta^(-2j/d):
 * y_j = x_j cos a - x_{j+d/2} sin a, y_{j+d/2} = x_{j+d/2} cos a + x_j sin a.
 * With `turned` r the pairs are (j, j + r/2), j < r/2, and the angles those of a width r;
 * the other numbers stay. Angles may be stretched, and cos and sin have a factor.
 *
 * A rotation's transpose turns back: dx is dy turned by -a. Angles, sines and cosines are
 * computed in double: (offset + t) may be large. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/kernel.h"
#include "exec/ops/tiles.h"

#include <math.h>

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "heads of tokens [N, T, heads * d], d even"},
    {NULL, 0, NULL}};

enum { HEADS_MAX = 1 << 20, OFFSET_MAX = 1 << 30 };

static const Field FIELDS[] = {
    F_INT(RotaryAttrs, heads, 1, HEADS_MAX, "number of heads"),
    F_REAL(RotaryAttrs, theta, 0, 0, "base of the angles, above 0"),
    F_INT(RotaryAttrs, offset, 0, OFFSET_MAX, "position of the first token"),
    F_INT(RotaryAttrs, turned, 0, HEADS_MAX,
          "numbers of a head that are turned, even; 0 = all"),
    F_CHOICE(RotaryAttrs, scaling, ROTARY_SCALING_NAMES,
             "how angles are stretched over longer texts"),
    F_REAL(RotaryAttrs, factor, 0, 0, "by which angles are stretched, above 0"),
    F_REAL(RotaryAttrs, original, 0, 0,
           "llama3, yarn: tokens of the texts before that, above 0"),
    F_REAL(RotaryAttrs, slow, 0, 0,
           "llama3, yarn: pairs of fewer turns in those are stretched whole"),
    F_REAL(RotaryAttrs, fast, 0, 0, "llama3, yarn: pairs of more turns stay"),
    F_BOOL(RotaryAttrs, whole, "yarn: the bounds are rounded to whole pairs"),
    F_REAL(RotaryAttrs, amplitude, 0, 0, "factor of what is turned, above 0"),
    F_END,
};

static const RotaryAttrs DEFAULTS = {.heads = 1,
                                     .theta = 10000,
                                     .factor = 1,
                                     .original = 4096,
                                     .slow = 1,
                                     .fast = 32,
                                     .whole = true,
                                     .amplitude = 1};

static bool is_positive(double x) {
    return isfinite(x) && x > 0;
}

static Status check_scaling(const Node *node, Diag *diag) {
    const RotaryAttrs *a = node->attrs;
    if (a->scaling < ROTARY_PLAIN || a->scaling > ROTARY_YARN)
        return infer_fail_attr(node, "scaling", diag, "one of %s", ROTARY_SCALING_NAMES);
    if (!is_positive(a->factor) || !is_positive(a->original) ||
        !is_positive(a->amplitude))
        return infer_fail_attr(node, "factor, original, amplitude", diag,
                               "numbers above 0");
    if (!is_positive(a->slow) || !is_positive(a->fast) || a->fast <= a->slow)
        return infer_fail_attr(node, "slow, fast", diag,
                               "numbers above 0, `fast` the larger one");
    if (a->scaling == ROTARY_YARN && a->theta <= 1)
        return infer_fail_attr(node, "theta", diag, "a number above 1 with yarn");
    return STATUS_OK;
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    const RotaryAttrs *attrs = node->attrs;
    const Type *x = &node->in[0]->type;
    TRY(infer_rank(node, 0, 3, 3, diag));
    TRY(infer_known(node, 0, 2, diag));
    if (attrs->heads < 1 || x->dim[2] % attrs->heads)
        return infer_fail_attr(node, "heads", diag, "a divisor of the width %lld",
                               (long long)x->dim[2]);
    if (x->dim[2] / attrs->heads % 2)
        return infer_fail(node, 0, diag, "heads of an even width");
    if (!isfinite(attrs->theta) || attrs->theta <= 0)
        return infer_fail_attr(node, "theta", diag, "a number above 0");
    if (attrs->offset < 0 || attrs->offset > OFFSET_MAX)
        return infer_fail_attr(node, "offset", diag, "a number from 0 to %d", OFFSET_MAX);
    if (attrs->turned < 0 || attrs->turned % 2 ||
        attrs->turned > x->dim[2] / attrs->heads)
        return infer_fail_attr(node, "turned", diag,
                               "an even number up to the heads' width %lld",
                               (long long)(x->dim[2] / attrs->heads));
    TRY(check_scaling(node, diag));
    *out = *x;
    return STATUS_OK;
}

static int64_t pair_count(const Call *call) {
    const RotaryAttrs *attrs = call->attrs;
    return (attrs->turned ? attrs->turned : call->out.dim[2] / attrs->heads) / 2;
}

/* Turns per position [d/2] in double, then the cosines and sines of one token [d/2]. */
static size_t scratch_bytes(const Call *call) {
    return (size_t)pair_count(call) * (sizeof(double) + 2 * sizeof(REAL));
}

/* Turns the heads of one token, `width` numbers each; `cosine` and `sine` have one
 * element for each pair. */
static void turn_token(REAL *restrict y, const REAL *restrict x,
                       const REAL *restrict cosine, const REAL *restrict sine,
                       int64_t heads, int64_t width, int64_t pairs, bool accumulate) {
    for (int64_t h = 0; h < heads; h++, x += width, y += width) {
        const REAL *restrict high = x + pairs;
        for (int64_t j = 2 * pairs; j < width; j++)
            y[j] = accumulate ? y[j] + x[j] : x[j];
        if (accumulate)
            for (int64_t j = 0; j < pairs; j++) {
                y[j] += x[j] * cosine[j] - high[j] * sine[j];
                y[j + pairs] += high[j] * cosine[j] + x[j] * sine[j];
            }
        else
            for (int64_t j = 0; j < pairs; j++) {
                y[j] = x[j] * cosine[j] - high[j] * sine[j];
                y[j + pairs] = high[j] * cosine[j] + x[j] * sine[j];
            }
    }
}

/* to (+)= from, turned by the angles, or with sign -1 turned back. */
static void turn(const Call *call, const View *to, const View *from, int sign) {
    const RotaryAttrs *attrs = call->attrs;
    const int64_t N = from->dim[0], T = from->dim[1], D = from->dim[2];
    const int64_t pairs = pair_count(call);
    double *turns = call->scratch;
    REAL *cosine = (REAL *)(turns + pairs), *sine = cosine + pairs;
    const RotaryAngles angles = {attrs->theta,  (RotaryScaling)attrs->scaling,
                                 attrs->factor, attrs->original,
                                 attrs->slow,   attrs->fast,
                                 attrs->whole};
    const Range tokens = call_range(call, T, 1);
    rotary_angles(turns, pairs, &angles);
    for (int64_t t = tokens.first; t < tokens.end; t++) {
        for (int64_t j = 0; j < pairs; j++) {
            const double angle = (double)(attrs->offset + t) * turns[j];
            cosine[j] = (REAL)(attrs->amplitude * cos(angle));
            sine[j] = (REAL)(attrs->amplitude * sign * sin(angle));
        }
        for (int64_t n = 0; n < N; n++)
            turn_token((REAL *)to->data + (n * T + t) * D,
                       (const REAL *)from->data + (n * T + t) * D, cosine, sine,
                       attrs->heads, D / attrs->heads, pairs, to->accumulate);
    }
}

static void forward(const Call *call) {
    turn(call, &call->out, &call->in[0], 1);
}

static void backward(const Call *call) {
    if (call->d_in[0].data) turn(call, &call->d_in[0], &call->d_out, -1);
}

OP_RECORD(rotary) = {
    OP_ID(rotary),
    .summary = "pairs of each head turned by the position",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(RotaryAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_ROWWISE,
    .infer = infer,
};

KERNEL(rotary) = {
    .scratch_bytes = scratch_bytes,
    .step = STEP(rotary),
    .forward = forward,
    .backward = backward,
    .forward_tiles = element_tiles,
    .backward_tiles = element_tiles,
};
