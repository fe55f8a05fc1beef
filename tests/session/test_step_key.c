/* Keys of steps: every part of what a step depends on changes its key, and nothing else
 * does; what differs is told. */
#include "session/reuse/step_key.h"

#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char RECIPE[] =
    "version: 1\nseed: 3\nthreads: 1\n"
    "model: {model_type: vit, image_size: 8, patch_size: 4, num_channels: 1, hidden_size: 8,\n"
    "        num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 16, num_labels: "
    "2}\n"
    "data:\n"
    "  train: {format: idx, images: images.idx, labels: labels.idx}\n"
    "  test: {format: idx, images: images.idx, labels: labels.idx, limit: 20}\n"
    "passes:\n"
    "  - snapshot: {name: start}\n"
    "  - evaluate: {data: test}\n"
    "    label: before\n"
    "  - prune_ffn: {keep: 8, score: magnitude}\n"
    "  - distill: {data: train, steps: 3, teacher: \"snapshot:start\"}\n"
    "  - distill: {data: train, steps: 3}\n"
    "  - evaluate: {data: test, max_drop: 100}\n";

enum { PRUNE = 2, FROM_SNAPSHOT = 3, FROM_INPUT = 4, DROP = 5 };

static char folder[] = "/tmp/step_key_XXXXXX";

static void write_file(const char *name, const void *head, size_t head_bytes, int bytes,
                       int (*value)(int)) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(head, 1, head_bytes, file);
    for (int i = 0; i < bytes; i++) fputc(value(i), file);
    assert_int_equal(fclose(file), 0);
}

static int pixel(int i) {
    return i * 7 % 256;
}

static int label(int i) {
    return i % 2;
}

static int other_label(int i) {
    return (i + 1) % 2;
}

static void write_labels(const char *name, int (*value)(int)) {
    static const unsigned char head[] = {0, 0, 8, 1, 0, 0, 0, 64};
    write_file(name, head, sizeof head, 64, value);
}

