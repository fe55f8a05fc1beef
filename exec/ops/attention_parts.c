/* Shared parts of the attention kernels: see attention_parts.h. */
#include "exec/ops/attention_parts.h"

#include "exec/ops/heads.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/windows.h"

#include <string.h>

/* Scores in one block: as many as the second-level cache holds several times over. */
enum { BLOCK_SCORES = 1 << 15, BLOCK_ROWS_MIN = 64, BLOCK_ROWS_MAX = 96 };

/* Regions of a window, and what scores between them lose. */
enum { REGIONS = 4, BETWEEN_REGIONS = 100 };

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
    const bool before = node_has(call->node, ATTENTION_MIX_BEFORE);
    const bool after = node_has(call->node, ATTENTION_MIX_AFTER);
    a->keys_t = carve(a, call, a->group * a->head * a->padded * size);
    a->values_t = carve(a, call, a->group * a->value_head * a->padded * size);
    a->key_limit = carve(a, call, a->padded * size);
    a->row_limit = carve(a, call, a->padded * size);
    a->scores = carve(a, call, block);
    a->after = carve(a, call, block);
    a->mixed = before ? carve(a, call, block) : a->scores;
    a->unmixed = after ? carve(a, call, block) : a->after;
    if (a->shift) a->region_limit = carve(a, call, REGIONS * a->padded * size);
    if (node_has(call->node, ATTENTION_REL_BIAS)) {
        a->spread = carve(a, call, a->heads * a->queries * a->keys * size);
        a->d_spread = carve(a, call, a->heads * a->queries * a->keys * size);
    }
    if (!node_has(call->node, ATTENTION_REL_KEY)) return;
    const int64_t width = a->grid.width;
    a->by_bucket = carve(a, call, a->block * RELATIVE_BUCKETS * size);
    a->grid.row_sums = carve(a, call, RELATIVE_STEPS * width * size);
    a->grid.column_step = carve(a, call, 2 * width * (int64_t)sizeof(int32_t));
}

/* Windows in the place of samples; relative positions are within one. */
static void open_windows(Attention *a, const AttentionAttrs *attrs) {
    const int64_t w = attrs->window;
    a->window = w;
    a->shift = attrs->shift;
    a->down = windows_round_up(attrs->grid_h, w) / w;
    a->across = windows_round_up(attrs->grid_w, w) / w;
    a->samples *= a->down * a->across;
    a->queries = a->keys = w * w;
    a->grid.height = a->grid.width = w;
}

/* Row of the table of rel_bias for query `i` and the first key of the grid's row `y`; the
 * next keys' rows are before it. */
static int64_t table_row(const RelativeGrid *grid, int64_t i, int64_t y) {
    const int64_t cell = i - grid->skip, width = grid->width;
    return (cell / width - y + grid->height - 1) * (2 * width - 1) + cell % width +
           width - 1;
}

/* a->spread, which then takes the place of the bias. */
static void spread_bias(Attention *a) {
    const RelativeGrid *grid = &a->grid;
    const int64_t map = a->queries * a->keys, H = a->heads;
    if (a->bias)
        memcpy(a->spread, a->bias, (size_t)(H * map) * sizeof(REAL));
    else
        memset(a->spread, 0, (size_t)(H * map) * sizeof(REAL));
    for (int64_t i = grid->skip; i < a->queries; i++)
        for (int64_t y = 0; y < grid->height; y++) {
            const REAL *from = a->rel_bias + table_row(grid, i, y) * H;
            REAL *to = a->spread + i * a->keys + grid->skip + y * grid->width;
            for (int64_t h = 0; h < H; h++)
                for (int64_t x = 0; x < grid->width; x++)
                    to[h * map + x] += from[h - x * H];
        }
    a->bias = a->spread;
}

void REAL_FN(attention_collect_bias)(const Attention *a, const REAL *d_spread,
                                     REAL *d_rel_bias) {
    const RelativeGrid *grid = &a->grid;
    const int64_t map = a->queries * a->keys, H = a->heads;
    for (int64_t i = grid->skip; i < a->queries; i++)
        for (int64_t y = 0; y < grid->height; y++) {
            const REAL *from = d_spread + i * a->keys + grid->skip + y * grid->width;
            REAL *to = d_rel_bias + table_row(grid, i, y) * H;
            for (int64_t h = 0; h < H; h++)
                for (int64_t x = 0; x < grid->width; x++)
                    to[h - x * H] += from[h * map + x];
        }
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
        .mask = call_data(call, ATTENTION_MASK),
        .bias = call_data(call, ATTENTION_BIAS),
        .rel_key = call_data(call, ATTENTION_REL_KEY),
        .rel_bias = call_data(call, ATTENTION_REL_BIAS),
        .mix_before = call_data(call, ATTENTION_MIX_BEFORE),
        .mix_after = call_data(call, ATTENTION_MIX_AFTER),
        .mix_after_bias = call_data(call, ATTENTION_MIX_AFTER_BIAS),
        .log_sum = call->aux,
        .grid = {attrs->grid_h, attrs->grid_w, attrs->skip, NULL, NULL},
    };
    const bool mixing = node_has(call->node, ATTENTION_MIX_BEFORE) ||
                        node_has(call->node, ATTENTION_MIX_AFTER);
    if (attrs->window) open_windows(a, attrs);
    a->scale = (REAL)(attrs->scale > 0 ? attrs->scale : 1 / sqrt((double)a->head));
    a->padded = LANES_ROUND_UP(a->keys);
    a->group = mixing ? heads : 1;
    a->block = block_rows(a);
    open_scratch(a, call);
    if (a->rel_key && a->grid.column_step) REAL_FN(relative_prepare)(&a->grid);
    if (a->rel_bias && a->spread) spread_bias(a);
}

