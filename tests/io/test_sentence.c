/* Sentence embeddings: the keys of a configuration as a graph, and the files of
 * sentence-transformers that stand for them, read and written. */
#include "tests/io/folder_fixture.h"

#include "io/formats/hf_write.h"
#include "io/formats/modelfile.h"
#include "ir/model_parts.h"

#include <sys/stat.h>

/* The end of the graph of a bare encoder with these keys. */
static const char *pooled_ir(Fixture *f, const char *keys) {
    Model *model;
    Text text = {0};
    const char *json =
        arena_printf(f->arena,
                     "{\"model_type\": \"bert\", \"architectures\": [\"BertModel\"], "
                     "\"vocab_size\": 11, \"hidden_size\": 8, \"num_hidden_layers\": 1, "
                     "\"num_attention_heads\": 2, \"intermediate_size\": 12, "
                     "\"max_position_embeddings\": 9, \"hidden_dropout_prob\": 0, "
                     "\"attention_probs_dropout_prob\": 0%s}",
                     keys);
    expect_ok(f->diag, build(f, &model, json));
    assert_int_equal(graph_task(model->graph), TASK_EMBED);
    graph_print(&text, model->graph);
    const char *copy = arena_strdup(f->arena, text.data);
    text_free(&text);
    model_destroy(model);
    return copy;
}

static void test_keys(void **state) {
    static const struct {
        const char *keys, *part; /* NULL = no output `embedding` */
    } CASES[] = {
        {"", NULL},
        {", \"pooling\": null", NULL},
        {", \"pooling\": \"none\"", NULL},
        {", \"pooling\": \"mean\"",
         ", mask=$attention_mask) : f32[N, 8] at head as pool"},
        {", \"pooling\": \"first\"", "= select_token("},
        {", \"pooling\": \"last\"", "= last_token("},
        {", \"pooling\": \"mean\", \"normalize\": false", "mean_tokens"},
        {", \"pooling\": \"mean\", \"normalize\": true", "= normalize("},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const char *ir = pooled_ir(*state, CASES[i].keys);
        const bool given = strstr(ir, "output embedding = ") != NULL;
        if (given != (CASES[i].part != NULL) || (given && !strstr(ir, CASES[i].part)))
            fail_msg("%s: %s", CASES[i].keys, ir);
    }
}

static void test_refused_keys(void **state) {
    static const char BERT[] =
        "{\"model_type\": \"bert\", \"architectures\": [\"BertModel\"], "
        "\"vocab_size\": 11, \"hidden_size\": 8, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"intermediate_size\": 12, "
        "\"max_position_embeddings\": 9, %s}";
    static const char *const CASES[][2] = {
        {"\"pooling\": \"max\"", "expected mean, first, last or none, found max"},
        {"\"pooling\": 3", "pooling: expected a string"},
        {"\"normalize\": true", "expected mean, first or last beside normalize: true"},
        {"\"pooling\": \"mean\", \"normalize\": 1", "normalize: expected"},
    };
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char json[512];
        snprintf(json, sizeof json, BERT, CASES[i][0]);
        expect_not_built(f, json, CASES[i][1]);
    }
}

/* A head for another task goes: what is left of the model embeds. */
static void test_head_goes(void **state) {
    Fixture *f = *state;
    take(f, "bert");
    edit(f, "{", "{\"pooling\": \"first\", ");
    drop(f, "classifier");
    Model *model = expect_loaded(f, NULL);
    assert_null(graph_output(model->graph, OUTPUT_LOGITS));
    assert_non_null(graph_output(model->graph, OUTPUT_EMBEDDING));
    assert_int_equal(graph_task(model->graph), TASK_EMBED);
    model_destroy(model);
}

/* ---- files ---- */

#define MODULE(type, path)                                                               \
    "{\"idx\": 0, \"name\": \"0\", \"path\": \"" path                                    \
    "\", \"type\": \"sentence_transformers.models." type "\"}"
#define TRANSFORMER MODULE("Transformer", "")
#define POOLING     MODULE("Pooling", "1_Pooling")
#define NORMALIZE   MODULE("Normalize", "2_Normalize")

static const char *pooling_folder(Fixture *f) {
    const char *path = path_join(f->arena, f->folder, "1_Pooling");
    mkdir(path, 0777);
    return path;
}

static void put_files(Fixture *f, const char *modules, const char *pooling) {
    put_text(path_join(f->arena, f->folder, "modules.json"), modules);
    put_text(path_join(f->arena, pooling_folder(f), "config.json"), pooling);
}

static void remove_files(Fixture *f) {
    remove(path_join(f->arena, f->folder, "modules.json"));
    remove(path_join(f->arena, pooling_folder(f), "config.json"));
    rmdir(pooling_folder(f));
}

