/* Hugging Face folders: reference models, damaged checkpoints, configurations. */
#include "io_test.h"

#include "exec/ops.h"
#include "io/families/family.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/formats/hf.h"
#include "io/formats/load.h"
#include "io/formats/safetensors.h"
#include "io/formats/shards.h"
#include "ir/irtext.h"
#include "ir/verify.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <sys/stat.h>

#define REFERENCE "tests/data/reference/"

/* A checkpoint in memory that tests change before it is written. */
typedef struct Fixture {
    char folder[256], model[300], config[300];
    Arena *arena;
    Diag *diag;
    Checkpoint *checkpoint;
    NamedTensor *tensors;
    int count;
    char *text; /* config.json */
} Fixture;

static int fixture_make(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    size_t length;
    scratch_make(f->folder);
    snprintf(f->model, sizeof f->model, "%s/model.safetensors", f->folder);
    snprintf(f->config, sizeof f->config, "%s/config.json", f->folder);
    f->arena = arena_create();
    f->diag = diag_create();
    expect_ok(f->diag, checkpoint_read(&f->checkpoint, REFERENCE "vit", f->diag));
    expect_ok(f->diag, file_read(&f->text, &length, f->arena, REFERENCE "vit/config.json",
                                 1 << 20, f->diag));
    f->count = f->checkpoint->count;
    f->tensors = ARENA_ARRAY(f->arena, NamedTensor, (size_t)f->count + 4);
    memcpy(f->tensors, f->checkpoint->tensors, sizeof *f->tensors * (size_t)f->count);
    *state = f;
    return 0;
}

static int fixture_free(void **state) {
    Fixture *f = *state;
    checkpoint_destroy(f->checkpoint);
    diag_destroy(f->diag);
    arena_destroy(f->arena);
    scratch_remove(f->folder);
    free(f);
    return 0;
}

static NamedTensor *find(Fixture *f, const char *name) {
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->tensors[i].name, name) == 0) return &f->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* Writes the folder and loads it. */
static Status load(Fixture *f, Model **model, bool check) {
    expect_ok(f->diag, safetensors_write(f->model, f->tensors, f->count, f->diag));
    put_text(f->config, f->text);
    return model_load(model, f->folder, ops_table(), check, f->diag);
}

static void expect_refused(Fixture *f, Status status, const char *part) {
    Model *model;
    expect_error(f->diag, load(f, &model, true), status, part);
}

/* The text with the first `old` replaced. */
static char *replace(Arena *arena, const char *text, const char *old, const char *new) {
    const char *at = strstr(text, old);
    assert_non_null(at);
    return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
}

/* Verifies the graph and that its text is a fixed point of print and parse. */
static void check_graph(Model *model, Diag *diag) {
    expect_ok(diag, graph_verify(model->graph, STATUS_INTERNAL, diag));
    Text once = {0}, twice = {0};
    Arena *arena = arena_create();
    Graph *back;
    graph_print(&once, model->graph);
    expect_ok(diag,
              graph_parse(&back, arena, ops_table(), "ir", once.data, once.length, diag));
    graph_print(&twice, back);
    assert_string_equal(once.data, twice.data);
    graph_release(back);
    arena_destroy(arena);
    text_free(&once);
    text_free(&twice);
}

static void vit_reference(void **state) {
    Fixture *f = *state;
    Model *model;
    expect_ok(f->diag, model_load(&model, REFERENCE "vit", ops_table(), true, f->diag));
    check_graph(model, f->diag);
    Graph *graph = model->graph;
    assert_int_equal(graph->output_count, 2);
    assert_ptr_equal(graph_output(graph, "last_hidden_state"),
                     graph_find(graph, "encoder", -1, ROLE_FINAL_NORM));
    assert_ptr_equal(graph_output(graph, "logits"),
                     graph_find(graph, "head", -1, ROLE_HEAD));
    assert_int_equal(graph_layer_count(graph, "encoder"), 3);
    assert_int_equal(graph->storage_count, f->checkpoint->count);
    static const Role LAYER[] = {ROLE_NORM1,     ROLE_Q,         ROLE_K,
                                 ROLE_V,         ROLE_ATTENTION, ROLE_OUT,
                                 ROLE_RESIDUAL1, ROLE_NORM2,     ROLE_FFN_IN,
                                 ROLE_FFN_ACT,   ROLE_FFN_OUT,   ROLE_RESIDUAL2};
    for (size_t r = 0; r < sizeof LAYER / sizeof *LAYER; r++)
        for (int layer = 0; layer < 3; layer++)
            assert_non_null(graph_find(graph, "encoder", layer, LAYER[r]));
    const Storage *storage = graph_storage(graph, "vit.layernorm.weight");
    assert_false(buf_is_owned(storage->tensor.buf));
    model_destroy(model);
}

