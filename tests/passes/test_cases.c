/* Cases of passes: tests/passes/cases/<pass>/<file>.case (tests/support/case_file.h).
 * Their sections:
 *
 *     model     what the recipe runs on: the name of a model below, or a
 *               configuration (YAML); absent: the toy model of
 *               tests/support/passes.h. Weights are drawn by seed 1
 *     before    a recipe that has run on it already: the case starts from what it left
 *     weights   values of weights, as tests/support/formula.h says
 *     recipe    YAML. Keys that it does not give: version 1, seed 1, data set "toy"
 *     expect    what must hold of the model and of what was recorded, as formulas
 *     changes   recorded: how the graph differs (tests/support/graph_changes.h)
 *     ir        recorded: the whole graph
 *     error     recorded: the diagnostics, for recipes that must fail
 *
 * A recipe that succeeds has at least one of expect, changes and ir. For each of them
 * the model verifies; print -> parse -> print is a fixed point, with values too; the
 * plan on shapes alone gives the same graph (lineages aside); runs with 1 and 2 threads
 * give the same weights. */
#include "ir/irtext.h"
#include "ir/verify.h"
#include "tests/support/case_file.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/formula.h"
#include "tests/support/graph_changes.h"
#include "tests/support/passes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOT "tests/passes/cases"

/* ---- models ---- */

#define BERT(architecture)                                                               \
    "{model_type: bert, architectures: [" architecture "], hidden_size: 8,\n"            \
    " num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16,\n"            \
    " vocab_size: 12, max_position_embeddings: 6, initializer_range: 0.3}\n"

#define LLAMA(more)                                                                      \
    "{model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 8,\n"           \
    " num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 16,\n"            \
    " vocab_size: 12, initializer_range: 0.3" more "}\n"

static const struct {
    const char *name, *config;
} MODELS[] = {
    {"bert", BERT("BertForSequenceClassification")},
    {"bert_mlm", BERT("BertForMaskedLM")},
    {"albert", "{model_type: albert, architectures: [AlbertForSequenceClassification],\n"
               " embedding_size: 4, hidden_size: 8, num_hidden_layers: 2,\n"
               " num_attention_heads: 2, intermediate_size: 16, vocab_size: 12,\n"
               " max_position_embeddings: 16, initializer_range: 0.3}\n"},
    {"gpt2",
     "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 8, n_layer: 4,\n"
     " n_head: 2, vocab_size: 12, n_positions: 16, initializer_range: 0.3}\n"},
    {"llama", LLAMA("")},
    {"llama_grouped", LLAMA(", num_key_value_heads: 2")},
    {"llama_one_key", LLAMA(", num_key_value_heads: 1")},
    {"swin",
     "{model_type: swin, image_size: 8, patch_size: 1, num_channels: 1, num_labels: 3,\n"
     " embed_dim: 8, depths: [2, 2], num_heads: [2, 4], window_size: 3, mlp_ratio: 2,\n"
     " initializer_range: 0.3}\n"},
    {"marian", "{model_type: marian, architectures: [MarianMTModel], d_model: 8,\n"
               " encoder_layers: 2, decoder_layers: 2, encoder_attention_heads: 2,\n"
               " decoder_attention_heads: 2, encoder_ffn_dim: 16, decoder_ffn_dim: 16,\n"
               " vocab_size: 12, activation_function: relu, init_std: 0.3}\n"},
    {"rnn_attention",
     "{model_type: rnn_attention, source_vocab_size: 12, target_vocab_size: 12,\n"
     " embedding_size: 5, encoder_size: 6, decoder_size: 7, alignment_size: 4}\n"},
};

/* ---- running ---- */

static bool has_key(const char *yaml, const char *key) {
    const size_t length = strlen(key);
    for (const char *line = yaml; *line; line += *line == '\n') {
        if (strncmp(line, key, length) == 0 && line[length] == ':') return true;
        line += strcspn(line, "\n");
    }
    return false;
}

/* The recipe, with the keys that it does not give behind it, so that lines keep their
 * numbers. */
static const char *case_recipe(const Case *one, const char *section) {
    static const char *const KEYS[][2] = {
        {"version", "1"}, {"seed", "1"}, {"data", "{toy: {format: toy}}"}};
    const char *given = case_text(one, section), *yaml = given;
    if (!given) fail_msg("%s has no section recipe", one->file->path);
    for (int i = 0; i < 3; i++)
        if (!has_key(given, KEYS[i][0]))
            yaml = arena_printf(one->file->arena, "%s%s: %s\n", yaml, KEYS[i][0],
                                KEYS[i][1]);
    return yaml;
}

static Model *case_model(const Case *one) {
    const char *text = case_text(one, "model"), *weights = case_text(one, "weights");
    Model *model = NULL;
    for (size_t i = 0; text && i < sizeof MODELS / sizeof *MODELS; i++)
        if (strlen(MODELS[i].name) == strcspn(text, "\n") &&
            strncmp(text, MODELS[i].name, strlen(MODELS[i].name)) == 0)
            model = configured_model(MODELS[i].config, 1);
    if (!model) model = text ? configured_model(text, 1) : toy_vit(1);
    if (case_text(one, "before")) {
        Diag *diag = diag_create();
        assert_ok(
            test_run_recipe(model, "before", case_recipe(one, "before"), false, 1, diag),
            diag);
        diag_destroy(diag);
    }
    if (weights) formula_assign(model, weights);
    return model;
}

