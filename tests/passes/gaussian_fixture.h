/* Storages with Gaussians made by hand, and the algebra of full covariances, for tests of
 * conditioning and of what passes do with posteriors. */
#ifndef COMPRESS_TESTS_PASSES_GAUSSIAN_FIXTURE_H
#define COMPRESS_TESTS_PASSES_GAUSSIAN_FIXTURE_H

#include "exec/ops.h"
#include "ir/random.h"
#include "passes/posterior/condition.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ORIGIN "0123456789abcdef0123456789abcdef"

/* A graph of storages alone, and a context to condition it in. */
typedef struct Bench {
    Arena *arena;
    Diag *diag;
    Graph *graph;
    PassContext ctx;
} Bench;

static inline Bench bench_open(void) {
    Bench b = {.arena = arena_create(), .diag = diag_create()};
    b.graph = graph_create(b.arena, ops_table());
    b.ctx = (PassContext){.arena = b.arena, .source.key = "passes[0]"};
    b.ctx.record = tree_new(b.arena, TREE_MAP, LOC_NONE);
    return b;
}

static inline void bench_close(Bench *b) {
    graph_release(b->graph);
    diag_destroy(b->diag);
    arena_destroy(b->arena);
}

static inline double draw(uint64_t key, int64_t i) {
    return random_normal(key, (uint64_t)i);
}

/* Fills a tensor of a Gaussian with normal numbers. */
static inline void fill_normal(Tensor *tensor, uint64_t key, Diag *diag) {
    const int64_t count = tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) {
        const double value = draw(key, i);
        assert_ok(tensor_write_f64(tensor, i, 1, &value, diag), diag);
    }
}

/* Variances from 0.05 to about 1. */
static inline void fill_variance(Tensor *tensor, uint64_t key, Diag *diag) {
    const int64_t count = tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) {
        const double z = draw(key, i), value = 0.05 + 0.2 * z * z;
        assert_ok(tensor_write_f64(tensor, i, 1, &value, diag), diag);
    }
}

/* A positive definite matrix. */
static inline void fill_covariance(Tensor *tensor, uint64_t key, Diag *diag) {
    const int64_t n = tensor->dim[0];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = i == j ? 0.1 : 0;
            for (int64_t k = 0; k < n; k++)
                sum += draw(key, i * n + k) * draw(key, j * n + k) / (double)n;
            assert_ok(tensor_write_f64(tensor, i * n + j, 1, &sum, diag), diag);
            assert_ok(tensor_write_f64(tensor, j * n + i, 1, &sum, diag), diag);
        }
}

/* A Gaussian with numbers for a shape. */
static inline Gaussian *make_gaussian(Arena *arena, GaussianForm form, DType dtype,
                                      const Tensor *like, int64_t samples, uint64_t key,
                                      Diag *diag) {
    Gaussian *g = gaussian_create(arena, form, dtype, like, samples, ORIGIN);
    assert_ok(gaussian_allocate(g, diag), diag);
    fill_normal(&g->mean, random_key(key, 1), diag);
    if (form != GAUSSIAN_KRON) fill_variance(&g->diagonal, random_key(key, 2), diag);
    if (form == GAUSSIAN_LOW_RANK) fill_normal(&g->factor, random_key(key, 3), diag);
    if (form == GAUSSIAN_KRON) {
        fill_covariance(&g->row, random_key(key, 4), diag);
        fill_covariance(&g->column, random_key(key, 5), diag);
    }
    return g;
}

/* Adds a storage with a Gaussian in double precision. */
static inline Storage *add_gaussian(Bench *b, const char *name, int rank,
                                    const int64_t *dim, GaussianForm form,
                                    int64_t samples) {
    Storage *storage = NULL;
    const Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    assert_ok(graph_add_storage(&storage, b->graph, name, &shape, b->diag), b->diag);
    storage->gaussian = make_gaussian(b->arena, form, DTYPE_F64, &shape, samples,
                                      random_key_name(7, name), b->diag);
    return storage;
}

/* ---- the whole as one vector ---- */

typedef struct Whole {
    int64_t n;
    double *mean, *covariance; /* [n], [n, n] */
} Whole;

static inline double read_one(const Tensor *tensor, int64_t i) {
    double value;
    tensor_read_f64(tensor, i, 1, &value);
    return value;
}

/* Covariance of element i of one Gaussian and j of another. */
static inline double covariance_of(const Gaussian *a, int64_t i, const Gaussian *b,
                                   int64_t j) {
    if (a->form == GAUSSIAN_KRON) {
        const int64_t n = a->row.dim[0], m = a->column.dim[0];
        return a == b ? read_one(&a->row, i / m * n + j / m) *
                            read_one(&a->column, i % m * m + j % m)
                      : 0;
    }
    double sum = a == b && i == j ? read_one(&a->diagonal, i) : 0;
    if (a->form != GAUSSIAN_LOW_RANK || b->form != GAUSSIAN_LOW_RANK) return sum;
    for (int64_t k = 0; k < a->factor.dim[0]; k++)
        sum += read_one(&a->factor, k * a->factor.dim[1] + i) *
               read_one(&b->factor, k * b->factor.dim[1] + j);
    return sum;
}

