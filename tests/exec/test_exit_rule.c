/* The rules for leaving at an exit, by closed forms and by hand. */
#include "exec/run/dynamic.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

static void test_entropy(void **state) {
    (void)state;
    const float even[] = {2, 2, 2, 2}, odd[] = {1, 1 + logf(3)};
    const float sure[] = {1000, 0, -1000}, half[] = {0, 0, -INFINITY};
    const double tolerance =
        rounding_tolerance(PRECISION_F64, 4 * FUNCTION_TERMS, log(4));
    assert_within(exit_entropy(even, 4), log(4), tolerance);
    const double closed = -0.25 * log(0.25) - 0.75 * log(0.75);
    /* a logit of about 2 is rounded; the entropy changes by less than it does */
    assert_within(exit_entropy(odd, 2), closed, rounding_tolerance(PRECISION_F32, 1, 2));
    assert_true(exit_entropy(sure, 3) == 0);
    assert_within(exit_entropy(half, 3), log(2), tolerance);
    assert_true(exit_entropy(even, 1) == 0);
}

static void test_entropy_leaves(void **state) {
    (void)state;
    const double threshold[] = {0.5, 0.6};
    const ExitRule rule = {.criterion = EXIT_ENTROPY, .threshold = threshold};
    const float z[] = {1, 1 + logf(3)}; /* entropy 0.5623 */
    ExitState nothing = {0};
    assert_false(exit_leaves(&rule, &nothing, 0, z, 2));
    assert_true(exit_leaves(&rule, &nothing, 1, z, 2));
    const float broken[] = {NAN, 0};
    assert_false(exit_leaves(&rule, &nothing, 1, broken, 2));
}

/* Exit at which a sample leaves whose exits predict these classes; -1 = none. */
static int leaves_at(int64_t patience, const int *predicted, int count) {
    const ExitRule rule = {.criterion = EXIT_PATIENCE, .patience = patience};
    ExitState memory = {0};
    for (int e = 0; e < count; e++) {
        float z[3] = {0};
        z[predicted[e]] = 1;
        if (exit_leaves(&rule, &memory, e, z, 3)) return e;
    }
    return -1;
}

static void test_patience(void **state) {
    (void)state;
    const int predicted[] = {1, 1, 2, 2, 2, 0};
    assert_int_equal(leaves_at(1, predicted, 6), 1);
    assert_int_equal(leaves_at(2, predicted, 6), 4);
    assert_int_equal(leaves_at(3, predicted, 6), -1);
    assert_int_equal(leaves_at(1, (int[]){0, 1, 0, 1}, 4), -1);
    assert_int_equal(leaves_at(1, (int[]){0, 0}, 2), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entropy),
        cmocka_unit_test(test_entropy_leaves),
        cmocka_unit_test(test_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
