/* lstm against its equations, token by token and element by element. */
#include "exec/linalg/blas.h"
#include "tests/exec/grad_harness.h"

/* What one sample carries from token to token. */
typedef struct Memory {
    double *h, *c, *next;
} Memory;

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* Sum of gate `row` of [i, f, g, o] for one token x. */
static double gate_sum(const Problem *p, const double *x, const double *h, int64_t row) {
    const int64_t D = p->type[1].dim[1], H = p->type[2].dim[1];
    double sum = p->value[3][row];
    for (int64_t k = 0; k < D; k++) sum += p->value[1][row * D + k] * x[k];
    for (int64_t k = 0; k < H; k++) sum += p->value[2][row * H + k] * h[k];
    return sum;
}

static void next_token(const Problem *p, const double *x, Memory *m) {
    const int64_t H = p->type[2].dim[1];
    for (int64_t j = 0; j < H; j++) {
        const double i = sigmoid(gate_sum(p, x, m->h, j));
        const double f = sigmoid(gate_sum(p, x, m->h, H + j));
        const double g = tanh(gate_sum(p, x, m->h, 2 * H + j));
        const double o = sigmoid(gate_sum(p, x, m->h, 3 * H + j));
        m->c[j] = f * m->c[j] + i * g;
        m->next[j] = o * tanh(m->c[j]);
    }
    memcpy(m->h, m->next, (size_t)H * sizeof(double));
}

static void check_case(const char *operands) {
    Problem p;
    assert_ok(problem_create(&p, &(Case){"lstm", "", operands}), p.diag);
    const int64_t N = p.out.dim[0], T = p.out.dim[1], H = p.out.dim[2];
    const int64_t D = p.type[0].dim[2];
    Result got = execute(&p, (Mode){0});
    const double tolerance = value_tolerance(&p, false, 1); /* what tanh may be */
    for (int64_t n = 0; n < N; n++) {
        Memory m = {calloc((size_t)H, 8), calloc((size_t)H, 8), calloc((size_t)H, 8)};
        for (int64_t t = 0; t < T; t++) {
            next_token(&p, p.value[0] + (n * T + t) * D, &m);
            for (int64_t j = 0; j < H; j++)
                if (!(fabs(got.out[(n * T + t) * H + j] - m.h[j]) <= tolerance))
                    fail_msg("%s: sample %lld, token %lld", operands, (long long)n,
                             (long long)t);
        }
        free(m.h);
        free(m.c);
        free(m.next);
    }
    result_free(&got);
    problem_destroy(&p);
}

static void test_equations(void **state) {
    (void)state;
    check_case("2x5x3 16x3 16x4 16");
    check_case("3x1x4 8x4 8x2 8");
    check_case("1x40x7 132x7 132x33 132");
}

/* Sums far outside of what exp can take: gates are open or shut, nothing is NaN. */
static void test_extremes(void **state) {
    (void)state;
    Problem p;
    const Case c = {"lstm", "", "2x6x3 8x3 8x2 8"};
    assert_ok(problem_create(&p, &c), p.diag);
    for (int64_t j = 0; j < type_count(&p.type[0]); j++) p.value[0][j] *= 1e5;
    for (int single = 0; single < 2; single++) {
        Result got = execute(&p, (Mode){.single = single, .backward = true});
        for (int64_t j = 0; j < type_count(&p.out); j++)
            assert_true(fabs(got.out[j]) <= 1);
        for (int i = 0; i < p.count; i++)
            for (int64_t j = 0; j < type_count(&p.type[i]); j++)
                assert_true(isfinite(got.d_in[i][j]));
        result_free(&got);
    }
    problem_destroy(&p);
}

static void expect_refused(const char *operands, const char *message) {
    expect_invalid(&(Case){"lstm", "", operands}, message);
}

static void test_shapes(void **state) {
    (void)state;
    expect_refused("2x5x3 16x4 16x4 16", "operand 'weight_in'");
    expect_refused("2x5x3 18x3 18x4 18", "expected rows for four gates");
    expect_refused("2x5x3 16x3 16x3 16", "operand 'weight_state'");
    expect_refused("2x5x3 16x3 16x4 4", "operand 'bias'");
    expect_refused("5x3 16x3 16x4 16", "operand 'x'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equations),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_shapes),
    };
    blas_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
