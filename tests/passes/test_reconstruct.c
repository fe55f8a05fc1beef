/* Reconstruction and structured OBS against dense least squares by elimination, and
 * against all subsets of 8 units. */
#include "ir/random.h"
#include "passes/oneshot/obs.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 50, OUTPUTS = 3, MOST = 24 };

/* A layer, its inputs row by row, and what it gives without the bias. */
typedef struct Problem {
    int K;
    float x[ROWS][MOST];
    double w[OUTPUTS][MOST], b[OUTPUTS];
    Gram gram;
    LinearFit fit;
    Diag *diag;
} Problem;

/* Rows with a mean, some columns larger than others and dependent in part. */
static void problem_open(Problem *p, int K) {
    p->K = K;
    p->diag = diag_create();
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < K; i++) {
            const double own = random_normal(1, (uint64_t)(r * MOST + i));
            const double near = i ? (double)p->x[r][i - 1] : 0;
            p->x[r][i] = (float)(0.3 * i + (1 + i % 3) * own + 0.7 * near);
        }
    for (int m = 0; m < OUTPUTS; m++) {
        p->b[m] = 0.1 * m;
        for (int i = 0; i < K; i++)
            p->w[m][i] = random_normal(2, (uint64_t)(m * MOST + i));
    }
}

/* Takes the problem's rows and weights as they are now. */
static void problem_fit(Problem *p, bool bias, double damp) {
    assert_ok(gram_create(&p->gram, p->K, p->diag), p->diag);
    for (int r = 0; r < ROWS; r++) gram_add(&p->gram, p->x[r], 1, 1);
    bool finite;
    assert_ok(gram_finish(&p->gram, 1, &finite, p->diag), p->diag);
    assert_true(finite);
    assert_ok(fit_open(&p->fit, OUTPUTS, p->K, bias, p->diag), p->diag);
    for (int m = 0; m < OUTPUTS; m++) {
        if (bias) p->fit.bias[m] = p->b[m];
        memcpy(p->fit.weight + m * p->K, p->w[m], (size_t)p->K * sizeof(double));
    }
    assert_ok(fit_set(&p->fit, &p->gram, damp, p->diag), p->diag);
}

static void problem_close(Problem *p) {
    gram_destroy(&p->gram);
    fit_close(&p->fit);
    diag_destroy(p->diag);
}

/* ---- by plain loops ---- */

/* Solves A x = y in place of y, A[n, n] destroyed, by elimination with pivots. */
static void solve(int n, double a[MOST + 1][MOST + 1], double *y) {
    for (int k = 0; k < n; k++) {
        int best = k;
        for (int i = k; i < n; i++)
            if (fabs(a[i][k]) > fabs(a[best][k])) best = i;
        for (int j = 0; j < n; j++) {
            const double swap = a[k][j];
            a[k][j] = a[best][j], a[best][j] = swap;
        }
        const double swap = y[k];
        y[k] = y[best], y[best] = swap;
        for (int i = k + 1; i < n; i++) {
            const double by = a[i][k] / a[k][k];
            for (int j = k; j < n; j++) a[i][j] -= by * a[k][j];
            y[i] -= by * y[k];
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int j = i + 1; j < n; j++) y[i] -= a[i][j] * y[j];
        y[i] /= a[i][i];
    }
}

/* Value of input i of a row: with index K the constant 1, which stands for the bias. */
static double input(const Problem *p, int r, int i) {
    return i == p->K ? 1 : (double)p->x[r][i];
}

/* The change of the kept weights of output m that makes the sum of squares of the change
 * of the outputs, and lambda times that of the weights, least: by normal equations over
 * the rows. With `bias` a constant is among the inputs, without lambda. */
static void least_squares(const Problem *p, int m, const bool *keep, bool bias,
                          double lambda, double change[MOST + 1]) {
    int index[MOST + 1], n = 0;
    double a[MOST + 1][MOST + 1] = {{0}}, y[MOST + 1] = {0};
    for (int i = 0; i < p->K; i++)
        if (keep[i]) index[n++] = i;
    if (bias) index[n++] = p->K;
    for (int r = 0; r < ROWS; r++) {
        double lost = 0;
        for (int i = 0; i < p->K; i++)
            if (!keep[i]) lost += p->w[m][i] * input(p, r, i);
        for (int i = 0; i < n; i++) {
            y[i] += lost * input(p, r, index[i]);
            for (int j = 0; j < n; j++)
                a[i][j] += input(p, r, index[i]) * input(p, r, index[j]);
        }
    }
    for (int i = 0; i < n; i++) a[i][i] += index[i] == p->K ? 0 : lambda;
    solve(n, a, y);
    memset(change, 0, sizeof(double) * (MOST + 1));
    for (int i = 0; i < n; i++) change[index[i]] = y[i];
}

