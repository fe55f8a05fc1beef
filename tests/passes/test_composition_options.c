/* Pairs of structural passes with further options: tests/support/composition.h. */
#include "tests/support/check.h"
#include "tests/support/composition.h"

static void test_pairs(void **state) {
    (void)state;
    composition_variants(CLASSIFIES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests_name("composition: options", tests, NULL, NULL);
}
