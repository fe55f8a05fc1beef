/* attention, backward: probabilities are recomputed from the operands and the saved
 * log-sum-exp, block by block as in the forward kernel.
 *
 * dV = P'^T dO; dP' = dO V^T; d mix_after = dP' . P; d mix_after_bias = sum of dP'; dP =
 * mix_after^T dP';
 * dA' = P (dP - sum over keys of P dP); d mix_before = dA' . A; dA = mix_before^T dA';
 * then dA, times the slope of the cap, goes to the biases, q, k and the relative
 * positions. */
#include "exec/ops/attention_blocks.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"

/* Gradients wanted (NULL = not), and whether q's first contribution adds. */
typedef struct AttentionGradients {
    const REAL *out;
    REAL *q, *k, *v, *rel_key, *mix_before, *mix_after, *mix_after_bias;
    REAL *bias;              /* bias, or that and rel_bias together */
    REAL *rel_bias, *summed; /* with rel_bias: where `bias` goes in the end */
    bool add_q;
    bool scores; /* any gradient that needs dP' */
} AttentionGradients;

/* The gradient of k or v, heads of `width` numbers, whose part is ready to be added to.
 */
static REAL *open_keys(const Attention *a, const Call *call, int i, int64_t width) {
    REAL *gradient = gradient_of(call, i);
    if (!gradient || call->d_in[i].accumulate) return gradient;
    const int64_t row = a->heads / a->share * width;
    const int64_t first = a->part_heads.first / a->share * width;
    const int64_t end = a->part_heads.end / a->share * width;
    for (int64_t j = a->part_samples.first * a->keys; j < a->part_samples.end * a->keys;
         j++)
        memset(gradient + j * row + first, 0, (size_t)(end - first) * sizeof(REAL));
    return gradient;
}

/* What starts as zeros in scratch, `each` numbers of a head, for the heads of the part.
 */
static void clear_heads(const Attention *a, REAL *of_heads, int64_t each) {
    const Range heads = a->part_heads;
    memset(of_heads + heads.first * each, 0,
           (size_t)((heads.end - heads.first) * each) * sizeof(REAL));
}

static void open_gradients(AttentionGradients *d, const Attention *a, const Call *call) {
    *d = (AttentionGradients){
        .out = call->d_out.data,
        .q = gradient_of(call, ATTENTION_Q),
        .k = open_keys(a, call, ATTENTION_K, a->head),
        .v = open_keys(a, call, ATTENTION_V, a->value_head),
        .bias = gradient_to_add(call, ATTENTION_BIAS),
        .rel_bias = gradient_to_add(call, ATTENTION_REL_BIAS),
        .rel_key = gradient_to_add(call, ATTENTION_REL_KEY),
        .mix_before = gradient_to_add(call, ATTENTION_MIX_BEFORE),
        .mix_after = gradient_to_add(call, ATTENTION_MIX_AFTER),
        .mix_after_bias = gradient_to_add(call, ATTENTION_MIX_AFTER_BIAS),
        .add_q = gradient_adds(call, ATTENTION_Q),
    };
    gradient_to_add(call, ATTENTION_MIX_BEFORE_BIAS); /* stays 0 */
    if (a->along) {
        clear_heads(a, a->d_along, attention_offsets(a));
    } else if (d->rel_bias) {
        d->summed = d->bias;
        d->bias = a->d_spread;
        clear_heads(a, d->bias, a->queries * a->keys);
    }
    d->scores = d->q || d->k || d->bias || d->rel_bias || d->rel_key || d->mix_before ||
                d->mix_after || d->mix_after_bias;
}

/* Turns a->mixed from scores into probabilities. */
static void recompute_block(const Attention *a, AttentionSpan span) {
    for (int64_t r = 0; r < span.rows; r++) {
        const AttentionRow seen = attention_row(a, span, r);
        const int64_t n = seen.columns & -LANE_COUNT;
        const REAL *restrict limit = seen.limit;
        for (int64_t g = 0; g < a->group; g++) {
            REAL *row = a->mixed + attention_block_at(a, g) + r * span.keys.columns;
            REAL *restrict p = row + seen.from;
            const REAL log_sum = a->log_sum[attention_row_at(a, span, g) + r];
            attention_clear_outside(span, seen, row);
            for (int64_t j = 0; j < n; j++) p[j] = exp_real(p[j] + limit[j] - log_sum);
        }
    }
}

