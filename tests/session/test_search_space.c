/* Search spaces: what ranges stand for, how many recipes there are, and that each of them
 * comes out once. */
#include "io/files/yaml.h"
#include "ir/random.h"
#include "session/search/search_space.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

typedef struct Bound {
    Arena *arena;
    Diag *diag;
    SearchSpace space;
    Status status;
} Bound;

static Bound bind(const char *yaml) {
    Bound b = {.arena = arena_create(), .diag = diag_create()};
    Tree *tree = NULL;
    assert_int_equal(yaml_parse(&tree, b.arena, "r.yaml", yaml, strlen(yaml), b.diag),
                     STATUS_OK);
    b.status = search_space_bind(&b.space, b.arena, tree, b.diag);
    return b;
}

static void release(Bound *b) {
    diag_destroy(b->diag);
    arena_destroy(b->arena);
}

/* All recipes of a space in the order of their numbers, as JSON. */
static void check_all(const char *yaml, const char *const *expected, uint64_t count) {
    Bound b = bind(yaml);
    assert_int_equal(b.status, STATUS_OK);
    assert_int_equal(b.space.size, count);
    for (uint64_t i = 0; i < count; i++) {
        Text json = {0};
        tree_print_json(&json, search_space_recipe(&b.space, b.arena, i, NULL), 0);
        assert_string_equal(json.data, expected[i]);
        text_free(&json);
    }
    release(&b);
}

static void recipes(void **state) {
    (void)state;
    static const char *const KEEPS[] = {"[{\"p\":{\"keep\":4}}]",
                                        "[{\"p\":{\"keep\":2}}]"};
    check_all("[p: {keep: {choose: [4, 2]}}]", KEEPS, 2);
    static const char *const WHOLE[] = {
        "[{\"p\":{\"a\":1,\"b\":5}}]", "[{\"p\":{\"a\":3,\"b\":5}}]",
        "[{\"p\":{\"a\":1,\"b\":6}}]", "[{\"p\":{\"a\":3,\"b\":6}}]"};
    check_all("[p: {a: {between: [1, 4], step: 2}, b: {between: [5, 6]}}]", WHOLE, 4);
    /* A choice may be no step, one, or several, with ranges of their own. */
    static const char *const STEPS[] = {"[\"z\"]", "[\"x\",\"z\"]",
                                        "[{\"p\":{\"k\":1}},\"y\",\"z\"]",
                                        "[{\"p\":{\"k\":2}},\"y\",\"z\"]"};
    check_all("[choose: [null, x, [p: {k: {choose: [1, 2]}}, y]], z]", STEPS, 4);
    static const char *const NONE[] = {"[\"x\",{\"p\":{\"from\":1}}]"};
    check_all("[x, p: {from: 1}]", NONE, 1);
}

/* 33 reals, the ends among them; logarithms evenly spread. */
static void reals(void **state) {
    (void)state;
    Bound b = bind("[p: {lr: {between: [1.0e-4, 1.0e-2], scale: log}}]");
    static const struct {
        uint64_t index;
        double value;
    } AT[] = {{0, 1e-4}, {16, 1e-3}, {32, 1e-2}};
    assert_int_equal(b.space.size, 33);
    for (int i = 0; i < 3; i++) {
        SearchChoice *choices;
        search_space_recipe(&b.space, b.arena, AT[i].index, &choices);
        assert_string_equal(choices->path, "[0].p.lr");
        assert_float_equal(choices->value->real, AT[i].value, 1e-15);
        assert_null(choices->next);
    }
    release(&b);
}

/* What is chosen within a choice is told with it, and only so. */
static void choices(void **state) {
    (void)state;
    Bound b = bind("[choose: [x, p: {k: {choose: [1, 2]}}], q: {a: {between: [5, 6]}}]");
    SearchChoice *first;
    Text json = {0};
    assert_int_equal(b.space.size, 6);
    search_space_recipe(&b.space, b.arena, 5, &first);
    tree_print_json(&json, first->value, 0);
    assert_string_equal(first->path, "[0]");
    assert_string_equal(json.data, "{\"p\":{\"k\":2}}");
    assert_string_equal(first->next->path, "[1].q.a");
    assert_int_equal(first->next->value->integer, 6);
    assert_null(first->next->next);
    text_free(&json);
    release(&b);
}

static void draws(void **state) {
    (void)state;
    Bound b = bind("[p: {a: {between: [1, 10]}, b: {choose: [1, 2]}}]");
    uint64_t all[32];
    bool seen[20] = {false};
    assert_int_equal(search_space_draw(&b.space, 7, all, 32), 20);
    for (int i = 0; i < 20; i++) {
        assert_true(all[i] < 20 && !seen[all[i]]);
        seen[all[i]] = true;
    }
    release(&b);
    b = bind("[p: {a: {between: [1, 1000000]}, b: {between: [1, 1000000]}}]");
    assert_int_equal(search_space_draw(&b.space, 7, all, 32), 32);
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < i; j++) assert_true(all[i] != all[j]);
    release(&b);
    /* 2^70 recipes are counted as the largest number, and can be drawn from. */
    b = bind("[p: {a: {between: [1, 1048576]}, b: {between: [1, 1048576]},"
             "     c: {between: [1, 1048576]}, d: {between: [1, 1024]}}]");
    assert_true(b.space.size == SEARCH_SPACE_MAX);
    assert_int_equal(search_space_draw(&b.space, 7, all, 4), 4);
    release(&b);
}

