/* Hugging Face folders out: every reference folder is written as it was found; what is no
 * stock architecture is refused in plain words; a folder is replaced whole or not at all.
 */
#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/outfile.h"
#include "io/files/outfolder.h"
#include "io/formats/densify.h"
#include "io/formats/hf_write.h"
#include "io/formats/load.h"
#include "io/formats/safetensors.h"
#include "io/formats/shards.h"
#include "ir/cast.h"
#include "ir/rewrite.h"
#include "ir/storage.h"
#include "tests/io/io_test.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/starved.h"

#include <math.h>
#include <sys/stat.h>

#define REFERENCE "tests/data/reference/"

typedef struct Bench {
    char scratch[256], target[300];
    Arena *arena;
    Diag *diag;
} Bench;

static int bench_make(void **state) {
    Bench *bench = calloc(1, sizeof *bench);
    scratch_make(bench->scratch);
    snprintf(bench->target, sizeof bench->target, "%s/out", bench->scratch);
    bench->arena = arena_create();
    bench->diag = diag_create();
    *state = bench;
    return 0;
}

static int bench_free(void **state) {
    Bench *bench = *state;
    scratch_remove(bench->target);
    scratch_remove(bench->scratch);
    diag_destroy(bench->diag);
    arena_destroy(bench->arena);
    free(bench);
    return 0;
}

static Written write_folder(Bench *bench, Model *model, const HfWriteOptions *own) {
    const WriteOptions options = {.options = own};
    Written written = {0};
    expect_ok(bench->diag, hf_check(model, &options, bench->diag));
    expect_ok(bench->diag,
              hf_write(model, bench->target, &options, &written, bench->diag));
    return written;
}

static Model *load(Bench *bench, const char *path) {
    Model *model;
    expect_ok(bench->diag, model_load(&model, path, ops_table(), true, bench->diag));
    return model;
}

static const char *read_text(Bench *bench, const char *folder, const char *name) {
    char *text;
    size_t length;
    expect_ok(bench->diag,
              file_read(&text, &length, bench->arena,
                        path_join(bench->arena, folder, name), 1 << 20, bench->diag));
    return text;
}

/* config.json without its line breaks. */
static const char *config_text(Bench *bench, const char *folder) {
    Tree *config;
    Text text = {0};
    const char *path = path_join(bench->arena, folder, "config.json");
    expect_ok(bench->diag, json_read(&config, bench->arena, path, 1 << 20, bench->diag));
    tree_print_json(&text, config, 0);
    const char *copy = arena_strdup(bench->arena, text.data);
    text_free(&text);
    return copy;
}

/* ---- what was read is written ---- */

static const char *const FOLDERS[] = {"vit",
                                      "deit",
                                      "swin",
                                      "swin_padded",
                                      "bert",
                                      "gpt2",
                                      "llama",
                                      "bert_mlm",
                                      "distilbert",
                                      "marian",
                                      "t5",
                                      "t5_gated",
                                      "roberta",
                                      "roberta_mlm",
                                      "roberta_choice",
                                      "roberta_bare",
                                      "xlm_roberta",
                                      "xlm_roberta_span",
                                      "electra",
                                      "electra_mlm",
                                      "electra_choice",
                                      "mpnet",
                                      "mpnet_mlm",
                                      "mpnet_bare",
                                      "bart",
                                      "bart_scaled",
                                      "modernbert",
                                      "modernbert_mlm",
                                      "modernbert_tokens",
                                      "mistral",
                                      "mistral_wide",
                                      "qwen2",
                                      "qwen2_yarn",
                                      "qwen3",
                                      "qwen3_window",
                                      "gemma",
                                      "gemma_bias",
                                      "gemma2",
                                      "gemma2_plain",
                                      "phi3",
                                      "phi3_partial",
                                      "llama_yarn",
                                      "llama_v5",
                                      "dinov2",
                                      "dinov2_features"};

