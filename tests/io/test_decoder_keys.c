/* Keys of the decoders in Llama's form: each one of a configuration is changed, and the
 * graph is another one then, or the key is refused by its name, or who trains is warned.
 * Those that change nothing are listed. */
#include "io/families/config_keys.h"
#include "tests/io/folder_fixture.h"

static const char *const FOLDERS[] = {
    "llama_v5",     "llama_yarn",   "mistral_wide", "qwen2",      "qwen2_yarn",
    "qwen3",        "qwen3_window", "gemma",        "gemma_bias", "gemma2",
    "gemma2_plain", "phi3",         "phi3_partial"};
enum { FOLDER_COUNT = sizeof FOLDERS / sizeof *FOLDERS };

/* What else changes no number, and why. */
static bool changes_nothing(const char *key, const Tree *config) {
    const Tree *used = tree_get(config, "use_sliding_window");
    const bool windows = !used || used->boolean;
    /* no table of positions is as long, and these files say what was before */
    if (strcmp(key, "max_position_embeddings") == 0) return true;
    /* hidden_activation comes first */
    if (strcmp(key, "hidden_act") == 0) return tree_get(config, "hidden_activation");
    /* windows that are off, or for which layer_types counts */
    if (strcmp(key, "max_window_layers") == 0)
        return !windows || tree_get(config, "layer_types");
    if (strcmp(key, "use_sliding_window") == 0 &&
        tree_get(config, "sliding_window")->kind == TREE_NULL)
        return true;
    return strcmp(key, "sliding_window") == 0 && !windows;
}

/* Another value of the same kind. */
static void change(Arena *arena, Tree *value) {
    if (value->kind == TREE_BOOL) value->boolean = !value->boolean;
    if (value->kind == TREE_INT) value->integer += value->integer == 1 ? 1 : 2;
    if (value->kind == TREE_FLOAT) value->real = value->real == 0 ? 0.5 : 2 * value->real;
    if (value->kind == TREE_STRING)
        value->string = strcmp(value->string, "full_attention") == 0 ? "sliding_attention"
                        : strcmp(value->string, "sliding_attention") == 0
                            ? "full_attention"
                            : "gelu";
    if (value->kind == TREE_LIST && value->first) change(arena, value->first);
    if (value->kind == TREE_NULL) {
        value->kind = TREE_INT;
        value->integer = 3;
    }
}

/* The graph of a configuration as text, or NULL and what was said. */
static const char *graph_of(Fixture *f, const Tree *config, const char **said) {
    Model *model;
    const char *kept = NULL;
    if (hf_build_from(&model, config, CONFIG_FILE, ops_table(), f->diag) == STATUS_OK) {
        Text graph = {0};
        graph_print(&graph, model->graph);
        kept = arena_strdup(f->arena, graph.data);
        text_free(&graph);
        model_warn_left_out(model, f->diag);
        model_destroy(model);
    }
    char *text = diag_text(f->diag);
    *said = arena_strdup(f->arena, text);
    free(text);
    diag_clear(f->diag);
    return kept;
}

/* Changes `value`, one of the configuration's, and expects that to be seen. */
static void check_key(Fixture *f, const Tree *config, Tree *value, const char *key,
                      const char *usual, const char *folder) {
    const Tree was = *value;
    const Tree item = value->first ? *value->first : was;
    const char *said;
    change(f->arena, value);
    const char *graph = graph_of(f, config, &said);
    if (graph && strcmp(graph, usual) == 0 && !strstr(said, key))
        fail_msg("%s: %s changes nothing: %s", folder, key, said);
    /* sizes are told by the key that they do not go with */
    const bool size =
        strcmp(key, "hidden_size") == 0 || strcmp(key, "num_hidden_layers") == 0;
    if (!graph && !strstr(said, key) && !size) fail_msg("%s: %s: %s", folder, key, said);
    if (was.first) *value->first = item;
    *value = was;
}

static void every_key(void **state) {
    Fixture *f = *state;
    int changed = 0;
    for (int i = 0; i < FOLDER_COUNT; i++) {
        take(f, FOLDERS[i]);
        Tree *config;
        put_text(f->config, f->text);
        expect_ok(f->diag, json_read(&config, f->arena, f->config, 1 << 20, f->diag));
        const char *said, *usual = graph_of(f, config, &said);
        if (!usual || *said) fail_msg("%s: %s", FOLDERS[i], said);
        for (Tree *value = config->first; value; value = value->next) {
            if (value->kind == TREE_MAP) {
                for (Tree *own = value->first; own; own = own->next, changed++)
                    check_key(f, config, own, own->key, usual, FOLDERS[i]);
                continue;
            }
            if (config_key_is_passive(value->key) &&
                strcmp(value->key, "tie_word_embeddings") != 0 &&
                strcmp(value->key, "sliding_window") != 0 &&
                strcmp(value->key, "num_hidden_layers") != 0 &&
                strcmp(value->key, "hidden_size") != 0)
                continue;
            if (changes_nothing(value->key, config)) continue;
            check_key(f, config, value, value->key, usual, FOLDERS[i]);
            changed++;
        }
    }
    assert_true(changed > 150);
}

#define SIZES                                                                            \
    "\"vocab_size\": 16, \"hidden_size\": 8, \"intermediate_size\": 16, "                \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 2"
