/* All pairs of passes on a text classifier: see tests/support/composition.h. */
#include "tests/support/check.h"
#include "tests/support/composition.h"

static void test_pairs(void **state) {
    (void)state;
    composition_pairs(CLASSIFIES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests_name("composition: classes", tests, NULL, NULL);
}