/* Share of the children of two recipes in which range `gene` has its value `value`, of
 * four ranges of eleven values. */
static double share_of(const SearchSpace *space, uint64_t mother, uint64_t father,
                       int gene, uint64_t value) {
    enum { CHILDREN = 20000 };
    int count = 0;
    for (uint64_t i = 0; i < CHILDREN; i++) {
        uint64_t child = search_space_child(space, random_key(5, i), mother, father);
        assert_true(child < space->size);
        for (int k = 0; k < gene; k++) child /= 11;
        count += child % 11 == value;
    }
    return (double)count / CHILDREN;
}

/* Of the four ranges each changes with probability 1/4; half of the changes are to a
 * neighbour of value 5, the others to any of the ten. At an end the one neighbour is
 * missing, and its quarter is to any, too. Standard errors are at most 0.0035. */
static void children(void **state) {
    (void)state;
    Bound b = bind("[p: {a: {between: [0, 10]}, b: {between: [0, 10]},"
                   "     c: {between: [0, 10]}, d: {between: [0, 10]}}]");
    const uint64_t middle = 5 * (1 + 11 + 121 + 1331), last = 10 * (1 + 11 + 121 + 1331);
    for (int gene = 0; gene < 4; gene++) {
        assert_float_equal(share_of(&b.space, middle, middle, gene, 5), 0.75, 0.012);
        assert_float_equal(share_of(&b.space, middle, middle, gene, 4),
                           0.25 * (0.25 + 0.5 / 10), 0.006);
        assert_float_equal(share_of(&b.space, middle, middle, gene, 0), 0.25 * 0.5 / 10,
                           0.004);
        const double either = 0.5 * 0.75 + 0.5 * 0.25 * 0.75 / 10;
        assert_float_equal(share_of(&b.space, 0, last, gene, 0), either, 0.012);
        assert_float_equal(share_of(&b.space, 0, last, gene, 10), either, 0.012);
    }
    release(&b);
    /* More recipes than numbers: the last range goes on as the mother's. */
    b = bind("[p: {a: {between: [1, 1048576]}, b: {between: [1, 1048576]},"
             "     c: {between: [1, 1048576]}, d: {between: [1, 1024]}}]");
    for (uint64_t i = 0; i < 100; i++) {
        const uint64_t child = search_space_child(&b.space, i, UINT64_C(3) << 60, 0);
        assert_int_equal(child >> 60, 3);
    }
    release(&b);
}

static void faults(void **state) {
    (void)state;
    static const struct {
        const char *yaml, *message;
    } CASES[] = {
        {"[p: {a: {choose: 3}}]",
         "r.yaml:1:18: error: [0].p.a.choose: expected a list of at least two values, "
         "found integer 3\n"},
        {"[p: {a: {choose: [1]}}]",
         "r.yaml:1:18: error: [0].p.a.choose: expected a list of at least two values, "
         "found list\n"},
        {"[{choose: [null, p: {a: 1}], label: l}]",
         "r.yaml:1:30: error: [0].label: expected nothing beside `choose`, found "
         "\"label\"\n"
         "    hint: a step has its options, `label` and `allow_unchanged` inside of the "
         "choice\n"},
        {"[p: {a: {between: [2, 1]}}]",
         "r.yaml:1:23: error: [0].p.a.between[1]: expected an end above the first, found "
         "integer 1\n"},
        {"[p: {a: {between: [1, x]}}]",
         "r.yaml:1:23: error: [0].p.a.between[1]: expected a number between -1e15 and "
         "1e15, found string \"x\"\n"},
        {"[p: {a: {between: [1, 4], scale: log}}]",
         "r.yaml:1:34: error: [0].p.a.scale: expected a scale between real numbers above "
         "0 alone, found string \"log\"\n"},
        {"[p: {a: {between: [0.5, 4], step: 2}}]",
         "r.yaml:1:35: error: [0].p.a.step: expected a step between whole numbers alone, "
         "found integer 2\n"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Bound b = bind(CASES[i].yaml);
        char *text = diag_text(b.diag);
        assert_int_equal(b.status, STATUS_RECIPE);
        assert_string_equal(text, CASES[i].message);
        free(text);
        release(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes), cmocka_unit_test(reals),    cmocka_unit_test(choices),
        cmocka_unit_test(draws),   cmocka_unit_test(children), cmocka_unit_test(faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
