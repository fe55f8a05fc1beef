/* Lanes: what fails is said once, the first by the order of samples, at any number of
 * threads, and nothing is run twice. The plan cache: bounded, and safe to share. */
#include "exec/run/dynamic.h"
#include "exec/run/lanes.h"
#include "exec/run/run.h"
#include "tests/exec/train_fixture.h"

#include <pthread.h>

enum { THREADS = 5, BAD = 37 };

/* A toy data set that counts what is fetched and breaks at some samples. */
typedef struct Broken {
    Toy toy;
    const int64_t *bad; /* ends with -1 */
    pthread_mutex_t lock;
    int fetched[SAMPLES];
} Broken;

static bool is_bad(const Broken *broken, int64_t sample) {
    for (int i = 0; broken->bad[i] >= 0; i++)
        if (broken->bad[i] == sample) return true;
    return false;
}

static Status broken_fetch(const Batches *self, const Fetch *what, void *const *dst,
                           Diag *diag) {
    Broken *broken = (Broken *)(uintptr_t)self;
    int64_t bad = -1;
    pthread_mutex_lock(&broken->lock);
    for (int64_t i = 0; i < what->n; i++) {
        broken->fetched[what->index[i]]++;
        if (bad < 0 && is_bad(broken, what->index[i])) bad = what->index[i];
    }
    pthread_mutex_unlock(&broken->lock);
    if (bad < 0) return toy_fetch(self, what, dst, diag);
    diag_fail(diag, STATUS_FORMAT, LOC_NONE, "broken", "sample %lld is torn",
              (long long)bad);
    diag_hint(diag, "mend it");
    return STATUS_FORMAT;
}

static void broken_open(Broken *broken, const int64_t *bad) {
    memset(broken, 0, sizeof *broken);
    toy_open(&broken->toy);
    broken->toy.batches.fetch = broken_fetch;
    broken->bad = bad;
    pthread_mutex_init(&broken->lock, NULL);
}

static void broken_close(Broken *broken) {
    pthread_mutex_destroy(&broken->lock);
}

static void check_fetched(const Broken *broken, int64_t sample) {
    for (int i = 0; i < SAMPLES; i++)
        if (broken->fetched[i] > 1) fail_msg("sample %d was fetched twice", i);
    assert_int_equal(broken->fetched[sample], 1);
}

static void check_said(Diag *diag) {
    char *text = diag_text(diag);
    assert_string_equal(text, "error: broken: sample 37 is torn\n    hint: mend it\n");
    assert_int_equal(diag_errors(diag), 1);
    assert_int_equal(diag_status(diag), STATUS_FORMAT);
    free(text);
    diag_clear(diag);
}

/* ---- runners ---- */

typedef struct Seen {
    int64_t samples;
} Seen;

static Status see(void *self, const Fetch *what, const float *const *values,
                  const void *const *columns, Diag *diag) {
    Seen *seen = self;
    (void)values, (void)columns, (void)diag;
    for (int64_t i = 0; i < what->n; i++)
        assert_int_equal(what->index[i], seen->samples + i);
    seen->samples += what->n;
    return STATUS_OK;
}

/* Two samples fail, in chunks that may run side by side: the later one is not heard of,
 * and the chunks before are delivered. */
static void test_forward(void **state) {
    static const int64_t BADS[] = {46, BAD, -1};
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) {
        Fixture f;
        Broken broken;
        Seen seen = {0};
        model_open(&f, 0);
        broken_open(&broken, BADS);
        assert_int_equal(forward_batches(f.graph, &f.logits, 1, &broken.toy.batches, 0, 8,
                                         threads, NULL, see, &seen, f.diag),
                         STATUS_FORMAT);
        assert_int_equal(seen.samples, 32);
        check_fetched(&broken, BAD);
        check_said(f.diag);
        broken_close(&broken);
        model_close(&f);
    }
}

