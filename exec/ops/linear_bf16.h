/* linear with rounded operands (Call.bf16): y = r(x) r(W)^T + b, dx = r(dy) r(W), dW =
 * r(dy)^T r(x), where r rounds to bfloat16 and sums are float; db is from dy unrounded.
 * The gradient passes through the rounding as if it were not there. Weights that are
 * parameters come rounded (View.rounded); those that the graph computes are rounded
 * here. Only for kernels in float. */
#ifndef COMPRESS_EXEC_OPS_LINEAR_BF16_H
#define COMPRESS_EXEC_OPS_LINEAR_BF16_H

#include "exec/linalg/bf16.h"
#include "exec/ops/tiles.h"

/* The weight, not rounded yet, as W[rows, columns]. */
static inline Bf16Matrix bf16_weight(const Call *call, int sides, void *data) {
    const View *w = &call->in[1];
    return (Bf16Matrix){w->dim[0], w->count / w->dim[0], sides, data};
}

/* Bytes for rounding weights that are not parameters. */
static inline size_t bf16_weight_bytes(const Call *call) {
    const Bf16Matrix rows = bf16_weight(call, BF16_ROWS, NULL);
    const Bf16Matrix columns = bf16_weight(call, BF16_COLUMNS, NULL);
    const size_t a = bf16_bytes(&rows), b = bf16_bytes(&columns);
    return call->node->in[1]->storage ? 0 : a > b ? a : b;
}

/* Scratch of a call, forward or backward. */
static inline size_t bf16_linear_scratch(const Call *call) {
    const View *x = &call->in[0];
    const int64_t R = view_rows(x), K = view_last(x), M = view_last(&call->out);
    const size_t dw = bf16_scratch(M, R) + bf16_scratch(K, R);
    const size_t y = bf16_scratch(R, K), dx = bf16_scratch(R, M);
    const size_t most = y > dx ? y : dx;
    return bf16_weight_bytes(call) + (dw > most ? dw : most);
}

/* A product of R rows with one side of the weight. */
static inline void bf16_linear_times(const Call *call, Bf16Sides side, int64_t R,
                                     const float *a, bool add, float *c) {
    const Bf16Matrix *rounded = call->in[1].rounded;
    const Bf16Matrix here = bf16_weight(call, side, call->scratch);
    if (!rounded) bf16_round(&here, call->in[1].data);
    bf16_times(rounded ? rounded : &here, side, R, a, add, c,
               (char *)call->scratch + (rounded ? 0 : bf16_bytes(&here)));
}

/* Rows of y and of dx, which share packed weights; rows of dW, for each of which x is
 * packed anew. */
enum { BF16_TILE_ROWS = 64, BF16_TILE_OUTER = 384 };

/* The grid of a product [m, n] with sums of k terms; `outer`: of dW. */
static inline ProductGrid bf16_linear_grid(int64_t m, int64_t n, int64_t k, bool outer) {
    int64_t work = m * n * k;
    return (ProductGrid){product_side(m, outer ? BF16_TILE_OUTER : BF16_TILE_ROWS, &work),
                         1, bf16_unit()};
}

/* The rows of a range of y; with `add`, added to it. */
static inline void bf16_linear_forward(const Call *call, bool transposed, Range rows,
                                       bool add) {
    const View *x = &call->in[0], *y = &call->out;
    bf16_linear_times(call, transposed ? BF16_COLUMNS : BF16_ROWS, rows.end - rows.first,
                      (const float *)x->data + rows.first * view_last(x), add,
                      (float *)y->data + rows.first * view_last(y));
}

/* The rows of a range of dx. */
static inline void bf16_linear_input(const Call *call, bool transposed, Range rows) {
    const View *dx = &call->d_in[0], *dy = &call->d_out;
    bf16_linear_times(call, transposed ? BF16_ROWS : BF16_COLUMNS, rows.end - rows.first,
                      (const float *)dy->data + rows.first * view_last(dy),
                      dx->accumulate,
                      (float *)dx->data + rows.first * view_last(&call->in[0]));
}

/* The rows of a range of dW as it is stored. */
static inline void bf16_linear_weight(const Call *call, bool transposed, Range rows) {
    const View *x = &call->in[0], *dw = &call->d_in[1];
    const int64_t R = view_rows(x), K = view_last(x), M = view_last(&call->d_out);
    const float *dy = call->d_out.data, *left = transposed ? x->data : dy;
    const int64_t height = transposed ? K : M, width = transposed ? M : K;
    bf16_outer(rows.end - rows.first, width, R, left + rows.first, height,
               transposed ? dy : x->data, dw->accumulate,
               (float *)dw->data + rows.first * width, call->scratch);
}

#endif
