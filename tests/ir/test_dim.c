/* Dimensions: numbers, symbols and products, their text and their sizes. */
#include "ir/dim.h"
#include "tests/support/check.h"

#include <string.h>

static const int64_t SIZES[DIM_SYMBOLS] = {3, 5, 7, 2};

static int64_t parse(const char *text) {
    int64_t dim[RANK_MAX];
    int rank;
    assert_true(dims_parse(text, &rank, dim));
    assert_int_equal(rank, 1);
    return dim[0];
}

/* What a text is printed as, and the size that it has. */
static void test_products(void **state) {
    static const struct {
        const char *text, *printed;
        int64_t size;
    } ROWS[] = {{"0", "0", 0},        {"64", "64", 64},     {"N", "N", 3},
                {"M", "M", 2},        {"8*N", "8*N", 24},   {"N*8", "8*N", 24},
                {"T * N", "N*T", 15}, {"2*T*4", "8*T", 40}, {"N*N*N", "N*N*N", 27},
                {"1*S", "S", 7},      {"0*N", "0", 0},      {"N*T*S*M", "N*T*S*M", 210},
                {"3*4*5", "60", 60}};
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        char text[DIM_TEXT_BYTES];
        int64_t size;
        const int64_t dim = parse(ROWS[i].text);
        assert_string_equal(dim_text(text, dim), ROWS[i].printed);
        assert_int_equal(parse(text), dim);
        assert_true(dim_bind(dim, SIZES, &size));
        assert_int_equal(size, ROWS[i].size);
    }
    assert_int_equal(parse("T"), DIM_T);
}

static void test_parts(void **state) {
    (void)state;
    assert_int_equal(dim_number(12), 12);
    assert_int_equal(dim_number(DIM_T), 1);
    assert_int_equal(dim_number(parse("8*N*N*T")), 8);
    assert_int_equal(dim_power(12, DIM_N), 0);
    assert_int_equal(dim_power(DIM_T, DIM_T), 1);
    assert_int_equal(dim_power(parse("8*N*N*T"), DIM_N), 2);
    assert_int_equal(dim_power(parse("8*N*N*T"), DIM_S), 0);
}

static void test_shapes(void **state) {
    int64_t dim[RANK_MAX], product;
    int rank;
    (void)state;
    assert_true(dims_parse(" N,T , 12, 64 ", &rank, dim));
    assert_int_equal(rank, 4);
    assert_true(dims_product(rank, dim, &product));
    assert_int_equal(product, parse("768*N*T"));
    assert_true(dims_parse("", &rank, dim));
    assert_int_equal(rank, 0);
}

static void test_refused(void **state) {
    static const char *const TEXTS[] = {",",
                                        "N,",
                                        "N T",
                                        "8N",
                                        "-1",
                                        "n",
                                        "N*",
                                        "*N",
                                        "N**T",
                                        "N*N*N*N",
                                        "1,2,3,4,5,6,7",
                                        "9999999999999999999",
                                        "999999999999999999*N",
                                        "999999999*999999999*9999"};
    int64_t dim[RANK_MAX], size;
    int rank;
    (void)state;
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        if (dims_parse(TEXTS[i], &rank, dim)) fail_msg("'%s' was read", TEXTS[i]);
    assert_false(dim_bind(-100, SIZES, &size));
    assert_false(dim_bind(INT64_MIN, SIZES, &size));
    assert_false(dim_bind(DIM_T, (int64_t[DIM_SYMBOLS]){1}, &size));
    assert_false(dim_bind(parse("N*T"), (int64_t[]){INT64_MAX, 2, 1, 1}, &size));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("dim", tests, NULL, NULL);
}
