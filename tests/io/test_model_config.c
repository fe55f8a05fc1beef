/* What a model file says the model is: sizes of the graph, the original's beside them;
 * the task, declared, implied and saved. */
#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "io/formats/model_config.h"
#include "io/formats/modelfile.h"
#include "ir/irtext.h"
#include "tests/io/io_test.h"

typedef struct Bench {
    Arena *arena;
    Diag *diag;
} Bench;

static int bench_make(void **state) {
    Bench *bench = calloc(1, sizeof *bench);
    *bench = (Bench){arena_create(), diag_create()};
    *state = bench;
    return 0;
}

static int bench_free(void **state) {
    Bench *bench = *state;
    diag_destroy(bench->diag);
    arena_destroy(bench->arena);
    free(bench);
    return 0;
}

static Tree *parse(Bench *bench, const char *yaml) {
    Tree *tree;
    assert_ok(yaml_parse(&tree, bench->arena, "test", yaml, strlen(yaml), bench->diag),
              bench->diag);
    return tree;
}

static Model *build(Bench *bench, const char *yaml) {
    Model *model;
    assert_ok(hf_build(&model, parse(bench, yaml), ops_table(), bench->diag),
              bench->diag);
    return model;
}

static const char *json_of(Bench *bench, const Tree *tree) {
    Text text = {0};
    tree_print_json(&text, tree, 0);
    const char *copy = arena_strdup(bench->arena, text.data);
    text_free(&text);
    return copy;
}

/* --- sizes --- */

/* A family's configuration, and the keys of a smaller model of it. */
static const struct {
    const char *family, *rest, *large, *small;
} FAMILIES[] = {
    {"bert", "hidden_size: 8, max_position_embeddings: 8",
     "num_hidden_layers: 3, num_attention_heads: 2, intermediate_size: 16, vocab_size: 9, "
     "type_vocab_size: 2",
     "num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 12, vocab_size: 7, "
     "type_vocab_size: 1, head_dim: 2"},
    {"albert", "hidden_size: 8, max_position_embeddings: 8, num_attention_heads: 2",
     "num_hidden_layers: 3, intermediate_size: 16, vocab_size: 9, embedding_size: 8",
     "num_hidden_layers: 2, intermediate_size: 12, vocab_size: 7, embedding_size: 4"},
    {"distilbert", "dim: 8, max_position_embeddings: 8, n_heads: 2",
     "n_layers: 3, hidden_dim: 16, vocab_size: 9",
     "n_layers: 2, hidden_dim: 12, vocab_size: 7"},
    {"vit", "hidden_size: 8, image_size: 4, patch_size: 2, num_attention_heads: 2",
     "num_hidden_layers: 3, intermediate_size: 16",
     "num_hidden_layers: 2, intermediate_size: 12"},
    {"deit", "hidden_size: 8, image_size: 4, patch_size: 2, num_attention_heads: 2",
     "num_hidden_layers: 3, intermediate_size: 16",
     "num_hidden_layers: 2, intermediate_size: 12"},
    {"swin",
     "image_size: 8, patch_size: 2, window_size: 2, embed_dim: 4, hidden_act: relu",
     "depths: [2, 3], num_heads: [1, 2], mlp_ratio: 2",
     "depths: [1, 2], num_heads: [1, 2], mlp_ratio: 1.5"},
    {"gpt2", "n_embd: 8, n_positions: 8, n_head: 2",
     "n_layer: 3, n_inner: 16, vocab_size: 9", "n_layer: 2, n_inner: 12, vocab_size: 7"},
    {"llama", "hidden_size: 8, max_position_embeddings: 8, head_dim: 2",
     "num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2, "
     "intermediate_size: 16, vocab_size: 9",
     "num_hidden_layers: 2, num_attention_heads: 2, num_key_value_heads: 1, "
     "intermediate_size: 12, vocab_size: 7"},
    {"lstm_lm", "hidden_size: 8", "num_layers: 3, vocab_size: 9, embedding_size: 4",
     "num_layers: 2, vocab_size: 7, embedding_size: 3"},
    {"marian",
     "d_model: 8, max_position_embeddings: 8, encoder_attention_heads: 2, "
     "decoder_attention_heads: 2",
     "vocab_size: 9, encoder_layers: 3, decoder_layers: 3, encoder_ffn_dim: 16, "
     "decoder_ffn_dim: 16",
     "vocab_size: 7, encoder_layers: 2, decoder_layers: 1, encoder_ffn_dim: 12, "
     "decoder_ffn_dim: 14"},
    {"rnn_attention", "encoder_size: 4, decoder_size: 4",
     "source_vocab_size: 9, target_vocab_size: 9, embedding_size: 4",
     "source_vocab_size: 7, target_vocab_size: 8, embedding_size: 3"},
};

