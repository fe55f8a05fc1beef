/* A model in one safetensors file: it comes back bit for bit, whatever it has become;
 * others see a checkpoint; damage is found. */
#include "exec/ops.h"
#include "io/formats/load.h"
#include "io/formats/safetensors.h"
#include "io/formats/save.h"
#include "ir/cast.h"
#include "ir/storage.h"
#include "tests/io/io_test.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"

typedef struct Bench {
    char scratch[256], path[300], copy[300];
    Arena *arena;
    Diag *diag;
} Bench;

static int bench_make(void **state) {
    Bench *bench = calloc(1, sizeof *bench);
    scratch_make(bench->scratch);
    snprintf(bench->path, sizeof bench->path, "%s/model.safetensors", bench->scratch);
    snprintf(bench->copy, sizeof bench->copy, "%s/copy.safetensors", bench->scratch);
    bench->arena = arena_create();
    bench->diag = diag_create();
    *state = bench;
    return 0;
}

static int bench_free(void **state) {
    Bench *bench = *state;
    scratch_remove(bench->scratch);
    diag_destroy(bench->diag);
    arena_destroy(bench->arena);
    free(bench);
    return 0;
}

static void save(Bench *bench, Model *model) {
    Tree path = {.kind = TREE_STRING, .string = bench->path};
    ModelOutput output;
    expect_ok(bench->diag,
              output_bind(&output, bench->arena, &path, STATUS_USAGE, bench->diag));
    expect_ok(bench->diag, model_save(model, &output, bench->diag));
    assert_string_equal(output.format->name, "safetensors");
    assert_int_equal(output.written.files, 1);
}

static const char *json_of(Bench *bench, const Tree *tree) {
    Text text = {0};
    tree_print_json(&text, tree, 0);
    const char *copy = arena_strdup(bench->arena, text.data);
    text_free(&text);
    return copy;
}

/* The file holds this model, all of it. */
static void check_back(Bench *bench, Model *model) {
    char was[HASH_TEXT_BYTES], is[HASH_TEXT_BYTES];
    Model *back;
    expect_ok(bench->diag,
              model_load(&back, bench->path, ops_table(), true, bench->diag));
    model_hash(model, was);
    model_hash(back, is);
    assert_string_equal(was, is);
    assert_string_equal(json_of(bench, model->config), json_of(bench, back->config));
    assert_string_equal(json_of(bench, model->provenance),
                        json_of(bench, back->provenance));
    assert_int_equal(back->asset_count, model->asset_count);
    for (int i = 0; i < model->asset_count; i++) {
        const ModelAsset *one = &model->assets[i];
        const ModelAsset *two = model_asset(back, one->name);
        assert_non_null(two);
        assert_int_equal(two->length, one->length);
        assert_memory_equal(two->data, one->data, one->length);
    }
    model_destroy(back);
}

static const char GPT2[] =
    "{model_type: gpt2, n_embd: 8, n_layer: 3, n_head: 2, vocab_size: 12,\n"
    " n_positions: 6}";

/* Others see a checkpoint of the smaller architecture. */
static void test_stock(void **state) {
    Bench *bench = *state;
    Model *model = configured_model(GPT2, 3);
    Checkpoint *file;
    run_pass(model, "remove_layer", "{drop: [0]}");
    expect_ok(bench->diag, model_cast(model, DTYPE_BF16, NULL, bench->diag));
    model_put_asset(model, "vocab.json", "{\"a\": 0}\n", 9);
    model_put_asset(model, "tokenizer.model", "\0\377\n", 3);
    save(bench, model);
    check_back(bench, model);
    expect_ok(bench->diag, safetensors_read(&file, bench->path, bench->diag));
    assert_string_equal(tree_get(file->metadata, "format")->string, "pt");
    const Tensor *joined = checkpoint_find(file, "transformer.h.0.attn.c_attn.weight");
    assert_non_null(joined);
    assert_int_equal(joined->dtype, DTYPE_BF16);
    assert_int_equal(joined->dim[0], 8);
    assert_int_equal(joined->dim[1], 24);
    assert_non_null(checkpoint_find(file, "transformer.h.1.attn.c_attn.bias"));
    assert_null(checkpoint_find(file, "transformer.h.2.attn.c_attn.bias"));
    assert_null(checkpoint_find(file, "lm_head.weight"));
    checkpoint_destroy(file);
    /* parts of several types stay apart */
    Storage *q = graph_find(model->graph, "decoder", 0, ROLE_Q)->in[1]->storage;
    expect_ok(bench->diag, storage_to_f32(q, bench->diag));
    save(bench, model);
    check_back(bench, model);
    model_destroy(model);
}

/* What is no stock architecture is held as well: mixing, exits, factors, lineage, a
 * recurrent model, weights that are shared. */
