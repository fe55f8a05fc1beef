/* Shared parts of the attention kernels: see attention_parts.h. */
#include "exec/ops/attention_parts.h"

#include "exec/kernel_math.h"
#include "exec/ops/heads.h"

/* Scores in one block: as many as the second-level cache holds several times over. */
enum { BLOCK_SCORES = 1 << 15, BLOCK_ROWS_MIN = 64, BLOCK_ROWS_MAX = 96 };

static const void *operand_data(const Call *call, int i) {
    return attention_has(call->node, i) ? call->in[i].data : NULL;
}

/* Next `bytes` of scratch, 64-byte aligned; NULL while planning. */
static void *carve(Attention *a, const Call *call, int64_t bytes) {
    const size_t at = a->scratch_bytes;
    a->scratch_bytes += ((size_t)bytes + 63) / 64 * 64;
    return call->scratch ? (char *)call->scratch + at : NULL;
}

/* Query rows per block, all blocks about equally high. */
static int64_t block_rows(const Attention *a) {
    int64_t rows = BLOCK_SCORES / (a->group * a->padded);
    if (rows > BLOCK_ROWS_MAX) rows = BLOCK_ROWS_MAX;
    const int64_t least = (BLOCK_ROWS_MIN + a->group - 1) / a->group;
    if (rows < least) rows = least;
    const int64_t blocks = (a->queries + rows - 1) / rows;
    return (a->queries + blocks - 1) / blocks;
}

static void open_scratch(Attention *a, const Call *call) {
    const int64_t size = sizeof(REAL), block = a->group * a->block * a->padded * size;
    const bool before = attention_has(call->node, ATTENTION_MIX_BEFORE);
    const bool after = attention_has(call->node, ATTENTION_MIX_AFTER);
    a->keys_t = carve(a, call, a->group * a->head * a->padded * size);
    a->values_t = carve(a, call, a->group * a->value_head * a->padded * size);
    a->key_limit = carve(a, call, a->padded * size);
    a->row_limit = carve(a, call, a->padded * size);
    a->scores = carve(a, call, block);
    a->after = carve(a, call, block);
    a->mixed = before ? carve(a, call, block) : a->scores;
    a->unmixed = after ? carve(a, call, block) : a->after;
    if (!attention_has(call->node, ATTENTION_REL_KEY)) return;
    const int64_t width = a->grid.width;
    a->by_bucket = carve(a, call, a->block * RELATIVE_BUCKETS * size);
    a->grid.row_sums = carve(a, call, RELATIVE_STEPS * width * size);
    a->grid.column_step = carve(a, call, 2 * width * (int64_t)sizeof(int32_t));
}

void REAL_FN(attention_open)(Attention *a, const Call *call) {
    const AttentionAttrs *attrs = call->attrs;
    const View *q = &call->in[ATTENTION_Q], *v = &call->in[ATTENTION_V];
    const int64_t heads = attrs->heads, groups = heads_of_keys(heads, attrs->kv_heads);
    *a = (Attention){
        .samples = q->dim[0],
        .heads = heads,
        .queries = q->dim[1],
        .keys = v->dim[1],
        .head = q->dim[2] / heads,
        .value_head = v->dim[2] / groups,
        .share = heads / groups,
        .width = q->dim[2],
        .out_width = v->dim[2] / groups * heads,
        .key_width = q->dim[2] / heads * groups,
        .value_width = v->dim[2],
        .causal = attrs->causal,
        .q = q->data,
        .k = call->in[ATTENTION_K].data,
        .v = v->data,
        .mask = operand_data(call, ATTENTION_MASK),
        .bias = operand_data(call, ATTENTION_BIAS),
        .rel_key = operand_data(call, ATTENTION_REL_KEY),
        .mix_before = operand_data(call, ATTENTION_MIX_BEFORE),
        .mix_after = operand_data(call, ATTENTION_MIX_AFTER),
        .log_sum = call->aux,
        .grid = {attrs->grid_h, attrs->grid_w, attrs->skip, NULL, NULL},
    };
    const bool mixing = attention_has(call->node, ATTENTION_MIX_BEFORE) ||
                        attention_has(call->node, ATTENTION_MIX_AFTER);
    a->scale = (REAL)(attrs->scale > 0 ? attrs->scale : 1 / sqrt((double)a->head));
    a->padded = LANES_ROUND_UP(a->keys);
    a->group = mixing ? heads : 1;
    a->block = block_rows(a);
    open_scratch(a, call);
    if (a->rel_key && a->grid.column_step) REAL_FN(relative_prepare)(&a->grid);
}

