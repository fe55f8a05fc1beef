/* soft_cross_entropy: t^2 times the mean over the rows that count of -sum_c q_c log p_c
 * with p = softmax(logits / t), q = softmax(teacher / t); with `kl` of sum_c q_c log(q_c
 * / p_c).
 *
 * The gradient is t (p - q) / rows either way; the teacher gets none. */
#include "exec/ops/kernel_math.h"
#include "exec/ops/rows.h"
#include "exec/ops/soft_targets.h"

static const Operand OPERANDS[] = {
    {"logits", OPERAND_REQUIRED, "student's [N..., C]"},
    {"teacher", OPERAND_CONSTANT, "teacher's logits [N..., C]; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N...]: 0 = row is left out"},
    {NULL},
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(soft_infer_temperature(node, diag));
    return rows_infer(node, out, diag);
}

/* The log-sum-exp of every row of student (first) and teacher. */
static size_t aux_bytes(const Call *call) {
    return (size_t)view_rows(&call->in[0]) * 2 * sizeof(REAL);
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
    const int64_t rows = view_rows(&call->in[0]), classes = view_last(&call->in[0]);
    const REAL inverse = (REAL)(1 / attrs->temperature);
    REAL *log_sum = call->aux;
    double total = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (!rows_keep(call, i)) continue;
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
        rows_mean(call, attrs->temperature * attrs->temperature * total);
}

/* dz (+)= factor (p - q). */
static void gradient_row(const REAL *restrict z, const REAL *restrict y, int64_t n,
                         REAL inverse, REAL log_z, REAL log_y, REAL factor,
                         bool accumulate, REAL *restrict dz) {
    if (accumulate)
        for (int64_t c = 0; c < n; c++)
            dz[c] += factor * (exp_real(z[c] * inverse - log_z) -
                               exp_real(y[c] * inverse - log_y));
    else
        for (int64_t c = 0; c < n; c++)
            dz[c] = factor *
                    (exp_real(z[c] * inverse - log_z) - exp_real(y[c] * inverse - log_y));
}

static void backward(const Call *call) {
    if (!call->d_in[0].data) return;
    const SoftCrossEntropyAttrs *attrs = call->attrs;
    const int64_t rows = view_rows(&call->in[0]), classes = view_last(&call->in[0]);
    const REAL inverse = (REAL)(1 / attrs->temperature), *log_sum = call->aux;
    const REAL factor = (REAL)attrs->temperature * rows_gradient(call);
    const REAL *z = call->in[0].data, *y = call->in[1].data;
    const bool accumulate = call->d_in[0].accumulate;
    for (int64_t i = 0; i < rows; i++) {
        REAL *dz = (REAL *)call->d_in[0].data + i * classes;
        if (rows_keep(call, i))
            gradient_row(z + i * classes, y + i * classes, classes, inverse, log_sum[i],
                         log_sum[rows + i], factor, accumulate, dz);
        else
            rows_clear(dz, classes, accumulate);
    }
}

OP_RECORD(soft_cross_entropy) = {
    OP_ID(soft_cross_entropy),
    .summary = "t^2 * mean of -sum softmax(teacher / t) log softmax(logits / t)",
    .operands = OPERANDS,
    .fields = SOFT_FIELDS,
    .attrs_size = sizeof(SoftCrossEntropyAttrs),
    .defaults = &SOFT_DEFAULTS,
    .traits = OP_LOSS,
    .reads = READS_IN(0) | READS_IN(1) | READS_IN(2),
    .infer = infer,
    .count_rows = rows_count,
};

KERNEL(soft_cross_entropy) = {
    .aux_bytes = aux_bytes,
    .forward = forward,
    .backward = backward,
};
