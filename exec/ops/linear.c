/* linear(x[..., K], weight[M, K...], bias[M]?) -> y[..., M]: y = x W^T + b; transposed,
 * with weight[K, M]: y = x W + b.
 *
 * With R rows of x: dx = dy W, dW = dy^T x, db = sum of the rows of dy; transposed dx =
 * dy W^T, dW = x^T dy. With act=i8 x is rounded first, by rows; dx is the same, and dW
 * that of the rounded x (straight-through). With `round` W is rounded first, by rows, for
 * y and dx; dW is the same. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/linalg/onednn.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/linear_act.h"
#include "exec/ops/linear_bf16.h"
#include "exec/ops/tiles.h"
#include "ir/quantised.h"

#include <string.h>

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "values [..., K]"},
    {"weight", OPERAND_REQUIRED, "[M, K], or more dimensions whose product is K"},
    {"bias", OPERAND_OPTIONAL, "[M]"},
    {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_BOOL(LinearAttrs, transposed, "the weight is [K, M]"),
    F_CHOICE(LinearAttrs, act, LINEAR_ACT_NAMES,
             "what the rows of x are rounded to: nothing, or 8 bits"),
    F_CHOICE(LinearAttrs, round, LINEAR_ROUND_NAMES,
             "what the weight is rounded to in every product, while it is trained"),
    F_END};

static bool is_transposed(const void *attrs) {
    return ((const LinearAttrs *)attrs)->transposed;
}

/* The rows of the weight are as many as x has columns. */
static Status infer_transposed(const Node *node, Type *out, Diag *diag) {
    const Type *x = &node->in[0]->type, *weight = &node->in[1]->type;
    TRY(infer_rank(node, 1, 2, 2, diag));
    TRY(infer_dim(node, 1, 0, x->dim[x->rank - 1], "the last dimension of x", diag));
    TRY(infer_known(node, 1, 1, diag));
    if (node->in[2]) TRY(infer_shape(node, 2, 1, &weight->dim[1], diag));
    *out = *x;
    out->dim[x->rank - 1] = weight->dim[1];
    return STATUS_OK;
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, 0, 1, RANK_MAX, diag));
    TRY(infer_rank(node, 1, 2, RANK_MAX, diag));
    const Type *x = &node->in[0]->type, *weight = &node->in[1]->type;
    TRY(infer_known(node, 0, x->rank - 1, diag));
    if (is_transposed(node->attrs)) return infer_transposed(node, out, diag);
    const int64_t K = x->dim[x->rank - 1];
    int64_t width = 1;
    for (int i = 0; i < weight->rank; i++) {
        TRY(infer_known(node, 1, i, diag));
        if (i > 0 && !dim_multiply(width, weight->dim[i], &width))
            return infer_fail(node, 1, diag, "a product of dimensions that fits");
    }
    if (width != K)
        return infer_fail(node, 1, diag,
                          "%lld (the last dimension of x) elements in each row",
                          (long long)K);
    if (node->in[2]) TRY(infer_shape(node, 2, 1, weight->dim, diag));
    *out = *x;
    out->dim[x->rank - 1] = weight->dim[0];
    return STATUS_OK;
}

static bool is_rounded(const void *attrs) {
    return ((const LinearAttrs *)attrs)->act == LINEAR_ACT_I8;
}

static int weight_round(const Call *call) {
    return ((const LinearAttrs *)call->attrs)->round;
}

/* Whether operands are rounded to bfloat16: not those of fewer bits. */
static bool is_bf16(const Call *call) {
    return sizeof(REAL) == sizeof(float) && call->bf16 && !is_rounded(call->attrs) &&
           !weight_round(call);
}

/* Whether the weights are whole numbers that can be multiplied as such, in sums of 32
 * bits. */
static bool is_whole(const Call *call) {
    const Storage *storage = call->node->in[1]->storage;
    return !weight_round(call) && sizeof(REAL) == sizeof(float) &&
           is_rounded(call->attrs) && !is_transposed(call->attrs) && storage &&
           storage->tensor.dtype == DTYPE_Q8 &&
           storage->tensor.group <= INTEGER_COLUMNS_MAX;
}

/* Room for the rows of x, rounded: for one of bytes where nothing else is multiplied.
 * Training may make floats of the weights. */
static size_t rows_bytes(const Call *call) {
    const View *x = &call->in[0];
    if (is_whole(call) && !call->training) return (size_t)view_last(x);
    return is_rounded(call->attrs) ? (size_t)x->count * sizeof(REAL) : 0;
}

