/* relative_squared_error: mean over samples of sum (x - teacher)^2 / sum teacher^2, both
 * over the sample's rows that count; 0 for a sample whose teacher is 0 there.
 *
 * With N samples and S_n the teacher's sum dx = 2 (x - teacher) / (N S_n); the teacher
 * gets none. A sample's share does not depend on the others, so a mini-batch may be cut.
 */
#include "exec/ops/kernel_math.h"
#include "exec/ops/rows.h"

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "student's [N..., D]"},
    {"teacher", OPERAND_CONSTANT, "teacher's [N..., D]; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N...]: 0 = row is left out"},
    {NULL},
};

/* Squares of a row: of the difference, and of the teacher. */
static void row_squares(const REAL *restrict x, const REAL *restrict t, int64_t n,
                        double *error, double *size) {
    REAL e = 0, s = 0;
#pragma omp simd reduction(+ : e, s)
    for (int64_t c = 0; c < n; c++) {
        e += (x[c] - t[c]) * (x[c] - t[c]);
        s += t[c] * t[c];
    }
    *error += (double)e;
    *size += (double)s;
}

/* Both sums of sample `n`, of `rows` rows. */
static void sample_squares(const Call *call, int64_t n, int64_t rows, double *error,
                           double *size) {
    const int64_t D = view_last(&call->in[ROWS_X]);
    const REAL *x = call->in[ROWS_X].data, *t = call->in[ROWS_TEACHER].data;
    *error = *size = 0;
    for (int64_t i = n * rows; i < (n + 1) * rows; i++)
        if (rows_keep(call, i)) row_squares(x + i * D, t + i * D, D, error, size);
}

static void forward(const Call *call) {
    const int64_t samples = call->in[ROWS_X].dim[0];
    const int64_t rows = view_rows(&call->in[ROWS_X]) / samples;
    double total = 0, error, size;
    for (int64_t n = 0; n < samples; n++) {
        sample_squares(call, n, rows, &error, &size);
        if (size > 0) total += error / size;
    }
    *(REAL *)call->out.data = (REAL)(total / (double)samples);
}

static void backward(const Call *call) {
    REAL *dx = call->d_in[ROWS_X].data;
    if (!dx) return;
    const int64_t samples = call->in[ROWS_X].dim[0], D = view_last(&call->in[ROWS_X]);
    const int64_t rows = view_rows(&call->in[ROWS_X]) / samples;
    const REAL *x = call->in[ROWS_X].data, *t = call->in[ROWS_TEACHER].data;
    const double d_out = (double)*(const REAL *)call->d_out.data;
    const bool accumulate = call->d_in[ROWS_X].accumulate;
    double error, size;
    for (int64_t i = 0; i < samples * rows; i++) {
        if (i % rows == 0) sample_squares(call, i / rows, rows, &error, &size);
        if (size > 0 && rows_keep(call, i))
            rows_error_gradient(x + i * D, t + i * D, D,
                                (REAL)(2 * d_out / ((double)samples * size)), accumulate,
                                dx + i * D);
        else
            rows_clear(dx + i * D, D, accumulate);
    }
}

OP_RECORD(relative_squared_error) = {
    OP_ID(relative_squared_error),
    .summary = "mean over samples of sum (x - teacher)^2 / sum teacher^2",
    .operands = OPERANDS,
    .traits = OP_LOSS,
    .reads = READS_IN(ROWS_X) | READS_IN(ROWS_TEACHER) | READS_IN(ROWS_MASK),
    .infer = rows_infer,
};

KERNEL(relative_squared_error) = {
    .forward = forward,
    .backward = backward,
};
