/* Steps that are not run because a keeper has them: the model, its provenance, the
 * results that are told and the warnings are those of a run of all steps, wherever the
 * kept ones end and whichever models are gone. */
#include "passes/pipeline/pipeline.h"

#include "io/files/yaml.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"

#include <string.h>

enum { STEPS = 8 };

static const char RECIPE[] =
    "version: 1\nseed: 1\ndata: {toy: {format: toy}}\npasses:\n"
    "  - snapshot: {name: start}\n"
    "  - importance: {data: toy, limit: 30}\n"
    "  - prune_ffn: {keep: 24}\n"
    "    label: slim\n"
    "  - snapshot: {name: later}\n"
    "  - distill: {data: toy, steps: 2, teacher: \"snapshot:start\"}\n"
    "  - weight_multiplex: {group: 2}\n"
    "  - finetune: {data: toy, steps: 2, lr: 0.01}\n"
    "  - distill: {data: toy, steps: 2, teacher: \"snapshot:later\"}\n";

/* A keeper in memory. */
typedef struct Memory {
    Arena *arena;
    bool has[STEPS];
    StepEntry entries[STEPS];
    char before[STEPS][HASH_TEXT_BYTES];
    Model *models[STEPS]; /* after each step; NULL = it is gone */
    int begun, reused;
} Memory;

static bool memory_find(void *self, int index, const char *state, Arena *arena,
                        StepEntry *entry, Diag *diag) {
    Memory *memory = self;
    if (!memory->has[index] || strcmp(memory->before[index], state)) return false;
    /* as a file would give it: through the tree */
    Tree *tree = step_entry_tree(arena, &memory->entries[index]);
    return step_entry_read(entry, tree, diag) == STATUS_OK;
}

static Model *memory_model(void *self, const char *state, const OpTable *ops,
                           Diag *diag) {
    Memory *memory = self;
    (void)ops, (void)diag;
    for (int i = 0; i < STEPS; i++)
        if (memory->models[i] && strcmp(memory->entries[i].state, state) == 0)
            return model_copy(memory->models[i]);
    return NULL;
}

static Status memory_begin(void *self, int index, const char *state, Diag *diag) {
    (void)index, (void)state, (void)diag;
    ((Memory *)self)->begun++;
    return STATUS_OK;
}

static void memory_keep(void *self, int index, const char *state, const StepEntry *entry,
                        Model *model, Diag *diag) {
    Memory *memory = self;
    (void)diag;
    memory->has[index] = true;
    memory->entries[index] = *entry;
    memory->entries[index].record = tree_copy(memory->arena, entry->record);
    memory->entries[index].times = tree_copy(memory->arena, entry->times);
    memory->entries[index].warnings = tree_copy(memory->arena, entry->warnings);
    strcpy(memory->before[index], state);
    model_destroy(memory->models[index]);
    memory->models[index] = model_state_copy(model);
}

static void count_reused(void *self, const Recipe *recipe, int index,
                         const StepResult *result) {
    Memory *memory = self;
    (void)recipe, (void)index;
    memory->reused += result->reused;
}

static void memory_close(Memory *memory) {
    for (int i = 0; i < STEPS; i++) model_destroy(memory->models[i]);
    arena_destroy(memory->arena);
}

/* Runs the recipe with a keeper, NULL = none; returns the model. */
static Model *run(Memory *memory, const char *text, Text *provenance) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *document = NULL;
    Recipe recipe;
    assert_ok(yaml_parse(&document, arena, "r.yaml", text, strlen(text), diag), diag);
    assert_ok(recipe_bind(&recipe, arena, document, "r.yaml", ".", diag), diag);
    Batches *toy = toy_batches();
    RecipeInputs inputs = {.data = toy};
    const StepKeeper keeper = {memory, memory_find, memory_model, memory_begin,
                               memory_keep};
    const PipelineOptions options = {
        .threads = 1,
        .resources = inputs_resources(&inputs),
        .hooks = {.self = memory, .step_end = memory ? count_reused : NULL},
        .keeper = memory ? &keeper : NULL};
    Model *model = toy_vit(1);
    if (memory) memory->begun = memory->reused = 0;
    assert_ok(pipeline_run(model, &recipe, &options, diag), diag);
    check_hashes(model);
    tree_print_json(provenance, model->provenance, 1);
    batches_destroy(toy);
    arena_destroy(arena);
    diag_destroy(diag);
    return model;
}

/* Runs with what the keeper has; the outcome must be that of a whole run, with so many
 * steps reused. */
static void check_same(Memory *memory, int reused) {
    char wanted[HASH_TEXT_BYTES], got[HASH_TEXT_BYTES];
    Text one = {0}, two = {0};
    Model *whole = run(NULL, RECIPE, &one);
    Model *model = run(memory, RECIPE, &two);
    model_hash(whole, wanted);
    model_hash(model, got);
    assert_string_equal(got, wanted);
    assert_string_equal(two.data, one.data);
    assert_int_equal(memory->reused, reused);
    assert_int_equal(memory->begun, STEPS - reused);
    model_destroy(whole);
    model_destroy(model);
    text_free(&one);
    text_free(&two);
}

static Memory memory_filled(void) {
    Memory memory = {.arena = arena_create()};
    Text text = {0};
    model_destroy(run(&memory, RECIPE, &text));
    assert_int_equal(memory.begun, STEPS);
    text_free(&text);
    return memory;
}

