/* Conditioning of Gaussians against the textbook's formulas on the full covariance, and
 * against exact Bayesian linear regression. */
#include "tests/passes/gaussian_fixture.h"

/* Marks what slices set in the vector of all elements. */
static void mark_whole(const Graph *graph, const ConditionSlice *slices, int count,
                       bool *given, double *value) {
    for (int s = 0; s < count; s++) {
        int64_t first = 0;
        for (int i = 0; graph->storages[i] != slices[s].storage; i++)
            first += tensor_count(&graph->storages[i]->tensor);
        const Tensor *t = &slices[s].storage->tensor;
        int64_t inner = 1;
        for (int i = slices[s].axis + 1; slices[s].axis >= 0 && i < t->rank; i++)
            inner *= t->dim[i];
        for (int64_t e = 0; e < tensor_count(t); e++) {
            bool in = slices[s].axis < 0;
            for (int64_t k = 0; !in && k < slices[s].count; k++)
                in = e / inner % t->dim[slices[s].axis] == slices[s].index[k];
            if (!in) continue;
            given[first + e] = true;
            value[first + e] = slices[s].values ? slices[s].values[e] : slices[s].value;
        }
    }
}

/* Conditions the bench's graph and compares with the textbook. */
static ConditionReport expect_textbook(Bench *b, const ConditionSlice *slices,
                                       int count) {
    Whole wanted = whole_read(b->graph);
    bool *given = calloc((size_t)wanted.n, sizeof *given);
    double *value = calloc((size_t)wanted.n, sizeof *value);
    mark_whole(b->graph, slices, count, given, value);
    whole_condition(&wanted, given, value);
    ConditionReport report;
    const Condition condition = {.given = slices, .given_count = count};
    assert_ok(condition_gaussians(&b->ctx, b->graph, &condition, &report, b->diag),
              b->diag);
    Whole found = whole_read(b->graph);
    expect_equal(&found, &wanted, SOLVE_ROUNDING);
    whole_free(&found);
    whole_free(&wanted);
    free(given);
    free(value);
    return report;
}

static void test_low_rank(void **state) {
    (void)state;
    Bench b = bench_open();
    Storage *w = add_gaussian(&b, "w", 2, (int64_t[]){3, 4}, GAUSSIAN_LOW_RANK, 6);
    Storage *gain = add_gaussian(&b, "gain", 1, (int64_t[]){5}, GAUSSIAN_LOW_RANK, 6);
    Storage *t = add_gaussian(&b, "t", 3, (int64_t[]){2, 3, 2}, GAUSSIAN_LOW_RANK, 6);
    const ConditionSlice slices[] = {
        {.storage = w, .axis = 1, .index = (int64_t[]){1, 3}, .count = 2},
        {.storage = gain, .axis = 0, .index = (int64_t[]){2}, .count = 1, .value = 1},
        {.storage = t, .axis = 1, .index = (int64_t[]){0}, .count = 1, .value = -0.5}};
    const ConditionReport report = expect_textbook(&b, slices, 3);
    assert_int_equal(report.given, 6 + 1 + 4);
    assert_int_equal(report.kept, 12 + 5 + 12 - 11);
    assert_true(report.changed && report.moved > 0.01 && report.shrunk > 0.01);
    assert_true(report.jitter >= 0.05);
    bench_close(&b);
}

/* More elements than a block has, and than samples. */
static void test_blocks(void **state) {
    (void)state;
    Bench b = bench_open();
    Storage *w = add_gaussian(&b, "w", 2, (int64_t[]){20, 30}, GAUSSIAN_LOW_RANK, 5);
    add_gaussian(&b, "v", 1, (int64_t[]){9}, GAUSSIAN_LOW_RANK, 5);
    expect_textbook(
        &b,
        &(ConditionSlice){
            .storage = w, .axis = 0, .index = (int64_t[]){0, 7, 19}, .count = 3},
        1);
    bench_close(&b);
}

