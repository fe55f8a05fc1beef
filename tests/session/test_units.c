/* Numbers with units: what people read, and sizes that they write. */
#include "session/units.h"
#include "tests/support/check.h"

static void test_sizes(void **state) {
    (void)state;
    int64_t bytes = 0;
    assert_true(size_parse("1", &bytes) && bytes == 1);
    assert_true(size_parse("500M", &bytes) && bytes == 500LL << 20);
    assert_true(size_parse("1.5G", &bytes) && bytes == 3LL << 29);
    assert_true(size_parse("2T", &bytes) && bytes == 2LL << 40);
    assert_true(size_parse("80MiB", &bytes) && bytes == 80LL << 20);
    assert_true(size_parse("60MB", &bytes) && bytes == 60000000);
    static const char *const wrong[] = {"",     "G", "-1", "1GG", "1 G", "nan",  "inf",
                                        "1e30", "x", "1B", "1iB", "1Mi", "1MBB", "1MBiB"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(size_parse(wrong[i], &bytes));
}

static void test_texts(void **state) {
    (void)state;
    Arena *arena = arena_create();
    assert_string_equal(text_grouped(arena, -1234567), "-1,234,567");
    assert_string_equal(text_grouped(arena, 999), "999");
    assert_string_equal(text_size(arena, 1023), "1023 B");
    assert_string_equal(text_size(arena, 1268777), "1.21 MiB");
    assert_string_equal(text_flops(arena, 999999), "1.00 MFLOP");
    assert_string_equal(text_seconds(arena, 0.416), "0.42 s");
    assert_string_equal(text_seconds(arena, 187), "3:07");
    assert_string_equal(text_seconds(arena, 3723), "1:02:03");
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
