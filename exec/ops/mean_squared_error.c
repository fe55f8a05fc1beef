/* mean_squared_error: mean of (x - teacher)^2 over the elements of the rows that count.
 *
 * With R rows of D elements dx = 2 (x - teacher) / (R D); the teacher gets none. */
#include "exec/ops/kernel_math.h"
#include "exec/ops/rows.h"

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "student's [N..., D]"},
    {"teacher", OPERAND_CONSTANT, "teacher's [N..., D]; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N...]: 0 = row is left out"},
    {NULL},
};

static REAL row_loss(const REAL *restrict x, const REAL *restrict t, int64_t n) {
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < n; c++) sum += (x[c] - t[c]) * (x[c] - t[c]);
    return sum;
}

static void forward(const Call *call) {
    const int64_t rows = view_rows(&call->in[ROWS_X]), D = view_last(&call->in[ROWS_X]);
    const REAL *x = call->in[ROWS_X].data, *t = call->in[ROWS_TEACHER].data;
    double total = 0;
    for (int64_t i = 0; i < rows; i++)
        if (rows_keep(call, i)) total += (double)row_loss(x + i * D, t + i * D, D);
    *(REAL *)call->out.data = rows_mean(call, total / (double)D);
}

static void backward(const Call *call) {
    REAL *dx = call->d_in[ROWS_X].data;
    if (!dx) return;
    const int64_t rows = view_rows(&call->in[ROWS_X]), D = view_last(&call->in[ROWS_X]);
    const REAL *x = call->in[ROWS_X].data, *t = call->in[ROWS_TEACHER].data;
    const REAL factor = 2 * rows_gradient(call) / (REAL)D;
    const bool accumulate = call->d_in[ROWS_X].accumulate;
    for (int64_t i = 0; i < rows * D; i += D)
        if (rows_keep(call, i / D))
            rows_error_gradient(x + i, t + i, D, factor, accumulate, dx + i);
        else
            rows_clear(dx + i, D, accumulate);
}

OP_RECORD(mean_squared_error) = {
    OP_ID(mean_squared_error),
    .summary = "mean of (x - teacher)^2 over the rows that count",
    .operands = OPERANDS,
    .traits = OP_LOSS,
    .reads = READS_IN(ROWS_X) | READS_IN(ROWS_TEACHER) | READS_IN(ROWS_MASK),
    .infer = rows_infer,
    .count_rows = rows_count,
};

KERNEL(mean_squared_error) = {
    .forward = forward,
    .backward = backward,
};