void REAL_FN(attention_limit_keys)(const Attention *a, int64_t sample) {
    REAL *limit = a->key_limit;
    for (int64_t j = 0; j < a->padded; j++) limit[j] = j < a->keys ? 0 : -INFINITY;
    if (!a->mask) return;
    const int32_t *mask = a->mask + sample * a->keys;
    for (int64_t j = 0; j < a->keys; j++) limit[j] = mask[j] ? 0 : -INFINITY;
}

const REAL *REAL_FN(attention_limits)(const Attention *a, int64_t query) {
    if (!a->causal) return a->key_limit;
    const REAL *restrict key = a->key_limit;
    REAL *restrict row = a->row_limit;
    for (int64_t j = 0; j < a->padded; j++) row[j] = j <= query ? key[j] : -INFINITY;
    return row;
}

void REAL_FN(attention_transpose)(const Attention *a, int64_t sample, int64_t head,
                                  const REAL *x, int64_t width, int64_t total,
                                  REAL *out) {
    const int64_t keys = a->keys, padded = a->padded, rows = a->group * width;
    const int64_t whole = rows / LANE_COUNT * LANE_COUNT;
    const REAL *from = x + sample * keys * total + head / a->share * width;
    int64_t j = 0;
    for (; j + LANE_COUNT <= keys; j += LANE_COUNT) {
        for (int64_t c = 0; c < whole; c += LANE_COUNT)
            lanes_transpose(from + j * total + c, total, out + c * padded + j, padded);
        for (int64_t c = whole; c < rows; c++)
            for (int64_t l = j; l < j + LANE_COUNT; l++)
                out[c * padded + l] = from[l * total + c];
    }
    for (int64_t c = 0; c < rows; c++)
        for (int64_t l = j; l < padded; l++)
            out[c * padded + l] = l < keys ? from[l * total + c] : 0;
}

/* Adds the bias [H, T, S] to the scores of head `g`. */
static void add_bias(const Attention *a, Span span, int64_t g) {
    const int64_t keys = a->keys;
    const int64_t first = (span.head + g) * a->queries + span.row;
    for (int64_t r = 0; r < span.rows; r++) {
        const REAL *restrict bias = a->bias + (first + r) * keys;
        REAL *restrict s = a->scores + attention_block_at(a, g) + r * a->padded;
        for (int64_t j = 0; j < keys; j++) s[j] += bias[j];
    }
}

/* Adds scale * q . rel_key[:, bucket] to the scores of head `g`. */
static void add_relative(const Attention *a, Span span, int64_t g, const REAL *q) {
    gemm(false, false, span.rows, RELATIVE_BUCKETS, a->head, a->scale, q, a->width,
         a->rel_key, RELATIVE_BUCKETS, 0, a->by_bucket, RELATIVE_BUCKETS);
    for (int64_t r = 0; r < span.rows; r++) REAL_FN(relative_spread)
    (&a->grid, span.row + r, a->by_bucket + r * RELATIVE_BUCKETS,
     a->scores + attention_block_at(a, g) + r * a->padded);
}

void REAL_FN(attention_scores)(const Attention *a, Span span) {
    for (int64_t g = 0; g < a->group; g++) {
        const REAL *q = a->q + attention_at(a, span, g, a->head);
        gemm(false, false, span.rows, a->padded, a->head, a->scale, q, a->width,
             a->keys_t + g * a->head * a->padded, a->padded, 0,
             a->scores + attention_block_at(a, g), a->padded);
        if (a->bias) add_bias(a, span, g);
        if (a->rel_key) add_relative(a, span, g, q);
    }
}

void REAL_FN(attention_mix)(const Attention *a, Span span, const REAL *matrix,
                            bool transpose, const REAL *in, REAL *out) {
    const int64_t stride = a->block * a->padded;
    gemm(transpose, false, a->heads, span.rows * a->padded, a->heads, 1, matrix, a->heads,
         in, stride, 0, out, stride);
}