static void deit_reference(void **state) {
    Fixture *f = *state;
    Model *model;
    expect_ok(f->diag, model_load(&model, REFERENCE "deit", ops_table(), true, f->diag));
    check_graph(model, f->diag);
    Graph *graph = model->graph;
    assert_int_equal(graph->output_count, 4);
    Node *token = graph_find(graph, "embeddings", -1, ROLE_TOKEN);
    assert_string_equal(token->in[1]->storage->name,
                        "deit.embeddings.distillation_token");
    token = graph_find_next(graph, token, "embeddings", -1, ROLE_TOKEN);
    assert_string_equal(token->in[1]->storage->name, "deit.embeddings.cls_token");
    assert_ptr_equal(graph_output(graph, "cls_logits"),
                     graph_find(graph, "head", -1, ROLE_HEAD));
    assert_ptr_equal(graph_output(graph, "distillation_logits"),
                     graph_find(graph, "head", -1, ROLE_DIST_HEAD));
    assert_ptr_equal(graph_output(graph, "logits"),
                     graph_find(graph, "head", -1, ROLE_LOGITS));
    model_destroy(model);
}

/* ViTModel: no prefix, no head, with its pooler or without. */
static void plain_model(void **state) {
    Fixture *f = *state;
    int kept = 0;
    for (int i = 0; i < f->count; i++)
        if (strncmp(f->tensors[i].name, "vit.", 4) == 0)
            f->tensors[kept++] =
                (NamedTensor){f->tensors[i].name + 4, f->tensors[i].tensor};
    f->count = kept;
    const Tensor weight =
        find(f, "encoder.layer.0.attention.output.dense.weight")->tensor;
    const Tensor bias = find(f, "encoder.layer.0.attention.output.dense.bias")->tensor;
    f->text = replace(f->arena, f->text, "ViTForImageClassification", "ViTModel");
    Model *model;
    expect_ok(f->diag, load(f, &model, true));
    check_graph(model, f->diag);
    assert_int_equal(model->graph->output_count, 1);
    assert_non_null(graph_output(model->graph, "last_hidden_state"));
    model_destroy(model);
    f->tensors[f->count++] = (NamedTensor){"pooler.dense.weight", weight};
    f->tensors[f->count++] = (NamedTensor){"pooler.dense.bias", bias};
    expect_ok(f->diag, load(f, &model, true));
    check_graph(model, f->diag);
    assert_int_equal(model->graph->output_count, 2);
    assert_non_null(graph_output(model->graph, "last_hidden_state"));
    assert_non_null(graph_output(model->graph, "pooler_output"));
    model_destroy(model);
    f->tensors[f->count++] = (NamedTensor){"pooler.dense.other", bias};
    expect_refused(f, STATUS_FORMAT, "pooler.dense.other: the model has no place");
}

static void damaged_names(void **state) {
    Fixture *f = *state;
    NamedTensor *named = find(f, "vit.layernorm.weight");
    named->name = "vit.layernorm.weigth";
    Model *model;
    Status status = load(f, &model, true);
    char *message = diag_text(f->diag);
    assert_non_null(strstr(message, "hint: the checkpoint has 'vit.layernorm.weigth'"));
    free(message);
    expect_error(f->diag, status, STATUS_FORMAT,
                 "vit.layernorm.weight: the checkpoint lacks this tensor");
    named->name = "vit.layernorm.weight";
    f->tensors[f->count++] = (NamedTensor){"extra", named->tensor};
    expect_refused(f, STATUS_FORMAT, "extra: the model has no place for this tensor");
    f->count = 0;
    expect_refused(f, STATUS_FORMAT, "lacks this tensor");
}

