/* Chains of passes, and that every pass has a row: see tests/support/composition.h. */
#include "passes/pass.h"
#include "tests/support/check.h"
#include "tests/support/composition.h"

#include <string.h>

static void test_chains(void **state) {
    (void)state;
    composition_chains();
}

/* Every pass has a row, in the order of passes.def. */
static void test_complete(void **state) {
    (void)state;
    const Pass *const *pass = pass_list();
    for (int i = 0; i < ROW_COUNT || pass[i]; i++)
        if (i == ROW_COUNT || !pass[i] || strcmp(pass[i]->name, ROWS[i].pass) != 0)
            fail_msg("tests/support/composition_data.h: expected a row of %s, found %s",
                     pass[i] ? pass[i]->name : "nothing",
                     i < ROW_COUNT ? ROWS[i].pass : "nothing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_chains),
    };
    return cmocka_run_group_tests_name("composition: chains", tests, NULL, NULL);
}
