/* add_sinusoid(x[N, T, D]) -> y: y[n, t] = x[n, t] + p[offset + t], where the first half
 * of p[t] is sin(t theta^(-2j/D)) and the second cos of the same, j < D/2 (Vaswani et
 * al., 2017, in the order of Marian; the paper's pairs lie side by side, which is the
 * same up to an order of the components).
 *
 * dx = dy. Angles, sines and cosines are computed in double. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "tokens [N, T, D], D even"},
    {NULL},
};

enum { OFFSET_MAX = 1 << 30 };

static const Field FIELDS[] = {
    F_REAL(AddSinusoidAttrs, theta, 0, 0, "base of the angles, above 0"),
    F_INT(AddSinusoidAttrs, offset, 0, OFFSET_MAX, "position of the first token"),
    F_END,
};

static const AddSinusoidAttrs DEFAULTS = {.theta = 10000};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const AddSinusoidAttrs *attrs = node->attrs;
    TRY(infer_rank(node, 0, 3, 3, diag));
    TRY(infer_known(node, 0, 2, diag));
    if (node->in[0]->type.dim[2] % 2) return infer_fail(node, 0, diag, "an even width");
    if (!isfinite(attrs->theta) || attrs->theta <= 0)
        return infer_fail_attr(node, "theta", diag, "a number above 0");
    if (attrs->offset < 0 || attrs->offset > OFFSET_MAX)
        return infer_fail_attr(node, "offset", diag, "a number from 0 to %d", OFFSET_MAX);
    *out = node->in[0]->type;
    return STATUS_OK;
}

/* Turns per position [D/2] in double, then one position [D]. */
static size_t scratch_bytes(const Call *call) {
    const size_t width = (size_t)call->out.dim[2];
    return width / 2 * sizeof(double) + width * sizeof(REAL);
}

static void forward(const Call *call) {
    const AddSinusoidAttrs *attrs = call->attrs;
    const int64_t N = call->out.dim[0], T = call->out.dim[1], D = call->out.dim[2];
    const int64_t half = D / 2;
    double *turns = call->scratch;
    REAL *restrict position = (REAL *)(turns + half);
    for (int64_t j = 0; j < half; j++)
        turns[j] = pow(attrs->theta, -(double)j / (double)half);
    for (int64_t t = 0; t < T; t++) {
        for (int64_t j = 0; j < half; j++) {
            const double angle = (double)(attrs->offset + t) * turns[j];
            position[j] = (REAL)sin(angle);
            position[half + j] = (REAL)cos(angle);
        }
        for (int64_t n = 0; n < N; n++) {
            const REAL *restrict x = (const REAL *)call->in[0].data + (n * T + t) * D;
            REAL *restrict y = (REAL *)call->out.data + (n * T + t) * D;
            for (int64_t j = 0; j < D; j++) y[j] = x[j] + position[j];
        }
    }
}

static void backward(const Call *call) {
    const View *dx = &call->d_in[0], *dy = &call->d_out;
    if (dx->data && dx->data != dy->data)
        put_row(dx->data, dy->data, dy->count, dx->accumulate);
}

OP_RECORD(add_sinusoid) = {
    OP_ID(add_sinusoid),
    .summary = "x + sines and cosines of the position",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(AddSinusoidAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_PASS_GRADIENT | OP_ROWWISE,
    .infer = infer,
};

KERNEL(add_sinusoid) = {
    .scratch_bytes = scratch_bytes,
    .step = STEP(sinusoid),
    .forward = forward,
    .backward = backward,
};