static inline Whole whole_read(const Graph *graph) {
    Whole w = {0};
    const int count = graph->storage_count;
    for (int s = 0; s < count; s++) w.n += tensor_count(&graph->storages[s]->tensor);
    w.mean = calloc((size_t)w.n, sizeof *w.mean);
    w.covariance = calloc((size_t)(w.n * w.n), sizeof *w.covariance);
    int64_t row = 0;
    for (int s = 0; s < count; s++) {
        const Gaussian *a = graph->storages[s]->gaussian;
        for (int64_t i = 0; i < tensor_count(&a->mean); i++, row++) {
            w.mean[row] = read_one(&a->mean, i);
            double *out = w.covariance + row * w.n;
            for (int t = 0; t < count; t++) {
                const Gaussian *b = graph->storages[t]->gaussian;
                for (int64_t j = 0; j < tensor_count(&b->mean); j++)
                    *out++ = covariance_of(a, i, b, j);
            }
        }
    }
    return w;
}

static inline void whole_free(Whole *w) {
    free(w->mean);
    free(w->covariance);
}

/* Solves A X = B in place by Gauss-Jordan elimination with pivots: A[n, n], B[n, m]. */
static inline void solve_naive(int64_t n, double *a, int64_t m, double *b) {
    for (int64_t p = 0; p < n; p++) {
        int64_t best = p;
        for (int64_t r = p; r < n; r++)
            if (fabs(a[r * n + p]) > fabs(a[best * n + p])) best = r;
        for (int64_t c = 0; c < n; c++) {
            const double held = a[p * n + c];
            a[p * n + c] = a[best * n + c];
            a[best * n + c] = held;
        }
        for (int64_t c = 0; c < m; c++) {
            const double held = b[p * m + c];
            b[p * m + c] = b[best * m + c];
            b[best * m + c] = held;
        }
        const double pivot = a[p * n + p];
        assert_true(pivot != 0);
        for (int64_t r = 0; r < n; r++) {
            const double by = a[r * n + p] / pivot;
            if (r == p || by == 0) continue;
            for (int64_t c = p; c < n; c++) a[r * n + c] -= by * a[p * n + c];
            for (int64_t c = 0; c < m; c++) b[r * m + c] -= by * b[p * m + c];
        }
    }
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < m; c++) b[r * m + c] /= a[r * n + r];
}

/* The textbook's formulas in place: given[i] says which elements get value[i]. */
static inline void whole_condition(Whole *w, const bool *given, const double *value) {
    const int64_t n = w->n;
    int64_t *at = calloc((size_t)n, sizeof *at), count = 0;
    for (int64_t i = 0; i < n; i++)
        if (given[i]) at[count++] = i;
    double *square = calloc((size_t)(count * count), sizeof *square);
    double *right = calloc((size_t)(count * (n + 1)), sizeof *right);
    for (int64_t a = 0; a < count; a++) {
        for (int64_t b = 0; b < count; b++)
            square[a * count + b] = w->covariance[at[a] * n + at[b]];
        for (int64_t j = 0; j < n; j++)
            right[a * (n + 1) + j] = w->covariance[at[a] * n + j];
        right[a * (n + 1) + n] = value[at[a]] - w->mean[at[a]];
    }
    double *old = calloc((size_t)(count * n), sizeof *old); /* S_2z */
    for (int64_t a = 0; a < count; a++)
        memcpy(old + a * n, w->covariance + at[a] * n, (size_t)n * sizeof *old);
    solve_naive(count, square, n + 1, right);
    for (int64_t i = 0; i < n; i++)
        for (int64_t a = 0; a < count; a++) {
            w->mean[i] += old[a * n + i] * right[a * (n + 1) + n];
            for (int64_t j = 0; j < n; j++)
                w->covariance[i * n + j] -= old[a * n + i] * right[a * (n + 1) + j];
        }
    for (int64_t i = 0; i < n; i++) {
        if (given[i]) w->mean[i] = value[i];
        for (int64_t j = 0; j < n; j++)
            if (given[i] || given[j]) w->covariance[i * n + j] = 0;
    }
    free(old);
    free(right);
    free(square);
    free(at);
}

/* Rounding of what is solved for: up to 64 elements of covariances that are at most 1, on
 * top of independent variances of at least 0.001. */
#define SOLVE_ROUNDING solve_tolerance(64, 1000)

static inline void expect_equal(const Whole *a, const Whole *b, double tolerance) {
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++)
        if (!(fabs(a->mean[i] - b->mean[i]) <= tolerance))
            fail_msg("mean %d: %.17g, expected %.17g", (int)i, a->mean[i], b->mean[i]);
    for (int64_t i = 0; i < a->n * a->n; i++)
        if (!(fabs(a->covariance[i] - b->covariance[i]) <= tolerance))
            fail_msg("covariance %d: %.17g, expected %.17g", (int)i, a->covariance[i],
                     b->covariance[i]);
}

#endif
