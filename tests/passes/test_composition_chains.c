/* Chains of passes, and that every pass has a row: see tests/support/composition.h. */
#include "tests/support/check.h"
#include "tests/support/composition.h"

static void test_chains(void **state) {
    (void)state;
    composition_chains();
}

/* Every pass has a row. */
static void test_complete(void **state) {
    (void)state;
    assert_true(composition_passes() > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_chains),
    };
    return cmocka_run_group_tests_name("composition: chains", tests, NULL, NULL);
}
