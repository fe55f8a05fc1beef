/* Weight multiplexing in Swin's form: what is shared and what is not, exact where it is
 * said to be, and the block written out by plain loops. */
#include "exec/ops.h"
#include "exec/run/run.h"
#include "io/formats/modelfile.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IMAGES = 4, SIDE = 8, LOGITS = IMAGES * 3, DEPTH = 8, BLOCKS = 4 };

/* 8 x 8 tokens of width 8, then 4 x 4 of width 16, windows of 2, four layers each; every
 * second one is shifted. */
static Model *toy_swin(uint64_t seed) {
    return configured_model(
        "{model_type: swin, image_size: 8, patch_size: 1, num_channels: 1,\n"
        " num_labels: 3, embed_dim: 8, depths: [4, 4], num_heads: [2, 4],\n"
        " window_size: 2, mlp_ratio: 2, initializer_range: 0.3}\n",
        seed);
}

static const char *block_storage(int layer, const char *part) {
    static char name[160];
    snprintf(name, sizeof name, "swin.encoder.layers.%d.blocks.%d.%s", layer / BLOCKS,
             layer % BLOCKS, part);
    return name;
}

static Storage *find_storage(const Model *model, const char *name) {
    Storage *storage = graph_storage(model->graph, name);
    if (!storage) fail_msg("no storage %s", name);
    return storage;
}

static float *writable(Storage *storage) {
    Diag *diag = diag_create();
    void *data = NULL;
    assert_ok(tensor_writable(&storage->tensor, &data, diag), diag);
    diag_destroy(diag);
    return data;
}

/* Other numbers for everything that starts at 0 or 1. */
static void disturb(Model *model, uint64_t key) {
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *storage = model->graph->storages[i];
        if (storage->init.kind != INIT_ZEROS && storage->init.kind != INIT_ONES) continue;
        float *data = writable(storage);
        for (int64_t k = 0; k < tensor_count(&storage->tensor); k++)
            data[k] +=
                (float)(0.2 * random_normal(random_key(key, (uint64_t)i), (uint64_t)k));
    }
}

/* Gives all layers of a stage the weights of its first, norms excepted. */
static void make_identical(Model *model) {
    static const char *const PARTS[] = {"attention.self.query", "attention.self.key",
                                        "attention.self.value", "attention.output.dense",
                                        "intermediate.dense",   "output.dense"};
    for (int l = 0; l < DEPTH; l++)
        for (int p = 0; p < 13; p++) {
            char part[80];
            if (p == 12)
                strcpy(part, "attention.self.relative_position_bias_table");
            else
                snprintf(part, sizeof part, "%s.%s", PARTS[p / 2],
                         p % 2 ? "bias" : "weight");
            Storage *to = find_storage(model, block_storage(l, part));
            const Storage *from =
                find_storage(model, block_storage(l / BLOCKS * BLOCKS, part));
            const Tensor copy = tensor_retain(&from->tensor);
            tensor_release(&to->tensor);
            to->tensor = copy;
        }
}

/* Values of nodes for some images, in double, one after another; free them. */
static double *values_of(Model *model, Node *node) {
    Runner r;
    runner_open(&r, model->graph, IMAGES, PRECISION_F64, NULL, &node, 1);
    double *input = workspace_input(r.workspace, "pixel_values");
    for (int i = 0; i < IMAGES * SIDE * SIDE; i++)
        input[i] = random_normal(3, (uint64_t)i);
    runner_run(&r);
    int64_t count = IMAGES;
    for (int i = 1; i < node->type.rank; i++) count *= node->type.dim[i];
    double *value = malloc((size_t)count * sizeof *value);
    memcpy(value, workspace_value(r.workspace, node), (size_t)count * sizeof *value);
    runner_close(&r);
    return value;
}

static double *logits_of(Model *model) {
    return values_of(model, graph_output(model->graph, "logits"));
}

static void multiplex(Model *model, const char *options) {
    run_pass(model, "weight_multiplex", options);
}

/* Values of a node, or logits, of the same chain of operations. */
static void expect_equal(Model *model, const Node *node, const double *x, const double *y,
                         int count, Precision precision) {
    const int64_t sizes[DIM_SYMBOLS] = {IMAGES};
    rounding_compare("value", x, y, count, precision,
                     rounding_terms(model->graph, node, sizes), 0);
}