static void damaged_tensors(void **state) {
    Fixture *f = *state;
    NamedTensor *named = find(f, "vit.encoder.layer.1.output.dense.weight");
    Tensor good = named->tensor;
    named->tensor.dim[0] = 64;
    named->tensor.dim[1] = 32;
    expect_refused(f, STATUS_FORMAT,
                   "vit.encoder.layer.1.output.dense.weight: the configuration "
                   "asks for shape [32, 64], found [64, 32]");
    named->tensor.rank = 1;
    named->tensor.dim[0] = 2048;
    expect_refused(f, STATUS_FORMAT, "asks for shape [32, 64], found [2048]");
    named->tensor = good;
    named->tensor.dtype = DTYPE_I32;
    expect_refused(f, STATUS_FORMAT, "expected f32, f16 or bf16, found i32");
    named->tensor = good;
    void *data;
    Tensor copy = tensor_retain(&good);
    expect_ok(f->diag, tensor_writable(&copy, &data, f->diag));
    ((float *)data)[77] = NAN;
    named->tensor = copy;
    expect_refused(f, STATUS_MODEL, "vit.encoder.layer.1.output.dense.weight");
    ((float *)data)[77] = -INFINITY;
    expect_refused(f, STATUS_MODEL, "77");
    Model *model;
    expect_ok(f->diag, load(f, &model, false));
    model_destroy(model);
    named->tensor = good;
    tensor_release(&copy);
}

/* Bits of the half nearest to a normal number; for making test weights. */
static uint16_t half_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t exponent = (bits >> 23 & 255) - 112;
    uint32_t half = (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff);
    return (uint16_t)(half + (bits >> 12 & 1));
}

static void half_precision(void **state) {
    Fixture *f = *state;
    NamedTensor *half = find(f, "vit.encoder.layer.1.output.dense.weight");
    NamedTensor *brain = find(f, "classifier.weight");
    Tensor made[2];
    void *data;
    expect_ok(f->diag, tensor_create(&made[0], DTYPE_F16, 2, half->tensor.dim, f->diag));
    expect_ok(f->diag, tensor_writable(&made[0], &data, f->diag));
    const float *weights = tensor_data(&half->tensor);
    for (int i = 0; i < 2048; i++) ((uint16_t *)data)[i] = half_bits(weights[i]);
    expect_ok(f->diag,
              tensor_create(&made[1], DTYPE_BF16, 2, brain->tensor.dim, f->diag));
    expect_ok(f->diag, tensor_writable(&made[1], &data, f->diag));
    memcpy(data, "\x80\x3f\x00\xc0", 4); /* 1, -2 */
    half->tensor = made[0];
    brain->tensor = made[1];
    Model *model;
    expect_ok(f->diag, load(f, &model, true));
    const Tensor *loaded = &graph_storage(model->graph, half->name)->tensor;
    assert_int_equal(loaded->dtype, DTYPE_F16);
    float read[2048];
    tensor_read_f32(loaded, 0, 2048, read);
    /* f16 has 11 bits; half_bits makes no number below its smallest normal one, 2^-14 */
    for (int i = 0; i < 2048; i++)
        assert_within(read[i], weights[i],
                      ldexp(fabs((double)weights[i]), -11) + ldexp(1, -14));
    tensor_read_f32(&graph_storage(model->graph, brain->name)->tensor, 0, 3, read);
    assert_true(read[0] == 1 && read[1] == -2 && read[2] == 0);
    check_graph(model, f->diag);
    model_destroy(model);
    tensor_release(&made[0]);
    tensor_release(&made[1]);
}

