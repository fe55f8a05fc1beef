/* Models in GGUF files: what is written comes back, bit for bit in f32; layers of unequal
 * sizes and without blocks do, too; what a file cannot hold, or says wrongly, is told. */
#include "exec/ops.h"
#include "io/files/file.h"
#include "io/formats/hf.h"
#include "io/gguf/gguf_model.h"
#include "io/gguf/outline.h"
#include "tests/io/io_test.h"

#include <math.h>

extern const ModelFormat model_format_gguf;

typedef struct Fixture {
    char folder[256], path[300];
    Arena *arena;
    Diag *diag;
    Model *model, *back;
} Fixture;

static int fixture_make(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    scratch_make(f->folder);
    snprintf(f->path, sizeof f->path, "%s/a.gguf", f->folder);
    f->arena = arena_create();
    f->diag = diag_create();
    *state = f;
    return 0;
}

static void drop_models(Fixture *f) {
    model_destroy(f->model);
    model_destroy(f->back);
    f->model = f->back = NULL;
}

static int fixture_free(void **state) {
    Fixture *f = *state;
    drop_models(f);
    scratch_remove(f->folder);
    diag_destroy(f->diag);
    arena_destroy(f->arena);
    free(f);
    return 0;
}

static void write_model(Fixture *f, const char *dtype) {
    const WriteOptions options = {.dtype = dtype};
    Written written = {0};
    expect_ok(f->diag, model_format_gguf.check(f->model, &options, f->diag));
    expect_ok(f->diag,
              model_format_gguf.write(f->model, f->path, &options, &written, f->diag));
    assert_int_equal(written.files, 1);
}

static void read_model(Fixture *f) {
    assert_true(model_format_gguf.probe(f->path));
    expect_ok(f->diag,
              gguf_read_model(&f->back, f->path, NULL, ops_table(), true, f->diag));
}

/* Calls `compare` for each weight of what was read beside that of the model. */
typedef void Compare(const Tensor *wanted, const Tensor *found, const char *name);

static void compare_weights(Fixture *f, Compare *compare) {
    const Storage **weights;
    Graph *back = f->back->graph;
    expect_ok(f->diag, outline_match(&weights, f->arena, back, f->model->graph, f->diag));
    for (int i = 0; i < back->storage_count; i++) {
        assert_non_null(weights[i]);
        compare(&weights[i]->tensor, &back->storages[i]->tensor, back->storages[i]->name);
    }
}

static void are_equal(const Tensor *wanted, const Tensor *found, const char *name) {
    if (wanted->dtype != found->dtype || !tensor_same_shape(wanted, found) ||
        memcmp(tensor_data(wanted), tensor_data(found), tensor_bytes(found)) != 0)
        fail_msg("other values of '%s'", name);
}

static void read_reference(Fixture *f, const char *name) {
    char folder[300];
    snprintf(folder, sizeof folder, "tests/data/reference/%s", name);
    expect_ok(f->diag, hf_read(&f->model, folder, ops_table(), f->diag));
    diag_clear(f->diag);
}

static void stock_models_come_back(void **state) {
    static const char *const NAMES[] = {"llama", "gpt2", "bert"};
    Fixture *f = *state;
    for (int i = 0; i < 3; i++) {
        read_reference(f, NAMES[i]);
        write_model(f, "f32");
        read_model(f);
        compare_weights(f, are_equal);
        assert_int_equal(graph_task(f->back->graph), graph_task(f->model->graph));
        drop_models(f);
    }
}

/* ---- embeddings ---- */

static void read_bert(Fixture *f, const char *pooling, bool normalize) {
    Tree *keys = tree_new(f->arena, TREE_MAP, LOC_NONE);
    tree_put_string(f->arena, keys, "pooling", pooling);
    if (normalize) tree_put_bool(f->arena, keys, "normalize", true);
    tree_add_string(f->arena, tree_put_list(f->arena, keys, "architectures"),
                    "BertModel");
    const HfOptions options = {.overrides = keys};
    expect_ok(f->diag, hf_read_with(&f->model, "tests/data/reference/bert", &options,
                                    ops_table(), f->diag));
    diag_clear(f->diag);
}

/* Changes text of the file to another of the same length, where it stands first. */
static void change_file(Fixture *f, const char *text, const char *other) {
    char *bytes;
    size_t length;
    expect_ok(f->diag, file_read(&bytes, &length, f->arena, f->path, 1 << 30, f->diag));
    char *at = memmem(bytes, length, text, strlen(text));
    assert_non_null(at);
    memcpy(at, other, strlen(text));
    expect_ok(f->diag, file_write(f->path, bytes, length, f->diag));
}

