/* Repeats: what they are written out to, what is refused and where, and that a run gives
 * what the same steps written by hand give. */
#include "io/files/yaml.h"
#include "passes/pipeline/pipeline.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <stdlib.h>
#include <string.h>

#define HEAD "version: 1\nseed: 3\ndata: {toy: {format: toy}}\npasses:\n"

/* A recipe bound from text, with what was reported. */
typedef struct Bound {
    Arena *arena;
    Diag *diag;
    Recipe recipe;
    Status status;
    char *messages;
} Bound;

static void bind_text(Bound *bound, const char *text) {
    *bound = (Bound){.arena = arena_create(), .diag = diag_create()};
    Tree *document = NULL;
    assert_ok(
        yaml_parse(&document, bound->arena, "r.yaml", text, strlen(text), bound->diag),
        bound->diag);
    bound->status =
        recipe_bind(&bound->recipe, bound->arena, document, "r.yaml", ".", bound->diag);
    bound->messages = diag_text(bound->diag);
}

static void bound_free(Bound *bound) {
    free(bound->messages);
    diag_destroy(bound->diag);
    arena_destroy(bound->arena);
}

/* Value of an option of a bound step. */
static double option_of(const Step *step, const char *name) {
    const Field *field = field_find(step->pass->fields, name);
    const char *member = (const char *)step->options + field->offset;
    if (field->kind == FIELD_INT) return (double)*(const int64_t *)member;
    return *(const double *)member;
}

static void test_rounds(void **state) {
    (void)state;
    Bound bound;
    bind_text(&bound,
              HEAD "  - weight_multiplex\n"
                   "  - repeat:\n"
                   "      times: 3\n"
                   "      passes:\n"
                   "        - prune_ffn: {keep: {from: 32, to: 10}, score: magnitude}\n"
                   "          label: slim\n"
                   "        - finetune: {data: toy, lr: {from: 1, to: 0.25}}\n"
                   "  - evaluate: {data: toy}\n");
    assert_string_equal(bound.messages, "");
    const Step *steps = bound.recipe.steps;
    assert_int_equal(bound.recipe.step_count, 8);
    /* 32 - 22 t / 3 = 24.67, 17.33, 10; 1 - 0.75 t / 3. */
    static const int keep[] = {25, 17, 10};
    for (int round = 0; round < 3; round++) {
        const Step *slim = &steps[1 + 2 * round], *tune = slim + 1;
        char label[20], key[60];
        snprintf(label, sizeof label, "slim %d/3", round + 1);
        snprintf(key, sizeof key, "passes[1].repeat[%d].passes[1]", round);
        assert_string_equal(slim->pass->name, "prune_ffn");
        assert_string_equal(slim->label, label);
        assert_string_equal(tune->label, label + 5);
        assert_string_equal(tune->source.key, key);
        assert_int_equal(slim->source.at.line, 9);
        assert_int_equal(slim->round, round + 1);
        assert_int_equal(slim->rounds, 3);
        assert_int_equal(slim->stride, 2);
        assert_true(option_of(slim, "keep") == keep[round]);
        assert_within(option_of(tune, "lr"), 1 - 0.25 * (round + 1),
                      rounding_tolerance(PRECISION_F64, 4, 1));
    }
    assert_true(option_of(&steps[6], "lr") == 0.25);
    assert_string_equal(steps[7].source.key, "passes[2]");
    assert_int_equal(steps[7].rounds, 0);
    bound_free(&bound);
}

/* Values of `keep` in every round of a range. */
static void expect_keep(const char *range, int times, const int *want) {
    char text[400];
    Bound bound;
    snprintf(text, sizeof text,
             HEAD "  - repeat:\n      times: %d\n      passes:\n"
                  "        - prune_ffn: {keep: %s, score: magnitude}\n",
             times, range);
    bind_text(&bound, text);
    assert_string_equal(bound.messages, "");
    for (int i = 0; i < times; i++)
        assert_true(option_of(&bound.recipe.steps[i], "keep") == want[i]);
    bound_free(&bound);
}

static void test_numbers(void **state) {
    (void)state;
    expect_keep("{from: 12, to: 2}", 5, (int[]){10, 8, 6, 4, 2});
    expect_keep("{from: 1536, to: 256}", 3, (int[]){1109, 683, 256});
    expect_keep("{from: 1, to: 4}", 2, (int[]){3, 4}); /* 2.5 goes away from 0 */
    expect_keep("{from: 5, to: 5}", 3, (int[]){5, 5, 5});
    expect_keep("{to: 7, from: 3}", 1, (int[]){7});
    expect_keep("9", 2, (int[]){9, 9});
}