static void expect_logits(Model *model, const double *x, const double *y,
                          Precision precision) {
    expect_equal(model, graph_output(model->graph, "logits"), x, y, LOGITS, precision);
}

/* ---- exactness ---- */

static void check_identity(const char *options) {
    Model *model = toy_swin(1);
    disturb(model, 7);
    make_identical(model);
    double *before = logits_of(model);
    const int64_t count = graph_parameter_count(model->graph);
    multiplex(model, options);
    double *after = logits_of(model);
    expect_logits(model, after, before, PRECISION_F64);
    assert_true(graph_parameter_count(model->graph) < count);
    free(before);
    free(after);
    model_destroy(model);
}

static void test_identical_layers(void **state) {
    (void)state;
    check_identity("{layers_left: [1, 1], position: none}");
    check_identity("{layers_left: [2, 1], position: none, mixing_bias: true}");
    check_identity("{group: 4, mixing_bias: true, position: none, mlp_transform: conv, "
                   "kernel: 7}");
    check_identity("{group: 2, init: lsq, position: contextual}");
    check_identity("{groups: [1, 3, 3, 1], init: first, mixing: after, position: none}");
}

/* Layers that differ in the scale of what their projections read of a norm: least squares
 * finds the scales, through the cutting into windows. */
static void test_least_squares(void **state) {
    (void)state;
    Model *model = toy_swin(2);
    static const char *const PARTS[] = {
        "attention.self.query.weight", "attention.self.key.weight",
        "attention.self.value.weight", "intermediate.dense.weight"};
    disturb(model, 8);
    make_identical(model);
    for (int p = 0; p < 4; p++) {
        Storage *storage = find_storage(model, block_storage(1, PARTS[p]));
        float *data = writable(storage);
        for (int64_t k = 0; k < tensor_count(&storage->tensor); k++)
            data[k] *= (float)(0.5 + 0.25 * (double)(k % 8));
    }
    double *before = logits_of(model);
    multiplex(model, "{group: 2, init: lsq, position: none}");
    double *after = logits_of(model);
    expect_logits(model, after, before, PRECISION_F32); /* of scales in float */
    free(before);
    free(after);
    model_destroy(model);
}

/* A norm on the residual stream changes the function, and nobody says otherwise. */
static void test_norm_conv_is_lossy(void **state) {
    (void)state;
    Model *model = toy_swin(1);
    disturb(model, 7);
    make_identical(model);
    double *before = logits_of(model);
    multiplex(model, "{layers_left: [1, 1], position: none, mlp_transform: norm_conv}");
    double *after = logits_of(model), difference = 0;
    for (int i = 0; i < LOGITS; i++) difference += fabs(after[i] - before[i]);
    assert_true(difference > 1e-3);
    free(before);
    free(after);
    model_destroy(model);
}

/* ---- what is shared ---- */

static Node *find(const Model *model, int layer, Role role) {
    Node *node = graph_find(model->graph, "encoder", layer, role);
    assert_non_null(node);
    return node;
}

#define FORM "mixing_bias: true, position: none, mlp_transform: norm_conv, kernel: 7}"

static void expect_shared(const Model *model, int a, int b, bool shared) {
    static const Role roles[] = {ROLE_Q,   ROLE_K,      ROLE_V,
                                 ROLE_OUT, ROLE_FFN_IN, ROLE_FFN_OUT};
    for (int i = 0; i < 6; i++)
        for (int operand = 1; operand <= 2; operand++)
            assert_int_equal(find(model, a, roles[i])->in[operand] ==
                                 find(model, b, roles[i])->in[operand],
                             shared);
    const Node *x = find(model, a, ROLE_ATTENTION), *y = find(model, b, ROLE_ATTENTION);
    assert_int_equal(node_operand(x, "rel_bias") == node_operand(y, "rel_bias"), shared);
    static const char *const OWN[] = {"mix_before", "mix_after", "mix_before_bias",
                                      "mix_after_bias"};
    for (int i = 0; i < 4; i++) {
        assert_non_null(node_operand(x, OWN[i]));
        assert_true(node_operand(x, OWN[i]) != node_operand(y, OWN[i]));
    }
    static const Role own[] = {ROLE_NORM1, ROLE_NORM2, ROLE_LOCAL_NORM, ROLE_LOCAL_CONV};
    for (int i = 0; i < 4; i++)
        assert_true(find(model, a, own[i])->in[1] != find(model, b, own[i])->in[1]);
}

