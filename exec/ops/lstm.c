/* lstm(x[N, T, D], weight_in[4 H, D], weight_state[4 H, H], bias[4 H]) -> h[N, T, H].
 *
 * From h_0 = c_0 = 0, with rows of the weights in the order i, f, g, o (as in PyTorch):
 * i, f, o = sigmoid, g = tanh of weight_in x_t + weight_state h_{t-1} + bias;
 * c_t = f c_{t-1} + i g, h_t = o tanh(c_t).
 *
 * Backward through time (see recurrence.h) carries dh and dc:
 * do = dh tanh(c), dc += dh o (1 - tanh^2(c)), di = dc g, dg = dc i, df = dc c_{t-1},
 * then dc f and da weight_state go to t - 1, where da is the gradient before the four
 * functions.
 *
 * Kept from forward: gates[N, T, 4 H] after their functions, c[N, T, H]. */
#include "exec/generate/step.h"
#include "exec/ops/lstm_cell.h"
#include "exec/ops/recurrence.h"

enum { GATES = LSTM_GATES };

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "tokens [N, T, D]"},
                                   {"weight_in", OPERAND_REQUIRED, "[4 H, D]"},
                                   {"weight_state", OPERAND_REQUIRED, "[4 H, H]"},
                                   {"bias", OPERAND_REQUIRED, "[4 H]"},
                                   {NULL, 0, NULL}};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(recurrence_check_in(node, diag));
    if (node->in[RECURRENCE_WEIGHT_IN]->type.dim[0] % GATES)
        return infer_fail(node, RECURRENCE_WEIGHT_IN, diag, "rows for four gates");
    return recurrence_infer(node, GATES, out, diag);
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
    const Recurrence s = recurrence_open(call);
    const int64_t H = s.H;
    REAL *gates = call->aux, *c = gates + s.N * s.T * s.W, *h = call->out.data;
    recurrence_start(&s, gates);
    for (int64_t t = 0; t < s.T; t++) {
        recurrence_add_state(&s, t, gates);
        for (int64_t n = 0; n < s.N; n++) {
            const int64_t r = n * s.T + t;
            lstm_cell_step(gates + r * s.W, t ? c + (r - 1) * H : NULL, c + r * H,
                           h + r * H, H);
        }
    }
}

/* ---- backward ---- */

/* da[N, T, 4 H] of all tokens, from the last to the first. */
static void go_back(const Recurrence *s, const Call *call, REAL *da) {
    const int64_t N = s->N, T = s->T, H = s->H, W = s->W;
    const REAL *gates = call->aux, *c = gates + N * T * W, *dy = call->d_out.data;
    REAL *dc = da + N * T * W, *dh = dc + N * H;
    memset(dc, 0, (size_t)(2 * N * H) * sizeof(REAL));
    for (int64_t t = T - 1; t >= 0; t--) {
        for (int64_t n = 0; n < N; n++) {
            const int64_t r = n * T + t;
            const LstmCell cell = {gates + r * W, c + r * H, t ? c + (r - 1) * H : NULL,
                                   dy + r * H, H};
            lstm_cell_back(cell, dh + n * H, dc + n * H, da + r * W);
        }
        recurrence_hand_back(s, t, da, dh);
    }
}

static void backward(const Call *call) {
    const Recurrence s = recurrence_open(call);
    REAL *da = call->scratch;
    go_back(&s, call, da);
    recurrence_gradients(&s, call, da);
}

OP_RECORD(lstm) = {
    OP_ID(lstm),
    .summary = "long short-term memory over the tokens, from a state of zeros",
    .operands = OPERANDS,
    .reads = RECURRENCE_READS,
    .infer = infer,
    .flops = recurrence_flops,
};

KERNEL(lstm) = {
    .aux_bytes = aux_bytes,
    .scratch_bytes = scratch_bytes,
    .step = STEP(lstm),
    .forward = forward,
    .backward = backward,
};
