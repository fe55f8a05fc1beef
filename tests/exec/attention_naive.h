/* attention's formula, written out naively in double precision: the reference that
 * test_attention.c compares the kernels with. */
#ifndef COMPRESS_TESTS_EXEC_ATTENTION_NAIVE_H
#define COMPRESS_TESTS_EXEC_ATTENTION_NAIVE_H

#include "exec/ops.h"
#include "ir/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    Q,
    K,
    V,
    MASK,
    BIAS,
    REL_KEY,
    MIX_BEFORE,
    MIX_AFTER,
    REL_BIAS,
    MIX_BEFORE_BIAS,
    MIX_AFTER_BIAS,
    OPERANDS,
    BUCKETS = 49
};
#define BIT(operand) (1u << (operand))
#define ALWAYS       (BIT(Q) | BIT(K) | BIT(V))
#define OPTIONAL     8 /* operands from MASK on */

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

/* The grid that relative positions are in: one window, or all of it. */
static int64_t grid_height(const Problem *p) {
    return p->attrs.window ? p->attrs.window : p->attrs.grid_h;
}
static int64_t grid_width(const Problem *p) {
    return p->attrs.window ? p->attrs.window : p->attrs.grid_w;
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
    const int64_t w = p->attrs.window * p->attrs.window;
    p->type[BIAS] = type_of(3, h, w ? w : t, w ? w : s);
    p->type[REL_BIAS] =
        type_of(2, (2 * grid_height(p) - 1) * (2 * grid_width(p) - 1), h, 0);
    if (p->attrs.buckets) p->type[REL_BIAS].dim[0] = p->attrs.buckets;
    if (!has(p, REL_BIAS)) p->type[REL_BIAS].dim[0] = 1;
    p->type[REL_KEY] = type_of(2, p->head, BUCKETS, 0);
    p->type[MIX_BEFORE] = p->type[MIX_AFTER] = type_of(2, h, h, 0);
    p->type[MIX_BEFORE_BIAS] = p->type[MIX_AFTER_BIAS] = type_of(1, h, 0, 0);
    if (!has(p, MIX_BEFORE)) p->present &= ~BIT(MIX_BEFORE_BIAS);
    if (!has(p, MIX_AFTER)) p->present &= ~BIT(MIX_AFTER_BIAS);
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

/* Rows and columns from key j to query i of the grid; tokens are those of one window. */
typedef struct Offset {
    int64_t rows, columns;
} Offset;

static Offset offset(const Problem *p, int64_t i, int64_t j) {
    const int64_t w = grid_width(p), x = i - p->attrs.skip, y = j - p->attrs.skip;
    return (Offset){x / w - y / w, x % w - y % w};
}

static int bucket(Offset at) {
    return step((double)at.rows) * 7 + step((double)at.columns);
}

static double table_entry(const Problem *p, int64_t h, Offset at) {
    const int64_t down = grid_height(p) - 1, across = grid_width(p) - 1;
    const int64_t row = (at.rows + down) * (2 * across + 1) + at.columns + across;
    return p->in[REL_BIAS][row * p->heads + h];
}

/* Raffel et al., 2020, as their code has it, logarithms in float32. */
static int64_t distance_bucket(const AttentionAttrs *a, int64_t i, int64_t j) {
    const int64_t side = a->bidirectional ? a->buckets / 2 : a->buckets, exact = side / 2;
    const int64_t first = a->bidirectional && j > i ? side : 0;
    const int64_t n = a->bidirectional ? llabs(j - i) : i > j ? i - j : 0;
    if (n < exact) return first + n;
    const float part =
        logf((float)n / (float)exact) / (float)log((double)a->distance / (double)exact);
    const int64_t far = exact + (int64_t)(part * (float)(side - exact));
    return first + (far < side - 1 ? far : side - 1);
}

/* A of head h at (i, j), which are in one window. */
static double score(const Problem *p, int64_t n, int64_t h, int64_t i, int64_t j) {
    const int64_t d = p->head;
    const int64_t side = p->attrs.window ? p->attrs.window * p->attrs.window : p->keys;
    const int64_t tall = p->attrs.window ? side : p->queries;
    const double *q = p->in[Q] + ((n * p->queries + i) * p->heads + h) * d;
    const double *k = p->in[K] + ((n * p->keys + j) * kv_heads(p) + kv_head(p, h)) * d;
    i %= tall;
    j %= side;
    const bool relative = i >= p->attrs.skip && j >= p->attrs.skip;
    const bool key = has(p, REL_KEY) && relative;
    const int b = key ? bucket(offset(p, i, j)) : 0;
    double sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += q[c] * (k[c] + (key ? p->in[REL_KEY][c * BUCKETS + b] : 0));
    sum *= p->attrs.scale > 0 ? p->attrs.scale : 1 / sqrt((double)d);
    if (has(p, REL_BIAS) && p->attrs.buckets)
        sum += p->in[REL_BIAS][distance_bucket(&p->attrs, i, j) * p->heads + h];
    else if (has(p, REL_BIAS) && relative)
        sum += table_entry(p, h, offset(p, i, j));
    sum += has(p, BIAS) ? p->in[BIAS][(h * tall + i) * side + j] : 0;
    return p->attrs.cap > 0 ? p->attrs.cap * tanh(sum / p->attrs.cap) : sum;
}

/* ---- windows ---- */

/* Where token t of the windows stands on the turned and padded grid. */
static Offset place_of(const AttentionAttrs *a, int64_t t) {
    const int64_t w = a->window, across = (a->grid_w + w - 1) / w;
    const int64_t window = t / (w * w), inner = t % (w * w);
    return (Offset){window / across * w + inner / w, window % across * w + inner % w};
}

/* Of a row or column: 0 before the last window, 1 in it, 2 from the other end. */
static int slice_of(int64_t at, int64_t size, const AttentionAttrs *a) {
    const int64_t whole = (size + a->window - 1) / a->window * a->window;
    return at < whole - a->window ? 0 : at < whole - a->shift ? 1 : 2;
}

/* What the mask of shifted windows adds, made as in the published code from three slices
 * of the rows and of the columns; -inf between windows. */
static double window_mask(const AttentionAttrs *a, int64_t i, int64_t j) {
    if (a->window == 0) return 0;
    if (i / (a->window * a->window) != j / (a->window * a->window)) return -INFINITY;
    const Offset x = place_of(a, i), y = place_of(a, j);
    const bool same =
        slice_of(x.rows, a->grid_h, a) == slice_of(y.rows, a->grid_h, a) &&
        slice_of(x.columns, a->grid_w, a) == slice_of(y.columns, a->grid_w, a);
    return same || a->shift == 0 ? 0 : -100;
}

static bool is_masked(const Problem *p, int64_t n, int64_t i, int64_t j) {
    return (has(p, MASK) && p->in[MASK][n * p->keys + j] == 0) ||
           (p->attrs.causal && j > i) ||
           (p->attrs.reach && llabs(i - j) >= p->attrs.reach) ||
           window_mask(&p->attrs, i, j) == -INFINITY;
}

/* Adds a head's bias to its keys that take part. */
static void add_bias(const Problem *p, const double *bias, int64_t n, int64_t i,
                     double *x) {
    for (int64_t h = 0; h < p->heads; h++)
        for (int64_t j = 0; j < p->keys; j++)
            if (!is_masked(p, n, i, j)) x[h * p->keys + j] += bias[h];
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
        x[j] = is_masked(p, n, i, j) ? 0 : exp(x[j] + window_mask(&p->attrs, i, j));
        sum += x[j];
    }
    for (int64_t j = 0; j < p->keys && sum > 0; j++) x[j] /= sum;
}

