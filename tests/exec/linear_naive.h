/* Linear attention written out naively in double precision, as a recurrence over tokens
 * and as masked scores: what test_linear_attention.c compares the kernels with. */
#ifndef COMPRESS_TESTS_EXEC_LINEAR_NAIVE_H
#define COMPRESS_TESTS_EXEC_LINEAR_NAIVE_H

#include "tests/exec/grad_harness.h"

enum { LINEAR_Q, LINEAR_K, LINEAR_V, LINEAR_MASK };

/* Sizes of a linear_attention problem: f features and e values a head. */
typedef struct Sizes {
    int64_t samples, heads, kv_heads, queries, keys, f, e;
    bool causal;
    double eps;
} Sizes;

static inline Sizes sizes_of(const Problem *p) {
    const LinearAttentionAttrs *a = p->node->attrs;
    const int64_t groups = a->kv_heads > 0 ? a->kv_heads : a->heads;
    return (Sizes){p->type[LINEAR_Q].dim[0],
                   a->heads,
                   groups,
                   p->type[LINEAR_Q].dim[1],
                   p->type[LINEAR_K].dim[1],
                   p->type[LINEAR_Q].dim[2] / a->heads,
                   p->type[LINEAR_V].dim[2] / groups,
                   a->causal,
                   a->eps};
}

/* Row of sample n, token t, head h of q, k or v. */
static inline const double *q_row(const Problem *p, int64_t n, int64_t t, int64_t h) {
    const Sizes s = sizes_of(p);
    return p->value[LINEAR_Q] + ((n * s.queries + t) * s.heads + h) * s.f;
}
static inline const double *source_row(const Problem *p, int i, int64_t n, int64_t j,
                                       int64_t h) {
    const Sizes s = sizes_of(p);
    const int64_t group = h / (s.heads / s.kv_heads), width = i == LINEAR_K ? s.f : s.e;
    return p->value[i] + ((n * s.keys + j) * s.kv_heads + group) * width;
}

static inline bool counts(const Problem *p, int64_t n, int64_t j) {
    return !p->integer[LINEAR_MASK] || p->integer[LINEAR_MASK][n * sizes_of(p).keys + j];
}

/* S[f, e] and z[f] of one head. */
typedef struct State {
    double S[64 * 64], z[64];
} State;

static inline void state_absorb(State *state, const Problem *p, int64_t n, int64_t h,
                                int64_t j) {
    const Sizes s = sizes_of(p);
    if (j >= s.keys || !counts(p, n, j)) return;
    const double *k = source_row(p, LINEAR_K, n, j, h);
    const double *v = source_row(p, LINEAR_V, n, j, h);
    for (int64_t a = 0; a < s.f; a++) {
        state->z[a] += k[a];
        for (int64_t c = 0; c < s.e; c++) state->S[a * s.e + c] += k[a] * v[c];
    }
}

/* out[e] of a query; returns the denominator before eps. */
static inline double state_read(const State *state, const Problem *p, int64_t n,
                                int64_t h, int64_t t, double *out) {
    const Sizes s = sizes_of(p);
    const double *q = q_row(p, n, t, h);
    double below = 0;
    for (int64_t a = 0; a < s.f; a++) below += q[a] * state->z[a];
    for (int64_t c = 0; c < s.e; c++) {
        out[c] = 0;
        for (int64_t a = 0; a < s.f; a++) out[c] += q[a] * state->S[a * s.e + c];
        out[c] /= fmax(below, s.eps);
    }
    return below;
}

/* Where the result of a query begins. */
static inline int64_t out_at(const Sizes *s, int64_t n, int64_t t, int64_t h) {
    return ((n * s->queries + t) * s->heads + h) * s->e;
}

/* The recurrence from token `first` on with the state at its start, for one head. */
static inline void naive_recurrence(const Problem *p, int64_t n, int64_t h, int64_t first,
                                    int64_t end, State *state, double *out) {
    const Sizes s = sizes_of(p);
    for (int64_t j = 0; !s.causal && first == 0 && j < s.keys; j++)
        state_absorb(state, p, n, h, j);
    for (int64_t t = first; t < end; t++) {
        if (s.causal) state_absorb(state, p, n, h, t);
        state_read(state, p, n, h, t, out + out_at(&s, n, t, h));
    }
}

static inline void naive_recurrent(const Problem *p, double *out) {
    const Sizes s = sizes_of(p);
    for (int64_t n = 0; n < s.samples; n++)
        for (int64_t h = 0; h < s.heads; h++) {
            State state = {{0}, {0}};
            naive_recurrence(p, n, h, 0, s.queries, &state, out);
        }
}

/* Scores q k^T with zeros at the keys left out, rows over max(their sum, eps), times v.
 */
static inline void naive_parallel(const Problem *p, double *out) {
    const Sizes s = sizes_of(p);
    for (int64_t row = 0; row < s.samples * s.heads * s.queries; row++) {
        const int64_t n = row / s.heads / s.queries, h = row / s.queries % s.heads;
        const int64_t t = row % s.queries;
        double *to = out + out_at(&s, n, t, h), below = 0;
        memset(to, 0, (size_t)s.e * sizeof *to);
        for (int64_t j = 0; j < s.keys && (!s.causal || j <= t); j++) {
            double score = 0;
            for (int64_t a = 0; counts(p, n, j) && a < s.f; a++)
                score += q_row(p, n, t, h)[a] * source_row(p, LINEAR_K, n, j, h)[a];
            for (int64_t c = 0; c < s.e; c++)
                to[c] += score * source_row(p, LINEAR_V, n, j, h)[c];
            below += score;
        }
        for (int64_t c = 0; c < s.e; c++) to[c] /= fmax(below, s.eps);
    }
}

#endif
