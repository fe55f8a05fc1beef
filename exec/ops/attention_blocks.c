/* Attention by blocks of scores: see attention_blocks.h. */
#include "exec/ops/attention_blocks.h"

#include "exec/ops/heads.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/windows.h"

#include <string.h>

/* Scores in one block: as many as the second-level cache holds several times over. Where
 * queries see keys on one side or near by alone, lower blocks leave out more. */
enum {
    BLOCK_SCORES = 1 << 15,
    BLOCK_ROWS_MIN = 64,
    BLOCK_ROWS_MAX = 96,
    LIMITED_ROWS_MAX = 64
};

/* Next `bytes` of scratch, 64-byte aligned; NULL while planning. */
static void *carve(Attention *a, const Call *call, int64_t bytes) {
    const size_t at = a->scratch_bytes;
    a->scratch_bytes += ((size_t)bytes + 63) / 64 * 64;
    return call->scratch ? (char *)call->scratch + at : NULL;
}

static void open_scratch(Attention *a, const Call *call) {
    const int64_t size = sizeof(REAL), block = a->group * a->block * a->padded * size;
    const bool before = node_has(call->node, ATTENTION_MIX_BEFORE);
    const bool after = node_has(call->node, ATTENTION_MIX_AFTER);
    a->keys_t = carve(a, call, a->group * a->head * a->padded * size);
    a->values_t = carve(a, call, a->group * a->value_head * a->padded * size);
    a->limits.by_key = carve(a, call, a->padded * size);
    a->limits.by_query = carve(a, call, a->padded * size);
    a->scores = carve(a, call, block);
    a->slopes = a->cap > 0 ? carve(a, call, block) : NULL;
    a->after = carve(a, call, block);
    a->mixed = before ? carve(a, call, block) : a->scores;
    a->unmixed = after ? carve(a, call, block) : a->after;
    if (a->limits.shift)
        a->limits.by_region = carve(a, call, LIMIT_REGIONS * a->padded * size);
    const AttentionAttrs *attrs = call->attrs;
    const bool table = node_has(call->node, ATTENTION_REL_BIAS);
    if (table && attrs->buckets) {
        const int64_t count = attention_offsets(a);
        a->bucket = carve(a, call, count * (int64_t)sizeof(int32_t));
        a->along = carve(a, call, a->heads * count * size);
        a->d_along = carve(a, call, a->heads * count * size);
    } else if (table) {
        a->spread = carve(a, call, a->heads * a->queries * a->keys * size);
        a->d_spread = carve(a, call, a->heads * a->queries * a->keys * size);
    }
    if (!node_has(call->node, ATTENTION_REL_KEY)) return;
    const int64_t width = a->grid.width;
    a->by_bucket = carve(a, call, a->block * RELATIVE_BUCKETS * size);
    a->grid.row_sums = carve(a, call, RELATIVE_STEPS * width * size);
    a->grid.column_step = carve(a, call, 2 * width * (int64_t)sizeof(int32_t));
}

/* a->along from the table of biases by bucket. */
static void spread_buckets(Attention *a, const AttentionAttrs *attrs) {
    const Buckets b = {attrs->buckets, attrs->distance, attrs->bidirectional};
    const int64_t count = attention_offsets(a);
    buckets_fill(&b, a->queries - 1, a->keys - 1, a->bucket);
    for (int64_t h = 0; h < a->heads; h++)
        for (int64_t i = 0; i < count; i++)
            a->along[h * count + i] = a->rel_bias[a->bucket[i] * a->heads + h];
}

/* ---- parts ---- */

/* Least of a part: products of queries with keys and of probabilities with values. */
enum { PART_PRODUCTS = 1 << 20, PART_HEADS_MOST = 16 };

/* Parts of the samples, times parts of the heads. */
typedef struct AttentionParts {
    int64_t samples, heads;
} AttentionParts;

/* Heads that go together: those that share keys and values, or are mixed. */
static int64_t heads_together(const Attention *a) {
    return a->group > a->share ? a->group : a->share;
}