/* Which of the up to four parts of the turned grid a token of a window belongs to: in the
 * last row of windows the lower `shift` rows come from the top of the grid, in the last
 * column the right `shift` columns from its left end. */
static int region_of(const Attention *a, int64_t token) {
    const int64_t first = a->window - a->shift;
    return 2 * (a->last_row && token / a->window >= first) +
           (a->last_column && token % a->window >= first);
}

/* a->region_limit of one window. */
static void limit_regions(Attention *a, int64_t sample) {
    const int64_t window = sample % (a->down * a->across);
    a->last_row = a->shift > 0 && window / a->across == a->down - 1;
    a->last_column = a->shift > 0 && window % a->across == a->across - 1;
    if (!a->last_row && !a->last_column) return;
    for (int64_t j = 0; j < a->padded; j++) {
        const int region = j < a->keys ? region_of(a, j) : 0;
        for (int r = 0; r < REGIONS; r++)
            a->region_limit[r * a->padded + j] =
                a->key_limit[j] - (r == region ? 0 : BETWEEN_REGIONS);
    }
}

void REAL_FN(attention_limit_keys)(Attention *a, int64_t sample) {
    REAL *limit = a->key_limit;
    for (int64_t j = 0; j < a->padded; j++) limit[j] = j < a->keys ? 0 : -INFINITY;
    const int32_t *mask = a->mask ? a->mask + sample * a->keys : NULL;
    for (int64_t j = 0; mask && j < a->keys; j++) limit[j] = mask[j] ? 0 : -INFINITY;
    if (a->window) limit_regions(a, sample);
}

const REAL *REAL_FN(attention_limits)(const Attention *a, int64_t query) {
    if (a->last_row || a->last_column)
        return a->region_limit + region_of(a, query) * a->padded;
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
static void add_bias(const Attention *a, AttentionSpan span, int64_t g) {
    const int64_t keys = a->keys;
    const int64_t first = (span.head + g) * a->queries + span.row;
    for (int64_t r = 0; r < span.rows; r++) {
        const REAL *restrict bias = a->bias + (first + r) * keys;
        REAL *restrict s = a->scores + attention_block_at(a, g) + r * a->padded;
        for (int64_t j = 0; j < keys; j++) s[j] += bias[j];
    }
}

/* Adds scale * q . rel_key[:, bucket] to the scores of head `g`. */
static void add_relative(const Attention *a, AttentionSpan span, int64_t g,
                         const REAL *q) {
    gemm(false, false, span.rows, RELATIVE_BUCKETS, a->head, a->scale, q, a->width,
         a->rel_key, RELATIVE_BUCKETS, 0, a->by_bucket, RELATIVE_BUCKETS);
    for (int64_t r = 0; r < span.rows; r++) REAL_FN(relative_spread)
    (&a->grid, span.row + r, a->by_bucket + r * RELATIVE_BUCKETS,
     a->scores + attention_block_at(a, g) + r * a->padded);
}

void REAL_FN(attention_scores)(const Attention *a, AttentionSpan span) {
    for (int64_t g = 0; g < a->group; g++) {
        const REAL *q = a->q + attention_at(a, span, g, a->head);
        gemm(false, false, span.rows, a->padded, a->head, a->scale, q, a->width,
             a->keys_t + g * a->head * a->padded, a->padded, 0,
             a->scores + attention_block_at(a, g), a->padded);
        if (a->bias) add_bias(a, span, g);
        if (a->rel_key) add_relative(a, span, g, q);
    }
}

void REAL_FN(attention_mix)(const Attention *a, AttentionSpan span, const REAL *matrix,
                            bool transpose, const REAL *in, REAL *out) {
    const int64_t stride = a->block * a->padded;
    gemm(transpose, false, a->heads, span.rows * a->padded, a->heads, 1, matrix, a->heads,
         in, stride, 0, out, stride);
}

void REAL_FN(attention_mix_after)(const Attention *a, AttentionSpan span) {
    REAL_FN(attention_mix)(a, span, a->mix_after, false, a->mixed, a->after);
    for (int64_t r = 0; a->mix_after_bias && r < span.rows; r++) {
        const REAL *restrict limit = REAL_FN(attention_limits)(a, span.row + r);
        for (int64_t g = 0; g < a->group; g++) {
            const REAL bias = a->mix_after_bias[g];
            REAL *restrict p = a->after + attention_block_at(a, g) + r * a->padded;
            for (int64_t j = 0; j < a->keys; j++) p[j] += limit[j] > -INFINITY ? bias : 0;
        }
    }
}