/* A whole storage tells the others something; set to the same values again, nothing. */
static void test_twice(void **state) {
    (void)state;
    Bench b = bench_open();
    Storage *w = add_gaussian(&b, "w", 2, (int64_t[]){4, 3}, GAUSSIAN_LOW_RANK, 3);
    add_gaussian(&b, "v", 1, (int64_t[]){6}, GAUSSIAN_LOW_RANK, 3);
    const ConditionSlice slice = {.storage = w, .axis = -1};
    assert_true(expect_textbook(&b, &slice, 1).changed);
    ConditionReport report;
    const Condition condition = {.given = &slice, .given_count = 1};
    assert_ok(condition_gaussians(&b.ctx, b.graph, &condition, &report, b.diag), b.diag);
    assert_false(report.changed);
    assert_true(report.moved == 0 && report.shrunk == 0);
    bench_close(&b);
}

static void test_diagonal_selects(void **state) {
    (void)state;
    Bench b = bench_open();
    Storage *w = add_gaussian(&b, "w", 2, (int64_t[]){3, 4}, GAUSSIAN_DIAGONAL, 0);
    add_gaussian(&b, "v", 1, (int64_t[]){6}, GAUSSIAN_DIAGONAL, 0);
    const ConditionSlice slice = {
        .storage = w, .axis = 0, .index = (int64_t[]){1}, .count = 1};
    Whole before = whole_read(b.graph);
    const ConditionReport report = expect_textbook(&b, &slice, 1);
    Whole after = whole_read(b.graph);
    for (int64_t i = 0; i < after.n; i++) {
        const bool given = i >= 4 && i < 8;
        assert_true(after.mean[i] == (given ? 0 : before.mean[i]));
        assert_true(after.covariance[i * after.n + i] ==
                    (given ? 0 : before.covariance[i * after.n + i]));
    }
    assert_false(report.changed);
    assert_true(report.moved == 0 && report.shrunk == 0 && report.jitter == 0);
    condition_record(&b.ctx, "prior", &report);
    const Tree *map = tree_get(b.ctx.record, "prior");
    assert_non_null(strstr(tree_get(map, "note")->string, "not correlated"));
    condition_record(&b.ctx, "none", &(ConditionReport){.kept = 6, .unknown = 12});
    assert_non_null(strstr(tree_get(tree_get(b.ctx.record, "none"), "note")->string,
                           "nothing that is set has a posterior"));
    whole_free(&before);
    whole_free(&after);
    bench_close(&b);
}

static void test_kron(void **state) {
    (void)state;
    double values[20];
    for (int i = 0; i < 20; i++) values[i] = draw(99, i);
    for (int what = 0; what < 4; what++) {
        Bench b = bench_open();
        Storage *w = add_gaussian(&b, "w", 2, (int64_t[]){4, 5}, GAUSSIAN_KRON, 0);
        const ConditionSlice columns = {.storage = w,
                                        .axis = 1,
                                        .index = (int64_t[]){0, 3},
                                        .count = 2,
                                        .values = what == 3 ? values : NULL};
        const ConditionSlice rows = {.storage = w,
                                     .axis = 0,
                                     .index = (int64_t[]){1, 2},
                                     .count = 2,
                                     .values = what == 3 ? values : NULL};
        const ConditionSlice both[] = {columns, rows};
        const ConditionReport report = what == 0   ? expect_textbook(&b, &columns, 1)
                                       : what == 1 ? expect_textbook(&b, &rows, 1)
                                                   : expect_textbook(&b, both, 2);
        assert_true(report.changed);
        bench_close(&b);
    }
}

