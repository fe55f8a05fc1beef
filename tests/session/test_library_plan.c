/* The library foretells what passes and recipes leave: sizes as after them, refusals as
 * of them, and a model that stays as it was. */
#include "session/compress.h"
#include "tests/session/library_fixture.h"

#include <stdlib.h>
#include <string.h>

/* The number under `key` of the n-th step, from 1, of a plan or report. */
static long long of_step(const char *json, int step, const char *key) {
    const char *at = strstr(json, "\"steps\"");
    for (int i = 0; i < step && at; i++) at = strstr(at + 1, "\"pass\": ");
    at = at ? strstr(at, key) : NULL;
    if (!at) fail_msg("step %d has no %s: %s", step, key, json);
    return strtoll(at + strlen(key), NULL, 10);
}

/* A plan foretells what the passes then leave, and changes nothing. */
static void test_plan(void **state) {
    static const char PASSES[] = "[remove_layer: {drop: [1]}, quantize: {dtype: int8}]";
    static const char *const keys[] = {"\"parameters\": ", "\"bytes\": ", "\"flops\": "};
    Use use;
    char *plan, *report;
    (void)state;
    use_open(&use);
    char *before = described(&use);
    assert_int_equal(compress_plan(use.context, use.model, PASSES, &plan), COMPRESS_OK);
    char *after = described(&use);
    assert_string_equal(before, after);
    assert_int_equal(compress_apply(use.context, use.model, PASSES, &report),
                     COMPRESS_OK);
    for (int step = 1; step <= 2; step++)
        for (int i = 0; i < 3; i++)
            assert_int_equal(of_step(plan, step, keys[i]),
                             of_step(report, step, keys[i]));
    assert_true(of_step(plan, 2, keys[1]) > 0);
    assert_non_null(strstr(plan, "\"memory_bytes\": "));
    compress_free_text(before);
    compress_free_text(after);
    compress_free_text(plan);
    compress_free_text(report);
    use_close(&use);
}

/* What a plan refuses; of a gate that will not hold it tells what is in front of it. */
static void test_plan_refused(void **state) {
    Use use;
    char *plan;
    (void)state;
    use_open(&use);
    assert_int_equal(
        compress_plan(use.context, use.model, "[remove_layer: {drop: [99]}]", &plan),
        COMPRESS_MODEL);
    assert_null(plan);
    assert_int_equal(compress_plan(use.context, use.model, "[prun: {}]", &plan),
                     COMPRESS_RECIPE);
    assert_said(&use, "passes:1:2: error: passes[0]: unknown pass");
    assert_int_equal(compress_plan(use.context, use.model,
                                   "[quantize: {dtype: int8}, gate: {max_bytes: 2}]",
                                   &plan),
                     COMPRESS_GATE);
    assert_true(of_step(plan, 1, "\"bytes\": ") > 1);
    compress_free_text(plan);
    assert_int_equal(compress_plan(use.context, NULL, "[]", &plan), COMPRESS_USAGE);
    assert_int_equal(compress_plan(use.context, use.model, NULL, &plan), COMPRESS_USAGE);
    assert_int_equal(compress_plan(use.context, use.model, "[]", NULL), COMPRESS_USAGE);
    assert_said(&use, "error: plan: expected one, found NULL");
    use_close(&use);
}

/* A recipe is planned from its file, with changes; nothing is written. */
static void test_plan_recipe(void **state) {
    static const char RECIPE[] = "recipes/oneshot_bert.yaml";
    static const char *const sets[] = {"model=../" BERT, "data={}",
                                       "passes=[quantize: {dtype: int8}]",
                                       "output=/nonexistent/small.h5"};
    Use use;
    char *plan, *direct;
    (void)state;
    use_open(&use);
    if (compress_plan_recipe(use.context, RECIPE, sets, 4, &plan) != COMPRESS_OK)
        fail_msg("%s", compress_messages(use.context));
    assert_int_equal(
        compress_plan(use.context, use.model, "[quantize: {dtype: int8}]", &direct),
        COMPRESS_OK);
    assert_int_equal(of_step(plan, 1, "\"bytes\": "), of_step(direct, 1, "\"bytes\": "));
    compress_free_text(plan);
    compress_free_text(direct);
    assert_int_equal(
        compress_plan_recipe(use.context, "recipes/absent.yaml", NULL, 0, &plan),
        COMPRESS_IO);
    assert_null(plan);
    assert_int_equal(compress_plan_recipe(use.context, NULL, NULL, 0, &plan),
                     COMPRESS_USAGE);
    assert_int_equal(compress_plan_recipe(use.context, RECIPE, NULL, 0, NULL),
                     COMPRESS_USAGE);
    use_close(&use);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_plan_refused),
        cmocka_unit_test(test_plan_recipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
