/* Ranking metrics against scikit-learn and SciPy: 200 random cases, recorded by
 * tests/data/metrics/make_rankings.py with twelve digits; and their ends. */
#include "io/files/json.h"
#include "passes/evaluate/ranking.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <stdlib.h>

enum { CASES = 200, MOST = 30 };

static double number_of(const Tree *value) {
    return value->kind == TREE_INT ? (double)value->integer : value->real;
}

/* `want` has twelve digits. */
static void expect(double got, const Tree *want) {
    assert_within(got, number_of(want), 1e-11);
}

static void check_case(const Tree *at) {
    double score[MOST];
    bool positive[MOST];
    int64_t n = 0;
    const Tree *p = tree_get(at, "positive")->first;
    for (const Tree *s = tree_get(at, "score")->first; s; s = s->next, p = p->next) {
        assert_true(n < MOST);
        score[n] = number_of(s);
        positive[n++] = p->integer == 1;
    }
    expect(ranking_average_precision(score, positive, n),
           tree_get(at, "average_precision"));
    expect(ranking_best_accuracy(score, positive, n), tree_get(at, "accuracy"));
    expect(ranking_best_f1(score, positive, n), tree_get(at, "f1"));
    assert_int_equal(ranking_place(score, n, tree_get(at, "match")->integer),
                     tree_get(at, "place")->integer);
}

static void test_cases(void **state) {
    (void)state;
    static const char PATH[] = "tests/data/metrics/rankings.jsonl";
    FILE *file = fopen(PATH, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t room = 0;
    int count = 0;
    for (ssize_t length; (length = getline(&line, &room, file)) > 0; count++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        Tree *at;
        assert_ok(
            json_parse_line(&at, arena, PATH, count + 1, line, (size_t)length, diag),
            diag);
        check_case(at);
        diag_destroy(diag);
        arena_destroy(arena);
    }
    assert_int_equal(count, CASES);
    free(line);
    fclose(file);
}

static void test_ends(void **state) {
    (void)state;
    const double equal[] = {1, 1, 1}, one[] = {0.5};
    const bool none[] = {false, false, false}, yes[] = {true};
    assert_true(ranking_average_precision(equal, none, 3) == 0);
    assert_true(ranking_best_f1(equal, none, 3) == 0);
    assert_true(ranking_best_accuracy(equal, none, 3) == 1);
    assert_true(ranking_average_precision(one, yes, 1) == 1);
    assert_true(ranking_best_f1(one, yes, 1) == 1);
    assert_int_equal(ranking_place(equal, 3, 0), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
