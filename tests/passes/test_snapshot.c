/* Snapshots: they keep what the model was, whatever happens to it afterwards. */
#include "passes/pipeline/snapshot.h"

#include "io/files/yaml.h"
#include "passes/pipeline/pipeline.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"

#include <string.h>

/* Hashes that the passes below note. */
static char seen[8][HASH_TEXT_BYTES];
static int seen_count;

/* Notes the hash of a model by its name. */
static Status note(PassContext *ctx, const char *name, Diag *diag) {
    Model *model = NULL;
    TRY(step_teacher(ctx, name, &model, diag));
    model_hash(model, seen[seen_count++]);
    return STATUS_OK;
}

static Status run_note(PassContext *ctx, Model *model, const void *options, Diag *diag) {
    (void)options;
    TRY(note(ctx, "snapshot:start", diag));
    TRY(note(ctx, "snapshot:later", diag));
    model_hash(model, seen[seen_count++]);
    return STATUS_OK;
}

static Status run_note_missing(PassContext *ctx, Model *model, const void *options,
                               Diag *diag) {
    (void)model, (void)options;
    return note(ctx, "snapshot:none", diag);
}

/* Writes into the first storage, as passes do that edit weights. */
static Status run_edit(PassContext *ctx, Model *model, const void *options, Diag *diag) {
    void *data = NULL;
    (void)options;
    if (ctx->plan) return STATUS_OK;
    TRY(tensor_writable(&model->graph->storages[0]->tensor, &data, diag));
    ((float *)data)[0] += 1;
    return STATUS_OK;
}

/* Runs `tune`, snapshot start, `tune`, edit, snapshot later, edit, `tune`, note. */
static Status run_steps(Model *model, const Pass *last, bool plan, Diag *diag) {
    static const char text[] =
        "version: 1\nseed: 1\ndata: {toy: {format: toy}}\npasses:\n"
        "  - finetune: {data: toy, steps: 2, lr: 0.01}\n"
        "  - snapshot: {name: start}\n"
        "  - finetune: {data: toy, steps: 2, lr: 0.01}\n"
        "  - weight_multiplex\n"
        "  - snapshot: {name: later}\n"
        "  - weight_multiplex\n"
        "  - finetune: {data: toy, steps: 2, lr: 0.01}\n"
        "  - weight_multiplex\n";
    const Pass edit = {.name = "edit", .flags = PASS_MEASURES, .run = run_edit};
    Arena *arena = arena_create();
    Tree *document = NULL;
    Recipe recipe;
    assert_ok(yaml_parse(&document, arena, "r.yaml", text, strlen(text), diag), diag);
    assert_ok(recipe_bind(&recipe, arena, document, "r.yaml", ".", diag), diag);
    recipe.steps[3].pass = recipe.steps[5].pass = &edit;
    recipe.steps[7].pass = last;
    Batches *toy = toy_batches();
    RecipeInputs inputs = {.data = toy};
    const PipelineOptions options = {
        .plan = plan, .threads = 1, .resources = inputs_resources(&inputs)};
    Status status = pipeline_run(model, &recipe, &options, diag);
    batches_destroy(toy);
    arena_destroy(arena);
    return status;
}

/* Hash of the toy model after the first `steps` steps, by a recipe without snapshots (the
 * step in the place of one measures, so that seeds are the same). */
