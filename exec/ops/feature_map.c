/* feature_map(x[N, T, H d], weight[G, r, d]?, bias[G, r]?) -> y[N, T, H f]: per head u =
 * W_g (s x) + b_g with s = scale and g = h / (H / G), then
 *
 *     relu:     y = max(u, 0)
 *     elu1:     y = u + 1 for u > 0, else exp(u)
 *     positive: y = exp(u - |s x|^2 / 2) / sqrt(f)
 *     hedgehog: y = [softmax(u), softmax(-u)], f = 2 r
 *     exp:      y = exp(u - max(u))
 *
 * Without a weight u = s x and r = d; f = r but for hedgehog. The slope of each is a
 * function of y: du = dy [y > 0], dy min(y, 1), dy y; hedgehog, with a and b the halves
 * of y, a (da - da . a) - b (db - db . b); exp dy y, less dy . y where y is 1. Then dx =
 * s W_g^T du, less s^2 x sum(du) for positive, dW_g = s du^T x and db_g = the sum of du,
 * both over the heads that share them.
 *
 * Rows (tokens of all samples) go in blocks that stay in cache. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/heads.h"
#include "exec/ops/kernel_math.h"

enum { X, WEIGHT, BIAS, BLOCK_ROWS = 128 };

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "queries or keys [N, T, H d]"},
    {"weight", OPERAND_OPTIONAL, "[G, r, d], each used by H / G heads"},
    {"bias", OPERAND_OPTIONAL, "[G, r]; needs a weight"},
    {NULL},
};

static const Field FIELDS[] = {
    F_INT(FeatureMapAttrs, heads, 1, 65536, "heads H of x"),
    F_REAL(FeatureMapAttrs, scale, -1e6, 1e6, "factor of x, before everything"),
    F_CHOICE(FeatureMapAttrs, fn, FEATURE_FN_NAMES, "the function"),
    F_END,
};

static const FeatureMapAttrs DEFAULTS = {.heads = 1, .scale = 1};

/* Weight and bias; `inner` receives r, `width` is d. */
static Status check_weight(const Node *node, int64_t width, int64_t *inner, Diag *diag) {
    const int64_t heads = ((const FeatureMapAttrs *)node->attrs)->heads;
    if (!node_has(node, WEIGHT))
        return node_has(node, BIAS) ? infer_fail(node, BIAS, diag, "a weight beside it")
                                    : STATUS_OK;
    TRY(infer_rank(node, WEIGHT, 3, 3, diag));
    const int64_t *dim = node->in[WEIGHT]->type.dim;
    TRY(infer_known(node, WEIGHT, 0, diag));
    TRY(infer_known(node, WEIGHT, 1, diag));
    TRY(infer_dim(node, WEIGHT, 2, width, "the width of a head of x", diag));
    if (heads % dim[0] != 0)
        return infer_fail(node, WEIGHT, diag, "a first dimension that divides heads=%lld",
                          (long long)heads);
    *inner = dim[1];
    return node_has(node, BIAS) ? infer_shape(node, BIAS, 2, dim, diag) : STATUS_OK;
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    const FeatureMapAttrs *attrs = node->attrs;
    const int64_t heads = attrs->heads;
    TRY(heads_check(node, heads, 0, diag));
    if (!isfinite(attrs->scale))
        return infer_fail_attr(node, "scale", diag, "a number, found %g", attrs->scale);
    if (attrs->fn < 0 || attrs->fn > FEATURE_EXP)
        return infer_fail_attr(node, "fn", diag, "one of %s", FEATURE_FN_NAMES);
    TRY(heads_check_width(node, X, heads, "heads", diag));
    *out = node->in[X]->type;
    const int64_t width = out->dim[2] / heads;
    int64_t inner = width, feature;
    TRY(check_weight(node, width, &inner, diag));
    if (dim_multiply(inner, feature_halves(attrs->fn), &feature) &&
        dim_multiply(feature, heads, &out->dim[2]))
        return STATUS_OK;
    return infer_fail(node, WEIGHT, diag, "a product of heads and features that fits");
}

/* One call's sizes and operands (NULL when absent). */
typedef struct FeatureMap {
    int64_t rows, heads, share;    /* share: heads of one weight */
    int64_t width, inner, feature; /* d, r and f */
    int64_t x_width, y_width;      /* H d and H f */
    REAL scale;
    int fn;
    const REAL *x, *weight, *bias;
} FeatureMap;

static FeatureMap open_map(const Call *call) {
    const FeatureMapAttrs *attrs = call->attrs;
    const bool weighted = node_has(call->node, WEIGHT);
    const View *x = &call->in[X];
    FeatureMap m = {
        .rows = x->dim[0] * x->dim[1],
        .heads = attrs->heads,
        .share = weighted ? attrs->heads / call->in[WEIGHT].dim[0] : 1,
        .width = x->dim[2] / attrs->heads,
        .x_width = x->dim[2],
        .scale = (REAL)attrs->scale,
        .fn = attrs->fn,
        .x = x->data,
        .weight = call_data(call, WEIGHT),
        .bias = call_data(call, BIAS),
    };
    m.inner = weighted ? call->in[WEIGHT].dim[1] : m.width;
    m.feature = m.inner * feature_halves(attrs->fn);
    m.y_width = m.heads * m.feature;
    return m;
}