static void test_all_reused(void **state) {
    (void)state;
    Memory memory = memory_filled();
    check_same(&memory, STEPS);
    memory_close(&memory);
}

/* Only the first steps are kept, as after a run that was stopped. */
static void test_prefixes(void **state) {
    (void)state;
    for (int kept = 0; kept < STEPS; kept++) {
        Memory memory = memory_filled();
        for (int i = kept; i < STEPS; i++) memory.has[i] = false;
        check_same(&memory, kept);
        memory_close(&memory);
    }
}

/* The latest model is enough, with the snapshots that later steps name. */
static void test_latest_model(void **state) {
    (void)state;
    Memory memory = memory_filled();
    for (int i = 6; i < STEPS; i++) memory.has[i] = false;
    for (int i = 0; i < STEPS; i++) {
        if (i == 2 || i == 3 || i == 5) continue; /* snapshot later, weight_multiplex */
        model_destroy(memory.models[i]);
        memory.models[i] = NULL;
    }
    check_same(&memory, 6);
    memory_close(&memory);
}

/* Without the snapshot, steps run from the one before it that has a model. */
static void test_snapshot_gone(void **state) {
    (void)state;
    Memory memory = memory_filled();
    for (int i = 6; i < STEPS; i++) memory.has[i] = false;
    for (int i = 2; i < 4; i++) { /* the model before `later` and that of `later` */
        model_destroy(memory.models[i]);
        memory.models[i] = NULL;
    }
    check_same(&memory, 5); /* 1 and 2; 3 runs, and what follows it is found again */
    memory_close(&memory);
}

/* A step in the middle is missing: those behind it are found again. */
static void test_gap(void **state) {
    (void)state;
    Memory memory = memory_filled();
    memory.has[4] = false;
    check_same(&memory, STEPS - 1);
    memory_close(&memory);
}

static const Tree *entry_tree(Arena *arena, const char *json) {
    Tree *tree = NULL;
    Diag *diag = diag_create();
    assert_ok(yaml_parse(&tree, arena, "entry", json, strlen(json), diag), diag);
    diag_destroy(diag);
    return tree;
}

/* Entries come from files: what is missing or wrong is told and nothing crashes. */
static void test_hostile_entries(void **state) {
    (void)state;
    static const char *const texts[] = {
        "[]",
        "{}",
        "{state: 3}",
        "{state: a, sample: b, parameters: -1, bytes: 1, peak_bytes: 1, flops: 1, seconds: "
        "1, changed: true, record: {}, times: {}, warnings: []}",
        "{state: a, sample: b, parameters: 1, bytes: 1, peak_bytes: 1, flops: x, seconds: "
        "1, changed: true, record: {}, times: {}, warnings: []}",
        "{state: a, sample: b, parameters: 1, bytes: 1, peak_bytes: 1, flops: 1, seconds: 1, "
        "changed: true, record: [], times: {}, warnings: []}",
        "{state: a12345678901234567890123456789012345, sample: b, parameters: 1, bytes: 1, "
        "peak_bytes: 1, flops: 1, seconds: 1, changed: true, record: {}, times: {}, "
        "warnings: []}"};
    Arena *arena = arena_create();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Diag *diag = diag_create();
        StepEntry entry;
        assert_int_equal(step_entry_read(&entry, entry_tree(arena, texts[i]), diag),
                         STATUS_FORMAT);
        diag_destroy(diag);
    }
    Diag *diag = diag_create();
    const StepSource source = {.key = "passes[0]"};
    step_entry_warn(entry_tree(arena, "[3, {}, {message: [1]}, {message: a, line: x}]"),
                    &source, diag);
    assert_int_equal(diag_warning_count(diag), 1);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* A warning of one step is given again at the place of another. */
static void test_warnings(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Diag *diag = diag_create(), *later = diag_create();
    const StepSource one = {.at = {"one.yaml", 10, 5}, .key = "passes[2]"};
    const StepSource two = {.at = {"two.yaml", 20, 5}, .key = "passes[1]"};
    diag_warn(diag, LOC_NONE, NULL, "before");
    diag_warn(diag, (Loc){"one.yaml", 12, 9}, "passes[2].distill.lr", "of an option");
    diag_warn(diag, (Loc){"data.csv", 7, 0}, NULL, "of a file");
    diag_warn(diag, (Loc){"one.yaml", 3, 1}, "passes[21]", "of another key");
    step_entry_warn(step_entry_warnings(arena, diag, 1, &one), &two, later);
    assert_int_equal(diag_warning_count(later), 3);
    const DiagEntry option = diag_warning(later, 0), file = diag_warning(later, 1);
    assert_string_equal(option.at.file, "two.yaml");
    assert_int_equal(option.at.line, 22);
    assert_int_equal(option.at.column, 9);
    assert_string_equal(option.key, "passes[1].distill.lr");
    assert_string_equal(option.message, "of an option");
    assert_string_equal(file.at.file, "data.csv");
    assert_int_equal(file.at.line, 7);
    assert_null(file.key);
    assert_string_equal(diag_warning(later, 2).key, "passes[21]");
    diag_destroy(diag);
    diag_destroy(later);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reused),   cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_latest_model), cmocka_unit_test(test_snapshot_gone),
        cmocka_unit_test(test_gap),          cmocka_unit_test(test_hostile_entries),
        cmocka_unit_test(test_warnings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