#define LLAMA "\"model_type\": \"llama\", " SIZES
#define QWEN  "\"model_type\": \"qwen2\", " SIZES
#define GEMMA "\"head_dim\": 4, " SIZES

static const struct {
    const char *config, *message;
} REFUSED[] = {
    {"{" LLAMA ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}}",
     "rope_scaling: expected null or rope_type: default, linear, llama3 or yarn"},
    {"{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"longrope\"}}",
     "found 'longrope'"},
    {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}}",
     "rope_scaling.factor: expected a number"},
    {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}}",
     "rope_scaling.factor: expected a number"},
    {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}}",
     "rope_scaling.original_max_position_embeddings: expected"},
    {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
     "\"original_max_position_embeddings\": 8, \"low_freq_factor\": 4.0, "
     "\"high_freq_factor\": 4.0}}",
     "expected high_freq_factor above low_freq_factor"},
    {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2.0, "
     "\"beta_fast\": 1, \"beta_slow\": 2}}",
     "expected beta_fast above beta_slow"},
    {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}, "
     "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 3.0}}",
     "rope_scaling: expected null beside rope_parameters"},
    {"{" LLAMA ", \"rope_scaling\": 2}", "expected null or a map with a rope_type"},
    {"{" QWEN ", \"sliding_window\": 0, \"use_sliding_window\": true}",
     "sliding_window: expected an integer from 1"},
    {"{" QWEN ", \"layer_types\": [\"full_attention\"]}",
     "layer_types: expected full_attention for each of the 2 layers"},
    {"{" QWEN ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
     "found 'sliding_attention'"},
    {"{" QWEN ", \"layer_types\": [\"full_attention\", \"chunked_attention\"], "
     "\"use_sliding_window\": true}",
     "found 'chunked_attention'"},
    {"{" QWEN ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor: expected 1"},
    {"{\"model_type\": \"gemma\", " GEMMA ", \"use_bidirectional_attention\": true}",
     "use_bidirectional_attention: expected false"},
    {"{\"model_type\": \"gemma\", " GEMMA ", \"sliding_window\": 3}",
     "sliding_window: expected null"},
    {"{\"model_type\": \"gemma2\", " GEMMA ", \"attn_logit_softcapping\": 0}",
     "attn_logit_softcapping: expected a number from 0.001"},
    {"{\"model_type\": \"gemma2\", " GEMMA ", \"query_pre_attn_scalar\": -1}",
     "query_pre_attn_scalar: expected a number"},
};

static void refused(void **state) {
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++)
        expect_not_built(f, REFUSED[i].config, REFUSED[i].message);
}

/* The reach of each layer of a configuration, as text. */
static const char *reaches(Fixture *f, const char *json) {
    Model *model;
    const char *text = "";
    expect_ok(f->diag, build(f, &model, json));
    const int layers = graph_layer_count(model->graph, "decoder");
    for (int i = 0; i < layers; i++) {
        const Node *node = graph_find(model->graph, "decoder", i, ROLE_ATTENTION);
        text = arena_printf(f->arena, "%s%s%lld", text, i ? " " : "",
                            (long long)node_integer(node, "reach"));
    }
    model_destroy(model);
    diag_clear(f->diag);
    return text;
}

static void windows(void **state) {
    Fixture *f = *state;
#define MISTRAL "{\"model_type\": \"mistral\", " SIZES
#define GEMMA2  "{\"model_type\": \"gemma2\", " GEMMA
    assert_string_equal(reaches(f, MISTRAL "}"), "4096 4096");
    assert_string_equal(reaches(f, MISTRAL ", \"sliding_window\": null}"), "0 0");
    assert_string_equal(reaches(f, MISTRAL ", \"sliding_window\": 5}"), "5 5");
    assert_string_equal(reaches(f, GEMMA2 "}"), "4096 0");
    assert_string_equal(reaches(f, GEMMA2 ", \"sliding_window\": null}"), "0 0");
    assert_string_equal(
        reaches(f, GEMMA2 ", \"layer_types\": [\"full_attention\", \"full_attention\"]}"),
        "0 0");
    assert_string_equal(reaches(f, "{" QWEN ", \"sliding_window\": 7}"), "0 0");
    assert_string_equal(reaches(f, "{" QWEN ", \"sliding_window\": 7, "
                                   "\"use_sliding_window\": true}"),
                        "0 0");
    assert_string_equal(reaches(f, "{" QWEN ", \"sliding_window\": 7, "
                                   "\"use_sliding_window\": true, "
                                   "\"max_window_layers\": 1}"),
                        "0 7");
}

/* Gemma's first configurations say gelu. */
static void gelu_of_gemma(void **state) {
    Fixture *f = *state;
    Model *model;
    expect_ok(f->diag, build(f, &model,
                             "{\"model_type\": \"gemma\", " GEMMA
                             ", \"hidden_act\": \"gelu\", \"hidden_activation\": null}"));
    Text graph = {0};
    graph_print(&graph, model->graph);
    assert_non_null(strstr(graph.data, "fn=gelu_tanh"));
    char *said = diag_text(f->diag);
    assert_non_null(strstr(said, "hidden_act: gelu is read as gelu_pytorch_tanh"));
    free(said);
    text_free(&graph);
    diag_clear(f->diag);
    model_destroy(model);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_make, fixture_free)
    const struct CMUnitTest tests[] = {TEST(every_key), TEST(refused), TEST(windows),
                                       TEST(gelu_of_gemma)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
