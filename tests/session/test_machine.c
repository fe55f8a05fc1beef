/* Medians and quartiles of measurements; that there is a rate of every kind. */
#include "session/bench/machine.h"
#include "tests/support/check.h"

/* numpy.quantile of the same numbers: [1, 2, 4, 7, 11, 16] gives 2.5, 5.5, 10. */
static void quartiles(void **state) {
    (void)state;
    double values[] = {16, 1, 7, 2, 11, 4};
    const Rate rate = rate_of(values, 6);
    assert_float_equal(rate.median, 5.5, 1e-12);
    assert_float_equal(rate.low, 2.5, 1e-12);
    assert_float_equal(rate.high, 10, 1e-12);
    assert_int_equal(rate.count, 6);
    double one[] = {3};
    assert_float_equal(rate_of(one, 1).median, 3, 0);
    assert_float_equal(rate_of(one, 1).high, 3, 0);
    assert_int_equal(rate_of(one, 0).count, 0);
}

/* What is asked whether to stop, and says so at the second time. */
typedef struct Asked {
    int times;
} Asked;

static bool stop(void *self) {
    Asked *asked = self;
    return ++asked->times == 2;
}

/* Nothing goes on once it is to stop. */
static void interrupted(void **state) {
    (void)state;
    Asked asked = {0};
    Machine machine;
    Diag *diag = diag_create();
    const Watch watch = {.self = &asked, .cancelled = stop};
    const MachineOptions options = {.threads = 1, .seconds = 0.01, .watch = &watch};
    assert_int_equal(machine_measure(&machine, &options, diag), STATUS_INTERRUPTED);
    assert_int_equal(asked.times, 2);
    diag_destroy(diag);
}

/* Without a folder all but the disk is measured; with one thread, what is measured on all
 * is what was measured on one. */
static void kinds(void **state) {
    (void)state;
    Machine machine;
    Diag *diag = diag_create();
    const MachineOptions options = {.threads = 1, .seconds = 0.01};
    assert_int_equal(machine_measure(&machine, &options, diag), STATUS_OK);
    for (RateKind kind = 0; kind < RATE_KINDS; kind++) {
        const Rate *rate = &machine.alone[kind];
        const bool none = kind == RATE_MEETING || kind >= RATE_AGREE;
        if (kind == RATE_BF16) continue;
        assert_true(none ? rate->count == 0 : rate->count >= RATE_FEWEST);
        assert_memory_equal(rate, &machine.together[kind], sizeof *rate);
    }
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quartiles),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
