/* Hugging Face folders with a changed configuration: heads that are new. */
#include "io_test.h"

#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/formats/load.h"
#include "io/formats/safetensors.h"
#include "io/formats/shards.h"
#include "ir/verify.h"

#define REFERENCE "tests/data/reference/"

/* A folder with a reference's config.json and those of its tensors that a test keeps. */
typedef struct Fixture {
    char folder[256];
    Arena *arena;
    Diag *diag;
    Checkpoint *checkpoint;
    Model *model;
} Fixture;

static int fixture_make(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    scratch_make(f->folder);
    f->arena = arena_create();
    f->diag = diag_create();
    *state = f;
    return 0;
}

static int fixture_free(void **state) {
    Fixture *f = *state;
    model_destroy(f->model);
    checkpoint_destroy(f->checkpoint);
    diag_destroy(f->diag);
    arena_destroy(f->arena);
    scratch_remove(f->folder);
    free(f);
    return 0;
}

static bool dropped(const char *const *drop, const char *name) {
    for (; *drop; drop++)
        if (strstr(name, *drop)) return true;
    return false;
}

/* Writes a reference without the tensors whose names hold one of `drop` (ended by NULL),
 * and without `prefix` in front of names. */
static void write_folder(Fixture *f, const char *name, const char *prefix,
                         const char *const *drop) {
    int count = 0;
    char *from = arena_printf(f->arena, REFERENCE "%s", name);
    checkpoint_destroy(f->checkpoint);
    expect_ok(f->diag, checkpoint_read(&f->checkpoint, from, f->diag));
    NamedTensor *tensors =
        ARENA_ARRAY(f->arena, NamedTensor, (size_t)f->checkpoint->count);
    for (int i = 0; i < f->checkpoint->count; i++) {
        NamedTensor tensor = f->checkpoint->tensors[i];
        if (dropped(drop, tensor.name)) continue;
        if (strncmp(tensor.name, prefix, strlen(prefix)) == 0)
            tensor.name += strlen(prefix);
        tensors[count++] = tensor;
    }
    const char *path = arena_printf(f->arena, "%s/model.safetensors", f->folder);
    expect_ok(f->diag, safetensors_write(path, tensors, count, f->diag));
    size_t length;
    char *text;
    expect_ok(f->diag, file_read(&text, &length, f->arena,
                                 arena_printf(f->arena, "%s/config.json", from), 1 << 20,
                                 f->diag));
    put_text(arena_printf(f->arena, "%s/config.json", f->folder), text);
}

static Status load(Fixture *f, const char *overrides, uint64_t seed) {
    Tree *map = NULL;
    expect_ok(f->diag, json_parse(&map, f->arena, "overrides", overrides,
                                  strlen(overrides), f->diag));
    const HfOptions options = {map, true, seed};
    model_destroy(f->model);
    f->model = NULL;
    return model_load_with(&f->model, f->folder, &options, ops_table(), true, f->diag);
}

/* Checks that the diagnostics hold `part`, `times` times, and forgets them. */
static void expect_text(Fixture *f, const char *part, int times) {
    char *text = diag_text(f->diag);
    int found = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) found++;
    if (found != times) fail_msg("expected '%s' %d times, found: %s", part, times, text);
    free(text);
    diag_clear(f->diag);
}

static void expect_loaded(Fixture *f, const char *overrides, const char *created) {
    expect_ok(f->diag, load(f, overrides, 1));
    expect_text(f, created ? created : "created:", created != NULL);
    expect_ok(f->diag, graph_verify(f->model->graph, STATUS_INTERNAL, f->diag));
    for (int i = 0; i < f->model->graph->storage_count; i++)
        assert_non_null(f->model->graph->storages[i]->tensor.buf);
}

static void expect_refused(Fixture *f, const char *overrides, const char *part) {
    assert_int_not_equal(load(f, overrides, 1), STATUS_OK);
    expect_text(f, part, 1);
}

static void expect_same(const Fixture *f, const char *storage, const char *tensor) {
    const Tensor *have = &graph_storage(f->model->graph, storage)->tensor;
    const Tensor *want = checkpoint_find(f->checkpoint, tensor);
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    assert_non_null(want);
    tensor_hash(have, a);
    tensor_hash(want, b);
    assert_string_equal(a, b);
}

#define CLASSIFY "\"architectures\": [\"BertForSequenceClassification\"]"

/* Keys that mean nothing are named, with what may have been meant: a key of config.json
 * or one that the family reads. */
static void unknown_keys(void **state) {
    Fixture *f = *state;
    write_folder(f, "bert", "bert.", (const char *[]){"pooler", "classifier", NULL});
    expect_ok(f->diag, load(f,
                            "{" CLASSIFY ", \"num_labls\": 2, \"layer_norm_epsilon\": 1,"
                            " \"ZZZ\": {}}",
                            1));
    char *text = diag_text(f->diag);
    static const char *const parts[] = {
        "warning: num_labls: neither config.json nor the family bert has this key; did "
        "you mean \"num_labels\"?\n",
        "layer_norm_epsilon: neither config.json nor the family bert has this key; did "
        "you mean \"layer_norm_eps\"?\n",
        "warning: ZZZ: neither config.json nor the family bert has this key\n"};
    for (int i = 0; i < 3; i++)
        if (!strstr(text, parts[i])) fail_msg("expected '%s' in: %s", parts[i], text);
    free(text);
    diag_clear(f->diag);
    /* Known to config.json alone, to the family alone, to neither but of use. */
    expect_ok(f->diag, load(f,
                            "{" CLASSIFY ", \"torch_dtype\": \"x\","
                            " \"num_labels\": 3, \"label2id\": {\"a\": 0}}",
                            1));
    expect_text(f, "neither", 0);
}

