/* rotary(x[N, T, D]) -> y: each head of width d = D / heads turns its pairs (j, j + d/2)
 * of token t by a = (offset + t) theta^(-2j/d):
 * y_j = x_j cos a - x_{j+d/2} sin a, y_{j+d/2} = x_{j+d/2} cos a + x_j sin a.
 *
 * A rotation's transpose turns back: dx is dy turned by -a. Angles, sines and cosines are
 * computed in double: (offset + t) may be large. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/kernel.h"

#include <math.h>

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "heads of tokens [N, T, heads * d], d even"},
    {NULL, 0, NULL}};

enum { HEADS_MAX = 1 << 20, OFFSET_MAX = 1 << 30 };

static const Field FIELDS[] = {
    F_INT(RotaryAttrs, heads, 1, HEADS_MAX, "number of heads"),
    F_REAL(RotaryAttrs, theta, 0, 0, "base of the angles, above 0"),
    F_INT(RotaryAttrs, offset, 0, OFFSET_MAX, "position of the first token"),
    F_END,
};

static const RotaryAttrs DEFAULTS = {.heads = 1, .theta = 10000};

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
    *out = *x;
    return STATUS_OK;
}

static int64_t pair_count(const Call *call) {
    return call->out.dim[2] / ((const RotaryAttrs *)call->attrs)->heads / 2;
}

/* Turns per position [d/2] in double, then the cosines and sines of one token [d/2]. */
static size_t scratch_bytes(const Call *call) {
    return (size_t)pair_count(call) * (sizeof(double) + 2 * sizeof(REAL));
}

/* Turns the heads of one token; `cosine` and `sine` have one element for each pair. */
static void turn_token(REAL *restrict y, const REAL *restrict x,
                       const REAL *restrict cosine, const REAL *restrict sine,
                       int64_t heads, int64_t pairs, bool accumulate) {
    for (int64_t h = 0; h < heads; h++, x += 2 * pairs, y += 2 * pairs) {
        const REAL *restrict high = x + pairs;
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
    for (int64_t j = 0; j < pairs; j++)
        turns[j] = pow(attrs->theta, -(double)j / (double)pairs);
    for (int64_t t = 0; t < T; t++) {
        for (int64_t j = 0; j < pairs; j++) {
            const double angle = (double)(attrs->offset + t) * turns[j];
            cosine[j] = (REAL)cos(angle);
            sine[j] = (REAL)(sign * sin(angle));
        }
        for (int64_t n = 0; n < N; n++)
            turn_token((REAL *)to->data + (n * T + t) * D,
                       (const REAL *)from->data + (n * T + t) * D, cosine, sine,
                       attrs->heads, pairs, to->accumulate);
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
};
