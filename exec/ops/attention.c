/* attention: multi-head attention with everything that changes its scores.
 *
 * Per head: A = scale q k^T + bias + rel_bias[offset or bucket] + scale q . rel_key[:,
 * bucket], with a cap A = cap tanh(A / cap); A'_a = sum_b mix_before[a, b] A_b; P =
 * softmax over the keys of A' that mask, reach and causality allow (a row without any
 * such key is zero), in shifted windows less 100 between regions; P'_a = sum_b
 * mix_after[a, b] P_b + mix_after_bias[a] for those keys; out = P' v. mix_before_bias[a]
 * belongs to A'_a, where the softmax does not see it.
 *
 * Windows follow each other along the tokens, so to the kernels they are samples. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/attention_blocks.h"
#include "exec/ops/heads.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/windows.h"

static const Operand OPERANDS[] = {
    {"q", OPERAND_REQUIRED, "queries [N, T, H d]"},
    {"k", OPERAND_REQUIRED, "keys [N, S, G d]"},
    {"v", OPERAND_REQUIRED, "values [N, S, G e]"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, S]: 0 = key takes no part"},
    {"bias", OPERAND_OPTIONAL, "added to the scores [H, T, S]"},
    {"rel_key", OPERAND_OPTIONAL, "contextual relative positions of keys [d, 49]"},
    {"mix_before", OPERAND_OPTIONAL, "mixes heads before the softmax [H, H]"},
    {"mix_after", OPERAND_OPTIONAL, "mixes heads after the softmax [H, H]"},
    {"rel_bias", OPERAND_OPTIONAL,
     "added to the scores, by offset [(2h-1)(2w-1), H] or by bucket [buckets, H]"},
    {"mix_before_bias", OPERAND_OPTIONAL, "of mix_before [H]; no softmax sees it"},
    {"mix_after_bias", OPERAND_OPTIONAL, "of mix_after [H]"},
    {NULL},
};

enum { REACH_MAX = 1 << 30 };

static const Field FIELDS[] = {
    F_INT(AttentionAttrs, heads, 1, 65536, "heads H of the queries"),
    F_INT(AttentionAttrs, kv_heads, 0, 65536,
          "heads G of keys and values; 0 = as many, else a divisor"),
    F_REAL(AttentionAttrs, scale, 0, 1e6, "factor of the scores; 0 = 1 / sqrt(d)"),
    F_BOOL(AttentionAttrs, causal, "a query sees no later keys"),
    F_INT(AttentionAttrs, grid_h, 0, 65536, "relative positions: rows of the grid"),
    F_INT(AttentionAttrs, grid_w, 0, 65536, "relative positions: columns of the grid"),
    F_INT(AttentionAttrs, skip, 0, 65536,
          "relative positions: tokens in front of the grid"),
    F_INT(AttentionAttrs, window, 0, 65536,
          "rows and columns of a window of the grid; 0 = no windows"),
    F_INT(AttentionAttrs, shift, 0, 65536, "by which windows are moved"),
    F_INT(AttentionAttrs, buckets, 0, 65536,
          "rel_bias is by bucket of the distance: how many; 0 = by offset in a grid"),
    F_INT(AttentionAttrs, distance, 0, 65536, "from which on the last bucket holds all"),
    F_BOOL(AttentionAttrs, bidirectional, "later keys have buckets of their own"),
    F_INT(AttentionAttrs, reach, 0, REACH_MAX,
          "a query sees keys that are fewer tokens away; 0 = all"),
    F_REAL(AttentionAttrs, cap, 0, 1e6, "scores become cap tanh(score / cap); 0 = none"),
    F_END,
};

static const AttentionAttrs DEFAULTS = {.heads = 1};

/* The relative positions need as many queries and keys as the grid has tokens. */
static Status check_grid(const Node *node, int64_t queries, int64_t keys, Diag *diag) {
    const AttentionAttrs *attrs = node->attrs;
    int64_t tokens = 0;
    const bool sane = attrs->grid_h >= 1 && attrs->grid_w >= 1 && attrs->skip >= 0 &&
                      dim_multiply(attrs->grid_h, attrs->grid_w, &tokens) &&
                      !__builtin_add_overflow(tokens, attrs->skip, &tokens);
    if (sane && queries == tokens && keys == tokens) return STATUS_OK;
    char q[DIM_TEXT_BYTES], k[DIM_TEXT_BYTES];
    return infer_fail_attr(node, "grid_h, grid_w, skip", diag,
                           "skip + grid_h * grid_w equal to the %s queries and %s keys, "
                           "found %lld + %lld * %lld",
                           dim_text(q, queries), dim_text(k, keys),
                           (long long)attrs->skip, (long long)attrs->grid_h,
                           (long long)attrs->grid_w);
}

