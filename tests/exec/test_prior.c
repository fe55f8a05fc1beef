/* Training a classifier under Gaussian priors: the same bytes at any number of threads,
 * what stays untouched, every error. See test_prior_line.c for closed forms. */
#include "tests/exec/prior_fixture.h"

static TrainOptions usual_options(int objective) {
    TrainOptions options = train_defaults;
    options.objective = objective;
    options.epochs = 3;
    options.batch_size = 32;
    options.shards = 5;
    options.micro_batch = 3;
    options.lr = 0.02;
    options.ema = 0.9;
    return options;
}

static void classifier_open(Fixture *f, double dropout) {
    model_open(f, dropout);
    put_gaussian(f, "in.weight", 1, 0.05);
    put_gaussian(f, "out.weight", 3, 0.05);
    put_gaussian(f, "out.bias", 5, 0.05);
}

enum { PRIORS = HIDDEN * WIDTH + CLASSES * HIDDEN + CLASSES };

/* Means and variances of all Gaussians, one after the other. */
static void copy_gaussians(const Graph *graph, float *mean, float *variance) {
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *storage = graph->storages[i];
        const int64_t count = tensor_count(&storage->tensor);
        if (!storage->gaussian) continue;
        gaussian_mean_f32(storage->gaussian, 0, count, mean);
        gaussian_variance_f32(storage->gaussian, 0, count, variance);
        mean += count, variance += count;
    }
}

typedef struct Outcome {
    float weights[WEIGHTS], mean[PRIORS], variance[PRIORS];
    double loss, prior, norm;
} Outcome;

static void classify(const TrainOptions *options, double dropout, int threads,
                     Outcome *out) {
    Fixture f;
    TrainReport report;
    classifier_open(&f, dropout);
    assert_ok(run_training(&f, options, 1, threads, &report), f.diag);
    *out = (Outcome){.loss = report.last_loss,
                     .prior = report.last_prior,
                     .norm = report.largest_norm};
    copy_weights(f.graph, out->weights);
    copy_gaussians(f.graph, out->mean, out->variance);
    model_close(&f);
}

static void test_threads(void **state) {
    (void)state;
    for (int objective = OBJECTIVE_MAP; objective <= OBJECTIVE_VARIATIONAL; objective++) {
        TrainOptions options = usual_options(objective);
        Outcome one, other;
        classify(&options, 0.3, 1, &one);
        for (int threads = 2; threads <= 3; threads++) {
            classify(&options, 0.3, threads, &other);
            assert_memory_equal(&one, &other, sizeof one);
        }
        options.seed = 1;
        classify(&options, 0.3, 1, &other);
        assert_memory_not_equal(one.weights, other.weights, sizeof one.weights);
    }
}

/* Any cut into shards and micro-batches draws the same weights: the same gradients up to
 * rounding. */
static void test_cuts(void **state) {
    (void)state;
    static const int64_t cuts[][2] = {{1, 0}, {1, 7}, {3, 100}, {100, 1}};
    TrainOptions options = usual_options(OBJECTIVE_VARIATIONAL);
    options.epochs = 1;
    options.eps = 1; /* so that an update differs no more than its gradient does */
    Outcome first, other;
    classify(&options, 0, 2, &first);
    Fixture f;
    classifier_open(&f, 0);
    const double tolerance = weight_tolerance(&f, &options, 4, 1, first.norm);
    model_close(&f);
    /* the slopes of the prior's density, (w - mean) / variance, over the samples */
    double slope = 0;
    for (int i = 0; i < PRIORS; i++)
        slope += fabs(first.weights[i] - first.mean[i]) / first.variance[i] / SAMPLES;
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        options.shards = cuts[c][0];
        options.micro_batch = cuts[c][1];
        classify(&options, 0, 2, &other);
        for (int i = 0; i < WEIGHTS; i++)
            assert_within(first.weights[i], other.weights[i], tolerance);
        for (int i = 0; i < PRIORS; i++) /* whose logarithms are trained */
            assert_within(first.variance[i] / other.variance[i], 1, tolerance);
        assert_within(first.prior, other.prior, (1 + slope) * tolerance);
    }
}

/* Without a learning rate: drawn weights do not stay, q starts as the prior with the
 * weights as means, and its divergence is that of the means alone. */
