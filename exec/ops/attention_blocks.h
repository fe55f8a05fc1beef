/* Attention by blocks of scores: how a call is cut, and the scores of a block; for the
 * forward and backward kernels.
 *
 * Work goes by blocks of query rows against the keys that any of them sees, so that the
 * scores of a block stay in cache and nothing is computed above the diagonal, beyond the
 * reach or in the padding except in a block's corners. Without mixing, heads are done
 * one after another; with mixing, a block holds the rows of all heads ("group" below is
 * the number of heads in a block). Rows of score matrices are padded to a multiple of
 * LANE_COUNT keys; the padding counts as masked, and holds zeros after the softmax.
 *
 * Shapes: samples N, heads H of q and G of k and v, queries T, keys S, head width d of q
 * and k, e of v. With windows, N counts the windows of all samples, and T and S the
 * tokens of one. */
#ifndef COMPRESS_EXEC_OPS_ATTENTION_BLOCKS_H
#define COMPRESS_EXEC_OPS_ATTENTION_BLOCKS_H

#include "exec/ops/attention_limits.h"
#include "exec/ops/lanes.h"
#include "exec/ops/relative_position.h"
#include "exec/ops/tiles.h"
#include "ir/buckets.h"

/* Operands by position. */
enum {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_MASK,
    ATTENTION_BIAS,
    ATTENTION_REL_KEY,
    ATTENTION_MIX_BEFORE,
    ATTENTION_MIX_AFTER,
    ATTENTION_REL_BIAS,
    ATTENTION_MIX_BEFORE_BIAS,
    ATTENTION_MIX_AFTER_BIAS,
    ATTENTION_OPERANDS
};

/* One call's sizes, operands (NULL when absent) and scratch. */
typedef struct Attention {
    int64_t samples, heads, queries, keys, head, value_head;
    int64_t share;                  /* query heads per head of k and v: H / G */
    int64_t width, out_width;       /* H d, H e */
    int64_t key_width, value_width; /* G d, G e */
    int64_t padded;                 /* S rounded up: most elements of a score row */
    int64_t group, block;           /* heads and query rows done together */
    Range part_samples, part_heads; /* which part of the whole to do */
    REAL scale, cap;                /* cap: 0 = none */
    const REAL *q, *k, *v, *bias, *rel_key, *mix_before, *mix_after, *mix_after_bias;
    const REAL *rel_bias;
    REAL *log_sum; /* aux [N, H, T]: log-sum-exp of every row, inf where all is masked */
    AttentionLimits limits;
    RelativeGrid grid;

    REAL *keys_t, *values_t; /* [group, d, padded] and [group, e, padded] */
    REAL *spread;            /* [H, T, S]: rel_bias by query and key, bias added */
    REAL *d_spread;          /* its gradient */
    int32_t *bucket; /* [T + S - 1]: of the key i - (T - 1) tokens after the query; with
                        buckets, as the next two */
    REAL *along;     /* [H, T + S - 1]: rel_bias of it */
    REAL *d_along;   /* its gradient */
    REAL *by_bucket; /* [block, 49] */
    REAL *scores;    /* [group, rows, columns] of a span, heads block * padded elements
                        apart; as are the next four */
    REAL *slopes;    /* with a cap: derivatives of the capped scores */
    REAL *mixed;     /* scores after mix_before */
    REAL *after;     /* probabilities after mix_after, or their gradient */
    REAL *unmixed;   /* gradient of the probabilities before mix_after */
    size_t scratch_bytes;
} Attention;

/* Rows row .. row + rows - 1 of heads head .. head + group - 1 of a sample, and the keys
 * that they see. */
typedef struct AttentionSpan {
    int64_t sample, head, row, rows;
    KeyRange keys;
} AttentionSpan;

/* Fills `a` from a call. Without buffers (planning) only sizes are valid. */
void REAL_FN(attention_open)(Attention *a, const Call *call);