/* Room for rounded operands: rows of x, then the weights and a row of them. */
static size_t scratch_bytes(const Call *call) {
    const View *w = &call->in[1];
    const size_t weights =
        (size_t)w->count * (sizeof(REAL) + sizeof(float)); /* one row may be all */
    if (is_bf16(call)) return bf16_linear_scratch(call);
    return rows_bytes(call) + (weight_round(call) ? weights : 0);
}

/* The weights as they are multiplied. */
static const REAL *weights_of(const Call *call) {
    const View *w = &call->in[1];
    if (!weight_round(call) || w->count == 0) return w->data;
    REAL *out = (REAL *)((char *)call->scratch + rows_bytes(call));
    REAL_FN(rounded_weights)
    (weight_round(call), w->dim[0], w->count / w->dim[0], w->data, out,
     (float *)(out + w->count));
    return out;
}

/* The rows of x as they are multiplied. */
static const REAL *rows_of_x(const Call *call) {
    const View *x = &call->in[0];
    if (!is_rounded(call->attrs)) return x->data;
    REAL_FN(rounded_rows)(view_rows(x), view_last(x), x->data, call->scratch);
    return call->scratch;
}

/* The weights that are; NULL = none. */
static const Tensor *whole_weights(const Call *call) {
    const Storage *storage = call->node->in[1]->storage;
    return is_whole(call) && storage->tensor.buf ? &storage->tensor : NULL;
}

static double flops(const Call *call) {
    return 2.0 * (double)view_rows(&call->in[0]) * (double)call->in[1].count;
}

/* ---- how products are cut ---- */

static const ProductGrid WHOLE = {1, 1, 1};

static ProductGrid grid_of(const Call *call, int64_t m, int64_t n, int64_t k,
                           bool outer) {
    return is_bf16(call) ? bf16_linear_grid(m, n, k, outer) : product_grid(m, n, k);
}

static ProductGrid y_grid(const Call *call) {
    const View *x = &call->in[0];
    return grid_of(call, view_rows(x), view_last(&call->out), view_last(x), false);
}

/* Without cells where the gradient is not wanted, as the next. */
static ProductGrid dx_grid(const Call *call) {
    const View *dx = &call->d_in[0];
    if (!dx->data) return (ProductGrid){0};
    return grid_of(call, view_rows(dx), view_last(dx), view_last(&call->d_out), false);
}

static ProductGrid dw_grid(const Call *call) {
    const View *dy = &call->d_out, *x = &call->in[0];
    const int64_t K = view_last(x), M = view_last(dy);
    if (!call->d_in[1].data) return (ProductGrid){0};
    return is_transposed(call->attrs) ? grid_of(call, K, M, view_rows(x), true)
                                      : grid_of(call, M, K, view_rows(x), true);
}

static int64_t packed_side(int64_t count, int64_t most, int64_t *work) {
    return side_parts(count, PACKED_SIDE, most, PACKED_PRODUCTS, work);
}

/* With packed weights every element is one sum in order, however the product is cut: a
 * few parts for each thread. What is packed here is packed by every part, so that none
 * has rows alone; whole numbers, which multiply WHOLE_SPEED times as fast, have rows that
 * every part rounds. */
static ProductGrid packed_grid(const Call *call) {
    enum { WHOLE_SPEED = 4, PARTS_EACH = 4 };
    const Matrix *w = call->in[1].packed;
    const bool rounds = matrix_rounds(w);
    const int64_t rows = view_rows(&call->in[0]);
    const int64_t most = call->workers > 1 ? PARTS_EACH * call->workers : 1;
    int64_t work = rows * w->rows * w->columns / (rounds ? WHOLE_SPEED : 1);
    ProductGrid grid = {1, 1, TILE_UNIT};
    if (rounds) grid.down = packed_side(rows, call->workers, &work);
    grid.across = packed_side(w->rows, most / grid.down, &work);
    if (w->data && !rounds) grid.down = packed_side(rows, most / grid.across, &work);
    return grid;
}

/* A library's own form of the weights goes with all of their columns. */
static ProductGrid onednn_grid(const Call *call) {
    const int64_t rows = view_rows(&call->in[0]);
    int64_t work = rows * call->in[1].count;
    return (ProductGrid){packed_side(rows, call->workers, &work), 1, TILE_UNIT};
}