/* Turns a->unmixed from dP into dA' = P (dP - P . dP). */
static void softmax_gradient(const Attention *a, AttentionSpan span) {
    for (int64_t g = 0; g < a->group; g++)
        for (int64_t r = 0; r < span.rows; r++) {
            const int64_t n = span.keys.columns & -LANE_COUNT;
            const int64_t at = attention_block_at(a, g) + r * n;
            const REAL *restrict p = a->mixed + at;
            REAL *restrict d = a->unmixed + at;
            const REAL mean = lanes_dot(n, p, d);
            for (int64_t j = 0; j < n; j++) d[j] = p[j] * (d[j] - mean);
        }
}

/* d_v += P'^T dO; then a->after becomes dP' = dO V^T. */
static void value_gradient(const Attention *a, AttentionSpan span,
                           const AttentionGradients *d) {
    const int64_t e = a->value_head, width = a->out_width, columns = span.keys.columns;
    const REAL *p = a->mix_after ? a->after : a->mixed;
    for (int64_t g = 0; g < a->group; g++) {
        const int64_t at = attention_block_at(a, g);
        const REAL *d_out = d->out + attention_at(a, span, g, e);
        if (d->v)
            gemm(true, false, span.keys.count, e, span.rows, 1, p + at, columns, d_out,
                 width, 1, d->v + attention_key_at(a, span, g, e), a->value_width);
        if (d->scores)
            gemm(false, false, span.rows, columns, e, 1, d_out, width,
                 a->values_t + g * e * a->padded + span.keys.first, a->padded, 0,
                 a->after + at, columns);
    }
}

/* d_matrix[a, b] += x_a . y_b over a block. */
static void mix_gradient(const Attention *a, AttentionSpan span, const REAL *x,
                         const REAL *y, REAL *d_matrix) {
    const int64_t stride = a->block * a->padded;
    if (d_matrix)
        gemm(false, true, a->heads, a->heads, span.rows * span.keys.columns, 1, x, stride,
             y, stride, 1, d_matrix, a->heads);
}

/* d_bias[a] += the sum of a->after, dP', over the keys that take part. */
static void mix_bias_gradient(const Attention *a, AttentionSpan span, REAL *d_bias) {
    for (int64_t r = 0; r < span.rows; r++) {
        const AttentionRow seen = attention_row(a, span, r);
        for (int64_t g = 0; g < a->group; g++) {
            const REAL *restrict d =
                a->after + attention_block_at(a, g) + r * span.keys.columns + seen.from;
            REAL sum = 0;
            for (int64_t j = 0; j < seen.columns; j++)
                sum += seen.limit[j] > -INFINITY ? d[j] : 0;
            d_bias[g] += sum;
        }
    }
}

/* d_q and d_rel_key through the relative positions. */
static void relative_gradient(const Attention *a, AttentionSpan span, const REAL *d_score,
                              const REAL *q, REAL *d_q, REAL *d_rel_key) {
    for (int64_t r = 0; r < span.rows; r++) REAL_FN(relative_collect)
    (&a->grid, span.row + r, d_score + r * span.keys.columns,
     a->by_bucket + r * RELATIVE_BUCKETS);
    if (d_q)
        gemm(false, true, span.rows, a->head, RELATIVE_BUCKETS, a->scale, a->by_bucket,
             RELATIVE_BUCKETS, a->rel_key, RELATIVE_BUCKETS, 1, d_q, a->width);
    if (d_rel_key)
        gemm(true, false, a->head, RELATIVE_BUCKETS, span.rows, a->scale, q, a->width,
             a->by_bucket, RELATIVE_BUCKETS, 1, d_rel_key, RELATIVE_BUCKETS);
}

/* From the capped scores' gradient to that of the scores. */
static void cap_gradient(const Attention *a, AttentionSpan span, REAL *d_scores) {
    for (int64_t g = 0; g < a->group; g++) {
        const REAL *restrict slope = a->slopes + attention_block_at(a, g);
        REAL *restrict d = d_scores + attention_block_at(a, g);
        for (int64_t i = 0; i < span.rows * span.keys.columns; i++) d[i] *= slope[i];
    }
}