/* Returns the largest score, by which softmax multiplies errors. */
static double naive_row(const Problem *p, int64_t n, int64_t i, double *x, double *out) {
    for (int64_t h = 0; h < p->heads; h++)
        for (int64_t j = 0; j < p->keys; j++) x[h * p->keys + j] = score(p, n, h, i, j);
    if (has(p, MIX_BEFORE)) mix(p, p->in[MIX_BEFORE], x);
    if (has(p, MIX_BEFORE_BIAS)) add_bias(p, p->in[MIX_BEFORE_BIAS], n, i, x);
    double largest = 0;
    for (int64_t j = 0; j < p->heads * p->keys; j++) largest = fmax(largest, fabs(x[j]));
    for (int64_t h = 0; h < p->heads; h++) softmax(p, n, i, x + h * p->keys);
    if (has(p, MIX_AFTER)) mix(p, p->in[MIX_AFTER], x);
    if (has(p, MIX_AFTER_BIAS)) add_bias(p, p->in[MIX_AFTER_BIAS], n, i, x);
    const int64_t e = p->value_head, width = p->heads * e;
    for (int64_t c = 0; c < width; c++) {
        const double *weight = x + c / e * p->keys;
        const double *v = p->in[V] + kv_head(p, c / e) * e + c % e;
        double sum = 0;
        for (int64_t j = 0; j < p->keys; j++)
            sum += weight[j] * v[(n * p->keys + j) * kv_heads(p) * e];
        out[(n * p->queries + i) * width + c] = sum;
    }
    return largest;
}

/* All rows; returns the largest score. */
static double naive(const Problem *p, double *out) {
    double largest = 0;
    double *x = malloc((size_t)(p->heads * p->keys) * sizeof *x);
    for (int64_t n = 0; n < p->samples; n++)
        for (int64_t i = 0; i < p->queries; i++)
            largest = fmax(largest, naive_row(p, n, i, x, out));
    free(x);
    return largest;
}

#endif
