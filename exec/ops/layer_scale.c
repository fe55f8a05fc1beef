/* layer_scale(x[..., D], factors[D]): y = x * factors by rows (Touvron et al., 2021).
 *
 * dx = factors dy; dfactors = sum over rows of x dy. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel.h"

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "[..., D]"},
                                   {"factors", OPERAND_REQUIRED, "one a column [D]"},
                                   {NULL, 0, NULL}};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, 0, 1, RANK_MAX, diag));
    const Type *x = &node->in[0]->type;
    TRY(infer_known(node, 0, x->rank - 1, diag));
    TRY(infer_shape(node, 1, 1, &x->dim[x->rank - 1], diag));
    *out = *x;
    return STATUS_OK;
}

static void forward(const Call *call) {
    const int64_t R = view_rows(&call->out), D = view_last(&call->out);
    const REAL *restrict w = call->in[1].data;
    for (int64_t row = 0; row < R; row++) {
        const REAL *restrict x = (const REAL *)call->in[0].data + row * D;
        REAL *restrict y = (REAL *)call->out.data + row * D;
        for (int64_t j = 0; j < D; j++) y[j] = x[j] * w[j];
    }
}

static void backward(const Call *call) {
    const int64_t R = view_rows(&call->d_out), D = view_last(&call->d_out);
    const REAL *restrict w = call->in[1].data;
    const bool add = call->d_in[0].accumulate;
    REAL *restrict dw = gradient_to_add(call, 1);
    for (int64_t row = 0; row < R; row++) {
        const REAL *restrict dy = (const REAL *)call->d_out.data + row * D;
        const REAL *restrict x = (const REAL *)call->in[0].data + row * D;
        for (int64_t j = 0; dw && j < D; j++) dw[j] += x[j] * dy[j];
        if (!call->d_in[0].data) continue;
        REAL *restrict dx = (REAL *)call->d_in[0].data + row * D;
        for (int64_t j = 0; j < D; j++) dx[j] = (add ? dx[j] : 0) + w[j] * dy[j];
    }
}

OP_RECORD(layer_scale) = {
    OP_ID(layer_scale),
    .summary = "x times a factor for each column",
    .operands = OPERANDS,
    .traits = OP_PROPORTIONAL | OP_ROWWISE,
    .reads = READS_IN(0) | READS_IN(1),
    .infer = infer,
};

KERNEL(layer_scale) = {
    .step = STEP(rows),
    .forward = forward,
    .backward = backward,
};