/* A trunk without prefix and without heads gets a pooler and a classifier. */
static void classifier(void **state) {
    Fixture *f = *state;
    write_folder(f, "bert", "bert.", (const char *[]){"pooler", "classifier", NULL});
    expect_loaded(f, "{" CLASSIFY ", \"num_labels\": 5, \"pad\": 3}",
                  "warning: created: bert.pooler.dense.weight, bert.pooler.dense.bias, "
                  "classifier.weight, classifier.bias (seed 1)");
    const Graph *graph = f->model->graph;
    const Storage *weight = graph_storage(graph, "classifier.weight");
    assert_int_equal(weight->tensor.dim[0], 5);
    expect_same(f, "bert.embeddings.LayerNorm.weight",
                "bert.embeddings.LayerNorm.weight");
    assert_non_null(graph_output(graph, "logits"));
    assert_int_equal(tree_get(f->model->config, "num_labels")->integer, 5);
    assert_int_equal(tree_get(f->model->config, "pad")->integer, 3);
    assert_null(tree_get(f->model->config, "id2label"));
    assert_int_equal(tree_get(f->model->config, "hidden_size")->integer, 32);
}

/* The seed alone decides the new weights. */
static void seeds(void **state) {
    Fixture *f = *state;
    char hash[3][HASH_TEXT_BYTES];
    const uint64_t seed[] = {1, 1, 2};
    write_folder(f, "bert", "", (const char *[]){"classifier", NULL});
    for (int i = 0; i < 3; i++) {
        expect_ok(f->diag, load(f, "{}", seed[i]));
        const Graph *graph = f->model->graph;
        tensor_hash(&graph_storage(graph, "classifier.weight")->tensor, hash[i]);
        expect_same(f, "bert.pooler.dense.weight", "bert.pooler.dense.weight");
    }
    assert_string_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[0], hash[2]);
    expect_text(f, "created: classifier.weight, classifier.bias (seed 1)", 2);
}

/* Other heads and families; a head that goes and one that comes. */
static void others(void **state) {
    Fixture *f = *state;
    write_folder(f, "bert", "", (const char *[]){NULL});
    expect_loaded(f, "{}", NULL);
    expect_loaded(f, "{\"architectures\": [\"BertModel\"]}", NULL);
    expect_loaded(f, "{\"architectures\": [\"BertForMaskedLM\"]}",
                  "created: cls.predictions.transform.dense.weight, ");
    write_folder(f, "bert_mlm", "", (const char *[]){NULL});
    expect_loaded(f, "{" CLASSIFY "}", "created: bert.pooler.dense.weight, ");
    write_folder(f, "distilbert", "distilbert.", (const char *[]){"classifier", NULL});
    expect_loaded(f, "{\"num_labels\": 4}", "created: pre_classifier.weight, ");
}

/* A head of another number of labels gives way, where such a number is asked for. */
static void other_labels(void **state) {
    Fixture *f = *state;
    write_folder(f, "bert", "", (const char *[]){NULL});
    expect_loaded(
        f, "{\"num_labels\": 5}",
        "classifier.bias: is of another number of labels: its head is left out");
    const Storage *weight = graph_storage(f->model->graph, "classifier.weight");
    assert_int_equal(weight->tensor.dim[0], 5);
    expect_same(f, "bert.pooler.dense.weight", "bert.pooler.dense.weight");
    expect_refused(f, "{\"hidden_size\": 64}", "asks for shape [61, 64]");
    write_folder(f, "vit", "", (const char *[]){"classifier", NULL});
    expect_loaded(f, "{}", "created: classifier.weight, classifier.bias (seed 1)");
}

static void faults(void **state) {
    Fixture *f = *state;
    write_folder(f, "bert", "", (const char *[]){"pooler", "classifier", NULL});
    expect_refused(f, "{\"hidden_size\": 33}", "num_attention_heads: expected a divisor");
    expect_refused(f, "{\"vocab_size\": 60}", "asks for shape [60, 32]");
    expect_refused(f, "{\"architectures\": [\"BertForX\"]}",
                   "BertForMultipleChoice, BertMod");
    expect_refused(f, "{\"num_labels\": null, \"id2label\": 3}", "id2label: expected");
    assert_int_not_equal(model_load(&f->model, f->folder, ops_table(), true, f->diag),
                         STATUS_OK);
    expect_text(f, "creates a new head", 1);

    write_folder(f, "bert", "", (const char *[]){"classifier.weight", NULL});
    expect_refused(f, "{}", "classifier.weight: the checkpoint lacks");
    write_folder(f, "bert", "", (const char *[]){"layer.1.output.dense.bias", NULL});
    expect_refused(f, "{}", "layer.1.output.dense.bias: the checkpoint lacks");
    write_folder(f, "vit", "", (const char *[]){"classifier.weight", NULL});
    expect_refused(f, "{}", "classifier.weight: the checkpoint lacks");

    const HfOptions options = {.create_heads = true};
    assert_int_equal(model_load_with(&f->model, REFERENCE "README.md", &options,
                                     ops_table(), true, f->diag),
                     STATUS_FORMAT);
    expect_text(f, "expected a Hugging Face folder, whose", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(classifier, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(unknown_keys, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(seeds, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(others, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(other_labels, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(faults, fixture_make, fixture_free),
    };
    return cmocka_run_group_tests_name("new heads", tests, NULL, NULL);
}
