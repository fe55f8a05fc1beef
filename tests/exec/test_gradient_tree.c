/* The order in which gradients of shards are added: that of the tree, written down again
 * from the top; and however the shards are dealt out. */
#include "exec/train/gradient_tree.h"
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
    };
    return cmocka_run_group_tests(tests, open_gradients, close_gradients);
}