/* Sum over all rows of the squares of the outputs' change by other weights. */
static double true_square(const Problem *p, const double *w, const double *b) {
    double sum = 0;
    for (int r = 0; r < ROWS; r++)
        for (int m = 0; m < OUTPUTS; m++) {
            double change = b ? b[m] - p->b[m] : 0;
            for (int i = 0; i < p->K; i++)
                change += (w[m * p->K + i] - p->w[m][i]) * (double)p->x[r][i];
            sum += change * change;
        }
    return sum;
}

static void check_near(double found, double expected, double tolerance) {
    if (!(fabs(found - expected) <= tolerance * (1 + fabs(expected))))
        fail_msg("expected %.15g, found %.15g", expected, found);
}

/* ---- reconstruction ---- */

static void check_weights(const Problem *p, const bool *keep, bool bias, double lambda) {
    double change[MOST + 1];
    for (int m = 0; m < OUTPUTS; m++) {
        least_squares(p, m, keep, bias, lambda, change);
        for (int i = 0; i < p->K; i++)
            check_near(p->fit.weight[m * p->K + i], keep[i] ? p->w[m][i] + change[i] : 0,
                       1e-5);
        if (bias) check_near(p->fit.bias[m], p->b[m] + change[p->K], 1e-5);
    }
}

static double mean_diagonal(const Problem *p) {
    double sum = 0;
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < p->K; i++) sum += input(p, r, i) * input(p, r, i);
    return sum / p->K;
}

static void test_least_squares(void **state) {
    const bool keep[8] = {true, false, true, true, false, true, false, true};
    (void)state;
    for (int k = 0; k < 4; k++) {
        const bool bias = k % 2 == 0;
        const double damp = k < 2 ? 0 : 0.05;
        Problem p;
        FitErrors errors;
        double cut[OUTPUTS * 8], none[OUTPUTS * 8] = {0};
        problem_open(&p, 8);
        problem_fit(&p, bias, damp);
        for (int i = 0; i < OUTPUTS * 8; i++) cut[i] = keep[i % 8] ? p.fit.weight[i] : 0;
        assert_ok(reconstruct(&errors, &p.fit, keep, p.diag), p.diag);
        check_weights(&p, keep, bias, damp * mean_diagonal(&p));
        const double whole = true_square(&p, none, NULL);
        check_near(p.fit.whole, whole, 1e-5);
        check_near(errors.cut, sqrt(true_square(&p, cut, NULL) / whole), 1e-5);
        check_near(errors.error, sqrt(true_square(&p, p.fit.weight, p.fit.bias) / whole),
                   1e-5);
        assert_true(errors.error < errors.cut);
        problem_close(&p);
    }
}

/* Units that are sums of others lose nothing, although the others are dependent too. */
static void test_dependent(void **state) {
    const bool keep[8] = {true, true, true, true, true, false, false, true};
    (void)state;
    Problem p;
    FitErrors errors;
    problem_open(&p, 8);
    for (int r = 0; r < ROWS; r++) {
        p.x[r][4] = p.x[r][0] + p.x[r][1];
        p.x[r][5] = p.x[r][0] - p.x[r][2];
        p.x[r][6] = 2 * p.x[r][3] + 3; /* the mean takes up the 3 */
    }
    problem_fit(&p, true, 0);
    assert_ok(reconstruct(&errors, &p.fit, keep, p.diag), p.diag);
    assert_true(errors.cut > 0.1 && errors.error < 1e-5);
    const double left = true_square(&p, p.fit.weight, p.fit.bias);
    assert_true(left < 1e-9 * p.fit.whole);
    problem_close(&p);
}

