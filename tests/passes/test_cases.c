/* Cases of passes as files: tests/passes/cases/<pass>/<case>.yaml is a recipe that runs
 * on the toy model of tests/support/passes.h (seed 1) and the data set "toy", or when it
 * starts with "# on NAME" on one of the models below; beside it
 * <case>.ir is the graph it must leave, or <case>.err the diagnostics it must give.
 * COMPRESS_REWRITE=1 writes the expectations anew. For every case that succeeds: the plan
 * on shapes alone gives the same graph (lineages aside), and two runs with 1 and 2
 * threads the same weights. */
#include "ir/irtext.h"
#include "ir/verify.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define ROOT "tests/passes/cases"

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    Text text = {0};
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
        text_bytes(&text, block, n);
    fclose(file);
    if (!text.data) text_add(&text, "%s", "");
    return text.data;
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("cannot write %s", path);
    fputs(text, file);
    fclose(file);
}

static void expect_text(const char *stem, const char *suffix, const char *got) {
    char path[700];
    snprintf(path, sizeof path, "%s.%s", stem, suffix);
    if (getenv("COMPRESS_REWRITE")) {
        write_text(path, got);
        return;
    }
    char *want = read_text(path);
    if (!want) fail_msg("%s is missing; the run gave:\n%s", path, got);
    if (strcmp(want, got)) fail_msg("%s differs; the run gave:\n%s", path, got);
    free(want);
}

#define BERT(architecture)                                                               \
    "{model_type: bert, architectures: [" architecture "], hidden_size: 8,\n"            \
    " num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16,\n"            \
    " vocab_size: 12, max_position_embeddings: 6, initializer_range: 0.3}\n"

#define LLAMA(more)                                                                      \
    "{model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 8,\n"           \
    " num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 16,\n"            \
    " vocab_size: 12, initializer_range: 0.3" more "}\n"

static const struct {
    const char *line, *config;
} models[] = {
    {"# on bert\n", BERT("BertForSequenceClassification")},
    {"# on bert_mlm\n", BERT("BertForMaskedLM")},
    {"# on albert\n",
     "{model_type: albert, architectures: [AlbertForSequenceClassification],\n"
     " embedding_size: 4, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2,\n"
     " intermediate_size: 16, vocab_size: 12, max_position_embeddings: 16,\n"
     " initializer_range: 0.3}\n"},
    {"# on gpt2\n",
     "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 8, n_layer: 4,\n"
     " n_head: 2, vocab_size: 12, n_positions: 16, initializer_range: 0.3}\n"},
    {"# on llama\n", LLAMA("")},
    {"# on llama_grouped\n", LLAMA(", num_key_value_heads: 2")},
    {"# on swin\n",
     "{model_type: swin, image_size: 8, patch_size: 1, num_channels: 1, num_labels: 3,\n"
     " embed_dim: 8, depths: [2, 2], num_heads: [2, 4], window_size: 3, mlp_ratio: 2,\n"
     " initializer_range: 0.3}\n"},
    {"# on marian\n",
     "{model_type: marian, architectures: [MarianMTModel], d_model: 8,\n"
     " encoder_layers: 2, decoder_layers: 2, encoder_attention_heads: 2,\n"
     " decoder_attention_heads: 2, encoder_ffn_dim: 16, decoder_ffn_dim: 16,\n"
     " vocab_size: 12, activation_function: relu, init_std: 0.3}\n"},
    {"# on rnn_attention\n",
     "{model_type: rnn_attention, source_vocab_size: 12, target_vocab_size: 12,\n"
     " embedding_size: 5, encoder_size: 6, decoder_size: 7, alignment_size: 4}\n"},
};

/* The model that a case runs on. */
static Model *case_model(const char *yaml) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strncmp(yaml, models[i].line, strlen(models[i].line)) == 0)
            return configured_model(models[i].config, 1);
    return toy_vit(1);
}

static Status run_case(Model **model, const char *yaml, const char *path, bool plan,
                       int threads, Diag *diag) {
    *model = case_model(yaml);
    for (int i = 0; plan && i < (*model)->graph->storage_count; i++) {
        Tensor *tensor = &(*model)->graph->storages[i]->tensor;
        const Tensor shape = tensor_shape(tensor->dtype, tensor->rank, tensor->dim);
        tensor_release(tensor);
        *tensor = shape;
    }
    return test_run_recipe(*model, path, yaml, plan, threads, diag);
}

