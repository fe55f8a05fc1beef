/* Terms of Gaussian priors: against PyTorch, numerical integration, finite differences;
 * drawn weights. */
#include "exec/loops/loops.h"
#include "io/formats/safetensors.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

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

/* Each element is one formula of a float and of a variance that is rounded to one. */
static void compare(const float *got, const float *want) {
    double largest = 0;
    for (int i = 0; i < COUNT; i++) largest = fmax(largest, fabs((double)want[i]));
    for (int i = 0; i < COUNT; i++)
        assert_within(got[i], want[i],
                      rounding_tolerance(PRECISION_F32, FUNCTION_TERMS, largest));
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
    assert_within(kl, want,
                  rounding_tolerance(PRECISION_F32, FUNCTION_TERMS, (double)want));
    for (int i = 0; i < COUNT; i++) g[i] *= 2, g_rho[i] *= 2;
    read_values(gradients, "grad.gaussian_kl.q.mean", COUNT, by);
    compare(g, by);
    read_values(gradients, "grad.gaussian_kl.q.log_variance", COUNT, by);
    compare(g_rho, by);
    checkpoint_destroy(weights);
    checkpoint_destroy(values);
    checkpoint_destroy(gradients);
    diag_destroy(diag);
}

static double log_normal(double x, double mean, double variance) {
    const double d = x - mean;
    return -(d * d / variance + log(2 * acos(-1.0) * variance)) / 2;
}

enum { STEPS = 4000 };

/* Integral of q (log q - log p) by the trapezium rule, over 12 deviations each way; the
 * rule is exact for such functions but for exp(-72). `size`: that of absolute values. */
static double integrate(double mean, double variance, double prior, double prior_variance,
                        double *size) {
    const double reach = 12 * sqrt(variance), width = 2 * reach / STEPS;
    double sum = 0;
    for (int i = 0; i <= STEPS; i++) {
        const double x = mean - reach + i * width;
        const double q = log_normal(x, mean, variance);
        const double p = log_normal(x, prior, prior_variance);
        sum += exp(q) * (q - p);
        *size += exp(q) * (fabs(q) + fabs(p)) * width;
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
        double size = 0;
        const double got = loops_here()->variational_add_divergence(
            &g, &g_rho, v, v, v + 1, (PriorRange){v + 2, v + 3}, 1, 1);
        const double want =
            integrate((double)v[0], exp((double)v[1]), (double)v[2], (double)v[3], &size);
        assert_within(got, want,
                      rounding_tolerance(PRECISION_F64, STEPS + FUNCTION_TERMS, size));
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

/* A float's gradient by one place of p, whose terms have the sum of absolute values
 * `size`, against differences. */
static void check_slope(Point *p, double *place, float got, double size) {
    const double h = 1e-5, at = *place;
    double difference[2], most = 0;
    for (int wide = 0; wide < 2; wide++) {
        double value[2];
        for (int side = 0; side < 2; side++) {
            *place = at + (1 + wide) * (side ? -h : h);
            value[side] = objective(*p);
            most = fmax(most, fabs(value[side]));
        }
        difference[wide] = (value[0] - value[1]) / (2 * (1 + wide) * h);
    }
    *place = at;
    assert_within(got, difference[0],
                  rounding_tolerance(PRECISION_F32, FUNCTION_TERMS, size) +
                      difference_tolerance(PRECISION_F64, h, difference[0], difference[1],
                                           FUNCTION_TERMS, 1 + most));
}

static void check_point(Point p) {
    const float mean = (float)p.mean, rho = (float)p.rho;
    const float w = (float)(p.mean + exp(p.rho / 2) * p.noise);
    const float prior = (float)p.prior, variance = (float)p.variance;
    float g = (float)slope_of((double)w), g_rho = 0;
    loops_here()->variational_add_divergence(
        &g, &g_rho, &w, &mean, &rho, (PriorRange){&prior, &variance}, 1, p.factor);
    /* the slope of the loss at a weight that is rounded; rho as the exponent it is */
    const double x = fabs((double)w), s = exp(p.rho / 2) * fabs(p.noise);
    const double slope = 2 + x * x + x * (4 + 2 * x), exponent = 1 + fabs(p.rho);
    check_slope(&p, &p.mean, g,
                slope + p.factor * (fabs(p.mean) + fabs(p.prior)) / p.variance);
    check_slope(&p, &p.rho, g_rho,
                exponent * (slope * s + p.factor * (1 + exp(p.rho) / p.variance)));
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
        assert_within(first - second, want,
                      rounding_tolerance(PRECISION_F64, FUNCTION_TERMS, first + second));
        const double pull = 2 * ((double)w[0] - (double)mean) / (double)variance;
        assert_within(g[0], 0.25 + pull,
                      rounding_tolerance(PRECISION_F32, FUNCTION_TERMS, 1 + fabs(pull)));
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
    assert_within(sum / MANY, 0, chance_tolerance(0.5, MANY));
    assert_within(square / MANY / 0.25, 1, chance_tolerance(sqrt(2), MANY));
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