/* Nothing goes, or what goes has no weight: no weight changes, whatever the damping. */
static void test_unchanged(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        Problem p;
        FitErrors errors;
        bool keep[8];
        problem_open(&p, 8);
        for (int i = 0; i < 8; i++) keep[i] = k == 0 || i != 5;
        for (int m = 0; m < OUTPUTS && k == 1; m++) p.w[m][5] = 0;
        problem_fit(&p, true, 0.1);
        assert_ok(reconstruct(&errors, &p.fit, keep, p.diag), p.diag);
        for (int m = 0; m < OUTPUTS; m++)
            assert_memory_equal(p.fit.weight + m * 8, p.w[m], 8 * sizeof(double));
        assert_memory_equal(p.fit.bias, p.b, sizeof p.b);
        assert_true(errors.cut == 0 && errors.error == 0);
        problem_close(&p);
    }
}

/* Inputs that are always 0, and data that are nothing else: finite weights. */
static void test_dead(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        Problem p;
        FitErrors errors;
        ObsRemoval removals[8];
        bool keep[8] = {true, true, false, true, true, true, true, false};
        problem_open(&p, 8);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < 8; i++)
                if (k == 1 || i == 2 || i == 4) p.x[r][i] = 0;
        problem_fit(&p, true, 0.01);
        assert_int_equal(gram_dead_count(&p.gram), k ? 8 : 2);
        assert_ok(obs_remove(removals, 8, &p.fit, 1, 8, 1, NULL, p.diag), p.diag);
        if (k == 0) assert_true(removals[0].unit == 4 && removals[1].unit == 2);
        assert_true(removals[0].cost == 0 && removals[1].cost == 0);
        assert_ok(reconstruct(&errors, &p.fit, keep, p.diag), p.diag);
        for (int i = 0; i < OUTPUTS * 8; i++) assert_true(isfinite(p.fit.weight[i]));
        assert_true(isfinite(errors.error));
        problem_close(&p);
    }
}

/* What the outputs should give beside what they give: any function of the row. */
static double wanted(const Problem *p, int r, int m) {
    return sin(1.0 + r * 0.7 + m) + 0.5 * (double)p->x[r][m] + 0.4;
}

/* The weights that follow it best, by normal equations over the rows. */
static void follow_squares(const Problem *p, int m, bool bias, double lambda,
                           double change[MOST + 1]) {
    const int n = p->K + bias;
    double a[MOST + 1][MOST + 1] = {{0}};
    memset(change, 0, sizeof(double) * (MOST + 1));
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < n; i++) {
            change[i] += wanted(p, r, m) * input(p, r, i);
            for (int j = 0; j < n; j++) a[i][j] += input(p, r, i) * input(p, r, j);
        }
    for (int i = 0; i < p->K; i++) a[i][i] += lambda;
    solve(n, a, change);
}

static void test_follow(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        const bool bias = k % 2 == 0;
        const double damp = k < 2 ? 0 : 0.05;
        Problem p;
        double cross[OUTPUTS * 8] = {0}, mean[OUTPUTS] = {0}, change[MOST + 1];
        problem_open(&p, 8);
        problem_fit(&p, bias, damp);
        for (int r = 0; r < ROWS; r++)
            for (int m = 0; m < OUTPUTS; m++) {
                mean[m] += wanted(&p, r, m) / ROWS;
                for (int i = 0; i < 8; i++)
                    cross[m * 8 + i] += wanted(&p, r, m) * input(&p, r, i);
            }
        assert_ok(fit_follow(&p.fit, cross, mean, p.diag), p.diag);
        for (int m = 0; m < OUTPUTS; m++) {
            follow_squares(&p, m, bias, damp * mean_diagonal(&p), change);
            for (int i = 0; i < 8; i++)
                check_near(p.fit.weight[m * 8 + i], p.w[m][i] + change[i], 1e-5);
            if (bias) check_near(p.fit.bias[m], p.b[m] + change[8], 1e-5);
        }
        problem_close(&p);
    }
}

/* ---- OBS ---- */

/* Least sum of squares with units removed, and lambda times the squares of the change of
 * all weights; over the whole. */
