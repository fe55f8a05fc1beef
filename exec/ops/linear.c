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

#ifndef REAL_IS_DOUBLE
/* Weights of int8 round the rows by themselves; floats may not be packed yet. */
static void multiply_packed(const Call *call) {
    const View *x = &call->in[0], *b = &call->in[2];
    const Matrix *w = call->in[1].packed;
    const int64_t M = view_last(&call->out);
    if (!w->data) {
        REAL_FN(weights_times)
        (w, call->in[1].data, is_transposed(call->attrs), b->data, x->data, w->columns,
         call->out.data, M, view_rows(x), call->scratch);
        return;
    }
    REAL_FN(matrix_times)
    (w, 0, M, b->data, w->kind == STEP_INT8 ? x->data : rows_of_x(call), w->columns,
     call->out.data, M, view_rows(x));
}
#endif

static void forward(const Call *call) {
    const View *x = &call->in[0], *b = &call->in[2];
    const int64_t R = view_rows(x), K = view_last(x), M = view_last(&call->out);
    const bool transposed = is_transposed(call->attrs);
    REAL *y = call->out.data;
#ifndef REAL_IS_DOUBLE
    if (call->in[1].packed) {
        multiply_packed(call);
        return;
    }
    if (call->in[1].onednn) {
        onednn_times(call->in[1].onednn, R, x->data, K, b->data, y);
        return;
    }
#endif
    const Tensor *whole = whole_weights(call);
    if (whole) {
        REAL_FN(linear_whole)
        (R, M, K, x->data, tensor_q_values(whole), tensor_q_scales(whole), b->data, y,
         call->scratch);
        return;
    }
    if (b->data)
        for (int64_t r = 0; r < R; r++)
            memcpy(y + r * M, b->data, (size_t)M * sizeof(REAL));
    if (is_bf16(call)) {
        bf16_linear_forward(call, transposed, b->data != NULL);
        return;
    }
    gemm(false, !transposed, R, M, K, 1, rows_of_x(call), K, weights_of(call),
         transposed ? M : K, b->data ? 1 : 0, y, M);
}

/* sum[M] += the rows of dy[R, M], four at a time. */
static void add_rows(REAL *restrict sum, const REAL *restrict dy, int64_t R, int64_t M) {
    int64_t r = 0;
    for (; r + 4 <= R; r += 4, dy += 4 * M)
        for (int64_t j = 0; j < M; j++)
            sum[j] += (dy[j] + dy[M + j]) + (dy[2 * M + j] + dy[3 * M + j]);
    for (; r < R; r++, dy += M)
        for (int64_t j = 0; j < M; j++) sum[j] += dy[j];
}

/* dx and dW, where they are wanted. */
static void backward_products(const Call *call) {
    const View *x = &call->in[0];
    const View *dx = &call->d_in[0], *dw = &call->d_in[1];
    const int64_t R = view_rows(x), K = view_last(x), M = view_last(&call->d_out);
    const bool transposed = is_transposed(call->attrs);
    const REAL *dy = call->d_out.data;
    const REAL *rows = dw->data ? rows_of_x(call) : NULL;
    if (dx->data)
        gemm(false, transposed, R, K, M, 1, dy, M, weights_of(call), transposed ? M : K,
             dx->accumulate, dx->data, K);
    if (dw->data && transposed)
        gemm(true, false, K, M, R, 1, rows, K, dy, M, dw->accumulate, dw->data, M);
    else if (dw->data)
        gemm(true, false, M, K, R, 1, dy, M, rows, K, dw->accumulate, dw->data, K);
}

static void backward(const Call *call) {
    const View *db = &call->d_in[2];
    const int64_t M = view_last(&call->d_out);
    if (is_bf16(call))
        bf16_linear_backward(call, is_transposed(call->attrs));
    else
        backward_products(call);
    if (!db->data) return;
    if (!db->accumulate) memset(db->data, 0, (size_t)M * sizeof(REAL));
    add_rows(db->data, call->d_out.data, view_rows(&call->d_out), M);
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
};
