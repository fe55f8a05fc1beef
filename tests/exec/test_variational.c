/* Terms of Gaussian priors: against PyTorch, numerical integration, finite differences;
 * drawn weights. */
#include "exec/loops/loops.h"
#include "io/formats/safetensors.h"
#include "ir/random.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/data/reference/losses/"

enum { COUNT = 20 };

static Checkpoint *open_file(const char *path, Diag *diag) {
    Checkpoint *file = NULL;
    assert_ok(safetensors_read(&file, path, diag), diag);
    return file;
}

static void read_values(const Checkpoint *file, const char *name, int64_t count,
                        float *to) {
    const Tensor *tensor = checkpoint_find(file, name);
    assert_non_null(tensor);
    assert_int_equal(tensor_count(tensor), count);
    tensor_read_f32(tensor, 0, count, to);
}

static void compare(const float *got, const float *want, double tolerance) {
    double largest = 0;
    for (int i = 0; i < COUNT; i++) largest = fmax(largest, fabs((double)want[i]));
    for (int i = 0; i < COUNT; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance * largest))
            fail_msg("element %d: expected %.9g, got %.9g", i, (double)want[i],
                     (double)got[i]);
}

/* KL and its gradients of a reference case, times a factor. */
static void test_reference(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Checkpoint *weights = open_file(FOLDER "model.safetensors", diag);
    Checkpoint *values = open_file(FOLDER "reference.safetensors", diag);
    Checkpoint *gradients = open_file(FOLDER "gradients.safetensors", diag);
    float mean[COUNT], rho[COUNT], prior[COUNT], variance[COUNT], want, by[COUNT];
    float g[COUNT] = {0}, g_rho[COUNT];
    read_values(weights, "q.mean", COUNT, mean);
    read_values(weights, "q.log_variance", COUNT, rho);
    read_values(weights, "p.mean", COUNT, prior);
    read_values(weights, "p.log_variance", COUNT, variance);
    read_values(values, "gaussian_kl", 1, &want);
    for (int i = 0; i < COUNT; i++) variance[i] = (float)exp((double)variance[i]);
    const double kl = loops_here()->variational_add_divergence(
        g, g_rho, mean, mean, rho, (PriorRange){prior, variance}, COUNT, 0.5);
    assert_true(fabs(kl - (double)want) < 1e-6 * (double)want);
    for (int i = 0; i < COUNT; i++) g[i] *= 2, g_rho[i] *= 2;
    read_values(gradients, "grad.gaussian_kl.q.mean", COUNT, by);
    compare(g, by, 1e-6);
    read_values(gradients, "grad.gaussian_kl.q.log_variance", COUNT, by);
    compare(g_rho, by, 1e-6);
    checkpoint_destroy(weights);
    checkpoint_destroy(values);
    checkpoint_destroy(gradients);
    diag_destroy(diag);
}

static double log_normal(double x, double mean, double variance) {
    const double d = x - mean;
    return -(d * d / variance + log(2 * acos(-1.0) * variance)) / 2;
}

/* Integral of q (log q - log p) by the trapezium rule, over 12 deviations each way. */
static double integrate(double mean, double variance, double prior,
                        double prior_variance) {
    const int steps = 4000;
    const double reach = 12 * sqrt(variance), width = 2 * reach / steps;
    double sum = 0;
    for (int i = 0; i <= steps; i++) {
        const double x = mean - reach + i * width;
        const double q = log_normal(x, mean, variance);
        sum += exp(q) * (q - log_normal(x, prior, prior_variance));
    }
    return sum * width;
}

static void test_integration(void **state) {
    (void)state;
    static const float cases[][4] = {/* mean and log variance of q; of p, variance */
                                     {0, 0, 0, 1},           {0.3f, -2, -0.1f, 0.5f},
                                     {-1.5f, 1, 2, 3},       {0.01f, -9, 0.02f, 1e-4f},
                                     {5, 0.5f, 4.5f, 0.25f}, {0.1f, -4, 0.1f, 20}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const float *v = cases[c];
        float g = 0, g_rho = 0;
        const double got = loops_here()->variational_add_divergence(
            &g, &g_rho, v, v, v + 1, (PriorRange){v + 2, v + 3}, 1, 1);
        const double want =
            integrate((double)v[0], exp((double)v[1]), (double)v[2], (double)v[3]);
        if (!(fabs(got - want) < 1e-9 * fmax(1, want)))
            fail_msg("case %zu: expected %.12g, got %.12g", c, want, got);
    }
}

/* ---- gradients ---- */

/* A loss of one weight and its derivative. */
static double loss_of(double w) {
    return sin(2 * w) + w * w * w / 3;
}