/* Parts of a call, forward or with `backward`: independent samples and heads, or only
 * heads if all samples add to one gradient of a bias. */
int64_t REAL_FN(attention_tiles)(const Call *call, bool backward);

/* What to do with a block. */
typedef void (*AttentionVisit)(const Attention *a, AttentionSpan span, void *user);

/* Hands all blocks of the part to `visit`, the limits of their samples set and their keys
 * in a->keys_t (with `values` also their values in a->values_t). */
void REAL_FN(attention_walk)(Attention *a, bool values, AttentionVisit visit, void *user);

/* a->scores of a span from a->keys_t: scaled products, bias and relative positions; with
 * a cap capped, and a->slopes. */
void REAL_FN(attention_scores)(const Attention *a, AttentionSpan span);

/* out = matrix (or its transpose) times the heads of `in`, both like a->scores. */
void REAL_FN(attention_mix)(const Attention *a, AttentionSpan span, const REAL *matrix,
                            bool transpose, const REAL *in, REAL *out);

/* a->after = mix_after times the heads of a->mixed, plus the bias for keys that take
 * part.
 */
void REAL_FN(attention_mix_after)(const Attention *a, AttentionSpan span);

/* Size of a head's part of a->along; and the place in it for a query and the span's
 * first key. */
static inline int64_t attention_offsets(const Attention *a) {
    return a->queries + a->keys - 1;
}
static inline int64_t attention_along_at(const Attention *a, AttentionSpan span,
                                         int64_t g, int64_t r) {
    return (span.head + g) * attention_offsets(a) + a->queries - 1 - span.row - r +
           span.keys.first;
}

/* Limits of row `r` of a span, and the range of score columns outside which it sees no
 * key. */
typedef struct AttentionRow {
    const REAL *limit; /* from column `from` on; valid until the next row */
    int64_t from, columns;
} AttentionRow;

/* What row `r` of a span sees. */
static inline AttentionRow attention_row(const Attention *a, AttentionSpan span,
                                         int64_t r) {
    const KeyRange seen = REAL_FN(limits_range)(&a->limits, span.row + r, 1);
    return (AttentionRow){
        .limit = REAL_FN(limits_of)(&a->limits, span.row + r, seen),
        .from = seen.columns > 0 ? seen.first - span.keys.first : 0,
        .columns = seen.columns,
    };
}

/* Zeros in a row of scores or probabilities outside the columns that it sees. */
static inline void attention_clear_outside(AttentionSpan span, AttentionRow seen,
                                           REAL *row) {
    for (int64_t j = 0; j < seen.from; j++) row[j] = 0;
    for (int64_t j = seen.from + seen.columns; j < span.keys.columns; j++) row[j] = 0;
}

/* First row of a span and its head `g` of q or the result [N, T, H * width]. */
static inline int64_t attention_at(const Attention *a, AttentionSpan span, int64_t g,
                                   int64_t width) {
    return ((span.sample * a->queries + span.row) * a->heads + span.head + g) * width;
}

/* First key of a span of the head of k or v [N, S, G * width] that it reads. */
static inline int64_t attention_key_at(const Attention *a, AttentionSpan span, int64_t g,
                                       int64_t width) {
    const int64_t heads = a->heads / a->share;
    const int64_t key = span.sample * a->keys + span.keys.first;
    return (key * heads + (span.head + g) / a->share) * width;
}

/* Score rows of head `g` of a block; index into a->log_sum of a span's first row. */
static inline int64_t attention_block_at(const Attention *a, int64_t g) {
    return g * a->block * a->padded;
}
static inline int64_t attention_row_at(const Attention *a, AttentionSpan span,
                                       int64_t g) {
    return (span.sample * a->heads + span.head + g) * a->queries + span.row;
}

/* Backward kernel of attention, in attention_backward.c. */
void REAL_FN(attention_backward)(const Call *call);

#endif