/* Every tensor of one checkpoint is in the other, with the same type, shape and bytes. */
static void check_tensors(const Checkpoint *found, const Checkpoint *wanted) {
    for (int i = 0; i < wanted->count; i++) {
        const NamedTensor *named = &wanted->tensors[i];
        const Tensor *tensor = checkpoint_find(found, named->name);
        if (!tensor || tensor->dtype != named->tensor.dtype ||
            !tensor_same_shape(tensor, &named->tensor) ||
            memcmp(tensor_data(tensor), tensor_data(&named->tensor),
                   tensor_bytes(tensor)) != 0)
            fail_msg("%s: %s is not as it was", found->path, named->name);
    }
    assert_int_equal(found->count, wanted->count);
}

/* The references were written by somebody else: tensors and configuration come out as
 * they went in, to the byte, and so does the order of keys. */
static void test_as_it_was(void **state) {
    Bench *bench = *state;
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        const char *folder = arena_printf(bench->arena, REFERENCE "%s", FOLDERS[i]);
        Checkpoint *found, *wanted;
        Model *model = load(bench, folder);
        const Written written = write_folder(bench, model, NULL);
        expect_ok(bench->diag, checkpoint_read(&found, bench->target, bench->diag));
        expect_ok(bench->diag, checkpoint_read(&wanted, folder, bench->diag));
        check_tensors(found, wanted);
        assert_string_equal(tree_get(found->metadata, "format")->string, "pt");
        assert_string_equal(config_text(bench, bench->target),
                            config_text(bench, folder));
        assert_int_equal(written.files, 2);
        assert_int_equal(scratch_count(bench->scratch), 1);
        struct stat weights;
        assert_int_equal(
            stat(path_join(bench->arena, bench->target, "model.safetensors"), &weights),
            0);
        assert_true(written.bytes > weights.st_size);
        checkpoint_destroy(found);
        checkpoint_destroy(wanted);
        model_destroy(model);
    }
}

/* ---- what a model has become ---- */

static const char LLAMA[] =
    "{model_type: llama, hidden_size: 8, num_hidden_layers: 3, num_attention_heads: 4,\n"
    " intermediate_size: 16, vocab_size: 12, bos_token_id: 1}";

static const char GPT2[] =
    "{model_type: gpt2, n_embd: 8, n_layer: 3, n_head: 2, vocab_size: 12,\n"
    " n_positions: 6, n_inner: null}";

static const char BERT[] =
    "{model_type: bert, architectures: [BertForMaskedLM], hidden_size: 8,\n"
    " num_hidden_layers: 3, num_attention_heads: 2, intermediate_size: 16,\n"
    " vocab_size: 12, max_position_embeddings: 6}";

/* The value of a key of config.json as text. */
static const char *key_of(Bench *bench, const char *key) {
    Tree *config;
    Text text = {0};
    const char *path = path_join(bench->arena, bench->target, "config.json");
    expect_ok(bench->diag, json_read(&config, bench->arena, path, 1 << 20, bench->diag));
    const Tree *value = tree_get(config, key);
    if (!value) return "none";
    tree_print_json(&text, value, 0);
    const char *copy = arena_strdup(bench->arena, text.data);
    text_free(&text);
    return copy;
}

/* Storages of a graph in the order of the graph, so that names may be others. */
static int list_leaves(const Graph *graph, const Storage **out) {
    int count = 0;
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++) {
            const Node *leaf = node->in[i];
            bool known = !leaf || !leaf->storage;
            for (int k = 0; k < count && !known; k++) known = out[k] == leaf->storage;
            if (!known) out[count++] = leaf->storage;
        }
    return count;
}

/* The folder holds this model: the same weights in the same places, and outputs equal to
 * the last bit. */
static void check_back(Bench *bench, Model *model, const char *output) {
    enum { MOST = 4096 };
    static double was[MOST], is[MOST];
    const Storage *one[256], *two[256];
    Model *back = load(bench, bench->target);
    const int count = list_leaves(model->graph, one);
    assert_int_equal(list_leaves(back->graph, two), count);
    for (int i = 0; i < count; i++) {
        char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
        tensor_hash(storage_tensor(one[i]), a);
        tensor_hash(storage_tensor(two[i]), b);
        if (strcmp(a, b) != 0) fail_msg("'%s' is not '%s'", two[i]->name, one[i]->name);
    }
    const int64_t values = configured_run(model, output, 1, was, MOST);
    assert_int_equal(configured_run(back, output, 1, is, MOST), values);
    assert_memory_equal(was, is, (size_t)values * sizeof *was);
    model_destroy(back);
}

