/* Posteriors: the estimates against plain sums over the samples, and the samples against
 * runs of finetune. */
#include "passes/posterior/posterior.h"
#include "tests/passes/posterior_fixture.h"
#include "tests/support/rounding.h"

/* ---- the estimates ---- */

enum { K = 5 };

/* A model of storages alone, and samples of it. */
typedef struct Samples {
    Model *model, *sample[K];
    Arena *arena;
    Diag *diag;
    PassContext ctx;
} Samples;

static Model *draw_model(uint64_t key, Diag *diag) {
    Model *model = model_create(ops_table());
    static const int64_t dims[3][2] = {{3, 4}, {6, 0}, {2, 5}};
    for (int s = 0; s < 3; s++) {
        Storage *storage = NULL;
        char name[16];
        snprintf(name, sizeof name, "w%d", s);
        const Tensor shape = tensor_shape(DTYPE_F32, s == 1 ? 1 : 2, dims[s]);
        assert_ok(graph_add_storage(&storage, model->graph, name, &shape, diag), diag);
        storage->init = (Init){INIT_NORMAL, 1.0};
    }
    assert_ok(model_init_weights(model, key, diag), diag);
    return model;
}

static Samples samples_open(void) {
    Samples s = {.arena = arena_create(), .diag = diag_create()};
    s.model = draw_model(1, s.diag);
    for (uint64_t k = 0; k < K; k++) s.sample[k] = draw_model(k + 10, s.diag);
    s.ctx = (PassContext){.arena = s.arena, .source.key = "passes[0]"};
    s.ctx.record = tree_new(s.arena, TREE_MAP, LOC_NONE);
    return s;
}

static void samples_close(Samples *s) {
    for (int k = 0; k < K; k++) model_destroy(s->sample[k]);
    model_destroy(s->model);
    diag_destroy(s->diag);
    arena_destroy(s->arena);
}

static void gather(Samples *s, const PosteriorOptions *options) {
    Posterior p;
    assert_ok(posterior_open(&p, &s->ctx, s->model, options, &train_defaults, s->diag),
              s->diag);
    for (int k = 0; k < K; k++)
        assert_ok(posterior_take(&p, s->sample[k]->graph, s->diag), s->diag);
    assert_ok(posterior_finish(&p, s->diag), s->diag);
    posterior_close(&p);
}

/* Element i of storage s of sample k. */
static double sample_at(const Samples *s, int k, int storage, int64_t i) {
    return read_one(&s->sample[k]->graph->storages[storage]->tensor, i);
}

static double sample_mean(const Samples *s, int storage, int64_t i) {
    double sum = 0;
    for (int k = 0; k < K; k++) sum += sample_at(s, k, storage, i);
    return sum / K;
}

static double sample_covariance(const Samples *s, int a, int64_t i, int b, int64_t j) {
    double sum = 0;
    for (int k = 0; k < K; k++)
        sum += (sample_at(s, k, a, i) - sample_mean(s, a, i)) *
               (sample_at(s, k, b, j) - sample_mean(s, b, j));
    return sum / (K - 1);
}

static int64_t size_of(const Samples *s, int storage) {
    return tensor_count(&s->model->graph->storages[storage]->tensor);
}

static double mean_variance(const Samples *s) {
    double sum = 0;
    int64_t count = 0;
    for (int a = 0; a < 3; a++)
        for (int64_t i = 0; i < size_of(s, a); i++, count++)
            sum += sample_covariance(s, a, i, a, i);
    return sum / (double)count;
}

/* Moments of K samples, of factors that are floats. */
static void expect_near(double found, double wanted) {
    assert_within(
        found, wanted,
        rounding_tolerance(PRECISION_F32, K + FUNCTION_TERMS, 1 + fabs(wanted)));
}

static void test_low_rank(void **state) {
    (void)state;
    Samples s = samples_open();
    const double jitter = 0.25, scale = 3;
    gather(&s, &(PosteriorOptions){GAUSSIAN_LOW_RANK, K, POSTERIOR_MEAN_WEIGHTS, jitter,
                                   scale, 0});
    const double l = jitter * mean_variance(&s);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            const Gaussian *x = s.model->graph->storages[a]->gaussian;
            const Gaussian *y = s.model->graph->storages[b]->gaussian;
            for (int64_t i = 0; i < size_of(&s, a); i++)
                for (int64_t j = 0; j < size_of(&s, b); j++)
                    expect_near(covariance_of(x, i, y, j),
                                scale * (sample_covariance(&s, a, i, b, j) +
                                         (a == b && i == j ? l : 0)));
        }
    const Storage *w = s.model->graph->storages[0];
    for (int64_t i = 0; i < 12; i++)
        assert_true(read_one(&w->gaussian->mean, i) == read_one(&w->tensor, i));
    expect_near(tree_get(s.ctx.record, "jitter")->real, l);
    char hash[HASH_TEXT_BYTES];
    model_content_hash(s.model, hash);
    assert_string_equal(w->gaussian->origin, hash);
    assert_ok(graph_check_gaussians(s.model->graph, STATUS_MODEL, s.diag), s.diag);
    samples_close(&s);
}

