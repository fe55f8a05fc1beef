/* Which format takes what each pass makes of each family: everything is written, loaded
 * back where the format is read, and computes the same. docs/models.md has the outcome as
 * a table, which COMPRESS_REWRITE=1 writes anew. */
#include "exec/linalg/blas.h"
#include "exec/ops.h"
#include "io/families/family.h"
#include "io/formats/hf_write.h"
#include "io/formats/load.h"
#include "io/formats/save.h"
#include "passes/pass.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/onnx_notes.h"
#include "tests/support/page.h"
#include "tests/support/passes.h"
#include "tests/support/thinned.h"

#include <ctype.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- models and passes ---- */

#define TEXT                                                                             \
    " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"                   \
    " intermediate_size: 16, vocab_size: 12, max_position_embeddings: 6,\n"              \
    " initializer_range: 0.3}"

#define PADDED                                                                           \
    " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"                   \
    " intermediate_size: 16, vocab_size: 12, max_position_embeddings: 8,\n"              \
    " initializer_range: 0.3}"

#define IMAGE                                                                            \
    " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"                   \
    " intermediate_size: 16, image_size: 4, patch_size: 2, num_channels: 1,\n"           \
    " num_labels: 3, initializer_range: 0.3}"

/* A small model of every family. */
static const struct {
    const char *family, *config;
} FAMILIES[] = {
    {"bert", "{model_type: bert, architectures: [BertForSequenceClassification],\n" TEXT},
    {"distilbert", "{model_type: distilbert, dim: 8, n_layers: 4, n_heads: 2,\n"
                   " architectures: [DistilBertForMaskedLM], hidden_dim: 16,\n"
                   " vocab_size: 12, max_position_embeddings: 6}"},
    {"albert", "{model_type: albert, architectures: [AlbertForMaskedLM],\n"
               " embedding_size: 4,\n" TEXT},
    {"roberta", "{model_type: roberta, type_vocab_size: 1,\n"
                " architectures: [RobertaForSequenceClassification],\n" PADDED},
    {"xlm-roberta", "{model_type: xlm-roberta, type_vocab_size: 1,\n"
                    " architectures: [XLMRobertaForTokenClassification],\n" PADDED},
    {"mpnet", "{model_type: mpnet,\n"
              " architectures: [MPNetForSequenceClassification],\n" PADDED},
    {"modernbert", "{model_type: modernbert, local_attention: 4,\n"
                   " architectures: [ModernBertForSequenceClassification],\n" TEXT},
    {"electra", "{model_type: electra, architectures: [ElectraForMaskedLM],\n"
                " embedding_size: 4,\n" TEXT},
    {"gpt2", "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 8,\n"
             " n_layer: 4, n_head: 2, vocab_size: 12, n_positions: 6}"},
    {"llama", "{model_type: llama, architectures: [LlamaForCausalLM],\n"
              " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
              " intermediate_size: 16, vocab_size: 12, initializer_range: 0.3}"},
    {"mistral", "{model_type: mistral, architectures: [MistralForCausalLM],\n"
                " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
                " num_key_value_heads: 2, intermediate_size: 16, vocab_size: 12,\n"
                " sliding_window: 4, initializer_range: 0.3}"},
    {"phi3", "{model_type: phi3, architectures: [Phi3ForCausalLM],\n"
             " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
             " num_key_value_heads: 2, intermediate_size: 16, vocab_size: 12,\n"
             " partial_rotary_factor: 0.5, initializer_range: 0.3}"},
    {"qwen2", "{model_type: qwen2, architectures: [Qwen2ForCausalLM],\n"
              " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
              " num_key_value_heads: 1, intermediate_size: 16, vocab_size: 12,\n"
              "  initializer_range: 0.3}"},
    {"qwen3", "{model_type: qwen3, architectures: [Qwen3ForCausalLM],\n"
              " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
              " num_key_value_heads: 2, intermediate_size: 16, vocab_size: 12,\n"
              " head_dim: 6, initializer_range: 0.3}"},
    {"gemma", "{model_type: gemma, architectures: [GemmaForCausalLM],\n"
              " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
              " num_key_value_heads: 2, intermediate_size: 16, vocab_size: 12,\n"
              " head_dim: 6, initializer_range: 0.3}"},
    {"gemma2", "{model_type: gemma2, architectures: [Gemma2ForCausalLM],\n"
               " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
               " num_key_value_heads: 2, intermediate_size: 16, vocab_size: 12,\n"
               " head_dim: 6, sliding_window: 4, initializer_range: 0.3}"},
    {"marian", "{model_type: marian, architectures: [MarianMTModel], d_model: 8,\n"
               " encoder_layers: 4, decoder_layers: 4, encoder_attention_heads: 2,\n"
               " decoder_attention_heads: 2, encoder_ffn_dim: 16, decoder_ffn_dim: 16,\n"
               " vocab_size: 12, activation_function: relu, init_std: 0.3}"},
    {"bart", "{model_type: bart, architectures: [BartForConditionalGeneration],\n"
             " d_model: 8, encoder_layers: 4, decoder_layers: 4,\n"
             " encoder_attention_heads: 2, decoder_attention_heads: 2,\n"
             " encoder_ffn_dim: 16, decoder_ffn_dim: 16, vocab_size: 12,\n"
             " max_position_embeddings: 8, init_std: 0.3}"},
    {"t5", "{model_type: t5, architectures: [T5ForConditionalGeneration], d_model: 8,\n"
           " num_layers: 4, num_heads: 2, d_kv: 3, d_ff: 16, vocab_size: 12,\n"
           " relative_attention_num_buckets: 6, relative_attention_max_distance: 8}"},
    {"mt5",
     "{model_type: mt5, architectures: [MT5ForConditionalGeneration], d_model: 8,\n"
     " num_layers: 4, num_heads: 2, d_kv: 4, d_ff: 16, vocab_size: 12}"},
    {"vit", "{model_type: vit, architectures: [ViTForImageClassification],\n" IMAGE},
    {"deit", "{model_type: deit,\n"
             " architectures: [DeiTForImageClassificationWithTeacher],\n" IMAGE},
    {"dinov2", "{model_type: dinov2, architectures: [Dinov2ForImageClassification],\n"
               " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
               " mlp_ratio: 2, image_size: 4, patch_size: 2, num_channels: 1,\n"
               " num_labels: 3, initializer_range: 0.3}"},
    {"swin", "{model_type: swin, architectures: [SwinForImageClassification],\n"
             " embed_dim: 8, depths: [2, 2], num_heads: [2, 2], window_size: 3,\n"
             " mlp_ratio: 2, image_size: 8, patch_size: 1, num_channels: 1,\n"
             " num_labels: 3, initializer_range: 0.3}"},
    {"lstm_lm", "{model_type: lstm_lm, vocab_size: 12, embedding_size: 4,\n"
                " hidden_size: 4, num_layers: 2}"},
    {"rnn_attention", "{model_type: rnn_attention, source_vocab_size: 12,\n"
                      " target_vocab_size: 12, embedding_size: 5, encoder_size: 6,\n"
                      " decoder_size: 7, alignment_size: 4}"},
};
enum { FAMILY_COUNT = sizeof FAMILIES / sizeof *FAMILIES };