static Status run_case(Model **model, const Case *one, bool plan, int threads,
                       Diag *diag) {
    *model = case_model(one);
    for (int i = 0; plan && i < (*model)->graph->storage_count; i++) {
        Tensor *tensor = &(*model)->graph->storages[i]->tensor;
        tensor_drop_data(tensor, tensor->dtype);
    }
    return test_run_recipe(*model, "recipe", case_recipe(one, "recipe"), plan, threads,
                           diag);
}

/* ---- what holds of every recipe that succeeds ---- */

/* Leaves the lineages out of IR text: scores of weights and gradients are not known to a
 * plan, so it knows how many entries stay and not which. */
static void drop_lineages(char *ir) {
    char *to = ir;
    for (const char *from = ir; *from; *to++ = *from++)
        if (strncmp(from, " kept ", 6) == 0) from += strcspn(from, "\n");
    *to = 0;
}

static void check_plan(const Case *one, const char *ir) {
    Model *model = NULL;
    Diag *diag = diag_create();
    Text planned = {0};
    assert_ok(run_case(&model, one, true, 1, diag), diag);
    graph_print(&planned, model->graph);
    char *run = strdup(ir);
    drop_lineages(run);
    drop_lineages(planned.data);
    if (strcmp(planned.data, run)) fail_msg("the plan gives another graph");
    free(run);
    text_free(&planned);
    model_destroy(model);
    diag_destroy(diag);
}

static void check_threads(const Case *one, Model *by_one) {
    Model *by_two = NULL;
    Diag *diag = diag_create();
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    assert_ok(run_case(&by_two, one, false, 2, diag), diag);
    model_hash(by_one, a);
    model_hash(by_two, b);
    if (strcmp(a, b)) fail_msg("1 and 2 threads give different weights");
    model_destroy(by_two);
    diag_destroy(diag);
}

/* Printing the graph and parsing it gives the same graph, with values and without. */
static void check_text(Graph *graph, const char *ir) {
    Text values = {0};
    graph_print_values(&values, graph);
    const char *texts[] = {ir, values.data};
    for (int i = 0; i < 2; i++) {
        Graph *parsed = NULL;
        Text again = {0};
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        assert_ok(graph_parse(&parsed, arena, graph->ops, "printed", texts[i],
                              strlen(texts[i]), diag),
                  diag);
        graph_print(&again, parsed);
        assert_string_equal(ir, again.data);
        text_free(&again);
        arena_destroy(arena);
        diag_destroy(diag);
    }
    text_free(&values);
}

static void check_graph(const Case *one, Model *model, const char *ir) {
    Diag *diag = diag_create();
    assert_ok(graph_verify(model->graph, STATUS_INTERNAL, diag), diag);
    check_text(model->graph, ir);
    check_plan(one, ir);
    check_threads(one, model);
    diag_destroy(diag);
}

/* ---- one case ---- */

static void check_success(Case *one, Model *model) {
    Text ir = {0}, changes = {0};
    Model *was = case_model(one);
    const int last = one->section_count - 1;
    const int error = case_find(one, "error", 0);
    const int whole = case_find(one, "ir", 0), part = case_find(one, "changes", 0);
    const char *expect = case_text(one, "expect");
    graph_print(&ir, model->graph);
    graph_changes(&changes, was->graph, model->graph);
    bool fine = case_compare(one, error, "error", "", "", last);
    if (whole >= 0) fine &= case_compare(one, whole, "ir", ir.data, NULL, last);
    if (part >= 0 || (whole < 0 && !expect))
        fine &= case_compare(one, part, "changes", changes.data ? changes.data : "", NULL,
                             last);
    fine &= !expect || formula_check(model, was, expect) == 0;
    if (!fine) fail_msg("%s differs from what is expected", one->name);
    check_graph(one, model, ir.data);
    text_free(&ir);
    text_free(&changes);
    model_destroy(was);
}

static void check_case(Case *one) {
    Model *model = NULL;
    Diag *diag = diag_create();
    const Status status = run_case(&model, one, false, 1, diag);
    char *errors = diag_text(diag);
    if (status == STATUS_OK)
        check_success(one, model);
    else if (!case_compare(one, case_find(one, "error", 0), "error", errors, NULL,
                           one->section_count - 1))
        fail_msg("%s fails otherwise", one->name);
    free(errors);
    model_destroy(model);
    diag_destroy(diag);
}

/* Every pass of the table has a folder of cases. */
static int count_passes_without_cases(void) {
    int count = 0;
    for (const Pass *const *pass = pass_list(); *pass; pass++) {
        char folder[300];
        snprintf(folder, sizeof folder, ROOT "/%s", (*pass)->name);
        if (access(folder, F_OK) == 0) continue;
        print_error("pass %s has no folder %s\n", (*pass)->name, folder);
        count++;
    }
    return count;
}

int main(int argc, char **argv) {
    if (count_passes_without_cases() > 0) return 1;
    return case_main(argc, argv, ROOT, check_case);
}
