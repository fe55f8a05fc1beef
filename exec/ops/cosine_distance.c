/* cosine_distance: mean over the rows that count of 1 - c, c = x . t / (|x| |t|); c = 0
 * where x or t is a row of zeros.
 *
 * With R rows dx = (c x / |x| - t / |t|) / (R |x|), zero where c is 0 by that rule; the
 * teacher gets none. */
#include "exec/ops/kernel_math.h"
#include "exec/ops/rows.h"

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "student's [N..., D]"},
    {"teacher", OPERAND_CONSTANT, "teacher's [N..., D]; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N...]: 0 = row is left out"},
    {NULL},
};

/* One row's cosine and 1 / |x|, 1 / |t|; all 0 when x or t is. */
typedef struct Angle {
    double cosine, inverse_x, inverse_t;
} Angle;

static Angle measure(const REAL *restrict x, const REAL *restrict t, int64_t n) {
    REAL xx = 0, tt = 0, xt = 0;
#pragma omp simd reduction(+ : xx, tt, xt)
    for (int64_t c = 0; c < n; c++) {
        xx += x[c] * x[c];
        tt += t[c] * t[c];
        xt += x[c] * t[c];
    }
    if (xx == 0 || tt == 0) return (Angle){0};
    Angle angle = {.inverse_x = 1 / sqrt((double)xx), .inverse_t = 1 / sqrt((double)tt)};
    angle.cosine = (double)xt * angle.inverse_x * angle.inverse_t;
    return angle;
}

static void forward(const Call *call) {
    const int64_t rows = view_rows(&call->in[ROWS_X]), D = view_last(&call->in[ROWS_X]);
    const REAL *x = call->in[ROWS_X].data, *t = call->in[ROWS_TEACHER].data;
    double total = 0;
    for (int64_t i = 0; i < rows; i++)
        if (rows_keep(call, i)) total += 1 - measure(x + i * D, t + i * D, D).cosine;
    *(REAL *)call->out.data = rows_mean(call, total);
}

/* dx (+)= factor (by_x x - by_t t). */
static void gradient_row(const REAL *restrict x, const REAL *restrict t, int64_t n,
                         REAL factor, REAL by_x, REAL by_t, bool accumulate,
                         REAL *restrict dx) {
    if (accumulate)
        for (int64_t c = 0; c < n; c++) dx[c] += factor * (by_x * x[c] - by_t * t[c]);
    else
        for (int64_t c = 0; c < n; c++) dx[c] = factor * (by_x * x[c] - by_t * t[c]);
}

static void backward(const Call *call) {
    REAL *dx = call->d_in[ROWS_X].data;
    if (!dx) return;
    const int64_t rows = view_rows(&call->in[ROWS_X]), D = view_last(&call->in[ROWS_X]);
    const REAL *x = call->in[ROWS_X].data, *t = call->in[ROWS_TEACHER].data;
    const REAL d_row = rows_gradient(call);
    const bool accumulate = call->d_in[ROWS_X].accumulate;
    for (int64_t i = 0; i < rows * D; i += D) {
        if (!rows_keep(call, i / D)) {
            rows_clear(dx + i, D, accumulate);
            continue;
        }
        const Angle a = measure(x + i, t + i, D);
        gradient_row(x + i, t + i, D, d_row * (REAL)a.inverse_x,
                     (REAL)(a.cosine * a.inverse_x), (REAL)a.inverse_t, accumulate,
                     dx + i);
    }
}

OP_RECORD(cosine_distance) = {
    OP_ID(cosine_distance),
    .summary = "mean of 1 - x . teacher / (|x| |teacher|) over the rows that count",
    .operands = OPERANDS,
    .traits = OP_LOSS,
    .reads = READS_IN(ROWS_X) | READS_IN(ROWS_TEACHER) | READS_IN(ROWS_MASK),
    .infer = rows_infer,
    .count_rows = rows_count,
};

KERNEL(cosine_distance) = {
    .forward = forward,
    .backward = backward,
};