/* Steps, one a line; `other`: for models whose layers have other numbers. */
static const struct {
    const char *steps, *other;
} ROWS[] = {
    {"", NULL},
    {"cast: {dtype: f16}", NULL},
    {"remove_layer: {drop: [1]}", "remove_layer: {stack: decoder, drop: [1]}"},
    {"remove_block: {block: ffn, drop: [1]}",
     "remove_block: {stack: decoder, block: ffn, drop: [1]}"},
    {"remove_attention", NULL},
    {"prune_heads: {keep: 1, score: magnitude}", NULL},
    {"prune_heads: {ranking: global, keep_ratio: 0.75, score: magnitude}", NULL},
    {"prune_ffn: {keep_ratio: 0.5, score: magnitude}", NULL},
    {"prune_ffn: {ranking: global, keep_ratio: 0.7, score: magnitude}", NULL},
    {"fold_token_type", NULL},
    {"factor_embedding: {rank: 2}", NULL},
    {"factor_linear: {rank: 2}", NULL},
    {"factor_linear: {rank: 2}\nmerge_factors: {all: true}", NULL},
    {"weight_multiplex: {group: 2, mixing: none, position: none}", NULL},
    {"weight_multiplex: {group: 2, position: none}", NULL},
    {"add_exits", NULL},
    {"attention_to_t2r: {feature_size: 3}", NULL},
    {"attention_to_t2r: {feature_size: 3}\nmerge_t2r", NULL},
};
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS };

/* ---- one cell ---- */

typedef struct TableBench {
    char folder[64];
    Arena *arena;
    int count; /* of paths written to */
    int faults;
} TableBench;

