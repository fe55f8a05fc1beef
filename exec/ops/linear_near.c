/* The near window of linear attention: see linear_near.h.
 *
 * Backward, with dR the gradient of a row: dp = dR v'^T, A = sum p dp, ds = p dp, less A
 * at the largest score (whose m is in all of them), dnear_q =
 * scale ds near_k, dnear_k = scale ds^T near_q, dv = p^T dR without its last column,
 * dgate = (1 - g) A.
 *
 * With a slope, where g = e^(gate + slope m) is not held: dgate = A, dslope = m A, and
 * the largest score receives slope A more, as m is in g too. */
#include "exec/ops/linear_near.h"

#include <string.h>

/* The near keys of a chunk of queries of one head. */
typedef struct NearSpan {
    int64_t first, count; /* of the queries */
    int64_t from, keys;   /* first token and number of the keys */
    const REAL *q, *k;
    int64_t k_stride;
    const int32_t *mask; /* of the keys; NULL = all take part */
    LinearGain gain;
} NearSpan;

static NearSpan open_span(const LinearAttention *a, int64_t sample, int64_t head,
                          int64_t first, int64_t count) {
    const int64_t from = linear_near_first(a, first);
    const int64_t at =
        linear_at(a->keys, sample, from, a->near_end, head / a->share, a->near);
    return (NearSpan){.first = first,
                      .count = count,
                      .from = from,
                      .keys = first + count - from,
                      .q = a->near_q + linear_at(a->queries, sample, first, a->near_width,
                                                 head, a->near),
                      .k = a->mask ? a->near_keys : a->near_k + at,
                      .k_stride = a->mask ? a->near : a->near_end,
                      .mask = a->mask ? a->mask + sample * a->keys + from : NULL,
                      .gain = linear_gain_of(a->gate, a->slope, head)};
}

/* Whether g of a row whose largest near score is `top` is at one of its bounds. */
static bool gain_is_held(const LinearGain *gain, REAL top) {
    const REAL exponent = gain->gate + gain->slope * top;
    return !(exponent > -LINEAR_GAIN_MAX && exponent < LINEAR_GAIN_MAX);
}

void REAL_FN(linear_near_load)(const LinearAttention *a, int64_t sample, int64_t group,
                               int64_t first) {
    const int64_t count = linear_count(a, a->queries, first);
    if (count == 0) return;
    const NearSpan span = open_span(a, sample, group * a->share, first, count);
    REAL_FN(linear_values)(a, sample, group, span.from, span.keys, a->near_values);
    const REAL *k =
        a->near_k + linear_at(a->keys, sample, span.from, a->near_end, group, a->near);
    for (int64_t j = 0; span.mask && j < span.keys; j++) {
        REAL *to = a->near_keys + j * a->near;
        if (span.mask[j])
            put_row(to, k + j * a->near_end, a->near, false);
        else
            memset(to, 0, (size_t)a->near * sizeof(REAL));
    }
}

/* a->weights, a->least and a->tops. */
static void weigh(const LinearAttention *a, const NearSpan *span) {
    gemm(false, true, span->count, span->keys, a->near, a->near_scale, span->q,
         a->near_width, span->k, span->k_stride, 0, a->weights, a->near_stride);
    for (int64_t r = 0; r < span->count; r++) {
        REAL *restrict row = a->weights + r * a->near_stride;
        const int64_t end = span->first + r + 1 - span->from;
        const int64_t begin = end > a->window ? end - a->window : 0;
        for (int64_t j = 0; j < begin; j++) row[j] = -INFINITY;
        for (int64_t j = end; j < span->keys; j++) row[j] = -INFINITY;
        for (int64_t j = begin; span->mask && j < end; j++)
            if (!span->mask[j]) row[j] = -INFINITY;
        const REAL top = row_max(row, span->keys);
        const bool none = top == -INFINITY;
        a->tops[r] = none ? 0 : top;
        const REAL g = linear_gain(&span->gain, a->tops[r]);
        for (int64_t j = 0; j < span->keys; j++)
            row[j] = g * exp_real(row[j] - a->tops[r]);
        a->least[r] = none ? a->eps : LINEAR_NEAR_LEAST;
    }
}

void REAL_FN(linear_near_add)(const LinearAttention *a, int64_t sample, int64_t head,
                              int64_t first, int64_t count, bool add) {
    const NearSpan span = open_span(a, sample, head, first, count);
    weigh(a, &span);
    gemm(false, false, count, a->wide, span.keys, 1, a->weights, a->near_stride,
         a->near_values, a->stride, add, a->rows, a->stride);
}

/* What rows give to the gradients of gate and slope. */
typedef struct GateGradients {
    REAL gate, slope;
} GateGradients;

/* a->d_weights from the gradients of the weights to those of the scores. A is 0 but for
 * rounding where no key is far. */
static GateGradients slopes(const LinearAttention *a, const NearSpan *span) {
    const LinearGain *gain = &span->gain;
    GateGradients total = {0, 0};
    for (int64_t r = 0; r < span->count; r++) {
        const REAL *restrict p = a->weights + r * a->near_stride;
        REAL *restrict ds = a->d_weights + r * a->near_stride;
        const REAL m = a->tops[r], g = linear_gain(gain, m);
        const bool moves = gain->sloped && !gain_is_held(gain, m);
        int64_t top = 0;
        while (top < span->keys - 1 && p[top] < g) top++;
        for (int64_t j = 0; j < span->keys; j++) ds[j] *= p[j];
        const REAL sum = row_sum(ds, span->keys);
        if (p[top] > 0) ds[top] += ((moves ? gain->slope : 0) - 1) * sum;
        if (span->first + r < a->window || (gain->sloped && !moves)) continue;
        total.gate += (gain->sloped ? 1 : 1 - g) * sum;
        total.slope += m * sum;
    }
    return total;
}

void REAL_FN(linear_near_backward)(const LinearAttention *a, int64_t sample, int64_t head,
                                   int64_t first, int64_t count, const NearGradients *d) {
    const NearSpan span = open_span(a, sample, head, first, count);
    const int64_t group = head / a->share;
    weigh(a, &span);
    if (d->v)
        gemm(true, false, span.keys, a->value_head, count, 1, a->weights, a->near_stride,
             a->rows, a->stride, 1,
             d->v +
                 linear_at(a->keys, sample, span.from, a->v_width, group, a->value_head),
             a->v_width);
    if (!d->q && !d->k && !d->gate && !d->slope) return;
    gemm(false, true, count, span.keys, a->wide, 1, a->rows, a->stride, a->near_values,
         a->stride, 0, a->d_weights, a->near_stride);
    const GateGradients sums = slopes(a, &span);
    if (d->gate) d->gate[head] += sums.gate;
    if (d->slope) d->slope[head] += sums.slope;
    if (d->q)
        gemm(false, false, count, a->near, span.keys, a->near_scale, a->d_weights,
             a->near_stride, span.k, span.k_stride, 1,
             d->q + linear_at(a->queries, sample, first, a->near_width, head, a->near),
             a->near_width);
    if (d->k)
        gemm(true, false, span.keys, a->near, count, a->near_scale, a->d_weights,
             a->near_stride, span.q, a->near_width, 1,
             d->k + linear_at(a->keys, sample, span.from, a->near_end, group, a->near),
             a->near_end);
}