/* Variances alone, of the samples' mean, with some raised to the floor; and the marginal
 * variances of low_rank are the same. */
static void test_diagonal_and_floor(void **state) {
    (void)state;
    static const GaussianForm forms[] = {GAUSSIAN_DIAGONAL, GAUSSIAN_LOW_RANK};
    for (int f = 0; f < 2; f++) {
        Samples s = samples_open();
        const double l = 0.1 * mean_variance(&s), floor = mean_variance(&s);
        int64_t raised = 0;
        gather(&s, &(PosteriorOptions){(int)forms[f], K, POSTERIOR_MEAN_SAMPLES, 0.1, 1,
                                       floor});
        for (int a = 0; a < 3; a++)
            for (int64_t i = 0; i < size_of(&s, a); i++) {
                const Gaussian *g = s.model->graph->storages[a]->gaussian;
                const double plain = sample_covariance(&s, a, i, a, i) + l;
                double variance;
                gaussian_variance_f64(g, i, 1, &variance);
                expect_near(variance, fmax(plain, floor));
                expect_near(read_one(&g->mean, i), sample_mean(&s, a, i));
                raised += plain < floor;
            }
        assert_true(raised > 0);
        assert_int_equal(tree_get(s.ctx.record, "raised_to_floor")->integer, raised);
        expect_near(tree_get(s.ctx.record, "least_variance")->real, floor);
        samples_close(&s);
    }
}

/* Rows and columns by the sums of posterior.h; the variances' sum is the samples'. */
static void test_kron(void **state) {
    (void)state;
    Samples s = samples_open();
    gather(&s, &(PosteriorOptions){GAUSSIAN_KRON, K, POSTERIOR_MEAN_SAMPLES, 0, 2, 0});
    assert_int_equal(s.model->graph->storages[1]->gaussian->form, GAUSSIAN_DIAGONAL);
    for (int a = 0; a < 3; a += 2) {
        const Gaussian *g = s.model->graph->storages[a]->gaussian;
        const int64_t n = g->mean.dim[0], m = g->mean.dim[1];
        double height = 0, sum = 0, all = 0;
        assert_int_equal(g->form, GAUSSIAN_KRON);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < n; k++) {
                double u = 0;
                for (int64_t j = 0; j < m; j++)
                    u += sample_covariance(&s, a, i * m + j, a, k * m + j) / (double)m;
                expect_near(read_one(&g->row, i * n + k), u);
                if (i == k) height += u / (double)n;
            }
        for (int64_t j = 0; j < m; j++)
            for (int64_t k = 0; k < m; k++) {
                double v = 0;
                for (int64_t i = 0; i < n; i++)
                    v += sample_covariance(&s, a, i * m + j, a, i * m + k) / (double)n;
                expect_near(read_one(&g->column, j * m + k), 2 * v / height);
            }
        for (int64_t i = 0; i < n * m; i++) {
            double variance;
            gaussian_variance_f64(g, i, 1, &variance);
            sum += variance;
            all += sample_covariance(&s, a, i, a, i);
            expect_near(read_one(&g->mean, i), sample_mean(&s, a, i));
        }
        expect_near(sum, 2 * all);
    }
    samples_close(&s);
}

static void test_kron_floor(void **state) {
    (void)state;
    Samples s = samples_open();
    gather(&s,
           &(PosteriorOptions){GAUSSIAN_KRON, K, POSTERIOR_MEAN_WEIGHTS, 0.1, 1, 2.0});
    double least = INFINITY;
    for (int a = 0; a < 3; a++)
        for (int64_t i = 0; i < size_of(&s, a); i++) {
            double variance;
            gaussian_variance_f64(s.model->graph->storages[a]->gaussian, i, 1, &variance);
            least = fmin(least, variance);
        }
    expect_near(least, 2.0);
    samples_close(&s);
}

static void test_equal_samples(void **state) {
    (void)state;
    Samples s = samples_open();
    Posterior p;
    const PosteriorOptions options = {GAUSSIAN_LOW_RANK, K, 0, 0.1, 1, 0};
    assert_ok(posterior_open(&p, &s.ctx, s.model, &options, &train_defaults, s.diag),
              s.diag);
    for (int k = 0; k < K; k++)
        assert_ok(posterior_take(&p, s.model->graph, s.diag), s.diag);
    assert_int_equal(posterior_finish(&p, s.diag), STATUS_MODEL);
    posterior_close(&p);
    assert_int_equal(graph_gaussian_count(s.model->graph), 0);
    samples_close(&s);
}

