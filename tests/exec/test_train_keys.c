/* The keys that training fetches with: masking has one at every step, augmentation where
 * it is asked for, evaluation none. */
#include "tests/exec/train_fixture.h"

enum { STEPS = 8, CALLS = 64 };

/* What was fetched: by one thread. */
static Fetch seen[CALLS];
static int calls;

static Status record(const Batches *self, const Fetch *what, void *const *dst,
                     Diag *diag) {
    assert_true(calls < CALLS);
    seen[calls++] = *what;
    return toy_fetch(self, what, dst, diag);
}

static Status ignore(void *self, const Fetch *what, const float *const *values,
                     const void *const *columns, Diag *diag) {
    (void)self, (void)what, (void)values, (void)columns, (void)diag;
    return STATUS_OK;
}

/* Trains for two epochs. Samples of a step may be fetched more than once, and get the
 * same key then. */
static void check_training(bool augment) {
    Fixture f;
    TrainReport report;
    TrainOptions options = train_defaults;
    options.steps = STEPS, options.batch_size = SAMPLES / 4;
    options.shards = 1, options.micro_batch = SAMPLES / 4;
    options.augment = augment;
    model_open(&f, 0.1);
    f.toy.batches.fetch = record;
    calls = 0;
    assert_ok(run_training(&f, &options, 1, 1, &report), f.diag);
    int steps = 0;
    for (int i = 0; i < calls; i++) {
        assert_int_equal(seen[i].key != 0, augment);
        assert_true(seen[i].mask_key != 0);
        bool again = false;
        for (int j = 0; j < i; j++) again |= seen[i].mask_key == seen[j].mask_key;
        steps += !again;
    }
    assert_int_equal(steps, STEPS);
    calls = 0;
    assert_ok(forward_batches(f.graph, &f.logits, 1, &f.toy.batches, 0, 10, 1, NULL,
                              ignore, NULL, f.diag),
              f.diag);
    assert_int_equal(calls, SAMPLES / 10);
    for (int i = 0; i < calls; i++) assert_true(!seen[i].key && !seen[i].mask_key);
    model_close(&f);
}

static void test_keys(void **state) {
    (void)state;
    check_training(true);
    check_training(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
