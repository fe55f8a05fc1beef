/* Whole documents with one value replaced: recipes through binding, reading the model,
 * planning and opening data; configurations of every family; tokenizers; preprocessors.
 * Whatever stands there, the answer is a status, and what fails says why. */
#include "exec/ops.h"
#include "io/datasets/preprocess.h"
#include "io/files/json.h"
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "io/tokenizers/tokenizer.h"
#include "session/session.h"
#include "tests/support/check.h"
#include "tests/support/odd_values.h"
#include "tests/support/passes.h"
#include "tests/support/thinned.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFERENCE "tests/data/reference/"
#define BYTES_MAX ((size_t)64 << 20)

/* A document whose values are replaced, and who reads it then. */
typedef struct Sweep Sweep;
struct Sweep {
    const char *name;
    Arena *arena;
    Tree *root;
    Status (*read)(Sweep *sweep, const Tree *at, Diag *diag);
    Model *model;  /* borrowed: what `read` runs on */
    char file[64]; /* scratch */
    int places, tries, failed;
};

static void try_values(void *self, Tree *at) {
    Sweep *sweep = self;
    const int place = sweep->places++;
    for (int i = 0; i < ODD_VALUES; i++) {
        if (thinned_out(place, i)) continue;
        Diag *diag = diag_create();
        Swap swap = swap_value(at, odd_value(sweep->arena, i, (Loc){"odd", 1, 1}));
        const Status status = sweep->read(sweep, at, diag);
        sweep->tries++;
        sweep->failed += status != STATUS_OK;
        if (status == STATUS_INTERNAL ||
            (status != STATUS_OK) != (diag_errors(diag) > 0)) {
            char *text = diag_text(diag);
            fail_msg("%s: %s, value %d: status %d: %s", sweep->name,
                     tree_path(sweep->arena, at), i, status, text);
        }
        swap_back(&swap);
        diag_destroy(diag);
    }
}

static void sweep_run(Sweep *sweep) {
    Diag *diag = diag_create();
    snprintf(sweep->file, sizeof sweep->file, "/tmp/sweep-%d.json", (int)getpid());
    assert_ok(sweep->read(sweep, sweep->root, diag), diag);
    diag_destroy(diag);
    visit_values(sweep->root, try_values, sweep);
    remove(sweep->file);
    print_message("%s: %d tries, %d refused\n", sweep->name, sweep->tries, sweep->failed);
    assert_true(sweep->tries > 0);
    arena_destroy(sweep->arena);
}

static Sweep sweep_json(const char *path) {
    Sweep sweep = {.name = path, .arena = arena_create()};
    Diag *diag = diag_create();
    assert_ok(json_read(&sweep.root, sweep.arena, path, BYTES_MAX, diag), diag);
    diag_destroy(diag);
    return sweep;
}

/* The document as a file again. NaN and infinities become null. */
static void write_document(const Sweep *sweep) {
    Text text = {0};
    tree_print_json(&text, sweep->root, 0);
    FILE *file = fopen(sweep->file, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text.data, 1, text.length, file), text.length);
    assert_int_equal(fclose(file), 0);
    text_free(&text);
}

/* ---- configurations ---- */

static Status read_config(Sweep *sweep, const Tree *at, Diag *diag) {
    Model *model = NULL;
    (void)at;
    const Status status = hf_build(&model, sweep->root, ops_table(), diag);
    model_destroy(model);
    return status;
}

static void test_configurations(void **state) {
    (void)state;
    static const char *const FILES[] = {
        "bert", "bert_mlm", "deit", "distilbert", "gpt2",    "llama",          "marian",
        "swin", "vit",      "t5",   "bart",       "roberta", "electra_choice", "dinov2"};
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        char path[128];
        snprintf(path, sizeof path, REFERENCE "%s/config.json", FILES[i]);
        Sweep sweep = sweep_json(path);
        sweep.read = read_config;
        sweep_run(&sweep);
    }
}

