/* What rnn and lstm share: x[N, T, D], weight_in[W, D], weight_state[W, H], bias[W]? ->
 * h[N, T, H]. The sums at token t are a_t = weight_in x_t + weight_state h_{t-1} + bias,
 * W = H of them or H for each gate, with h_{-1} = 0; the op computes h_t from them.
 *
 * The products with x are one matrix product over all tokens; those with the state are
 * one for each token, over all samples. The backward pass through time finds da, the
 * gradient of the sums; it passes da_t weight_state to t - 1, and dx, dW and db are
 * products with da of all tokens. */
#ifndef COMPRESS_EXEC_OPS_RECURRENCE_H
#define COMPRESS_EXEC_OPS_RECURRENCE_H

#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"

/* Operands by position. */
enum {
    RECURRENCE_X,
    RECURRENCE_WEIGHT_IN,
    RECURRENCE_WEIGHT_STATE,
    RECURRENCE_BIAS,
};

/* What the kernels read. */
enum {
    RECURRENCE_READS = READS_IN(RECURRENCE_X) | READS_IN(RECURRENCE_WEIGHT_IN) |
                       READS_IN(RECURRENCE_WEIGHT_STATE) | READS_OUT
};

/* ---- shapes ---- */

/* Checks the input and its weights. */
static inline Status recurrence_check_in(const Node *node, Diag *diag) {
    const Type *x = &node->in[RECURRENCE_X]->type;
    TRY(infer_rank(node, RECURRENCE_X, 3, 3, diag));
    TRY(infer_known(node, RECURRENCE_X, 2, diag));
    TRY(infer_rank(node, RECURRENCE_WEIGHT_IN, 2, 2, diag));
    TRY(infer_known(node, RECURRENCE_WEIGHT_IN, 0, diag));
    return infer_dim(node, RECURRENCE_WEIGHT_IN, 1, x->dim[2], "the width of x", diag);
}

/* The other weights and the result, with `gates` sums for each of its elements. */
static inline Status recurrence_infer(const Node *node, int64_t gates, Type *out,
                                      Diag *diag) {
    const int64_t sums = node->in[RECURRENCE_WEIGHT_IN]->type.dim[0];
    const int64_t shape[] = {sums, sums / gates};
    TRY(infer_shape(node, RECURRENCE_WEIGHT_STATE, 2, shape, diag));
    if (node_has(node, RECURRENCE_BIAS))
        TRY(infer_shape(node, RECURRENCE_BIAS, 1, shape, diag));
    *out = node->in[RECURRENCE_X]->type;
    out->dim[2] = shape[1];
    return STATUS_OK;
}

/* Of the products with both weights. */
static inline double recurrence_flops(const Call *call) {
    const double weights = (double)(call->in[RECURRENCE_WEIGHT_IN].count +
                                    call->in[RECURRENCE_WEIGHT_STATE].count);
    return 2.0 * (double)view_rows(&call->in[RECURRENCE_X]) * weights;
}

/* ---- one call ---- */

typedef struct Recurrence {
    int64_t N, T, D, H, W;
    const REAL *x, *weight_in, *weight_state, *bias; /* bias: NULL when absent */
    const REAL *h;                                   /* the result */
} Recurrence;

/* Sizes and data of a call. */
static inline Recurrence recurrence_open(const Call *call) {
    const View *x = &call->in[RECURRENCE_X], *weight = &call->in[RECURRENCE_WEIGHT_IN];
    return (Recurrence){
        .N = x->dim[0],
        .T = x->dim[1],
        .D = x->dim[2],
        .H = call->out.dim[2],
        .W = weight->dim[0],
        .x = x->data,
        .weight_in = weight->data,
        .weight_state = call->in[RECURRENCE_WEIGHT_STATE].data,
        .bias = call_data(call, RECURRENCE_BIAS),
        .h = call->out.data,
    };
}

/* a[N, T, W] of all tokens, without the state. */
static inline void recurrence_start(const Recurrence *r, REAL *a) {
    const int64_t tokens = r->N * r->T, W = r->W;
    for (int64_t i = 0; r->bias && i < tokens; i++) put_row(a + i * W, r->bias, W, false);
    gemm(false, true, tokens, W, r->D, 1, r->x, r->D, r->weight_in, r->D, r->bias ? 1 : 0,
         a, W);
}

/* Adds the state's part to a_t of all samples. */
static inline void recurrence_add_state(const Recurrence *r, int64_t t, REAL *a) {
    if (t > 0)
        gemm(false, true, r->N, r->W, r->H, 1, r->h + (t - 1) * r->H, r->T * r->H,
             r->weight_state, r->H, 1, a + t * r->W, r->T * r->W);
}

/* dh[N, H] = da_t weight_state, unless t is the first. */
static inline void recurrence_hand_back(const Recurrence *r, int64_t t, const REAL *da,
                                        REAL *dh) {
    if (t > 0)
        gemm(false, false, r->N, r->H, r->W, 1, da + t * r->W, r->T * r->W,
             r->weight_state, r->H, 0, dh, r->H);
}

/* dw += sum over samples and t > 0 of left_t^T right_{t-1}, with rows of `height` and
 * `width` elements for each of the T tokens of N samples. */
static inline void recurrence_add_shifted(int64_t N, int64_t T, const REAL *left,
                                          int64_t height, const REAL *right,
                                          int64_t width, REAL *dw) {
    for (int64_t n = 0; n < N && T > 1; n++)
        gemm(true, false, height, width, T - 1, 1, left + (n * T + 1) * height, height,
             right + n * T * width, width, 1, dw, width);
}

/* The gradients of all operands, from da of all tokens. */
static inline void recurrence_gradients(const Recurrence *r, const Call *call,
                                        const REAL *da) {
    const int64_t tokens = r->N * r->T, D = r->D, W = r->W;
    const View *dx = &call->d_in[RECURRENCE_X], *dw = &call->d_in[RECURRENCE_WEIGHT_IN];
    if (dx->data)
        gemm(false, false, tokens, D, W, 1, da, W, r->weight_in, D, dx->accumulate,
             dx->data, D);
    if (dw->data)
        gemm(true, false, W, D, tokens, 1, da, W, r->x, D, dw->accumulate, dw->data, D);
    REAL *d_state = gradient_to_add(call, RECURRENCE_WEIGHT_STATE);
    if (d_state) recurrence_add_shifted(r->N, r->T, da, W, r->h, r->H, d_state);
    REAL *d_bias = gradient_to_add(call, RECURRENCE_BIAS);
    for (int64_t i = 0; i < tokens && d_bias; i++) put_row(d_bias, da + i * W, W, true);
}

#endif