/* Where all samples add to one gradient of a bias, heads alone are apart. */
static AttentionParts cut_parts(const Attention *a, const Call *call, bool backward) {
    const int64_t sets = a->heads / heads_together(a);
    int64_t work = a->samples * a->heads * a->queries * a->keys;
    AttentionParts parts = {1, sets < PART_HEADS_MOST ? sets : PART_HEADS_MOST};
    work *= a->head + a->value_head;
    while (sets % parts.heads || (parts.heads > 1 && work / parts.heads < PART_PRODUCTS))
        parts.heads--;
    work /= parts.heads;
    for (int i = ATTENTION_BIAS; backward && i < call->in_count; i++)
        if (call->d_in[i].data) return parts;
    while (parts.samples < TILES_MOST && 2 * parts.samples <= a->samples &&
           work / (2 * parts.samples) >= PART_PRODUCTS)
        parts.samples *= 2;
    return parts;
}

/* Not where every head adds to one gradient, or two operands share one, or that of a bias
 * must be cleared first. */
static bool is_cut(const Call *call) {
    for (int i = 0; i < call->in_count; i++) {
        const View *d = &call->d_in[i];
        if (!d->data) continue;
        if (i > ATTENTION_V && i != ATTENTION_BIAS && i != ATTENTION_REL_BIAS)
            return false;
        if (i > ATTENTION_V && !d->accumulate) return false;
        for (int j = 0; j < i; j++)
            if (call->d_in[j].data == d->data) return false;
    }
    return true;
}

int64_t REAL_FN(attention_tiles)(const Call *call, bool backward) {
    Call sizes = *call;
    Attention a;
    sizes.scratch = NULL;
    if (backward && !is_cut(call)) return 1;
    REAL_FN(attention_open)(&a, &sizes);
    const AttentionParts parts = cut_parts(&a, call, backward);
    return parts.samples * parts.heads;
}

static void open_part(Attention *a, const Call *call) {
    const int64_t together = heads_together(a);
    a->part_samples = (Range){0, a->samples};
    a->part_heads = (Range){0, a->heads};
    if (call->tiles == 0) return;
    const AttentionParts parts = cut_parts(a, call, call->d_in != NULL);
    a->part_samples = range_part(a->samples, 1, call->tile / parts.heads, parts.samples);
    a->part_heads = range_part(a->heads, together, call->tile % parts.heads, parts.heads);
}

/* ---- a call ---- */

static Attention sizes_of(const Call *call) {
    const AttentionAttrs *attrs = call->attrs;
    const View *q = &call->in[ATTENTION_Q], *v = &call->in[ATTENTION_V];
    const int64_t heads = attrs->heads, groups = heads_of_keys(heads, attrs->kv_heads);
    const bool mixing = node_has(call->node, ATTENTION_MIX_BEFORE) ||
                        node_has(call->node, ATTENTION_MIX_AFTER);
    const double scale =
        attrs->scale > 0 ? attrs->scale : 1 / sqrt((double)(q->dim[2] / heads));
    return (Attention){
        .samples = q->dim[0],
        .heads = heads,
        .queries = q->dim[1],
        .keys = v->dim[1],
        .head = q->dim[2] / heads,
        .value_head = v->dim[2] / groups,
        .share = heads / groups,
        .group = mixing ? heads : 1,
        .width = q->dim[2],
        .out_width = v->dim[2] / groups * heads,
        .key_width = q->dim[2] / heads * groups,
        .value_width = v->dim[2],
        .scale = (REAL)scale,
        .cap = (REAL)attrs->cap,
        .grid = {attrs->grid_h, attrs->grid_w, attrs->skip, NULL, NULL},
    };
}

static void open_data(Attention *a, const Call *call) {
    a->q = call->in[ATTENTION_Q].data;
    a->k = call->in[ATTENTION_K].data;
    a->v = call->in[ATTENTION_V].data;
    a->bias = call_data(call, ATTENTION_BIAS);
    a->rel_key = call_data(call, ATTENTION_REL_KEY);
    a->rel_bias = call_data(call, ATTENTION_REL_BIAS);
    a->mix_before = call_data(call, ATTENTION_MIX_BEFORE);
    a->mix_after = call_data(call, ATTENTION_MIX_AFTER);
    a->mix_after_bias = call_data(call, ATTENTION_MIX_AFTER_BIAS);
    a->log_sum = call->aux;
}