static Status check_shape(const Node *node, int i, int rank, const int64_t *dim,
                          Diag *diag) {
    return node_has(node, i) ? infer_shape(node, i, rank, dim, diag) : STATUS_OK;
}

/* Mixing matrices are over heads that each have keys and values of their own. */
static Status check_mixing(const Node *node, int i, int bias, Diag *diag) {
    const AttentionAttrs *attrs = node->attrs;
    if (node_has(node, bias) && !node_has(node, i))
        return infer_fail(node, bias, diag, "%s beside it", node->op->operands[i].name);
    TRY(check_shape(node, bias, 1, &attrs->heads, diag));
    if (!node_has(node, i)) return STATUS_OK;
    const int64_t heads = attrs->heads, groups = heads_of_keys(heads, attrs->kv_heads);
    if (groups != heads)
        return infer_fail(node, i, diag,
                          "no mixing of heads that share keys and values (kv_heads=%lld, "
                          "heads=%lld)",
                          (long long)groups, (long long)heads);
    return infer_shape(node, i, 2, (const int64_t[]){heads, heads}, diag);
}

/* The tokens must be those of whole windows of the grid. */
static Status check_windows(const Node *node, int64_t queries, int64_t keys, Diag *diag) {
    const AttentionAttrs *a = node->attrs;
    int64_t tokens;
    if (a->causal || a->skip != 0 || a->reach != 0)
        return infer_fail_attr(node, "window", diag,
                               "causal=false, reach=0 and skip=0 beside it");
    if (a->window < 0 || a->shift < 0 || a->shift >= (a->window ? a->window : 1))
        return infer_fail_attr(node, "shift", diag,
                               "from 0 to below window=%lld, found %lld",
                               (long long)a->window, (long long)a->shift);
    if (windows_tokens(a->grid_h, a->grid_w, a->window, &tokens) && queries == tokens &&
        keys == tokens)
        return STATUS_OK;
    char q[DIM_TEXT_BYTES], k[DIM_TEXT_BYTES];
    return infer_fail_attr(node, "grid_h, grid_w, window", diag,
                           "a grid of %lld x %lld in windows of %lld to have as many "
                           "tokens as queries and keys, found %s and %s",
                           (long long)a->grid_h, (long long)a->grid_w,
                           (long long)a->window, dim_text(q, queries), dim_text(k, keys));
}

/* Buckets belong to a table of biases over whole sequences. */
static Status check_buckets(const Node *node, Diag *diag) {
    const AttentionAttrs *a = node->attrs;
    const Buckets b = {a->buckets, a->distance, a->bidirectional};
    if (a->buckets == 0 && a->distance == 0 && !a->bidirectional) return STATUS_OK;
    if (!buckets_sane(&b))
        return infer_fail_attr(node, "buckets, distance", diag,
                               "at least %d buckets and a distance above %lld, found "
                               "%lld and %lld",
                               a->bidirectional ? 4 : 2, (long long)buckets_exact(&b),
                               (long long)a->buckets, (long long)a->distance);
    if (a->window) return infer_fail_attr(node, "buckets", diag, "no windows beside it");
    return check_shape(node, ATTENTION_REL_BIAS, 2,
                       (const int64_t[]){a->buckets, a->heads}, diag);
}