/* Storages of form kron and diagonal stand beside those of form low_rank on their own. */
static void test_mixed(void **state) {
    (void)state;
    Bench b = bench_open();
    Storage *w = add_gaussian(&b, "w", 2, (int64_t[]){3, 4}, GAUSSIAN_KRON, 0);
    Storage *v = add_gaussian(&b, "v", 1, (int64_t[]){6}, GAUSSIAN_LOW_RANK, 2);
    Storage *u = add_gaussian(&b, "u", 1, (int64_t[]){3}, GAUSSIAN_DIAGONAL, 0);
    Storage *k = add_gaussian(&b, "k", 2, (int64_t[]){2, 2}, GAUSSIAN_KRON, 0);
    add_gaussian(&b, "x", 2, (int64_t[]){2, 3}, GAUSSIAN_LOW_RANK, 2);
    const ConditionSlice slices[] = {
        {.storage = w, .axis = 1, .index = (int64_t[]){2}, .count = 1},
        {.storage = v, .axis = 0, .index = (int64_t[]){0, 5}, .count = 2},
        {.storage = u, .axis = -1, .value = 1},
        {.storage = k, .axis = -1, .value = 0.25}};
    expect_textbook(&b, slices, 4);
    bench_close(&b);
}

/* What is removed is not counted as kept, and setting goes before removing. */
static void test_report(void **state) {
    (void)state;
    Bench b = bench_open();
    Storage *w = add_gaussian(&b, "w", 2, (int64_t[]){3, 4}, GAUSSIAN_LOW_RANK, 3);
    Storage *v = add_gaussian(&b, "v", 1, (int64_t[]){6}, GAUSSIAN_LOW_RANK, 3);
    Storage *bare = NULL;
    const Tensor shape = tensor_shape(DTYPE_F32, 1, (int64_t[]){8});
    assert_ok(graph_add_storage(&bare, b.graph, "bare", &shape, b.diag), b.diag);
    Gaussian *old = gaussian_copy(b.arena, v->gaussian);
    const Condition condition = {
        .given =
            (ConditionSlice[]){
                {.storage = w, .axis = 0, .index = (int64_t[]){0}, .count = 1},
                {.storage = bare, .axis = -1}},
        .given_count = 2,
        .removed = (ConditionSlice[]){{.storage = w, .axis = -1}},
        .removed_count = 1};
    ConditionReport report;
    assert_ok(condition_gaussians(&b.ctx, b.graph, &condition, &report, b.diag), b.diag);
    assert_int_equal(report.given, 4);
    assert_int_equal(report.removed, 8);
    assert_int_equal(report.kept, 6);
    assert_int_equal(report.unknown, 8);
    double moved = 0, norm = 0, left = 0, variance = 0;
    for (int64_t i = 0; i < 6; i++) {
        const double a = read_one(&old->mean, i), m = read_one(&v->gaussian->mean, i);
        double was, is;
        gaussian_variance_f64(old, i, 1, &was);
        gaussian_variance_f64(v->gaussian, i, 1, &is);
        moved += (m - a) * (m - a);
        norm += a * a;
        left += is;
        variance += was;
    }
    /* shares of sums of 6 squares; relative to 1 */
    const double share = rounding_tolerance(PRECISION_F64, 6 + FUNCTION_TERMS, 1);
    assert_within(report.moved, sqrt(moved / norm), share);
    assert_within(report.shrunk, 1 - left / variance, share);
    gaussian_release(old);
    bench_close(&b);
}

/* ---- Bayesian linear regression ---- */

enum { FEATURES = 5, ROWS = 12 };

/* The exact posterior of y = x w + e with w ~ N(0, I), e ~ N(0, s2), for the features
 * that `use` names: covariance (X^T X / s2 + I)^-1. */
static void regress(const double *x, const double *y, double s2, const int *use, int n,
                    double *mean, double *covariance) {
    double square[FEATURES * FEATURES], right[FEATURES * (FEATURES + 1)] = {0};
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            square[i * n + j] = i == j;
            right[i * (n + 1) + j] = i == j;
            for (int r = 0; r < ROWS; r++)
                square[i * n + j] +=
                    x[r * FEATURES + use[i]] * x[r * FEATURES + use[j]] / s2;
        }
        for (int r = 0; r < ROWS; r++)
            right[i * (n + 1) + n] += x[r * FEATURES + use[i]] * y[r] / s2;
    }
    solve_naive(n, square, n + 1, right);
    for (int i = 0; i < n; i++) {
        mean[i] = right[i * (n + 1) + n];
        for (int j = 0; j < n; j++) covariance[i * n + j] = right[i * (n + 1) + j];
    }
}

