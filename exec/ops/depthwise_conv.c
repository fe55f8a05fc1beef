/* depthwise_conv(x[N, T, D], weight[D, 1, K, K], bias[D]?) -> y[N, T, D]: every channel
 * is convolved over the grid with its own K x K weights, zero padding K/2.
 *
 * y[n, skip + i*w + j, c] = bias[c] + sum over u, v of
 *     weight[c, 0, u, v] * x[n, skip + (i + u - K/2)*w + (j + v - K/2), c]
 * Channels are next to each other, so the loops run over them, with the weights
 * transposed to [K*K, D] in scratch. A tap joins one token of x to one of y; dx and dw go
 * through the same taps as y. */
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"

#include <string.h>

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "tokens [N, T, D], T = skip + grid_h * grid_w"},
    {"weight", OPERAND_REQUIRED, "[D, 1, K, K], K odd"},
    {"bias", OPERAND_OPTIONAL, "[D]"},
    {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_INT(DepthwiseConvAttrs, grid_h, 1, 1 << 20, "rows of the grid of tokens"),
    F_INT(DepthwiseConvAttrs, grid_w, 1, 1 << 20, "columns of the grid of tokens"),
    F_INT(DepthwiseConvAttrs, skip, 0, 1 << 20, "tokens before the grid; they give 0"),
    F_END};

static const DepthwiseConvAttrs DEFAULTS = {.grid_h = 1, .grid_w = 1};

static Status check_grid(const Node *node, Diag *diag) {
    const DepthwiseConvAttrs *a = node->attrs;
    int64_t tokens;
    if (a->grid_h < 1 || a->grid_w < 1 || a->skip < 0)
        return infer_fail_attr(node, "grid_h, grid_w, skip", diag,
                               "a grid of at least 1 x 1 and skip of at least 0");
    if (!dim_multiply(a->grid_h, a->grid_w, &tokens) ||
        __builtin_add_overflow(tokens, a->skip, &tokens))
        return infer_fail_attr(node, "grid_h, grid_w, skip", diag, "a smaller grid");
    return infer_dim(node, 0, 1, tokens, "skip + grid_h * grid_w", diag);
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, 0, 3, 3, diag));
    TRY(infer_rank(node, 1, 4, 4, diag));
    TRY(infer_known(node, 0, 2, diag));
    TRY(check_grid(node, diag));
    const int64_t D = node->in[0]->type.dim[2], K = node->in[1]->type.dim[2];
    if (K < 1 || K % 2 == 0 || K > 1023)
        return infer_fail(node, 1, diag, "an odd kernel size below 1024");
    TRY(infer_shape(node, 1, 4, (const int64_t[]){D, 1, K, K}, diag));
    if (node->in[2]) TRY(infer_shape(node, 2, 1, &D, diag));
    *out = node->in[0]->type;
    return STATUS_OK;
}

static double flops(const Call *call) {
    const int64_t K = call->in[1].dim[2];
    return 2.0 * (double)(K * K) * (double)call->in[0].count;
}

/* Transposed weights, their gradient, and the gradient of the bias. */
static size_t scratch_bytes(const Call *call) {
    const View *w = &call->in[1];
    return (size_t)(2 * w->count + w->dim[0]) * sizeof(REAL);
}

/* out[columns, rows] = transpose of w[rows, columns]. */
static void transpose(REAL *restrict out, const REAL *restrict w, int64_t rows,
                      int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) out[j * rows + i] = w[i * columns + j];
}

/* A tap: what it joins, all of length D. NULL gradients are skipped. */
typedef struct Tap {
    const REAL *x, *w;
    REAL *y; /* forward */
    const REAL *dy;
    REAL *dx, *dw;
    int64_t D;
} Tap;

static void tap_forward(Tap tap) {
    const REAL *restrict x = tap.x, *restrict w = tap.w;
    REAL *restrict y = tap.y;
    for (int64_t c = 0; c < tap.D; c++) y[c] += w[c] * x[c];
}

static void tap_backward(Tap tap) {
    const REAL *restrict x = tap.x, *restrict w = tap.w, *restrict dy = tap.dy;
    REAL *restrict dx = tap.dx, *restrict dw = tap.dw;
    if (dx)
        for (int64_t c = 0; c < tap.D; c++) dx[c] += w[c] * dy[c];
    if (dw)
        for (int64_t c = 0; c < tap.D; c++) dw[c] += x[c] * dy[c];
}

