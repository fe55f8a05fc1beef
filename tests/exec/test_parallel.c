/* Loops of parallel_for: every index once, in ranges; loops of several threads at once
 * have threads of their own, loops within a body none. */
#include "exec/run/parallel.h"
#include "tests/support/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { LOOPS = 3, THREADS = 3, ALL = LOOPS * THREADS };

static void count_index(void *self, int64_t i, int worker) {
    atomic_int *counts = self;
    (void)worker;
    atomic_fetch_add(&counts[i], 1);
}

static void test_ranges(void **state) {
    enum { MOST = 50 };
    (void)state;
    for (int threads = 1; threads <= 4; threads++)
        for (int64_t count = 0; count <= MOST; count += 5) {
            atomic_int counts[MOST] = {0};
            parallel_for(count, threads, count_index, counts);
            for (int i = 0; i < MOST; i++) assert_int_equal(counts[i], i < count);
        }
}

/* Every body waits for all bodies of all loops: without threads of its own one of the
 * loops would never end. */
typedef struct Meeting {
    pthread_barrier_t all;
    atomic_int bodies;
} Meeting;

static void meet_all(void *self, int64_t i, int worker) {
    Meeting *meeting = self;
    (void)i, (void)worker;
    pthread_barrier_wait(&meeting->all);
    atomic_fetch_add(&meeting->bodies, 1);
}

static void *run_loop(void *self) {
    parallel_for(THREADS, THREADS, meet_all, self);
    return NULL;
}

static void test_at_once(void **state) {
    enum { TIMES = 20 };
    Meeting meeting = {0};
    (void)state;
    pthread_barrier_init(&meeting.all, NULL, ALL);
    for (int time = 1; time <= TIMES; time++) {
        pthread_t threads[LOOPS];
        for (int i = 0; i < LOOPS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, run_loop, &meeting), 0);
        for (int i = 0; i < LOOPS; i++) pthread_join(threads[i], NULL);
        assert_int_equal(meeting.bodies, time * ALL);
    }
    pthread_barrier_destroy(&meeting.all);
}

typedef struct Within {
    pthread_t outer[THREADS];
    atomic_bool alone; /* so far each inner body ran on the thread of its outer one */
} Within;

static _Thread_local int64_t outer_index;

static void check_inner(void *self, int64_t i, int worker) {
    Within *within = self;
    (void)i;
    if (worker != 0 || !pthread_equal(pthread_self(), within->outer[outer_index]))
        atomic_store(&within->alone, false);
}

static void run_inner(void *self, int64_t i, int worker) {
    Within *within = self;
    (void)worker;
    within->outer[i] = pthread_self();
    outer_index = i;
    parallel_for(THREADS, THREADS, check_inner, within);
}

static void test_within(void **state) {
    Within within = {.alone = true};
    (void)state;
    for (int time = 0; time < 2; time++) /* the second finds nothing left over */
        parallel_for(THREADS, THREADS, run_inner, &within);
    assert_true(within.alone);
    assert_int_equal(parallel_reserve(THREADS), THREADS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_within),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