/* L with L L^T = A, all in the lower triangle; the rest zero. */
static void factorise(int n, const double *a, double *l) {
    memset(l, 0, (size_t)(n * n) * sizeof *l);
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double sum = a[i * n + j];
            for (int k = 0; k < j; k++) sum -= l[i * n + k] * l[j * n + k];
            assert_true(i != j || sum > 0);
            l[i * n + j] = i == j ? sqrt(sum) : sum / l[j * n + j];
        }
}

/* The posterior of a linear model, conditioned on two weights being zero, is the
 * posterior of the model without these features: the student's prior is the exact one,
 * and so is what it predicts. */
static void test_regression(void **state) {
    (void)state;
    static const int all[] = {0, 1, 2, 3, 4}, some[] = {0, 2, 3};
    const double s2 = 0.3, jitter = 1e-3;
    double x[ROWS * FEATURES], y[ROWS], mean[FEATURES], s[FEATURES * FEATURES];
    double wanted_mean[3], wanted[9], l[FEATURES * FEATURES];
    for (int i = 0; i < ROWS * FEATURES; i++) x[i] = draw(1, i);
    for (int i = 0; i < ROWS; i++) y[i] = draw(2, i) + x[i * FEATURES + 1];
    regress(x, y, s2, all, 5, mean, s);
    regress(x, y, s2, some, 3, wanted_mean, wanted);
    Bench b = bench_open();
    Storage *w = add_gaussian(&b, "w", 1, (int64_t[]){5}, GAUSSIAN_LOW_RANK, 5);
    for (int i = 0; i < FEATURES; i++) s[i * FEATURES + i] -= jitter;
    factorise(FEATURES, s, l);
    for (int i = 0; i < FEATURES; i++) {
        Gaussian *g = w->gaussian;
        assert_ok(tensor_write_f64(&g->mean, i, 1, &mean[i], b.diag), b.diag);
        assert_ok(tensor_write_f64(&g->diagonal, i, 1, &jitter, b.diag), b.diag);
        for (int k = 0; k < FEATURES; k++)
            assert_ok(tensor_write_f64(&g->factor, k * FEATURES + i, 1,
                                       &l[i * FEATURES + k], b.diag),
                      b.diag);
    }
    expect_textbook(
        &b, &(ConditionSlice){.storage = w, .index = (int64_t[]){1, 4}, .count = 2}, 1);
    Whole found = whole_read(b.graph);
    for (int r = 0; r < ROWS; r++) {
        double predicted = 0, spread = 0, exact = 0, exact_spread = 0;
        for (int i = 0; i < 3; i++) {
            const double xi = x[r * FEATURES + some[i]];
            predicted += xi * found.mean[some[i]];
            exact += xi * wanted_mean[i];
            for (int j = 0; j < 3; j++) {
                const double xj = x[r * FEATURES + some[j]];
                spread += xi * found.covariance[some[i] * FEATURES + some[j]] * xj;
                exact_spread += xi * wanted[i * 3 + j] * xj;
            }
        }
        assert_within(predicted, exact, SOLVE_ROUNDING);
        assert_within(spread, exact_spread, SOLVE_ROUNDING);
    }
    whole_free(&found);
    bench_close(&b);
}

/* ---- what is refused ---- */

static void expect_refused(Bench *b, const ConditionSlice *slice, const char *part) {
    Whole before = whole_read(b->graph);
    ConditionReport report;
    const Condition condition = {.given = slice, .given_count = 1};
    assert_int_equal(condition_gaussians(&b->ctx, b->graph, &condition, &report, b->diag),
                     STATUS_MODEL);
    char *text = diag_text(b->diag);
    if (!strstr(text, part)) fail_msg("expected \"%s\" in: %s", part, text);
    free(text);
    diag_clear(b->diag);
    Whole after = whole_read(b->graph);
    expect_equal(&after, &before, 0);
    whole_free(&before);
    whole_free(&after);
}

