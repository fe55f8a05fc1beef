/* Ops that put, cut, pick, gather and average tokens of x[N, T, D]; they only move data.
 */
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"

#include <string.h>

static const Operand TOKENS[] = {{"x", OPERAND_REQUIRED, "tokens [N, T, D]"},
                                 {NULL, 0, NULL}};

/* Overwrites or adds `count` elements. */
static void put(void *to, int64_t to_offset, const void *from, int64_t from_offset,
                int64_t count, bool accumulate) {
    put_row((REAL *)to + to_offset, (const REAL *)from + from_offset, count, accumulate);
}

/* Zeroes a gradient that is to be overwritten. */
static void clear(const View *d) {
    if (!d->accumulate) memset(d->data, 0, (size_t)d->count * sizeof(REAL));
}

/* prepend_token(x[N, T, D], token[1, 1, D]) -> [N, T + 1, D] */

static const Operand PREPEND[] = {{"x", OPERAND_REQUIRED, "tokens [N, T, D]"},
                                  {"token", OPERAND_REQUIRED, "[1, 1, D]"},
                                  {NULL, 0, NULL}};

static Status prepend_infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, 0, 3, 3, diag));
    TRY(infer_known(node, 0, 1, diag));
    TRY(infer_known(node, 0, 2, diag));
    const int64_t *x = node->in[0]->type.dim;
    TRY(infer_shape(node, 1, 3, (const int64_t[]){1, 1, x[2]}, diag));
    int64_t tokens;
    if (__builtin_add_overflow(x[1], 1, &tokens))
        return infer_fail(node, 0, diag, "fewer tokens");
    *out = real_type(3, (const int64_t[]){x[0], tokens, x[2]});
    return STATUS_OK;
}

static void prepend_forward(const Call *call) {
    const int64_t D = call->out.dim[2], in = call->in[0].dim[1] * D, out = in + D;
    for (int64_t n = 0; n < call->out.dim[0]; n++) {
        put(call->out.data, n * out, call->in[1].data, 0, D, false);
        put(call->out.data, n * out + D, call->in[0].data, n * in, in, false);
    }
}

static void prepend_backward(const Call *call) {
    const View *dx = &call->d_in[0], *dt = &call->d_in[1];
    const int64_t D = call->d_out.dim[2], in = call->in[0].dim[1] * D, out = in + D;
    for (int64_t n = 0; dx->data && n < call->d_out.dim[0]; n++)
        put(dx->data, n * in, call->d_out.data, n * out + D, in, dx->accumulate);
    if (!dt->data) return;
    clear(dt);
    for (int64_t n = 0; n < call->d_out.dim[0]; n++)
        put(dt->data, 0, call->d_out.data, n * out, D, true);
}

OP_RECORD(prepend_token) = {
    OP_ID(prepend_token),
    .summary = "the same token in front of every sample's tokens",
    .operands = PREPEND,
    .infer = prepend_infer,
};

KERNEL(prepend_token) = {
    .forward = prepend_forward,
    .backward = prepend_backward,
};

/* slice_tokens(x[N, T, D]) -> [N, T - from, D] */

static const Field SLICE_FIELDS[] = {
    F_INT(SliceTokensAttrs, from, 0, 1 << 20, "tokens to leave out at the front"), F_END};

static Status slice_infer(const Node *node, Type *out, Diag *diag) {
    const int64_t from = ((const SliceTokensAttrs *)node->attrs)->from;
    TRY(infer_rank(node, 0, 3, 3, diag));
    const int64_t *x = node->in[0]->type.dim;
    if (from < 0) return infer_fail_attr(node, "from", diag, "a number of at least 0");
    if (from > 0 && x[1] <= from)
        return infer_fail(node, 0, diag, "more than %lld tokens (from)", (long long)from);
    *out = real_type(3, (const int64_t[]){x[0], x[1] - from, x[2]});
    return STATUS_OK;
}

static void slice_forward(const Call *call) {
    const int64_t out = call->out.dim[1] * call->out.dim[2];
    const int64_t in = call->in[0].dim[1] * call->in[0].dim[2];
    for (int64_t n = 0; n < call->out.dim[0]; n++)
        put(call->out.data, n * out, call->in[0].data, (n + 1) * in - out, out, false);
}

static void slice_backward(const Call *call) {
    const View *dx = &call->d_in[0], *dy = &call->d_out;
    if (!dx->data) return;
    const int64_t out = dy->dim[1] * dy->dim[2], in = dx->dim[1] * dx->dim[2];
    clear(dx);
    for (int64_t n = 0; n < dy->dim[0]; n++)
        put(dx->data, (n + 1) * in - out, dy->data, n * out, out, true);
}

