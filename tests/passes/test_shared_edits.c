/* Edits of weights that others use too: a step that is meant for some layers must leave
 * every other user of their weights as it was. Numbers are checked against what the
 * layers held before. */
#include "exec/ops.h"
#include "exec/run/run.h"
#include "tests/passes/posterior_fixture.h"
#include "tests/support/check.h"
#include "tests/support/reference.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHARE(groups, init)                                                              \
    "{groups: [" groups "], init: " init ", mixing: none, position: none}"

static const Role roles[] = {ROLE_Q, ROLE_K, ROLE_V, ROLE_OUT, ROLE_FFN_IN, ROLE_FFN_OUT};
static const char *const operands[] = {"weight", "bias"};
enum { ROLES = sizeof roles / sizeof *roles, LAYERS = 4 };

static Node *leaf_of(const Model *model, int layer, Role role, const char *operand) {
    Node *node = graph_find(model->graph, "encoder", layer, role);
    assert_non_null(node);
    return node_operand(node, operand);
}

/* All values of a layer's operand; to be freed. */
static double *values_of(const Model *model, int layer, Role role, const char *operand,
                         int64_t *count) {
    const Tensor *tensor = &leaf_of(model, layer, role, operand)->storage->tensor;
    *count = tensor_count(tensor);
    double *values = memory_alloc((size_t)*count, sizeof *values);
    tensor_read_f64(tensor, 0, *count, values);
    return values;
}

static void check_same(const Model *a, const Model *b, int layer, Role role,
                       const char *operand) {
    int64_t count, again;
    double *x = values_of(a, layer, role, operand, &count);
    double *y = values_of(b, layer, role, operand, &again);
    assert_int_equal(count, again);
    assert_memory_equal(x, y, (size_t)count * sizeof *x);
    free(x);
    free(y);
}

/* Checks that `layer` holds what the mean of layers [first, last] of `before` is. */
static void check_mean(const Model *after, const Model *before, int layer, Role role,
                       const char *operand, int first, int last) {
    int64_t count;
    double *got = values_of(after, layer, role, operand, &count);
    double *sum = memory_alloc((size_t)count, sizeof *sum);
    for (int l = first; l <= last; l++) {
        double *values = values_of(before, l, role, operand, &count);
        for (int64_t i = 0; i < count; i++) sum[i] += values[i];
        free(values);
    }
    for (int64_t i = 0; i < count; i++)
        assert_true(got[i] == (double)(float)(sum[i] / (last - first + 1)));
    free(sum);
    free(got);
}

/* What layer 0 gives for the first 2 toy samples, in double; to be freed. */
static double *first_layer(Model *model, int64_t *count) {
    Node *value = graph_layer_output(model->graph, "encoder", 0);
    Batches *toy = toy_batches();
    Diag *diag = diag_create();
    float pixels[2 * 64];
    int32_t labels[2];
    const int64_t index[2] = {0, 1};
    assert_ok(toy->fetch(toy, &(Fetch){index, 2, 0, 0}, (void *[]){pixels, labels}, diag),
              diag);
    Runner r;
    runner_open(&r, model->graph, 2, PRECISION_F64, NULL, &value, 1);
    double *input = workspace_input(r.workspace, "pixel_values");
    for (int i = 0; i < 2 * 64; i++) input[i] = (double)pixels[i];
    runner_run(&r);
    *count = 2 * value->type.dim[1] * value->type.dim[2];
    double *copy = memory_alloc((size_t)*count, sizeof *copy);
    memcpy(copy, workspace_value(r.workspace, value), (size_t)*count * sizeof *copy);
    runner_close(&r);
    batches_destroy(toy);
    diag_destroy(diag);
    return copy;
}

static void check_first_layer(Model *before, Model *after) {
    int64_t count, again;
    double *x = first_layer(before, &count), *y = first_layer(after, &again);
    assert_int_equal(count, again);
    assert_memory_equal(x, y, (size_t)count * sizeof *x);
    free(x);
    free(y);
}

/* Groups [2, 2], then [1, 3]: layer 0 goes on with the mean of layers 0 and 1, layers 1
 * to 3 share the mean of what they had. */
