/* linear_attention, backward.
 *
 * Of a row with numerator n and denominator b: with m = max(b, eps), dn = dO / m and db =
 * -(dO . out) / m, or 0 where b was clamped; together dR = [dn, db], of width e + 1. Then
 * dq = dR S'^T, dS' = q^T dR, dk = v' dS'^T, dv = k dS' without its last column. Causal,
 * with P = tril(dR v'^T) and A = tril(q k^T) inside a chunk:
 *
 *     dq = dR S'^T + P k;  dk = v' dS'^T + P^T q;  dv = k dS' + A^T dR;
 *
 * S' is that before the chunk, computed once more for all chunks; dS' that of the chunks
 * behind it, gathered on the way from the last chunk to the first. A window adds what its
 * keys give (linear_near.c). */
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/linear_near.h"

/* Gradients wanted (NULL = not), and whether the first contribution adds. */
typedef struct LinearGradients {
    const REAL *d_out, *out;
    REAL *q, *k, *v;
    bool add_q, add_k, add_v;
    NearGradients near;
} LinearGradients;

/* The tokens that one step is about: first .. of a head of k and v. */
typedef struct LinearSpan {
    int64_t sample, group, first;
    LinearSource source;
    bool started; /* dk and dv of these tokens have a first contribution */
} LinearSpan;

/* With a window every token gets several contributions, or none. */
static void open_near(LinearGradients *d, const Call *call) {
    d->add_q = d->add_k = d->add_v = true;
    for (int i = 0; i < call->in_count; i++)
        if (i != LINEAR_MASK) gradient_to_add(call, i);
    d->near = (NearGradients){.q = gradient_of(call, LINEAR_NEAR_Q),
                              .k = gradient_of(call, LINEAR_NEAR_K),
                              .v = d->v,
                              .gate = gradient_of(call, LINEAR_GATE),
                              .slope = gradient_of(call, LINEAR_SLOPE)};
}

static void open_gradients(LinearGradients *d, const Call *call) {
    *d = (LinearGradients){
        .d_out = call->d_out.data,
        .out = call->out.data,
        .q = gradient_of(call, LINEAR_Q),
        .k = gradient_of(call, LINEAR_K),
        .v = gradient_of(call, LINEAR_V),
    };
    if (((const LinearAttentionAttrs *)call->attrs)->window) {
        open_near(d, call);
        return;
    }
    d->add_q = gradient_adds(call, LINEAR_Q);
    d->add_k = gradient_adds(call, LINEAR_K);
    d->add_v = gradient_adds(call, LINEAR_V);
}

/* Rows of k's and of v's gradient at a span; NULL = not wanted. */
static REAL *span_k(const LinearAttention *a, const LinearSpan *span, REAL *d_k) {
    return d_k ? d_k + linear_at(a->keys, span->sample, span->source.first, a->k_width,
                                 span->group, a->feature)
               : NULL;
}
static REAL *span_v(const LinearAttention *a, const LinearSpan *span, REAL *d_v) {
    return d_v ? d_v + linear_at(a->keys, span->sample, span->source.first, a->v_width,
                                 span->group, a->value_head)
               : NULL;
}

/* a->rows = dR of `count` rows of a head. */
static void row_gradients(const LinearAttention *a, const LinearSpan *span, int64_t head,
                          int64_t count, const LinearGradients *d) {
    const int64_t e = a->value_head;
    const int64_t at =
        linear_at(a->queries, span->sample, span->first, a->out_width, head, e);
    const REAL *below = a->below + linear_row_at(a, span->sample, head, span->first);
    for (int64_t r = 0; r < count; r++) {
        const REAL *restrict d_out = d->d_out + at + r * a->out_width;
        const bool clamped = below[r] < 0;
        const REAL inverse = 1 / (clamped ? -below[r] : below[r]);
        REAL *restrict row = a->rows + r * a->stride;
        for (int64_t c = 0; c < e; c++) row[c] = d_out[c] * inverse;
        row[e] = clamped ? 0 : -row_dot(row, d->out + at + r * a->out_width, e);
    }
}

/* dk and dv of a span from dS', that of the queries that see all of it. */
static void source_gradients(const LinearAttention *a, const LinearSpan *span,
                             const LinearGradients *d) {
    const LinearSource *source = &span->source;
    REAL *d_k = span_k(a, span, d->k), *d_v = span_v(a, span, d->v);
    if (d_k)
        gemm(false, true, source->count, a->feature, a->wide, 1, source->v, a->stride,
             a->d_state, a->stride, d->add_k, d_k, a->k_width);
    if (d_v)
        gemm(false, false, source->count, a->value_head, a->feature, 1, source->k,
             source->k_stride, a->d_state, a->stride, d->add_v, d_v, a->v_width);
}

/* dq and dS' of a chunk of queries of one head from dR and the state (NULL = none) that
 * they see. */
static void query_gradients(const LinearAttention *a, const LinearSpan *span,
                            int64_t head, int64_t count, const REAL *state, bool gather,
                            const LinearGradients *d) {
    const int64_t at =
        linear_at(a->queries, span->sample, span->first, a->q_width, head, a->feature);
    if (d->q && state)
        gemm(false, true, count, a->feature, a->wide, 1, a->rows, a->stride, state,
             a->stride, d->add_q, d->q + at, a->q_width);
    if ((d->k || d->v) && gather)
        gemm(true, false, a->feature, a->wide, count, 1, a->q + at, a->q_width, a->rows,
             a->stride, 1, a->d_state, a->stride);
}