/* The mini-batch of samples 0 to 99 in 5 shards; the order is a permutation. */
static void test_train(void **state) {
    static const int64_t BADS[] = {BAD, -1};
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) {
        Fixture f;
        Broken broken;
        TrainReport report;
        TrainOptions options = train_defaults;
        options.batch_size = SAMPLES, options.shards = 5, options.micro_batch = 4;
        options.epochs = 1;
        model_open(&f, 0);
        broken_open(&broken, BADS);
        assert_int_equal(train(f.graph, f.loss, f.parts, 2, &broken.toy.batches, &options,
                               7, threads, NULL, f.arena, &report, f.diag),
                         STATUS_FORMAT);
        check_fetched(&broken, BAD);
        check_said(f.diag);
        broken_close(&broken);
        model_close(&f);
    }
}

typedef struct Left {
    int64_t samples;
} Left;

static Status leave(void *self, const Fetch *what, const int *exit, const float *logits,
                    const void *const *columns, Diag *diag) {
    Left *left = self;
    (void)exit, (void)logits, (void)columns, (void)diag;
    left->samples += what->n;
    return STATUS_OK;
}

static void test_dynamic(void **state) {
    static const int64_t BADS[] = {BAD, 40, 99, -1};
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) {
        Fixture f;
        Broken broken;
        Left left = {0};
        DynamicReport report;
        const ExitRule never = {.criterion = EXIT_NEVER};
        model_open(&f, 0);
        broken_open(&broken, BADS);
        assert_int_equal(dynamic_batches(f.graph, &f.logits, 1, &never,
                                         &broken.toy.batches, 0, 8, threads, NULL, leave,
                                         &left, &report, f.diag),
                         STATUS_FORMAT);
        assert_int_equal(left.samples, 32);
        assert_int_equal(report.samples, 0);
        check_fetched(&broken, BAD);
        check_said(f.diag);
        broken_close(&broken);
        model_close(&f);
    }
}

/* ---- rounds ---- */

enum { ITEMS = 23 };

typedef struct Work {
    int done[ITEMS], lane[ITEMS];
    int fails; /* items from here on that are divisible by 3 */
    Lanes *lanes;
} Work;

static Status work_item(void *self, int64_t item, int lane, Diag *diag) {
    Work *work = self;
    work->done[item]++;
    work->lane[item] = lane;
    if (item < work->fails || item % 3 != 0) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL, "item %d", (int)item);
}

static void test_rounds(void **state) {
    (void)state;
    for (int threads = 0; threads <= ITEMS + 2; threads++) {
        Lanes *lanes = lanes_create(threads, ITEMS, NULL);
        Diag *diag = diag_create();
        const int count = lanes_count(lanes);
        assert_int_equal(count, threads < 1 ? 1 : threads < ITEMS ? threads : ITEMS);
        for (int fails = 7; fails < ITEMS + 3; fails += 5) { /* twice without a failure */
            Work work = {.fails = fails};
            const int first = (fails + 2) / 3 * 3;
            const bool fine = first >= ITEMS;
            assert_int_equal(lanes_run(lanes, ITEMS, work_item, &work, diag),
                             fine ? STATUS_OK : STATUS_MODEL);
            assert_int_equal(diag_errors(diag), fine ? 0 : 1);
            char *text = diag_text(diag), expected[32] = "";
            if (!fine) snprintf(expected, sizeof expected, "error: item %d\n", first);
            assert_string_equal(text, expected);
            free(text);
            diag_clear(diag);
            for (int i = 0; i < ITEMS; i++) {
                assert_true(work.done[i] <= 1 && work.lane[i] < count);
                if (i <= first) assert_int_equal(work.done[i], 1);
                if (i > 0 && work.done[i]) assert_true(work.lane[i] >= work.lane[i - 1]);
            }
        }
        Work few = {.fails = ITEMS};
        assert_ok(lanes_run(lanes, count, work_item, &few, diag), diag);
        for (int i = 0; i < count; i++) assert_int_equal(few.lane[i], i);
        assert_ok(lanes_run(lanes, 0, work_item, &few, diag), diag);
        diag_destroy(diag);
        lanes_destroy(lanes);
    }
}

static bool stop_at_once(void *self) {
    ++*(int *)self;
    return true;
}

static Status ask(void *self, int64_t item, int lane, Diag *diag) {
    Work *work = self;
    (void)diag;
    if (lane > 0) return STATUS_OK;
    work->done[item]++;
    return lanes_cancelled(work->lanes, lane) ? STATUS_INTERRUPTED : STATUS_OK;
}

