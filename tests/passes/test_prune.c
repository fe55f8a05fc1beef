/* What pruning must do to the numbers: zero units leave exactly, lineages lead back to
 * the original weights, a plan counts as the run does. */
#include "io/formats/modelfile.h"
#include "ir/storage.h"
#include "passes/nodes.h"
#include "passes/pruning/prune.h"
#include "tests/passes/prune_fixture.h"

#include <unistd.h>

/* ---- exactness ---- */

/* Gives layer 1 an attention bias [H, T, S] of its own. */
static void add_bias(Model *model) {
    Diag *diag = diag_create();
    Node *leaf = NULL;
    const int64_t dim[] = {HEADS, 5, 5};
    assert_ok(
        storage_create(&leaf, model->graph, "bias", (Init){INIT_NORMAL, 1}, 3, dim, diag),
        diag);
    Node *attention = graph_find(model->graph, "encoder", 1, ROLE_ATTENTION);
    node_set_operand(model->graph, attention, "bias", leaf);
    assert_ok(model_init_weights(model, 3, diag), diag);
    diag_destroy(diag);
}

static void test_zero_heads(void **state) {
    (void)state;
    Model *model = toy_vit(2);
    add_bias(model);
    for (int l = 0; l < LAYERS; l++)
        scale_columns(model, OUT(l), l % HEADS * WIDTH / HEADS, WIDTH / HEADS, 0);
    Model *before = model_copy(model);
    run_pass(model, "prune_heads", "{keep: 1, score: magnitude}");
    expect_equal_logits(before, model);
    for (int l = 0; l < LAYERS; l++) {
        assert_int_equal(attention_heads(model, l), 1);
        const Storage *out = find_storage(model, OUT(l));
        assert_int_equal(out->tensor.dim[1], WIDTH / HEADS);
        assert_int_equal(lineage_index(&out->kept[1], 0), l % HEADS ? 0 : WIDTH / HEADS);
    }
    const Storage *bias = find_storage(model, "bias");
    assert_int_equal(bias->tensor.dim[0], 1);
    assert_int_equal(lineage_index(&bias->kept[0], 0), 0);
    model_destroy(before);
    model_destroy(model);
}

static void test_zero_units(void **state) {
    (void)state;
    Model *model = toy_vit(2);
    for (int l = 0; l < LAYERS; l++) scale_columns(model, FFN_OUT(l), 3 + l, 9, 0);
    Model *before = model_copy(model);
    run_pass(model, "importance", "{data: toy, abs: block}");
    for (int l = 0; l < LAYERS; l++) {
        assert_true(stored_score(model, "ffn", l, 3 + l) == 0);
        assert_true(stored_score(model, "ffn", l, 2 + l) > 0);
    }
    run_pass(model, "prune_ffn", "{keep: 23}");
    expect_equal_logits(before, model);
    const Storage *out = find_storage(model, FFN_OUT(0));
    assert_int_equal(lineage_index(&out->kept[1], 2), 2);
    assert_int_equal(lineage_index(&out->kept[1], 3), 12);
    model_destroy(before);
    model_destroy(model);
}

/* Identity mixing does not let a head that nobody reads reach the others. */
static void test_zero_heads_with_mixing(void **state) {
    (void)state;
    Model *model = toy_vit(2);
    run_pass(model, "weight_multiplex", "{group: 2}");
    for (int l = 0; l < LAYERS; l += 2) scale_columns(model, OUT(l), 0, WIDTH / HEADS, 0);
    Model *before = model_copy(model);
    run_pass(model, "prune_heads", "{keep: 1, score: magnitude}");
    expect_equal_logits(before, model);
    const Storage *mix = find_storage(model, "encoder.layer.3.mix_after");
    assert_int_equal(mix->tensor.dim[0], 1);
    assert_int_equal(mix->tensor.dim[1], 1);
    model_destroy(before);
    model_destroy(model);
}

/* Draws the biases of the output projections, which a new model has at zero. */
static void draw_biases(Model *model) {
    Diag *diag = diag_create();
    for (int l = 0; l < LAYERS; l++) {
        Storage *bias =
            find_storage(model, layer_storage(l, "attention.output.dense.bias"));
        const Tensor shape = tensor_shape(DTYPE_F32, 1, bias->tensor.dim);
        tensor_release(&bias->tensor);
        bias->tensor = shape;
        bias->init = (Init){INIT_NORMAL, 1};
    }
    assert_ok(model_init_weights(model, 3, diag), diag);
    diag_destroy(diag);
}