/* Operands that are over one window, or over all queries and keys. */
static Status check_positions(const Node *node, int64_t queries, int64_t keys,
                              Diag *diag) {
    const AttentionAttrs *a = node->attrs;
    const int64_t d = node->in[ATTENTION_Q]->type.dim[2] / a->heads;
    const bool by_offset = node_has(node, ATTENTION_REL_BIAS) && !a->buckets;
    const bool relative = node_has(node, ATTENTION_REL_KEY) || by_offset;
    const int64_t bias[] = {a->heads, a->window ? a->window * a->window : queries,
                            a->window ? a->window * a->window : keys};
    TRY(check_shape(node, ATTENTION_BIAS, 3, bias, diag));
    TRY(check_shape(node, ATTENTION_REL_KEY, 2, (const int64_t[]){d, RELATIVE_BUCKETS},
                    diag));
    if (relative && !a->window) TRY(check_grid(node, queries, keys, diag));
    TRY(check_buckets(node, diag));
    if (!by_offset) return STATUS_OK;
    const int64_t rows = a->window ? a->window : a->grid_h;
    const int64_t columns = a->window ? a->window : a->grid_w;
    const int64_t table[] = {(2 * rows - 1) * (2 * columns - 1), a->heads};
    return infer_shape(node, ATTENTION_REL_BIAS, 2, table, diag);
}

static Status check_extras(const Node *node, Diag *diag) {
    const AttentionAttrs *attrs = node->attrs;
    const int64_t *q = node->in[ATTENTION_Q]->type.dim,
                  *k = node->in[ATTENTION_K]->type.dim;
    const int64_t mask[] = {q[0], k[1]};
    TRY(check_shape(node, ATTENTION_MASK, 2, mask, diag));
    TRY(check_mixing(node, ATTENTION_MIX_BEFORE, ATTENTION_MIX_BEFORE_BIAS, diag));
    TRY(check_mixing(node, ATTENTION_MIX_AFTER, ATTENTION_MIX_AFTER_BIAS, diag));
    if (attrs->window || attrs->shift) TRY(check_windows(node, q[1], k[1], diag));
    return check_positions(node, q[1], k[1], diag);
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    const AttentionAttrs *attrs = node->attrs;
    const int64_t heads = attrs->heads, groups = attrs->kv_heads;
    TRY(heads_check(node, heads, groups, diag));
    if (!(attrs->scale >= 0 && attrs->scale < INFINITY))
        return infer_fail_attr(node, "scale", diag, "a number from 0 on, found %g",
                               attrs->scale);
    if (attrs->reach < 0 || attrs->reach > REACH_MAX)
        return infer_fail_attr(node, "reach", diag, "from 0 to %d, found %lld", REACH_MAX,
                               (long long)attrs->reach);
    if (!(attrs->cap >= 0 && attrs->cap < INFINITY))
        return infer_fail_attr(node, "cap", diag, "a number from 0 on, found %g",
                               attrs->cap);
    TRY(heads_check_width(node, ATTENTION_Q, heads, "heads", diag));
    TRY(heads_check_keys(node, ATTENTION_Q, ATTENTION_K, heads, groups, diag));
    const int64_t *q = node->in[ATTENTION_Q]->type.dim,
                  *k = node->in[ATTENTION_K]->type.dim;
    int64_t dim[] = {q[0], q[1], 0};
    TRY(heads_check_values(node, ATTENTION_V, k, heads, groups, &dim[2], diag));
    TRY(check_extras(node, diag));
    *out = real_type(3, dim);
    return STATUS_OK;
}