/* Windows stand in the place of samples; positions are within one. */
static void open_windows(Attention *a, const AttentionAttrs *attrs) {
    const int64_t w = attrs->window;
    if (!w) return;
    a->limits.window = w;
    a->limits.shift = attrs->shift;
    a->limits.down = windows_round_up(attrs->grid_h, w) / w;
    a->limits.across = windows_round_up(attrs->grid_w, w) / w;
    a->samples *= a->limits.down * a->limits.across;
    a->queries = a->keys = w * w;
    a->grid.height = a->grid.width = w;
}

static void open_limits(Attention *a, const Call *call) {
    const AttentionAttrs *attrs = call->attrs;
    a->padded = LANES_ROUND_UP(a->keys);
    a->limits.keys = a->keys;
    a->limits.padded = a->padded;
    a->limits.causal = attrs->causal;
    a->limits.reach = attrs->reach;
    a->limits.mask = call_data(call, ATTENTION_MASK);
    a->limits.whole = node_has(call->node, ATTENTION_REL_KEY);
}

/* Query rows of a block, all blocks about equally high. */
static int64_t block_rows(const Attention *a, const AttentionAttrs *attrs) {
    const int64_t full = BLOCK_SCORES / (a->group * a->padded);
    const int64_t least = (BLOCK_ROWS_MIN + a->group - 1) / a->group;
    const int64_t limit =
        attrs->causal || attrs->reach ? LIMITED_ROWS_MAX : BLOCK_ROWS_MAX;
    const int64_t most = full < limit ? full : limit;
    const int64_t rows = most < least ? least : most;
    const int64_t blocks = (a->queries + rows - 1) / rows;
    return (a->queries + blocks - 1) / blocks;
}

/* Spreads biases by place over all pairs of a map, with the other biases. */
static void spread_biases(Attention *a) {
    const int64_t map = a->queries * a->keys, first = a->part_heads.first;
    const size_t bytes = (size_t)((a->part_heads.end - first) * map) * sizeof(REAL);
    if (a->bias)
        memcpy(a->spread + first * map, a->bias + first * map, bytes);
    else
        memset(a->spread + first * map, 0, bytes);
    REAL_FN(relative_bias_spread)
    (&a->grid, a->heads, first, a->part_heads.end, a->rel_bias, a->spread);
    a->bias = a->spread; /* which holds both */
}

void REAL_FN(attention_open)(Attention *a, const Call *call) {
    const AttentionAttrs *attrs = call->attrs;
    *a = sizes_of(call);
    open_data(a, call);
    open_windows(a, attrs);
    open_limits(a, call);
    a->block = block_rows(a, attrs);
    open_part(a, call);
    open_scratch(a, call);
    if (a->rel_key && a->grid.column_step) REAL_FN(relative_prepare)(&a->grid);
    if (a->rel_bias && a->along) spread_buckets(a, attrs);
    if (a->rel_bias && a->spread) spread_biases(a);
}

/* out[g, c, j] = x[sample, j, (head / share + g) * width + c]: the keys or values that
 * one group of query heads reads, with the keys along rows, padding zeroed; x has `total`
 * columns. */