static void test_mean(void **state) {
    (void)state;
    Model *model = toy_vit(5), *plan = toy_vit(5);
    run_pass(model, "weight_multiplex", SHARE("2, 2", "mean"));
    Model *before = model_copy(model);
    run_pass(model, "weight_multiplex", SHARE("1, 3", "mean"));
    for (int r = 0; r < ROLES; r++)
        for (int o = 0; o < 2; o++) {
            check_same(model, before, 0, roles[r], operands[o]);
            const Node *own = leaf_of(model, 0, roles[r], operands[o]);
            const Node *shared = leaf_of(model, 1, roles[r], operands[o]);
            assert_ptr_not_equal(own, shared);
            for (int l = 1; l < LAYERS; l++) {
                assert_ptr_equal(leaf_of(model, l, roles[r], operands[o]), shared);
                check_mean(model, before, l, roles[r], operands[o], 1, 3);
            }
        }
    check_first_layer(before, model);
    Diag *diag = diag_create();
    assert_ok(test_run_pass(plan, "weight_multiplex", SHARE("2, 2", "mean"), true, diag),
              diag);
    assert_ok(test_run_pass(plan, "weight_multiplex", SHARE("1, 3", "mean"), true, diag),
              diag);
    assert_int_equal(graph_parameter_count(plan->graph),
                     graph_parameter_count(model->graph));
    diag_destroy(diag);
    model_destroy(before);
    model_destroy(model);
    model_destroy(plan);
}

/* Points layer `layer` at the weights of layer `from`. */
static void use_weights_of(Model *model, int layer, int from) {
    for (int r = 0; r < ROLES; r++)
        for (int o = 0; o < 2; o++)
            node_set_operand(model->graph,
                             graph_find(model->graph, "encoder", layer, roles[r]),
                             operands[o], leaf_of(model, from, roles[r], operands[o]));
}

/* All weights of the group are used outside of it: it gets a copy. */
static void test_all_outside(void **state) {
    (void)state;
    Model *model = toy_vit(6);
    run_pass(model, "weight_multiplex", SHARE("2, 2", "mean")); /* A A B B */
    use_weights_of(model, 1, 3);
    use_weights_of(model, 3, 0); /* A B B A */
    Model *before = model_copy(model);
    run_pass(model, "weight_multiplex", SHARE("2, 1, 1", "mean"));
    for (int r = 0; r < ROLES; r++)
        for (int o = 0; o < 2; o++) {
            check_mean(model, before, 0, roles[r], operands[o], 0, 1);
            check_mean(model, before, 1, roles[r], operands[o], 0, 1);
            check_same(model, before, 2, roles[r], operands[o]);
            check_same(model, before, 3, roles[r], operands[o]);
        }
    model_destroy(before);
    model_destroy(model);
}

/* Least squares writes every layer's matrix: those of layer 0 are not the group's. */
static void test_least_squares(void **state) {
    (void)state;
    Model *model = toy_vit(7);
    run_pass(model, "weight_multiplex", SHARE("2, 2", "mean"));
    Model *before = model_copy(model);
    run_pass(model, "weight_multiplex", SHARE("1, 3", "lsq"));
    for (int r = 0; r < ROLES; r++) {
        check_same(model, before, 0, roles[r], "weight");
        check_same(model, before, 0, roles[r], "bias");
        for (int l = 2; l < LAYERS; l++)
            assert_ptr_equal(leaf_of(model, l, roles[r], "weight"),
                             leaf_of(model, 1, roles[r], "weight"));
    }
    check_first_layer(before, model);
    model_destroy(before);
    model_destroy(model);
}

/* Keys and values of a layer that are one matrix: each role gets its own mean. */
static void test_across_roles(void **state) {
    (void)state;
    Model *model = toy_vit(8);
    node_set_operand(model->graph, graph_find(model->graph, "encoder", 0, ROLE_V),
                     "weight", leaf_of(model, 0, ROLE_K, "weight"));
    Model *before = model_copy(model);
    run_pass(model, "weight_multiplex", SHARE("2, 2", "mean"));
    for (int l = 0; l < 2; l++) {
        check_mean(model, before, l, ROLE_K, "weight", 0, 1);
        check_mean(model, before, l, ROLE_V, "weight", 0, 1);
    }
    model_destroy(before);
    model_destroy(model);
}