static void hash_after(int steps, char out[HASH_TEXT_BYTES]) {
    static const char *const lines[] = {
        "  - finetune: {data: toy, steps: 2, lr: 0.01}\n", "  - evaluate: {data: toy}\n",
        "  - finetune: {data: toy, steps: 2, lr: 0.01}\n"};
    char text[400] = "version: 1\nseed: 1\ndata: {toy: {format: toy}}\npasses:\n";
    for (int i = 0; i < steps; i++) strcat(text, lines[i]);
    Diag *diag = diag_create();
    Model *model = toy_vit(1);
    assert_ok(test_run_recipe(model, "r.yaml", text, false, 1, diag), diag);
    model_hash(model, out);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_keeps(void **state) {
    (void)state;
    const Pass last = {.name = "note", .flags = PASS_MEASURES, .run = run_note};
    Diag *diag = diag_create();
    Model *model = toy_vit(1);
    char start[HASH_TEXT_BYTES], later[HASH_TEXT_BYTES];
    seen_count = 0;
    assert_ok(run_steps(model, &last, false, diag), diag);
    assert_int_equal(seen_count, 3);
    hash_after(1, start);
    assert_string_equal(seen[0], start);
    /* The second one: trained twice and edited. */
    hash_after(3, later);
    assert_string_not_equal(seen[1], later);
    assert_string_not_equal(seen[1], seen[0]);
    assert_string_not_equal(seen[2], seen[1]);
    model_destroy(model);
    diag_destroy(diag);
}

/* A snapshot shares the weights: its storages are the model's buffers. */
static void test_shares(void **state) {
    (void)state;
    Model *model = toy_vit(1), *copy = model_copy(model);
    for (int i = 0; i < model->graph->storage_count; i++)
        assert_ptr_equal(model->graph->storages[i]->tensor.buf,
                         copy->graph->storages[i]->tensor.buf);
    model_destroy(copy);
    model_destroy(model);
}

/* When planning, a snapshot has shapes and no weights. */
static void test_plans(void **state) {
    (void)state;
    const Pass last = {.name = "note", .flags = PASS_MEASURES, .run = run_note};
    Diag *diag = diag_create();
    Model *model = toy_vit(1);
    seen_count = 0;
    assert_ok(run_steps(model, &last, true, diag), diag);
    assert_int_equal(seen_count, 3);
    assert_string_equal(seen[0], seen[2]);
    model_destroy(model);
    diag_destroy(diag);
}

/* A pass that asks for one that is not there, past what binding checks. */
static void test_missing(void **state) {
    (void)state;
    const Pass last = {.name = "note", .flags = PASS_MEASURES, .run = run_note_missing};
    Diag *diag = diag_create();
    Model *model = toy_vit(1);
    assert_int_equal(run_steps(model, &last, true, diag), STATUS_RECIPE);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_name(void **state) {
    (void)state;
    assert_string_equal(snapshot_name("snapshot:a.b"), "a.b");
    assert_null(snapshot_name("models/snapshot:a"));
    assert_null(snapshot_name(NULL));
}

/* Weights of a student that is distilled for a few steps from `teacher`. */
static void distilled(const char *teacher, char out[HASH_TEXT_BYTES]) {
    char text[600];
    snprintf(text, sizeof text,
             "version: 1\nseed: 1\ndata: {toy: {format: toy}}\npasses:\n"
             "  - snapshot: {name: raw}\n"
             "  - finetune: {data: toy, epochs: 2, batch_size: 20, lr: 0.01}\n"
             "  - snapshot: {name: tuned}\n"
             "  - distill: {data: toy, teacher: %s, steps: 2, lr: 0.01}\n",
             teacher);
    Diag *diag = diag_create();
    Model *model = toy_vit(1);
    assert_ok(test_run_recipe(model, "r.yaml", text, false, 1, diag), diag);
    model_hash(model, out);
    model_destroy(model);
    diag_destroy(diag);
}

/* A snapshot before the first step teaches as the input model does, a later one not. */
static void test_teaches(void **state) {
    (void)state;
    char input[HASH_TEXT_BYTES], raw[HASH_TEXT_BYTES], tuned[HASH_TEXT_BYTES];
    distilled("null", input);
    distilled("\"snapshot:raw\"", raw);
    distilled("\"snapshot:tuned\"", tuned);
    assert_string_equal(raw, input);
    assert_string_not_equal(tuned, input);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keeps), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_plans), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_name),  cmocka_unit_test(test_teaches),
    };
    return cmocka_run_group_tests_name("snapshot", tests, NULL, NULL);
}
