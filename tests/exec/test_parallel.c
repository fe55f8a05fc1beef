/* Loops of parallel_for: every index once, in ranges; loops of several threads at once
 * have threads of their own, loops within a body none. A thread without memory. */
#include "exec/linalg/onednn.h"
#include "exec/run/parallel.h"
#include "ir/sanitized.h"
#include "tests/support/check.h"
#include "tests/support/thread_sanitized.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Of the process, as far as the calling thread can have it. */
static void take_all_memory(void) {
    static void *volatile taken;
    setrlimit(RLIMIT_AS, &(struct rlimit){1, 1});
    for (size_t bytes = (size_t)1 << 24; bytes >= 16; bytes /= 2) do
            taken = malloc(bytes);
        while (taken);
}

/* The first that OpenMP hears of the thread. */
static void *run_alone(void *self) {
    take_all_memory();
    parallel_alone();
    return self;
}

static void end_without_memory(void) {
    pthread_t thread;
    onednn_has(ONEDNN_F32); /* which brings OpenMP along */
    parallel_alone();
    if (!freopen("/dev/null", "w", stderr)) _exit(1);
    if (pthread_create(&thread, NULL, run_alone, NULL) != 0) _exit(1);
    pthread_join(thread, NULL);
    _exit(0);
}

/* OpenMP would end the program with exit code 1. */
static void test_no_memory(void **state) {
    (void)state;
    if (SANITIZED || THREAD_SANITIZED) skip(); /* their memory has no such limit */
    int how;
    const pid_t child = fork();
    if (child == 0) end_without_memory();
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    if (WEXITSTATUS(how) == 0) skip(); /* no OpenMP, or it has one thread */
    assert_int_equal(WEXITSTATUS(how), status_exit_code(STATUS_MEMORY));
}

int main(void) {
    mallopt(M_ARENA_MAX, 1); /* so that one thread can take all memory */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_within),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