static const struct {
    const char *old, *new, *message;
} CONFIGS[] = {
    {"\"model_type\": \"vit\",", "",
     "model_type: missing: expected one of albert, bart, bert, deit, dinov2, "
     "distilbert, electra, gemma, gemma2, gpt2, llama, lstm_lm, marian, mistral, "
     "modernbert, mpnet, mt5, phi3, qwen2, qwen3, rnn_attention, roberta, swin, "
     "t5, vit, xlm-roberta"},
    {"\"vit\"", "\"rnn\"", "swin, t5, vit, xlm-roberta, found 'rnn'"},
    {"\"vit\"", "7", "swin, t5, vit, xlm-roberta, found integer"},
    {"ViTForImageClassification", "ViTForX",
     "expected a list with one of ViTForImageClass"},
    {"\"hidden_size\": 32,", "", "hidden_size: missing: expected an integer from 1"},
    {"\"hidden_size\": 32", "\"hidden_size\": null", "hidden_size: missing"},
    {"\"hidden_size\": 32", "\"hidden_size\": \"x\"", "1048576, found \"x\""},
    {"\"hidden_size\": 32", "\"hidden_size\": 0", "found 0"},
    {"\"hidden_size\": 32", "\"hidden_size\": 1e9", "hidden_size: expected an integer"},
    {"\"hidden_size\": 32", "\"hidden_size\": 9223372036854775807",
     "hidden_size: expected"},
    {"\"hidden_size\": 32", "\"hidden_size\": 1048576",
     "the configuration asks for shape"},
    {"_layers\": 3", "_layers\": 4097", "num_hidden_layers: expected an integer"},
    {"_layers\": 3", "_layers\": 2",
     "vit.encoder.layer.2.attention.attention.key.bias: the "
     "model has no place"},
    {"_layers\": 3", "_layers\": 4",
     "vit.encoder.layer.3.layernorm_before.weight: the "
     "checkpoint lacks"},
    {"_heads\": 4", "_heads\": 5", "expected a divisor of hidden_size 32, found 5"},
    {"\"gelu\"", "\"elu\"", "hidden_act: expected gelu, gelu_new"},
    {"_size\": 8", "_size\": 7", "square patches that divide the image of 32 x 32"},
    {"_size\": 8", "_size\": [8, 4]", "found 8 x 4"},
    {"_size\": 8", "_size\": [8]", "patch_size: expected an integer or two"},
    {"\"image_size\": 32", "\"image_size\": 64",
     "asks for shape [1, 65, 32], found [1, 17"},
    {"\"image_size\": 32", "\"image_size\": [32, 0]",
     "image_size: expected an integer or"},
    {"\"qkv_bias\": true", "\"qkv_bias\": 1",
     "qkv_bias: expected true or false, found 1"},
    {"\"qkv_bias\": true", "\"qkv_bias\": false", "key.bias: the model has no place"},
    {"\"hidden_dropout_prob\": 0.0", "\"hidden_dropout_prob\": 1.5",
     "hidden_dropout_prob"},
    {"\"layer_norm_eps\": 1e-06", "\"layer_norm_eps\": -1", "layer_norm_eps: expected"},
    {"\"LABEL_5\",\n    \"6\": \"LABEL_6\"", "\"\"", "[6, 32], found [7, 32]"},
    {"{", "[{", "config.json:"},
    {"\"model_type\": \"vit\"", "\"model_type\": \"vit\", \"model_type\": \"vit\"",
     "duplicate object key"},
};

static void configs(void **state) {
    Fixture *f = *state;
    const char *good = f->text;
    expect_ok(f->diag, safetensors_write(f->model, f->tensors, f->count, f->diag));
    for (size_t i = 0; i < sizeof CONFIGS / sizeof *CONFIGS; i++) {
        Model *model;
        put_text(f->config, replace(f->arena, good, CONFIGS[i].old, CONFIGS[i].new));
        Status status = hf_read(&model, f->folder, ops_table(), f->diag);
        assert_true(status == STATUS_MODEL || status == STATUS_FORMAT);
        expect_error(f->diag, status, status, CONFIGS[i].message);
    }
    Model *model;
    put_text(f->config, "[]");
    expect_error(f->diag, hf_read(&model, f->folder, ops_table(), f->diag), STATUS_MODEL,
                 "expected a map with the model's configuration, found list");
    unlink(f->config);
    expect_error(f->diag, hf_read(&model, f->folder, ops_table(), f->diag), STATUS_IO,
                 "config.json: error: cannot open");
}

