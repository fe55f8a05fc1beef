/* Buckets of relative positions against the published formula, evaluated here on its own,
 * and against a table recorded from a separate Python program of the same formula. */
#include "exec/ops/relative_position.h"
#include "tests/support/check.h"

#include <math.h>
#include <string.h>

enum { SIDE = 5, PATCHES = SIDE * SIDE, FARTHEST = SIDE - 1 };

/* Bucket by rows and columns apart, -4 .. 4 each. Computed in Python as
 *   rho(t) = round(t) if abs(t) <= 1.9 else
 *            copysign(min(3, round(1.9 + 1.9 * log(abs(t) / 1.9) / log(15.2 / 1.9))), t)
 *   bucket = (rho(dy) + 3) * 7 + rho(dx) + 3 */
static const int RECORDED[2 * FARTHEST + 1][2 * FARTHEST + 1] = {
    {0, 1, 1, 2, 3, 4, 5, 5, 6},          {7, 8, 8, 9, 10, 11, 12, 12, 13},
    {7, 8, 8, 9, 10, 11, 12, 12, 13},     {14, 15, 15, 16, 17, 18, 19, 19, 20},
    {21, 22, 22, 23, 24, 25, 26, 26, 27}, {28, 29, 29, 30, 31, 32, 33, 33, 34},
    {35, 36, 36, 37, 38, 39, 40, 40, 41}, {35, 36, 36, 37, 38, 39, 40, 40, 41},
    {42, 43, 43, 44, 45, 46, 47, 47, 48},
};

/* rho of the paper, in floating point. */
static double rho(double distance) {
    const double alpha = 1.9, beta = 3.8, gamma = 15.2, length = fabs(distance);
    if (length <= alpha) return round(distance);
    const double far =
        round(alpha + log(length / alpha) / log(gamma / alpha) * (beta - alpha));
    return copysign(fmin(far, 3), distance);
}

static int formula(int64_t dy, int64_t dx) {
    return (int)((rho((double)dy) + 3) * 7 + rho((double)dx) + 3);
}

static void test_steps(void **state) {
    (void)state;
    for (int64_t distance = -2000; distance <= 2000; distance++)
        assert_int_equal(REAL_FN(relative_step)(distance),
                         (int)rho((double)distance) + 3);
}

static void test_recorded_table(void **state) {
    (void)state;
    for (int64_t dy = -FARTHEST; dy <= FARTHEST; dy++)
        for (int64_t dx = -FARTHEST; dx <= FARTHEST; dx++)
            assert_int_equal(RECORDED[dy + FARTHEST][dx + FARTHEST], formula(dy, dx));
}

/* A grid of SIDE x SIDE after `skip` other tokens, with its work space. */
static RelativeGrid open_grid(int64_t skip, int32_t *step, REAL *sums) {
    const RelativeGrid grid = {SIDE, SIDE, skip, step, sums};
    REAL_FN(relative_prepare)(&grid);
    return grid;
}

/* Spreading the bucket numbers themselves shows every pair's bucket. */
static void test_spread(void **state) {
    (void)state;
    int32_t step[2 * SIDE];
    REAL sums[RELATIVE_STEPS * SIDE], number[RELATIVE_BUCKETS];
    for (int b = 0; b < RELATIVE_BUCKETS; b++) number[b] = (REAL)b;
    for (int64_t skip = 0; skip < 3; skip++) {
        const RelativeGrid grid = open_grid(skip, step, sums);
        for (int64_t i = 0; i < skip + PATCHES; i++) {
            REAL scores[PATCHES + 2] = {0};
            REAL_FN(relative_spread)(&grid, i, number, scores);
            for (int64_t j = 0; j < skip + PATCHES; j++) {
                const int64_t p = i - skip, q = j - skip;
                const int expected = p < 0 || q < 0
                                         ? 0
                                         : RECORDED[p / SIDE - q / SIDE + FARTHEST]
                                                   [p % SIDE - q % SIDE + FARTHEST];
                assert_int_equal((int)scores[j], expected);
            }
        }
    }
}

/* Collecting one key at a time shows which bucket it goes to. */
static void test_collect(void **state) {
    (void)state;
    int32_t step[2 * SIDE];
    REAL sums[RELATIVE_STEPS * SIDE];
    for (int64_t skip = 0; skip < 2; skip++) {
        const RelativeGrid grid = open_grid(skip, step, sums);
        for (int64_t i = 0; i < skip + PATCHES; i++)
            for (int64_t j = 0; j < skip + PATCHES; j++) {
                REAL scores[PATCHES + 1] = {0}, found[RELATIVE_BUCKETS];
                scores[j] = 1;
                memset(found, 0xff, sizeof found);
                REAL_FN(relative_collect)(&grid, i, scores, found);
                const int64_t p = i - skip, q = j - skip;
                const bool taken = p >= 0 && q >= 0;
                const int bucket =
                    taken ? formula(p / SIDE - q / SIDE, p % SIDE - q % SIDE) : -1;
                for (int b = 0; b < RELATIVE_BUCKETS; b++)
                    assert_true(found[b] == (b == bucket));
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_recorded_table),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_collect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
