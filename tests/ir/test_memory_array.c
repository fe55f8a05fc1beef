/* Arrays that memory may not be there for: what is too much is an error, not the end. */
#include "ir/memory_array.h"

#include "tests/support/check.h"
#include "tests/support/starved.h"

#include <stdlib.h>
#include <string.h>

static void test_given(void **state) {
    static const size_t COUNTS[] = {0, 1, 1000};
    Diag *diag = diag_create();
    (void)state;
    for (size_t c = 0; c < sizeof COUNTS / sizeof *COUNTS; c++) {
        double *values;
        assert_ok(MEMORY_ARRAY(&values, COUNTS[c], "values", diag), diag);
        assert_non_null(values);
        for (size_t i = 0; i < COUNTS[c]; i++) assert_true(values[i] == 0);
        free(values);
    }
    diag_destroy(diag);
}

/* Products that wrap, to little or nothing, and those that no object can have. */
static void test_too_much(void **state) {
    static const struct {
        size_t count, size;
    } CASES[] = {{SIZE_MAX, 2},        {SIZE_MAX / 2 + 1, 2},
                 {SIZE_MAX, SIZE_MAX}, {(size_t)PTRDIFF_MAX + 1, 1},
                 {(size_t)1 << 62, 2}, {3, SIZE_MAX / 3}};
    (void)state;
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        Diag *diag = diag_create();
        char *bytes = (char *)diag;
        assert_int_equal(
            memory_array(&bytes, CASES[c].count, CASES[c].size, "the table", diag),
            STATUS_MEMORY);
        assert_null(bytes);
        assert_int_equal(diag_errors(diag), 1);
        char *said = diag_text(diag);
        assert_non_null(strstr(said, "error: the table: no memory for "));
        free(said);
        diag_destroy(diag);
    }
}

static Status take(void *self, Diag *diag) {
    double *values;
    const Status status = MEMORY_ARRAY(&values, *(const size_t *)self, "values", diag);
    free(values);
    return status;
}

static void test_starved(void **state) {
    size_t count = 1 << 20;
    (void)state;
    if (!can_starve()) skip();
    assert_starves(1 << 20, take, &count);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