/* Hands dA (like a->scores) on to bias, q, k and rel_key. */
static void score_gradient(const Attention *a, AttentionSpan span, const REAL *d_scores,
                           const AttentionGradients *d) {
    const int64_t columns = span.keys.columns, keys = span.keys.count;
    for (int64_t g = 0; g < a->group; g++) {
        const int64_t w = a->head;
        const int64_t at_q = attention_at(a, span, g, w);
        const int64_t at_k = attention_key_at(a, span, g, w);
        const REAL *d_score = d_scores + attention_block_at(a, g);
        const int64_t first = (span.head + g) * a->queries + span.row;
        for (int64_t r = 0; d->bias && r < span.rows; r++)
            put_row(d->bias + (first + r) * a->keys + span.keys.first,
                    d_score + r * columns, keys, true);
        for (int64_t r = 0; a->along && d->rel_bias && r < span.rows; r++)
            put_row(a->d_along + attention_along_at(a, span, g, r), d_score + r * columns,
                    keys, true);
        if (d->q)
            gemm(false, false, span.rows, w, keys, a->scale, d_score, columns,
                 a->k + at_k, a->key_width, d->add_q, d->q + at_q, a->width);
        if (d->k)
            gemm(true, false, keys, w, span.rows, a->scale, d_score, columns, a->q + at_q,
                 a->width, 1, d->k + at_k, a->key_width);
        if (a->rel_key && (d->q || d->rel_key))
            relative_gradient(a, span, d_score, a->q + at_q, d->q ? d->q + at_q : NULL,
                              d->rel_key);
    }
}

static void backward_block(const Attention *a, AttentionSpan span, void *user) {
    const AttentionGradients *d = user;
    REAL_FN(attention_scores)(a, span);
    if (a->mix_before)
        REAL_FN(attention_mix)(a, span, a->mix_before, false, a->scores, a->mixed);
    recompute_block(a, span);
    if (a->mix_after) REAL_FN(attention_mix_after)(a, span);
    value_gradient(a, span, d);
    if (!d->scores) return;
    if (a->mix_after) {
        mix_gradient(a, span, a->after, a->mixed, d->mix_after);
        if (d->mix_after_bias) mix_bias_gradient(a, span, d->mix_after_bias);
        REAL_FN(attention_mix)(a, span, a->mix_after, true, a->after, a->unmixed);
    }
    softmax_gradient(a, span);
    REAL *d_scores = a->unmixed;
    if (a->mix_before) {
        mix_gradient(a, span, a->unmixed, a->scores, d->mix_before);
        d_scores = a->mixed; /* the probabilities are done with */
        REAL_FN(attention_mix)(a, span, a->mix_before, true, a->unmixed, d_scores);
    }
    if (a->cap > 0) cap_gradient(a, span, d_scores);
    score_gradient(a, span, d_scores, d);
}

/* The gradient of the table of biases by bucket from that by distance. */
static void collect_buckets(const Attention *a, REAL *table) {
    const int64_t count = attention_offsets(a);
    for (int64_t h = a->part_heads.first; h < a->part_heads.end; h++)
        for (int64_t i = 0; i < count; i++)
            table[a->bucket[i] * a->heads + h] += a->d_along[h * count + i];
}

void REAL_FN(attention_backward)(const Call *call) {
    Attention a;
    AttentionGradients d;
    REAL_FN(attention_open)(&a, call);
    open_gradients(&d, &a, call);
    REAL_FN(attention_walk)(&a, true, backward_block, &d);
    if (!d.rel_bias) return;
    if (a.along) {
        collect_buckets(&a, d.rel_bias);
        return;
    }
    const int64_t map = a.queries * a.keys, first = a.part_heads.first * map;
    REAL_FN(relative_bias_collect)
    (&a.grid, a.heads, a.part_heads.first, a.part_heads.end, d.bias, d.rel_bias);
    if (d.summed)
        put_row(d.summed + first, d.bias + first, a.part_heads.end * map - first, true);
}
