/* layer_norm(x[..., D], weight[D], bias[D]?): y = (x - mean) * rstd * w + b by rows, with
 * rstd = 1 / sqrt(var + eps) and var the mean squared deviation.
 *
 * With h = (x - mean) * rstd and g = dy * w:
 * dx = rstd * (g - mean(g) - h * mean(g h)), dw = sum of dy h, db = sum of dy.
 * Kept from forward: mean[R], then rstd[R]. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/tiles.h"

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "[..., D]"},
                                   {"weight", OPERAND_REQUIRED, "[D]"},
                                   {"bias", OPERAND_OPTIONAL | OPERAND_UNNAMED, "[D]"},
                                   {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_REAL(LayerNormAttrs, eps, 1e-30, 1, "added to the variance"), F_END};

static const LayerNormAttrs DEFAULTS = {.eps = 1e-5};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, 0, 1, RANK_MAX, diag));
    const Type *x = &node->in[0]->type;
    TRY(infer_known(node, 0, x->rank - 1, diag));
    for (int i = 1; i < 3; i++)
        if (node_has(node, i)) TRY(infer_shape(node, i, 1, &x->dim[x->rank - 1], diag));
    if (!(((const LayerNormAttrs *)node->attrs)->eps > 0))
        return infer_fail_attr(node, "eps", diag, "a number above 0");
    *out = *x;
    return STATUS_OK;
}

static size_t aux_bytes(const Call *call) {
    return (size_t)view_rows(&call->in[0]) * 2 * sizeof(REAL);
}

static size_t scratch_bytes(const Call *call) {
    return (size_t)view_last(&call->in[0]) * 2 * sizeof(REAL);
}

static REAL squared_deviation(const REAL *x, int64_t D, REAL mean) {
    REAL s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = 0; j < D; j++) s += (x[j] - mean) * (x[j] - mean);
    return s;
}

static void forward(const Call *call) {
    const int64_t R = view_rows(&call->in[0]), D = view_last(&call->in[0]);
    const REAL eps = (REAL)((const LayerNormAttrs *)call->attrs)->eps;
    const REAL *restrict w = call->in[1].data, *restrict b = call_data(call, 2);
    REAL *means = call->aux, *rstds = means + R;
    const Range rows = call_range(call, R, 1);
    for (int64_t r = rows.first; r < rows.end; r++) {
        const REAL *restrict x = (const REAL *)call->in[0].data + r * D;
        REAL *restrict y = (REAL *)call->out.data + r * D;
        const REAL mean = row_sum(x, D) / (REAL)D;
        const REAL var = squared_deviation(x, D, mean) / (REAL)D;
        const REAL rstd = 1 / (REAL)sqrt(var + eps);
        if (b)
            for (int64_t j = 0; j < D; j++) y[j] = (x[j] - mean) * rstd * w[j] + b[j];
        else
            for (int64_t j = 0; j < D; j++) y[j] = (x[j] - mean) * rstd * w[j];
        means[r] = mean;
        rstds[r] = rstd;
    }
}

/* One row of x, dy and what was kept of it. */
typedef struct LayerNormRow {
    const REAL *x, *dy;
    REAL mean, rstd;
    int64_t D;
} LayerNormRow;

/* dw += dy h and db += dy for a range of columns, both in scratch: they stay in cache. */
static void add_parameters(LayerNormRow row, Range columns, REAL *restrict dw,
                           REAL *restrict db) {
    const REAL *restrict x = row.x, *restrict dy = row.dy;
    for (int64_t j = columns.first; j < columns.end; j++) {
        dw[j] += dy[j] * ((x[j] - row.mean) * row.rstd);
        db[j] += dy[j];
    }
}

/* dx = rstd * (g - mean(g) - h * mean(g h)), or added to it. */
static void put_input(LayerNormRow row, const REAL *restrict w, REAL *restrict dx,
                      bool accumulate) {
    const REAL *restrict x = row.x, *restrict dy = row.dy;
    const REAL mean = row.mean, rstd = row.rstd;
    REAL sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
    for (int64_t j = 0; j < row.D; j++) {
        const REAL g = dy[j] * w[j];
        sum += g;
        product += g * ((x[j] - mean) * rstd);
    }
    const REAL s = sum / (REAL)row.D, p = product / (REAL)row.D;
    if (accumulate)
        for (int64_t j = 0; j < row.D; j++)
            dx[j] += rstd * (dy[j] * w[j] - s - (x[j] - mean) * rstd * p);
    else
        for (int64_t j = 0; j < row.D; j++)
            dx[j] = rstd * (dy[j] * w[j] - s - (x[j] - mean) * rstd * p);
}

/* A part has rows of dx, and columns of dw and db. */
static void backward(const Call *call) {
    const int64_t R = view_rows(&call->in[0]), D = view_last(&call->in[0]);
    const REAL *means = call->aux, *rstds = means + R;
    const View *dx = &call->d_in[0], *dw = &call->d_in[1];
    REAL *db = gradient_of(call, 2), *w_sum = call->scratch, *b_sum = w_sum + D;
    const Range rows = call_range(call, R, 1), columns = call_range(call, D, TILE_UNIT);
    const int64_t width = columns.end - columns.first;
    memset(call->scratch, 0, (size_t)D * 2 * sizeof(REAL));
    for (int64_t r = 0; r < R; r++) {
        const LayerNormRow row = {(const REAL *)call->in[0].data + r * D,
                                  (const REAL *)call->d_out.data + r * D, means[r],
                                  rstds[r], D};
        if (dw->data || db) add_parameters(row, columns, w_sum, b_sum);
        if (dx->data && r >= rows.first && r < rows.end)
            put_input(row, call->in[1].data, (REAL *)dx->data + r * D, dx->accumulate);
    }
    if (dw->data)
        put_row((REAL *)dw->data + columns.first, w_sum + columns.first, width,
                dw->accumulate);
    if (db)
        put_row(db + columns.first, b_sum + columns.first, width,
                call->d_in[2].accumulate);
}

/* Gradients in one place must be added one after the other. */
static int64_t backward_tiles(const Call *call) {
    const void *dx = call->d_in[0].data;
    const bool shared =
        dx == call->d_in[1].data || (call->in_count > 2 && dx == call->d_in[2].data);
    return dx && shared ? 1 : element_tiles(call);
}

OP_RECORD(layer_norm) = {
    OP_ID(layer_norm),
    .summary = "(x - mean) / sqrt(var + eps) * weight + bias by rows",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(LayerNormAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_NORM | OP_ROWWISE,
    .reads = READS_IN(0) | READS_IN(1),
    .infer = infer,
};

KERNEL(layer_norm) = {
    .aux_bytes = aux_bytes,
    .scratch_bytes = scratch_bytes,
    .step = STEP(rows),
    .forward = forward,
    .backward = backward,
    .forward_tiles = element_tiles,
    .backward_tiles = backward_tiles,
};