/* A layer without heads computes what it would with a zero output projection. */
static void test_empty_layers(void **state) {
    (void)state;
    Model *model = toy_vit(4);
    draw_biases(model);
    Model *before = model_copy(model);
    for (int l = 1; l < 3; l++) scale_columns(before, OUT(l), 0, WIDTH, 0);
    for (int l = 1; l < 3; l++) scale_columns(model, OUT(l), 0, WIDTH, 1e-9);
    run_pass(model, "prune_heads",
             "{ranking: global, keep_total: 4, score: magnitude, allow_empty: true}");
    for (int l = 0; l < LAYERS; l++)
        assert_int_equal(attention_heads(model, l), l == 1 || l == 2 ? 0 : HEADS);
    const Storage *bias =
        find_storage(model, layer_storage(1, "attention.output.dense.bias"));
    assert_int_equal(bias->tensor.rank, 3);
    expect_equal_logits(before, model);
    model_destroy(before);
    model_destroy(model);
}

/* ---- lineage ---- */

static void expect_rows(const Storage *original, const Storage *pruned) {
    double *all = read_weights(original), *kept = read_weights(pruned);
    const int64_t columns = original->tensor.dim[1];
    for (int64_t row = 0; row < pruned->tensor.dim[0]; row++) {
        const int64_t from = lineage_index(&pruned->kept[0], row);
        assert_memory_equal(kept + row * columns, all + from * columns,
                            (size_t)columns * sizeof(double));
    }
    free(all);
    free(kept);
}

static void test_two_prunings(void **state) {
    (void)state;
    Model *model = toy_vit(8), *original = model_copy(model);
    run_pass(model, "importance", "{data: toy}");
    run_pass(model, "prune_ffn", "{keep: 20}");
    const double best = stored_score(model, "ffn", 1, 7);
    run_pass(model, "prune_ffn", "{ranking: global, keep_total: 30}");
    run_pass(model, "prune_heads", "{keep: 1}");
    int64_t total = 0;
    for (int l = 0; l < LAYERS; l++) {
        const Storage *in = find_storage(model, FFN_IN(l));
        total += in->tensor.dim[0];
        expect_rows(find_storage(original, FFN_IN(l)), in);
        const char *query = layer_storage(l, "attention.attention.query.weight");
        expect_rows(find_storage(original, query), find_storage(model, query));
    }
    assert_int_equal(total, 30);
    assert_true(best > 0);
    model_destroy(original);
    model_destroy(model);
}

/* Lineage and scores survive the model file, and a later run uses them. */
static void test_saved(void **state) {
    (void)state;
    Model *model = toy_vit(8), *loaded = NULL;
    Diag *diag = diag_create();
    char path[] = "/tmp/compress-prune-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    run_pass(model, "importance", "{data: toy}");
    run_pass(model, "prune_heads", "{keep: 1}");
    assert_ok(modelfile_write(model, path, NULL, diag), diag);
    assert_ok(modelfile_read(&loaded, path, model->graph->ops, true, diag), diag);
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    run_pass(model, "prune_ffn", "{keep: 8}");
    run_pass(loaded, "prune_ffn", "{keep: 8}");
    model_hash(model, a);
    model_hash(loaded, b);
    assert_string_equal(a, b);
    const Storage *out = find_storage(loaded, OUT(2));
    assert_int_equal(lineage_size(&out->kept[1]), 8);
    unlink(path);
    model_destroy(model);
    model_destroy(loaded);
    diag_destroy(diag);
}

