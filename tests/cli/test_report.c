/* The report of a run: what steps timed, as text and as JSON. */
#include "cli/report_tables.h"
#include "exec/ops.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

/* A report of three steps: no times, three numbers, too many numbers. */
static RunReport make_report(Arena *arena, Step steps[3]) {
    RunReport report = {.arena = arena,
                        .start = {.parameters = 1000, .bytes = 4000, .flops = 1000}};
    const Pass *pass = pass_find("weight_multiplex");
    for (int i = 0; i < 3; i++) {
        steps[i] = (Step){.pass = pass, .options = (void *)(uintptr_t)pass->defaults};
        Tree *times = tree_new(arena, TREE_MAP, LOC_NONE);
        if (i == 1) {
            tree_put_real(arena, times, "full_seconds", 0.125);
            tree_put_int(arena, times, "repetitions", 7);
            tree_put_real(arena, times, "runs_per_second", 12345.6);
        }
        for (int k = 0; i == 2 && k < 7; k++)
            tree_put_real(arena, times, arena_printf(arena, "part_%d", k), k);
        const StepResult result = {
            .measure = {.parameters = 997, .bytes = 4000, .flops = 1004},
            .record = tree_new(arena, TREE_MAP, LOC_NONE),
            .times = times,
            .seconds = 1};
        const Recipe recipe = {.steps = steps, .step_count = 3};
        steps[1].label = "both";
        report_add(&report, &recipe, i, &result);
    }
    return report;
}

static void test_text(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Step steps[3];
    Session session = {.model = model_create(ops_table()),
                       .report = make_report(arena, steps)};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    report_print_result(&session, out);
    fclose(out);
    model_destroy(session.model);
    const char *line = strstr(text, "2 weight_multiplex (both):");
    assert_non_null(line);
    assert_string_equal(line,
                        "2 weight_multiplex (both): full_seconds 0.125, repetitions 7, "
                        "runs_per_second 12,346\n"
                        "no output was named: nothing is written\n");
    assert_null(strstr(text, "part_0"));
    assert_non_null(strstr(text, "997  0.3 % smaller\n"));
    assert_non_null(strstr(text, "4,000           same\n"));
    assert_non_null(strstr(text, "1.00 kFLOP   0.4 % larger\n"));
    free(text);
    arena_destroy(arena);
}

static void test_json(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Step steps[3];
    const RunReport report = make_report(arena, steps);
    for (int with = 0; with < 2; with++) {
        const Tree *list = report_steps(&report, with);
        const Tree *second = list->first->next, *third = second->next;
        assert_null(tree_get(list->first, "times"));
        const Tree *times = tree_get(second, "times");
        assert_int_equal(times != NULL, with);
        assert_int_equal(tree_get(third, "times") != NULL, with);
        if (!with) continue;
        assert_true(tree_get(times, "full_seconds")->real == 0.125);
        assert_int_equal(tree_get(third, "times")->count, 7);
    }
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