static void expect_embedding(Fixture *f, int pooling, bool normalized) {
    Outline outline;
    expect_ok(f->diag, outline_of_graph(&outline, f->arena, f->back, f->diag));
    assert_int_equal(outline.pooling, pooling);
    assert_int_equal(outline.normalized, normalized);
    assert_int_equal(graph_task(f->back->graph), TASK_EMBED);
    assert_int_equal(graph_output(f->back->graph, OUTPUT_EMBEDDING) != NULL, pooling > 0);
}

/* How an embedding is made stands in keys of the file; the rest of the model is BERT. */
static void embeddings_are_keys(void **state) {
    static const char *const POOLING[] = {"none", "mean", "first", "last"};
    Fixture *f = *state;
    for (int i = 0; i < 7; i++) {
        const int pooling = i % 4;
        const bool normalize = i > 4;
        read_bert(f, POOLING[pooling], normalize);
        write_model(f, "f32");
        read_model(f);
        compare_weights(f, are_equal);
        expect_embedding(f, pooling, normalize);
        drop_models(f);
    }
}

/* A file of others gives what llama.cpp makes of it; a value that nobody knows is told.
 */
static void embeddings_of_others(void **state) {
    Fixture *f = *state;
    read_bert(f, "first", false);
    write_model(f, "f32");
    change_file(f, "compress.embedding", "whatever.embedding");
    read_model(f);
    expect_embedding(f, 2, true);
    model_destroy(f->back);
    change_file(f, "bert.pooling_type", "bert.pooling_kind");
    read_model(f);
    expect_embedding(f, 0, false);
    model_destroy(f->back);
    f->back = NULL;
    change_file(f, "whatever.embedding", "compress.embedding");
    change_file(f, "plain", "plane");
    expect_error(f->diag,
                 gguf_read_model(&f->back, f->path, NULL, ops_table(), true, f->diag),
                 STATUS_FORMAT, "expected none, plain or normalized");
}

/* ---- layers of unequal sizes ---- */

static Model *build(Fixture *f, const Outline *outline) {
    Model *model;
    expect_ok(f->diag, outline_build(&model, outline, false, NULL, ops_table(), f->diag));
    expect_ok(f->diag, model_init_weights(model, 1, f->diag));
    return model;
}

static Outline llama_outline(OutlineLayer *layers, int count) {
    return (Outline){.kind = OUTLINE_LLAMA,
                     .vocabulary = 40,
                     .width = 64,
                     .positions = 32,
                     .head_width = 8,
                     .layer = layers,
                     .layers = count,
                     .eps = 1e-5,
                     .theta = 10000,
                     .tied = true};
}

static void expect_architecture(Fixture *f, const char *name) {
    GgufFile *file;
    expect_ok(f->diag, gguf_read(&file, f->path, f->diag));
    const GgufPair *pair = gguf_find(file, "general.architecture");
    assert_int_equal(pair->strings[0].length, strlen(name));
    assert_memory_equal(pair->strings[0].text, name, strlen(name));
    gguf_destroy(file);
}

static void unequal_layers_come_back(void **state) {
    OutlineLayer layers[] = {
        {8, 8, 48, false, false}, {6, 3, 96, false, false}, {1, 1, 40, false, false}};
    Fixture *f = *state;
    Outline outline = llama_outline(layers, 3);
    for (int biases = 0; biases < 2; biases++) {
        outline.attention_bias = outline.units_bias = biases;
        outline.tied = !biases;
        f->model = build(f, &outline);
        write_model(f, "f32");
        expect_architecture(f, "deci");
        read_model(f);
        compare_weights(f, are_equal);
        drop_models(f);
    }
}

/* The first layer without attention, the second without feed-forward block, a third one
 * with heads of a width of their own. */
static void layers_without_blocks_come_back(void **state) {
    OutlineLayer layers[] = {{1, 1, 48, true, false},
                             {6, 6, 32, false, true},
                             {0, 0, 96, false, false},
                             {3, 3, 48, false, false}};
    Fixture *f = *state;
    const Outline outline = llama_outline(layers, 4);
    f->model = build(f, &outline);
    assert_null(graph_find(f->model->graph, STACK_DECODER, 0, ROLE_ATTENTION));
    assert_null(graph_find(f->model->graph, STACK_DECODER, 1, ROLE_FFN_IN));
    write_model(f, "f32");
    expect_architecture(f, "deci");
    read_model(f);
    compare_weights(f, are_equal);
}

