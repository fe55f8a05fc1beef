/* softmax(x[..., C]): y = exp(x / t) / sum over the last dimension.
 *
 * dx = y (dy - y . dy) / t, row by row. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/tiles.h"

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "[..., C]"}, {NULL, 0, NULL}};

static const Field FIELDS[] = {F_REAL(SoftmaxAttrs, temperature, 1e-3, 1e6, "divides x"),
                               F_END};

static const SoftmaxAttrs DEFAULTS = {.temperature = 1};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const double temperature = ((const SoftmaxAttrs *)node->attrs)->temperature;
    TRY(infer_rank(node, 0, 1, RANK_MAX, diag));
    if (!(temperature > 0 && temperature < INFINITY))
        return infer_fail_attr(node, "temperature", diag, "a number above 0, found %g",
                               temperature);
    *out = node->in[0]->type;
    return infer_apart(node, out->dim[out->rank - 1], diag);
}

static REAL inverse_temperature(const Call *call) {
    return (REAL)(1 / ((const SoftmaxAttrs *)call->attrs)->temperature);
}

static void forward(const Call *call) {
    const int64_t C = view_last(&call->out);
    const REAL inverse = inverse_temperature(call);
    const Range r = call_range(call, call->out.count, C);
    for (int64_t i = r.first; i < r.end; i += C) {
        const REAL *restrict x = (const REAL *)call->in[0].data + i;
        REAL *restrict y = (REAL *)call->out.data + i;
        for (int64_t c = 0; c < C; c++) y[c] = inverse * x[c];
        softmax_row(y, C);
    }
}

/* dx (+)= factor y (dy - along). */
static void gradient_row(const REAL *restrict y, const REAL *restrict dy, int64_t n,
                         REAL factor, REAL along, bool accumulate, REAL *restrict dx) {
    if (accumulate)
        for (int64_t c = 0; c < n; c++) dx[c] += factor * y[c] * (dy[c] - along);
    else
        for (int64_t c = 0; c < n; c++) dx[c] = factor * y[c] * (dy[c] - along);
}

static void backward(const Call *call) {
    const View *dx = &call->d_in[0];
    const int64_t C = view_last(&call->out);
    const REAL inverse = inverse_temperature(call);
    const REAL *y = call->out.data, *dy = call->d_out.data;
    const Range r = call_range(call, call->out.count, C);
    for (int64_t i = r.first; dx->data && i < r.end; i += C)
        gradient_row(y + i, dy + i, C, inverse, row_dot(y + i, dy + i, C), dx->accumulate,
                     (REAL *)dx->data + i);
}

OP_RECORD(softmax) = {
    OP_ID(softmax),
    .summary = "exp(x / t) / sum over the last dimension",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(SoftmaxAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_ROWWISE,
    .reads = READS_OUT,
    .infer = infer,
};

KERNEL(softmax) = {
    .step = STEP(rows),
    .forward = forward,
    .backward = backward,
    .forward_tiles = element_tiles,
    .backward_tiles = element_tiles,
};
