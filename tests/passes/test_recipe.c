/* Recipes: what binds, what is refused and where, the schema and the manual. */
#include "io/files/json.h"
#include "io/files/yaml.h"
#include "passes/pipeline/recipe.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

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
    Status read =
        yaml_parse(&document, bound->arena, "r.yaml", text, strlen(text), bound->diag);
    assert_int_equal(read, STATUS_OK);
    bound->status =
        recipe_bind(&bound->recipe, bound->arena, document, "r.yaml", ".", bound->diag);
    bound->messages = diag_text(bound->diag);
}

static void bound_free(Bound *bound) {
    free(bound->messages);
    diag_destroy(bound->diag);
    arena_destroy(bound->arena);
}

static void expect_message(const Bound *bound, const char *part) {
    if (strstr(bound->messages, part)) return;
    print_error("expected \"%s\" in:\n%s\n", part, bound->messages);
    fail();
}

/* Binds a text that must fail with `errors` errors, one of them holding `part`. */
static void expect_failure(const char *text, int errors, const char *part) {
    Bound bound;
    bind_text(&bound, text);
    expect_message(&bound, part);
    assert_int_equal(bound.status, STATUS_RECIPE);
    assert_int_equal(diag_errors(bound.diag), errors);
    bound_free(&bound);
}

static void test_good(void **state) {
    (void)state;
    Bound bound;
    bind_text(&bound, "version: 1\n"
                      "name: small\n"
                      "seed: 7\n"
                      "threads: 2\n"
                      "model: m.h5\n"
                      "data: {test: {format: idx}}\n"
                      "passes:\n"
                      "  - evaluate: {data: test, limit: 10}\n"
                      "    label: first\n"
                      "  - weight_multiplex:\n"
                      "    allow_unchanged: true\n"
                      "  - weight_multiplex\n"
                      "output: out.h5\n");
    assert_string_equal(bound.messages, "");
    assert_int_equal(bound.status, STATUS_OK);
    const Recipe *recipe = &bound.recipe;
    assert_int_equal(recipe->seed, 7);
    assert_int_equal(recipe->threads, 2);
    assert_int_equal(recipe->output->kind, TREE_STRING);
    assert_string_equal(recipe->output->string, "out.h5");
    assert_string_equal(recipe->model->string, "m.h5");
    assert_int_equal(recipe->step_count, 3);
    assert_string_equal(recipe->steps[0].pass->name, "evaluate");
    assert_string_equal(recipe->steps[0].label, "first");
    assert_false(recipe->steps[0].allow_unchanged);
    assert_true(recipe->steps[1].allow_unchanged);
    assert_string_equal(recipe->steps[2].source.key, "passes[2]");
    assert_int_equal(recipe->steps[2].source.at.line, 12);
    bound_free(&bound);
}

static void test_version(void **state) {
    (void)state;
    expect_failure("passes: [weight_multiplex]\n", 1, "version");
    expect_failure("version: 2\npasses: [weight_multiplex]\n", 1,
                   "r.yaml:1:10: error: version: expected version 1");
}

static void test_keys(void **state) {
    (void)state;
    expect_failure("version: 1\npases: []\npasses: [weight_multiplex]\n", 1, "passes");
    expect_failure("- 1\n", 1, "expected a map of recipe keys, found list");
    expect_failure("", 1, "expected a map of recipe keys");
    expect_failure("version: 1\n", 1,
                   "passes: expected a list of steps, found no such key");
    expect_failure("version: 1\nmodel: 3\npasses: [weight_multiplex]\n", 1,
                   "expected a path or a map, found integer");
    expect_failure("version: 1\ndata: [a]\npasses: [weight_multiplex]\n", 1,
                   "expected a map of data sets");
    expect_failure("version: 1\nseed: -1\npasses: [weight_multiplex]\n", 1, "seed");
}

static void test_steps(void **state) {
    (void)state;
    expect_failure("version: 1\npasses: [weight_multiplx]\n", 1,
                   "did you mean \"weight_multiplex\"?");
    expect_failure("version: 1\npasses:\n  - {}\n", 1, "r.yaml:3:5: error: passes[0]");
    expect_failure("version: 1\npasses:\n  - label: x\n", 1, "name of a pass");
    expect_failure("version: 1\npasses:\n  - 3\n", 1, "found integer");
    expect_failure("version: 1\npasses:\n  - weight_multiplex: {}\n    group: 2\n", 1,
                   "found \"weight_multiplex\" and \"group\"");
    expect_failure("version: 1\npasses:\n  - weight_multiplex: 3\n", 1,
                   "expected a map of options, found integer");
    expect_failure("version: 1\npasses:\n  - weight_multiplex: {}\n    label: 3\n", 1,
                   "passes[0].label");
    expect_failure("version: 1\npasses:\n  - evaluate\n", 1, "passes[0].evaluate");
}

static void test_data_names(void **state) {
    (void)state;
    expect_failure("version: 1\ndata: {test: {format: idx}}\n"
                   "passes:\n  - evaluate: {data: tset}\n",
                   1, "did you mean \"test\"?");
    expect_failure("version: 1\npasses:\n  - evaluate: {data: test}\n", 1,
                   "r.yaml:3:22: error: passes[0].evaluate.data: expected the name of a "
                   "data set, found \"test\"");
}