/* New models: dropout, defaults, the other DeiT head, the largest number of layers. */
static void built(void **state) {
    Fixture *f = *state;
    static const char *const TEXTS[] = {
        "{\"model_type\":\"deit\",\"hidden_size\":16,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":2,\"intermediate_size\":24,\"image_size\":[8,12],"
        "\"patch_size\":[4,4],\"hidden_dropout_prob\":0.1,\"hidden_act\":\"gelu_new\","
        "\"attention_probs_dropout_prob\":0.1,\"num_labels\":10,\"qkv_bias\":false}",
        "{\"model_type\":\"vit\",\"hidden_size\":1,\"num_hidden_layers\":512,"
        "\"num_attention_heads\":1,\"intermediate_size\":1,\"image_size\":1,"
        "\"patch_size\":1}"};
    for (int i = 0; i < 2; i++) {
        Tree *config;
        Model *model;
        expect_ok(f->diag, json_parse(&config, f->arena, "new", TEXTS[i],
                                      strlen(TEXTS[i]), f->diag));
        expect_ok(f->diag, hf_build(&model, config, ops_table(), f->diag));
        check_graph(model, f->diag);
        expect_ok(f->diag, model_init_weights(model, 1, f->diag));
        expect_ok(f->diag, graph_verify_weights(model->graph, f->diag));
        assert_int_equal(graph_output(model->graph, "logits")->type.dim[1], i ? 2 : 10);
        int dropouts = 0;
        for (Node *node = model->graph->first; node; node = node->next)
            dropouts += strcmp(node->op->name, "dropout") == 0;
        assert_int_equal(dropouts, i ? 0 : 5);
        assert_int_equal(diag_warning_count(f->diag), i);
        Model *copy = model_copy(model);
        model_warn_left_out(copy, f->diag);
        model_destroy(copy);
        model_destroy(model);
    }
    char *message = diag_text(f->diag);
    assert_non_null(strstr(message, "warning: attention_probs_dropout_prob"));
    free(message);
}

static void not_models(void **state) {
    Fixture *f = *state;
    Model *model;
    expect_error(f->diag, model_load(&model, "/nowhere", ops_table(), true, f->diag),
                 STATUS_IO, "cannot open");
    expect_error(f->diag, model_load(&model, f->folder, ops_table(), true, f->diag),
                 STATUS_IO, "config.json");
    put_text(f->config, f->text);
    expect_error(f->diag, model_load(&model, f->config, ops_table(), true, f->diag),
                 STATUS_FORMAT, "expected a model file");
    expect_error(f->diag, model_load(&model, f->folder, ops_table(), true, f->diag),
                 STATUS_IO, "found neither");
    put_text(f->model, "");
    expect_error(f->diag, model_load(&model, f->folder, ops_table(), true, f->diag),
                 STATUS_FORMAT, "found only 0 bytes");
    unlink(f->model);
    assert_int_equal(symlink("/etc/passwd", f->model), 0);
    expect_error(f->diag, model_load(&model, f->folder, ops_table(), true, f->diag),
                 STATUS_FORMAT, "a link that leads out");
    for (const Family *const *family = family_list(); *family; family++)
        assert_ptr_equal(family_find((*family)->model_type), *family);
    assert_null(family_find("none"));
}

/* The cache of Hugging Face's tools: snapshots hold links to ../../blobs. */
static void cache_layout(void **state) {
    Fixture *f = *state;
    const char *blobs = arena_printf(f->arena, "%s/blobs", f->folder);
    const char *snapshots = arena_printf(f->arena, "%s/snapshots", f->folder);
    const char *folder = arena_printf(f->arena, "%s/main", snapshots);
    assert_int_equal(mkdir(blobs, 0700) | mkdir(snapshots, 0700) | mkdir(folder, 0700),
                     0);
    put_text(path_join(f->arena, blobs, "c"), f->text);
    expect_ok(f->diag, safetensors_write(path_join(f->arena, blobs, "m"), f->tensors,
                                         f->count, f->diag));
    const char *config = path_join(f->arena, folder, "config.json");
    const char *weights = path_join(f->arena, folder, "model.safetensors");
    assert_int_equal(symlink("../../blobs/c", config), 0);
    assert_int_equal(symlink("../../blobs/m", weights), 0);
    Model *model;
    expect_ok(f->diag, model_load(&model, folder, ops_table(), true, f->diag));
    model_destroy(model);
    scratch_remove(folder);
    scratch_remove(snapshots);
    scratch_remove(blobs);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_make, fixture_free)
    const struct CMUnitTest tests[] = {
        TEST(vit_reference), TEST(deit_reference),  TEST(plain_model),
        TEST(damaged_names), TEST(damaged_tensors), TEST(half_precision),
        TEST(configs),       TEST(built),           TEST(not_models),
        TEST(cache_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