/* Leaves the lineages out of IR text: scores of weights and gradients are not known to a
 * plan, so it knows how many entries stay and not which. */
static void drop_lineages(char *ir) {
    char *to = ir;
    for (const char *from = ir; *from; *to++ = *from++)
        if (strncmp(from, " kept ", 6) == 0) from += strcspn(from, "\n");
    *to = 0;
}

static void check_plan(const char *yaml, const char *path, const char *ir) {
    Model *model = NULL;
    Diag *diag = diag_create();
    Text planned = {0};
    assert_ok(run_case(&model, yaml, path, true, 1, diag), diag);
    graph_print(&planned, model->graph);
    char *run = strdup(ir);
    drop_lineages(run);
    drop_lineages(planned.data);
    if (strcmp(planned.data, run)) fail_msg("%s: the plan gives another graph", path);
    free(run);
    text_free(&planned);
    model_destroy(model);
    diag_destroy(diag);
}

static void check_threads(const char *yaml, const char *path, Model *one) {
    Model *two = NULL;
    Diag *diag = diag_create();
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    assert_ok(run_case(&two, yaml, path, false, 2, diag), diag);
    model_hash(one, a);
    model_hash(two, b);
    if (strcmp(a, b)) fail_msg("%s: 1 and 2 threads give different weights", path);
    model_destroy(two);
    diag_destroy(diag);
}

static void check_success(const char *stem, const char *yaml, const char *path,
                          Model *model) {
    Diag *diag = diag_create();
    Text ir = {0}, again = {0};
    graph_print(&ir, model->graph);
    expect_text(stem, "ir", ir.data);
    assert_ok(graph_verify(model->graph, STATUS_INTERNAL, diag), diag);
    Graph *parsed = NULL;
    Arena *arena = arena_create();
    assert_ok(graph_parse(&parsed, arena, model->graph->ops, "printed", ir.data,
                          ir.length, diag),
              diag);
    graph_print(&again, parsed);
    assert_string_equal(ir.data, again.data);
    check_plan(yaml, path, ir.data);
    check_threads(yaml, path, model);
    text_free(&ir);
    text_free(&again);
    arena_destroy(arena);
    diag_destroy(diag);
}

static void check_case(const char *stem) {
    char path[700];
    snprintf(path, sizeof path, "%s.yaml", stem);
    char *yaml = read_text(path);
    if (!yaml) fail_msg("cannot read %s", path);
    Model *model = NULL;
    Diag *diag = diag_create();
    const Status status = run_case(&model, yaml, path, false, 1, diag);
    char *errors = diag_text(diag);
    if (status == STATUS_OK)
        check_success(stem, yaml, path, model);
    else
        expect_text(stem, "err", errors);
    free(errors);
    free(yaml);
    model_destroy(model);
    diag_destroy(diag);
}

static int is_yaml(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".yaml") == 0;
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int check_folder(const char *pass) {
    char folder[300], stem[600];
    snprintf(folder, sizeof folder, ROOT "/%s", pass);
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_yaml, alphasort);
    if (count <= 0) fail_msg("%s has no cases", folder);
    for (int i = 0; i < count; i++) {
        const int length = (int)strlen(entries[i]->d_name) - 5;
        snprintf(stem, sizeof stem, "%s/%.*s", folder, length, entries[i]->d_name);
        check_case(stem);
        free(entries[i]);
    }
    free(entries);
    return count;
}

static void test_all_cases(void **state) {
    (void)state;
    struct dirent **folders = NULL;
    const int count = scandir(ROOT, &folders, is_visible, alphasort);
    int cases = 0;
    for (int i = 0; i < count; i++) {
        cases += check_folder(folders[i]->d_name);
        free(folders[i]);
    }
    free(folders);
    assert_true(cases >= 10);
    print_message("%d cases\n", cases);
}

/* Every pass of the table has a folder of cases. */
static void test_complete(void **state) {
    (void)state;
    for (const Pass *const *pass = pass_list(); *pass; pass++) {
        char folder[300];
        snprintf(folder, sizeof folder, ROOT "/%s", (*pass)->name);
        DIR *dir = opendir(folder);
        if (!dir) fail_msg("pass %s has no folder %s", (*pass)->name, folder);
        closedir(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_cases),
        cmocka_unit_test(test_complete),
    };
    return cmocka_run_group_tests_name("cases of passes", tests, NULL, NULL);
}
