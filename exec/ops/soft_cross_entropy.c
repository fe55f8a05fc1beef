/* soft_cross_entropy: t^2 times the mean over rows of -sum_c q_c log p_c with
 * p = softmax(logits / t), q = softmax(teacher / t); with `kl` of sum_c q_c log(q_c /
 * p_c).
 *
 * The gradient is t (p - q) / N either way; the teacher gets none. */
#include "exec/infer.h"
#include "exec/kernel_math.h"
#include "exec/ops/gradient.h"

static const Operand OPERANDS[] = {
    {"logits", OPERAND_REQUIRED, "student's [N, C]"},
    {"teacher", OPERAND_CONSTANT, "teacher's logits [N, C]; no gradient"},
    {NULL},
};

static const Field FIELDS[] = {
    F_REAL(SoftCrossEntropyAttrs, temperature, 1e-3, 1e6, "divides both logits"),
    F_BOOL(SoftCrossEntropyAttrs, kl, "subtract the teacher's entropy from the value"),
    F_END,
};

static const SoftCrossEntropyAttrs DEFAULTS = {.temperature = 1};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const double temperature = ((const SoftCrossEntropyAttrs *)node->attrs)->temperature;
    TRY(infer_rank(node, 0, 2, 2, diag));
    TRY(infer_known(node, 0, 1, diag));
    TRY(infer_shape(node, 1, 2, node->in[0]->type.dim, diag));
    if (!(temperature > 0 && temperature < INFINITY))
        return infer_fail_attr(node, "temperature", diag, "a number above 0, found %g",
                               temperature);
    *out = real_type(0, node->in[0]->type.dim);
    return STATUS_OK;
}

/* The log-sum-exp of every row of student (first) and teacher. */
static size_t aux_bytes(const Call *call) {
    return (size_t)call->in[0].dim[0] * 2 * sizeof(REAL);
}

/* log(sum of exp(x / t)). */
static REAL log_sum_scaled(const REAL *x, int64_t n, REAL inverse) {
    const REAL top = row_max(x, n);
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < n; c++) sum += exp_real((x[c] - top) * inverse);
    return top * inverse + (REAL)log((double)sum);
}

/* sum_c q_c (log q_c - log p_c), or without log q_c. */
static REAL row_loss(const REAL *restrict z, const REAL *restrict y, int64_t n,
                     REAL inverse, REAL log_z, REAL log_y, bool kl) {
    const REAL entropy = kl;
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < n; c++) {
        const REAL log_q = y[c] * inverse - log_y, log_p = z[c] * inverse - log_z;
        sum += exp_real(log_q) * (entropy * log_q - log_p);
    }
    return sum;
}

static void forward(const Call *call) {
    const SoftCrossEntropyAttrs *attrs = call->attrs;
    const int64_t rows = call->in[0].dim[0], classes = call->in[0].dim[1];
    const REAL inverse = (REAL)(1 / attrs->temperature);
    REAL *log_sum = call->aux;
    double total = 0;
    for (int64_t i = 0; i < rows; i++) {
        const REAL *z = (const REAL *)call->in[0].data + i * classes;
        const REAL *y = (const REAL *)call->in[1].data + i * classes;
        const REAL log_z = log_sum_scaled(z, classes, inverse);
        const REAL log_y = log_sum_scaled(y, classes, inverse);
        if (log_sum) {
            log_sum[i] = log_z;
            log_sum[rows + i] = log_y;
        }
        total += (double)row_loss(z, y, classes, inverse, log_z, log_y, attrs->kl);
    }
    *(REAL *)call->out.data =
        (REAL)(attrs->temperature * attrs->temperature * total / (double)rows);
}

static void backward(const Call *call) {
    if (!call->d_in[0].data) return;
    const SoftCrossEntropyAttrs *attrs = call->attrs;
    const int64_t rows = call->in[0].dim[0], classes = call->in[0].dim[1];
    const REAL inverse = (REAL)(1 / attrs->temperature), *log_sum = call->aux;
    const REAL factor =
        *(const REAL *)call->d_out.data * (REAL)(attrs->temperature / (double)rows);
    REAL *gradient = gradient_to_add(call, 0);
    for (int64_t i = 0; i < rows; i++) {
        const REAL *restrict z = (const REAL *)call->in[0].data + i * classes;
        const REAL *restrict y = (const REAL *)call->in[1].data + i * classes;
        REAL *restrict dz = gradient + i * classes;
        const REAL log_z = log_sum[i], log_y = log_sum[rows + i];
        for (int64_t c = 0; c < classes; c++)
            dz[c] += factor * (exp_real(z[c] * inverse - log_z) -
                               exp_real(y[c] * inverse - log_y));
    }
}

const Op OP(soft_cross_entropy) = {
    .name = "soft_cross_entropy",
    .summary = "t^2 * mean of -sum softmax(teacher / t) log softmax(logits / t)",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(SoftCrossEntropyAttrs),
    .defaults = &DEFAULTS,
    .reads = READS_IN(0) | READS_IN(1),
    .infer = infer,
    .aux_bytes = aux_bytes,
    .forward = forward,
    .backward = backward,
};