static void test_start(void **state) {
    (void)state;
    Fixture f;
    TrainReport report;
    TrainOptions options = usual_options(OBJECTIVE_VARIATIONAL);
    options.lr = 0;
    classifier_open(&f, 0);
    float before[WEIGHTS], after[WEIGHTS];
    float mean[PRIORS], variance[PRIORS], q_mean[PRIORS], q_variance[PRIORS];
    copy_weights(f.graph, before);
    copy_gaussians(f.graph, mean, variance);
    assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
    copy_weights(f.graph, after);
    copy_gaussians(f.graph, q_mean, q_variance);
    assert_memory_equal(before, after, sizeof before);
    double divergence = 0;
    for (int i = 0; i < PRIORS; i++) {
        divergence += pow((double)q_mean[i] - (double)mean[i], 2) / (double)variance[i];
        /* exp of a float's logarithm, whose size multiplies its rounding */
        const double size = 1 - log((double)variance[i]);
        assert_within(q_variance[i] / variance[i], 1,
                      rounding_tolerance(PRECISION_F32, 2, size));
    }
    divergence /= 2 * SAMPLES;
    assert_within(report.first_prior, divergence,
                  rounding_tolerance(PRECISION_F32, FUNCTION_TERMS, divergence));
    assert_true(report.first_prior == report.last_prior);
    assert_memory_equal(q_mean, before, HIDDEN * WIDTH * sizeof(float));
    model_close(&f);
}

/* Frozen weights keep their bytes and their Gaussian; those without a prior are trained
 * and named; map leaves the Gaussians alone; the likelihood does not see them. */
static void test_untouched(void **state) {
    (void)state;
    Fixture f;
    TrainReport report;
    const char *freeze[] = {"in.weight"};
    TrainOptions options = usual_options(OBJECTIVE_VARIATIONAL);
    options.freeze = (StringList){freeze, 1};
    classifier_open(&f, 0);
    float before[WEIGHTS], after[WEIGHTS];
    copy_weights(f.graph, before);
    const Gaussian *frozen = graph_storage(f.graph, "in.weight")->gaussian;
    assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
    copy_weights(f.graph, after);
    const size_t first = HIDDEN * WIDTH;
    assert_memory_equal(before, after, first * sizeof(float));
    for (size_t i = first; i < WEIGHTS - 9; i++) assert_true(before[i] != after[i]);
    assert_ptr_equal(graph_storage(f.graph, "in.weight")->gaussian, frozen);
    assert_null(graph_storage(f.graph, "in.bias")->gaussian);
    assert_int_equal(report.prior_storages, 2);
    assert_int_equal(report.priorless.count, 1);
    assert_string_equal(report.priorless.items[0], "in.bias");
    model_close(&f);

    Outcome map, plain;
    options = usual_options(OBJECTIVE_MAP);
    classify(&options, 0, 2, &map);
    options.objective = OBJECTIVE_LIKELIHOOD;
    classify(&options, 0, 2, &plain);
    assert_memory_equal(map.mean, plain.mean, sizeof map.mean);
    assert_memory_equal(map.variance, plain.variance, sizeof map.variance);
    assert_true(plain.prior == 0 && map.prior > 0);
    model_open(&f, 0);
    assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
    copy_weights(f.graph, after);
    assert_memory_equal(plain.weights, after, sizeof after);
    model_close(&f);
}

/* What 800 steps of Adam, with rates that fall to 0, may leave of the way: weights start
 * some tenths off, where none of it was gone the first would be 1e4 times larger. */
#define WEIGHT_LEFT   1e-5
#define VARIANCE_LEFT 1e-4

/* Weights that the loss does not depend on go to the prior. */
static void test_unreached(void **state) {
    (void)state;
    for (int objective = OBJECTIVE_MAP; objective <= OBJECTIVE_VARIATIONAL; objective++) {
        Fixture f;
        TrainReport report;
        TrainOptions options = usual_options(objective);
        options.steps = 800;
        options.ema = 0;
        options.shards = 1;
        options.micro_batch = 0;
        options.init_variance = objective == OBJECTIVE_VARIATIONAL ? 0.02 : 0;
        model_open(&f, 0);
        put_gaussian(&f, "unused", 1, 0.05);
        Storage *storage = graph_storage(f.graph, "unused");
        double mean[9], variance[9], w[9], q_variance[9];
        gaussian_mean_f64(storage->gaussian, 0, 9, mean);
        gaussian_variance_f64(storage->gaussian, 0, 9, variance);
        assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
        tensor_read_f64(&storage->tensor, 0, 9, w);
        gaussian_variance_f64(storage->gaussian, 0, 9, q_variance);
        for (int i = 0; i < 9; i++) {
            assert_within(w[i], mean[i], WEIGHT_LEFT);
            assert_within(q_variance[i] / variance[i], 1, VARIANCE_LEFT);
        }
        model_close(&f);
    }
}

/* ---- errors ---- */

static void expect_failure(Fixture *f, const TrainOptions *options, Status status,
                           const char *first, const char *second) {
    float before[WEIGHTS], after[WEIGHTS];
    TrainReport report;
    copy_weights(f->graph, before);
    assert_int_equal(run_training(f, options, 1, 2, &report), status);
    copy_weights(f->graph, after);
    assert_memory_equal(before, after, sizeof before);
    char *text = diag_text(f->diag);
    if (!strstr(text, first) || !strstr(text, second))
        fail_msg("no \"%s\" or \"%s\" in: %s", first, second, text);
    free(text);
    diag_clear(f->diag);
}

