/* linear_attention: attention without softmax as a state, cost linear in the tokens
 * (Katharopoulos et al., 2020; T2R, Kasai et al., 2021).
 *
 * Per head S = sum k_j v_j^T and z = sum k_j over the source tokens that mask and, if
 * causal, j <= t allow; out_t = q_t^T S / max(q_t . z, eps). How it is cut into chunks is
 * in linear_chunks.h.
 *
 * With a window the last keys have softmax beside it (LoLCATs, Zhang et al., 2024):
 * linear_near.h. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/heads.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/linear_near.h"

static const Operand OPERANDS[] = {
    {"q", OPERAND_REQUIRED, "features of the queries [N, T, H f]"},
    {"k", OPERAND_REQUIRED, "features of the keys [N, S, G f]"},
    {"v", OPERAND_REQUIRED, "values [N, S, G e]"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, S]: 0 = token takes no part"},
    {"near_q", OPERAND_OPTIONAL, "queries of the window [N, T, H d]"},
    {"near_k", OPERAND_OPTIONAL, "keys of the window [N, S, G d]"},
    {"gate", OPERAND_OPTIONAL, "near weights are multiplied by its sigmoid [H]"},
    {"slope", OPERAND_OPTIONAL,
     "near weights are multiplied by e^(gate + slope m) instead, m their largest score "
     "[H]; needs a gate"},
    {NULL},
};

enum { CHUNK_MAX = 4096, WINDOW_MAX = 1 << 20 };

static const Field FIELDS[] = {
    F_INT(LinearAttentionAttrs, heads, 1, 65536, "heads H of the queries"),
    F_INT(LinearAttentionAttrs, kv_heads, 0, 65536,
          "heads G of keys and values; 0 = as many, else a divisor"),
    F_BOOL(LinearAttentionAttrs, causal, "a query sees no later keys"),
    F_REAL(LinearAttentionAttrs, eps, 1e-12, 1e6, "least denominator"),
    F_INT(LinearAttentionAttrs, chunk, 0, CHUNK_MAX,
          "tokens of a chunk; 0 = chosen; any gives the same result"),
    F_INT(LinearAttentionAttrs, window, 0, WINDOW_MAX,
          "keys, the query's own and those before it, with softmax; 0 = none"),
    F_REAL(LinearAttentionAttrs, scale, 0, 1e6,
           "factor of the window's scores; 0 = 1 / sqrt(d)"),
    F_END,
};

static const LinearAttentionAttrs DEFAULTS = {.heads = 1, .eps = 0.01};

static Status check_attrs(const Node *node, Diag *diag) {
    const LinearAttentionAttrs *attrs = node->attrs;
    TRY(heads_check(node, attrs->heads, attrs->kv_heads, diag));
    if (!(attrs->eps > 0 && attrs->eps < INFINITY))
        return infer_fail_attr(node, "eps", diag, "a number above 0, found %g",
                               attrs->eps);
    if (attrs->chunk < 0 || attrs->chunk > CHUNK_MAX)
        return infer_fail_attr(node, "chunk", diag, "a number from 0 to %d, found %lld",
                               CHUNK_MAX, (long long)attrs->chunk);
    if (attrs->window < 0 || attrs->window > WINDOW_MAX)
        return infer_fail_attr(node, "window", diag, "a number from 0 to %d, found %lld",
                               WINDOW_MAX, (long long)attrs->window);
    if (!(attrs->scale >= 0 && attrs->scale < INFINITY))
        return infer_fail_attr(node, "scale", diag, "a number from 0 on, found %g",
                               attrs->scale);
    return STATUS_OK;
}

/* A window needs queries and keys of its own, of the same tokens. */
static Status check_near(const Node *node, Diag *diag) {
    const LinearAttentionAttrs *attrs = node->attrs;
    const int64_t *q = node->in[LINEAR_Q]->type.dim, *k = node->in[LINEAR_K]->type.dim;
    const int64_t heads = attrs->heads, groups = attrs->kv_heads;
    for (int i = LINEAR_NEAR_Q; i <= LINEAR_SLOPE; i++) {
        if (!attrs->window && node_has(node, i))
            return infer_fail(node, i, diag, "a window above 0 beside it");
        if (attrs->window && !node_has(node, i) && i < LINEAR_GATE)
            return infer_fail_attr(node, "window", diag, "operand '%s' beside it",
                                   node->op->operands[i].name);
    }
    if (!attrs->window) return STATUS_OK;
    if (!attrs->causal)
        return infer_fail_attr(node, "window", diag, "causal=true beside it");
    TRY(infer_dim(node, LINEAR_K, 1, q[1], "the tokens of q, beside a window", diag));
    TRY(heads_check_width(node, LINEAR_NEAR_Q, heads, "heads", diag));
    TRY(infer_dim(node, LINEAR_NEAR_Q, 0, q[0], "the samples of q", diag));
    TRY(infer_dim(node, LINEAR_NEAR_Q, 1, q[1], "the tokens of q", diag));
    TRY(heads_check_keys(node, LINEAR_NEAR_Q, LINEAR_NEAR_K, heads, groups, diag));
    TRY(infer_dim(node, LINEAR_NEAR_K, 1, k[1], "the tokens of k", diag));
    for (int i = LINEAR_GATE; i <= LINEAR_SLOPE; i++)
        if (node_has(node, i)) TRY(infer_shape(node, i, 1, &heads, diag));
    if (node_has(node, LINEAR_GATE) || !node_has(node, LINEAR_SLOPE)) return STATUS_OK;
    return infer_fail(node, LINEAR_SLOPE, diag, "a gate beside it");
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    const LinearAttentionAttrs *attrs = node->attrs;
    const int64_t heads = attrs->heads, groups = attrs->kv_heads;
    TRY(check_attrs(node, diag));
    TRY(heads_check_width(node, LINEAR_Q, heads, "heads", diag));
    TRY(heads_check_keys(node, LINEAR_Q, LINEAR_K, heads, groups, diag));
    const int64_t *q = node->in[LINEAR_Q]->type.dim, *k = node->in[LINEAR_K]->type.dim;
    int64_t dim[] = {q[0], q[1], 0};
    TRY(heads_check_values(node, LINEAR_V, k, heads, groups, &dim[2], diag));
    if (node_has(node, LINEAR_MASK)) TRY(infer_shape(node, LINEAR_MASK, 2, k, diag));
    TRY(check_near(node, diag));
    *out = real_type(3, dim);
    return STATUS_OK;
}

