/* Passes on Swin, whose stages have unequal widths and whose attention is in windows:
 * layers and units that give nothing leave exactly, exits of every width, training, and
 * what is refused. The toy's windows are padded and shifted. */
#include "io/formats/modelfile.h"
#include "ir/verify.h"
#include "passes/exits/exits.h"
#include "tests/passes/prune_fixture.h"
#include "tests/support/configured.h"

#include <unistd.h>

enum { DEPTH = 4, STAGES = 2, BLOCKS = 2 };

/* 8 x 8 tokens in windows of 3, then 4 x 4. */
static Model *toy_swin(uint64_t seed) {
    return configured_model(
        "{model_type: swin, image_size: 8, patch_size: 1, num_channels: 1,\n"
        " num_labels: 3, embed_dim: 8, depths: [2, 2], num_heads: [2, 4],\n"
        " window_size: 3, mlp_ratio: 2, initializer_range: 0.3}\n",
        seed);
}

static const char *block_storage(int layer, const char *part) {
    static char name[160];
    snprintf(name, sizeof name, "swin.encoder.layers.%d.blocks.%d.%s", layer / BLOCKS,
             layer % BLOCKS, part);
    return name;
}

static int64_t width_of(int layer) {
    return 8 << layer / BLOCKS;
}

/* Biases are not zero, so that a lost one shows. */
static void draw_biases(Model *model) {
    Diag *diag = diag_create();
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *storage = model->graph->storages[i];
        if (storage->init.kind != INIT_ZEROS) continue;
        const Tensor shape =
            tensor_shape(DTYPE_F32, storage->tensor.rank, storage->tensor.dim);
        tensor_release(&storage->tensor);
        storage->tensor = shape;
        storage->init = (Init){INIT_NORMAL, 0.3};
    }
    assert_ok(model_init_weights(model, 3, diag), diag);
    diag_destroy(diag);
}

static void zero(Model *model, const char *name) {
    Diag *diag = diag_create();
    void *data = NULL;
    Tensor *tensor = &find_storage(model, name)->tensor;
    assert_ok(tensor_writable(tensor, &data, diag), diag);
    memset(data, 0, tensor_bytes(tensor));
    diag_destroy(diag);
}

static void test_stages(void **state) {
    (void)state;
    Model *model = toy_swin(1);
    for (int l = 0; l < DEPTH; l++)
        assert_int_equal(graph_layer_stage(model->graph, "encoder", l), l / BLOCKS);
    model_destroy(model);
    model = toy_vit(1);
    assert_int_equal(graph_layer_stage(model->graph, "encoder", LAYERS - 1), 0);
    model_destroy(model);
}

/* ---- layers ---- */

/* Layers that are the identity, among them whole stages, leave no trace. */
static void check_identity(unsigned removed) {
    static const char *const PARTS[] = {"attention.output.dense.weight",
                                        "attention.output.dense.bias",
                                        "output.dense.weight", "output.dense.bias"};
    Model *model = toy_swin(5);
    draw_biases(model);
    char options[64] = "{drop: [";
    for (int l = 0; l < DEPTH; l++) {
        if (!(removed >> l & 1)) continue;
        for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
            zero(model, block_storage(l, PARTS[i]));
        snprintf(options + strlen(options), sizeof options - strlen(options), "%s%d",
                 options[strlen(options) - 1] == '[' ? "" : ", ", l);
    }
    strcat(options, "]}");
    Model *before = model_copy(model);
    run_pass(model, "remove_layer", options);
    expect_equal_logits(before, model);
    int layer = 0;
    for (int l = 0; l < DEPTH; l++)
        if (!(removed >> l & 1))
            assert_int_equal(graph_layer_stage(model->graph, "encoder", layer++),
                             l / BLOCKS);
    assert_int_equal(graph_layer_count(model->graph, "encoder"), layer);
    model_destroy(before);
    model_destroy(model);
}

static void test_remove_layer(void **state) {
    (void)state;
    for (unsigned removed = 1; removed < (1u << DEPTH) - 1; removed++)
        check_identity(removed);
}

/* ---- heads and units ---- */

static void test_zero_heads(void **state) {
    (void)state;
    Model *model = toy_swin(2);
    draw_biases(model);
    for (int l = 0; l < DEPTH; l++)
        scale_columns(model, block_storage(l, "attention.output.dense.weight"), 0,
                      width_of(l) / 2, 0);
    Model *before = model_copy(model);
    run_pass(model, "prune_heads", "{keep_ratio: 0.5, score: magnitude}");
    expect_equal_logits(before, model);
    for (int l = 0; l < DEPTH; l++) {
        const int64_t heads = 1 << l / BLOCKS;
        const Storage *table = find_storage(
            model, block_storage(l, "attention.self.relative_position_bias_table"));
        assert_int_equal(attention_heads(model, l), heads);
        assert_int_equal(table->tensor.dim[1], heads);
        assert_int_equal(lineage_index(&table->kept[1], 0), heads);
    }
    model_destroy(before);
    model_destroy(model);
}