OP_RECORD(slice_tokens) = {
    OP_ID(slice_tokens),
    .summary = "x without its first `from` tokens",
    .operands = TOKENS,
    .fields = SLICE_FIELDS,
    .attrs_size = sizeof(SliceTokensAttrs),
    .traits = OP_PICKS_TOKENS,
    .infer = slice_infer,
};

KERNEL(slice_tokens) = {
    .forward = slice_forward,
    .backward = slice_backward,
};

/* select_token(x[N, T, D]) -> [N, D] */

static const Field SELECT_FIELDS[] = {
    F_INT(SelectTokenAttrs, index, 0, 1 << 20, "which token, from 0"), F_END};

static Status select_infer(const Node *node, Type *out, Diag *diag) {
    const int64_t index = ((const SelectTokenAttrs *)node->attrs)->index;
    TRY(infer_rank(node, 0, 3, 3, diag));
    const int64_t *x = node->in[0]->type.dim;
    if (index < 0) return infer_fail_attr(node, "index", diag, "a number of at least 0");
    if ((index > 0 || x[1] == 0) && x[1] <= index)
        return infer_fail(node, 0, diag, "more than %lld tokens (index)",
                          (long long)index);
    *out = real_type(2, (const int64_t[]){x[0], x[2]});
    return STATUS_OK;
}

static void select_forward(const Call *call) {
    const int64_t index = ((const SelectTokenAttrs *)call->attrs)->index;
    const int64_t T = call->in[0].dim[1], D = call->in[0].dim[2];
    for (int64_t n = 0; n < call->out.dim[0]; n++)
        put(call->out.data, n * D, call->in[0].data, (n * T + index) * D, D, false);
}

static void select_backward(const Call *call) {
    const int64_t index = ((const SelectTokenAttrs *)call->attrs)->index;
    const View *dx = &call->d_in[0];
    if (!dx->data) return;
    const int64_t T = dx->dim[1], D = dx->dim[2];
    clear(dx);
    for (int64_t n = 0; n < dx->dim[0]; n++)
        put(dx->data, (n * T + index) * D, call->d_out.data, n * D, D, true);
}

OP_RECORD(select_token) = {
    OP_ID(select_token),
    .summary = "token `index` of every sample",
    .operands = TOKENS,
    .fields = SELECT_FIELDS,
    .attrs_size = sizeof(SelectTokenAttrs),
    .traits = OP_PICKS_TOKENS,
    .infer = select_infer,
};

KERNEL(select_token) = {
    .forward = select_forward,
    .backward = select_backward,
};

/* gather_tokens(x[N, T, D], positions[N, M]) -> [N, M, D] */

static const Operand GATHER[] = {
    {"x", OPERAND_REQUIRED, "tokens [N, T, D]"},
    {"positions", OPERAND_REQUIRED | OPERAND_INTEGER, "[N, M], from 0 to T - 1"},
    {NULL, 0, NULL}};

static Status gather_infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, 0, 3, 3, diag));
    TRY(infer_rank(node, 1, 2, 2, diag));
    const int64_t *x = node->in[0]->type.dim, *positions = node->in[1]->type.dim;
    TRY(infer_dim(node, 1, 0, x[0], "the samples of x", diag));
    *out = real_type(3, (const int64_t[]){x[0], positions[1], x[2]});
    return STATUS_OK;
}

static int64_t gather_limit(const Call *call, int operand) {
    return operand == 1 ? call->in[0].dim[1] : 0;
}

/* Index in x of row `row` of the result. */
static int64_t gather_at(const Call *call, int64_t row) {
    const int64_t sample = row / call->in[1].dim[1];
    return sample * call->in[0].dim[1] + ((const int32_t *)call->in[1].data)[row];
}

static void gather_forward(const Call *call) {
    const int64_t D = call->out.dim[2];
    for (int64_t row = 0; row < call->in[1].count; row++)
        put(call->out.data, row * D, call->in[0].data, gather_at(call, row) * D, D,
            false);
}

/* A token that is gathered twice gets both gradients. */
static void gather_backward(const Call *call) {
    REAL *dx = gradient_to_add(call, 0);
    const int64_t D = call->d_out.dim[2];
    for (int64_t row = 0; dx && row < call->in[1].count; row++)
        put(dx, gather_at(call, row) * D, call->d_out.data, row * D, D, true);
}