static void test_all_errors(void **state) {
    (void)state;
    Bound bound;
    bind_text(&bound, "version: 3\n"
                      "sed: 1\n"
                      "passes:\n"
                      "  - evaluate: {data: x, limit: -1, min: 3, max: 2}\n"
                      "  - nothing\n"
                      "  - weight_multiplex: {grup: 2}\n"
                      "    allow_unchanged: 7\n");
    assert_int_equal(bound.status, STATUS_RECIPE);
    assert_int_equal(diag_errors(bound.diag), 7);
    expect_message(&bound, "version: expected version 1");
    expect_message(&bound, "r.yaml:2:1: error: sed");
    expect_message(&bound, "passes[0].evaluate.limit");
    expect_message(&bound, "passes[0].evaluate.data");
    expect_message(&bound, "passes[1]: unknown pass \"nothing\"");
    expect_message(&bound, "passes[2].weight_multiplex.grup");
    expect_message(&bound, "passes[2].allow_unchanged");
    bound_free(&bound);
}

static void test_check(void **state) {
    (void)state;
    expect_failure("version: 1\ndata: {a: {format: idx}}\n"
                   "passes:\n  - evaluate: {data: a, min: 3, max: 2}\n",
                   1, "expected min <= max");
}

/* What "#/a/b" names in a document, NULL = nothing. */
static const Tree *resolve(Arena *arena, const Tree *root, const char *pointer) {
    char *rest = arena_strdup(arena, pointer);
    assert_string_equal(strsep(&rest, "/"), "#");
    for (char *name; root && (name = strsep(&rest, "/"));) root = tree_get(root, name);
    return root;
}

/* Number of "$ref" in a schema, each of which must name something. */
static int check_references(Arena *arena, const Tree *root, const Tree *tree) {
    int count = 0;
    if (tree->kind != TREE_LIST && tree->kind != TREE_MAP) return 0;
    for (const Tree *child = tree->first; child; child = child->next) {
        if (child->key && strcmp(child->key, "$ref") == 0) {
            if (!resolve(arena, root, child->string))
                fail_msg("the schema lacks %s", child->string);
            count++;
        }
        count += check_references(arena, root, child);
    }
    return count;
}

static bool lists(const Tree *names, const char *name) {
    for (const Tree *item = names->first; item; item = item->next)
        if (strcmp(item->string, name) == 0) return true;
    return false;
}

/* In a repeat a number may be a range, elsewhere and for other values not. */
static void check_repeat_schema(Arena *arena, const Tree *schema) {
    assert_true(check_references(arena, schema, schema) > 100);
    const Tree *repeat = tree_get(tree_get(schema, "$defs"), "repeat");
    const Tree *items = resolve(arena, tree_get(repeat, "allOf")->first->next,
                                "#/properties/passes/items/anyOf");
    bool found = false;
    for (const Tree *item = items->first; item; item = item->next) {
        const Tree *pass = resolve(arena, item, "#/properties/prune_ffn/anyOf");
        if (!pass) continue;
        const Tree *keep = resolve(arena, pass->last, "#/properties/keep/anyOf");
        const Tree *score = resolve(arena, pass->last, "#/properties/score/anyOf");
        assert_int_equal(keep->count, 2);
        assert_string_equal(tree_get(keep->first, "$ref")->string, "#/$defs/range");
        assert_int_equal(score->count, 1);
        found = true;
    }
    assert_true(found);
}

static void test_schema(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Text text = {0};
    Tree *tree = NULL;
    recipe_schema(&text);
    assert_int_equal(json_parse(&tree, arena, "schema", text.data, text.length, diag),
                     STATUS_OK);
    assert_non_null(tree_get(tree, "$schema"));
    check_repeat_schema(arena, tree);
    for (const Pass *const *pass = pass_list(); *pass; pass++)
        assert_non_null(strstr(text.data, (*pass)->name));
    /* A bare name is a step only where no option is required. */
    const Tree *steps =
        resolve(arena, tree_get(tree, "allOf")->last, "#/properties/passes/items/anyOf");
    const Tree *names = tree_get(steps->first, "enum");
    assert_non_null(names);
    assert_true(lists(names, "weight_multiplex"));
    assert_false(lists(names, "evaluate"));
    /* ${NAME} may stand for numbers and choices; texts hold it anyway. */
    const Tree *epochs = resolve(arena, tree, "#/$defs/finetune/properties/epochs");
    assert_true(tree_is_string(tree_get(tree_get(epochs, "anyOf")->last, "$ref"),
                               "#/$defs/variable"));
    const Tree *label = resolve(arena, tree, "#/$defs/step/properties/label");
    assert_null(tree_get(label, "anyOf"));
    text_free(&text);
    recipe_document(&text);
    assert_non_null(strstr(text.data, "allow_unchanged"));
    assert_non_null(strstr(text.data, "Keys of `repeat`"));
    text_free(&text);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_table(void **state) {
    (void)state;
    for (const Pass *const *pass = pass_list(); *pass; pass++) {
        assert_ptr_equal(pass_find((*pass)->name), *pass);
        assert_non_null((*pass)->summary);
        assert_non_null((*pass)->run);
        assert_non_null(exactness_name((*pass)->exactness));
    }
    assert_null(pass_find("no_such_pass"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),       cmocka_unit_test(test_version),
        cmocka_unit_test(test_keys),       cmocka_unit_test(test_steps),
        cmocka_unit_test(test_data_names), cmocka_unit_test(test_all_errors),
        cmocka_unit_test(test_check),      cmocka_unit_test(test_schema),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