static const char *config_text(Bench *bench, size_t i, const char *sizes) {
    const char *text = arena_printf(bench->arena, "{model_type: %s, %s, %s}",
                                    FAMILIES[i].family, FAMILIES[i].rest, sizes);
    return text;
}

/* The graph of a small configuration beside a large one: the present configuration has
 * the small one's sizes, and the large one's are what it was. */
static void families(void **state) {
    Bench *bench = *state;
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++) {
        const char *large = config_text(bench, i, FAMILIES[i].large);
        const char *small = config_text(bench, i, FAMILIES[i].small);
        Model *model = build(bench, small);
        assert_ptr_equal(model_config_now(bench->arena, model), model->config);
        model->config = parse(bench, large);
        const Tree *now = model_config_now(bench->arena, model);
        const Tree *wanted = parse(bench, small);
        for (const Tree *key = wanted->first; key; key = key->next) {
            const char *found = json_of(bench, tree_get(now, key->key));
            if (strcmp(found, json_of(bench, key)) != 0)
                fail_msg("%s: %s is %s, expected %s", FAMILIES[i].family, key->key, found,
                         json_of(bench, key));
        }
        model_destroy(model);
    }
}

static const char BERT[] =
    "{model_type: bert, hidden_size: 8, num_hidden_layers: 2, "
    "num_attention_heads: 2, intermediate_size: 16, vocab_size: 9, "
    "max_position_embeddings: 8}";

/* Layers that differ have a list. */
static void lists(void **state) {
    Bench *bench = *state;
    Model *model = build(bench, BERT);
    Text text = {0};
    graph_print(&text, model->graph);
    char *at = strstr(text.data, "{heads=2}");
    assert_non_null(at);
    at[7] = '4';
    Graph *changed;
    assert_ok(graph_parse(&changed, bench->arena, ops_table(), "changed", text.data,
                          text.length, bench->diag),
              bench->diag);
    model->graph = changed;
    const Tree *now = model_config_now(bench->arena, model);
    assert_string_equal(json_of(bench, tree_get(now, "num_attention_heads")), "[4,2]");
    assert_string_equal(json_of(bench, tree_get(now, "head_dim")), "[2,4]");
    assert_int_equal(tree_get(now, "intermediate_size")->integer, 16);
    text_free(&text);
    model_destroy(model);
}

/* Both configurations are in the file; the reader gives the original. */
static void files(void **state) {
    Bench *bench = *state;
    char folder[256], *bytes;
    scratch_make(folder);
    const char *path = arena_printf(bench->arena, "%s/m.h5", folder);
    Model *model = build(bench, BERT), *copy;
    assert_ok(model_init_weights(model, 1, bench->diag), bench->diag);
    size_t length;
    for (int changed = 0; changed < 2; changed++) {
        if (changed) tree_put_int(model->arena, model->config, "num_hidden_layers", 12);
        assert_ok(modelfile_write(model, path, NULL, bench->diag), bench->diag);
        assert_ok(modelfile_read(&copy, path, ops_table(), true, bench->diag),
                  bench->diag);
        assert_string_equal(json_of(bench, copy->config), json_of(bench, model->config));
        assert_ok(file_read(&bytes, &length, bench->arena, path, 1 << 24, bench->diag),
                  bench->diag);
        const char name[] = "config_original", now[] = "\"num_hidden_layers\":2,";
        assert_int_equal(memmem(bytes, length, name, strlen(name)) != NULL, changed);
        assert_non_null(memmem(bytes, length, now, strlen(now)));
        model_destroy(copy);
    }
    model_destroy(model);
    scratch_remove(folder);
}

/* --- tasks --- */