/* Layers are counted anew, heads of llama have a key for their width. */
static void test_smaller(void **state) {
    Bench *bench = *state;
    Model *model = configured_model(LLAMA, 3);
    run_pass(model, "remove_layer", "{drop: [0]}");
    run_pass(model, "prune_heads", "{keep: 2, score: magnitude}");
    run_pass(model, "prune_ffn", "{keep: 6, score: magnitude}");
    write_folder(bench, model, NULL);
    assert_string_equal(key_of(bench, "num_hidden_layers"), "2");
    assert_string_equal(key_of(bench, "num_attention_heads"), "2");
    assert_string_equal(key_of(bench, "head_dim"), "2");
    assert_string_equal(key_of(bench, "intermediate_size"), "6");
    assert_string_equal(key_of(bench, "hidden_size"), "8");
    assert_string_equal(key_of(bench, "bos_token_id"), "1");
    assert_string_equal(key_of(bench, "architectures"), "[\"LlamaForCausalLM\"]");
    check_back(bench, model, "logits");
    model_destroy(model);
}

/* Several parts of one tensor, in half precision and in two types. */
static void test_joined(void **state) {
    Bench *bench = *state;
    Model *model = configured_model(GPT2, 3);
    expect_ok(bench->diag, model_cast(model, DTYPE_F16, NULL, bench->diag));
    run_pass(model, "remove_layer", "{drop: [1]}");
    run_pass(model, "prune_ffn", "{keep: 6, score: magnitude}");
    write_folder(bench, model, NULL);
    assert_string_equal(key_of(bench, "n_inner"), "6");
    assert_string_equal(key_of(bench, "n_layer"), "2");
    assert_string_equal(key_of(bench, "torch_dtype"), "\"float16\"");
    check_back(bench, model, "logits");
    Storage *q = graph_find(model->graph, "decoder", 0, ROLE_Q)->in[1]->storage;
    expect_ok(bench->diag, storage_to_f32(q, bench->diag));
    write_folder(bench, model, NULL);
    assert_string_equal(key_of(bench, "torch_dtype"), "\"float32\"");
    Model *back = load(bench, bench->target);
    const Node *found = graph_find(back->graph, "decoder", 0, ROLE_K);
    assert_int_equal(storage_tensor(found->in[1]->storage)->dtype, DTYPE_F32);
    model_destroy(back);
    model_destroy(model);
}

static void test_labels(void **state) {
    Bench *bench = *state;
    Model *model = configured_bert(2, 1);
    write_folder(bench, model, NULL);
    assert_string_equal(key_of(bench, "architectures"),
                        "[\"BertForSequenceClassification\"]");
    assert_string_equal(key_of(bench, "id2label"),
                        "{\"0\":\"LABEL_0\",\"1\":\"LABEL_1\",\"2\":\"LABEL_2\"}");
    assert_string_equal(key_of(bench, "label2id"),
                        "{\"LABEL_0\":0,\"LABEL_1\":1,\"LABEL_2\":2}");
    check_back(bench, model, "logits");
    model_destroy(model);
}

static void test_assets(void **state) {
    Bench *bench = *state;
    Model *model = configured_model(GPT2, 3);
    model_put_asset(model, "tokenizer.json", "{}\n", 3);
    model_put_asset(model, "merges.txt", "a b\n", 4);
    assert_int_equal(write_folder(bench, model, NULL).files, 4);
    assert_string_equal(read_text(bench, bench->target, "tokenizer.json"), "{}\n");
    assert_string_equal(read_text(bench, bench->target, "merges.txt"), "a b\n");
    model_destroy(model);
}

/* ---- shards ---- */

