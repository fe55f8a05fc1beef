/* Hugging Face folders of text encoders: names, heads that are there or not. */
#include "io_test.h"

#include "exec/ops.h"
#include "io/file.h"
#include "io/hf.h"
#include "io/load.h"
#include "io/safetensors.h"
#include "ir/irtext.h"
#include "ir/verify.h"

#define REFERENCE "tests/data/reference/"

/* A reference folder in memory that tests change before it is written. */
typedef struct Fixture {
    char folder[256], model[300], config[300];
    Arena *arena;
    Diag *diag;
    Checkpoint *checkpoint;
    NamedTensor *tensors;
    int count;
    char *text; /* config.json */
} Fixture;

static void take(Fixture *f, const char *name) {
    size_t length;
    const char *folder = arena_printf(f->arena, REFERENCE "%s", name);
    checkpoint_destroy(f->checkpoint);
    expect_ok(f->diag, checkpoint_read(&f->checkpoint, folder, f->diag));
    expect_ok(f->diag, file_read(&f->text, &length, f->arena,
                                 arena_printf(f->arena, "%s/config.json", folder),
                                 1 << 20, f->diag));
    f->count = f->checkpoint->count;
    f->tensors = ARENA_ARRAY(f->arena, NamedTensor, (size_t)f->count + 4);
    memcpy(f->tensors, f->checkpoint->tensors, sizeof *f->tensors * (size_t)f->count);
}