/* Multiply-adds of all heads for one sample. */
static double causal_products(const LinearAttention *a) {
    const double state = (double)a->feature * (double)a->wide;
    double sum = 0;
    for (int64_t first = 0; first < a->queries; first += a->chunk) {
        const double queries = (double)linear_count(a, a->queries, first);
        const double keys = (double)linear_source_count(a, first);
        sum += (double)a->heads * queries * keys * (double)(a->feature + a->wide);
        if (linear_has_state(a, first)) sum += (double)a->heads * queries * state;
        if (first + a->chunk < a->queries) sum += (double)a->kv_heads * keys * state;
        const double near = (double)(first - linear_near_first(a, first)) + queries;
        if (a->window)
            sum += (double)a->heads * queries * near * (double)(a->near + a->wide);
    }
    return sum;
}

static double flops(const Call *call) {
    LinearAttention a;
    REAL_FN(linear_open)(&a, call);
    const double state = (double)a.feature * (double)a.wide;
    const double whole =
        (double)(a.kv_heads * a.keys) * state + (double)(a.heads * a.queries) * state;
    return 2 * (double)a.samples * (a.causal ? causal_products(&a) : whole);
}

static size_t aux_bytes(const Call *call) {
    LinearAttention a;
    REAL_FN(linear_open)(&a, call);
    return (size_t)(a.samples * a.heads * a.queries) * sizeof(REAL);
}

static size_t scratch_bytes(const Call *call) {
    LinearAttention a;
    REAL_FN(linear_open)(&a, call);
    return a.scratch_bytes;
}

