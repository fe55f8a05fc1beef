/* Training under Gaussian priors against closed forms: the ridge estimate and the
 * mean-field posterior of a linear model with Gaussian noise. */
#include "tests/exec/prior_fixture.h"

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
    double size;                /* of the terms of an element of the gradient, summed */
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

/* Frobenius norm of the inverse of A. */
static double inverse_norm(Closed c) {
    double squares = 0;
    for (int k = 0; k < PARAMS; k++) {
        for (int i = 0; i < PARAMS; i++) c.right[i] = i == k;
        solve(&c);
        for (int i = 0; i < PARAMS; i++) squares += c.mean[i] * c.mean[i];
    }
    return sqrt(squares);
}

/* How far the weights may be where float's gradient, whose elements are off by
 * `gradient`, is zero: A^-1 n times that. */
static double optimum_tolerance(const Closed *c, double gradient) {
    return inverse_norm(*c) * POINTS * sqrt(PARAMS) * gradient +
           rounding_tolerance(PRECISION_F32, FUNCTION_TERMS,
                              largest_value(c->mean, PARAMS));
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
            c->size += fabs(2 * x * line_target(s)) / POINTS / PARAMS;
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
    const double gradient =
        rounding_tolerance(PRECISION_F32, POINTS + PARAMS, closed.size);
    const double tolerance = optimum_tolerance(&closed, gradient);
    for (int i = 0; i < PARAMS; i++) assert_within(w[i], closed.mean[i], tolerance);
    assert_within(report.largest_norm, closed.norm, sqrt(PARAMS) * gradient);
    assert_within(report.rows[0].prior, closed.start_prior,
                  rounding_tolerance(PRECISION_F32, FUNCTION_TERMS, closed.start_prior));
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

/* Noise of the draws. Where gradients average to zero, the mean of the weights over steps
 * is off by the mean of what was drawn, in deviations of the posterior; ema's is as one
 * over 2 / (1 - ema) = 10000 draws, whose standard error is 0.01. Variances are off by
 * the mean of squares, sqrt(2) times that. Three standard errors each: draws are counted,
 * the same everywhere. */
#define MEAN_NOISE     0.03
#define VARIANCE_NOISE 0.04

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
        if (!(fabs(distance) < MEAN_NOISE &&
              fabs(variance[i] / want - 1) < VARIANCE_NOISE))
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ridge),
        cmocka_unit_test(test_mean_field),
    };
    return cmocka_run_group_tests_name("prior_line", tests, NULL, NULL);
}