static void test_slice(void **state) {
    (void)state;
    static const uint16_t data[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const uint16_t want[8] = {1, 2, 5, 6, 7, 8, 11, 12};
    Model *model = model_create(ops_table());
    Diag *diag = diag_create();
    Storage *storage = NULL;
    Tensor mapped = tensor_shape(DTYPE_BF16, 3, (int64_t[]){2, 3, 2});
    assert_ok(graph_add_storage(&storage, model->graph, "w", &mapped, diag), diag);
    storage->tensor.buf = buf_wrap(data, sizeof data, NULL);
    Node *leaf = graph_param(model->graph, storage);
    assert_ok(storage_keep(model->graph, leaf, STORAGE_ALL_USERS, 1, (int64_t[]){0, 2}, 2,
                           diag),
              diag);
    assert_int_equal(leaf->type.dim[1], 2);
    assert_memory_equal(tensor_data(&storage->tensor), want, sizeof want);
    assert_ok(
        storage_keep(model->graph, leaf, STORAGE_ALL_USERS, 1, (int64_t[]){1}, 1, diag),
        diag);
    assert_int_equal(lineage_index(&storage->kept[1], 0), 2);
    assert_int_equal(((const uint16_t *)tensor_data(&storage->tensor))[1], 6);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- planning ---- */

static int64_t count_parameters(const char *steps, bool plan) {
    char yaml[1000];
    snprintf(yaml, sizeof yaml, "version: 1\ndata: {toy: {format: toy}}\npasses:\n%s",
             steps);
    Model *model = toy_vit(1);
    Diag *diag = diag_create();
    for (int i = 0; plan && i < model->graph->storage_count; i++) {
        Tensor *tensor = &model->graph->storages[i]->tensor;
        const Tensor shape = tensor_shape(tensor->dtype, tensor->rank, tensor->dim);
        tensor_release(tensor);
        *tensor = shape;
    }
    assert_ok(test_run_recipe(model, "test", yaml, plan, 1, diag), diag);
    const int64_t count = graph_parameter_count(model->graph);
    model_destroy(model);
    diag_destroy(diag);
    return count;
}

/* Which layers a global ranking cuts is not known to a plan; how much is. */
static void test_plan_counts(void **state) {
    (void)state;
    static const char *const recipes[] = {
        "  - importance: {data: toy}\n"
        "  - prune_heads: {ranking: global, keep_total: 5}\n"
        "  - prune_ffn: {ranking: global, keep_ratio: 0.3}\n",
        "  - prune_ffn: {ranking: global, keep_total: 61, score: magnitude}\n"
        "  - prune_ffn: {ranking: global, keep_total: 7, score: magnitude}\n",
        "  - weight_multiplex: {group: 2}\n"
        "  - prune_ffn: {ranking: global, keep_total: 9, score: magnitude}\n",
    };
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        assert_int_equal(count_parameters(recipes[i], true),
                         count_parameters(recipes[i], false));
}

/* ---- models that do not fit ---- */

static void share(Model *model, int from, int to, Role source, Role target) {
    Node *a = graph_find(model->graph, "encoder", from, source);
    Node *b = graph_find(model->graph, "encoder", to, target);
    node_set_operand(model->graph, b, "weight", node_operand(a, "weight"));
    graph_remove_dead(model->graph);
}

static void test_unfit(void **state) {
    (void)state;
    Model *model = toy_vit(1);
    share(model, 0, 1, ROLE_V, ROLE_V);
    Node *attention = graph_find(model->graph, "encoder", 1, ROLE_ATTENTION);
    ((AttentionAttrs *)attention->attrs)->heads = 4;
    expect_failure(model, "prune_heads", "{keep: 1, score: random}",
                   "encoder.0 and encoder.1 share weights and must have equally many "
                   "heads, found 2 and 4");
    model_destroy(model);
    model = toy_vit(1);
    share(model, 0, 1, ROLE_OUT, ROLE_Q);
    expect_failure(model, "prune_heads", "{keep: 1, score: random}",
                   "\"vit.encoder.layer.0.attention.output.dense.weight\" cannot be cut");
    model_destroy(model);
    model = toy_vit(1);
    graph_set_output(model->graph, "keys",
                     graph_find(model->graph, "encoder", 2, ROLE_K));
    expect_failure(model, "importance", "{data: toy}",
                   "encoder.2: expected \"k\" to be a "
                   "projection read by attention");
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_heads),
        cmocka_unit_test(test_zero_units),
        cmocka_unit_test(test_zero_heads_with_mixing),
        cmocka_unit_test(test_empty_layers),
        cmocka_unit_test(test_two_prunings),
        cmocka_unit_test(test_saved),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_plan_counts),
        cmocka_unit_test(test_unfit),
    };
    return cmocka_run_group_tests_name("pruning", tests, NULL, NULL);
}