static double slope_of(double w) {
    return 2 * cos(2 * w) + w * w;
}

typedef struct Point {
    double mean, rho, noise, prior, variance, factor;
} Point;

/* Loss and divergence in double, the noise held fixed. */
static double objective(Point p) {
    const double ratio = exp(p.rho) / p.variance, d = p.mean - p.prior;
    const double kl = (ratio - 1 - log(ratio) + d * d / p.variance) / 2;
    return loss_of(p.mean + exp(p.rho / 2) * p.noise) + p.factor * kl;
}

static void expect_close(const char *what, double got, double want) {
    if (!(fabs(got - want) < 2e-6 * fmax(1, fabs(want))))
        fail_msg("%s: expected %.9g, got %.9g", what, want, got);
}

static void check_point(Point p) {
    const double h = 1e-5;
    const float mean = (float)p.mean, rho = (float)p.rho;
    const float w = (float)(p.mean + exp(p.rho / 2) * p.noise);
    const float prior = (float)p.prior, variance = (float)p.variance;
    float g = (float)slope_of((double)w), g_rho = 0;
    loops_here()->variational_add_divergence(
        &g, &g_rho, &w, &mean, &rho, (PriorRange){&prior, &variance}, 1, p.factor);
    Point up = p, down = p;
    up.mean += h, down.mean -= h;
    expect_close("mean", (double)g, (objective(up) - objective(down)) / (2 * h));
    up = down = p;
    up.rho += h, down.rho -= h;
    expect_close("rho", (double)g_rho, (objective(up) - objective(down)) / (2 * h));
}

static void test_differences(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 200; i++)
        check_point((Point){.mean = random_normal(1, i),
                            .rho = random_normal(2, i) - 1,
                            .noise = random_normal(3, i),
                            .prior = random_normal(4, i),
                            .variance = 0.2 + random_uniform(5, i),
                            .factor = random_uniform(6, i)});
}

/* -log p against the density, differences of which have no constant; its slope. */
static void test_density(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        const float w[2] = {(float)random_normal(1, i), (float)random_normal(2, i)};
        const float mean = (float)random_normal(3, i), variance = 0.3f;
        const PriorRange prior = {&mean, &variance};
        float g[2] = {0.25f, 0.5f};
        const double first = loops_here()->variational_add_density(g, w, prior, 1, 2);
        const double second =
            loops_here()->variational_add_density(g + 1, w + 1, prior, 1, 0);
        const double want = log_normal((double)w[1], (double)mean, (double)variance) -
                            log_normal((double)w[0], (double)mean, (double)variance);
        expect_close("density", first - second, want);
        const double distance = (double)w[0] - (double)mean;
        expect_close("slope", (double)g[0], 0.25 + 2 * distance / (double)variance);
        assert_true(g[1] == 0.5f);
    }
}

/* ---- drawing ---- */

/* Moments of many draws, the same draws in pieces, other draws with another key. */
static void test_draw(void **state) {
    (void)state;
    enum { MANY = 100000, PIECE = 777 };
    float *mean = memory_alloc(MANY, sizeof *mean),
          *rho = memory_alloc(MANY, sizeof *rho);
    float *w = memory_alloc(MANY, sizeof *w), *again = memory_alloc(MANY, sizeof *again);
    for (int i = 0; i < MANY; i++) mean[i] = 3, rho[i] = (float)log(0.25);
    loops_here()->variational_draw(w, mean, rho, MANY, 7, 0);
    double sum = 0, square = 0;
    for (int i = 0; i < MANY; i++) {
        const double d = (double)w[i] - 3;
        sum += d;
        square += d * d;
    }
    assert_true(fabs(sum / MANY) < 4 * 0.5 / sqrt(MANY));
    assert_true(fabs(square / MANY / 0.25 - 1) < 4 * sqrt(2.0 / MANY));
    for (int first = 0; first < MANY; first += PIECE) {
        const int n = MANY - first < PIECE ? MANY - first : PIECE;
        loops_here()->variational_draw(again + first, mean + first, rho + first, n, 7,
                                       first);
    }
    assert_memory_equal(w, again, MANY * sizeof *w);
    loops_here()->variational_draw(again, mean, rho, MANY, 8, 0);
    int equal = 0;
    for (int i = 0; i < MANY; i++) equal += w[i] == again[i];
    assert_true(equal < 10);
    free(mean), free(rho), free(w), free(again);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),   cmocka_unit_test(test_integration),
        cmocka_unit_test(test_differences), cmocka_unit_test(test_density),
        cmocka_unit_test(test_draw),
    };
    return cmocka_run_group_tests_name("variational", tests, NULL, NULL);
}
