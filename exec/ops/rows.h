/* What losses over rows share: x[N..., D] against teacher[N..., D], where an optional
 * mask[N...] leaves out the rows where it is 0. See Op.count_rows. */
#ifndef COMPRESS_EXEC_OPS_ROWS_H
#define COMPRESS_EXEC_OPS_ROWS_H

#include "exec/infer.h"
#include "exec/ops/kernel.h"

#include <string.h>

/* Operands by position. */
enum { ROWS_X, ROWS_TEACHER, ROWS_MASK };

/* Checks the shapes of the three; the result is a scalar. */
static inline Status rows_infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, ROWS_X, 2, RANK_MAX, diag));
    const Type *x = &node->in[ROWS_X]->type;
    TRY(infer_known(node, ROWS_X, x->rank - 1, diag));
    TRY(infer_shape(node, ROWS_TEACHER, x->rank, x->dim, diag));
    if (node->in[ROWS_MASK]) TRY(infer_shape(node, ROWS_MASK, x->rank - 1, x->dim, diag));
    *out = real_type(0, x->dim);
    return STATUS_OK;
}

/* Whether row `row` counts. */
static inline bool rows_keep(const Call *call, int64_t row) {
    const int32_t *mask = call->in[ROWS_MASK].data;
    return !mask || mask[row] != 0;
}

/* Op.count_rows. */
static inline double rows_count(const Call *call) {
    const int64_t rows = view_rows(&call->in[ROWS_X]);
    int64_t kept = 0;
    for (int64_t i = 0; i < rows; i++) kept += rows_keep(call, i);
    return (double)kept;
}

/* The loss from its sum over the rows. */
static inline REAL rows_mean(const Call *call, double total) {
    return call->rows > 0 ? (REAL)(total / call->rows) : 0;
}

/* The gradient of that sum. */
static inline REAL rows_gradient(const Call *call) {
    return rows_mean(call, (double)*(const REAL *)call->d_out.data);
}

/* The gradient of a row that is left out. */
static inline void rows_clear(REAL *d, int64_t count, bool accumulate) {
    if (!accumulate) memset(d, 0, (size_t)count * sizeof(REAL));
}

/* The gradient of squared errors of a row of n: dx (+)= factor (x - t). */
static inline void rows_error_gradient(const REAL *restrict x, const REAL *restrict t,
                                       int64_t n, REAL factor, bool accumulate,
                                       REAL *restrict dx) {
    if (accumulate)
        for (int64_t c = 0; c < n; c++) dx[c] += factor * (x[c] - t[c]);
    else
        for (int64_t c = 0; c < n; c++) dx[c] = factor * (x[c] - t[c]);
}

#endif