/* Divides the rows of a chunk by their last column, the denominator. */
static void divide_rows(const LinearAttention *a, int64_t count, REAL *below, REAL *out) {
    for (int64_t r = 0; r < count; r++) {
        const REAL *restrict row = a->rows + r * a->stride;
        REAL *restrict to = out + r * a->out_width;
        const REAL denominator = row[a->value_head];
        const REAL least = a->least ? a->least[r] : a->eps;
        const REAL inverse = 1 / (denominator < least ? least : denominator);
        for (int64_t c = 0; c < a->value_head; c++) to[c] = row[c] * inverse;
        if (below) below[r] = denominator < least ? -least : denominator;
    }
}

/* A chunk of queries of one head: against S' (NULL = nothing before) and, of the same
 * chunk, `source` (NULL = all is in S'), and its window. */
static void forward_chunk(const LinearAttention *a, int64_t sample, int64_t head,
                          int64_t first, const REAL *state, const LinearSource *source,
                          REAL *out) {
    const int64_t count = linear_count(a, a->queries, first);
    const REAL *q =
        a->q + linear_at(a->queries, sample, first, a->q_width, head, a->feature);
    const bool meets = source && source->count > 0;
    if (state)
        gemm(false, false, count, a->wide, a->feature, 1, q, a->q_width, state, a->stride,
             0, a->rows, a->stride);
    if (meets) {
        REAL_FN(linear_scores)
        (a, count, a->feature, q, a->q_width, source->k, source->k_stride, source,
         a->scores);
        gemm(false, false, count, a->wide, source->count, 1, a->scores, a->chunk,
             source->v, a->stride, state != NULL, a->rows, a->stride);
    }
    if (a->window)
        REAL_FN(linear_near_add)(a, sample, head, first, count, state || meets);
    divide_rows(
        a, count, a->below ? a->below + linear_row_at(a, sample, head, first) : NULL,
        out + linear_at(a->queries, sample, first, a->out_width, head, a->value_head));
}

static void forward_causal(const LinearAttention *a, int64_t sample, int64_t group,
                           REAL *out) {
    for (int64_t first = 0; first < a->queries; first += a->chunk) {
        const LinearSource source = REAL_FN(linear_source)(a, sample, group, first);
        const bool started = linear_has_state(a, first);
        if (a->window) REAL_FN(linear_near_load)(a, sample, group, first);
        for (int64_t h = 0; h < a->share; h++)
            forward_chunk(a, sample, group * a->share + h, first,
                          started ? a->states : NULL, &source, out);
        if (first + a->chunk < a->queries && source.count > 0)
            REAL_FN(linear_add)(a, &source, started, a->states);
    }
}

static void forward_whole(const LinearAttention *a, int64_t sample, int64_t group,
                          REAL *out) {
    for (int64_t first = 0; first < a->keys; first += a->chunk) {
        const LinearSource source = REAL_FN(linear_source)(a, sample, group, first);
        REAL_FN(linear_add)(a, &source, first > 0, a->states);
    }
    for (int64_t first = 0; first < a->queries; first += a->chunk)
        for (int64_t h = 0; h < a->share; h++)
            forward_chunk(a, sample, group * a->share + h, first, a->states, NULL, out);
}

static void forward(const Call *call) {
    LinearAttention a;
    REAL_FN(linear_open)(&a, call);
    for (int64_t n = 0; n < a.samples; n++)
        for (int64_t g = 0; g < a.kv_heads; g++)
            (a.causal ? forward_causal : forward_whole)(&a, n, g, call->out.data);
}

OP_RECORD(linear_attention) = {
    OP_ID(linear_attention),
    .summary = "q S / max(q . z, eps) per head, with S = sum k v^T and z = sum k, and "
               "optional softmax over the last keys",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(LinearAttentionAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_ATTENTION,
    .reads = READS_ALL_IN | READS_OUT,
    .infer = infer,
    .flops = flops,
};

KERNEL(linear_attention) = {
    .aux_bytes = aux_bytes,
    .scratch_bytes = scratch_bytes,
    .step = STEP(linear_attention),
    .forward = forward,
    .backward = REAL_FN(linear_backward),
};
