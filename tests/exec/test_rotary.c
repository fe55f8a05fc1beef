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

/* What the published descriptions say of pair j of `pairs`, one by one. */
static double stretched(const RotaryAttrs *a, int64_t j, int64_t pairs) {
    const double turn = 2 * acos(-1), width = 2 * (double)pairs;
    const double plain = exp(-2 * (double)j / width * log(a->theta));
    if (a->scaling == ROTARY_LINEAR) return plain / a->factor;
    const double wave = turn / plain;
    if (a->scaling == ROTARY_LLAMA3) {
        if (wave > a->original / a->slow) return plain / a->factor;
        if (wave < a->original / a->fast) return plain;
        const double s = (a->original / wave - a->slow) / (a->fast - a->slow);
        return (1 - s) * plain / a->factor + s * plain;
    }
    double low = width * log(a->original / (a->fast * turn)) / (2 * log(a->theta));
    double high = width * log(a->original / (a->slow * turn)) / (2 * log(a->theta));
    if (a->whole) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, width - 1);
    const double ramp = fmin(fmax(((double)j - low) / (high - low), 0), 1);
    return plain / a->factor * ramp + plain * (1 - ramp);
}

/* Turned by stretched angles, or in part: products of complex numbers again. Returns how
 * many of the pairs have an angle of their own, neither the plain one nor all of it
 * stretched. */
static int check_stretched(const char *attrs, const char *operands) {
    Problem p = make_problem(attrs, operands);
    const RotaryAttrs *a = p.node->attrs;
    const int64_t T = p.out.dim[1], D = p.out.dim[2], d = D / a->heads;
    const int64_t r = a->turned ? a->turned : d;
    int mixed = 0;
    Result got = execute(&p, (Mode){0});
    for (int64_t e = 0; e < type_count(&p.out); e++) {
        const int64_t t = e / D % T, at = e % d, j = at % (r / 2), low = e - at + j;
        const double x = p.value[0][e];
        if (at >= r) {
            assert_true(got.out[e] == x);
            continue;
        }
        const double turn = a->scaling == ROTARY_PLAIN
                                ? exp(-2 * (double)j / (double)r * log(a->theta))
                                : stretched(a, j, r / 2);
        const double plain = exp(-2 * (double)j / (double)r * log(a->theta));
        mixed += e < r / 2 && turn < 0.999 * plain && turn > 1.001 * plain / a->factor;
        const double angle = (double)(a->offset + t) * turn;
        const double complex pair = p.value[0][low] + I * p.value[0][low + r / 2];
        const double complex z = a->amplitude * pair * cexp(I * angle);
        assert_within(got.out[e], at < r / 2 ? creal(z) : cimag(z),
                      rounding_tolerance(PRECISION_F64, 4 * FUNCTION_TERMS,
                                         (1 + angle) * cabs(pair) * a->amplitude));
    }
    result_free(&got);
    problem_destroy(&p);
    return mixed;
}

static void test_stretched(void **state) {
    (void)state;
    check_stretched("heads=2 turned=6", "2x5x20");
    check_stretched("heads=2 scaling=linear factor=3.0", "2x5x20");
    assert_true(check_stretched("scaling=llama3 factor=8.0 original=200.0 fast=4.0 "
                                "theta=1000.0",
                                "1x9x32") > 1);
    assert_true(check_stretched("scaling=yarn factor=4.0 original=200.0 amplitude=1.2",
                                "2x9x32") > 1);
    assert_true(
        check_stretched("scaling=yarn factor=4.0 original=200.0 slow=0.5 fast=9.0 "
                        "whole=false heads=2 turned=24 offset=11",
                        "1x9x80") > 1);
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
    expect_refused("heads=2 turned=6", "2x5x8", "turned: expected an even number");
    expect_refused("turned=3", "2x5x8", "turned: expected an even number");
    expect_refused("scaling=yarn factor=0.0", "2x5x8", "factor, original, amplitude");
    expect_refused("scaling=llama3 slow=4.0 fast=4.0", "2x5x8", "slow, fast");
    expect_refused("scaling=yarn theta=1.0", "2x5x8", "a number above 1 with yarn");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complex_products),
        cmocka_unit_test(test_relative),
        cmocka_unit_test(test_stretched),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