static void test_written_configurations(void **state) {
    (void)state;
    static const char *const TEXTS[] = {
        "{model_type: lstm_lm, vocab_size: 12, embedding_size: 8, hidden_size: 8,\n"
        " num_layers: 2, dropout: 0.1, tie_word_embeddings: true}",
        "{model_type: rnn_attention, source_vocab_size: 29, target_vocab_size: 23,\n"
        " embedding_size: 12, encoder_size: 16, decoder_size: 14, alignment_size: 10,\n"
        " context: additive, feed: token}",
        "{model_type: albert, architectures: [AlbertForSequenceClassification],\n"
        " hidden_size: 8, embedding_size: 4, num_hidden_layers: 2,\n"
        " num_attention_heads: 2, intermediate_size: 16, vocab_size: 12,\n"
        " max_position_embeddings: 6, type_vocab_size: 2, num_labels: 3,\n"
        " num_hidden_groups: 1, inner_group_num: 1, id2label: {'0': a, '1': b, '2': c}}"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        Sweep sweep = {
            .name = "configuration", .arena = arena_create(), .read = read_config};
        Diag *diag = diag_create();
        assert_ok(yaml_parse(&sweep.root, sweep.arena, "config", TEXTS[i],
                             strlen(TEXTS[i]), diag),
                  diag);
        diag_destroy(diag);
        sweep_run(&sweep);
    }
}

/* ---- tokenizers and preprocessors ---- */

static Status read_tokenizer(Sweep *sweep, const Tree *at, Diag *diag) {
    Tokenizer *tokenizer = NULL;
    (void)at;
    write_document(sweep);
    const Status status = tokenizer_read(&tokenizer, sweep->file, diag);
    if (status == STATUS_OK) tokenizer_destroy(tokenizer);
    return status;
}

static void test_tokenizers(void **state) {
    (void)state;
    static const char *const FILES[] = {"tests/data/text/tokenizer.json",
                                        "tests/data/text/bytes/tokenizer.json",
                                        "tests/data/text/fallback/tokenizer.json",
                                        "recipes/data/shakespeare/tokenizer.json"};
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        Sweep sweep = sweep_json(FILES[i]);
        sweep.read = read_tokenizer;
        sweep_run(&sweep);
    }
}

static Status read_preprocessor(Sweep *sweep, const Tree *at, Diag *diag) {
    Preprocess preprocess;
    (void)at;
    write_document(sweep);
    return preprocess_read(&preprocess, sweep->file, sweep->arena, diag);
}

static void test_preprocessors(void **state) {
    (void)state;
    static const char TEXT[] =
        "{\"do_resize\": true, \"size\": {\"shortest_edge\": 8}, \"resample\": 3,\n"
        " \"do_center_crop\": true, \"crop_size\": {\"height\": 8, \"width\": 8},\n"
        " \"crop_pct\": 0.875, \"do_rescale\": true, \"rescale_factor\": 0.0039,\n"
        " \"do_normalize\": true, \"image_mean\": [0.5, 0.5, 0.5],\n"
        " \"image_std\": [0.5, 0.5, 0.5], \"image_processor_type\": \"X\"}";
    Sweep sweep = {.name = "preprocessor_config.json",
                   .arena = arena_create(),
                   .read = read_preprocessor};
    Diag *diag = diag_create();
    assert_ok(json_parse(&sweep.root, sweep.arena, "p", TEXT, strlen(TEXT), diag), diag);
    diag_destroy(diag);
    sweep_run(&sweep);
}

/* ---- what a model file says of the model's past ---- */

static Status read_past(Sweep *sweep, const Tree *at, Diag *diag) {
    static const char RECIPE[] = "version: 1\n"
                                 "data: {toy: {format: toy}}\n"
                                 "passes:\n"
                                 "  - evaluate: {data: toy, exits: auto}\n"
                                 "  - prune_heads: {keep: 1}\n"
                                 "  - prune_ffn: {keep: 8}\n"
                                 "  - remove_layer: {keep: [0, 2]}\n";
    Model *model = model_copy(sweep->model);
    (void)at;
    model->provenance = tree_copy(model->arena, sweep->root);
    const Status status = test_run_recipe(model, "past", RECIPE, true, 1, diag);
    model_destroy(model);
    return status;
}

