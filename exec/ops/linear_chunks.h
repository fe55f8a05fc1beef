/* Linear attention by chunks of tokens: how a call is cut, and what chunks have in
 * common; for the forward and backward kernels.
 *
 * The denominator is one more column: with v' = [v, 1] and S' = [S, z] of width e + 1, a
 * product with a row of q gives numerator and denominator together. A source token that
 * is masked has zeros in k and in v'.
 *
 * Causal work goes by chunks of tokens. A query meets the chunks before its own through
 * S' and its own through the scores q k^T, with zeros where the key is later:
 *
 *     rows = q S' + tril(q k^T) v';  then S' += k^T v'.
 *
 * Otherwise S' is summed over the whole source first and chunks only bound the scratch.
 *
 * With a window w, the far keys of query t end at t - w: the same with a source delayed
 * by w tokens, so that row r of a chunk meets token r of a source that begins w tokens
 * earlier. The near keys of a chunk, its own and the w - 1 before, add g e^(s - m) v' to
 * rows.
 *
 * Shapes: samples N, heads H of q and G of k and v, queries T, keys S, width f of a
 * head's features and e of its values. */
#ifndef COMPRESS_EXEC_OPS_LINEAR_CHUNKS_H
#define COMPRESS_EXEC_OPS_LINEAR_CHUNKS_H

#include "exec/ops/kernel.h"

/* Operands by position. */
enum {
    LINEAR_Q,
    LINEAR_K,
    LINEAR_V,
    LINEAR_MASK,
    LINEAR_NEAR_Q,
    LINEAR_NEAR_K,
    LINEAR_GATE,
    LINEAR_SLOPE
};

/* One call's sizes, operands (NULL when absent) and scratch. */
typedef struct LinearAttention {
    int64_t samples, heads, kv_heads, queries, keys, feature, value_head;
    int64_t share;        /* query heads per head of k and v: H / G */
    int64_t wide, stride; /* e + 1; elements between rows of v', S' and `rows` */
    int64_t chunk;        /* tokens of a chunk */
    int64_t q_width, k_width, v_width, out_width; /* H f, G f, G e, H e */
    bool causal;
    REAL eps;
    const REAL *q, *k, *v;
    const int32_t *mask;
    REAL *below; /* aux [N, H, T]: what every row is divided by, negative where eps is */

    int64_t window;                     /* 0 = none; at most the keys */
    int64_t near, near_width, near_end; /* d, H d and G d of near_q and near_k */
    REAL near_scale;
    const REAL *near_q, *near_k, *gate, *slope;

    REAL *keys_kept;        /* [chunk, f]: keys with zeros where masked */
    REAL *values;           /* [chunk, e + 1]: v' */
    REAL *rows;             /* [chunk, e + 1]: results before division, or gradient */
    REAL *scores;           /* [chunk, chunk]; NULL unless causal */
    REAL *d_scores;         /* the same */
    REAL *states, *d_state; /* S' before every chunk [f, e + 1], one unless causal */
    REAL *near_values;      /* [chunk + w - 1, e + 1]: v' of near keys */
    REAL *near_keys;        /* [chunk + w - 1, d]: near keys with zeros where masked */
    REAL *weights;          /* [chunk, near_stride]: g e^(s - m), 0 where not near */
    REAL *d_weights;        /* the same */
    REAL *least;            /* [chunk]: least denominator; NULL = eps */
    REAL *tops;             /* [chunk]: largest near score m, 0 without near keys */
    int64_t near_stride;
    size_t scratch_bytes;
} LinearAttention;

/* Some tokens of the source and one head of k and v. */
typedef struct LinearSource {
    int64_t first; /* token */
    int64_t skip;  /* rows of the chunk before the one that meets the first token */
    int64_t count; /* may be 0: the queries continue after the source, or see none yet */
    const REAL *k; /* [count, f] */
    int64_t k_stride;
    const REAL *v; /* [count, e + 1] */
} LinearSource;

/* Fills `a` from a call. Without buffers (planning) only sizes are valid. */
void REAL_FN(linear_open)(LinearAttention *a, const Call *call);

/* What the chunk of queries from `first` on meets for the first time, causal or not;
 * valid until the next call. */
LinearSource REAL_FN(linear_source)(const LinearAttention *a, int64_t sample,
                                    int64_t group, int64_t first);

/* state += k^T v', or state = with `add` false; at least one token. */
void REAL_FN(linear_add)(const LinearAttention *a, const LinearSource *source, bool add,
                         REAL *state);

/* scores[count, source] = tril(x y^T): row r of x[count, width] with rows 0 .. r - skip
 * of y, which belongs to `source`. */
void REAL_FN(linear_scores)(const LinearAttention *a, int64_t count, int64_t width,
                            const REAL *x, int64_t x_stride, const REAL *y,
                            int64_t y_stride, const LinearSource *source, REAL *scores);

/* v' of tokens first .. first + count - 1 into `values`. */
void REAL_FN(linear_values)(const LinearAttention *a, int64_t sample, int64_t group,
                            int64_t first, int64_t count, REAL *values);

/* Backward kernel, in linear_attention_backward.c. */
void REAL_FN(linear_backward)(const Call *call);

/* Of `total` tokens, those from `first` on, at most a chunk. */
static inline int64_t linear_count(const LinearAttention *a, int64_t total,
                                   int64_t first) {
    const int64_t left = total - first;
    return left < 0 ? 0 : left < a->chunk ? left : a->chunk;
}

/* Whether queries of the chunk from `first` on see tokens through S'. */
static inline bool linear_has_state(const LinearAttention *a, int64_t first) {
    return first > a->window;
}

/* First token, and number of tokens, that a chunk meets; its near keys begin at
 * linear_near_first and end with the chunk. */
static inline int64_t linear_source_first(const LinearAttention *a, int64_t first) {
    return first > a->window ? first - a->window : 0;
}
static inline int64_t linear_source_count(const LinearAttention *a, int64_t first) {
    const int64_t end = first - a->window + a->chunk;
    const int64_t count = (end < a->keys ? end : a->keys) - linear_source_first(a, first);
    return count > 0 ? count : 0;
}
static inline int64_t linear_near_first(const LinearAttention *a, int64_t first) {
    return first >= a->window ? first - a->window + 1 : 0;
}

/* Row `row` of head `head` of a [N, tokens, heads * width] value. */
static inline int64_t linear_at(int64_t tokens, int64_t sample, int64_t row,
                                int64_t total, int64_t head, int64_t width) {
    return (sample * tokens + row) * total + head * width;
}

/* Index into a->below of a row. */
static inline int64_t linear_row_at(const LinearAttention *a, int64_t sample,
                                    int64_t head, int64_t row) {
    return (sample * a->heads + head) * a->queries + row;
}

#endif
