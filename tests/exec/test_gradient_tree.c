/* The order in which gradients of shards are added: that of the tree, written down again
 * from the top; however the shards are dealt out; and with as few arrays as it allows. */
#include "exec/train/gradient_pool.h"
#include "ir/arena.h"
#include "ir/random.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 37, ELEMENTS = 53, FROM = 5, RANKS = 6 };

/* Numbers of many sizes, so that other orders come to other sums. */
static float value(int64_t shard, int64_t i) {
    const uint64_t at = (uint64_t)(shard * ELEMENTS + i);
    return (float)(random_normal(3, at) * exp2((double)(at * 7 % 23)));
}

static float *gradients[MOST];

static void fill(void) {
    for (int64_t s = 0; s < MOST; s++)
        for (int64_t i = 0; i < ELEMENTS; i++) gradients[s][i] = value(s, i);
}

/* The sum of shards [first, end): of the largest power of two fewer than all of them, and
 * of the others. */
static float sum(int64_t first, int64_t end, int64_t i) {
    int64_t half = 1;
    if (end - first == 1) return value(first, i);
    while (2 * half < end - first) half *= 2;
    const float left = sum(first, first + half, i), right = sum(first + half, end, i);
    return left + right;
}

static void check_sum(const float *got, int64_t shards) {
    for (int64_t i = 0; i < ELEMENTS; i++) {
        const bool added = i >= FROM && i < ELEMENTS - 1;
        const float want = added ? sum(0, shards, i) : value(0, i);
        if (memcmp(&got[i], &want, sizeof want) != 0)
            fail_msg("%d shards, element %d: %.9g, not %.9g", (int)shards, (int)i,
                     (double)got[i], (double)want);
    }
}

static void all_shards_are_added_as_the_tree_says(void **state) {
    (void)state;
    for (int64_t shards = 1; shards <= MOST; shards++) {
        fill();
        const ShardRange all = {0, shards, shards};
        gradient_tree_add(&all, gradients, FROM, ELEMENTS - 1 - FROM);
        check_sum(gradients[0], shards);
    }
}

static void few_shards_are_added_in_order(void **state) {
    (void)state;
    for (int64_t i = 0; i < ELEMENTS; i++) {
        const float two = value(0, i) + value(1, i), three = two + value(2, i);
        assert_true(sum(0, 2, i) == two);
        assert_true(sum(0, 3, i) == three);
    }
}

/* Every rank adds what it has alone, then what is left of all of them is added. Returns
 * how many gradients the first rank has left. */
static int64_t add_dealt(int64_t shards, const int64_t *ends, int ranks) {
    float *own[MOST] = {0}, *left[MOST] = {0};
    int64_t first = 0, firsts_left = 0;
    fill();
    for (int r = 0; r < ranks; r++) {
        const ShardRange range = {first, ends[r], shards};
        memset(own, 0, sizeof own);
        for (; first < ends[r]; first++) own[first] = gradients[first];
        gradient_tree_add(&range, own, FROM, ELEMENTS - 1 - FROM);
        for (int64_t s = range.first; s < range.end; s++)
            if (!gradient_tree_joins(&range, s)) {
                left[s] = gradients[s];
                firsts_left += r == 0;
            }
    }
    gradient_tree_add(&(ShardRange){0, shards, shards}, left, FROM, ELEMENTS - 1 - FROM);
    check_sum(gradients[0], shards);
    return firsts_left;
}

/* Shards cut at random places, some ranges being empty. */
static void dealt_shards_add_up_to_the_same(void **state) {
    (void)state;
    uint64_t at = 0;
    for (int64_t shards = 1; shards <= MOST; shards++)
        for (int ranks = 1; ranks <= RANKS; ranks++) {
            int64_t ends[RANKS], last = 0;
            for (int r = 0; r < ranks; r++) {
                const double share = random_uniform(9, at++);
                last += (int64_t)(share * (double)(shards - last + 1));
                ends[r] = last = r + 1 == ranks || last > shards ? shards : last;
            }
            add_dealt(shards, ends, ranks);
        }
}

/* A power of two for each rank, or as many as a power of two for the first ones: each of
 * them is left with one gradient, and sends no more than it must. */
static void even_shares_are_left_with_one_gradient(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= RANKS; ranks++)
        for (int64_t each = 1; each * ranks <= MOST; each *= 2) {
            int64_t ends[RANKS];
            for (int r = 0; r < ranks; r++) ends[r] = each * (r + 1);
            assert_int_equal(add_dealt(each * ranks, ends, ranks), 1);
        }
    const int64_t ends[] = {3, 6};
    assert_int_equal(add_dealt(6, ends, 2), 2);
}

/* ---- the pool ---- */

/* Takes an array for each of the lanes' shards, the last lane first, and fills it, as
 * `count` elements that repeat value(). */
static void run_lanes(GradientPool *pool, const ShardRange *own, int lanes, int64_t count,
                      Team *team) {
    const int64_t n = own->end - own->first;
    gradient_pool_begin(pool);
    for (int lane = lanes - 1; lane >= 0; lane--)
        for (int64_t i = n * lane / lanes; i < n * (lane + 1) / lanes; i++) {
            float *array = gradient_pool_take(pool, lane, own->first + i, team);
            for (int64_t k = 0; k < count; k++) {
                assert_true(array[k] == 0);
                array[k] = value(own->first + i, k % ELEMENTS);
            }
        }
}