static void test_past(void **state) {
    (void)state;
    static const char *const KEYS[] = {"exits", "importance", "layers", "input_hash"};
    Sweep sweep = {.name = "provenance",
                   .arena = arena_create(),
                   .model = toy_vit(1),
                   .read = read_past};
    run_pass(sweep.model, "remove_layer", "{drop: [1]}");
    run_pass(sweep.model, "add_exits", "{layers: [1]}");
    run_pass(sweep.model, "importance", "{score: magnitude}");
    run_pass(sweep.model, "calibrate_exits", "{data: toy, drop: 1, criterion: entropy}");
    sweep.root = tree_new(sweep.arena, TREE_MAP, LOC_NONE);
    for (int i = 0; i < 4; i++) {
        const Tree *value = tree_get(sweep.model->provenance, KEYS[i]);
        if (value)
            tree_put(sweep.arena, sweep.root, KEYS[i], tree_copy(sweep.arena, value));
    }
    tree_put_list(sweep.arena, sweep.root, "steps");
    sweep_run(&sweep);
    model_destroy(sweep.model);
}

/* ---- recipes ---- */

/* Opens the data sets whose entry holds `at`. */
static Status open_data(Session *session, const Tree *at, Diag *diag) {
    for (const Tree *up = at; up->parent; up = up->parent) {
        if (!up->parent->key || strcmp(up->parent->key, "data") != 0) continue;
        for (int i = 0; i < session->data.count; i++) {
            DataEntry *entry = &session->data.entries[i];
            if (strcmp(entry->name, up->key) != 0) continue;
            TRY(dataset_open(&entry->batches, entry->format, entry->options, entry->at,
                             diag));
        }
    }
    return STATUS_OK;
}

static Status read_recipe(Sweep *sweep, const Tree *at, Diag *diag) {
    Session session = {0};
    write_document(sweep);
    const SessionOptions options = {.recipe = sweep->file};
    Status status = session_open(&session, &options, diag);
    if (status == STATUS_OK) status = open_data(&session, at, diag);
    if (status == STATUS_OK) status = session_load(&session, false, diag);
    if (status == STATUS_OK) status = session_plan(&session, diag);
    session_close(&session);
    return status;
}

/* Turns the paths in a document into absolute ones. */
static void resolve_paths(void *self, Tree *value) {
    Sweep *sweep = self;
    if (value->kind != TREE_STRING || strchr(value->string, '\n')) return;
    const char *path = arena_printf(sweep->arena, "recipes/%s", value->string);
    char *full = access(path, F_OK) == 0 ? realpath(path, NULL) : NULL;
    if (full) value->string = arena_strdup(sweep->arena, full);
    free(full);
}

/* `model: {...}` as `model: {config: {...}, seed: 1}`. */
static void wrap_model(Sweep *sweep) {
    Tree *model = tree_get(sweep->root, "model");
    if (model->kind != TREE_MAP || tree_get(model, "config")) return;
    Tree *config = tree_copy(sweep->arena, model);
    Tree *around = tree_put_map(sweep->arena, sweep->root, "model");
    tree_put(sweep->arena, around, "config", config);
    tree_put_int(sweep->arena, around, "seed", 1);
}

static void test_recipes(void **state) {
    (void)state;
    static const char *const FILES[] = {"bayes_rnn", "distilbert_task", "mini_swin",
                                        "train_rnn_tatoeba", "t2r_char"};
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        char path[128];
        snprintf(path, sizeof path, "recipes/%s.yaml", FILES[i]);
        Sweep sweep = {.name = path, .arena = arena_create(), .read = read_recipe};
        Diag *diag = diag_create();
        assert_ok(yaml_read(&sweep.root, sweep.arena, path, diag), diag);
        diag_destroy(diag);
        visit_values(sweep.root, resolve_paths, &sweep);
        wrap_model(&sweep);
        sweep_run(&sweep);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_configurations),
        cmocka_unit_test(test_written_configurations),
        cmocka_unit_test(test_tokenizers),
        cmocka_unit_test(test_preprocessors),
        cmocka_unit_test(test_past),
        cmocka_unit_test(test_recipes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