static void bert_comes_back_without_its_extras(void **state) {
    OutlineLayer layer = {4, 4, 48, false, false};
    const Outline outline = {.kind = OUTLINE_BERT,
                             .vocabulary = 20,
                             .width = 32,
                             .positions = 16,
                             .head_width = 8,
                             .layer = &layer,
                             .layers = 1,
                             .eps = 1e-12};
    Fixture *f = *state;
    f->model = build(f, &outline);
    write_model(f, "f32");
    read_model(f);
    compare_weights(f, are_equal);
    assert_null(graph_output(f->back->graph, OUTPUT_POOLER));
    assert_null(graph_find(f->back->graph, NULL, -1, ROLE_TOKEN_TYPE));
}

/* ---- types ---- */

/* q8_0: 127 steps of half a step each way; vectors stay as they are. */
static void are_near(const Tensor *wanted, const Tensor *found, const char *name) {
    const int64_t count = tensor_count(found);
    assert_int_equal(found->dtype, DTYPE_F32);
    for (int64_t i = 0; i < count; i++) {
        float x, y;
        tensor_read_f32(wanted, i, 1, &x);
        tensor_read_f32(found, i, 1, &y);
        const float bound = found->rank == 1 ? 0 : 0.12f / 127;
        if (fabsf(x - y) > bound)
            fail_msg("'%s': %g became %g", name, (double)x, (double)y);
    }
}

static void quantised_models_come_back_near(void **state) {
    OutlineLayer layers[] = {{8, 4, 64, false, false}, {4, 4, 64, false, false}};
    Fixture *f = *state;
    const Outline outline = llama_outline(layers, 2);
    f->model = build(f, &outline);
    write_model(f, "q8_0");
    expect_ok(f->diag,
              gguf_read_model(&f->back, f->path, NULL, ops_table(), true, f->diag));
    char *text = diag_text(f->diag);
    assert_non_null(strstr(text, "15 tensors became f32: q8_0"));
    free(text);
    compare_weights(f, are_near);
}

/* Rows of 48 are no whole blocks: those matrices are f16. */
static void uneven_rows_become_f16(void **state) {
    OutlineLayer layer = {8, 8, 48, false, false};
    Fixture *f = *state;
    GgufFile *file;
    const Outline outline = llama_outline(&layer, 1);
    f->model = build(f, &outline);
    write_model(f, "q4_0");
    expect_ok(f->diag, gguf_read(&file, f->path, f->diag));
    assert_string_equal(gguf_find_tensor(file, "blk.0.ffn_down.weight")->type->name,
                        "f16");
    assert_string_equal(gguf_find_tensor(file, "blk.0.ffn_up.weight")->type->name,
                        "q4_0");
    assert_string_equal(gguf_find_tensor(file, "blk.0.ffn_norm.weight")->type->name,
                        "f32");
    gguf_destroy(file);
    char *text = diag_text(f->diag);
    assert_non_null(strstr(text, "1 matrix is f16 in place of q4_0"));
    free(text);
}

/* ---- what is refused ---- */

static void expect_unwritable(Fixture *f, const char *part) {
    const WriteOptions options = {.dtype = "f32"};
    expect_error(f->diag, model_format_gguf.check(f->model, &options, f->diag),
                 STATUS_MODEL, part);
    drop_models(f);
}

static void refuses_models_that_llama_cpp_lacks(void **state) {
    Fixture *f = *state;
    read_reference(f, "bert_mlm");
    expect_unwritable(f, "expected hidden states or one class a text");
    read_reference(f, "distilbert");
    expect_unwritable(f, "expected fn=tanh, found fn=relu");
    read_reference(f, "vit");
    expect_unwritable(f, "expected a model of texts");
    read_reference(f, "marian");
    expect_unwritable(f, "expected an encoder or a decoder, found both");
    read_reference(f, "llama");
    graph_set_output(f->model->graph, "exit.1",
                     graph_layer_output(f->model->graph, STACK_DECODER, 1));
    expect_unwritable(f, "exit.1: the architecture has no such output");
}

static void zero_row(const void *source, int64_t row, float *out) {
    (void)source, (void)row;
    memset(out, 0, 64 * sizeof *out);
}