static void test_refused(void **state) {
    (void)state;
    const double zero = 0, negative = -1;
    Bench b = bench_open();
    Storage *k = add_gaussian(&b, "k", 2, (int64_t[]){3, 3}, GAUSSIAN_KRON, 0);
    Storage *w = add_gaussian(&b, "w", 2, (int64_t[]){3, 4}, GAUSSIAN_LOW_RANK, 3);
    Storage *t = add_gaussian(&b, "t", 2, (int64_t[]){2, 2}, GAUSSIAN_KRON, 0);
    const ConditionSlice row = {.storage = w, .index = (int64_t[]){1}, .count = 1};
    w->gaussian->origin = "another";
    expect_refused(&b, &row, "belongs to another model");
    w->gaussian->origin = ORIGIN;
    const double held = read_one(&w->gaussian->diagonal, 5);
    tensor_write_f64(&w->gaussian->diagonal, 5, 1, &zero, b.diag);
    expect_refused(&b, &row,
                   "'w': the covariance of the parameters to be set is "
                   "singular (form low_rank, jitter 0)");
    tensor_write_f64(&w->gaussian->diagonal, 5, 1, &negative, b.diag);
    expect_refused(&b, &row, "found a negative one");
    tensor_write_f64(&w->gaussian->diagonal, 5, 1, &held, b.diag);
    for (int i = 0; i < 4; i++) tensor_write_f64(&t->gaussian->row, i, 1, &zero, b.diag);
    const ConditionSlice first = {.storage = t, .index = (int64_t[]){0}, .count = 1};
    expect_refused(&b, &first,
                   "'t': the covariance of the parameters to be set is "
                   "singular (form kron");
    const ConditionSlice line = {.storage = k, .index = (int64_t[]){0}, .count = 1};
    const ConditionSlice two[] = {line, first};
    ConditionReport report;
    Whole before = whole_read(b.graph);
    const Condition condition = {.given = two, .given_count = 2};
    assert_int_equal(condition_gaussians(&b.ctx, b.graph, &condition, &report, b.diag),
                     STATUS_MODEL); /* the first one is put back */
    Whole after = whole_read(b.graph);
    expect_equal(&after, &before, 0);
    assert_string_equal(k->gaussian->origin, ORIGIN);
    whole_free(&before);
    whole_free(&after);
    bench_close(&b);
}

static void test_refused_shapes(void **state) {
    (void)state;
    Bench b = bench_open();
    Storage *v = add_gaussian(&b, "v", 1, (int64_t[]){3}, GAUSSIAN_LOW_RANK, 3);
    add_gaussian(&b, "w", 1, (int64_t[]){3}, GAUSSIAN_LOW_RANK, 3);
    const ConditionSlice one = {.storage = v, .index = (int64_t[]){1}, .count = 1};
    Gaussian *fits = v->gaussian;
    v->gaussian =
        make_gaussian(b.arena, GAUSSIAN_LOW_RANK, DTYPE_F64, &v->tensor, 4, 1, b.diag);
    ConditionReport report;
    const Condition condition = {.given = &one, .given_count = 1};
    assert_int_equal(condition_gaussians(&b.ctx, b.graph, &condition, &report, b.diag),
                     STATUS_MODEL); /* K differs */
    gaussian_release(v->gaussian);
    v->gaussian = fits;
    v->tensor.dim[0] = 4;
    assert_int_equal(condition_gaussians(&b.ctx, b.graph, &condition, &report, b.diag),
                     STATUS_MODEL); /* the shape does not fit */
    v->tensor.dim[0] = 3;
    graph_drop_gaussians(b.graph);
    assert_int_equal(condition_gaussians(&b.ctx, b.graph, &condition, &report, b.diag),
                     STATUS_MODEL); /* none */
    bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_low_rank), cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_twice),    cmocka_unit_test(test_diagonal_selects),
        cmocka_unit_test(test_kron),     cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_report),   cmocka_unit_test(test_regression),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_refused_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