/* The bias of an output projection goes through the windows as it is. */
static void test_empty_layer(void **state) {
    (void)state;
    Model *model = toy_swin(4);
    draw_biases(model);
    const char *out = block_storage(1, "attention.output.dense.weight");
    Model *before = model_copy(model);
    scale_columns(before, out, 0, width_of(1), 0);
    scale_columns(model, out, 0, width_of(1), 1e-9);
    run_pass(model, "prune_heads",
             "{ranking: global, keep_total: 10, score: magnitude, allow_empty: true}");
    assert_int_equal(attention_heads(model, 1), 0);
    assert_null(graph_find(model->graph, "encoder", 1, ROLE_GRID));
    expect_equal_logits(before, model);
    model_destroy(before);
    model_destroy(model);
}

static void test_zero_units(void **state) {
    (void)state;
    Model *model = toy_swin(2);
    draw_biases(model);
    for (int l = 0; l < DEPTH; l++)
        scale_columns(model, block_storage(l, "output.dense.weight"), 1 + l, 5, 0);
    Model *before = model_copy(model);
    run_pass(model, "importance", "{data: toy, abs: block}");
    for (int l = 0; l < DEPTH; l++) {
        assert_true(stored_score(model, "ffn", l, 1 + l) == 0);
        assert_true(stored_score(model, "ffn", l, l) > 0);
    }
    run_pass(model, "prune_ffn", "{ranking: global, keep_total: 76}");
    expect_equal_logits(before, model);
    model_destroy(before);
    model_destroy(model);
}

/* With the sum over all data taken before the absolute value, a head's Taylor score is
 * the derivative of the loss when its part of the output projection is scaled. */
static void test_importance(void **state) {
    (void)state;
    Model *model = toy_swin(6);
    draw_biases(model);
    Model *scored = model_copy(model);
    run_pass(scored, "importance",
             "{data: toy, abs: block, accumulate: sum_then_abs, batch_size: 60}");
    for (int l = 0; l < DEPTH; l++)
        for (int h = 0; h < 2 << l / BLOCKS; h++) {
            double tolerance;
            const char *out = block_storage(l, "attention.output.dense.weight");
            const double slope = scaled_slope(model, out, h * 4, 4, &tolerance);
            assert_within(stored_score(scored, "heads", l, h), fabs(slope),
                          tolerance + score_tolerance(model, slope));
        }
    model_destroy(scored);
    model_destroy(model);
}

/* ---- exits ---- */

/* Every layer has an exit as wide as it is; the model's own prediction stays. */
static void test_exits(void **state) {
    (void)state;
    Model *model = toy_swin(7), *before = model_copy(model);
    run_pass(model, "add_exits", "{}");
    expect_same_logits(before, model);
    for (int l = 0; l + 1 < DEPTH; l++) {
        char name[64];
        snprintf(name, sizeof name, "exits.%d.classifier.weight", l + 1);
        assert_int_equal(find_storage(model, name)->tensor.dim[1], width_of(l));
        snprintf(name, sizeof name, "exits.%d.norm.weight", l + 1);
        assert_int_equal(find_storage(model, name)->tensor.dim[0], width_of(l));
    }
    run_pass(model, "finetune",
             "{data: toy, epochs: 1, batch_size: 20, gradient: equilibrium}");
    run_pass(model, "remove_layer", "{drop: [1]}");
    assert_non_null(graph_output(model->graph, "exit.2"));
    assert_null(graph_output(model->graph, "exit.3"));
    run_pass(model, "evaluate", "{data: toy}");
    model_destroy(before);
    model_destroy(model);
}

/* ---- training, files, refusals ---- */

static void test_finetune(void **state) {
    (void)state;
    Model *model = toy_swin(8);
    const double before = run_model(model, NULL);
    run_pass(model, "finetune",
             "{data: toy, epochs: 6, batch_size: 20, lr: 3.0e-3, schedule: constant}");
    const double after = run_model(model, NULL);
    if (!(after < 0.2 * before)) fail_msg("loss %g before, %g after", before, after);
    model_destroy(model);
}

static void test_model_file(void **state) {
    (void)state;
    char path[] = "/tmp/compress-swin-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    Diag *diag = diag_create();
    Model *model = toy_swin(9), *copy = NULL;
    run_pass(model, "prune_heads", "{keep_ratio: 0.5, score: magnitude}");
    assert_ok(modelfile_write(model, path, NULL, diag), diag);
    assert_ok(modelfile_read(&copy, path, ops_table(), true, diag), diag);
    assert_ok(graph_verify(copy->graph, STATUS_INTERNAL, diag), diag);
    expect_same_logits(model, copy);
    unlink(path);
    model_destroy(copy);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_refused(void **state) {
    (void)state;
    Model *model = toy_swin(1);
    expect_failure(model, "attention_to_t2r", "{}", "found rel_bias");
    expect_failure(model, "add_exits", "{token: first}", "no class token");
    Node *attention = graph_find(model->graph, "encoder", 0, ROLE_ATTENTION);
    node_set_operand(model->graph, attention, "rel_bias", NULL);
    expect_failure(model, "attention_to_t2r", "{layers: [0]}", "found windows");
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages),     cmocka_unit_test(test_remove_layer),
        cmocka_unit_test(test_zero_heads), cmocka_unit_test(test_empty_layer),
        cmocka_unit_test(test_zero_units), cmocka_unit_test(test_importance),
        cmocka_unit_test(test_exits),      cmocka_unit_test(test_finetune),
        cmocka_unit_test(test_model_file), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("passes on swin", tests, NULL, NULL);
}