static void test_shards(void **state) {
    Bench *bench = *state;
    const HfWriteOptions small = {.shard_bytes = 1500};
    Model *model = configured_model(LLAMA, 3);
    const Written written = write_folder(bench, model, &small);
    Tree *index;
    int64_t total = 0;
    expect_ok(bench->diag, json_read(&index, bench->arena,
                                     path_join(bench->arena, bench->target,
                                               "model.safetensors.index.json"),
                                     1 << 20, bench->diag));
    for (int i = 0; i < model->graph->storage_count; i++)
        total += (int64_t)tensor_bytes(&model->graph->storages[i]->tensor);
    assert_int_equal(tree_get(tree_get(index, "metadata"), "total_size")->integer, total);
    const int shards = written.files - 2;
    assert_true(shards > 3);
    for (const Tree *place = tree_get(index, "weight_map")->first; place;
         place = place->next)
        assert_string_equal(strstr(place->string, "-of-"),
                            arena_printf(bench->arena, "-of-%05d.safetensors", shards));
    check_back(bench, model, "logits");
    /* one file again, and no shard is left */
    assert_int_equal(write_folder(bench, model, NULL).files, 2);
    assert_int_equal(scratch_count(bench->target), 2);
    check_back(bench, model, "logits");
    model_destroy(model);
}

/* ---- what is no stock architecture ---- */

static void expect_no_stock(Bench *bench, Model *model, const HfWriteOptions *own,
                            const char *reason, const char *hint) {
    const WriteOptions options = {.options = own};
    const Status status = hf_check(model, &options, bench->diag);
    char *text = diag_text(bench->diag);
    if (status != STATUS_MODEL || !strstr(text, reason) || !strstr(text, hint))
        fail_msg("expected '%s' and '%s', found %d: %s", reason, hint, status, text);
    free(text);
    diag_clear(bench->diag);
    Written written;
    assert_int_equal(hf_write(model, bench->target, &options, &written, bench->diag),
                     STATUS_MODEL);
    diag_clear(bench->diag);
    assert_int_equal(scratch_count(bench->scratch), 0);
    model_destroy(model);
}

static Model *changed(const char *config, const char *pass, const char *options) {
    Model *model = configured_model(config, 3);
    run_pass(model, pass, options);
    return model;
}