/* Files of one table of tokens, with one key other than usual. */
static void refuses_keys_that_mean_other_models(void **state) {
    static const struct {
        const char *name;
        int64_t value;
        const char *part;
    } CASES[] = {{"llama.expert_count", 4, "llama.expert_count: models with this key"},
                 {"llama.logit_scale", 2, "llama.logit_scale: models with this key"},
                 {"llama.block_count", 1000, "llama.block_count: expected an integer"},
                 {"llama.rope.dimension_count", 4, "expected heads that are turned"},
                 {"llama.attention.head_count", 0, "head_count: expected an integer"},
                 {"llama.attention.head_count_kv", 5, "that 5 heads of keys divide"},
                 {"general.architecture", -1, "found 'mamba'"}};
    static const char *const KEYS[] = {
        "llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.head_count_kv"};
    static const int64_t VALUES[] = {1, 64, 64, 8, 8};
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        GgufWriter *writer = gguf_create();
        Model *model;
        gguf_put_text(writer, "general.architecture",
                      CASES[i].value < 0 ? "mamba" : "llama");
        gguf_put_real(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5);
        for (int k = 0; k < 5; k++)
            if (strcmp(KEYS[k], CASES[i].name) != 0)
                gguf_put_integer(writer, KEYS[k], VALUES[k]);
        if (CASES[i].value >= 0) gguf_put_integer(writer, CASES[i].name, CASES[i].value);
        gguf_put_tensor(writer, "token_embd.weight", block_type_by_name("f32"), 2,
                        (const int64_t[]){4, 64}, zero_row, NULL);
        expect_ok(f->diag, gguf_write(writer, f->path, NULL, f->diag));
        const Status status =
            gguf_read_model(&model, f->path, NULL, ops_table(), true, f->diag);
        char *text = diag_text(f->diag);
        if (status == STATUS_OK || diag_errors(f->diag) != 1 ||
            !strstr(text, CASES[i].part))
            fail_msg("expected '%s', got %d: %s", CASES[i].part, status, text);
        free(text);
        diag_clear(f->diag);
    }
}

/* ---- hostile files ---- */

static void damaged_files_do_no_harm(void **state) {
    OutlineLayer layers[] = {{8, 4, 64, false, false}, {4, 4, 64, false, false}};
    Fixture *f = *state;
    char *data;
    size_t length, head;
    GgufFile *file;
    Model *model;
    uint64_t random = 5;
    const Outline outline = llama_outline(layers, 2);
    f->model = build(f, &outline);
    write_model(f, "q8_0");
    expect_ok(f->diag, file_read(&data, &length, f->arena, f->path, 1 << 22, f->diag));
    expect_ok(f->diag, gguf_read(&file, f->path, f->diag));
    head = file->tensors[0].offset;
    for (int64_t i = 0; i < file->tensor_count; i++)
        if (file->tensors[i].offset < head) head = file->tensors[i].offset;
    gguf_destroy(file);
    for (size_t n = 0; n < length; n += 64) {
        put_file(f->path, data, n);
        assert_int_not_equal(
            gguf_read_model(&model, f->path, NULL, ops_table(), true, f->diag),
            STATUS_OK);
        assert_int_equal(diag_errors(f->diag), 1);
        diag_clear(f->diag);
    }
    for (int i = 0; i < 3000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const size_t at = (size_t)(random >> 33) % head;
        const char old = data[at];
        data[at] = (char)(random >> 20);
        put_file(f->path, data, length);
        const Status status =
            gguf_read_model(&model, f->path, NULL, ops_table(), true, f->diag);
        assert_int_equal(diag_errors(f->diag), status != STATUS_OK);
        if (status == STATUS_OK) model_destroy(model);
        diag_clear(f->diag);
        data[at] = old;
    }
}

#define TEST(function)                                                                   \
    cmocka_unit_test_setup_teardown(function, fixture_make, fixture_free)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(stock_models_come_back),
        TEST(embeddings_are_keys),
        TEST(embeddings_of_others),
        TEST(unequal_layers_come_back),
        TEST(layers_without_blocks_come_back),
        TEST(bert_comes_back_without_its_extras),
        TEST(quantised_models_come_back_near),
        TEST(uneven_rows_become_f16),
        TEST(refuses_models_that_llama_cpp_lacks),
        TEST(refuses_keys_that_mean_other_models),
        TEST(damaged_files_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