static void declared(void **state) {
    Bench *bench = *state;
    static const struct {
        const char *config;
        Task task;
    } CASES[] = {
        {"BertForSequenceClassification", TASK_CLASSIFY},
        {"BertForMaskedLM", TASK_FILL_IN},
        {"BertModel", TASK_EMBED},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const char *config = arena_printf(bench->arena, "%.*s, architectures: [%s]}",
                                          (int)strlen(BERT) - 1, BERT, CASES[i].config);
        Model *model = build(bench, config);
        assert_int_equal(model->graph->task, CASES[i].task);
        assert_int_equal(graph_implied_task(model->graph), CASES[i].task);
        model_destroy(model);
    }
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++) {
        Model *model = build(bench, config_text(bench, i, FAMILIES[i].large));
        assert_int_not_equal(model->graph->task, TASK_NONE);
        assert_int_equal(graph_implied_task(model->graph), model->graph->task);
        model_destroy(model);
    }
}

/* A task that the graph does not imply is printed, read back, copied; of files without
 * one the graph's look decides. */
static void saved(void **state) {
    Bench *bench = *state;
    static const char *const GRAPHS[] = {"ir 1\n", "ir 1\ntask fill_in\n"};
    static const char BODY[] =
        "input input_ids : i32[N, T]\nparam @words : f32[9, 3]\n"
        "%2 = embedding($input_ids, @words) : f32[N, T, 3] at embeddings as embed\n"
        "output logits = %2\n";
    static const Task TASKS[] = {TASK_LABEL_TOKENS, TASK_FILL_IN};
    for (int i = 0; i < 2; i++) {
        Graph *graph;
        Text text = {0};
        const char *source = arena_printf(bench->arena, "%s%s", GRAPHS[i], BODY);
        assert_ok(graph_parse(&graph, bench->arena, ops_table(), "test", source,
                              strlen(source), bench->diag),
                  bench->diag);
        assert_int_equal(graph->task, TASKS[i]);
        graph_print(&text, graph);
        assert_string_equal(text.data, source);
        text_free(&text);
    }
    Graph *graph;
    static const char WRONG[] = "ir 1\ntask fill_on\n";
    expect_error(bench->diag,
                 graph_parse(&graph, bench->arena, ops_table(), "test", WRONG,
                             strlen(WRONG), bench->diag),
                 STATUS_FORMAT, "unknown task 'fill_on'");
}

/* What the class of a checkpoint and problem_type make of a model. */
static void problems(void **state) {
    Bench *bench = *state;
    static const struct {
        const char *keys;
        Task task;
        int rank;
        int64_t width; /* of the logits */
    } CASES[] = {
        {"architectures: [BertForTokenClassification], num_labels: 5", TASK_LABEL_TOKENS,
         3, 5},
        {"architectures: [BertForQuestionAnswering]", TASK_FIND_SPAN, 3, 2},
        {"architectures: [BertForMultipleChoice]", TASK_CHOOSE, 2, 1},
        {"num_labels: 3", TASK_CLASSIFY, 2, 3},
        {"num_labels: 1", TASK_REGRESS, 2, 1},
        {"num_labels: 1, problem_type: single_label_classification", TASK_CLASSIFY, 2, 1},
        {"num_labels: 4, problem_type: regression", TASK_REGRESS, 2, 4},
        {"num_labels: 4, problem_type: multi_label_classification", TASK_MULTI_LABEL, 2,
         4},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Model *model;
        const char *config = arena_printf(bench->arena, "%.*s, %s}",
                                          (int)strlen(BERT) - 1, BERT, CASES[i].keys);
        expect_ok(bench->diag,
                  hf_build(&model, parse(bench, config), ops_table(), bench->diag));
        const Type *type = &graph_output(model->graph, OUTPUT_LOGITS)->type;
        assert_int_equal(graph_task(model->graph), CASES[i].task);
        assert_int_equal(type->rank, CASES[i].rank);
        assert_int_equal(type->dim[type->rank - 1], CASES[i].width);
        model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(families, bench_make, bench_free),
        cmocka_unit_test_setup_teardown(lists, bench_make, bench_free),
        cmocka_unit_test_setup_teardown(files, bench_make, bench_free),
        cmocka_unit_test_setup_teardown(declared, bench_make, bench_free),
        cmocka_unit_test_setup_teardown(saved, bench_make, bench_free),
        cmocka_unit_test_setup_teardown(problems, bench_make, bench_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