/* Lane 0 alone asks; what it hears stays so, without a message. */
static void test_cancelled(void **state) {
    (void)state;
    int asked = 0;
    const Watch watch = {.self = &asked, .cancelled = stop_at_once};
    for (int threads = 1; threads <= THREADS; threads++) {
        Diag *diag = diag_create();
        Work work = {.lanes = lanes_create(threads, ITEMS, &watch)};
        asked = 0;
        assert_int_equal(lanes_run(work.lanes, ITEMS, ask, &work, diag),
                         STATUS_INTERRUPTED);
        assert_int_equal(asked, 1);
        assert_int_equal(work.done[0], 1);
        assert_int_equal(work.done[1], 0);
        assert_int_equal(diag_errors(diag), 0);
        assert_true(lanes_cancelled(work.lanes, 1));
        lanes_destroy(work.lanes);
        diag_destroy(diag);
    }
}

/* ---- plans ---- */

typedef struct Plans {
    PlanCache *cache;
    double flops[ITEMS];
} Plans;

static Status get_plan(void *self, int64_t item, int lane, Diag *diag) {
    Plans *plans = self;
    Plan *plan = NULL;
    (void)lane;
    TRY(plan_cache_get(plans->cache, 1 + item % 7, NULL, &plan, diag));
    plans->flops[item] = plan_flops(plan) / (double)plan_samples(plan);
    plan_destroy(plan);
    return STATUS_OK;
}

/* What does not fit goes, the plan used the longest time ago first; one that is made
 * again is the same. Whoever holds a plan keeps it. */
static void test_plan_cache(void **state) {
    (void)state;
    Fixture f;
    model_open(&f, 0);
    const PlanOptions options = {.results = &f.logits, .result_count = 1};
    Plan *plans[4], *again = NULL;
    PlanCache *cache = plan_cache_create(f.graph, NULL, &options, PLAN_CACHE_BYTES);
    assert_ok(plan_cache_get(cache, 1, NULL, &plans[0], f.diag), f.diag);
    const size_t one = plan_cache_bytes(cache);
    assert_true(one > sizeof(void *));
    plan_destroy(plans[0]);
    plan_cache_destroy(cache);

    cache = plan_cache_create(f.graph, NULL, &options, 2 * one + one / 2);
    for (int n = 0; n < 4; n++) {
        assert_ok(plan_cache_get(cache, 1 + n, NULL, &plans[n], f.diag), f.diag);
        if (n == 1) { /* 1 is used once more, so that 2 goes when 3 comes */
            assert_ok(plan_cache_get(cache, 1, NULL, &again, f.diag), f.diag);
            assert_ptr_equal(again, plans[0]);
            plan_destroy(again);
        }
        assert_int_equal(plan_cache_count(cache), n < 2 ? n + 1 : 2);
        assert_true(plan_cache_bytes(cache) <= 2 * one + one / 2);
        if (n != 2) continue;
        assert_ok(plan_cache_get(cache, 1, NULL, &again, f.diag), f.diag);
        assert_ptr_equal(again, plans[0]);
        plan_destroy(again);
    }
    assert_ok(plan_cache_get(cache, 2, NULL, &again, f.diag), f.diag);
    assert_ptr_not_equal(again, plans[1]);
    Text first = {0}, second = {0};
    plan_print(&first, plans[1]);
    plan_print(&second, again);
    assert_string_equal(first.data, second.data);
    text_free(&first);
    text_free(&second);
    plan_destroy(again);
    for (int n = 0; n < 4; n++) plan_destroy(plans[n]);
    plan_cache_destroy(cache);

    Plans shared = {.cache = plan_cache_create(f.graph, NULL, &options, 1)};
    Lanes *lanes = lanes_create(THREADS, ITEMS, NULL);
    assert_ok(lanes_run(lanes, ITEMS, get_plan, &shared, f.diag), f.diag);
    assert_int_equal(plan_cache_count(shared.cache), 1);
    for (int i = 0; i < ITEMS; i++)
        assert_true(shared.flops[i] > 0 && shared.flops[i] == shared.flops[0]);
    lanes_destroy(lanes);
    plan_cache_destroy(shared.cache);
    model_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),   cmocka_unit_test(test_train),
        cmocka_unit_test(test_dynamic),   cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_cancelled), cmocka_unit_test(test_plan_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