static double flops(const Call *call) {
    Attention a;
    REAL_FN(attention_open)(&a, call);
    const double maps = (double)a.samples * (double)a.heads * (double)a.queries;
    const double mix = 2.0 * (double)a.heads * (double)a.keys;
    double each = 2.0 * (double)a.keys * (double)(a.head + a.value_head);
    if (node_has(call->node, ATTENTION_MIX_BEFORE)) each += mix;
    if (node_has(call->node, ATTENTION_MIX_AFTER)) each += mix;
    if (node_has(call->node, ATTENTION_REL_KEY))
        each += 2.0 * RELATIVE_BUCKETS * (double)a.head;
    return maps * each;
}

static size_t aux_bytes(const Call *call) {
    Attention a;
    REAL_FN(attention_open)(&a, call);
    return (size_t)(a.samples * a.heads * a.queries) * sizeof(REAL);
}

static size_t scratch_bytes(const Call *call) {
    Attention a;
    REAL_FN(attention_open)(&a, call);
    return a.scratch_bytes;
}

/* Softmax of n scores under limits, in place; gives its log-sum-exp, inf where all is
 * masked. n is a multiple of LANE_COUNT. */
static REAL softmax_limited(int64_t n, REAL *restrict s, const REAL *restrict limit) {
    n &= -LANE_COUNT;
    const REAL top = lanes_add_max(n, s, limit, -INFINITY);
    const REAL shift = top == -INFINITY ? 0 : top;
    for (int64_t j = 0; j < n; j++) s[j] = exp_real(s[j] - shift);
    const REAL sum = lanes_sum(n, s);
    if (sum == 0) return INFINITY;
    const REAL inverse = 1 / sum;
    for (int64_t j = 0; j < n; j++) s[j] *= inverse;
    return top + (REAL)log((double)sum);
}

/* One block: scores, mixing, softmax, mixing, values; `user` is the result. */
static void forward_block(const Attention *a, AttentionSpan span, void *user) {
    REAL *out = user;
    REAL_FN(attention_scores)(a, span);
    if (a->mix_before)
        REAL_FN(attention_mix)(a, span, a->mix_before, false, a->scores, a->mixed);
    const int64_t columns = span.keys.columns;
    for (int64_t r = 0; r < span.rows; r++) {
        const AttentionRow seen = attention_row(a, span, r);
        for (int64_t g = 0; g < a->group; g++) {
            REAL *row = a->mixed + attention_block_at(a, g) + r * columns;
            attention_clear_outside(span, seen, row);
            const REAL log_sum =
                softmax_limited(seen.columns, row + seen.from, seen.limit);
            if (a->log_sum) a->log_sum[attention_row_at(a, span, g) + r] = log_sum;
        }
    }
    const REAL *p = a->mix_after ? a->after : a->mixed;
    if (a->mix_after) REAL_FN(attention_mix_after)(a, span);
    for (int64_t g = 0; g < a->group; g++) {
        const int64_t e = a->value_head;
        gemm(false, false, span.rows, e, span.keys.count, 1, p + attention_block_at(a, g),
             columns, a->v + attention_key_at(a, span, g, e), a->value_width, 0,
             out + attention_at(a, span, g, e), a->out_width);
    }
}

static void forward(const Call *call) {
    Attention a;
    REAL_FN(attention_open)(&a, call);
    REAL_FN(attention_walk)(&a, false, forward_block, call->out.data);
}

static int64_t forward_tiles(const Call *call) {
    return REAL_FN(attention_tiles)(call, false);
}

static int64_t backward_tiles(const Call *call) {
    return REAL_FN(attention_tiles)(call, true);
}

OP_RECORD(attention) = {
    OP_ID(attention),
    .summary =
        "softmax(scale q k^T + bias + relative position) v per head, with optional "
        "mixing of heads before and after the softmax, over all tokens or in windows",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(AttentionAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_ATTENTION,
    .reads = READS_ALL_IN,
    .infer = infer,
    .flops = flops,
};

KERNEL(attention) = {
    .aux_bytes = aux_bytes,
    .scratch_bytes = scratch_bytes,
    .step = STEP(attention),
    .forward = forward,
    .backward = REAL_FN(attention_backward),
    .forward_tiles = forward_tiles,
    .backward_tiles = backward_tiles,
};