OP_RECORD(gather_tokens) = {
    OP_ID(gather_tokens),
    .summary = "the tokens at given positions of every sample",
    .operands = GATHER,
    .traits = OP_PICKS_TOKENS,
    .reads = READS_IN(1),
    .infer = gather_infer,
    .index_limit = gather_limit,
};

KERNEL(gather_tokens) = {
    .forward = gather_forward,
    .backward = gather_backward,
};

/* mean_tokens(x[N, T, D], mask[N, T]?) -> [N, D] */

static const Operand MEAN[] = {
    {"x", OPERAND_REQUIRED, "tokens [N, T, D]"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, T]: 0 = token is left out"},
    {NULL, 0, NULL}};

static Status mean_infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, 0, 3, 3, diag));
    const int64_t *x = node->in[0]->type.dim;
    if (node_has(node, 1)) TRY(infer_shape(node, 1, 2, x, diag));
    *out = real_type(2, (const int64_t[]){x[0], x[2]});
    return STATUS_OK;
}

/* The mask of a sample's tokens, NULL when all count, and 1 / the tokens that count. */
static const int32_t *mean_mask(const Call *call, int64_t sample, REAL *by) {
    const int64_t T = call->in[0].dim[1];
    const int32_t *mask = call_data(call, 1);
    int64_t count = mask ? 0 : T;
    if (mask) mask += sample * T;
    for (int64_t t = 0; mask && t < T; t++) count += mask[t] != 0;
    *by = count ? 1 / (REAL)count : 0;
    return mask;
}

static void mean_forward(const Call *call) {
    const int64_t T = call->in[0].dim[1], D = call->in[0].dim[2];
    REAL *y = call->out.data, by;
    for (int64_t n = 0; n < call->out.dim[0]; n++, y += D) {
        const int32_t *mask = mean_mask(call, n, &by);
        memset(y, 0, (size_t)D * sizeof(REAL));
        for (int64_t t = 0; t < T; t++)
            if (!mask || mask[t]) put(y, 0, call->in[0].data, (n * T + t) * D, D, true);
        for (int64_t j = 0; j < D; j++) y[j] *= by;
    }
}

static void mean_backward(const Call *call) {
    const View *dx = &call->d_in[0];
    if (!dx->data) return;
    const int64_t T = dx->dim[1], D = dx->dim[2];
    const REAL *restrict dy = call->d_out.data;
    clear(dx);
    for (int64_t n = 0; n < dx->dim[0]; n++, dy += D) {
        REAL by, *restrict row = (REAL *)dx->data + n * T * D;
        const int32_t *mask = mean_mask(call, n, &by);
        for (int64_t t = 0; t < T; t++, row += D)
            for (int64_t j = 0; (!mask || mask[t]) && j < D; j++) row[j] += by * dy[j];
    }
}

OP_RECORD(mean_tokens) = {
    OP_ID(mean_tokens),   .summary = "mean over the tokens of every sample",
    .operands = MEAN,     .infer = mean_infer,
    .reads = READS_IN(1),
};

KERNEL(mean_tokens) = {
    .forward = mean_forward,
    .backward = mean_backward,
};

/* last_token(x[N, T, D], mask[N, T]?) -> [N, D] */

/* Index in x of the token that is picked of a sample. */
static int64_t last_at(const Call *call, int64_t sample) {
    const int64_t T = call->in[0].dim[1];
    const int32_t *mask = call_data(call, 1);
    int64_t t = T - 1;
    while (mask && t > 0 && !mask[sample * T + t]) t--;
    return sample * T + t;
}

static void last_forward(const Call *call) {
    const int64_t D = call->out.dim[1];
    for (int64_t n = 0; n < call->out.dim[0]; n++)
        put(call->out.data, n * D, call->in[0].data, last_at(call, n) * D, D, false);
}

static void last_backward(const Call *call) {
    REAL *dx = gradient_to_add(call, 0);
    const int64_t D = call->d_out.dim[1];
    for (int64_t n = 0; dx && n < call->d_out.dim[0]; n++)
        put(dx, last_at(call, n) * D, call->d_out.data, n * D, D, true);
}

OP_RECORD(last_token) = {
    OP_ID(last_token),
    .summary = "the last token of every sample that its mask does not leave out; the "
               "first where it leaves out all",
    .operands = MEAN,
    .traits = OP_PICKS_TOKENS,
    .reads = READS_IN(1),
    .infer = mean_infer,
};

KERNEL(last_token) = {
    .forward = last_forward,
    .backward = last_backward,
};