static int open_folder(void **state) {
    static const unsigned char head[] = {0, 0, 8, 3, 0, 0, 0, 64, 0, 0, 0, 8, 0, 0, 0, 8};
    char path[128];
    (void)state;
    assert_non_null(mkdtemp(folder));
    write_file("images.idx", head, sizeof head, 64 * 64, pixel);
    write_labels("labels.idx", label);
    write_labels("copy.idx", label);
    snprintf(path, sizeof path, "%s/r.yaml", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(RECIPE, file);
    return fclose(file);
}

static int close_folder(void **state) {
    char line[128];
    (void)state;
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

/* The key of step `index` of the recipe with one change, for states that are 'a' but for
 * that of step `changed`; -1 = of none. Its parts are in *parts, in the arena. */
static void key_with(const char *change, int index, int changed, Arena *arena,
                     Tree **parts, char key[HASH_TEXT_BYTES]) {
    char path[128];
    snprintf(path, sizeof path, "%s/r.yaml", folder);
    const SessionOptions options = {
        .recipe = path, .sets = {&change, change ? 1 : 0}, .threads = 2};
    Session session;
    Diag *diag = diag_create();
    assert_ok(session_open(&session, &options, diag), diag);
    assert_ok(session_load(&session, true, diag), diag);
    assert_ok(session_plan(&session, diag), diag);
    session.input.model = model_copy(session.model); /* as session_run has it */
    StepKeys *keys = step_keys_create(&session);
    for (int i = 0; i <= index; i++)
        assert_ok(step_key(keys, i, i == changed ? "b" : "a", parts, key, diag), diag);
    *parts = tree_copy(arena, *parts);
    session_close(&session);
    diag_destroy(diag);
}

/* Checks whether a change of the recipe changes the key of a step, and what is told. */
static void check_change(const char *change, int index, int changed, const char *told) {
    Arena *arena = arena_create();
    char one[HASH_TEXT_BYTES], two[HASH_TEXT_BYTES];
    Tree *before = NULL, *after = NULL;
    Text text = {0};
    key_with(NULL, index, -1, arena, &before, one);
    key_with(change, index, changed, arena, &after, two);
    const bool differ = step_parts_differ(&text, index, before, after);
    assert_true(differ == (told != NULL));
    assert_true((strcmp(one, two) != 0) == differ);
    if (told) assert_non_null(strstr(text.data, told));
    text_free(&text);
    arena_destroy(arena);
}

static void test_step(void **state) {
    (void)state;
    check_change(NULL, PRUNE, -1, NULL);
    check_change("passes.2.prune_ffn.keep=12", PRUNE, -1, "option keep was 8 and is 12");
    check_change("passes.2={prune_heads: {keep: 1, score: magnitude}}", PRUNE, -1,
                 "pass was \"prune_ffn\" and is \"prune_heads\"");
    check_change("seed=4", PRUNE, -1, "seed was");
    check_change(NULL, PRUNE, PRUNE, "the model before it is another one");
    check_change(NULL, 0, 0, "the model that the steps begin from is another one");
}

/* What results do not depend on. */
static void test_unchanged(void **state) {
    (void)state;
    check_change("threads=1", FROM_SNAPSHOT, -1, NULL);
    check_change("name=another", FROM_SNAPSHOT, -1, NULL);
    check_change("passes.2.label=other", PRUNE, -1, NULL);
    check_change("passes.3.distill.shards=0", FROM_SNAPSHOT, -1, NULL); /* the default */
    check_change("passes.4.distill.steps=4", FROM_SNAPSHOT, -1, NULL);  /* a later step */
    check_change("data.train.labels=copy.idx", FROM_SNAPSHOT, -1,
                 NULL);                                          /* the same bytes */
    check_change("data.test.limit=21", FROM_SNAPSHOT, -1, NULL); /* another data set */
    check_change("checkpoint={every: 1}", FROM_SNAPSHOT, -1, NULL);
}

static void test_uses(void **state) {
    (void)state;
    check_change("data.train.limit=32", FROM_SNAPSHOT, -1, "data set \"train\"");
    write_labels("copy.idx", other_label);
    check_change("data.train.labels=copy.idx", FROM_SNAPSHOT, -1, "data set \"train\"");
    write_labels("copy.idx", label);
    check_change(NULL, FROM_SNAPSHOT, 0, "model \"start\"");
    check_change(NULL, FROM_SNAPSHOT, 1, NULL);
    check_change("model.hidden_size=16", FROM_INPUT, -1, "model \"the input\"");
    check_change("model.hidden_size=16", FROM_SNAPSHOT, -1, NULL); /* the state says it */
    /* a gate on the drop against an earlier step's record */
    check_change(NULL, DROP, 1, "an earlier step");
    check_change("passes.5.evaluate.max_drop=50", DROP, -1, "max_drop was 100");
}

/* Parts that a test cannot change: what is told where they differ. */
static void test_other_program(void **state) {
    static const char *const told[][2] = {{"tool", "the version of compress was \"x\""},
                                          {"program", "another build"},
                                          {"processor", "the processor was \"x\""}};
    Arena *arena = arena_create();
    char key[HASH_TEXT_BYTES];
    Tree *parts = NULL;
    (void)state;
    key_with(NULL, 0, -1, arena, &parts, key);
    for (int i = 0; i < 3; i++) {
        Tree *kept = tree_copy(arena, parts);
        Text text = {0};
        assert_non_null(tree_get(kept, told[i][0]));
        tree_put_string(arena, kept, told[i][0], "x");
        assert_true(step_parts_differ(&text, 0, kept, parts));
        assert_non_null(strstr(text.data, told[i][1]));
        text_free(&text);
    }
    /* parts that are not there at all, or are no map */
    Text text = {0};
    assert_true(step_parts_differ(&text, 0, NULL, parts));
    assert_true(step_parts_differ(&text, 0, tree_new(arena, TREE_LIST, LOC_NONE), parts));
    text_free(&text);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step), cmocka_unit_test(test_unchanged),
        cmocka_unit_test(test_uses), cmocka_unit_test(test_other_program)};
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
