/* scale(x): y = by * x; dx = by * dy. */
#include "exec/infer.h"
#include "exec/kernel_math.h"

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "any shape"}, {NULL, 0, NULL}};

static const Field FIELDS[] = {F_REAL(ScaleAttrs, by, 0, 0, "factor"), F_END};

static const ScaleAttrs DEFAULTS = {.by = 1};

static Status infer(const Node *node, Type *out, Diag *diag) {
    if (!isfinite(((const ScaleAttrs *)node->attrs)->by))
        return infer_fail_attr(node, "by", diag, "a finite number");
    *out = node->in[0]->type;
    return STATUS_OK;
}

static void forward(const Call *call) {
    const REAL by = (REAL)((const ScaleAttrs *)call->attrs)->by;
    const REAL *restrict x = call->in[0].data;
    REAL *restrict y = call->out.data;
    for (int64_t i = 0; i < call->out.count; i++) y[i] = by * x[i];
}

static void backward(const Call *call) {
    const REAL by = (REAL)((const ScaleAttrs *)call->attrs)->by;
    const REAL *restrict dy = call->d_out.data;
    REAL *restrict dx = call->d_in[0].data;
    const int64_t count = call->d_out.count;
    if (!dx) return;
    if (call->d_in[0].accumulate)
        for (int64_t i = 0; i < count; i++) dx[i] += by * dy[i];
    else
        for (int64_t i = 0; i < count; i++) dx[i] = by * dy[i];
}

const Op OP(scale) = {
    .name = "scale",
    .summary = "by * x",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(ScaleAttrs),
    .defaults = &DEFAULTS,
    .infer = infer,
    .forward = forward,
    .backward = backward,
};