static void test_sharing(void **state) {
    (void)state;
    Model *model = toy_swin(1);
    multiplex(model, "{layers_left: [2, 1], " FORM);
    expect_shared(model, 0, 1, true);
    expect_shared(model, 1, 2, false);
    expect_shared(model, 2, 3, true);
    expect_shared(model, 3, 4, false);
    expect_shared(model, 4, 7, true);
    const AttentionAttrs *even = find(model, 4, ROLE_ATTENTION)->attrs;
    const AttentionAttrs *odd = find(model, 5, ROLE_ATTENTION)->attrs;
    assert_int_equal(even->shift, 0);
    assert_int_equal(odd->shift, 1);
    model_destroy(model);
}

/* Parameters of a layer's shared part and of its own. */
static int64_t shared_count(int64_t d, int64_t h) {
    return 4 * (d * d + d) + 2 * d * 2 * d + 2 * d + d + 9 * h;
}
static int64_t own_count(int64_t d, int64_t h) {
    return 2 * (h * h + h) + 2 * d + 50 * d; /* beside the norms that it had */
}

static void test_counts(void **state) {
    (void)state;
    Model *model = toy_swin(1);
    const int64_t before = graph_parameter_count(model->graph);
    multiplex(model, "{layers_left: [2, 1], " FORM);
    const int64_t gone = 2 * shared_count(8, 2) + 3 * shared_count(16, 4);
    const int64_t added = 4 * own_count(8, 2) + 4 * own_count(16, 4);
    assert_int_equal(graph_parameter_count(model->graph), before - gone + added);
    model_destroy(model);
}

/* Bytes of a model's file, and of the weights in it, as they are read back. */
typedef struct File {
    int64_t size, weights, storages;
} File;

static File save(Model *model) {
    File file = {0};
    Diag *diag = diag_create();
    Model *back = NULL;
    size_t size = 0;
    char path[64];
    snprintf(path, sizeof path, "/tmp/compress-multiplex-%ld.h5", (long)getpid());
    assert_ok(modelfile_write(model, path, &size, diag), diag);
    assert_ok(modelfile_read(&back, path, ops_table(), true, diag), diag);
    unlink(path);
    file.size = (int64_t)size;
    file.storages = back->graph->storage_count;
    for (int i = 0; i < back->graph->storage_count; i++)
        file.weights += (int64_t)tensor_bytes(&back->graph->storages[i]->tensor);
    double *ours = logits_of(model), *theirs = logits_of(back);
    assert_memory_equal(theirs, ours, LOGITS * sizeof *ours);
    free(ours);
    free(theirs);
    model_destroy(back);
    diag_destroy(diag);
    return file;
}

/* Sharing alone, without anything of a layer's own: the file is smaller by exactly the
 * storages that are not there any more, and by what it says about each of them. */
static void test_file(void **state) {
    (void)state;
    enum { STORAGES = 13, WORDS = 2000 };
    Model *model = toy_swin(1);
    const File before = save(model);
    multiplex(model, "{layers_left: [2, 1], mixing: none, position: none}");
    const File after = save(model);
    const int64_t gone = 4 * (2 * shared_count(8, 2) + 3 * shared_count(16, 4));
    assert_int_equal(before.storages - after.storages, 5 * STORAGES);
    assert_int_equal(before.weights - after.weights, gone);
    assert_true(before.size - after.size >= gone);
    assert_true(before.size - after.size <= gone + WORDS * 5 * STORAGES);
    model_destroy(model);
}

/* ---- the block by plain loops ---- */

static double *leaf_values(const Node *node, int operand) {
    const Tensor *tensor = &node->in[operand]->storage->tensor;
    const int64_t count = tensor_count(tensor);
    double *out = malloc((size_t)count * sizeof *out);
    tensor_read_f64(tensor, 0, count, out);
    return out;
}