static void transpose(const Attention *a, int64_t sample, int64_t head, const REAL *x,
                      int64_t width, int64_t total, REAL *out) {
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

/* The keys of a block; one that counts as masked where its queries see none. */
static KeyRange block_keys(const Attention *a, int64_t row, int64_t rows) {
    const KeyRange keys = REAL_FN(limits_range)(&a->limits, row, rows);
    return keys.count > 0 ? keys : (KeyRange){0, 1, LANE_COUNT};
}

void REAL_FN(attention_walk)(Attention *a, bool values, AttentionVisit visit,
                             void *user) {
    for (int64_t n = a->part_samples.first; n < a->part_samples.end; n++) {
        REAL_FN(limits_start)(&a->limits, n);
        for (int64_t h = a->part_heads.first; h < a->part_heads.end; h += a->group) {
            const bool read = h % a->share == 0; /* else those of the head before */
            if (read) transpose(a, n, h, a->k, a->head, a->key_width, a->keys_t);
            if (read && values)
                transpose(a, n, h, a->v, a->value_head, a->value_width, a->values_t);
            for (int64_t row = 0; row < a->queries; row += a->block) {
                const int64_t left = a->queries - row;
                const int64_t rows = left < a->block ? left : a->block;
                visit(a, (AttentionSpan){n, h, row, rows, block_keys(a, row, rows)},
                      user);
            }
        }
    }
}

/* Adds the bias [H, T, S] to the scores of head `g`. */
static void add_bias(const Attention *a, AttentionSpan span, int64_t g) {
    const int64_t first = (span.head + g) * a->queries + span.row;
    for (int64_t r = 0; r < span.rows; r++)
        put_row(a->scores + attention_block_at(a, g) + r * span.keys.columns,
                a->bias + (first + r) * a->keys + span.keys.first, span.keys.count, true);
}

/* Adds the biases by distance to the scores of head `g`. */
static void add_along(const Attention *a, AttentionSpan span, int64_t g) {
    for (int64_t r = 0; r < span.rows; r++)
        put_row(a->scores + attention_block_at(a, g) + r * span.keys.columns,
                a->along + attention_along_at(a, span, g, r), span.keys.count, true);
}

/* Adds scale * q . rel_key[:, bucket] to the scores of head `g`. */
static void add_relative(const Attention *a, AttentionSpan span, int64_t g,
                         const REAL *q) {
    gemm(false, false, span.rows, RELATIVE_BUCKETS, a->head, a->scale, q, a->width,
         a->rel_key, RELATIVE_BUCKETS, 0, a->by_bucket, RELATIVE_BUCKETS);
    for (int64_t r = 0; r < span.rows; r++) REAL_FN(relative_spread)
    (&a->grid, span.row + r, a->by_bucket + r * RELATIVE_BUCKETS,
     a->scores + attention_block_at(a, g) + r * span.keys.columns);
}

/* s = c tanh(s / c), and its derivative 1 - tanh^2. */
static void cap_scores(const Attention *a, AttentionSpan span, int64_t g) {
    const REAL cap = a->cap, inverse = 1 / cap;
    REAL *restrict s = a->scores + attention_block_at(a, g);
    REAL *restrict slope = a->slopes + attention_block_at(a, g);
    for (int64_t i = 0; i < span.rows * span.keys.columns; i++) {
        const REAL t = tanh_real(s[i] * inverse);
        s[i] = cap * t;
        slope[i] = 1 - t * t;
    }
}

void REAL_FN(attention_scores)(const Attention *a, AttentionSpan span) {
    for (int64_t g = 0; g < a->group; g++) {
        const REAL *q = a->q + attention_at(a, span, g, a->head);
        gemm(false, false, span.rows, span.keys.columns, a->head, a->scale, q, a->width,
             a->keys_t + g * a->head * a->padded + span.keys.first, a->padded, 0,
             a->scores + attention_block_at(a, g), span.keys.columns);
        if (a->bias) add_bias(a, span, g);
        if (a->along) add_along(a, span, g);
        if (a->rel_key) add_relative(a, span, g, q);
        if (a->cap > 0) cap_scores(a, span, g);
    }
}

void REAL_FN(attention_mix)(const Attention *a, AttentionSpan span, const REAL *matrix,
                            bool transpose, const REAL *in, REAL *out) {
    const int64_t stride = a->block * a->padded;
    gemm(transpose, false, a->heads, span.rows * span.keys.columns, a->heads, 1, matrix,
         a->heads, in, stride, 0, out, stride);
}

void REAL_FN(attention_mix_after)(const Attention *a, AttentionSpan span) {
    REAL_FN(attention_mix)(a, span, a->mix_after, false, a->mixed, a->after);
    for (int64_t r = 0; a->mix_after_bias && r < span.rows; r++) {
        const AttentionRow seen = attention_row(a, span, r);
        for (int64_t g = 0; g < a->group; g++) {
            const REAL bias = a->mix_after_bias[g];
            REAL *restrict p =
                a->after + attention_block_at(a, g) + r * span.keys.columns + seen.from;
            for (int64_t j = 0; j < seen.columns; j++)
                p[j] += seen.limit[j] > -INFINITY ? bias : 0;
        }
    }
}