static double subset_cost(const Problem *p, const bool *gone, int width) {
    double sum = 0, change[MOST + 1], w[OUTPUTS * MOST], b[OUTPUTS];
    bool keep[MOST];
    for (int i = 0; i < p->K; i++) keep[i] = !gone[i / width];
    for (int m = 0; m < OUTPUTS; m++) {
        least_squares(p, m, keep, p->fit.bias, p->fit.lambda, change);
        b[m] = p->b[m] + change[p->K];
        for (int i = 0; i < p->K; i++) {
            w[m * p->K + i] = keep[i] ? p->w[m][i] + change[i] : 0;
            const double d = w[m * p->K + i] - p->w[m][i];
            sum += p->fit.lambda * d * d;
        }
    }
    return (sum + true_square(p, w, p->fit.bias ? b : NULL)) / p->fit.whole;
}

/* Every removal is the cheapest of all that are left, found by least squares for each of
 * them anew, and its cost is the difference that it makes. */
static void check_removals(const Problem *p, const ObsRemoval *removals, int units) {
    bool gone[MOST] = {false};
    double before = 0;
    for (int t = 0; t < units; t++) {
        double best = INFINITY;
        int64_t cheapest = -1;
        for (int u = 0; u < units; u++) {
            if (gone[u]) continue;
            gone[u] = true;
            const double cost = subset_cost(p, gone, p->K / units);
            gone[u] = false;
            if (cost >= best) continue;
            best = cost;
            cheapest = u;
        }
        assert_int_equal(removals[t].unit, cheapest);
        check_near(removals[t].cost, best - before, 1e-5);
        gone[cheapest] = true;
        before = best;
    }
}

static void test_obs(void **state) {
    (void)state;
    for (int k = 0; k < 8; k++) {
        const int width = k < 4 ? 1 : 3, units = 8;
        Problem p;
        ObsRemoval removals[8];
        problem_open(&p, units * width);
        problem_fit(&p, k % 2 == 0, k / 2 % 2 ? 0.02 : 0);
        assert_ok(obs_remove(removals, units, &p.fit, 1, units, 1 + k % 3, NULL, p.diag),
                  p.diag);
        check_removals(&p, removals, units);
        problem_close(&p);
    }
}

/* The costs of the removals so far are the true squared error, without damping. */
static void test_true_error(void **state) {
    (void)state;
    Problem p;
    FitErrors errors;
    ObsRemoval removals[5];
    bool keep[8] = {true, true, true, true, true, true, true, true};
    double sum = 0;
    problem_open(&p, 8);
    problem_fit(&p, true, 0);
    assert_ok(obs_remove(removals, 5, &p.fit, 1, 8, 1, NULL, p.diag), p.diag);
    for (int t = 0; t < 5; t++) {
        sum += removals[t].cost;
        keep[removals[t].unit] = false;
    }
    assert_ok(reconstruct(&errors, &p.fit, keep, p.diag), p.diag);
    check_near(sum, true_square(&p, p.fit.weight, p.fit.bias) / p.fit.whole, 1e-5);
    check_near(sqrt(sum), errors.error, 1e-5);
    problem_close(&p);
}

/* Two layers that lose the same units: costs are added. */
static void test_two_layers(void **state) {
    (void)state;
    Problem p;
    LinearFit fits[2];
    ObsRemoval one[8], two[8];
    problem_open(&p, 8);
    problem_fit(&p, true, 0.02);
    fits[0] = fits[1] = p.fit;
    assert_ok(obs_remove(one, 8, fits, 1, 8, 1, NULL, p.diag), p.diag);
    assert_ok(obs_remove(two, 8, fits, 2, 8, 1, NULL, p.diag), p.diag);
    for (int t = 0; t < 8; t++) {
        assert_int_equal(one[t].unit, two[t].unit);
        check_near(two[t].cost, 2 * one[t].cost, 1e-12);
    }
    problem_close(&p);
}

static bool stop(void *self) {
    (void)self;
    return true;
}

static void test_interrupted(void **state) {
    (void)state;
    Problem p;
    ObsRemoval removals[8];
    const Watch watch = {.cancelled = stop};
    problem_open(&p, 8);
    problem_fit(&p, true, 0.02);
    assert_int_equal(obs_remove(removals, 8, &p.fit, 1, 8, 1, &watch, p.diag),
                     STATUS_INTERRUPTED);
    problem_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_squares), cmocka_unit_test(test_dependent),
        cmocka_unit_test(test_unchanged),     cmocka_unit_test(test_dead),
        cmocka_unit_test(test_follow),        cmocka_unit_test(test_obs),
        cmocka_unit_test(test_true_error),    cmocka_unit_test(test_two_layers),
        cmocka_unit_test(test_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
