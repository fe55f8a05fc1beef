/* Training under Gaussian priors: closed forms of linear models, the same bytes at any
 * number of threads, what stays untouched, every error. */
#include "tests/exec/train_fixture.h"

/* Puts a diagonal Gaussian on a storage. */
static void put_gaussian(Fixture *f, const char *name, uint64_t seed, double variance) {
    Storage *storage = graph_storage(f->graph, name);
    Gaussian *gaussian = gaussian_create(f->arena, GAUSSIAN_DIAGONAL, DTYPE_F64,
                                         &storage->tensor, 0, "teacher");
    assert_ok(gaussian_allocate(gaussian, f->diag), f->diag);
    void *mean = NULL, *diagonal = NULL;
    assert_ok(tensor_writable(&gaussian->mean, &mean, f->diag), f->diag);
    assert_ok(tensor_writable(&gaussian->diagonal, &diagonal, f->diag), f->diag);
    for (int64_t i = 0; i < tensor_count(&storage->tensor); i++) {
        ((double *)mean)[i] = 0.3 * random_normal(seed, (uint64_t)i);
        ((double *)diagonal)[i] =
            variance * (0.5 + random_uniform(seed + 1, (uint64_t)i));
    }
    storage_drop_gaussian(storage);
    storage->gaussian = gaussian;
}

/* ---- a linear model with Gaussian noise, in closed form ---- */

enum { POINTS = 40, INPUTS = 4, PARAMS = INPUTS + 1 /* with the bias */ };

typedef struct Line {
    Batches batches;
    Column columns[2];
    float x[POINTS][INPUTS], y[POINTS];
} Line;

static double line_input(int64_t sample, int i) {
    if (i == INPUTS) return 1;
    const double shared = random_normal(11, (uint64_t)sample); /* correlates inputs */
    return (double)(float)(0.7 * random_normal(12, (uint64_t)(sample * INPUTS + i)) +
                           0.5 * shared);
}

static double line_target(int64_t sample) {
    double y = 0.3 * random_normal(13, (uint64_t)sample) - 0.4;
    for (int i = 0; i < INPUTS; i++) y += (0.5 - 0.4 * i) * line_input(sample, i);
    return (double)(float)y;
}

static Status line_fetch(const Batches *self, const Fetch *what, void *const *dst,
                         Diag *diag) {
    const Line *line = (const Line *)self;
    (void)diag;
    for (int64_t s = 0; s < what->n; s++) {
        const int64_t at = what->index[s];
        memcpy((float *)dst[0] + s * INPUTS, line->x[at], sizeof line->x[at]);
        ((float *)dst[1])[s] = line->y[at];
    }
    return STATUS_OK;
}

static void line_open(Fixture *f, Line *line) {
    *f = (Fixture){.arena = arena_create(), .diag = diag_create()};
    f->graph = graph_create(f->arena, ops_table());
    const Type x = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, INPUTS}};
    const Type y = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, 1}};
    Node *from = graph_input(f->graph, "x", &x), *to = graph_input(f->graph, "y", &y);
    Node *guess = linear(f, from, "w", "b", 1, INPUTS);
    f->loss = make(f, "mean_squared_error", (Node *[]){guess, to}, 2, NULL);
    put_gaussian(f, "w", 21, 0.2);
    put_gaussian(f, "b", 31, 0.2);
    for (int64_t s = 0; s < POINTS; s++) {
        for (int i = 0; i < INPUTS; i++) line->x[s][i] = (float)line_input(s, i);
        line->y[s] = (float)line_target(s);
    }
    line->columns[0] = (Column){"x", {.dtype = DTYPE_F32, .rank = 1, .dim = {INPUTS}}};
    line->columns[1] = (Column){"y", {.dtype = DTYPE_F32, .rank = 1, .dim = {1}}};
    line->batches = (Batches){.name = "line",
                              .count = POINTS,
                              .columns = line->columns,
                              .column_count = 2,
                              .fetch = line_fetch,
                              .destroy = toy_destroy};
}

/* n times the objective is (x - m)^T A (x - m) / 2 and a constant: sum of squared
 * residuals, that is, noise of variance 1/2, and lambda times the prior. */
typedef struct Closed {
    double A[PARAMS][PARAMS], right[PARAMS], mean[PARAMS];
    double start[PARAMS], norm; /* weights and norm of the gradient at the start */
    double start_prior;         /* lambda / n times -log p there */
} Closed;