static ProductGrid forward_grid(const Call *call) {
    const View *w = &call->in[1];
    if (w->packed) return packed_grid(call);
    if (w->onednn) return onednn_grid(call);
    return y_grid(call);
}

/* Whether a call can be cut: not a small one, and operands that are packed or rounded in
 * scratch are for all of it. */
static bool is_cut(const Call *call) {
    const View *w = &call->in[1];
    const bool whole = w->packed && matrix_rounds(w->packed);
    const bool here = is_bf16(call)
                          ? !w->rounded
                          : (is_rounded(call->attrs) && !whole) || weight_round(call);
    const int64_t least = w->packed || w->onednn ? PACKED_PRODUCTS : TILE_PRODUCTS;
    return view_rows(&call->in[0]) * w->count >= least && !here;
}

static int64_t forward_tiles(const Call *call) {
    return is_cut(call) ? product_cells(forward_grid(call)) : 1;
}

/* Gradients in one place must be added one after the other. */
static int64_t backward_tiles(const Call *call) {
    if (!is_cut(call) || call->d_in[0].data == call->d_in[1].data) return 1;
    return product_cells(dx_grid(call)) + product_cells(dw_grid(call));
}

#ifndef REAL_IS_DOUBLE
/* There are no floats (params_create_stored): some are made of the numbers as they are
 * stored, of as many rows as are packed at once. */
static void multiply_stored(const Call *call, Range columns) {
    const View *x = &call->in[0], *b = &call->in[2];
    const Tensor *stored = &call->node->in[1]->storage->tensor;
    Matrix rows = *call->in[1].packed;
    const int64_t M = rows.rows, K = rows.columns, most = ROOM_PANELS * PANEL_ROWS;
    float *floats = (float *)((char *)call->scratch + matrix_room_bytes(K));
    for (int64_t first = columns.first; first < columns.end; first += most) {
        rows.rows = columns.end - first < most ? columns.end - first : most;
        tensor_read_f32(stored, first * K, rows.rows * K, floats);
        REAL_FN(weights_times)
        (&rows, 0, rows.rows, floats, false,
         b->data ? (const float *)b->data + first : NULL, x->data, K,
         (float *)call->out.data + first, M, view_rows(x), call->scratch);
    }
}

/* Whole numbers round the rows by themselves; floats may not be packed yet. */
static void multiply_packed(const Call *call, Cell c) {
    const View *x = &call->in[0], *b = &call->in[2];
    const Matrix *w = call->in[1].packed;
    const int64_t M = w->rows, K = w->columns, count = c.rows.end - c.rows.first;
    float *y = (float *)call->out.data + c.rows.first * M;
    if (!w->data && !call->in[1].data)
        multiply_stored(call, c.columns);
    else if (!w->data)
        REAL_FN(weights_times)
    (w, c.columns.first, c.columns.end, call->in[1].data, is_transposed(call->attrs),
     b->data, x->data, K, y, M, count, call->scratch);
    else {
        const float *rows = matrix_rounds(w) ? x->data : rows_of_x(call);
        REAL_FN(matrix_times)
        (w, c.columns.first, c.columns.end, b->data, rows + c.rows.first * K, K, y, M,
         count);
    }
}
#endif

static void forward(const Call *call) {
    const View *x = &call->in[0], *b = &call->in[2];
    const int64_t R = view_rows(x), K = view_last(x), M = view_last(&call->out);
    const bool transposed = is_transposed(call->attrs);
    REAL *y = call->out.data;
    const Cell c =
        product_cell(call->tiles ? forward_grid(call) : WHOLE, R, M, call->tile);
#ifndef REAL_IS_DOUBLE
    if (call->in[1].packed) {
        multiply_packed(call, c);
        return;
    }
    if (call->in[1].onednn && onednn_times(call->in[1].onednn, c.rows.end - c.rows.first,
                                           (const float *)x->data + c.rows.first * K, K,
                                           b->data, y + c.rows.first * M))
        return;
#endif
    const Tensor *whole = whole_weights(call);
    if (whole) {
        REAL_FN(linear_whole)
        (R, M, K, x->data, tensor_q_values(whole), tensor_q_scales(whole), b->data, y,
         call->scratch);
        return;
    }
    const int64_t height = c.rows.end - c.rows.first;
    const int64_t width = c.columns.end - c.columns.first;
    y += c.rows.first * M + c.columns.first;
    for (int64_t r = 0; b->data && r < height; r++)
        memcpy(y + r * M, (const REAL *)b->data + c.columns.first,
               (size_t)width * sizeof(REAL));
    if (is_bf16(call)) {
        bf16_linear_forward(call, transposed, c.rows, b->data != NULL);
        return;
    }
    gemm(false, !transposed, height, width, K, 1, rows_of_x(call) + c.rows.first * K, K,
         weights_of(call) + c.columns.first * (transposed ? 1 : K), transposed ? M : K,
         b->data ? 1 : 0, y, M);
}

