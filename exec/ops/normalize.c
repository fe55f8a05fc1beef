/* normalize(x[..., D]): y = x / max(|x|, eps) by rows, |x| the L2 norm.
 *
 * dx = (dy - y (y . dy)) / |x| where |x| > eps, else dy / eps. Kept from forward: 1 /
 * max(|x|, eps) of every row, negative where eps is the larger. */
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "[..., D]"}, {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_REAL(NormalizeAttrs, eps, 1e-30, 1, "rows with a smaller norm are divided by it"),
    F_END};

static const NormalizeAttrs DEFAULTS = {.eps = 1e-12};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, 0, 1, RANK_MAX, diag));
    TRY(infer_known(node, 0, node->in[0]->type.rank - 1, diag));
    if (!(((const NormalizeAttrs *)node->attrs)->eps > 0))
        return infer_fail_attr(node, "eps", diag, "a number above 0");
    *out = node->in[0]->type;
    return STATUS_OK;
}

static size_t aux_bytes(const Call *call) {
    return (size_t)view_rows(&call->in[0]) * sizeof(REAL);
}

static void forward(const Call *call) {
    const int64_t R = view_rows(&call->in[0]), D = view_last(&call->in[0]);
    const REAL eps = (REAL)((const NormalizeAttrs *)call->attrs)->eps;
    REAL *inverses = call->aux;
    for (int64_t row = 0; row < R; row++) {
        const REAL *restrict x = (const REAL *)call->in[0].data + row * D;
        REAL *restrict y = (REAL *)call->out.data + row * D;
        const REAL norm = (REAL)sqrt((double)row_dot(x, x, D));
        const REAL inverse = 1 / (norm > eps || isnan(norm) ? norm : eps);
        for (int64_t j = 0; j < D; j++) y[j] = x[j] * inverse;
        inverses[row] = norm > eps || isnan(norm) ? inverse : -inverse;
    }
}

static void backward(const Call *call) {
    const int64_t R = view_rows(&call->in[0]), D = view_last(&call->in[0]);
    const REAL *inverses = call->aux;
    const View *dx = &call->d_in[0];
    for (int64_t row = 0; dx->data && row < R; row++) {
        const REAL *restrict y = (const REAL *)call->out.data + row * D;
        const REAL *restrict dy = (const REAL *)call->d_out.data + row * D;
        REAL *restrict to = (REAL *)dx->data + row * D;
        const REAL by = (REAL)fabs((double)inverses[row]);
        const REAL along = inverses[row] > 0 ? row_dot(y, dy, D) : 0;
        if (dx->accumulate)
            for (int64_t j = 0; j < D; j++) to[j] += (dy[j] - y[j] * along) * by;
        else
            for (int64_t j = 0; j < D; j++) to[j] = (dy[j] - y[j] * along) * by;
    }
}

OP_RECORD(normalize) = {
    OP_ID(normalize),
    .summary = "x / max(|x|, eps) by rows, |x| the L2 norm",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(NormalizeAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_ROWWISE,
    .reads = READS_OUT,
    .infer = infer,
};

KERNEL(normalize) = {
    .aux_bytes = aux_bytes,
    .forward = forward,
    .backward = backward,
};