static void read_prior(const Fixture *f, double *mean, double *variance) {
    const Gaussian *w = graph_storage(f->graph, "w")->gaussian;
    const Gaussian *b = graph_storage(f->graph, "b")->gaussian;
    gaussian_mean_f64(w, 0, INPUTS, mean);
    gaussian_mean_f64(b, 0, 1, mean + INPUTS);
    gaussian_variance_f64(w, 0, INPUTS, variance);
    gaussian_variance_f64(b, 0, 1, variance + INPUTS);
}

/* Gauss elimination; A is positive definite. */
static void solve(Closed *c) {
    double A[PARAMS][PARAMS], *x = c->mean;
    memcpy(A, c->A, sizeof A);
    memcpy(x, c->right, sizeof c->right);
    for (int k = 0; k < PARAMS; k++)
        for (int i = 0; i < PARAMS; i++) {
            if (i == k) continue;
            const double factor = A[i][k] / A[k][k];
            for (int j = k; j < PARAMS; j++) A[i][j] -= factor * A[k][j];
            x[i] -= factor * x[k];
        }
    for (int k = 0; k < PARAMS; k++) x[k] /= A[k][k];
}

static void closed_open(Closed *c, const Fixture *f, const TrainOptions *options) {
    double mean[PARAMS], variance[PARAMS], slope[PARAMS];
    *c = (Closed){0};
    read_prior(f, mean, variance);
    for (int64_t s = 0; s < POINTS; s++)
        for (int i = 0; i < PARAMS; i++) {
            const double x = line_input(s, i);
            for (int j = 0; j < PARAMS; j++) c->A[i][j] += 2 * x * line_input(s, j);
            c->right[i] += 2 * x * line_target(s);
        }
    float w[PARAMS];
    copy_weights(f->graph, w);
    for (int i = 0; i < PARAMS; i++) {
        const double pull = options->prior_weight / (options->prior_scale * variance[i]);
        c->A[i][i] += pull;
        c->right[i] += pull * mean[i];
        c->start[i] = (double)w[i];
        c->start_prior += pull * pow(c->start[i] - mean[i], 2) / 2 / POINTS;
    }
    solve(c);
    for (int i = 0; i < PARAMS; i++) {
        slope[i] = 0;
        for (int j = 0; j < PARAMS; j++)
            slope[i] += c->A[i][j] * (c->start[j] - c->mean[j]) / POINTS;
        c->norm += slope[i] * slope[i];
    }
    c->norm = sqrt(c->norm);
}

static TrainOptions line_options(int objective) {
    TrainOptions options = train_defaults;
    options.objective = objective;
    options.batch_size = POINTS;
    options.optimizer = 1; /* SGD */
    options.clip = 0;
    options.warmup = 0;
    options.lr = 0.1;
    return options;
}

static void run_line(Fixture *f, Line *line, const TrainOptions *options,
                     TrainReport *report) {
    assert_ok(train(f->graph, f->loss, NULL, 0, &line->batches, options, 1, 1, NULL,
                    f->arena, report, f->diag),
              f->diag);
}

/* The closed form of ridge regression towards the prior's mean. */
static void check_ridge(double weight, double scale) {
    Fixture f;
    Line line;
    Closed closed;
    TrainReport report;
    TrainOptions options = line_options(OBJECTIVE_MAP);
    options.prior_weight = weight;
    options.prior_scale = scale;
    options.steps = 1500;
    options.log_every = 1;
    line_open(&f, &line);
    closed_open(&closed, &f, &options);
    run_line(&f, &line, &options, &report);
    float w[PARAMS];
    copy_weights(f.graph, w);
    for (int i = 0; i < PARAMS; i++)
        if (!(fabs((double)w[i] - closed.mean[i]) < 2e-6))
            fail_msg("weight %d: expected %.9g, got %.9g", i, closed.mean[i],
                     (double)w[i]);
    assert_true(fabs(report.largest_norm - closed.norm) < 1e-5 * closed.norm);
    assert_true(fabs(report.curve_prior[0] - closed.start_prior) <
                1e-6 * closed.start_prior);
    assert_int_equal(report.prior_storages, 2);
    assert_int_equal(report.priorless.count, 0);
    model_close(&f);
}

static void test_ridge(void **state) {
    (void)state;
    check_ridge(1, 1);
    check_ridge(4, 1);
    check_ridge(1, 0.05);
    check_ridge(3, 7);
}

/* The optimum of independent Gaussians for a Gaussian posterior of precision A / lambda:
 * its mean, and the variances lambda / A_ii. */