static int fixture_make(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    scratch_make(f->folder);
    snprintf(f->model, sizeof f->model, "%s/model.safetensors", f->folder);
    snprintf(f->config, sizeof f->config, "%s/config.json", f->folder);
    f->arena = arena_create();
    f->diag = diag_create();
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

static Status load(Fixture *f, Model **model) {
    expect_ok(f->diag, safetensors_write(f->model, f->tensors, f->count, f->diag));
    put_text(f->config, f->text);
    return model_load(model, f->folder, ops_table(), true, f->diag);
}

static void expect_refused(Fixture *f, const char *part) {
    Model *model;
    char *text;
    const Status status = load(f, &model);
    text = diag_text(f->diag);
    if (status == STATUS_OK || !strstr(text, part))
        fail_msg("expected a failure with '%s', got %d: %s", part, status, text);
    free(text);
    diag_clear(f->diag);
}

/* Loads, verifies the graph and that its text is a fixed point of print and parse; checks
 * that the diagnostics hold `part` (NULL = say nothing of tensors). */
static Model *expect_loaded(Fixture *f, const char *part) {
    Model *model;
    Graph *back;
    Text once = {0}, twice = {0};
    expect_ok(f->diag, load(f, &model));
    char *text = diag_text(f->diag);
    if (part ? !strstr(text, part) : strstr(text, "tensor") != NULL)
        fail_msg("expected '%s', found: %s", part ? part : "nothing", text);
    free(text);
    diag_clear(f->diag);
    expect_ok(f->diag, graph_verify(model->graph, STATUS_INTERNAL, f->diag));
    graph_print(&once, model->graph);
    expect_ok(f->diag, graph_parse(&back, f->arena, ops_table(), "ir", once.data,
                                   once.length, f->diag));
    graph_print(&twice, back);
    assert_string_equal(once.data, twice.data);
    graph_release(back);
    text_free(&once);
    text_free(&twice);
    return model;
}

/* config.json with the first `old` replaced. */
static void edit(Fixture *f, const char *old, const char *new) {
    const char *at = strstr(f->text, old);
    assert_non_null(at);
    f->text = arena_printf(f->arena, "%.*s%s%s", (int)(at - f->text), f->text, new,
                           at + strlen(old));
}

/* Removes `prefix` from the names that begin with it. */
static void strip(Fixture *f, const char *prefix) {
    for (int i = 0; i < f->count; i++)
        if (strncmp(f->tensors[i].name, prefix, strlen(prefix)) == 0)
            f->tensors[i].name += strlen(prefix);
}

/* Removes the tensors whose name holds `part`. */
static void drop(Fixture *f, const char *part) {
    int kept = 0;
    for (int i = 0; i < f->count; i++)
        if (!strstr(f->tensors[i].name, part)) f->tensors[kept++] = f->tensors[i];
    assert_true(kept < f->count);
    f->count = kept;
}

/* Adds a tensor with the values of another. */
static void add(Fixture *f, const char *name, const char *like) {
    const Tensor *tensor = checkpoint_find(f->checkpoint, like);
    assert_non_null(tensor);
    f->tensors[f->count++] = (NamedTensor){.name = name, .tensor = *tensor};
}

static void roles(void **state) {
    Fixture *f = *state;
    static const char *const NAMES[] = {"bert", "bert_mlm", "distilbert"};
    for (int n = 0; n < 3; n++) {
        take(f, NAMES[n]);
        Model *model = expect_loaded(f, NULL);
        const Graph *graph = model->graph;
        assert_int_equal(graph->storage_count, f->checkpoint->count);
        assert_int_equal(graph_layer_count(graph, "encoder"), 3);
        assert_ptr_equal(graph_output(graph, "last_hidden_state"),
                         graph_layer_output(graph, "encoder", 2));
        for (Role role = ROLE_NORM1; role <= ROLE_RESIDUAL2; role++)
            if (role != ROLE_NORM_CROSS && role != ROLE_LOCAL_NORM &&
                role != ROLE_LOCAL_CONV)
                for (int layer = 0; layer < 3; layer++)
                    assert_non_null(graph_find(graph, "encoder", layer, role));
        assert_non_null(graph_find(graph, "embeddings", -1, ROLE_EMBED));
        assert_non_null(graph_find(graph, "embeddings", -1, ROLE_POSITION));
        assert_non_null(graph_find(graph, "embeddings", -1, ROLE_NORM0));
        assert_int_equal(graph_find(graph, "embeddings", -1, ROLE_TOKEN_TYPE) != NULL,
                         n < 2);
        assert_ptr_equal(graph_output(graph, "logits"),
                         graph_find(graph, "head", -1, ROLE_HEAD));
        model_destroy(model);
    }
}

/* The same weights as a bare model: from the trunk of a classifier, with and without the
 * prefix, with and without the pooler. */
static void bare(void **state) {
    Fixture *f = *state;
    take(f, "bert");
    edit(f, "BertForSequenceClassification", "BertModel");
    Model *model = expect_loaded(f, "classifier.bias: 2 tensors of heads");
    assert_non_null(graph_storage(model->graph, "embeddings.LayerNorm.weight"));
    assert_int_equal(model->graph->output_count, 2);
    model_destroy(model);
    drop(f, "classifier");
    strip(f, "bert.");
    model_destroy(expect_loaded(f, NULL));
    drop(f, "pooler");
    model = expect_loaded(f, NULL);
    assert_int_equal(model->graph->output_count, 1);
    assert_null(graph_storage(model->graph, "pooler.dense.weight"));
    model_destroy(model);
}

static void names(void **state) {
    Fixture *f = *state;
    take(f, "bert");
    strip(f, "bert."); /* a classifier on a trunk without prefix */
    model_destroy(expect_loaded(f, NULL));
    add(f, "bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.weight");
    expect_refused(f, "another tensor has the same place");

    take(f, "bert"); /* names of early checkpoints, saved position indices */
    for (int i = 0; i < f->count; i++) {
        const char *name = f->tensors[i].name, *end = strrchr(name, '.');
        if (strstr(name, "LayerNorm."))
            f->tensors[i].name =
                arena_printf(f->arena, "%.*s.%s", (int)(end - name), name,
                             strcmp(end, ".weight") == 0 ? "gamma" : "beta");
    }
    add(f, "bert.embeddings.position_ids", "bert.embeddings.LayerNorm.weight");
    model_destroy(expect_loaded(f, NULL));

    take(f, "bert");
    drop(f, "classifier.weight");
    expect_refused(f, "classifier.weight: the checkpoint lacks");
    take(f, "bert");
    add(f, "bert.encoder.layer.0.extra", "classifier.bias");
    expect_refused(f, "bert.encoder.layer.0.extra: the model has no place");
}

/* The decoder is the word embeddings, unless the configuration says otherwise. */
static void decoder(void **state) {
    Fixture *f = *state;
    const char *words = "bert.embeddings.word_embeddings.weight";
    take(f, "bert_mlm");
    Model *model = expect_loaded(f, NULL);
    Node *logits = graph_output(model->graph, "logits");
    assert_string_equal(logits->in[1]->storage->name, words);
    model_destroy(model);
    add(f, "cls.predictions.decoder.weight", words);
    model_destroy(expect_loaded(f, "cls.predictions.decoder.weight: 1 tensor of heads"));
    edit(f, "\"use_cache\": true", "\"tie_word_embeddings\": false");
    model = expect_loaded(f, NULL);
    logits = graph_output(model->graph, "logits");
    assert_string_equal(logits->in[1]->storage->name, "cls.predictions.decoder.weight");
    model_destroy(model);
    drop(f, "decoder");
    expect_refused(f, "cls.predictions.decoder.weight: the checkpoint lacks");
}

static const struct {
    const char *name, *old, *new, *message;
} CONFIGS[] = {
    {"bert", "BertForSeq", "BertForX", "BertForMaskedLM, BertModel"},
    {"bert", "\"vocab_size\": 61", "\"vocab_size\": 0",
     "vocab_size: expected an integer"},
    {"bert", "\"vocab_size\": 61", "\"vocab_size\": 60", "asks for shape [60, 32]"},
    {"bert", "\"absolute\"", "\"relative_key\"", "expected absolute, the only kind"},
    {"bert", "\"use_cache\": true", "\"is_decoder\": true", "is_decoder: expected false"},
    {"bert", "_heads\": 4", "_heads\": 5",
     "expected a divisor of hidden_size 32, found 5"},
    {"bert", "embeddings\": 16", "embeddings\": 17", "asks for shape [17, 32]"},
    {"bert", "type_vocab_size\": 2", "type_vocab_size\": 0", "type_vocab_size: expected"},
    {"distilbert", "n_heads\": 4", "n_heads\": 6", "n_heads: expected a divisor of dim"},
    {"distilbert", "\"gelu\"", "\"elu\"", "activation: expected gelu"},
    {"distilbert", "\"dim\": 32,", "", "dim: missing"},
    {"distilbert", "\"distilbert\"", "\"albert\"", "hidden_size: missing"},
};

static void configs(void **state) {
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof CONFIGS / sizeof *CONFIGS; i++) {
        take(f, CONFIGS[i].name);
        edit(f, CONFIGS[i].old, CONFIGS[i].new);
        expect_refused(f, CONFIGS[i].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(roles, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(bare, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(names, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(decoder, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(configs, fixture_make, fixture_free),
    };
    return cmocka_run_group_tests_name("text folders", tests, NULL, NULL);
}