/* sum[j] += the rows of dy[R, M], four at a time, for columns j of a range. */
static void add_rows(REAL *restrict sum, const REAL *restrict dy, int64_t R, int64_t M,
                     Range columns) {
    int64_t r = 0;
    for (; r + 4 <= R; r += 4, dy += 4 * M)
        for (int64_t j = columns.first; j < columns.end; j++)
            sum[j] += (dy[j] + dy[M + j]) + (dy[2 * M + j] + dy[3 * M + j]);
    for (; r < R; r++, dy += M)
        for (int64_t j = columns.first; j < columns.end; j++) sum[j] += dy[j];
}

/* Cell `i` of dx. */
static void put_input(const Call *call, int64_t i) {
    const View *dx = &call->d_in[0];
    const ProductGrid grid = call->tiles ? dx_grid(call) : WHOLE;
    const int64_t R = view_rows(dx), K = view_last(dx), M = view_last(&call->d_out);
    const bool transposed = is_transposed(call->attrs);
    const Cell c = product_cell(grid, R, K, i);
    if (is_bf16(call)) {
        bf16_linear_input(call, transposed, c.rows);
        return;
    }
    gemm(false, transposed, c.rows.end - c.rows.first, c.columns.end - c.columns.first, M,
         1, (const REAL *)call->d_out.data + c.rows.first * M, M,
         weights_of(call) + c.columns.first * (transposed ? M : 1), transposed ? M : K,
         dx->accumulate, (REAL *)dx->data + c.rows.first * K + c.columns.first, K);
}

/* Cell `i` of dW. */
static void put_weight(const Call *call, int64_t i) {
    const ProductGrid grid = call->tiles ? dw_grid(call) : WHOLE;
    const View *x = &call->in[0], *dw = &call->d_in[1];
    const int64_t R = view_rows(x), K = view_last(x), M = view_last(&call->d_out);
    const bool transposed = is_transposed(call->attrs);
    const int64_t height = transposed ? K : M, width = transposed ? M : K;
    const Cell c = product_cell(grid, height, width, i);
    if (is_bf16(call)) {
        bf16_linear_weight(call, transposed, c.rows);
        return;
    }
    const REAL *dy = call->d_out.data, *rows = rows_of_x(call);
    gemm(true, false, c.rows.end - c.rows.first, c.columns.end - c.columns.first, R, 1,
         (transposed ? rows : dy) + c.rows.first, height,
         (transposed ? dy : rows) + c.columns.first, width, dw->accumulate,
         (REAL *)dw->data + c.rows.first * width + c.columns.first, width);
}

/* Parts are the cells of dx, then those of dW; db is shared out among all. */
static void backward(const Call *call) {
    const View *db = &call->d_in[2];
    const int64_t M = view_last(&call->d_out), i = call->tile;
    const int64_t inputs = call->tiles ? product_cells(dx_grid(call)) : 0;
    const bool whole = call->tiles == 0;
    if (whole ? call->d_in[0].data != NULL : i < inputs) put_input(call, i);
    if (whole ? call->d_in[1].data != NULL : i >= inputs) put_weight(call, i - inputs);
    if (!db->data) return;
    const Range columns = call_range(call, M, TILE_UNIT);
    if (!db->accumulate)
        memset((REAL *)db->data + columns.first, 0,
               (size_t)(columns.end - columns.first) * sizeof(REAL));
    add_rows(db->data, call->d_out.data, view_rows(&call->d_out), M, columns);
}

OP_RECORD(linear) = {
    OP_ID(linear),
    .summary = "x W^T + b, or x W + b",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(LinearAttrs),
    .traits = OP_PROJECTION | OP_ROWWISE,
    .reads = READS_IN(0) | READS_IN(1),
    .infer = infer,
    .flops = flops,
};

KERNEL(linear) = {
    .step = STEP(linear),
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
    .forward_tiles = forward_tiles,
    .backward_tiles = backward_tiles,
};