/* Moves a pointer that may be NULL. */
static REAL *shift(REAL *base, int64_t offset) {
    return base ? base + offset : NULL;
}

/* Runs all taps of output token (i, j) of a sample, whose arrays `base` points at. */
static void run_taps(const Call *call, Tap base, int64_t i, int64_t j, void (*run)(Tap)) {
    const DepthwiseConvAttrs *a = call->attrs;
    const int64_t K = call->in[1].dim[2], D = base.D;
    const int64_t to = (a->skip + i * a->grid_w + j) * D;
    for (int64_t t = 0; t < K * K; t++) {
        const int64_t row = i + t / K - K / 2, column = j + t % K - K / 2;
        if (row < 0 || row >= a->grid_h || column < 0 || column >= a->grid_w) continue;
        const int64_t from = (a->skip + row * a->grid_w + column) * D;
        run((Tap){.x = base.x ? base.x + from : NULL,
                  .w = base.w + t * D,
                  .y = shift(base.y, to),
                  .dy = base.dy ? base.dy + to : NULL,
                  .dx = shift(base.dx, from),
                  .dw = shift(base.dw, t * D),
                  .D = D});
    }
}

/* Runs all taps of all samples. */
static void run_grid(const Call *call, Tap base, void (*run)(Tap)) {
    const DepthwiseConvAttrs *a = call->attrs;
    const int64_t size = call->in[0].dim[1] * base.D;
    for (int64_t n = 0; n < call->in[0].dim[0]; n++) {
        Tap sample = base;
        sample.x = base.x ? base.x + n * size : NULL;
        sample.y = shift(base.y, n * size);
        sample.dy = base.dy ? base.dy + n * size : NULL;
        sample.dx = shift(base.dx, n * size);
        for (int64_t i = 0; i < a->grid_h; i++)
            for (int64_t j = 0; j < a->grid_w; j++) run_taps(call, sample, i, j, run);
    }
}

static void forward(const Call *call) {
    const DepthwiseConvAttrs *a = call->attrs;
    const View *x = &call->in[0], *w = &call->in[1], *b = &call->in[2];
    const int64_t T = x->dim[1], D = x->dim[2];
    REAL *y = call->out.data, *taps = call->scratch;
    transpose(taps, w->data, D, w->count / D);
    memset(y, 0, (size_t)x->count * sizeof(REAL));
    for (int64_t r = 0; b->data && r < x->count / D; r++)
        if (r % T >= a->skip) memcpy(y + r * D, b->data, (size_t)D * sizeof(REAL));
    run_grid(call, (Tap){.x = x->data, .w = taps, .y = y, .D = D}, tap_forward);
}

static void backward(const Call *call) {
    const View *x = &call->in[0], *w = &call->in[1];
    const View *dx = &call->d_in[0], *dw = &call->d_in[1], *db = &call->d_in[2];
    const int64_t T = x->dim[1], D = x->dim[2], count = w->count;
    REAL *taps = call->scratch, *d_taps = taps + count, *sum = d_taps + count;
    transpose(taps, w->data, D, count / D);
    memset(d_taps, 0, (size_t)count * sizeof(REAL));
    if (dx->data && !dx->accumulate) memset(dx->data, 0, (size_t)x->count * sizeof(REAL));
    run_grid(call,
             (Tap){.x = x->data,
                   .w = taps,
                   .dy = call->d_out.data,
                   .dx = dx->data,
                   .dw = dw->data ? d_taps : NULL,
                   .D = D},
             tap_backward);
    if (dw->data) {
        transpose(taps, d_taps, count / D, D);
        put_row(dw->data, taps, count, dw->accumulate);
    }
    if (!db->data) return;
    memset(sum, 0, (size_t)D * sizeof(REAL)); /* of dy over the tokens of the grid */
    for (int64_t r = 0; r < x->count / D; r++)
        if (r % T >= ((const DepthwiseConvAttrs *)call->attrs)->skip)
            put_row(sum, (const REAL *)call->d_out.data + r * D, D, true);
    put_row(db->data, sum, D, db->accumulate);
}

OP_RECORD(depthwise_conv) = {
    OP_ID(depthwise_conv),
    .summary = "2-D convolution of each channel over the grid of tokens",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(DepthwiseConvAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_PROJECTION,
    .reads = READS_IN(0) | READS_IN(1),
    .infer = infer,
    .flops = flops,
};

KERNEL(depthwise_conv) = {
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
