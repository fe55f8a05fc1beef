/* A posterior for the models of removal_fixture.h, and the normal distribution given the
 * entries that are set, from its dense covariance. */
#ifndef COMPRESS_TESTS_PASSES_DENSE_POSTERIOR_H
#define COMPRESS_TESTS_PASSES_DENSE_POSTERIOR_H

#include "tests/passes/removal_fixture.h"

enum { SAMPLES_K = 3 };

/* Rounding of what is solved for, of entries of size 1: up to 512 of variance 0.02 or
 * more, to which the directions add 0.0025 for each entry at most. */
#define SOLVE_ROUNDING solve_tolerance(512, 100)

/* ---- a posterior ---- */

static inline void fill(Tensor *tensor, uint64_t key, double base, double spread) {
    Diag *diag = diag_create();
    void *data = NULL;
    assert_ok(tensor_writable(tensor, &data, diag), diag);
    for (int64_t i = 0; i < tensor_count(tensor); i++)
        ((double *)data)[i] = base + spread * random_normal(key, (uint64_t)i);
    diag_destroy(diag);
}

/* Gives every storage a Gaussian in double: mean the weights, independent variances
 * around 0.02 and, for low_rank, three directions. */
static inline void add_posterior(Model *model, GaussianForm form) {
    Diag *diag = diag_create();
    char origin[HASH_TEXT_BYTES];
    model_content_hash(model, origin);
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *storage = model->graph->storages[i];
        const uint64_t key = random_key_name(99, storage->name);
        Gaussian *g = gaussian_create(model->arena, form, DTYPE_F64, &storage->tensor,
                                      form == GAUSSIAN_LOW_RANK ? SAMPLES_K : 0, origin);
        assert_ok(gaussian_allocate(g, diag), diag);
        double *mean = NULL, *diagonal = NULL;
        assert_ok(tensor_writable(&g->mean, (void **)&mean, diag), diag);
        tensor_read_f64(&storage->tensor, 0, tensor_count(&storage->tensor), mean);
        assert_ok(tensor_writable(&g->diagonal, (void **)&diagonal, diag), diag);
        for (int64_t e = 0; e < tensor_count(&storage->tensor); e++)
            diagonal[e] = 0.02 * (1 + random_uniform(key, (uint64_t)e));
        if (form == GAUSSIAN_LOW_RANK) fill(&g->factor, random_key(key, 1), 0, 0.05);
        storage->gaussian = g;
    }
    diag_destroy(diag);
}

static inline double factor_at(const Storage *storage, int64_t element, int k) {
    double value = 0;
    const int64_t count = tensor_count(&storage->tensor);
    tensor_read_f64(&storage->gaussian->factor, k * count + element, 1, &value);
    return value;
}

static inline double covariance(const Storage *a, int64_t i, const Storage *b,
                                int64_t j) {
    double sum = 0;
    for (int k = 0; k < gaussian_samples(a->gaussian); k++)
        sum += factor_at(a, i, k) * factor_at(b, j, k);
    double diagonal = 0;
    if (a == b && i == j) tensor_read_f64(&a->gaussian->diagonal, i, 1, &diagonal);
    return sum + diagonal;
}

/* ---- the dense solution ---- */

/* Solves S x = y for a symmetric positive definite S[n, n], which is used up. */
static inline void solve(double *s, double *x, int n) {
    for (int p = 0; p < n; p++)
        for (int i = p + 1; i < n; i++) {
            const double by = s[i * n + p] / s[p * n + p];
            for (int j = p; j < n; j++) s[i * n + j] -= by * s[p * n + j];
            x[i] -= by * x[p];
        }
    for (int i = n - 1; i >= 0; i--) {
        for (int j = i + 1; j < n; j++) x[i] -= s[i * n + j] * x[j];
        x[i] /= s[i * n + i];
    }
}

/* S_22 of entries; to be freed. */
static inline double *dense(const Model *model, const Entries *entries) {
    static const Storage *from[ENTRIES];
    static double f[ENTRIES][SAMPLES_K];
    const int n = entries->count;
    if (n < 1) {
        fail_msg("no entries");
        return NULL;
    }
    double *s = calloc((size_t)n * (size_t)n, sizeof *s);
    for (int i = 0; i < n; i++) {
        from[i] = graph_storage(model->graph, entries->items[i].storage);
        for (int k = 0; k < gaussian_samples(from[i]->gaussian); k++)
            f[i][k] = factor_at(from[i], entries->items[i].at, k);
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            for (int k = 0; k < gaussian_samples(from[i]->gaussian); k++)
                s[i * n + j] += f[i][k] * f[j][k];
        double diagonal = 0;
        tensor_read_f64(&from[i]->gaussian->diagonal, entries->items[i].at, 1, &diagonal);
        s[i * n + i] += diagonal;
    }
    return s;
}

/* S_22^-1 (c - mu_2); to be freed. */
static inline double *solve_mean(const Model *model, const Entries *entries) {
    double *s = dense(model, entries);
    double *x = calloc(ENTRIES, sizeof *x);
    for (int i = 0; i < entries->count; i++) {
        const Entry *entry = &entries->items[i];
        gaussian_mean_f64(graph_storage(model->graph, entry->storage)->gaussian,
                          entry->at, 1, &x[i]);
        x[i] = entry->value - x[i];
    }
    solve(s, x, entries->count);
    free(s);
    return x;
}

static inline double dense_relevance(const Model *model, const Entries *entries) {
    double *x = solve_mean(model, entries), sum = 0;
    for (int i = 0; i < entries->count; i++) {
        const Entry *entry = &entries->items[i];
        double mean = 0;
        gaussian_mean_f64(graph_storage(model->graph, entry->storage)->gaussian,
                          entry->at, 1, &mean);
        sum += (entry->value - mean) * x[i];
    }
    free(x);
    return sum / 2;
}

/* sum_j cov(element, entry j) x_j. */
static inline double against(const Model *model, const Entries *entries,
                             const Storage *storage, int64_t element, const double *x) {
    double sum = 0;
    for (int j = 0; j < entries->count; j++) {
        const Entry *entry = &entries->items[j];
        sum += covariance(storage, element, graph_storage(model->graph, entry->storage),
                          entry->at) *
               x[j];
    }
    return sum;
}

static inline double expected_variance(const Model *model, const Entries *entries,
                                       const Storage *storage, int64_t element) {
    const int n = entries->count;
    double *s = dense(model, entries), *x = calloc(ENTRIES, sizeof *x);
    for (int j = 0; j < n; j++)
        x[j] = covariance(storage, element,
                          graph_storage(model->graph, entries->items[j].storage),
                          entries->items[j].at);
    solve(s, x, n);
    const double left = covariance(storage, element, storage, element) -
                        against(model, entries, storage, element, x);
    free(s);
    free(x);
    return left;
}

#endif