/* ---- the pass ---- */

/* The iterates are the weights that shorter runs end with. */
static void test_iterates(void **state) {
    (void)state;
    enum { ITERATES = 3 };
    Model *model = toy_vit(3), *shorter[ITERATES];
    for (int k = 0; k < ITERATES; k++) {
        char options[160];
        snprintf(options, sizeof options, "{" TRAIN ", steps: %d}", 3 + 2 * k);
        shorter[k] = toy_vit(3);
        run_pass(shorter[k], "finetune", options);
    }
    run_pass(model, "estimate_posterior",
             "{" TRAIN ", steps: 7, samples: 3, every: 2, jitter: 0}");
    const Storage *storage = storage_of(model, FFN_IN);
    const Gaussian *g = storage->gaussian;
    for (int64_t i = 0; i < tensor_count(&storage->tensor); i++) {
        double x[ITERATES], mean = 0, wanted = 0, variance;
        for (int k = 0; k < ITERATES; k++) {
            x[k] = read_one(&storage_of(shorter[k], FFN_IN)->tensor, i);
            mean += x[k] / ITERATES;
        }
        for (int k = 0; k < ITERATES; k++)
            wanted += (x[k] - mean) * (x[k] - mean) / (ITERATES - 1);
        gaussian_variance_f64(g, i, 1, &variance);
        /* deviations are floats, and differences of weights in double */
        assert_within(variance, wanted,
                      rounding_tolerance(PRECISION_F32, ITERATES + 2, wanted) +
                          rounding_tolerance(PRECISION_F64, ITERATES + 2, mean * mean));
        assert_true(x[ITERATES - 1] == read_one(&storage->tensor, i));
        assert_true(x[ITERATES - 1] == read_one(&g->mean, i));
    }
    for (int k = 0; k < ITERATES; k++) model_destroy(shorter[k]);
    model_destroy(model);
}

/* Runs leave the weights, differ from each other, and have variances. */
static void test_runs(void **state) {
    (void)state;
    Model *model = toy_vit(3), *before = model_copy(model);
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    run_pass(model, "estimate_posterior",
             "{" TRAIN ", steps: 4, from: runs, samples: 3, covariance: diagonal, "
             "jitter: 0}");
    model_content_hash(model, a);
    model_content_hash(before, b);
    assert_string_equal(a, b);
    const Gaussian *g = storage_of(model, FFN_OUT)->gaussian;
    double variance;
    gaussian_variance_f64(g, 0, 1, &variance);
    assert_true(variance > 0);
    run_pass(model, "estimate_posterior",
             "{" TRAIN ", steps: 2, from: runs, start: drawn, samples: 2, mean: samples, "
             "freeze: [\"*.bias\"]}");
    g = storage_of(model, FFN_OUT)->gaussian;
    assert_int_equal(g->form, GAUSSIAN_LOW_RANK);
    assert_true(fabs(read_one(&g->mean, 0) -
                     read_one(&storage_of(model, FFN_OUT)->tensor, 0)) > 1e-6);
    double other;
    gaussian_variance_f64(g, 0, 1, &other);
    assert_true(other > 10 * variance);
    assert_null(storage_of(model, "vit.encoder.layer.1.output.dense.bias")->gaussian);
    model_destroy(before);
    model_destroy(model);
}

static void test_refused(void **state) {
    (void)state;
    Model *model = toy_vit(3);
    expect_pass_fails(model, "estimate_posterior", "{data: toy, samples: 1}",
                      STATUS_RECIPE, "between 2 and 4096");
    expect_pass_fails(model, "estimate_posterior",
                      "{data: toy, steps: 5, samples: 3, every: 3}", STATUS_RECIPE,
                      "expected at least 7 steps for 3 iterates 3 apart, found 5");
    expect_pass_fails(model, "estimate_posterior",
                      "{data: toy, epochs: 1, batch_size: 60, samples: 2}", STATUS_MODEL,
                      "expected at least 2 steps");
    expect_pass_fails(model, "estimate_posterior", "{data: toy, start: drawn}",
                      STATUS_RECIPE, "from: runs");
    expect_pass_fails(model, "estimate_posterior",
                      "{data: toy, steps: 40, freeze: [\"*\"]}", STATUS_MODEL,
                      "found none");
    expect_pass_fails(model, "estimate_posterior",
                      "{data: toy, steps: 3, samples: 2, lr: 0}", STATUS_MODEL,
                      "expected samples of the weights that differ");
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_low_rank),      cmocka_unit_test(test_diagonal_and_floor),
        cmocka_unit_test(test_kron),          cmocka_unit_test(test_kron_floor),
        cmocka_unit_test(test_equal_samples), cmocka_unit_test(test_iterates),
        cmocka_unit_test(test_runs),          cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
