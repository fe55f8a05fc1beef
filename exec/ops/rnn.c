/* rnn(x[N, T, D], weight_in[H, D], weight_state[H, H], bias[H]?) -> h[N, T, H].
 *
 * h_t = fn(weight_in x_t + weight_state h_{t-1} + bias) from h_0 = 0 (Elman, 1990).
 *
 * The products with x are one matrix product over all tokens; those with the state are
 * one for each token, over all samples. Backward through time carries dh:
 * da_t = (dy_t + dh) fn', where fn' follows from h_t, and da_t weight_state goes to t -
 * 1; dx, dW and db are products with da of all tokens. */
#include "exec/infer.h"
#include "exec/kernel_math.h"
#include "exec/ops/gradient.h"

enum { X, WEIGHT_IN, WEIGHT_STATE, BIAS };

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "tokens [N, T, D]"},
                                   {"weight_in", OPERAND_REQUIRED, "[H, D]"},
                                   {"weight_state", OPERAND_REQUIRED, "[H, H]"},
                                   {"bias", OPERAND_OPTIONAL, "[H]"},
                                   {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_CHOICE(RnnAttrs, fn, RNN_FN_NAMES, "function of the sums"),
    F_END,
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const Type *x = &node->in[X]->type, *weight = &node->in[WEIGHT_IN]->type;
    TRY(infer_rank(node, X, 3, 3, diag));
    TRY(infer_known(node, X, 2, diag));
    TRY(infer_rank(node, WEIGHT_IN, 2, 2, diag));
    TRY(infer_known(node, WEIGHT_IN, 0, diag));
    TRY(infer_dim(node, WEIGHT_IN, 1, x->dim[2], "the width of x", diag));
    const int64_t shape[] = {weight->dim[0], weight->dim[0]};
    TRY(infer_shape(node, WEIGHT_STATE, 2, shape, diag));
    if (node->in[BIAS]) TRY(infer_shape(node, BIAS, 1, shape, diag));
    *out = *x;
    out->dim[2] = shape[0];
    return STATUS_OK;
}

static double flops(const Call *call) {
    const double weights =
        (double)(call->in[WEIGHT_IN].count + call->in[WEIGHT_STATE].count);
    return 2.0 * (double)view_rows(&call->in[X]) * weights;
}

/* da[N, T, H], then dh[N, H]. */
static size_t scratch_bytes(const Call *call) {
    const int64_t state = call->out.dim[0] * call->out.dim[2];
    return (size_t)(call->out.count + state) * sizeof(REAL);
}

static RnnFn fn_of(const Call *call) {
    return ((const RnnAttrs *)call->attrs)->fn;
}

/* ---- forward ---- */

static void apply(RnnFn fn, REAL *h, int64_t n) {
    if (fn == RNN_TANH)
        for (int64_t j = 0; j < n; j++) h[j] = tanh_real(h[j]);
    else if (fn == RNN_SIGMOID)
        for (int64_t j = 0; j < n; j++) h[j] = sigmoid_real(h[j]);
    else
        for (int64_t j = 0; j < n; j++) h[j] = h[j] > 0 ? h[j] : 0;
}

static void forward(const Call *call) {
    const int64_t N = call->out.dim[0], T = call->out.dim[1], H = call->out.dim[2];
    const int64_t D = call->in[X].dim[2];
    const REAL *bias = call->in_count > BIAS ? call->in[BIAS].data : NULL;
    REAL *h = call->out.data;
    for (int64_t r = 0; bias && r < N * T; r++) put_row(h + r * H, bias, H, false);
    gemm(false, true, N * T, H, D, 1, call->in[X].data, D, call->in[WEIGHT_IN].data, D,
         bias ? 1 : 0, h, H);
    for (int64_t t = 0; t < T; t++) {
        if (t > 0)
            gemm(false, true, N, H, H, 1, h + (t - 1) * H, T * H,
                 call->in[WEIGHT_STATE].data, H, 1, h + t * H, T * H);
        for (int64_t n = 0; n < N; n++) apply(fn_of(call), h + (n * T + t) * H, H);
    }
}

/* ---- backward ---- */

/* da = (dy + dh) fn', which follows from the value h. */
static void step_back(RnnFn fn, const REAL *restrict h, const REAL *restrict dy,
                      const REAL *restrict dh, REAL *restrict da, int64_t H) {
    if (fn == RNN_TANH)
        for (int64_t j = 0; j < H; j++) da[j] = (dy[j] + dh[j]) * (1 - h[j] * h[j]);
    else if (fn == RNN_SIGMOID)
        for (int64_t j = 0; j < H; j++) da[j] = (dy[j] + dh[j]) * h[j] * (1 - h[j]);
    else
        for (int64_t j = 0; j < H; j++) da[j] = h[j] > 0 ? dy[j] + dh[j] : 0;
}

/* da[N, T, H] of all tokens, from the last to the first. */
static void go_back(const Call *call, REAL *da) {
    const int64_t N = call->out.dim[0], T = call->out.dim[1], H = call->out.dim[2];
    const REAL *h = call->out.data, *dy = call->d_out.data;
    REAL *dh = da + N * T * H;
    memset(dh, 0, (size_t)(N * H) * sizeof(REAL));
    for (int64_t t = T - 1; t >= 0; t--) {
        for (int64_t n = 0; n < N; n++) {
            const int64_t at = (n * T + t) * H;
            step_back(fn_of(call), h + at, dy + at, dh + n * H, da + at, H);
        }
        if (t > 0)
            gemm(false, false, N, H, H, 1, da + t * H, T * H, call->in[WEIGHT_STATE].data,
                 H, 0, dh, H);
    }
}

/* dW += sum over samples and t > 0 of da_t h_{t-1}^T. */
static void add_state_weight(const Call *call, const REAL *da, REAL *dw) {
    const int64_t N = call->out.dim[0], T = call->out.dim[1], H = call->out.dim[2];
    const REAL *h = call->out.data;
    for (int64_t n = 0; n < N && T > 1; n++)
        gemm(true, false, H, H, T - 1, 1, da + (n * T + 1) * H, H, h + n * T * H, H, 1,
             dw, H);
}

static void backward(const Call *call) {
    const int64_t R = view_rows(&call->out), H = call->out.dim[2];
    const int64_t D = call->in[X].dim[2];
    const View *dx = &call->d_in[X], *dw = &call->d_in[WEIGHT_IN];
    REAL *da = call->scratch;
    go_back(call, da);
    if (dx->data)
        gemm(false, false, R, D, H, 1, da, H, call->in[WEIGHT_IN].data, D, dx->accumulate,
             dx->data, D);
    if (dw->data)
        gemm(true, false, H, D, R, 1, da, H, call->in[X].data, D, dw->accumulate,
             dw->data, D);
    REAL *d_state = gradient_to_add(call, WEIGHT_STATE);
    if (d_state) add_state_weight(call, da, d_state);
    REAL *d_bias = gradient_to_add(call, BIAS);
    for (int64_t r = 0; r < R && d_bias; r++) put_row(d_bias, da + r * H, H, true);
}

const Op OP(rnn) = {
    .name = "rnn",
    .summary = "simple recurrence over the tokens, from a state of zeros",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(RnnAttrs),
    .reads = READS_IN(X) | READS_IN(WEIGHT_IN) | READS_IN(WEIGHT_STATE) | READS_OUT,
    .infer = infer,
    .flops = flops,
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
