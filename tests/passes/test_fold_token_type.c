/* Folding token types must leave what the model computes on type 0 as it was. */
#include "ir/rewrite.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <string.h>

enum { VALUES = 256 };

#define TABLE "bert.embeddings.position_embeddings.weight"
#define TYPES "bert.embeddings.token_type_embeddings.weight"

static void fold(Model *model, bool plan) {
    Diag *diag = diag_create();
    assert_ok(test_run_pass(model, "fold_token_type", "{}", plan, diag), diag);
    diag_destroy(diag);
}

static void expect_refused(Model *model) {
    Diag *diag = diag_create();
    assert_int_equal(test_run_pass(model, "fold_token_type", "{}", false, diag),
                     STATUS_MODEL);
    diag_destroy(diag);
    model_destroy(model);
}

/* Sums of weights are rounded to float, so outputs are as if they had been. */
static void expect_close(Model *model, const double *a, const double *b, int64_t count,
                         bool close) {
    const double tolerance =
        rounding_tolerance(PRECISION_F32, configured_terms(model, "last_hidden_state"),
                           largest_value(a, count));
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(a[i] - b[i]));
    if (close ? !(largest <= tolerance) : !(largest > 10 * tolerance))
        fail_msg("differs by %g, rounding by %g", largest, tolerance);
}

static void test_type_zero(void **state) {
    (void)state;
    Model *model = configured_bert(2, 5);
    const int64_t count = graph_parameter_count(model->graph);
    double zero[VALUES], one[VALUES], after[VALUES];
    const int64_t values = configured_run(model, "last_hidden_state", 0, zero, VALUES);
    configured_run(model, "last_hidden_state", 1, one, VALUES);
    fold(model, false);
    configured_run(model, "last_hidden_state", 0, after, VALUES);
    expect_close(model, zero, after, values, true);
    expect_close(model, one, after, values, false);
    assert_null(graph_find_input(model->graph, "token_type_ids"));
    assert_non_null(graph_find_input(model->graph, "attention_mask"));
    assert_null(graph_storage(model->graph, TYPES));
    assert_null(graph_find(model->graph, NULL, -1, ROLE_TOKEN_TYPE));
    assert_int_equal(graph_parameter_count(model->graph), count - 2 * 8);
    const Tree *steps = tree_get(model->provenance, "steps");
    const Tree *record = tree_get(steps->last, "record");
    assert_int_equal(tree_get(record, "types")->integer, 2);
    assert_true(tree_get(record, "largest_difference")->real > 0.01);
    expect_refused(model);
}

/* One type only: exact, which the pipeline checks on its own input. */
static void test_one_type(void **state) {
    (void)state;
    Model *model = configured_model(
        "{model_type: bert, architectures: [BertModel], hidden_size: 8,\n"
        " num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16,\n"
        " vocab_size: 12, max_position_embeddings: 6, type_vocab_size: 1,\n"
        " initializer_range: 0.3}\n",
        1);
    double before[VALUES], after[VALUES];
    const int64_t values = configured_run(model, "last_hidden_state", 0, before, VALUES);
    fold(model, false);
    configured_run(model, "last_hidden_state", 0, after, VALUES);
    expect_close(model, before, after, values, true);
    model_destroy(model);
}

/* Half of float32's bits: each value as f16 that is exact there. */
static void make_half(Graph *graph, const char *name) {
    Storage *storage = graph_storage(graph, name);
    Diag *diag = diag_create();
    Tensor half;
    void *data = NULL;
    assert_ok(
        tensor_create(&half, DTYPE_F16, storage->tensor.rank, storage->tensor.dim, diag),
        diag);
    assert_ok(tensor_writable(&half, &data, diag), diag);
    for (int64_t i = 0; i < tensor_count(&half); i++)
        ((uint16_t *)data)[i] = (uint16_t)(0x3000 + 37 * i); /* 0.125 and above */
    tensor_release(&storage->tensor);
    storage->tensor = half;
    diag_destroy(diag);
}