static double flops(const Call *call) {
    const FeatureMap m = open_map(call);
    return node_has(call->node, WEIGHT)
               ? 2.0 * (double)m.rows * (double)m.x_width * (double)m.inner
               : 0;
}

/* du of one head and block. */
static size_t scratch_bytes(const Call *call) {
    const FeatureMap m = open_map(call);
    const int64_t rows = m.rows < BLOCK_ROWS ? m.rows : BLOCK_ROWS;
    return (size_t)(rows * m.inner) * sizeof(REAL);
}

/* u of `count` rows from row `first`, where the features of a head begin. */
static void project(const FeatureMap *m, int64_t first, int64_t count, REAL *u) {
    const REAL *x = m->x + first * m->x_width;
    if (!m->weight) {
        for (int64_t i = 0; i < count * m->heads; i++)
            for (int64_t c = 0; c < m->width; c++)
                u[i * m->feature + c] = m->scale * x[i * m->width + c];
        return;
    }
    for (int64_t h = 0; h < m->heads; h++) {
        const int64_t g = h / m->share;
        for (int64_t r = 0; m->bias && r < count; r++)
            put_row(u + r * m->y_width + h * m->feature, m->bias + g * m->inner, m->inner,
                    false);
        gemm(false, true, count, m->inner, m->width, m->scale, x + h * m->width,
             m->x_width, m->weight + g * m->inner * m->width, m->width, m->bias != NULL,
             u + h * m->feature, m->y_width);
    }
}

/* y from u in place, for positive: rows of x lie at `x`. */
static void apply_positive(const FeatureMap *m, int64_t count, const REAL *x, REAL *y) {
    const REAL half = m->scale * m->scale / 2;
    const REAL factor = (REAL)(1 / sqrt((double)m->feature));
    for (int64_t i = 0; i < count * m->heads; i++) {
        const REAL *head = x + i * m->width;
        REAL *restrict row = y + i * m->feature;
        const REAL shift = half * row_dot(head, head, m->width);
        for (int64_t c = 0; c < m->feature; c++)
            row[c] = factor * exp_real(row[c] - shift);
    }
}

/* y from u in place, for the two whose heads are normalised. */
static void apply_heads(const FeatureMap *m, int64_t count, REAL *y) {
    for (int64_t i = 0; i < count * m->heads; i++) {
        REAL *row = y + i * m->feature, *negative = row + m->inner;
        if (m->fn == FEATURE_EXP) {
            exp_row(row, m->inner, row_max(row, m->inner));
            continue;
        }
        for (int64_t c = 0; c < m->inner; c++) negative[c] = -row[c];
        softmax_row(row, m->inner);
        softmax_row(negative, m->inner);
    }
}

static void apply(const FeatureMap *m, int64_t first, int64_t count, REAL *restrict y) {
    const int64_t n = count * m->y_width;
    switch ((FeatureFn)m->fn) {
    case FEATURE_RELU:
        for (int64_t i = 0; i < n; i++) y[i] = y[i] < 0 ? 0 : y[i];
        break;
    case FEATURE_ELU1:
        for (int64_t i = 0; i < n; i++) {
            const REAL low = exp_real(y[i] < 0 ? y[i] : 0);
            y[i] = y[i] > 0 ? y[i] + 1 : low;
        }
        break;
    case FEATURE_POSITIVE: apply_positive(m, count, m->x + first * m->x_width, y); break;
    case FEATURE_HEDGEHOG:
    case FEATURE_EXP: apply_heads(m, count, y); break;
    }
}

static void forward(const Call *call) {
    const FeatureMap m = open_map(call);
    for (int64_t first = 0; first < m.rows; first += BLOCK_ROWS) {
        const int64_t left = m.rows - first;
        const int64_t count = left < BLOCK_ROWS ? left : BLOCK_ROWS;
        REAL *y = (REAL *)call->out.data + first * m.y_width;
        project(&m, first, count, y);
        apply(&m, first, count, y);
    }
}

/* Gradients (NULL = not wanted) and the block of one head they come from. */
typedef struct HeadBlock {
    const REAL *y, *d_y;
    REAL *d_x, *d_weight, *d_bias;
    bool add_x;
    REAL *du; /* [count, r] */
    int64_t first, count, head;
} HeadBlock;