static void check_mean_field(double weight, double scale, double start) {
    Fixture f;
    Line line;
    Closed closed;
    TrainReport report;
    TrainOptions options = line_options(OBJECTIVE_VARIATIONAL);
    options.prior_weight = weight;
    options.prior_scale = scale;
    options.init_variance = start;
    options.lr = 0.05;
    options.momentum = 0;
    options.variance_lr = 4;
    options.steps = 20000;
    options.ema = 0.9998;
    line_open(&f, &line);
    closed_open(&closed, &f, &options);
    run_line(&f, &line, &options, &report);
    float w[PARAMS];
    double mean[PARAMS], variance[PARAMS];
    copy_weights(f.graph, w);
    read_prior(&f, mean, variance);
    for (int i = 0; i < PARAMS; i++) {
        const double want = weight / closed.A[i][i];
        const double distance = (mean[i] - closed.mean[i]) / sqrt(want);
        assert_true(mean[i] == (double)w[i]);
        if (!(fabs(distance) < 0.03 && fabs(variance[i] / want - 1) < 0.04))
            fail_msg("weight %d: %g deviations from the posterior mean; variance %g, "
                     "expected %g",
                     i, distance, variance[i], want);
    }
    const Gaussian *q = graph_storage(f.graph, "w")->gaussian;
    assert_int_equal(q->form, GAUSSIAN_DIAGONAL);
    assert_string_equal(q->origin, "teacher");
    model_close(&f);
}

static void test_mean_field(void **state) {
    (void)state;
    check_mean_field(1, 1, 0);
    check_mean_field(2, 0.5, 0.001);
}

/* ---- a classifier ---- */

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
    double loss, prior;
} Outcome;

static void classify(const TrainOptions *options, double dropout, int threads,
                     Outcome *out) {
    Fixture f;
    TrainReport report;
    classifier_open(&f, dropout);
    assert_ok(run_training(&f, options, 1, threads, &report), f.diag);
    *out = (Outcome){.loss = report.last_loss, .prior = report.last_prior};
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
    options.eps = 1e-3;
    Outcome first, other;
    classify(&options, 0, 2, &first);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        options.shards = cuts[c][0];
        options.micro_batch = cuts[c][1];
        classify(&options, 0, 2, &other);
        for (int i = 0; i < WEIGHTS; i++)
            assert_true(fabsf(first.weights[i] - other.weights[i]) < 1e-5f);
        for (int i = 0; i < PRIORS; i++)
            assert_true(fabsf(first.variance[i] / other.variance[i] - 1) < 1e-5f);
        assert_true(fabs(first.prior - other.prior) < 1e-5);
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
        assert_true(fabsf(q_variance[i] / variance[i] - 1) < 1e-6f);
    }
    divergence /= 2 * SAMPLES;
    assert_true(fabs(report.first_prior - divergence) < 1e-6 * divergence);
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
            assert_true(fabs(w[i] - mean[i]) < 1e-5);
            assert_true(fabs(q_variance[i] / variance[i] - 1) < 1e-4);
        }
        model_close(&f);
    }
}

/* ---- errors ---- */

static void expect_failure(Fixture *f, const TrainOptions *options, Status status,
                           const char *first, const char *second) {
    float before[WEIGHTS], after[WEIGHTS];
    char *text = NULL;
    size_t length = 0;
    TrainReport report;
    copy_weights(f->graph, before);
    assert_int_equal(run_training(f, options, 1, 2, &report), status);
    copy_weights(f->graph, after);
    assert_memory_equal(before, after, sizeof before);
    FILE *out = open_memstream(&text, &length);
    diag_print(f->diag, out);
    fclose(out);
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
        assert_int_equal(train_bytes(f.graph, f.loss, &options, 1, &bytes, f.diag),
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
    assert_ok(train_bytes(f.graph, f.loss, &options, 1, &plain, f.diag), f.diag);
    options.objective = OBJECTIVE_MAP;
    assert_ok(train_bytes(f.graph, f.loss, &options, 1, &map, f.diag), f.diag);
    options.objective = OBJECTIVE_VARIATIONAL;
    assert_ok(train_bytes(f.graph, f.loss, &options, 1, &variational, f.diag), f.diag);
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
        cmocka_unit_test(test_ridge),     cmocka_unit_test(test_mean_field),
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_start),     cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_unreached), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_stopped),   cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests_name("prior", tests, NULL, NULL);
}
