/* Folders for transformers.js: what stands in them, and that nothing of others is lost.
 */
#include "onnx_file.h"

#include "io/files/json.h"

#include <sys/stat.h>

extern const ModelFormat model_format_webfolder;

static char folder[256], target[300];

static int enter(void **state) {
    (void)state;
    scratch_make(folder);
    snprintf(target, sizeof target, "%s/small.onnx/", folder);
    return 0;
}

static void empty(const char *path) {
    DIR *list = opendir(path);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char inner[600];
        if (entry->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR)
            empty(inner);
        else
            unlink(inner);
    }
    if (list) closedir(list);
    rmdir(path);
}

static int leave(void **state) {
    (void)state;
    empty(folder);
    return 0;
}

static bool is_there(const char *name) {
    char path[500];
    snprintf(path, sizeof path, "%s%s", target, name);
    return access(path, R_OK) == 0;
}

static const Tree *config_of(Arena *arena, Diag *diag) {
    char path[400];
    Tree *config;
    snprintf(path, sizeof path, "%sconfig.json", target);
    expect_ok(diag, json_read(&config, arena, path, 1 << 20, diag));
    return config;
}

static Written write_folder(Model *model, const char *dtype, const OnnxOptions *options) {
    Diag *diag = diag_create();
    const WriteOptions with = {dtype, options};
    Written written = {0};
    expect_ok(diag, model_format_webfolder.check(model, &with, diag));
    expect_ok(diag, model_format_webfolder.write(model, target, &with, &written, diag));
    diag_destroy(diag);
    return written;
}

static void test_classifier(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    Model *model = load_reference("bert");
    model_put_asset(model, "tokenizer.json", "{}", 2);
    const Written written = write_folder(model, "keep", NULL);
    assert_int_equal(written.files, 4);
    assert_true(is_there("onnx/model.onnx") && is_there("tokenizer.json"));
    assert_true(is_there("tokenizer_config.json"));
    const Tree *config = config_of(arena, diag);
    assert_string_equal(tree_get(config, "model_type")->string, "bert");
    assert_int_equal(tree_get(config, "id2label")->count, 3);
    write_folder(model, "f16", NULL);
    assert_true(is_there("onnx/model_fp16.onnx") && !is_there("onnx/model.onnx"));
    OnnxOptions options = ONNX_DEFAULTS;
    options.external_above = 0;
    write_folder(model, "keep", &options);
    assert_true(is_there("onnx/model.onnx_data"));
    config = tree_get(config_of(arena, diag), "transformers.js_config");
    assert_true(tree_get(config, "use_external_data_format")->boolean);
    model_destroy(model);
    arena_destroy(arena);
    diag_destroy(diag);
}

static void test_translation(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    Model *model = load_reference("marian");
    write_folder(model, "keep", NULL);
    assert_true(tree_get(config_of(arena, diag), "is_encoder_decoder")->boolean);
    arena_destroy(arena);
    diag_destroy(diag);
    assert_true(is_there("onnx/encoder_model.onnx"));
    assert_true(is_there("onnx/decoder_model_merged.onnx"));
    OnnxOptions options = ONNX_DEFAULTS;
    options.cache = false;
    write_folder(model, "keep", &options);
    assert_true(is_there("onnx/decoder_model.onnx"));
    assert_true(!is_there("onnx/decoder_model_merged.onnx"));
    model_destroy(model);
}

/* A file of somebody else's, in the folder or in the one within, is not lost. */
static void test_others(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = load_reference("bert");
    const WriteOptions with = {"keep", NULL};
    Written written;
    char path[400];
    write_folder(model, "keep", NULL);
    snprintf(path, sizeof path, "%sonnx/notes.txt", target);
    put_text(path, "mine");
    expect_error(diag, model_format_webfolder.write(model, target, &with, &written, diag),
                 STATUS_IO, "the folder holds 'onnx/notes.txt', which would be lost");
    assert_true(is_there("onnx/notes.txt") && is_there("onnx/model.onnx"));
    unlink(path);
    snprintf(path, sizeof path, "%sonnx/model_files", target);
    mkdir(path, 0777);
    expect_error(diag, model_format_webfolder.write(model, target, &with, &written, diag),
                 STATUS_IO, "onnx/model_files");
    assert_int_equal(scratch_count(folder), 1);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- reading ---- */

/* Gives a file of the target another name. */
static void rename_to(const char *name, const char *other) {
    char from[500], to[500];
    snprintf(from, sizeof from, "%s%s", target, name);
    snprintf(to, sizeof to, "%s%s", target, other);
    assert_int_equal(rename(from, to), 0);
}

static void put_graph(const char *name) {
    char path[500];
    snprintf(path, sizeof path, "%s%s", target, name);
    put_text(path, "no graph");
}

static void expect_read(const char *type) {
    Diag *diag = diag_create();
    Model *model;
    assert_true(model_format_webfolder.probe(target));
    expect_ok(diag,
              model_format_webfolder.read(&model, target, NULL, ops_table(), true, diag));
    assert_string_equal(tree_get(model->config, "model_type")->string, type);
    model_destroy(model);
    diag_destroy(diag);
}

static void expect_unread(const char *found) {
    Diag *diag = diag_create();
    Model *model;
    assert_true(model_format_webfolder.probe(target));
    expect_error(
        diag, model_format_webfolder.read(&model, target, NULL, ops_table(), true, diag),
        STATUS_FORMAT, found);
    diag_destroy(diag);
}

/* A graph in one other form is read, the plain one first, and of several none. */
static void test_forms(void **state) {
    (void)state;
    Model *model = load_reference("bert");
    write_folder(model, "keep", NULL);
    model_destroy(model);
    put_graph("onnx/model_q4.onnx");
    expect_read("bert");
    rename_to("onnx/model.onnx", "onnx/model_quantized.onnx");
    expect_unread("expected model.onnx, decoder_model_merged.onnx or decoder_model.onnx "
                  "in the folder or its onnx/, or one of them in a single other form, as "
                  "model_quantized.onnx; found onnx/model_q4.onnx, "
                  "onnx/model_quantized.onnx");
    rename_to("onnx/model_q4.onnx", "onnx/model_q4.bin");
    expect_read("bert");
    rename_to("onnx/model_quantized.onnx", "model_quantized.onnx");
    expect_read("bert");
    rename_to("model_quantized.onnx", "onnx/graph.onnx");
    expect_unread("found onnx/graph.onnx");
    rename_to("onnx/graph.onnx", "graph.onnx");
    assert_false(model_format_webfolder.probe(target));
}

/* Of an encoder-decoder model the decoder's form says which encoder's is meant. */
static void test_forms_of_two(void **state) {
    (void)state;
    Model *model = load_reference("marian");
    write_folder(model, "keep", NULL);
    model_destroy(model);
    rename_to("onnx/encoder_model.onnx", "onnx/encoder_model_int8.onnx");
    rename_to("onnx/decoder_model_merged.onnx", "onnx/decoder_model_merged_int8.onnx");
    put_graph("onnx/decoder_model_int8.onnx");
    put_graph("onnx/decoder_with_past_model_int8.onnx");
    expect_read("marian");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_classifier, enter, leave),
        cmocka_unit_test_setup_teardown(test_translation, enter, leave),
        cmocka_unit_test_setup_teardown(test_others, enter, leave),
        cmocka_unit_test_setup_teardown(test_forms, enter, leave),
        cmocka_unit_test_setup_teardown(test_forms_of_two, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