/* Runs steps on a new model; NULL when they are refused. */
static Model *run_steps(const TableBench *bench, const char *config, const char *steps) {
    Model *model = configured_model(config, 1);
    Diag *diag = diag_create();
    Text recipe = {0};
    Status status = STATUS_OK;
    text_add(&recipe, "version: 1\nseed: 1\npasses:\n");
    for (const char *step = steps; *step; step += strcspn(step, "\n")) {
        step += *step == '\n';
        text_add(&recipe, "  - %.*s\n", (int)strcspn(step, "\n"), step);
    }
    if (*steps)
        status = test_run_recipe(model, "test", arena_strdup(bench->arena, recipe.data),
                                 false, 1, diag);
    text_free(&recipe);
    diag_destroy(diag);
    if (status == STATUS_OK) return model;
    model_destroy(model);
    return NULL;
}

/* Relative to the largest value: as exact as double, or as the numbers of f32 that stand
 * in an ONNX file in place of roots and their like. */
static const double DOUBLE = 1e-12, SINGLE = 1e-6;

static bool has_plain_ops(const Graph *graph) {
    for (const Node *node = graph->first; node; node = node->next)
        if (node_has_trait(node, OP_TENSOR)) return true;
    return false;
}

/* Whether the model that was read computes what the written one does. */
static bool computes_same(Model *was, Model *is, double tolerance) {
    enum { MOST = 4096 };
    static double one[MOST], two[MOST];
    const int64_t count = configured_run(was, OUTPUT_LOGITS, 0, one, MOST);
    double largest = 0, off = 0;
    if (!graph_output(is->graph, OUTPUT_LOGITS) ||
        configured_run(is, OUTPUT_LOGITS, 0, two, MOST) != count)
        return false;
    for (int64_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(one[i]));
        off = fmax(off, fabs(one[i] - two[i]));
    }
    return off <= tolerance * largest;
}

static void fault(TableBench *bench, const char *path, const char *steps, Diag *diag) {
    char *text = diag_text(diag);
    print_error("%s after `%s`: %s\n", path, steps, text);
    free(text);
    bench->faults++;
}

/* Reads an ONNX file without its notes: false where no ops of ours, or plain ones alone,
 * do what its nodes do; where they do, they compute the same. */
static bool is_lifted(TableBench *bench, const char *path, Model *model,
                      const char *steps) {
    Diag *diag = diag_create();
    Model *back = NULL;
    forget_notes(path);
    const Status status = model_load(&back, path, ops_table(), true, diag);
    const bool plain = status == STATUS_OK && has_plain_ops(back->graph);
    if (status != STATUS_OK ? status != STATUS_MODEL
                            : !computes_same(model, back, plain ? SINGLE : DOUBLE))
        fault(bench, path, steps, diag);
    model_destroy(back);
    diag_destroy(diag);
    return status == STATUS_OK && !plain;
}

/* Whether a format takes the model; what it takes is written and read back. `*lifted`
 * becomes false where an ONNX file's nodes alone do not tell what the model is. */
static bool takes(TableBench *bench, const ModelFormat *format, Model *model,
                  const char *steps, bool densify, bool *lifted) {
    static const HfWriteOptions DENSE = {.densify = true, .shard_bytes = 1 << 30};
    Diag *diag = diag_create();
    Model *back = NULL;
    Tree path = {.kind = TREE_STRING};
    ModelOutput output;
    path.string = arena_printf(bench->arena, "%s/%d%s", bench->folder, bench->count++,
                               format->ending);
    assert_ok(output_bind(&output, bench->arena, &path, STATUS_USAGE, diag), diag);
    assert_ptr_equal(output.format, format);
    if (densify) output.options.options = &DENSE;
    const bool taken = output_check_model(&output, model, diag) == STATUS_OK;
    if (!taken) {
        char *text = diag_text(diag); /* a reason and what to do instead */
        if (!strstr(text, "hint: ")) fault(bench, path.string, steps, diag);
        free(text);
    } else if (model_save(model, &output, diag) != STATUS_OK) {
        fault(bench, path.string, steps, diag);
    } else if (format->read &&
               model_load(&back, path.string, ops_table(), true, diag) != STATUS_OK) {
        fault(bench, path.string, steps, diag);
    } else if (back && !densify && !computes_same(model, back, DOUBLE)) {
        fault(bench, path.string, steps, diag);
    } else if (strcmp(format->name, "onnx") == 0) {
        *lifted = is_lifted(bench, path.string, model, steps);
    }
    model_destroy(back);
    diag_destroy(diag);
    return taken;
}

