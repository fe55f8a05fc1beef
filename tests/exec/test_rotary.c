/* rotary against products of complex numbers, and what it is for. */
#include "tests/exec/grad_harness.h"

#include <complex.h>

static Problem make_problem(const char *attrs, const char *operands) {
    Problem p;
    assert_ok(problem_create(&p, &(Case){"rotary", attrs, operands}), p.diag);
    return p;
}

/* Pair j of a head is the number x_j + i x_{j + d/2}, turned by e^{i a}. */
static void check_case(const char *attrs, const char *operands) {
    Problem p = make_problem(attrs, operands);
    const RotaryAttrs *a = p.node->attrs;
    const int64_t T = p.out.dim[1], D = p.out.dim[2], d = D / a->heads;
    Result single = execute(&p, (Mode){.single = true}), got = execute(&p, (Mode){0});
    for (int64_t e = 0; e < type_count(&p.out); e++) {
        const int64_t t = e / D % T, j = e % d % (d / 2);
        const int64_t low = e - e % d + j;
        const double angle =
            (double)(a->offset + t) * exp(-2 * (double)j / (double)d * log(a->theta));
        const double complex pair = p.value[0][low] + I * p.value[0][low + d / 2];
        const double complex z = pair * cexp(I * angle);
        const double want = e == low ? creal(z) : cimag(z);
        /* angles are doubles in both precisions: their rounding, to which the exponent
         * of theta adds its size, turns the pair */
        const double turned = rounding_tolerance(
            PRECISION_F64, FUNCTION_TERMS + log(a->theta), (1 + angle) * cabs(pair));
        assert_within(got.out[e], want, turned);
        assert_within(single.out[e], want,
                      turned + rounding_tolerance(PRECISION_F32, 4, cabs(pair)));
    }
    result_free(&single);
    result_free(&got);
    problem_destroy(&p);
}

static void test_complex_products(void **state) {
    (void)state;
    check_case("", "2x5x2");
    check_case("heads=3", "2x7x24");
    check_case("heads=2 theta=500000.0", "1x33x68");
    check_case("heads=2 offset=100000", "1x9x12"); /* float angles would be off by 1e-3 */
}

/* The product of a turned query and a turned key depends on their distance alone. */
static void test_relative(void **state) {
    (void)state;
    enum { T = 9, D = 8 };
    double first[T * T];
    for (int offset = 0; offset <= 700; offset += 700) {
        char attrs[32];
        snprintf(attrs, sizeof attrs, "offset=%d", offset);
        Problem p = make_problem(attrs, "2x9x8"); /* queries and keys as two samples */
        Result y = execute(&p, (Mode){0});
        for (int e = 0; e < T * T; e++) {
            double sum = 0, size = 0;
            for (int j = 0; j < D; j++) {
                const double term = y.out[e / T * D + j] * y.out[(T + e % T) * D + j];
                sum += term;
                size += fabs(term);
            }
            if (offset == 0) first[e] = sum;
            /* of angles as large as the last place */
            assert_within(sum, first[e],
                          rounding_tolerance(PRECISION_F64, FUNCTION_TERMS + D,
                                             (offset + T) * size));
        }
        result_free(&y);
        problem_destroy(&p);
    }
}

static void expect_refused(const char *attrs, const char *operands, const char *message) {
    expect_invalid(&(Case){"rotary", attrs, operands}, message);
}

static void test_refused(void **state) {
    (void)state;
    expect_refused("heads=3", "2x5x8", "expected a divisor of the width 8");
    expect_refused("heads=4", "2x5x12", "expected heads of an even width");
    expect_refused("theta=-1.0", "2x5x8", "theta: expected a number above 0");
    expect_refused("", "5x8", "operand 'x'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complex_products),
        cmocka_unit_test(test_relative),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