/* What the queries and keys of one chunk give each other's gradients. */
static void chunk_gradients(const LinearAttention *a, const LinearSpan *span,
                            int64_t head, int64_t count, const LinearGradients *d) {
    const LinearSource *s = &span->source;
    const int64_t f = a->feature, at = linear_at(a->queries, span->sample, span->first,
                                                 a->q_width, head, f);
    const REAL *q = a->q + at;
    if (d->q || d->k) REAL_FN(linear_scores)
    (a, count, a->wide, a->rows, a->stride, s->v, a->stride, s, a->d_scores);
    if (d->q)
        gemm(false, false, count, f, s->count, 1, a->d_scores, a->chunk, s->k,
             s->k_stride, d->add_q || linear_has_state(a, span->first), d->q + at,
             a->q_width);
    if (d->k)
        gemm(true, false, s->count, f, count, 1, a->d_scores, a->chunk, q, a->q_width,
             span->started || d->add_k, span_k(a, span, d->k), a->k_width);
    if (!d->v) return;
    REAL_FN(linear_scores)
    (a, count, f, q, a->q_width, s->k, s->k_stride, s, a->scores);
    gemm(true, false, s->count, a->value_head, count, 1, a->scores, a->chunk, a->rows,
         a->stride, span->started || d->add_v, span_v(a, span, d->v), a->v_width);
}

static REAL *state_before(const LinearAttention *a, int64_t first) {
    return a->states + first / a->chunk * a->feature * a->stride;
}

static void clear_d_state(const LinearAttention *a) {
    memset(a->d_state, 0, (size_t)(a->feature * a->stride) * sizeof(REAL));
}

/* One chunk; the chunks behind it are done. */
static void backward_chunk(const LinearAttention *a, int64_t sample, int64_t group,
                           int64_t first, const LinearGradients *d) {
    LinearSpan span = {sample, group, first,
                       REAL_FN(linear_source)(a, sample, group, first), false};
    const int64_t count = linear_count(a, a->queries, first);
    const bool started = linear_has_state(a, first);
    const REAL *state = started ? state_before(a, first) : NULL;
    if (a->window) REAL_FN(linear_near_load)(a, sample, group, first);
    if (span.source.count > 0 && (count == 0 || first + count < a->queries)) {
        source_gradients(a, &span, d);
        span.started = true;
    }
    for (int64_t h = group * a->share; count > 0 && h < (group + 1) * a->share; h++) {
        row_gradients(a, &span, h, count, d);
        query_gradients(a, &span, h, count, state, started, d);
        if (span.source.count > 0) chunk_gradients(a, &span, h, count, d);
        if (a->window)
            REAL_FN(linear_near_backward)(a, sample, h, first, count, &d->near);
        span.started = true;
    }
}

static void backward_causal(const LinearAttention *a, int64_t sample, int64_t group,
                            const LinearGradients *d) {
    const int64_t longest = a->keys > a->queries ? a->keys : a->queries;
    const int64_t size = a->feature * a->stride;
    /* S' before every chunk but the first, which has none. */
    for (int64_t next = a->chunk; d->q && next < a->queries; next += a->chunk) {
        const int64_t first = next - a->chunk;
        const LinearSource source = REAL_FN(linear_source)(a, sample, group, first);
        const bool started = linear_has_state(a, first);
        REAL *state = state_before(a, next);
        if (started) memcpy(state, state - size, (size_t)size * sizeof(REAL));
        if (source.count > 0) REAL_FN(linear_add)(a, &source, started, state);
    }
    clear_d_state(a);
    for (int64_t first = (longest - 1) / a->chunk * a->chunk; first >= 0;
         first -= a->chunk)
        backward_chunk(a, sample, group, first, d);
}

static void backward_whole(const LinearAttention *a, int64_t sample, int64_t group,
                           const LinearGradients *d) {
    LinearSpan span = {sample, group, 0, {0}, false};
    for (; d->q && span.first < a->keys; span.first += a->chunk) {
        span.source = REAL_FN(linear_source)(a, sample, group, span.first);
        REAL_FN(linear_add)(a, &span.source, span.first > 0, a->states);
    }
    clear_d_state(a);
    for (span.first = 0; span.first < a->queries; span.first += a->chunk)
        for (int64_t h = group * a->share; h < (group + 1) * a->share; h++) {
            const int64_t count = linear_count(a, a->queries, span.first);
            row_gradients(a, &span, h, count, d);
            query_gradients(a, &span, h, count, a->states, true, d);
        }
    for (span.first = 0; span.first < a->keys; span.first += a->chunk) {
        span.source = REAL_FN(linear_source)(a, sample, group, span.first);
        source_gradients(a, &span, d);
    }
}

void REAL_FN(linear_backward)(const Call *call) {
    LinearAttention a;
    LinearGradients d;
    REAL_FN(linear_open)(&a, call);
    open_gradients(&d, call);
    if (!d.q && !d.k && !d.v && !d.near.q && !d.near.k && !d.near.gate && !d.near.slope)
        return;
    for (int64_t n = 0; n < a.samples; n++)
        for (int64_t g = 0; g < a.kv_heads; g++)
            (a.causal ? backward_causal : backward_whole)(&a, n, g, &d);
}
