/* scale(x): y = by * x; dx = by * dy. scale_gradient(x): y = x; dx = by * dy. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/tiles.h"

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "any shape"}, {NULL, 0, NULL}};

static const ScaleAttrs DEFAULTS = {.by = 1};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const double by = ((const ScaleAttrs *)node->attrs)->by;
    if (!isfinite(by)) return infer_fail_attr(node, "by", diag, "a finite number");
    *out = node->in[0]->type;
    return STATUS_OK;
}

/* dx (+)= by * dy. */
static void backward(const Call *call) {
    const REAL by = (REAL)((const ScaleAttrs *)call->attrs)->by;
    const REAL *restrict dy = call->d_out.data;
    REAL *restrict dx = call->d_in[0].data;
    const Range r = call_range(call, call->d_out.count, TILE_UNIT);
    if (!dx) return;
    if (call->d_in[0].accumulate)
        for (int64_t i = r.first; i < r.end; i++) dx[i] += by * dy[i];
    else
        for (int64_t i = r.first; i < r.end; i++) dx[i] = by * dy[i];
}

/* ---- scale ---- */

static const Field SCALE_FIELDS[] = {F_REAL(ScaleAttrs, by, 0, 0, "factor"), F_END};

static void scale_forward(const Call *call) {
    const REAL by = (REAL)((const ScaleAttrs *)call->attrs)->by;
    const REAL *restrict x = call->in[0].data;
    REAL *restrict y = call->out.data;
    const Range r = call_range(call, call->out.count, TILE_UNIT);
    for (int64_t i = r.first; i < r.end; i++) y[i] = by * x[i];
}

OP_RECORD(scale) = {
    OP_ID(scale),
    .summary = "by * x",
    .operands = OPERANDS,
    .fields = SCALE_FIELDS,
    .attrs_size = sizeof(ScaleAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_ELEMENTWISE | OP_PROPORTIONAL | OP_ROWWISE,
    .infer = infer,
};

KERNEL(scale) = {
    .step = STEP(elementwise),
    .forward = scale_forward,
    .backward = backward,
    .forward_tiles = element_tiles,
    .backward_tiles = element_tiles,
};

/* ---- scale_gradient ---- */

static const Field GRADIENT_FIELDS[] = {
    F_REAL(ScaleGradientAttrs, by, 0, 0, "factor of the gradient"), F_END};

static void gradient_forward(const Call *call) {
    const Range r = call_range(call, call->out.count, TILE_UNIT);
    put_row((REAL *)call->out.data + r.first, (const REAL *)call->in[0].data + r.first,
            r.end - r.first, false);
}

OP_RECORD(scale_gradient) = {
    OP_ID(scale_gradient),
    .summary = "x, whose gradient is multiplied by `by`",
    .operands = OPERANDS,
    .fields = GRADIENT_FIELDS,
    .attrs_size = sizeof(ScaleGradientAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_PASS_VALUE | OP_ELEMENTWISE | OP_PROPORTIONAL | OP_ROWWISE,
    .infer = infer,
};

KERNEL(scale_gradient) = {
    .step = STEP(alias),
    .forward = gradient_forward,
    .backward = backward,
    .forward_tiles = element_tiles,
    .backward_tiles = element_tiles,
};
