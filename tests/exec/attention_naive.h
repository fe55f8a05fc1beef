/* attention's formula, written out naively in double precision: the reference that
 * test_attention.c compares the kernels with. */
#ifndef COMPRESS_TESTS_EXEC_ATTENTION_NAIVE_H
#define COMPRESS_TESTS_EXEC_ATTENTION_NAIVE_H

#include "exec/ops.h"
#include "ir/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, MASK, BIAS, REL_KEY, MIX_BEFORE, MIX_AFTER, OPERANDS, BUCKETS = 49 };
#define BIT(operand) (1u << (operand))
#define ALWAYS       (BIT(Q) | BIT(K) | BIT(V))

/* One problem: sizes, which operands are there, and their values in double. */
typedef struct Problem {
    int64_t samples, heads, queries, keys, head, value_head;
    AttentionAttrs attrs;
    unsigned present; /* BIT of each operand */
    Type type[OPERANDS];
    int64_t count[OPERANDS], out_count;
    double *in[OPERANDS]; /* the mask too: 0 or 1 */
} Problem;

static Type type_of(int rank, int64_t a, int64_t b, int64_t c) {
    return (Type){DTYPE_F32, rank, {a, b, c}};
}

static bool has(const Problem *p, int operand) {
    return p->present & BIT(operand);
}

/* Heads of k and v, and which of them query head h reads. */
static int64_t kv_heads(const Problem *p) {
    return p->attrs.kv_heads > 0 ? p->attrs.kv_heads : p->heads;
}
static int64_t kv_head(const Problem *p, int64_t h) {
    return h / (p->heads / kv_heads(p));
}

/* Operands' shapes and random values from the sizes that are set. */
static void problem_fill(Problem *p, uint64_t key) {
    const int64_t h = p->heads, t = p->queries, s = p->keys;
    p->attrs.heads = h;
    p->type[Q] = type_of(3, p->samples, t, h * p->head);
    p->type[K] = type_of(3, p->samples, s, kv_heads(p) * p->head);
    p->type[V] = type_of(3, p->samples, s, kv_heads(p) * p->value_head);
    p->type[MASK] = type_of(2, p->samples, s, 0);
    p->type[MASK].dtype = DTYPE_I32;
    p->type[BIAS] = type_of(3, h, t, s);
    p->type[REL_KEY] = type_of(2, p->head, BUCKETS, 0);
    p->type[MIX_BEFORE] = p->type[MIX_AFTER] = type_of(2, h, h, 0);
    p->out_count = p->samples * t * h * p->value_head;
    for (int i = 0; i < OPERANDS; i++) {
        p->count[i] = type_count(&p->type[i]);
        p->in[i] = calloc((size_t)p->count[i], sizeof(double));
        const uint64_t stream = random_key(key, (uint64_t)i);
        for (int64_t j = 0; j < p->count[i]; j++)
            p->in[i][j] = i == MASK ? random_uniform(stream, (uint64_t)j) < 0.7
                                    : random_normal(stream, (uint64_t)j);
    }
}

static void problem_free(Problem *p) {
    for (int i = 0; i < OPERANDS; i++) free(p->in[i]);
}

/* rho + 3 and the bucket, straight from the formula. */
static int step(double distance) {
    double rho = fabs(distance);
    if (rho > 1.9) rho = fmin(3, round(1.9 + 1.9 * log(rho / 1.9) / log(15.2 / 1.9)));
    return (int)copysign(rho, distance) + 3;
}

static int bucket(const AttentionAttrs *a, int64_t i, int64_t j) {
    const int64_t w = a->grid_w, x = i - a->skip, y = j - a->skip;
    return step((double)(x / w - y / w)) * 7 + step((double)(x % w - y % w));
}

/* A of head h at (i, j). */
static double score(const Problem *p, int64_t n, int64_t h, int64_t i, int64_t j) {
    const int64_t d = p->head;
    const double *q = p->in[Q] + ((n * p->queries + i) * p->heads + h) * d;
    const double *k = p->in[K] + ((n * p->keys + j) * kv_heads(p) + kv_head(p, h)) * d;
    const bool relative = has(p, REL_KEY) && i >= p->attrs.skip && j >= p->attrs.skip;
    const int b = relative ? bucket(&p->attrs, i, j) : 0;
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += q[c] * (k[c] + (relative ? p->in[REL_KEY][c * BUCKETS + b] : 0));
    sum *= p->attrs.scale > 0 ? p->attrs.scale : 1 / sqrt((double)d);
    return sum + (has(p, BIAS) ? p->in[BIAS][(h * p->queries + i) * p->keys + j] : 0);
}

/* x[h][j] = sum over b of matrix[h][b] x[b][j]. */
static void mix(const Problem *p, const double *matrix, double *x) {
    double *old = malloc((size_t)(p->heads * p->keys) * sizeof *old);
    memcpy(old, x, (size_t)(p->heads * p->keys) * sizeof *old);
    for (int64_t h = 0; h < p->heads; h++)
        for (int64_t j = 0; j < p->keys; j++) {
            x[h * p->keys + j] = 0;
            for (int64_t b = 0; b < p->heads; b++)
                x[h * p->keys + j] += matrix[h * p->heads + b] * old[b * p->keys + j];
        }
    free(old);
}

static void softmax(const Problem *p, int64_t n, int64_t i, double *x) {
    double sum = 0;
    for (int64_t j = 0; j < p->keys; j++) {
        const bool masked = (has(p, MASK) && p->in[MASK][n * p->keys + j] == 0) ||
                            (p->attrs.causal && j > i);
        x[j] = masked ? 0 : exp(x[j]);
        sum += x[j];
    }
    for (int64_t j = 0; j < p->keys && sum > 0; j++) x[j] /= sum;
}

static void naive_row(const Problem *p, int64_t n, int64_t i, double *x, double *out) {
    for (int64_t h = 0; h < p->heads; h++)
        for (int64_t j = 0; j < p->keys; j++) x[h * p->keys + j] = score(p, n, h, i, j);
    if (has(p, MIX_BEFORE)) mix(p, p->in[MIX_BEFORE], x);
    for (int64_t h = 0; h < p->heads; h++) softmax(p, n, i, x + h * p->keys);
    if (has(p, MIX_AFTER)) mix(p, p->in[MIX_AFTER], x);
    const int64_t e = p->value_head, width = p->heads * e;
    for (int64_t c = 0; c < width; c++) {
        const double *weight = x + c / e * p->keys;
        const double *v = p->in[V] + kv_head(p, c / e) * e + c % e;
        double sum = 0;
        for (int64_t j = 0; j < p->keys; j++)
            sum += weight[j] * v[(n * p->keys + j) * kv_heads(p) * e];
        out[(n * p->queries + i) * width + c] = sum;
    }
}

static void naive(const Problem *p, double *out) {
    double *x = malloc((size_t)(p->heads * p->keys) * sizeof *x);
    for (int64_t n = 0; n < p->samples; n++)
        for (int64_t i = 0; i < p->queries; i++) naive_row(p, n, i, x, out);
    free(x);
}

#endif
