/* rnn(x[N, T, D], weight_in[H, D], weight_state[H, H], bias[H]?) -> h[N, T, H].
 *
 * h_t = fn(weight_in x_t + weight_state h_{t-1} + bias) from h_0 = 0 (Elman, 1990).
 *
 * Backward through time (see recurrence.h) carries dh: da_t = (dy_t + dh) fn', where fn'
 * follows from h_t. */
#include "exec/ops/recurrence.h"

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
    TRY(recurrence_check_in(node, diag));
    return recurrence_infer(node, 1, out, diag);
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
    const Recurrence r = recurrence_open(call);
    REAL *h = call->out.data;
    recurrence_start(&r, h);
    for (int64_t t = 0; t < r.T; t++) {
        recurrence_add_state(&r, t, h);
        for (int64_t n = 0; n < r.N; n++)
            apply(fn_of(call), h + (n * r.T + t) * r.H, r.H);
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
static void go_back(const Recurrence *r, const Call *call, REAL *da) {
    const int64_t N = r->N, T = r->T, H = r->H;
    const REAL *dy = call->d_out.data;
    REAL *dh = da + N * T * H;
    memset(dh, 0, (size_t)(N * H) * sizeof(REAL));
    for (int64_t t = T - 1; t >= 0; t--) {
        for (int64_t n = 0; n < N; n++) {
            const int64_t at = (n * T + t) * H;
            step_back(fn_of(call), r->h + at, dy + at, dh + n * H, da + at, H);
        }
        recurrence_hand_back(r, t, da, dh);
    }
}

static void backward(const Call *call) {
    const Recurrence r = recurrence_open(call);
    REAL *da = call->scratch;
    go_back(&r, call, da);
    recurrence_gradients(&r, call, da);
}

OP_RECORD(rnn) = {
    OP_ID(rnn),
    .summary = "simple recurrence over the tokens, from a state of zeros",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(RnnAttrs),
    .reads = RECURRENCE_READS,
    .infer = infer,
    .flops = recurrence_flops,
};

KERNEL(rnn) = {
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