static void test_half_tables(void **state) {
    (void)state;
    Model *model = configured_bert(1, 5);
    make_half(model->graph, TABLE);
    make_half(model->graph, TYPES);
    double table[48], types[16], folded[48];
    tensor_read_f64(&graph_storage(model->graph, TABLE)->tensor, 0, 48, table);
    tensor_read_f64(&graph_storage(model->graph, TYPES)->tensor, 0, 16, types);
    fold(model, false);
    const Tensor *result = &graph_storage(model->graph, TABLE)->tensor;
    assert_int_equal(result->dtype, DTYPE_F32);
    tensor_read_f64(result, 0, 48, folded);
    for (int i = 0; i < 48; i++)
        assert_true(folded[i] == (double)(float)(table[i] + types[i % 8]));
    model_destroy(model);
}

/* The plan of shapes alone agrees with the run. */
static void test_plan(void **state) {
    (void)state;
    Model *run = configured_bert(2, 5), *plan = configured_bert(2, 5);
    make_half(run->graph, TABLE);
    make_half(plan->graph, TABLE);
    for (int i = 0; i < plan->graph->storage_count; i++) {
        Tensor *tensor = &plan->graph->storages[i]->tensor;
        const Tensor shape = tensor_shape(tensor->dtype, tensor->rank, tensor->dim);
        tensor_release(tensor);
        *tensor = shape;
    }
    fold(run, false);
    fold(plan, true);
    assert_int_equal(graph_parameter_bytes(run->graph),
                     graph_parameter_bytes(plan->graph));
    assert_int_equal(run->graph->node_count, plan->graph->node_count);
    model_destroy(run);
    model_destroy(plan);
}

/* Positions added before the types fold as well. */
static void test_other_order(void **state) {
    (void)state;
    Model *model = configured_bert(1, 5);
    Graph *graph = model->graph;
    Node *types = graph_find(graph, NULL, -1, ROLE_TOKEN_TYPE);
    Node *position = graph_find(graph, NULL, -1, ROLE_POSITION);
    Node *words = types->in[0];
    graph_replace_uses(graph, position, types);
    position->in[0] = words;
    types->in[0] = position;
    graph_move_before(graph, position, types);
    double before[VALUES], after[VALUES];
    const int64_t values = configured_run(model, "logits", 0, before, VALUES);
    fold(model, false);
    configured_run(model, "logits", 0, after, VALUES);
    expect_close(model, before, after, values, true);
    model_destroy(model);
}

/* A table or a sum that somebody else reads must stay as it is. */
static void test_refusals(void **state) {
    (void)state;
    Model *model = configured_bert(1, 5);
    graph_set_output(model->graph, "sum",
                     graph_find(model->graph, NULL, -1, ROLE_TOKEN_TYPE));
    expect_refused(model);
    model = configured_bert(1, 5);
    graph_set_output(model->graph, "table",
                     graph_find(model->graph, NULL, -1, ROLE_POSITION)->in[1]);
    expect_refused(model);
    expect_refused(configured_vit(2, 1));
}

static void test_with_removal(void **state) {
    (void)state;
    Model *model = configured_bert(4, 5);
    Diag *diag = diag_create();
    double values[VALUES];
    assert_ok(test_run_recipe(model, "test",
                              "version: 1\npasses:\n  - remove_layer: {count: 2}\n"
                              "  - fold_token_type\n",
                              false, 1, diag),
              diag);
    assert_int_equal(configured_run(model, "logits", 0, values, VALUES), 6);
    diag_destroy(diag);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_type_zero),    cmocka_unit_test(test_one_type),
        cmocka_unit_test(test_half_tables),  cmocka_unit_test(test_plan),
        cmocka_unit_test(test_other_order),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_with_removal),
    };
    return cmocka_run_group_tests_name("folding token types", tests, NULL, NULL);
}
