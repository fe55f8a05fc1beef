/* What recipes are likely worth, against closed forms of kernel ridge regression. */
#include "io/files/yaml.h"
#include "session/search/forecast.h"
#include "tests/support/check.h"

#include <string.h>

/* A space of a range of 0 to 10 and a choice of three, in the arena. */
static SearchSpace make_space(Arena *arena) {
    static const char YAML[] = "[p: {a: {between: [0, 10]}, b: {choose: [x, y, z]}}]";
    Diag *diag = diag_create();
    Tree *tree = NULL;
    SearchSpace space;
    assert_int_equal(yaml_parse(&tree, arena, "r.yaml", YAML, strlen(YAML), diag),
                     STATUS_OK);
    assert_int_equal(search_space_bind(&space, arena, tree, diag), STATUS_OK);
    diag_destroy(diag);
    return space;
}

static void likeness(void **state) {
    (void)state;
    Arena *arena = arena_create();
    const SearchSpace space = make_space(arena);
    assert_float_equal(recipe_likeness(&space, 7, 7), 1, 0);
    assert_float_equal(recipe_likeness(&space, 0, 10), 0.5, 1e-15); /* the ends of a */
    assert_float_equal(recipe_likeness(&space, 0, 4), (0.5 * 0.6 + 1) / 2, 1e-15);
    assert_float_equal(recipe_likeness(&space, 0, 11), (1 + 0.25) / 2, 1e-15);
    assert_float_equal(recipe_likeness(&space, 0, 22), 0.5, 1e-15);
    assert_float_equal(recipe_likeness(&space, 0, 32), 0, 1e-15);
    arena_destroy(arena);
}

/* Two known ones of likeness l, worth m + h and m - h: (K + I) of [1, l; l, 1] has the
 * eigenvalue 2 - l for (h, -h). */
static void closed_form(void **state) {
    (void)state;
    Arena *arena = arena_create();
    const SearchSpace space = make_space(arena);
    static const uint64_t KNOWN[] = {3, 14};
    static const double WORTH[] = {81, 79};
    const uint64_t asked[] = {3, 14, 25};
    double foretold[3];
    const double l = recipe_likeness(&space, 3, 14);
    const double h = (1 - l) / (2 - l);
    const double rest =
        (recipe_likeness(&space, 25, 3) - recipe_likeness(&space, 25, 14)) / (2 - l);
    forecast(&space, KNOWN, WORTH, 2, asked, foretold, 3);
    assert_float_equal(foretold[0], 80 + h, 1e-12);
    assert_float_equal(foretold[1], 80 - h, 1e-12);
    assert_float_equal(foretold[2], 80 + rest, 1e-12);
    forecast(&space, KNOWN, WORTH, 1, asked, foretold, 3);
    for (int i = 0; i < 3; i++) assert_float_equal(foretold[i], 81, 0);
    forecast(&space, KNOWN, WORTH, 0, asked, foretold, 3);
    for (int i = 0; i < 3; i++) assert_float_equal(foretold[i], 0, 0);
    arena_destroy(arena);
}

/* What each range adds is found, also for recipes that never ran. */
static void adds_up(void **state) {
    (void)state;
    Arena *arena = arena_create();
    const SearchSpace space = make_space(arena);
    uint64_t known[16], asked[33];
    double worth[16], foretold[33];
    for (int i = 0; i < 16; i++) {
        known[i] = (uint64_t)(2 * i);
        worth[i] = (double)(known[i] % 11) - 5 * (double)(known[i] / 11 == 1);
    }
    for (int i = 0; i < 33; i++) asked[i] = (uint64_t)i;
    forecast(&space, known, worth, 16, asked, foretold, 33);
    for (int low = 0; low < 4; low++)
        for (int choice = 0; choice < 3; choice++)
            assert_true(foretold[11 * choice + low + 6] >
                        foretold[11 * choice + low] + 1);
    for (int i = 0; i < 11; i++) assert_true(foretold[11 + i] < foretold[i] - 1);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(likeness),
                                       cmocka_unit_test(closed_form),
                                       cmocka_unit_test(adds_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