static void add_cell(TableBench *bench, Text *text, const char *config, int row) {
    const char *steps = ROWS[row].steps;
    Model *model = run_steps(bench, config, steps);
    if (!model && ROWS[row].other) model = run_steps(bench, config, ROWS[row].other);
    if (!model) {
        text_add(text, " - |");
        return;
    }
    text_add(text, " ");
    for (const ModelFormat *const *f = model_format_list(); *f; f++) {
        const int letter = toupper((unsigned char)(*f)->name[0]);
        bool lifted = true;
        if (!(*f)->write) continue;
        if (takes(bench, *f, model, steps, false, &lifted))
            text_add(text, "%c", lifted ? letter : tolower(letter));
        else if (strcmp((*f)->ending, "/") == 0 &&
                 takes(bench, *f, model, steps, true, &lifted))
            text_add(text, "%c", tolower(letter));
    }
    text_add(text, " |");
    model_destroy(model);
}

/* ---- the table ---- */

static void add_steps(Text *text, const char *steps) {
    if (!*steps) text_add(text, "as it was read");
    for (const char *step = steps; *step; step += strcspn(step, "\n")) {
        step += *step == '\n';
        text_add(text, "%s`%.*s`", step == steps ? "" : ", ", (int)strcspn(step, "\n"),
                 step);
    }
}

static int remove_entry(const char *path, const struct stat *info, int type,
                        struct FTW *at) {
    (void)info, (void)type, (void)at;
    return remove(path);
}

static void test_table(void **state) {
    (void)state;
    TableBench bench = {.arena = arena_create()};
    Text text = {0};
    blas_init();
    snprintf(bench.folder, sizeof bench.folder, "/tmp/compress-table-XXXXXX");
    assert_non_null(mkdtemp(bench.folder));
    for (const ModelFormat *const *f = model_format_list(); *f; f++)
        if ((*f)->write)
            text_add(&text, "- %c: `%s`, `name%s`%s\n",
                     toupper((unsigned char)(*f)->name[0]), (*f)->name, (*f)->ending,
                     (*f)->read ? "" : " (not read)");
    text_add(&text, "\n| |");
    for (int i = 0; i < FAMILY_COUNT; i++) text_add(&text, " %s |", FAMILIES[i].family);
    text_add(&text, "\n|---|");
    for (int i = 0; i < FAMILY_COUNT; i++) text_add(&text, "---|");
    for (int row = 0; row < ROW_COUNT; row++) {
        text_add(&text, "\n| ");
        add_steps(&text, ROWS[row].steps);
        text_add(&text, " |");
        for (int i = 0; i < FAMILY_COUNT; i++)
            if (!thinned_out(row, i)) add_cell(&bench, &text, FAMILIES[i].config, row);
    }
    text_add(&text, "\n");
    nftw(bench.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(bench.faults, 0);
    if (!SANITIZED) page_check_table("docs/models.md", "formats", &text);
    text_free(&text);
    arena_destroy(bench.arena);
}

/* Every family has a column, every pass that changes a model without data a row, every
 * format that is written a letter of its own. */
static void test_complete(void **state) {
    (void)state;
    for (const Family *const *family = family_list(); *family; family++) {
        bool found = false;
        for (int i = 0; i < FAMILY_COUNT && !found; i++)
            found = strcmp(FAMILIES[i].family, (*family)->model_type) == 0;
        if (!found) fail_msg("no column for %s", (*family)->model_type);
    }
    for (const Pass *const *pass = pass_list(); *pass; pass++) {
        bool found = (*pass)->data_options || (*pass)->flags & PASS_MEASURES ||
                     strcmp((*pass)->name, "reset_weights") == 0;
        for (int i = 0; i < ROW_COUNT && !found; i++)
            found = strstr(ROWS[i].steps, (*pass)->name) != NULL;
        if (!found) fail_msg("no row for %s", (*pass)->name);
    }
    char letters[64] = "";
    for (const ModelFormat *const *f = model_format_list(); *f; f++) {
        const char letter[2] = {(*f)->name[0], 0};
        if ((*f)->write && strstr(letters, letter)) fail_msg("two formats %s", letter);
        if ((*f)->write) strcat(letters, letter);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table),
                                       cmocka_unit_test(test_complete)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
