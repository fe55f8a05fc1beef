/* soft_binary_cross_entropy: t^2 times the mean, over the rows that count and their
 * labels, of -q log p - (1 - q) log(1 - p) with p = sigmoid(logits / t), q =
 * sigmoid(teacher / t); with `kl` less the same of q against itself.
 *
 * With a = logits / t a label gives (1 - q) a + log(1 + exp(-a)). With R rows of C labels
 * the gradient is t (p - q) / (R C) either way; the teacher gets none. */
#include "exec/ops/binary_entropy.h"
#include "exec/ops/rows.h"

static const Operand OPERANDS[] = {
    {"logits", OPERAND_REQUIRED, "student's [N..., C]"},
    {"teacher", OPERAND_CONSTANT, "teacher's logits [N..., C]; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N...]: 0 = row is left out"},
    {NULL},
};

static const Field FIELDS[] = {
    F_REAL(SoftBinaryCrossEntropyAttrs, temperature, 1e-3, 1e6, "divides both logits"),
    F_BOOL(SoftBinaryCrossEntropyAttrs, kl,
           "subtract the teacher's entropy from the value"),
    F_END,
};

static const SoftBinaryCrossEntropyAttrs DEFAULTS = {.temperature = 1};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const SoftBinaryCrossEntropyAttrs *attrs = node->attrs;
    if (!(attrs->temperature > 0 && attrs->temperature < INFINITY))
        return infer_fail_attr(node, "temperature", diag, "a number above 0, found %g",
                               attrs->temperature);
    return rows_infer(node, out, diag);
}

/* Sum over a row of (1 - q) a + log(1 + exp(-a)). */
static REAL row_loss(const REAL *restrict z, const REAL *restrict y, int64_t n,
                     REAL inverse) {
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < n; c++)
        sum += sigmoid_real(-y[c] * inverse) * z[c] * inverse +
               softplus_real(-z[c] * inverse);
    return sum;
}

static void forward(const Call *call) {
    const SoftBinaryCrossEntropyAttrs *attrs = call->attrs;
    const int64_t rows = view_rows(&call->in[ROWS_X]), C = view_last(&call->in[ROWS_X]);
    const REAL *z = call->in[ROWS_X].data, *y = call->in[ROWS_TEACHER].data;
    const REAL inverse = (REAL)(1 / attrs->temperature);
    double total = 0;
    for (int64_t i = 0; i < rows * C; i += C) {
        if (!rows_keep(call, i / C)) continue;
        total += (double)row_loss(z + i, y + i, C, inverse);
        if (attrs->kl) total -= (double)row_loss(y + i, y + i, C, inverse);
    }
    *(REAL *)call->out.data =
        rows_mean(call, attrs->temperature * attrs->temperature * total / (double)C);
}

static void backward(const Call *call) {
    REAL *dz = call->d_in[ROWS_X].data;
    if (!dz) return;
    const SoftBinaryCrossEntropyAttrs *attrs = call->attrs;
    const int64_t rows = view_rows(&call->in[ROWS_X]), C = view_last(&call->in[ROWS_X]);
    const REAL *z = call->in[ROWS_X].data, *y = call->in[ROWS_TEACHER].data;
    const REAL inverse = (REAL)(1 / attrs->temperature);
    const REAL factor = (REAL)attrs->temperature * rows_gradient(call) / (REAL)C;
    const bool accumulate = call->d_in[ROWS_X].accumulate;
    for (int64_t i = 0; i < rows * C; i++) {
        const REAL d =
            rows_keep(call, i / C)
                ? factor * (sigmoid_real(z[i] * inverse) - sigmoid_real(y[i] * inverse))
                : 0;
        dz[i] = accumulate ? dz[i] + d : d;
    }
}

OP_RECORD(soft_binary_cross_entropy) = {
    OP_ID(soft_binary_cross_entropy),
    .summary = "t^2 * mean of binary cross-entropy against sigmoid(teacher / t)",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(SoftBinaryCrossEntropyAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_LOSS,
    .reads = READS_IN(ROWS_X) | READS_IN(ROWS_TEACHER) | READS_IN(ROWS_MASK),
    .infer = infer,
    .count_rows = rows_count,
};

KERNEL(soft_binary_cross_entropy) = {
    .forward = forward,
    .backward = backward,
};