static void test_refused(void **state) {
    Bench *bench = *state;
    const struct {
        const char *config, *pass, *options, *reason, *hint;
    } cases[] = {
        {LLAMA, "prune_ffn", "{keep_ratio: 0.5, ranking: global, score: magnitude}",
         "feed-forward units, layer 0 has", ".onnx"},
        {LLAMA, "remove_block", "{block: attention, drop: [1]}",
         "layer 1 of the decoder has 0 heads, layer 0 has 4", ".onnx"},
        {BERT, "prune_heads", "{keep: 1, score: magnitude}",
         "each layer of the encoder has 1 heads of 4 numbers, which do not make up its "
         "width of 8",
         ".onnx"},
        {GPT2, "prune_heads", "{keep: 1, score: magnitude}", "which do not make up",
         ".onnx"},
        {BERT, "fold_token_type", "{}", "it has no token types", ".onnx"},
        {BERT, "factor_embedding", "{rank: 2}", "its word embedding is factored",
         "`densify: true`"},
        {BERT, "factor_linear", "{rank: 2}", "projections of it are two factors each",
         "`densify: true`"},
        {BERT, "weight_multiplex", "{groups: [3], position: none, mixing: none}",
         "stands for both 'bert.encoder.layer.1", "`densify: true`"},
        {GPT2, "attention_to_t2r", "{feature_size: 3}",
         "layer 0 of the decoder has linear attention", ".onnx"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_no_stock(bench, changed(cases[i].config, cases[i].pass, cases[i].options),
                        NULL, cases[i].reason, cases[i].hint);
    Model *mixed = configured_vit(4, 1);
    run_pass(mixed, "weight_multiplex", "{group: 2, position: none}");
    expect_no_stock(bench, mixed, NULL, "layer 0 of the encoder mixes its heads",
                    ".onnx");
    Model *leaves = configured_bert(3, 1);
    run_pass(leaves, "add_exits", "{}");
    expect_no_stock(bench, leaves, NULL, "it has early exits", ".onnx");
    expect_no_stock(bench,
                    configured_model("{model_type: lstm_lm, vocab_size: 9,\n"
                                     " embedding_size: 4, hidden_size: 4, num_layers: 1}",
                                     1),
                    NULL, "found 'lstm_lm'", ".onnx");
    expect_no_stock(bench,
                    configured_model("{model_type: marian, d_model: 8, vocab_size: 12,\n"
                                     " encoder_layers: 1, decoder_layers: 1,\n"
                                     " encoder_attention_heads: 2, encoder_ffn_dim: 8,\n"
                                     " decoder_attention_heads: 2, decoder_ffn_dim: 8,\n"
                                     " normalize_before: true}",
                                     1),
                    NULL, "normalize_before: true, which transformers does not follow",
                    ".onnx");
    Model *wide = configured_model(GPT2, 3);
    Node *table = graph_find(wide->graph, NULL, -1, ROLE_EMBED)->in[1];
    Tensor values;
    void *data;
    expect_ok(bench->diag, storage_blank(&values, &data, table->storage, DTYPE_F64, 2,
                                         table->type.dim, bench->diag));
    storage_set_values(table->storage, values);
    expect_no_stock(bench, wide, NULL, "expected weights of type f32", "`dtype: f32`");
}

/* A change that no words are kept for: the first node that differs is told. */
static void test_refused_node(void **state) {
    Bench *bench = *state;
    Model *model = configured_model(BERT, 3);
    Node *act = graph_find(model->graph, "encoder", 1, ROLE_FFN_ACT);
    expect_ok(bench->diag, node_set(model->graph, act, bench->diag, "fn=relu"));
    expect_no_stock(bench, model, NULL,
                    "at encoder.1 ffn_act (activation) expected fn=gelu, found relu",
                    ".onnx");
    model = configured_model(LLAMA, 3);
    Node *norm = graph_find(model->graph, "decoder", 2, ROLE_NORM2);
    graph_replace_uses(model->graph, norm, norm->in[0]);
    graph_remove_dead(model->graph);
    expect_no_stock(bench, model, NULL, "at decoder.2 norm2 (rms_norm) the model has",
                    ".onnx");
}

/* ---- densify ---- */

/* Matrices are the products of their factors, stored either way round. */
static void check_dense_linears(Bench *bench, const char *config, const char *stack,
                                bool turned) {
    const HfWriteOptions dense = {.densify = true, .shard_bytes = 1 << 30};
    Model *model = changed(config, "factor_linear", "{rank: 3, roles: [ffn_in]}");
    const Node *in = graph_find(model->graph, stack, 1, ROLE_FFN_IN);
    const Tensor *second = storage_tensor(in->in[1]->storage);
    const Tensor *first = storage_tensor(in->in[0]->in[1]->storage);
    const int64_t M = second->dim[turned], K = first->dim[!turned];
    write_folder(bench, model, &dense);
    Model *back = load(bench, bench->target);
    const Tensor *product =
        storage_tensor(graph_find(back->graph, stack, 1, ROLE_FFN_IN)->in[1]->storage);
    assert_int_equal(product->dim[turned], M);
    for (int64_t m = 0; m < M; m++)
        for (int64_t k = 0; k < K; k++) {
            double sum = 0, a, b;
            float found;
            for (int64_t r = 0; r < 3; r++) {
                tensor_read_f64(second, turned ? r * M + m : m * 3 + r, 1, &b);
                tensor_read_f64(first, turned ? k * 3 + r : r * K + k, 1, &a);
                sum += b * a;
            }
            tensor_read_f32(product, turned ? k * M + m : m * K + k, 1, &found);
            assert_true(found == (float)sum);
        }
    model_destroy(back);
    model_destroy(model);
}

static void test_dense_linears(void **state) {
    check_dense_linears(*state, BERT, "encoder", false);
    check_dense_linears(*state, GPT2, "decoder", true);
}

/* The table is the product of the factors, computed here by plain loops. */
static void test_dense_table(void **state) {
    Bench *bench = *state;
    const HfWriteOptions dense = {.densify = true, .shard_bytes = 1 << 30};
    Model *model = changed(BERT, "factor_embedding", "{rank: 3}");
    const Node *lookup = graph_find(model->graph, NULL, -1, ROLE_EMBED);
    const Tensor *left = storage_tensor(lookup->in[1]->storage);
    const Tensor *right = storage_tensor(
        graph_find(model->graph, NULL, -1, ROLE_EMBED_PROJECTION)->in[1]->storage);
    write_folder(bench, model, &dense);
    char *said = diag_text(bench->diag);
    assert_non_null(strstr(said, "1 factored embedding multiplied out: +36 parameters"));
    free(said);
    assert_string_equal(key_of(bench, "embedding_size"), "none");
    Model *back = load(bench, bench->target);
    const Tensor *table =
        storage_tensor(graph_find(back->graph, NULL, -1, ROLE_EMBED)->in[1]->storage);
    for (int64_t r = 0; r < 12; r++)
        for (int64_t c = 0; c < 8; c++) {
            double sum = 0, a[3], b[3];
            float found;
            tensor_read_f64(left, 3 * r, 3, a);
            tensor_read_f64(right, 3 * c, 3, b);
            for (int k = 0; k < 3; k++) sum += a[k] * b[k];
            tensor_read_f32(table, 8 * r + c, 1, &found);
            assert_true(found == (float)sum);
        }
    enum { MOST = 512 };
    double was[MOST], is[MOST];
    const int64_t values = configured_run(model, "logits", 1, was, MOST);
    assert_int_equal(configured_run(back, "logits", 1, is, MOST), values);
    for (int64_t i = 0; i < values; i++) assert_true(fabs(was[i] - is[i]) < 1e-6);
    model_destroy(back);
    model_destroy(model);
}

static Status densify(void *self, Diag *diag) {
    DenseReport report;
    return model_densify(self, &report, diag);
}

/* The second factor has 1.6 MB in double, the table 1 MiB. */
static void test_dense_starved(void **state) {
    (void)state;
    if (!can_starve()) skip();
    Model *model = changed("{model_type: bert, vocab_size: 256, hidden_size: 1024, "
                           "num_hidden_layers: 1, num_attention_heads: 2, "
                           "intermediate_size: 4, max_position_embeddings: 6}",
                           "factor_embedding", "{rank: 200}");
    assert_starves((size_t)2 << 20, densify, model);
    model_destroy(model);
}

/* Weights that layers share become one for each, and the outputs stay what they are. */
static void test_dense_layers(void **state) {
    Bench *bench = *state;
    enum { MOST = 512 };
    double was[MOST], is[MOST];
    const HfWriteOptions dense = {.densify = true, .shard_bytes = 1 << 30};
    Model *model =
        changed(BERT, "weight_multiplex", "{groups: [3], position: none, mixing: none}");
    write_folder(bench, model, &dense);
    char *said = diag_text(bench->diag);
    assert_non_null(strstr(said, "weights that parts of the model share are written"));
    free(said);
    Model *back = load(bench, bench->target);
    const int64_t values = configured_run(model, "logits", 1, was, MOST);
    assert_int_equal(configured_run(back, "logits", 1, is, MOST), values);
    assert_memory_equal(was, is, (size_t)values * sizeof *was);
    model_destroy(back);
    model_destroy(model);
}

/* ---- the folder ---- */

static void test_replaced(void **state) {
    Bench *bench = *state;
    Model *model = configured_model(GPT2, 3), *other = configured_model(LLAMA, 3);
    write_folder(bench, model, NULL);
    write_folder(bench, other, NULL);
    check_back(bench, other, "logits");
    const char *foreign = path_join(bench->arena, bench->target, "notes.txt");
    put_text(foreign, "mine");
    Written written;
    const WriteOptions options = {0};
    const Status status = hf_write(model, bench->target, &options, &written, bench->diag);
    expect_error(bench->diag, status, STATUS_IO, "the folder holds 'notes.txt'");
    assert_int_equal(scratch_count(bench->scratch), 1);
    unlink(foreign);
    check_back(bench, other, "logits");
    scratch_remove(bench->target);
    put_text(bench->target, "a file");
    expect_error(bench->diag,
                 hf_write(model, bench->target, &options, &written, bench->diag),
                 STATUS_IO, "expected a folder to replace, found a file");
    unlink(bench->target);
    /* a slash at the end is how folders are named; an empty one is filled */
    assert_int_equal(mkdir(bench->target, 0777), 0);
    expect_ok(bench->diag,
              hf_write(model, arena_printf(bench->arena, "%s//", bench->target), &options,
                       &written, bench->diag));
    check_back(bench, model, "logits");
    model_destroy(model);
    model_destroy(other);
}

/* Heads that transformers pruned: their layers are narrower, and so are the checkpoint's
 * matrices. */
static void test_pruned_heads(void **state) {
    static const char YAML[] =
        "{model_type: bert, architectures: [BertForSequenceClassification],\n"
        " hidden_size: 12, num_hidden_layers: 2, num_attention_heads: 3,\n"
        " intermediate_size: 10, vocab_size: 12, max_position_embeddings: 9,\n"
        " pruned_heads: {\"1\": [2, 0]}}\n";
    Bench *bench = *state;
    Written written;
    const WriteOptions options = {0};
    Model *model = configured_model(YAML, 1);
    for (int layer = 0; layer < 2; layer++) {
        const Node *attention =
            graph_find(model->graph, STACK_ENCODER, layer, ROLE_ATTENTION);
        const Node *out = graph_find(model->graph, STACK_ENCODER, layer, ROLE_OUT);
        const int64_t heads = layer == 0 ? 3 : 1;
        assert_int_equal(node_heads(attention), heads);
        assert_int_equal(out->in[1]->type.dim[0], 12);
        assert_int_equal(out->in[1]->type.dim[1], 4 * heads);
    }
    expect_ok(bench->diag,
              hf_write(model, bench->target, &options, &written, bench->diag));
    check_back(bench, model, "logits");
    model_destroy(model);
}

static bool is_a(const char *name) {
    return strcmp(name, "a") == 0;
}

/* What is written is measured without what only its writer needs. */
static void test_measured(void **state) {
    Bench *bench = *state;
    const char *temporary;
    OutFolder *out;
    expect_ok(bench->diag,
              outfolder_open(&out, &temporary, bench->target, is_a, bench->diag));
    put_text(path_join(bench->arena, temporary, "a"), "12345");
    int64_t bytes;
    int files;
    outfolder_measure(out, &bytes, &files);
    assert_int_equal(bytes, 5);
    assert_int_equal(files, 1);
    outfolder_abandon(out);
    assert_int_equal(scratch_count(bench->scratch), 0);
    expect_error(bench->diag, outfolder_open(&out, &temporary, "/", is_a, bench->diag),
                 STATUS_IO, "expected the name of a folder");
    expect_error(bench->diag,
                 outfolder_open(&out, &temporary,
                                path_join(bench->arena, bench->scratch, "no/such"), is_a,
                                bench->diag),
                 STATUS_IO, "cannot create a temporary folder beside it");
}

/* An end by a signal leaves nothing of a folder behind. */
static void test_interrupted(void **state) {
    Bench *bench = *state;
    const char *temporary;
    OutFolder *out;
    expect_ok(bench->diag,
              outfolder_open(&out, &temporary, bench->target, is_a, bench->diag));
    put_text(path_join(bench->arena, temporary, "a"), "1");
    mkdir(path_join(bench->arena, temporary, "in"), 0777);
    for (int i = 0; i < 200; i++) /* more than are listed at once */
        put_text(
            arena_printf(bench->arena, "%s/in/a file with a long name %d", temporary, i),
            "2");
    assert_true(path_is_folder(temporary));
    outfile_abandon_all();
    assert_false(path_is_folder(temporary));
    assert_int_equal(scratch_count(bench->scratch), 0);
    outfolder_abandon(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_make, bench_free)
        TEST(test_as_it_was),     TEST(test_smaller),      TEST(test_joined),
        TEST(test_labels),        TEST(test_assets),       TEST(test_shards),
        TEST(test_refused),       TEST(test_refused_node), TEST(test_dense_table),
        TEST(test_dense_layers),  TEST(test_replaced),     TEST(test_measured),
        TEST(test_interrupted),   TEST(test_pruned_heads), TEST(test_dense_linears),
        TEST(test_dense_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
