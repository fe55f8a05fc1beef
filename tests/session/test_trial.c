/* What the report of a trial says: read from honest ones, and from whatever else may lie
 * at its path. */
#include "session/search/trial.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads `json` as a report; the arena is the caller's. */
static TrialResult read_report(Arena *arena, const char *json, const char *metric) {
    char path[] = "/tmp/report.XXXXXX";
    TrialResult result;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, json, strlen(json)), (ssize_t)strlen(json));
    close(file);
    trial_read(&result, arena, path, metric);
    unlink(path);
    return result;
}

static const char DONE[] =
    "{\"status\": \"done\", \"seconds\": 1.5, \"steps\": ["
    " {\"pass\": \"evaluate\", \"flops\": 100, \"parameters\": 7,"
    "  \"record\": {\"accuracy\": 90.0}},"
    " {\"pass\": \"prune_ffn\", \"flops\": 50, \"parameters\": 5, \"record\": {}},"
    " {\"pass\": \"evaluate\", \"flops\": 50, \"parameters\": 5,"
    "  \"record\": {\"loss\": 0.5, \"accuracy\": 80.5, \"flops_share\": 0.5}}]}";

static void takes_the_last(void **state) {
    (void)state;
    Arena *arena = arena_create();
    const TrialResult usual = read_report(arena, DONE, NULL);
    assert_int_equal(usual.status, TRIAL_DONE);
    assert_string_equal(usual.metric, "accuracy");
    assert_float_equal(usual.value, 80.5, 0);
    assert_float_equal(usual.flops, 25, 0); /* half of them, by its exits */
    assert_int_equal(usual.parameters, 5);
    assert_float_equal(usual.seconds, 1.5, 0);
    const TrialResult loss = read_report(arena, DONE, "loss");
    assert_string_equal(loss.metric, "loss");
    assert_float_equal(loss.value, 0.5, 0);
    static const char OPTION[] =
        "{\"status\": \"done\", \"steps\": [{\"pass\": \"evaluate\","
        " \"options\": {\"metric\": \"loss\"},"
        " \"record\": {\"loss\": 0.25, \"accuracy\": 80.5}}]}";
    assert_float_equal(read_report(arena, OPTION, NULL).value, 0.25, 0);
    const TrialResult other = read_report(arena, DONE, "bleu");
    assert_true(isnan(other.value));
    arena_destroy(arena);
}

static void ends(void **state) {
    (void)state;
    static const struct {
        const char *json;
        TrialStatus status;
        const char *message;
    } CASES[] = {
        {"{\"status\": \"gate\", \"error\": {\"message\": \"too low\"}}", TRIAL_GATE,
         "too low"},
        {"{\"status\": \"error\", \"error\": {\"message\": 3}}", TRIAL_FAILED, NULL},
        {"{\"status\": \"interrupted\"}", TRIAL_WAITS, NULL},
        {"{\"status\": [\"done\"]}", TRIAL_WAITS, NULL},
        {"{\"status\": \"done\", \"steps\": 3}", TRIAL_DONE, NULL},
        {"{\"status\": \"done\", \"steps\": [3, {\"pass\": 1, \"flops\": \"x\"},"
         " {\"pass\": \"evaluate\", \"record\": []}]}",
         TRIAL_DONE, NULL},
        {"[]", TRIAL_WAITS, NULL},
        {"{\"status\": ", TRIAL_WAITS, NULL},
        {"", TRIAL_WAITS, NULL},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Arena *arena = arena_create();
        const TrialResult result = read_report(arena, CASES[i].json, NULL);
        assert_int_equal(result.status, CASES[i].status);
        assert_true(isnan(result.value));
        if (CASES[i].message)
            assert_string_equal(result.message, CASES[i].message);
        else
            assert_null(result.message);
        arena_destroy(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(takes_the_last),
                                       cmocka_unit_test(ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
