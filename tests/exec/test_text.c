/* Text models: limits of ids, labels and lengths; ALBERT against BERT with copied
 * weights; training. */
#include "exec/ops.h"
#include "exec/plan/plan_build.h"
#include "exec/train/train.h"
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/reference.h"

#include <stdlib.h>
#include <string.h>

static const char BERT[] =
    "{model_type: bert, architectures: [BertForMaskedLM], vocab_size: 11,\n"
    " max_position_embeddings: 8, type_vocab_size: 2, hidden_size: 12,\n"
    " num_hidden_layers: 4, num_attention_heads: 3, intermediate_size: 20,\n"
    " hidden_act: gelu_new, hidden_dropout_prob: 0, initializer_range: 0.3}\n";

static const char ALBERT[] =
    "{model_type: albert, architectures: [AlbertForMaskedLM], vocab_size: 11,\n"
    " max_position_embeddings: 8, type_vocab_size: 2, hidden_size: 12,\n"
    " embedding_size: 12, num_hidden_groups: 2, num_hidden_layers: 4,\n"
    " num_attention_heads: 3, intermediate_size: 20, hidden_dropout_prob: 0,\n"
    " initializer_range: 0.3}\n";

static Model *build(const char *text) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *config = NULL;
    Model *model = NULL;
    assert_ok(yaml_parse(&config, arena, "test", text, strlen(text), diag), diag);
    assert_ok(hf_build(&model, config, ops_table(), diag), diag);
    assert_ok(model_init_weights(model, 5, diag), diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return model;
}

static void expect(Diag *diag, Status got, Status status, const char *message) {
    char *text = diag_text(diag);
    if (got != status || (message && !strstr(text, message)))
        fail_msg("expected %d with '%s', got %d: %s", status, message, got, text);
    free(text);
    diag_clear(diag);
}

/* ---- data ---- */

enum { SAMPLES = 10, TOKENS = 6 };

/* Samples whose third one can be spoilt. */
typedef struct Sentences {
    Batches batches;
    int32_t id, label; /* of token 1 of sample 3 */
} Sentences;

/* Ids count up from the sample's number; labels are the next id at every second token. */
static Status fetch(const Batches *self, const Fetch *what, void *const *dst,
                    Diag *diag) {
    const Sentences *data = (const Sentences *)self;
    const int64_t *index = what->index;
    const int64_t n = what->n;
    (void)diag;
    for (int64_t i = 0; i < n * TOKENS; i++) {
        const int64_t sample = index[i / TOKENS], token = i % TOKENS;
        const bool spoilt = sample == 3 && token == 1;
        const int32_t id = (int32_t)((sample + token) % 11);
        ((int32_t *)dst[0])[i] = spoilt ? data->id : id;
        ((int32_t *)dst[1])[i] = 1;
        ((int32_t *)dst[2])[i] = token > 2;
        ((int32_t *)dst[3])[i] = spoilt      ? data->label
                                 : token % 2 ? (id + 1) % 11
                                             : INDEX_SKIP;
    }
    return STATUS_OK;
}

static Sentences sentences(int32_t id, int32_t label) {
    static const Column COLUMNS[] = {
        {"input_ids", {.dtype = DTYPE_I32, .rank = 1, .dim = {TOKENS}}},
        {"attention_mask", {.dtype = DTYPE_I32, .rank = 1, .dim = {TOKENS}}},
        {"token_type_ids", {.dtype = DTYPE_I32, .rank = 1, .dim = {TOKENS}}},
        {"labels", {.dtype = DTYPE_I32, .rank = 1, .dim = {TOKENS}}}};
    return (Sentences){{.name = "sentences",
                        .count = SAMPLES,
                        .columns = COLUMNS,
                        .column_count = 4,
                        .fetch = fetch},
                       id,
                       label};
}

/* ---- limits ---- */

static Status ignore(void *self, const Fetch *what, const float *const *values,
                     const void *const *columns, Diag *diag) {
    (void)self, (void)what, (void)values, (void)columns, (void)diag;
    return STATUS_OK;
}

