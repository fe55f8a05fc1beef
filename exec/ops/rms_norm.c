/* rms_norm(x[..., D], weight[D]): y = x * r * w by rows, r = 1 / sqrt(mean(x^2) + eps).
 * With `heads` H a row is H rows one after the other, and the weight is [D / H]; with
 * unit_offset w is 1 + weight.
 *
 * With h = x * r and g = dy * w: dx = r * (g - h * mean(g h)), dw = sum of dy h.
 * Kept from forward: r[R]. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/tiles.h"

#include <string.h>

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "[..., D]"},
                                   {"weight", OPERAND_REQUIRED, "[D / heads]"},
                                   {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_REAL(RmsNormAttrs, eps, 1e-30, 1, "added to the mean square"),
    F_INT(RmsNormAttrs, heads, 1, 1 << 20, "parts of a row, each with a norm of its own"),
    F_BOOL(RmsNormAttrs, unit_offset, "the factor is 1 + weight"), F_END};

static const RmsNormAttrs DEFAULTS = {.eps = 1e-6, .heads = 1};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, 0, 1, RANK_MAX, diag));
    const RmsNormAttrs *attrs = node->attrs;
    const Type *x = &node->in[0]->type;
    TRY(infer_known(node, 0, x->rank - 1, diag));
    const int64_t width = x->dim[x->rank - 1];
    if (attrs->heads < 1 || width % attrs->heads)
        return infer_fail_attr(node, "heads", diag, "a divisor of the width %lld",
                               (long long)width);
    if (attrs->heads > 1) TRY(infer_rank(node, 0, 3, 3, diag));
    TRY(infer_shape(node, 1, 1, (const int64_t[]){width / attrs->heads}, diag));
    if (!(attrs->eps > 0)) return infer_fail_attr(node, "eps", diag, "a number above 0");
    *out = *x;
    return STATUS_OK;
}

/* Rows that have a norm each, and their width. */
static int64_t row_count(const Call *call) {
    return view_rows(&call->in[0]) * ((const RmsNormAttrs *)call->attrs)->heads;
}
static int64_t row_width(const Call *call) {
    return view_last(&call->in[0]) / ((const RmsNormAttrs *)call->attrs)->heads;
}

static size_t aux_bytes(const Call *call) {
    return (size_t)row_count(call) * sizeof(REAL);
}

static size_t scratch_bytes(const Call *call) {
    return (size_t)row_width(call) * sizeof(REAL);
}

static void forward(const Call *call) {
    const RmsNormAttrs *attrs = call->attrs;
    const int64_t R = row_count(call), D = row_width(call);
    const REAL eps = (REAL)attrs->eps, more = attrs->unit_offset;
    const REAL *restrict w = call->in[1].data;
    REAL *inverses = call->aux;
    const Range rows = call_range(call, R, 1);
    for (int64_t row = rows.first; row < rows.end; row++) {
        const REAL *restrict x = (const REAL *)call->in[0].data + row * D;
        REAL *restrict y = (REAL *)call->out.data + row * D;
        const REAL r = 1 / (REAL)sqrt(row_dot(x, x, D) / (REAL)D + eps);
        for (int64_t j = 0; j < D; j++) y[j] = x[j] * r * (w[j] + more);
        inverses[row] = r;
    }
}

/* One row of x and dy, and r. */
typedef struct RmsNormRow {
    const REAL *x, *dy;
    REAL r, more; /* more: added to the weight */
    int64_t D;
} RmsNormRow;

/* dw += dy h for a range of columns, in scratch. */
static void add_weight(RmsNormRow row, Range columns, REAL *restrict dw) {
    const REAL *restrict x = row.x, *restrict dy = row.dy;
    for (int64_t j = columns.first; j < columns.end; j++) dw[j] += dy[j] * (x[j] * row.r);
}

/* dx = r * (g - h * mean(g h)), or added to it. */
static void put_input(RmsNormRow row, const REAL *restrict w, REAL *restrict dx,
                      bool accumulate) {
    const REAL *restrict x = row.x, *restrict dy = row.dy;
    const REAL r = row.r, more = row.more;
    REAL product = 0;
#pragma omp simd reduction(+ : product)
    for (int64_t j = 0; j < row.D; j++) product += dy[j] * (w[j] + more) * (x[j] * r);
    const REAL p = product / (REAL)row.D;
    if (accumulate)
        for (int64_t j = 0; j < row.D; j++)
            dx[j] += r * (dy[j] * (w[j] + more) - x[j] * r * p);
    else
        for (int64_t j = 0; j < row.D; j++)
            dx[j] = r * (dy[j] * (w[j] + more) - x[j] * r * p);
}

/* A part has rows of dx, and columns of dw. */
static void backward(const Call *call) {
    const int64_t R = row_count(call), D = row_width(call);
    const REAL more = ((const RmsNormAttrs *)call->attrs)->unit_offset;
    const REAL *inverses = call->aux;
    const View *dx = &call->d_in[0], *dw = &call->d_in[1];
    REAL *sum = call->scratch;
    const Range rows = call_range(call, R, 1), columns = call_range(call, D, TILE_UNIT);
    memset(sum, 0, (size_t)D * sizeof(REAL));
    for (int64_t r = 0; r < R; r++) {
        const RmsNormRow row = {(const REAL *)call->in[0].data + r * D,
                                (const REAL *)call->d_out.data + r * D, inverses[r], more,
                                D};
        if (dw->data) add_weight(row, columns, sum);
        if (dx->data && r >= rows.first && r < rows.end)
            put_input(row, call->in[1].data, (REAL *)dx->data + r * D, dx->accumulate);
    }
    if (dw->data)
        put_row((REAL *)dw->data + columns.first, sum + columns.first,
                columns.end - columns.first, dw->accumulate);
}

/* Gradients in one place must be added one after the other. */
static int64_t backward_tiles(const Call *call) {
    const void *dx = call->d_in[0].data;
    const bool shared = dx == call->d_in[1].data;
    return dx && shared ? 1 : element_tiles(call);
}

OP_RECORD(rms_norm) = {
    OP_ID(rms_norm),
    .summary = "x / sqrt(mean(x^2) + eps) * weight by rows, or by heads of rows",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(RmsNormAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_NORM | OP_ROWWISE,
    .reads = READS_IN(0) | READS_IN(1),
    .infer = infer,
};

KERNEL(rms_norm) = {
    .aux_bytes = aux_bytes,
    .scratch_bytes = scratch_bytes,
    .step = STEP(rms_norm),
    .forward = forward,
    .backward = backward,
    .forward_tiles = element_tiles,
    .backward_tiles = backward_tiles,
};