/* Binds a text that must give exactly these messages. */
static void expect_messages(const char *text, const char *messages) {
    Bound bound;
    bind_text(&bound, text);
    if (strcmp(bound.messages, messages))
        fail_msg("expected:\n%s\nfound:\n%s", messages, bound.messages);
    assert_int_equal(bound.status, STATUS_RECIPE);
    bound_free(&bound);
}

#define REPEAT(times, passes)                                                            \
    HEAD "  - repeat:\n      times: " times "\n      passes:\n" passes

static void test_misuse(void **state) {
    (void)state;
    expect_messages(HEAD "  - prune_ffn: {keep: {from: 3, to: 2}}\n",
                    "r.yaml:5:23: error: passes[0].prune_ffn.keep: expected one value: "
                    "{from: ..., to: ...} is for steps of a `repeat`\n");
    expect_messages(REPEAT("2", "        - prune_ffn: {keep: {from: a, to: 1.0e+300}}\n"),
                    "r.yaml:8:36: error: passes[0].repeat.passes[0].prune_ffn.keep.from: "
                    "expected a number between -1e15 and 1e15, found string \"a\"\n"
                    "r.yaml:8:43: error: passes[0].repeat.passes[0].prune_ffn.keep.to: "
                    "expected a number between -1e15 and 1e15, found float 1e+300\n");
    expect_messages(
        REPEAT("2", "        - prune_ffn: {keep: {from: 3, to: 2, by: 1}}\n"),
        "r.yaml:8:29: error: passes[0].repeat.passes[0].prune_ffn.keep: expected the "
        "two ends {from: a, to: b}, found {from, to, by}\n");
    expect_messages(REPEAT("2", "        - repeat: {times: 2, passes: [snapshot]}\n"),
                    "r.yaml:8:11: error: passes[0].repeat.passes[0]: expected a pass, "
                    "found a `repeat` inside of another\n");
    expect_messages(REPEAT("2", "        []\n"),
                    "r.yaml:8:9: error: passes[0].repeat.passes: expected a list of "
                    "steps, found an empty list\n");
    expect_messages(HEAD "  - repeat: 3\n",
                    "r.yaml:5:13: error: passes[0].repeat: expected map, found integer "
                    "3\n");
    expect_messages(REPEAT("2", "        - weight_multiplex\n    label: x\n"),
                    "r.yaml:9:5: error: passes[0].label: expected nothing beside "
                    "`repeat`, found \"label\"\n"
                    "    hint: `label` and `allow_unchanged` stand beside the passes of "
                    "a round\n");
}

/* Every mistake once, in the first round that has it; the round's number is told. */
static void test_mistakes_once(void **state) {
    (void)state;
    expect_messages(
        REPEAT("4", "        - prune_ffn: {keep: {from: 4, to: -4}, kep: 3}\n"
                    "        - evaluate: {data: tory}\n"
                    "        - evaluate: {data: toy, limit: {from: 6, to: -2}}\n"),
        "r.yaml:8:48: error: passes[0].repeat[0].passes[0].prune_ffn.kep: unknown key; "
        "did you mean \"keep\"?\n"
        "r.yaml:9:28: error: passes[0].repeat[0].passes[1].evaluate.data: expected the "
        "name of a data set, found \"tory\"\n"
        "    hint: did you mean \"toy\"?\n"
        "r.yaml:10:40: error: passes[0].repeat[3].passes[2].evaluate.limit: expected "
        "integer between 0 and 1000000000000, found integer -2\n"
        "    note: in round 4 of 4\n");
    /* A number of rounds that is wrong hides nothing else. */
    expect_messages(REPEAT("0", "        - weight_multiplx\n"),
                    "r.yaml:6:14: error: passes[0].repeat.times: expected integer "
                    "between 1 and 10000, found integer 0\n"
                    "r.yaml:8:11: error: passes[0].repeat[0].passes[0]: unknown pass "
                    "\"weight_multiplx\"\n"
                    "    hint: did you mean \"weight_multiplex\"?\n");
}

