/* lstm(x[N, T, D], weight_in[4 H, D], weight_state[4 H, H], bias[4 H]) -> h[N, T, H].
 *
 * From h_0 = c_0 = 0, with rows of the weights in the order i, f, g, o (as in PyTorch):
 * i, f, o = sigmoid, g = tanh of weight_in x_t + weight_state h_{t-1} + bias;
 * c_t = f c_{t-1} + i g, h_t = o tanh(c_t).
 *
 * The products with x are one matrix product over all tokens; those with the state are
 * one for each token, over all samples. Backward through time carries dh and dc:
 * do = dh tanh(c), dc += dh o (1 - tanh^2(c)), di = dc g, dg = dc i, df = dc c_{t-1},
 * then dc f and da weight_state go to t - 1, where da is the gradient before the four
 * functions. dx, dW and db are products with da of all tokens.
 *
 * Kept from forward: gates[N, T, 4 H] after their functions, c[N, T, H]. */
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/lstm_cell.h"
#include "exec/step.h"

enum { X, WEIGHT_IN, WEIGHT_STATE, BIAS, GATES = LSTM_GATES };

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "tokens [N, T, D]"},
                                   {"weight_in", OPERAND_REQUIRED, "[4 H, D]"},
                                   {"weight_state", OPERAND_REQUIRED, "[4 H, H]"},
                                   {"bias", OPERAND_REQUIRED, "[4 H]"},
                                   {NULL, 0, NULL}};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const Type *x = &node->in[X]->type, *weight = &node->in[WEIGHT_IN]->type;
    TRY(infer_rank(node, X, 3, 3, diag));
    TRY(infer_known(node, X, 2, diag));
    TRY(infer_rank(node, WEIGHT_IN, 2, 2, diag));
    TRY(infer_known(node, WEIGHT_IN, 0, diag));
    TRY(infer_dim(node, WEIGHT_IN, 1, x->dim[2], "the width of x", diag));
    if (weight->dim[0] % GATES)
        return infer_fail(node, WEIGHT_IN, diag, "rows for four gates");
    const int64_t shape[] = {weight->dim[0], weight->dim[0] / GATES};
    TRY(infer_shape(node, WEIGHT_STATE, 2, shape, diag));
    TRY(infer_shape(node, BIAS, 1, shape, diag));
    *out = *x;
    out->dim[2] = shape[1];
    return STATUS_OK;
}

static double flops(const Call *call) {
    const double weights =
        (double)(call->in[WEIGHT_IN].count + call->in[WEIGHT_STATE].count);
    return 2.0 * (double)view_rows(&call->in[X]) * weights;
}

static size_t aux_bytes(const Call *call) {
    return (size_t)call->out.count * (GATES + 1) * sizeof(REAL);
}

/* da[N, T, 4 H], then dc[N, H] and dh[N, H]. */
static size_t scratch_bytes(const Call *call) {
    const int64_t N = call->out.dim[0], H = call->out.dim[2];
    return (size_t)(call->out.count * GATES + 2 * N * H) * sizeof(REAL);
}

/* ---- forward ---- */

static void forward(const Call *call) {
    const int64_t N = call->out.dim[0], T = call->out.dim[1], H = call->out.dim[2];
    const int64_t D = call->in[X].dim[2], wide = GATES * H;
    REAL *gates = call->aux, *c = gates + N * T * wide, *h = call->out.data;
    for (int64_t r = 0; r < N * T; r++)
        put_row(gates + r * wide, call->in[BIAS].data, wide, false);
    gemm(false, true, N * T, wide, D, 1, call->in[X].data, D, call->in[WEIGHT_IN].data, D,
         1, gates, wide);
    for (int64_t t = 0; t < T; t++) {
        if (t > 0)
            gemm(false, true, N, wide, H, 1, h + (t - 1) * H, T * H,
                 call->in[WEIGHT_STATE].data, H, 1, gates + t * wide, T * wide);
        for (int64_t n = 0; n < N; n++) {
            const int64_t r = n * T + t;
            lstm_cell_step(gates + r * wide, t ? c + (r - 1) * H : NULL, c + r * H,
                           h + r * H, H);
        }
    }
}

/* ---- backward ---- */

/* da[N, T, 4 H] of all tokens, from the last to the first. */
static void go_back(const Call *call, REAL *da) {
    const int64_t N = call->out.dim[0], T = call->out.dim[1], H = call->out.dim[2];
    const int64_t wide = GATES * H;
    const REAL *gates = call->aux, *c = gates + N * T * wide, *dy = call->d_out.data;
    REAL *dc = da + N * T * wide, *dh = dc + N * H;
    memset(dc, 0, (size_t)(2 * N * H) * sizeof(REAL));
    for (int64_t t = T - 1; t >= 0; t--) {
        for (int64_t n = 0; n < N; n++) {
            const int64_t r = n * T + t;
            const LstmCell s = {gates + r * wide, c + r * H, t ? c + (r - 1) * H : NULL,
                                dy + r * H, H};
            lstm_cell_back(s, dh + n * H, dc + n * H, da + r * wide);
        }
        if (t > 0)
            gemm(false, false, N, H, wide, 1, da + t * wide, T * wide,
                 call->in[WEIGHT_STATE].data, H, 0, dh, H);
    }
}

/* dW += sum over samples and t > 0 of da_t h_{t-1}^T. */
static void add_state_weight(const Call *call, const REAL *da, REAL *dw) {
    const int64_t N = call->out.dim[0], T = call->out.dim[1], H = call->out.dim[2];
    const REAL *h = call->out.data;
    for (int64_t n = 0; n < N && T > 1; n++)
        gemm(true, false, GATES * H, H, T - 1, 1, da + (n * T + 1) * GATES * H, GATES * H,
             h + n * T * H, H, 1, dw, H);
}

static void backward(const Call *call) {
    const int64_t R = view_rows(&call->out), H = call->out.dim[2];
    const int64_t D = call->in[X].dim[2], wide = GATES * H;
    const View *dx = &call->d_in[X], *dw = &call->d_in[WEIGHT_IN];
    REAL *da = call->scratch;
    go_back(call, da);
    if (dx->data)
        gemm(false, false, R, D, wide, 1, da, wide, call->in[WEIGHT_IN].data, D,
             dx->accumulate, dx->data, D);
    if (dw->data)
        gemm(true, false, wide, D, R, 1, da, wide, call->in[X].data, D, dw->accumulate,
             dw->data, D);
    REAL *d_state = gradient_to_add(call, WEIGHT_STATE);
    if (d_state) add_state_weight(call, da, d_state);
    REAL *d_bias = gradient_to_add(call, BIAS);
    for (int64_t r = 0; r < R && d_bias; r++) put_row(d_bias, da + r * wide, wide, true);
}

const Op OP(lstm) = {
    .name = "lstm",
    .summary = "long short-term memory over the tokens, from a state of zeros",
    .operands = OPERANDS,
    .reads = READS_IN(X) | READS_IN(WEIGHT_IN) | READS_IN(WEIGHT_STATE) | READS_OUT,
    .infer = infer,
    .flops = flops,
    .aux_bytes = aux_bytes,
    .scratch_bytes = scratch_bytes,
    .step = &step_lstm,
    .forward = forward,
    .backward = backward,
};