/* The posterior of layer 0 stays what it was; the group's becomes that of its mean. */
static void test_posterior(void **state) {
    (void)state;
    Model *model = toy_vit(4);
    run_pass(model, "weight_multiplex", SHARE("2, 1, 1", "mean"));
    run_pass(model, "estimate_posterior",
             "{" TRAIN ", steps: 5, samples: 3, covariance: diagonal}");
    Model *before = model_copy(model);
    run_pass(model, "weight_multiplex", SHARE("1, 3", "mean"));
    const Storage *own = leaf_of(model, 0, ROLE_Q, "weight")->storage;
    const Storage *shared = leaf_of(model, 1, ROLE_Q, "weight")->storage;
    assert_true(gaussian_fits(shared->gaussian, &shared->tensor));
    for (int64_t i = 0; i < tensor_count(&shared->tensor); i++) {
        double variance[LAYERS], mean[LAYERS], got;
        for (int l = 0; l < LAYERS; l++) {
            const Gaussian *g = leaf_of(before, l, ROLE_Q, "weight")->storage->gaussian;
            gaussian_variance_f64(g, i, 1, &variance[l]);
            gaussian_mean_f64(g, i, 1, &mean[l]);
        }
        gaussian_variance_f64(own->gaussian, i, 1, &got);
        assert_true(got == variance[0]);
        gaussian_variance_f64(shared->gaussian, i, 1, &got);
        const double wanted = (variance[1] + variance[2] + variance[3]) / 9;
        assert_within(got, wanted, rounding_tolerance(PRECISION_F32, 4, wanted));
        gaussian_mean_f64(shared->gaussian, i, 1, &got);
        assert_within(got, (mean[1] + mean[2] + mean[3]) / 3,
                      rounding_tolerance(PRECISION_F32, 4, largest_value(mean, LAYERS)));
    }
    model_destroy(before);
    model_destroy(model);
}

/* Pooling drops the class token's row of the positions that the tokens get, not of
 * whatever else reads the table. */
static void test_positions(void **state) {
    (void)state;
    Model *model = toy_vit(3);
    Node *table = graph_find(model->graph, NULL, -1, ROLE_POSITION)->in[1];
    graph_set_output(model->graph, "table", table);
    const int64_t rows = table->type.dim[1], width = table->type.dim[2];
    run_pass(model, "weight_multiplex",
             "{group: 2, mixing: none, position: none, pooling: mean}");
    const Node *whole = graph_output(model->graph, "table");
    const Node *cut = graph_find(model->graph, NULL, -1, ROLE_POSITION)->in[1];
    assert_ptr_equal(whole, table);
    assert_int_equal(whole->type.dim[1], rows);
    assert_int_equal(cut->type.dim[1], rows - 1);
    assert_memory_equal(tensor_data(&cut->storage->tensor),
                        (const float *)tensor_data(&whole->storage->tensor) + width,
                        (size_t)((rows - 1) * width) * sizeof(float));
    model_destroy(model);
}

/* Pruning after sharing cuts all that share, and refuses where that is not all. */
static void test_prune(void **state) {
    (void)state;
    Model *model = toy_vit(2);
    run_pass(model, "weight_multiplex", SHARE("2, 2", "mean"));
    Model *before = model_copy(model);
    run_pass(model, "prune_ffn", "{keep: 8, score: magnitude}");
    for (int l = 0; l < LAYERS; l++) {
        const Storage *cut = leaf_of(model, l, ROLE_FFN_IN, "weight")->storage;
        const Storage *whole = leaf_of(before, l, ROLE_FFN_IN, "weight")->storage;
        assert_int_equal(cut->tensor.dim[0], 8);
        for (int64_t row = 0; row < 8; row++) {
            double got[16], wanted[16];
            tensor_read_f64(&cut->tensor, row * 16, 16, got);
            tensor_read_f64(&whole->tensor, lineage_index(&cut->kept[0], row) * 16, 16,
                            wanted);
            assert_memory_equal(got, wanted, sizeof got);
        }
    }
    graph_set_output(before->graph, "weights",
                     leaf_of(before, 1, ROLE_FFN_OUT, "weight"));
    expect_pass_fails(before, "prune_ffn", "{keep: 8, score: magnitude}", STATUS_MODEL,
                      "used outside");
    model_destroy(before);
    model_destroy(model);
}

/* A square matrix that one of two layers uses transposed: a feature map belongs to its
 * rows in one of them and to its columns in the other. */
static void test_transposed(void **state) {
    (void)state;
    Model *model = toy_vit(9);
    run_pass(model, "weight_multiplex", SHARE("4", "mean"));
    run_pass(model, "attention_to_t2r", "{feature_size: 4, share_layers: true}");
    Model *mixed = model_copy(model);
    Node *q = graph_find(mixed->graph, "encoder", 2, ROLE_Q);
    ((LinearAttrs *)q->attrs)->transposed = true;
    expect_pass_fails(mixed, "merge_t2r", "{}", STATUS_MODEL, "transposed");
    run_pass(model, "merge_t2r", "{}");
    model_destroy(mixed);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean),          cmocka_unit_test(test_all_outside),
        cmocka_unit_test(test_least_squares), cmocka_unit_test(test_across_roles),
        cmocka_unit_test(test_posterior),     cmocka_unit_test(test_positions),
        cmocka_unit_test(test_prune),         cmocka_unit_test(test_transposed),
    };
    return cmocka_run_group_tests_name("edits of shared weights", tests, NULL, NULL);
}
