/* Fronts and who stays, against what the definitions say of every pair, on random points,
 * and by hand where points are equal. */
#include "ir/random.h"
#include "session/search/pareto.h"
#include "tests/support/check.h"

enum { POINTS = 40 };

static bool beats(ParetoPoint a, ParetoPoint b) {
    return a.cost <= b.cost && a.worth >= b.worth &&
           (a.cost < b.cost || a.worth > b.worth);
}

/* The definition: a point's rank is the length of the longest chain of points, each
 * beating the next, that ends with it. */
static int longest_chain(const ParetoPoint *points, int count, int end) {
    int longest = 0;
    for (int i = 0; i < count; i++) {
        if (!beats(points[i], points[end])) continue;
        const int length = 1 + longest_chain(points, count, i);
        if (length > longest) longest = length;
    }
    return longest;
}

static void ranks_by_definition(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        ParetoPoint points[POINTS];
        int ranks[POINTS];
        for (int i = 0; i < POINTS; i++) /* of few values, so that many are equal */
            points[i] = (ParetoPoint){(double)(random_u64(seed, 2 * i) % 8),
                                      (double)(random_u64(seed, 2 * i + 1) % 8)};
        pareto_ranks(points, POINTS, ranks);
        for (int i = 0; i < POINTS; i++)
            assert_int_equal(ranks[i], longest_chain(points, POINTS, i));
    }
}

static void keeps_fronts_in_order(void **state) {
    (void)state;
    /* 1, 3, 4 are the front; 0 and 2 are behind it. */
    static const ParetoPoint POINTS_5[] = {{2, 1}, {1, 1}, {3, 2}, {2, 3}, {4, 9}};
    int chosen[5];
    assert_int_equal(pareto_select(POINTS_5, 5, 3, chosen), 3);
    assert_int_equal(chosen[0], 1);
    assert_int_equal(chosen[1], 3);
    assert_int_equal(chosen[2], 4);
    assert_int_equal(pareto_select(POINTS_5, 5, 9, chosen), 5);
    assert_int_equal(pareto_select(POINTS_5, 0, 3, chosen), 0);
}

/* Of one front the ends stay, then what is far from its neighbours. */
static void keeps_the_spread(void **state) {
    (void)state;
    static const ParetoPoint LINE[] = {{0, 0}, {1, 1}, {2, 2}, {7, 7}, {10, 10}};
    int chosen[5];
    assert_int_equal(pareto_select(LINE, 5, 3, chosen), 3);
    assert_int_equal(chosen[0], 0);
    assert_int_equal(chosen[1], 3);
    assert_int_equal(chosen[2], 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_by_definition),
                                       cmocka_unit_test(keeps_fronts_in_order),
                                       cmocka_unit_test(keeps_the_spread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