/* x <- LN(x); x <- x + DW(x) over the grid of the first stage. */
static void plain_norm_conv(const Model *model, int layer, double *x) {
    enum { D = 8, K = 7 };
    const Node *norm = find(model, layer, ROLE_LOCAL_NORM);
    const Node *conv = find(model, layer, ROLE_LOCAL_CONV);
    double *gain = leaf_values(norm, 1), *shift = leaf_values(norm, 2);
    double *weight = leaf_values(conv, 1), *bias = leaf_values(conv, 2);
    const double eps = ((const LayerNormAttrs *)norm->attrs)->eps;
    for (int t = 0; t < IMAGES * SIDE * SIDE; t++) {
        double mean = 0, square = 0, *row = x + (ptrdiff_t)t * D;
        for (int c = 0; c < D; c++) mean += row[c] / D;
        for (int c = 0; c < D; c++) square += (row[c] - mean) * (row[c] - mean) / D;
        for (int c = 0; c < D; c++)
            row[c] = (row[c] - mean) / sqrt(square + eps) * gain[c] + shift[c];
    }
    double *old = malloc(IMAGES * SIDE * SIDE * D * sizeof *old);
    memcpy(old, x, IMAGES * SIDE * SIDE * D * sizeof *old);
    for (int e = 0; e < IMAGES * SIDE * SIDE * D; e++) {
        const int c = e % D, column = e / D % SIDE, row = e / D / SIDE % SIDE;
        const int image = e / D / SIDE / SIDE;
        x[e] += bias[c];
        for (int u = row - 3; u <= row + 3; u++)
            for (int v = column - 3; v <= column + 3; v++)
                if (u >= 0 && u < SIDE && v >= 0 && v < SIDE)
                    x[e] += old[((image * SIDE + u) * SIDE + v) * D + c] *
                            weight[(c * K + u - row + 3) * K + v - column + 3];
    }
    free(old);
    free(gain);
    free(shift);
    free(weight);
    free(bias);
}

/* The transformation stands between attention's residual sum and the MLP block, on the
 * residual stream. */
static void test_norm_conv(void **state) {
    (void)state;
    enum { COUNT = IMAGES * SIDE * SIDE * 8 };
    Model *model = toy_swin(4);
    multiplex(model, "{layers_left: [2, 2], " FORM);
    disturb(model, 11);
    for (int layer = 0; layer < 2; layer++) {
        Node *sum = find(model, layer, ROLE_NORM2)->in[0];
        double *x = values_of(model, find(model, layer, ROLE_RESIDUAL1));
        double *found = values_of(model, sum);
        plain_norm_conv(model, layer, x);
        expect_equal(model, sum, found, x, COUNT, PRECISION_F64);
        double *y = values_of(model, find(model, layer, ROLE_FFN_OUT));
        double *out = values_of(model, find(model, layer, ROLE_RESIDUAL2));
        for (int i = 0; i < COUNT; i++) y[i] += x[i];
        expect_equal(model, find(model, layer, ROLE_RESIDUAL2), out, y, COUNT,
                     PRECISION_F64);
        free(x);
        free(y);
        free(out);
        free(found);
    }
    model_destroy(model);
}

/* ---- faults ---- */

static void expect_fault(const char *options, Status status, const char *text) {
    Model *model = toy_swin(1);
    expect_pass_fails(model, "weight_multiplex", options, status, text);
    model_destroy(model);
}

static void test_faults(void **state) {
    (void)state;
    expect_fault("{layers_left: [1], position: none}", STATUS_MODEL,
                 "layers_left: expected 2 numbers, one for each stage, found 1");
    expect_fault(
        "{layers_left: [2, 3], position: none}", STATUS_MODEL,
        "layers_left: expected a divisor of the 4 layers of stage 1 (layers 4 to "
        "7), found 3");
    expect_fault("{group: 8, position: none}", STATUS_MODEL,
                 "group: expected a divisor of the 4 layers of stage 0 (layers 0 to 3), "
                 "found 8");
    expect_fault("{groups: [2, 4, 2], position: none}", STATUS_MODEL,
                 "layers 2 and 4 cannot be grouped: 2 and 4 heads");
    expect_fault("{groups: [4, 4], layers_left: [1, 1]}", STATUS_RECIPE,
                 "expected groups or layers_left, found both");
    expect_fault("{mixing: none, mixing_bias: true}", STATUS_RECIPE,
                 "expected mixing beside mixing_bias, found none");
    expect_fault("{pooling: mean}", STATUS_MODEL, "there is no class token to drop");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identical_layers),
        cmocka_unit_test(test_least_squares),
        cmocka_unit_test(test_norm_conv_is_lossy),
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_norm_conv),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("weight multiplexing of Swin", tests, NULL, NULL);
}