static void test_any(void **state) {
    Bench *bench = *state;
    Model *model = configured_vit(4, 1);
    run_pass(model, "prune_ffn", "{keep_ratio: 0.5, ranking: global, score: magnitude}");
    save(bench, model);
    check_back(bench, model);
    model_destroy(model);
    model = configured_bert(4, 1);
    run_pass(model, "weight_multiplex", "{group: 2, position: none}");
    run_pass(model, "add_exits", "{}");
    run_pass(model, "factor_embedding", "{rank: 2}");
    save(bench, model);
    check_back(bench, model);
    model_destroy(model);
    model = configured_model("{model_type: rnn_attention, source_vocab_size: 12,\n"
                             " target_vocab_size: 12, embedding_size: 5,\n"
                             " encoder_size: 6, decoder_size: 7, alignment_size: 4}",
                             1);
    save(bench, model);
    check_back(bench, model);
    model_destroy(model);
}

/* Writes the file once more with one text of its metadata changed, or without it, or
 * with a tensor under another name. */
static void rewrite(Bench *bench, const char *key, const char *value,
                    const char *tensor) {
    Checkpoint *file;
    expect_ok(bench->diag, safetensors_read(&file, bench->path, bench->diag));
    Tree *metadata = tree_new(bench->arena, TREE_MAP, LOC_NONE);
    for (const Tree *own = file->metadata->first; own; own = own->next) {
        const bool same = key && strcmp(own->key, key) == 0;
        if (!same || value)
            tree_put_string(bench->arena, metadata, own->key, same ? value : own->string);
    }
    for (int i = 0; i < file->count; i++)
        if (tensor && strcmp(file->tensors[i].name, tensor) == 0)
            file->tensors[i].name = "other";
    expect_ok(bench->diag, safetensors_write_with(bench->copy, file->tensors, file->count,
                                                  metadata, bench->diag));
    checkpoint_destroy(file);
}

static void expect_damaged(Bench *bench, const char *key, const char *value,
                           const char *tensor, const char *part) {
    Model *model;
    rewrite(bench, key, value, tensor);
    expect_error(bench->diag,
                 model_load(&model, bench->copy, ops_table(), true, bench->diag),
                 STATUS_FORMAT, part);
}

static void test_damaged(void **state) {
    Bench *bench = *state;
    Model *model = configured_model(GPT2, 3), *back;
    model_put_asset(model, "tokenizer.model", "\0\377\n", 3);
    save(bench, model);
    rewrite(bench, "format", "np", NULL); /* nothing that counts */
    expect_ok(bench->diag,
              model_load(&back, bench->copy, ops_table(), true, bench->diag));
    model_destroy(back);
    const struct {
        const char *key, *value, *tensor, *part;
    } cases[] = {
        {"compress.version", "2", NULL, "expected version 1, found '2'"},
        {"compress.ir", NULL, NULL, "found no key 'compress.ir'"},
        {"compress.ir", "ir 1\n", NULL, "not those that were written"},
        {"compress.ir", "nonsense", NULL, "compress.ir:1:1: error"},
        {"compress.config", "[]", NULL, "expected a map, found list"},
        {"compress.config", "{}", NULL, "not those that were written"},
        {"compress.provenance", "{\"a\": 1}", NULL, "not those that were written"},
        {"compress.provenance", "{", NULL, "invalid JSON"},
        {"compress.places", "{}", NULL, "the file lacks tensor 'transformer.h.0.attn.q"},
        {"compress.places", "{\"transformer.wte.weight\": 3}", NULL,
         "is not {tensor, part, parts}"},
        {"compress.places",
         "{\"transformer.wte.weight\": {\"tensor\": \"transformer.wpe.weight\","
         " \"part\": 0, \"parts\": 2}}",
         NULL, "2 of which make up the tensor, found f32[6, 8]"},
        {"compress.places",
         "{\"transformer.wte.weight\": {\"tensor\": \"transformer.wte.weight\","
         " \"part\": 1, \"parts\": 1}}",
         NULL, "is not {tensor, part, parts}"},
        {"compress.bytes.tokenizer.model", "00fg0a", NULL,
         "expected pairs of hexadecimal digits"},
        {"compress.bytes.tokenizer.model", "00ff0b", NULL, "not those that were written"},
        {"compress.hash", NULL, NULL, "found no key 'compress.hash'"},
        {"compress.hash", "0", NULL, "not those that were written"},
        {NULL, NULL, "transformer.wte.weight", "the file lacks tensor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_damaged(bench, cases[i].key, cases[i].value, cases[i].tensor,
                       cases[i].part);
    model_destroy(model);
}

/* A file of weights alone is told to be that. */
static void test_weights_alone(void **state) {
    Bench *bench = *state;
    Tensor tensor;
    Model *model;
    expect_ok(bench->diag,
              tensor_create(&tensor, DTYPE_F32, 1, (int64_t[]){3}, bench->diag));
    const NamedTensor named = {"w", tensor};
    expect_ok(bench->diag, safetensors_write(bench->path, &named, 1, bench->diag));
    tensor_release(&tensor);
    expect_error(bench->diag,
                 model_load(&model, bench->path, ops_table(), true, bench->diag),
                 STATUS_FORMAT, "these are weights alone");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_make, bench_free)
        TEST(test_stock),
        TEST(test_any),
        TEST(test_damaged),
        TEST(test_weights_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
