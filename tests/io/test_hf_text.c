/* Hugging Face folders of text encoders: names, heads that are there or not. */
#include "tests/io/folder_fixture.h"

static void roles(void **state) {
    Fixture *f = *state;
    static const char *const NAMES[] = {"bert", "bert_mlm", "distilbert"};
    static const Role LAYER[] = {ROLE_NORM1,     ROLE_Q,         ROLE_K,
                                 ROLE_V,         ROLE_ATTENTION, ROLE_OUT,
                                 ROLE_RESIDUAL1, ROLE_NORM2,     ROLE_FFN_IN,
                                 ROLE_FFN_ACT,   ROLE_FFN_OUT,   ROLE_RESIDUAL2};
    for (int n = 0; n < 3; n++) {
        take(f, NAMES[n]);
        Model *model = expect_loaded(f, NULL);
        const Graph *graph = model->graph;
        assert_int_equal(graph->storage_count, f->checkpoint->count);
        assert_int_equal(graph_layer_count(graph, "encoder"), 3);
        assert_ptr_equal(graph_output(graph, "last_hidden_state"),
                         graph_layer_output(graph, "encoder", 2));
        for (size_t r = 0; r < sizeof LAYER / sizeof *LAYER; r++)
            for (int layer = 0; layer < 3; layer++)
                assert_non_null(graph_find(graph, "encoder", layer, LAYER[r]));
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

/* Queries, keys and values stand one after another in a tensor of ModernBERT's, which may
 * be saved with leading dimensions of 1, and must have as many rows as they have. */
static void fused(void **state) {
    Fixture *f = *state;
    static const char NAME[] = "model.layers.1.attn.Wqkv.weight";
    static const char *const PARTS[] = {"model.layers.1.attn.q.weight",
                                        "model.layers.1.attn.k.weight",
                                        "model.layers.1.attn.v.weight"};
    for (int leading = 0; leading < 2; leading++) {
        Tensor *whole = NULL;
        take(f, "modernbert");
        for (int i = 0; i < f->count; i++)
            if (strcmp(f->tensors[i].name, NAME) == 0) whole = &f->tensors[i].tensor;
        assert_non_null(whole);
        const int64_t rows = whole->dim[0], columns = whole->dim[1];
        const char *bytes = tensor_data(whole);
        if (leading) {
            whole->rank = 3;
            memcpy(whole->dim, (int64_t[]){1, rows, columns}, 3 * sizeof(int64_t));
        }
        Model *model = expect_loaded(f, NULL);
        for (int p = 0; p < 3; p++) {
            const Tensor *part = &graph_storage(model->graph, PARTS[p])->tensor;
            assert_int_equal(3 * tensor_bytes(part), tensor_bytes(whole));
            assert_memory_equal(tensor_data(part), bytes + (size_t)p * tensor_bytes(part),
                                tensor_bytes(part));
        }
        model_destroy(model);
    }
    take(f, "modernbert");
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->tensors[i].name, NAME) == 0) f->tensors[i].tensor.dim[0] -= 3;
    expect_refused(f, "asks for shape [36, 12], found [33, 12]");
}

static const struct {
    const char *name, *old, *new, *message;
} CONFIGS[] = {
    {"bert", "BertForSeq", "BertForX", "BertForMultipleChoice, BertModel"},
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
        cmocka_unit_test_setup_teardown(fused, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(configs, fixture_make, fixture_free),
    };
    return cmocka_run_group_tests_name("text folders", tests, NULL, NULL);
}