static void test_files(void **state) {
    static const struct {
        const char *modules, *pooling;
        const char *found; /* the op that embeds, or a part of the refusal */
        bool refused;
    } CASES[] = {
        {"[" TRANSFORMER "]", "{}", NULL, false},
        {"[" TRANSFORMER "," POOLING "]", "{\"pooling_mode_mean_tokens\": true}",
         "mean_tokens", false},
        {"[" TRANSFORMER "," POOLING "]",
         "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}",
         "select_token", false},
        {"[" TRANSFORMER "," POOLING "," NORMALIZE "]",
         "{\"pooling_mode_lasttoken\": true}", "normalize", false},
        {"[" TRANSFORMER "," POOLING "]", "{\"pooling_mode_max_tokens\": true}",
         "this way to pool is not there yet", true},
        {"[" TRANSFORMER "," POOLING "]",
         "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}",
         "expected one way to pool, found pooling_mode_cls_token as well", true},
        {"[" TRANSFORMER "," POOLING "]", "{\"pooling_mode_mean_tokens\": false}",
         "expected a way to pool", true},
        {"[" TRANSFORMER "," POOLING "," MODULE("Dense", "2_Dense") "]",
         "{\"pooling_mode_mean_tokens\": true}",
         "found 'sentence_transformers.models.Dense' as module 3", true},
        {"[" POOLING "]", "{}", "as module 1", true},
        {"[" TRANSFORMER "," MODULE("Pooling", "../elsewhere") "]", "{}", "cannot", true},
        {"[{\"type\": 3}]", "{}", "expected a module with \"type\" and \"path\"", true},
        {"{}", "{}", "expected a list of at most 16 modules", true},
        {"[", "{}", "modules.json", true},
    };
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        take(f, "bert");
        put_files(f, CASES[i].modules, CASES[i].pooling);
        if (CASES[i].refused) {
            expect_refused(f, CASES[i].found);
            continue;
        }
        if (CASES[i].found) drop(f, "classifier");
        Model *model = expect_loaded(f, NULL);
        const Node *node = graph_output(model->graph, OUTPUT_EMBEDDING);
        assert_int_equal(node != NULL, CASES[i].found != NULL);
        if (node) assert_string_equal(node->op->name, CASES[i].found);
        model_destroy(model);
    }
    remove_files(f);
}

/* A key that is asked for leaves the files aside, whatever they say. */
static void test_own_key(void **state) {
    Fixture *f = *state;
    Model *model;
    Tree *keys = tree_new(f->arena, TREE_MAP, LOC_NONE);
    tree_put_string(f->arena, keys, "pooling", "first");
    const HfOptions options = {.overrides = keys};
    take(f, "bert");
    put_files(f, "[" TRANSFORMER "," MODULE("Dense", "") "]", "{}");
    drop(f, "classifier");
    expect_ok(f->diag, safetensors_write(f->model, f->tensors, f->count, f->diag));
    put_text(f->config, f->text);
    expect_ok(f->diag, hf_read_with(&model, f->folder, &options, ops_table(), f->diag));
    assert_string_equal(graph_output(model->graph, OUTPUT_EMBEDDING)->op->name,
                        "select_token");
    model_destroy(model);
    remove_files(f);
}

/* What is written is read back as the same graph, the keys standing in the files. */
static void test_written(void **state) {
    static const char *const KEYS[] = {"\"pooling\": \"mean\", \"normalize\": true",
                                       "\"pooling\": \"first\"",
                                       "\"pooling\": \"last\", \"normalize\": false"};
    Fixture *f = *state;
    const char *target = path_join(f->arena, f->folder, "out");
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        Model *back;
        Written written = {0};
        Text one = {0}, two = {0};
        char *config;
        size_t length;
        take(f, "bert");
        edit(f, "{", arena_printf(f->arena, "{%s, ", KEYS[i]));
        drop(f, "classifier");
        Model *model = expect_loaded(f, NULL);
        expect_ok(f->diag, hf_write(model, target, NULL, &written, f->diag));
        expect_ok(f->diag, file_read(&config, &length, f->arena,
                                     path_join(f->arena, target, "config.json"), 1 << 20,
                                     f->diag));
        assert_null(strstr(config, "\"pooling\""));
        assert_null(strstr(config, "\"normalize\""));
        expect_ok(f->diag, model_load(&back, target, ops_table(), true, f->diag));
        graph_print(&one, model->graph);
        graph_print(&two, back->graph);
        assert_string_equal(one.data, two.data);
        text_free(&one);
        text_free(&two);
        model_destroy(back);
        model_destroy(model);
    }
    scratch_remove(path_join(f->arena, target, "1_Pooling"));
    scratch_remove(target);
}

/* A file whose model embeds gives the encoder alone where that is asked for, and another
 * embedding where that is. */
static void test_file_without(void **state) {
    static const char *const EMBEDS[][2] = {
        {"none", NULL}, {"first", "select_token"}, {NULL, "mean_tokens"}};
    Fixture *f = *state;
    const char *path = path_join(f->arena, f->folder, "embeds.h5");
    take(f, "bert");
    edit(f, "{", "{\"pooling\": \"mean\", ");
    drop(f, "classifier");
    Model *model = expect_loaded(f, NULL);
    expect_ok(f->diag, modelfile_write(model, path, NULL, f->diag));
    model_destroy(model);
    for (size_t i = 0; i < sizeof EMBEDS / sizeof *EMBEDS; i++) {
        Tree *keys = tree_new(f->arena, TREE_MAP, LOC_NONE);
        tree_put_bool(f->arena, keys, "normalize", false);
        if (EMBEDS[i][0]) tree_put_string(f->arena, keys, "pooling", EMBEDS[i][0]);
        const HfOptions options = {.overrides = keys};
        expect_ok(f->diag,
                  model_load_with(&model, path, &options, ops_table(), true, f->diag));
        const Node *embedding = graph_output(model->graph, OUTPUT_EMBEDDING);
        assert_non_null(graph_output(model->graph, OUTPUT_STATES));
        assert_int_equal(embedding != NULL, EMBEDS[i][1] != NULL);
        if (embedding) assert_string_equal(embedding->op->name, EMBEDS[i][1]);
        model_destroy(model);
    }
    scratch_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(test_refused_keys, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(test_head_goes, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(test_files, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(test_own_key, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(test_written, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(test_file_without, fixture_make, fixture_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
