/* cross_entropy: mean over samples of -sum_c y_c log softmax(z)_c, where the target y is
 * (1 - e) one-hot + e / C for label smoothing e.
 *
 * Per row: log-sum-exp - (1 - e) z_label - e mean(z); the gradient is
 * (softmax(z) - y) / N. */
#include "exec/infer.h"
#include "exec/kernel_math.h"

static const Operand OPERANDS[] = {
    {"logits", OPERAND_REQUIRED, "[N, C]"},
    {"labels", OPERAND_REQUIRED | OPERAND_INTEGER, "[N], from 0 to C - 1"},
    {NULL},
};

static const Field FIELDS[] = {
    F_REAL(CrossEntropyAttrs, smoothing, 0, 1, "label smoothing"),
    F_END,
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const double smoothing = ((const CrossEntropyAttrs *)node->attrs)->smoothing;
    TRY(infer_rank(node, 0, 2, 2, diag));
    TRY(infer_known(node, 0, 1, diag));
    TRY(infer_shape(node, 1, 1, node->in[0]->type.dim, diag));
    if (!(smoothing >= 0 && smoothing <= 1))
        return infer_fail_attr(node, "smoothing", diag, "a number from 0 to 1, found %g",
                               smoothing);
    *out = real_type(0, node->in[0]->type.dim);
    return STATUS_OK;
}

/* The log-sum-exp of every row. */
static size_t aux_bytes(const Call *call) {
    return (size_t)call->in[0].dim[0] * sizeof(REAL);
}

static void forward(const Call *call) {
    const int64_t rows = call->in[0].dim[0], classes = call->in[0].dim[1];
    const double smoothing = ((const CrossEntropyAttrs *)call->attrs)->smoothing;
    const int32_t *labels = call->in[1].data;
    REAL *log_sum = call->aux;
    double total = 0;
    for (int64_t i = 0; i < rows; i++) {
        const REAL *z = (const REAL *)call->in[0].data + i * classes;
        const REAL sum = log_sum_exp(z, classes);
        if (log_sum) log_sum[i] = sum;
        total += (double)sum - (1 - smoothing) * (double)z[labels[i]];
        if (smoothing > 0)
            total -= smoothing * (double)row_sum(z, classes) / (double)classes;
    }
    *(REAL *)call->out.data = (REAL)(total / (double)rows);
}

/* dz (+)= factor (softmax(z) - y). */
static void gradient_row(const REAL *restrict z, int64_t classes, REAL log_sum,
                         REAL factor, REAL even, bool accumulate, REAL *restrict dz) {
    if (accumulate)
        for (int64_t c = 0; c < classes; c++)
            dz[c] += factor * (exp_real(z[c] - log_sum) - even);
    else
        for (int64_t c = 0; c < classes; c++)
            dz[c] = factor * (exp_real(z[c] - log_sum) - even);
}

static void backward(const Call *call) {
    if (!call->d_in[0].data) return;
    const int64_t rows = call->in[0].dim[0], classes = call->in[0].dim[1];
    const double smoothing = ((const CrossEntropyAttrs *)call->attrs)->smoothing;
    const int32_t *labels = call->in[1].data;
    const REAL *log_sum = call->aux;
    const REAL factor = *(const REAL *)call->d_out.data / (REAL)rows;
    const REAL even = (REAL)(smoothing / (double)classes);
    for (int64_t i = 0; i < rows; i++) {
        REAL *dz = (REAL *)call->d_in[0].data + i * classes;
        gradient_row((const REAL *)call->in[0].data + i * classes, classes, log_sum[i],
                     factor, even, call->d_in[0].accumulate, dz);
        dz[labels[i]] -= factor * (REAL)(1 - smoothing);
    }
}

const Op OP(cross_entropy) = {
    .name = "cross_entropy",
    .summary = "mean of -log softmax(logits)[label], with label smoothing",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(CrossEntropyAttrs),
    .reads = READS_IN(0) | READS_IN(1),
    .infer = infer,
    .aux_bytes = aux_bytes,
    .forward = forward,
    .backward = backward,
};