static void set_gaussian(Fixture *f, const char *name, int64_t at, double mean,
                         double variance) {
    Gaussian *gaussian = graph_storage(f->graph, name)->gaussian;
    void *to = NULL;
    assert_ok(tensor_writable(&gaussian->mean, &to, f->diag), f->diag);
    ((double *)to)[at] = mean;
    assert_ok(tensor_writable(&gaussian->diagonal, &to, f->diag), f->diag);
    ((double *)to)[at] = variance;
}

static void test_errors(void **state) {
    (void)state;
    Fixture f;
    const char *freeze[] = {"*.weight", "out.bias"};
    for (int objective = OBJECTIVE_MAP; objective <= OBJECTIVE_VARIATIONAL; objective++) {
        TrainOptions options = usual_options(objective);
        size_t bytes = 0;
        model_open(&f, 0);
        expect_failure(&f, &options, STATUS_MODEL, "prior", "estimate_posterior");
        assert_int_equal(bytes_of_training(f.graph, f.loss, &options, 1, &bytes, f.diag),
                         STATUS_MODEL);
        model_close(&f);
        classifier_open(&f, 0);
        set_gaussian(&f, "out.bias", 1, 0, 0);
        expect_failure(&f, &options, STATUS_MODEL, "out.bias", "element 1");
        set_gaussian(&f, "out.bias", 1, 0, 1e-60);
        expect_failure(&f, &options, STATUS_MODEL, "out.bias", "element 1");
        set_gaussian(&f, "out.bias", 1, NAN, 1);
        expect_failure(&f, &options, STATUS_MODEL, "out.bias", "mean nan");
        options.freeze = (StringList){freeze, 2};
        expect_failure(&f, &options, STATUS_MODEL, "prior", "none");
        model_close(&f);
    }
}

typedef struct Watcher {
    int asked, allowed;
} Watcher;

static bool watcher_cancelled(void *self) {
    Watcher *watcher = self;
    return watcher->asked++ >= watcher->allowed;
}

/* A run that is stopped, or fails, leaves means and not drawn weights; the Gaussians stay
 * the prior. */
static void test_stopped(void **state) {
    (void)state;
    Fixture f;
    TrainReport report;
    TrainOptions options = usual_options(OBJECTIVE_VARIATIONAL);
    options.lr = 0; /* so the means are where they were */
    Watcher watcher = {.allowed = 0};
    const Watch watch = {&watcher, NULL, watcher_cancelled};
    classifier_open(&f, 0);
    const Gaussian *prior = graph_storage(f.graph, "out.bias")->gaussian;
    float before[WEIGHTS], after[WEIGHTS];
    copy_weights(f.graph, before);
    assert_int_equal(train(f.graph, f.loss, NULL, 0, &f.toy.batches, &options, 1, 2,
                           &watch, f.arena, &report, f.diag),
                     STATUS_INTERRUPTED);
    copy_weights(f.graph, after);
    assert_memory_equal(before, after, sizeof before);
    diag_clear(f.diag);
    f.toy.infinite = true;
    expect_failure(&f, &options, STATUS_MODEL, "step 1", "cross_entropy");
    assert_ptr_equal(graph_storage(f.graph, "out.bias")->gaussian, prior);
    model_close(&f);
}

/* ---- memory ---- */

static void test_bytes(void **state) {
    (void)state;
    Fixture f;
    size_t plain = 0, map = 0, variational = 0;
    classifier_open(&f, 0);
    TrainOptions options = usual_options(OBJECTIVE_LIKELIHOOD);
    assert_ok(bytes_of_training(f.graph, f.loss, &options, 1, &plain, f.diag), f.diag);
    options.objective = OBJECTIVE_MAP;
    assert_ok(bytes_of_training(f.graph, f.loss, &options, 1, &map, f.diag), f.diag);
    options.objective = OBJECTIVE_VARIATIONAL;
    assert_ok(bytes_of_training(f.graph, f.loss, &options, 1, &variational, f.diag),
              f.diag);
    /* each storage a multiple of 16; the prior's means and variances; means of q, and log
     * variances with gradient, two moments and average */
    const size_t weights = HIDDEN * WIDTH + HIDDEN + CLASSES * HIDDEN + 16 + 16;
    const size_t priors = HIDDEN * WIDTH + CLASSES * HIDDEN + 16;
    assert_int_equal(map - plain, 2 * priors * sizeof(float));
    assert_int_equal(variational - map, (weights + 5 * priors) * sizeof(float));
    model_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_start),     cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_unreached), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_stopped),   cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests_name("prior", tests, NULL, NULL);
}