/* A short text must not grow to something that nobody can hold. */
static void test_bounds(void **state) {
    (void)state;
    expect_messages(REPEAT("5001", "        [snapshot: {name: a}, weight_multiplex]\n"),
                    "r.yaml:6:7: error: passes[0].repeat: expected at most 10000 steps "
                    "in all rounds, found 10002\n");
    char *text = malloc(120000);
    strcpy(text, HEAD "  - repeat:\n      times: 10000\n      passes:\n"
                      "        - weight_multiplex: {stack: ");
    size_t length = strlen(text);
    memset(text + length, 'x', 100000);
    strcpy(text + length + 100000, "}\n");
    Bound bound;
    bind_text(&bound, text);
    assert_non_null(strstr(bound.messages, "r.yaml:6:7: error: passes[0].repeat: "
                                           "expected rounds that take at most 67108864 "
                                           "bytes as text, found about 1"));
    assert_int_equal(diag_errors(bound.diag), 1);
    bound_free(&bound);
    text[0] = 0;
    for (int i = 0; i < 3; i++)
        strcat(text,
               i ? "  - repeat: {times: 4000, passes: [weight_multiplex]}\n" : HEAD);
    strcat(text, "  - repeat: {times: 2000, passes: [weight_multiplex]}\n");
    Bound full;
    bind_text(&full, text);
    assert_string_equal(full.messages, "");
    assert_int_equal(full.recipe.step_count, 10000);
    assert_string_equal(full.recipe.steps[9999].source.key,
                        "passes[2].repeat[1999].passes[0]");
    bound_free(&full);
    strcat(text, "  - weight_multiplex\n");
    expect_messages(text,
                    "r.yaml:5:3: error: passes: expected at most 10000 steps, found "
                    "10001\n");
    free(text);
}

/* Runs two recipes, which must leave the same model. */
static void expect_same(const char *a, const char *b, bool plan) {
    const char *const texts[] = {a, b};
    char hash[2][HASH_TEXT_BYTES];
    for (int i = 0; i < 2; i++) {
        Diag *diag = diag_create();
        Model *model = toy_vit(1);
        assert_ok(test_run_recipe(model, "r.yaml", texts[i], plan, 1, diag), diag);
        model_hash(model, hash[i]);
        model_destroy(model);
        diag_destroy(diag);
    }
    assert_string_equal(hash[0], hash[1]);
}

static void test_written_out(void **state) {
    (void)state;
    static const char repeated[] = HEAD
        "  - repeat:\n"
        "      times: 2\n"
        "      passes:\n"
        "        - importance: {data: toy, limit: 20}\n"
        "        - prune_ffn: {keep: {from: 32, to: 10}}\n"
        "        - finetune: {data: toy, steps: 2, batch_size: 10, lr: {from: 0.01, to: "
        "0.002}}\n";
    static const char by_hand[] =
        HEAD "  - importance: {data: toy, limit: 20}\n"
             "  - prune_ffn: {keep: 21}\n"
             "  - finetune: {data: toy, steps: 2, batch_size: 10, lr: 0.006}\n"
             "  - importance: {data: toy, limit: 20}\n"
             "  - prune_ffn: {keep: 10}\n"
             "  - finetune: {data: toy, steps: 2, batch_size: 10, lr: 0.002}\n";
    expect_same(repeated, by_hand, false);
    expect_same(repeated, by_hand, true);
}

/* A repeated step may rest in some rounds, not in all of them. */
static void test_unchanged(void **state) {
    (void)state;
    static const char rests[] = REPEAT(
        "4", "        - prune_heads: {keep: {from: 2, to: 1}, score: magnitude}\n");
    static const char never[] = REPEAT("3", "        - evaluate: {data: toy}\n"
                                            "        - prune_heads: {keep: 2, score: "
                                            "magnitude}\n");
    Diag *diag = diag_create();
    Model *model = toy_vit(1);
    assert_ok(test_run_recipe(model, "r.yaml", rests, false, 1, diag), diag);
    const Tree *steps = tree_get(model->provenance, "steps");
    assert_int_equal(steps->count, 4);
    assert_string_equal(tree_get(steps->last, "label")->string, "4/4");
    model_destroy(model);
    model = toy_vit(1);
    assert_int_equal(test_run_recipe(model, "r.yaml", never, false, 1, diag),
                     STATUS_RECIPE);
    char *messages = diag_text(diag);
    assert_string_equal(messages,
                        "r.yaml:9:11: error: passes[0].repeat[2].passes[1]: expected "
                        "prune_heads to change the model, it changed nothing in any "
                        "round\n"
                        "    hint: add `allow_unchanged: true` beside the pass if that "
                        "is fine\n"
                        "    note: in step 6 of 6, prune_heads (3/3)\n");
    free(messages);
    model_destroy(model);
    diag_destroy(diag);
}

/* No pass takes the name of the block. */
static void test_name(void **state) {
    (void)state;
    assert_null(pass_find("repeat"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds),    cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_misuse),    cmocka_unit_test(test_mistakes_once),
        cmocka_unit_test(test_bounds),    cmocka_unit_test(test_written_out),
        cmocka_unit_test(test_unchanged), cmocka_unit_test(test_name),
    };
    return cmocka_run_group_tests_name("repeat", tests, NULL, NULL);
}