/* The shards of all ranks, each with so many lanes; twice, as of two mini-batches. */
static void check_pools(int64_t shards, int ranks, int most_lanes, int64_t count,
                        Team *team) {
    float *left[MOST] = {0};
    GradientPool *pools[RANKS] = {0};
    Diag *diag = diag_create();
    for (int r = 0; r < ranks; r++) {
        const ShardRange own = {shards * r / ranks, shards * (r + 1) / ranks, shards};
        const int64_t n = own.end - own.first;
        const int lanes = n < 1 ? 1 : n < most_lanes ? (int)n : most_lanes;
        assert_ok(
            gradient_pool_create(&pools[r], &own, lanes, false, count, count + 3, diag),
            diag);
        for (int step = 0; step < 2; step++)
            run_lanes(pools[r], &own, lanes, count, team);
        for (int64_t s = own.first; s < own.end; s++)
            left[s] = gradient_pool_gradients(pools[r])[s];
        if (n > 0) assert_ptr_equal(gradient_pool_first(pools[r]), left[own.first]);
    }
    gradient_tree_add(&(ShardRange){0, shards, shards}, left, 0, count);
    for (int64_t i = 0; i < count; i++) {
        const float want = sum(0, shards, i % ELEMENTS);
        assert_memory_equal(&left[0][i], &want, sizeof want);
    }
    for (int r = 0; r < ranks; r++) gradient_pool_destroy(pools[r]);
    diag_destroy(diag);
}

static void pools_add_up_to_the_same(void **state) {
    (void)state;
    for (int64_t shards = 1; shards <= MOST; shards++)
        for (int ranks = 1; ranks <= 3; ranks++)
            for (int lanes = 1; lanes <= 5; lanes++)
                check_pools(shards, ranks, lanes, ELEMENTS, NULL);
    Diag *diag = diag_create();
    Team *team = NULL;
    assert_ok(team_create(&team, 3, diag), diag);
    check_pools(MOST, 1, 2, 3 * GRADIENT_BLOCK + 7, team);
    team_destroy(team);
    diag_destroy(diag);
}

/* As many arrays as a binary counter has digits. */
static void pools_are_small(void **state) {
    (void)state;
    for (int64_t shards = 1; shards <= 1024; shards++) {
        int64_t digits = 1;
        while ((int64_t)1 << digits <= shards) digits++;
        assert_int_equal(gradient_pool_count(&(ShardRange){0, shards, shards}, 1, false),
                         digits);
    }
    const ShardRange all = {0, 64, 64}, half = {32, 64, 64}, none = {3, 3, 3};
    assert_int_equal(gradient_pool_count(&all, 2, false), 2 * 6);
    assert_int_equal(gradient_pool_count(&all, 64, false), 64);
    assert_int_equal(gradient_pool_count(&half, 1, false), 6);
    assert_int_equal(gradient_pool_count(&none, 1, false), 1);
    assert_int_equal(gradient_pool_count(&half, 2, true), 32);
}

/* Apart, every shard has its own array from the beginning on, also one that never runs.
 */
static void pools_apart_keep_all(void **state) {
    const ShardRange own = {3, 8, 16};
    Diag *diag = diag_create();
    GradientPool *pool = NULL;
    (void)state;
    assert_ok(gradient_pool_create(&pool, &own, 2, true, 10, 12, diag), diag);
    gradient_pool_begin(pool);
    float **all = gradient_pool_gradients(pool);
    assert_ptr_equal(all[3], gradient_pool_first(pool));
    for (int64_t s = own.first; s < own.end; s++) {
        assert_non_null(all[s]);
        for (int64_t other = own.first; other < s; other++)
            assert_ptr_not_equal(all[other], all[s]);
        float *taken = gradient_pool_take(pool, s < 5 ? 0 : 1, s, NULL);
        assert_ptr_equal(taken, all[s]);
        taken[9] = 1;
    }
    for (int64_t s = own.first; s < own.end; s++) assert_float_equal(all[s][9], 1, 0);
    gradient_pool_destroy(pool);
    diag_destroy(diag);
}

static int open_gradients(void **state) {
    (void)state;
    for (int s = 0; s < MOST; s++) gradients[s] = memory_alloc(ELEMENTS, sizeof(float));
    return 0;
}

static int close_gradients(void **state) {
    (void)state;
    for (int s = 0; s < MOST; s++) free(gradients[s]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_shards_are_added_as_the_tree_says),
        cmocka_unit_test(few_shards_are_added_in_order),
        cmocka_unit_test(dealt_shards_add_up_to_the_same),
        cmocka_unit_test(even_shares_are_left_with_one_gradient),
        cmocka_unit_test(pools_add_up_to_the_same),
        cmocka_unit_test(pools_are_small),
        cmocka_unit_test(pools_apart_keep_all),
    };
    return cmocka_run_group_tests(tests, open_gradients, close_gradients);
}