/* du = a (da - da . a) with `sign` 1 or -1, added to what is there if `add`. */
static void softmax_slopes(const FeatureMap *m, const REAL *restrict a,
                           const REAL *restrict d_a, REAL sign, bool add,
                           REAL *restrict du) {
    const REAL mean = row_dot(a, d_a, m->inner);
    for (int64_t c = 0; c < m->inner; c++)
        du[c] = (add ? du[c] : 0) + sign * a[c] * (d_a[c] - mean);
}

/* The largest u, whose feature is exactly 1, takes its share from all. */
static void exp_slopes(const FeatureMap *m, const REAL *restrict y,
                       const REAL *restrict d_y, REAL *restrict du) {
    int64_t top = 0;
    while (top < m->inner - 1 && y[top] < 1) top++;
    for (int64_t c = 0; c < m->inner; c++) du[c] = d_y[c] * y[c];
    du[top] -= row_dot(y, d_y, m->inner);
}

/* block->du from y and dy. */
static void slopes(const FeatureMap *m, const HeadBlock *block) {
    const int64_t n = m->inner;
    for (int64_t r = 0; r < block->count; r++) {
        const int64_t at = (block->first + r) * m->y_width + block->head * m->feature;
        const REAL *restrict y = block->y + at, *restrict d_y = block->d_y + at;
        REAL *restrict du = block->du + r * n;
        switch ((FeatureFn)m->fn) {
        case FEATURE_RELU:
            for (int64_t c = 0; c < n; c++) du[c] = y[c] > 0 ? d_y[c] : 0;
            break;
        case FEATURE_ELU1:
            for (int64_t c = 0; c < n; c++) du[c] = d_y[c] * (y[c] < 1 ? y[c] : 1);
            break;
        case FEATURE_POSITIVE:
            for (int64_t c = 0; c < n; c++) du[c] = d_y[c] * y[c];
            break;
        case FEATURE_HEDGEHOG:
            softmax_slopes(m, y, d_y, 1, false, du);
            softmax_slopes(m, y + n, d_y + n, -1, true, du);
            break;
        case FEATURE_EXP: exp_slopes(m, y, d_y, du); break;
        }
    }
}

static void input_gradient(const FeatureMap *m, const HeadBlock *block) {
    const int64_t at = block->first * m->x_width + block->head * m->width;
    REAL *d_x = block->d_x + at;
    if (m->weight)
        gemm(false, false, block->count, m->width, m->inner, m->scale, block->du,
             m->inner, m->weight + block->head / m->share * m->inner * m->width, m->width,
             block->add_x, d_x, m->x_width);
    for (int64_t r = 0; r < block->count; r++) {
        const REAL *du = block->du + r * m->inner, *x = m->x + at + r * m->x_width;
        REAL *restrict row = d_x + r * m->x_width;
        for (int64_t c = 0; !m->weight && c < m->width; c++)
            row[c] = (block->add_x ? row[c] : 0) + m->scale * du[c];
        if (m->fn != FEATURE_POSITIVE) continue;
        const REAL pull = m->scale * m->scale * row_sum(du, m->inner);
        for (int64_t c = 0; c < m->width; c++) row[c] -= pull * x[c];
    }
}

static void block_backward(const FeatureMap *m, const HeadBlock *block) {
    const int64_t g = block->head / m->share;
    slopes(m, block);
    if (block->d_x) input_gradient(m, block);
    if (block->d_weight)
        gemm(true, false, m->inner, m->width, block->count, m->scale, block->du, m->inner,
             m->x + block->first * m->x_width + block->head * m->width, m->x_width, 1,
             block->d_weight + g * m->inner * m->width, m->width);
    for (int64_t r = 0; block->d_bias && r < block->count; r++)
        put_row(block->d_bias + g * m->inner, block->du + r * m->inner, m->inner, true);
}

static void backward(const Call *call) {
    const FeatureMap m = open_map(call);
    HeadBlock block = {
        .y = call->out.data,
        .d_y = call->d_out.data,
        .d_x = gradient_of(call, X),
        .add_x = gradient_adds(call, X),
        .d_weight = gradient_to_add(call, WEIGHT),
        .d_bias = gradient_to_add(call, BIAS),
        .du = call->scratch,
    };
    for (; block.first < m.rows; block.first += BLOCK_ROWS) {
        const int64_t left = m.rows - block.first;
        block.count = left < BLOCK_ROWS ? left : BLOCK_ROWS;
        for (block.head = 0; block.head < m.heads; block.head++)
            block_backward(&m, &block);
    }
}

OP_RECORD(feature_map) = {
    OP_ID(feature_map),
    .summary = "fn(W (scale x) + b) per head, features for linear attention",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(FeatureMapAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_ROWWISE,
    .reads = READS_IN(X) | READS_IN(WEIGHT) | READS_OUT,
    .infer = infer,
    .flops = flops,
};

KERNEL(feature_map) = {
    .scratch_bytes = scratch_bytes,
    .step = STEP(feature_map),
    .forward = forward,
    .backward = backward,
};