static void check_sample(int32_t id, int32_t label, const char *message) {
    Diag *diag = diag_create();
    Model *model = build(BERT);
    Node *loss = reference_loss(model->graph);
    Sentences data = sentences(id, label);
    const Status status = forward_batches(model->graph, &loss, 1, &data.batches, 0, 2, 1,
                                          NULL, ignore, NULL, diag);
    expect(diag, status, message ? STATUS_MODEL : STATUS_OK, message);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_indices(void **state) {
    (void)state;
    check_sample(10, 10, NULL);
    check_sample(0, INDEX_SKIP, NULL);
    check_sample(11, 0, "sentences: sample 3: expected input_ids from 0 to 10, found 11");
    check_sample(11, 0, "hint: the model's table has 11 rows: the tokenizer or data may");
    check_sample(-1, 0, "expected input_ids from 0 to 10, found -1");
    check_sample(INDEX_SKIP, 0, "expected input_ids from 0 to 10, found -100");
    check_sample(INT32_MAX, 0, "found 2147483647");
    check_sample(0, 11, "labels from 0 to 10, found 11");
    check_sample(0, -1, "labels from 0 to 10, found -1");
}

/* Ids among the weights would be read without a check. */
static void test_ids_are_input(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Graph *graph = graph_create(arena, ops_table());
    const Tensor shapes[] = {tensor_shape(DTYPE_I32, 2, (const int64_t[]){2, 3}),
                             tensor_shape(DTYPE_F32, 2, (const int64_t[]){5, 4})};
    Node *in[2];
    for (int i = 0; i < 2; i++) {
        Storage *storage = NULL;
        assert_ok(
            graph_add_storage(&storage, graph, i ? "table" : "ids", &shapes[i], diag),
            diag);
        in[i] = graph_param(graph, storage);
    }
    Node *node = graph_insert(graph, NULL, op_find(graph->ops, "embedding"), in, 2);
    assert_ok(node_infer(node, diag), diag);
    const PlanOptions options = {.sizes = {1}, .results = &node, .result_count = 1};
    Plan *plan = NULL;
    expect(diag, plan_create(&plan, graph, &options, diag), STATUS_MODEL,
           "embedding: indices must be an input");
    graph_release(graph);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_length(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = build(BERT);
    Node *logits = graph_output(model->graph, "logits");
    Plan *plan = NULL;
    PlanOptions options = {.sizes = {2, 9}, .results = &logits, .result_count = 1};
    expect(diag, plan_create(&plan, model->graph, &options, diag), STATUS_MODEL,
           "sequence of 9 tokens, the position table has 8");
    options.sizes[DIM_INDEX(DIM_T)] = 8;
    assert_ok(plan_create(&plan, model->graph, &options, diag), diag);
    assert_int_equal(
        plan_index_limit(plan, graph_find_input(model->graph, "token_type_ids")), 2);
    assert_int_equal(
        plan_index_limit(plan, graph_find_input(model->graph, "attention_mask")), 0);
    plan_destroy(plan);
    int64_t sizes[DIM_SYMBOLS] = {0, 128, 3, 20};
    plan_fit_sizes(model->graph, &logits, 1, sizes);
    assert_int_equal(sizes[DIM_INDEX(DIM_N)], 0);
    assert_int_equal(sizes[DIM_INDEX(DIM_T)], 8);
    assert_int_equal(sizes[DIM_INDEX(DIM_S)], 1);
    assert_int_equal(sizes[DIM_INDEX(DIM_M)], 20);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- ALBERT ---- */

/* ALBERT's storage for one of BERT's: layers 0, 1 and 2, 3 share. */
static const Storage *shared_storage(const Graph *albert, const char *name) {
    static const char *const PARTS[][2] = {
        {"attention.self.", "attention."},
        {"attention.output.dense.", "attention.dense."},
        {"attention.output.LayerNorm.", "attention.LayerNorm."},
        {"intermediate.dense.", "ffn."},
        {"output.dense.", "ffn_output."},
        {"output.LayerNorm.", "full_layer_layer_norm."}};
    char other[256];
    int layer, at = 0;
    snprintf(other, sizeof other, "al%s", name);
    if (strncmp(name, "cls.predictions.transform.", 26) == 0)
        snprintf(other, sizeof other, "predictions.%s", name + 26);
    else if (strncmp(name, "cls.", 4) == 0)
        snprintf(other, sizeof other, "%s", name + 4);
    else if (sscanf(name, "bert.encoder.layer.%d.%n", &layer, &at) == 1)
        for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
            if (strncmp(name + at, PARTS[i][0], strlen(PARTS[i][0])) == 0)
                snprintf(other, sizeof other,
                         "albert.encoder.albert_layer_groups.%d.albert_layers.0.%s%s",
                         layer / 2, PARTS[i][1], name + at + strlen(PARTS[i][0]));
    const Storage *found = graph_storage(albert, other);
    if (!found) fail_msg("ALBERT has no %s for %s", other, name);
    return found;
}

/* Makes all of ALBERT's weights random and the projection of the embeddings the identity,
 * then copies them to BERT. */
static void copy_weights(Graph *bert, Graph *albert, Diag *diag) {
    for (int s = 0; s < albert->storage_count; s++) {
        Storage *storage = albert->storages[s];
        const bool mapping = strstr(storage->name, "mapping_in") != NULL;
        const int64_t width = storage->tensor.dim[storage->tensor.rank - 1];
        void *data = NULL;
        assert_ok(tensor_writable(&storage->tensor, &data, diag), diag);
        for (int64_t i = 0; i < tensor_count(&storage->tensor); i++) {
            const double x = random_normal(random_key(9, (uint64_t)s), (uint64_t)i);
            const bool one = storage->tensor.rank == 2 && i / width == i % width;
            ((float *)data)[i] = mapping ? (float)one : (float)(0.4 * x);
        }
    }
    for (int s = 0; s < bert->storage_count; s++) {
        Storage *storage = bert->storages[s];
        const Storage *from = shared_storage(albert, storage->name);
        assert_int_equal(tensor_count(&from->tensor), tensor_count(&storage->tensor));
        tensor_release(&storage->tensor);
        storage->tensor = tensor_retain(&from->tensor);
    }
}

/* Logits of one batch in double. */
static double *run_model(Model *model, int64_t *count) {
    Node *logits = graph_output(model->graph, "logits");
    const int64_t sizes[DIM_SYMBOLS] = {SAMPLES, TOKENS};
    const Sentences data = sentences(1, 1);
    int64_t index[SAMPLES];
    int32_t labels[SAMPLES * TOKENS];
    Runner r;
    for (int i = 0; i < SAMPLES; i++) index[i] = i;
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F64, NULL, &logits, 1);
    void *dst[4] = {workspace_input(r.workspace, "input_ids"),
                    workspace_input(r.workspace, "attention_mask"),
                    workspace_input(r.workspace, "token_type_ids"), labels};
    fetch(&data.batches, &(Fetch){index, SAMPLES, 0, 0}, dst, NULL);
    runner_run(&r);
    *count = (int64_t)SAMPLES * TOKENS * 11;
    double *out = malloc((size_t)*count * sizeof *out);
    memcpy(out, workspace_value(r.workspace, logits), (size_t)*count * sizeof *out);
    runner_close(&r);
    return out;
}

static void test_albert_is_bert_with_shared_layers(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *bert = build(BERT), *albert = build(ALBERT);
    copy_weights(bert->graph, albert->graph, diag);
    /* Two layers of weights fewer, the identity and its bias more. */
    const int64_t layer = 4 * (12 * 12 + 12) + 2 * 12 * 20 + 20 + 12 + 4 * 12;
    assert_int_equal(graph_parameter_count(bert->graph) - 2 * layer + 12 * 12 + 12,
                     graph_parameter_count(albert->graph));
    int64_t count;
    double *want = run_model(bert, &count), *got = run_model(albert, &count);
    const int64_t sizes[DIM_SYMBOLS] = {SAMPLES, TOKENS};
    const double terms =
        rounding_terms(bert->graph, graph_output(bert->graph, "logits"), sizes);
    rounding_compare("logits", got, want, count, PRECISION_F64, terms, 0);
    double spread = 0;
    for (int64_t i = 0; i < count; i++) spread += want[i] * want[i];
    assert_true(spread > 1);
    free(want);
    free(got);
    model_destroy(bert);
    model_destroy(albert);
    diag_destroy(diag);
}

/* ---- training ---- */

/* The next id is learnt from the id, through tied embeddings, by any number of threads
 * alike. */
static double train_model(const char *config, int threads, double *first) {
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    Model *model = build(config);
    Node *loss = reference_loss(model->graph);
    Sentences data = sentences(4, 5);
    TrainOptions options = train_defaults;
    options.epochs = 60;
    options.batch_size = 5;
    options.lr = 0.01;
    TrainReport report = {0};
    assert_ok(train(model->graph, loss, NULL, 0, &data.batches, &options, 1, threads,
                    NULL, arena, &report, diag),
              diag);
    *first = report.first_loss;
    model_destroy(model);
    arena_destroy(arena);
    diag_destroy(diag);
    return report.last_loss;
}

static void test_training(void **state) {
    (void)state;
    const char *const configs[] = {BERT, ALBERT};
    for (int i = 0; i < 2; i++) {
        double first, again;
        const double last = train_model(configs[i], 1, &first);
        if (!(first > 1.5 && last < 0.2)) fail_msg("loss from %g to %g", first, last);
        assert_true(train_model(configs[i], 2, &again) == last && first == again);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_indices),
        cmocka_unit_test(test_ids_are_input),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_albert_is_bert_with_shared_layers),
        cmocka_unit_test(test_training),
    };
    return cmocka_run_group_tests_name("text models", tests, NULL, NULL);
}
