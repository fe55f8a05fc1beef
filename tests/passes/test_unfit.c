/* Models that do not fit a pass are refused with a message, whatever places and roles
 * their file gives to nodes, and outputs that are no numbers are never counted. */
#include "exec/ops.h"
#include "ir/rewrite.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Runs a pass that must fail with STATUS_MODEL and say `part`. Frees the model. */
static void expect_refused(Model *model, const char *pass, const char *options,
                           const char *part) {
    Diag *diag = diag_create();
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    const Status status = test_run_pass(model, pass, options, false, diag);
    diag_print(diag, out);
    fclose(out);
    if (status != STATUS_MODEL || !strstr(text, part))
        fail_msg("%s %s: expected \"%s\", found exit code %d and:\n%s", pass, options,
                 part, status_exit_code(status), text);
    assert_int_equal(diag_errors(diag), 1);
    free(text);
    model_destroy(model);
    diag_destroy(diag);
}

static Node *find(const Model *model, int layer, Role role) {
    Node *node = graph_find(model->graph, "encoder", layer, role);
    assert_non_null(node);
    return node;
}

/* A toy model whose role `role` of layer 1 stands at another node than it should. */
static Model *misplaced(Role role) {
    Model *model = toy_vit(1);
    find(model, 1, role)->role = ROLE_NONE;
    find(model, 1, ROLE_RESIDUAL1)->role = role;
    return model;
}

/* A toy model whose output projections, square matrices, are used transposed in the
 * second layer. */
static Model *transposed(void) {
    Model *model = toy_vit(1);
    ((LinearAttrs *)find(model, 1, ROLE_OUT)->attrs)->transposed = true;
    return model;
}

/* Rows of a weight that is used transposed are its inputs: nothing may mix them up. */
static void test_transposed(void **state) {
    (void)state;
    expect_refused(transposed(), "weight_multiplex", "{group: 2}",
                   "layers 0 and 1 cannot share out: one of them uses its weight");
}

static void test_misplaced_roles(void **state) {
    (void)state;
    const char *any = "{group: 2}";
    expect_refused(misplaced(ROLE_Q), "weight_multiplex", any,
                   "layer 1 has no projection \"q\" to share");
    expect_refused(misplaced(ROLE_FFN_IN), "weight_multiplex", "{group: 1}",
                   "layer 1 has no projection \"ffn_in\" to share");
    expect_refused(misplaced(ROLE_ATTENTION), "weight_multiplex", any,
                   "layer 1 has no attention");
    expect_refused(misplaced(ROLE_NORM2), "weight_multiplex", "{group: 2, init: lsq}",
                   "layer 1 to have a norm \"norm2\" of its own");
    expect_refused(misplaced(ROLE_NORM2), "weight_multiplex",
                   "{group: 2, mlp_transform: norm_conv}", "layer 1 has none");
    Model *model = toy_vit(1);
    graph_find(model->graph, NULL, -1, ROLE_PATCHES)->role = ROLE_NONE;
    find(model, 0, ROLE_RESIDUAL1)->role = ROLE_PATCHES;
    expect_refused(model, "weight_multiplex", any, "found no patches");
}

/* Puts a new storage of the given shape in the place of a layer's weight or bias. */
static void replace_weight(Model *model, Role role, const char *operand, int rank,
                           const int64_t *dim) {
    Diag *diag = diag_create();
    Storage *storage = NULL;
    Tensor shape = tensor_shape(DTYPE_F32, rank, dim), zeros = {0};
    const char *name = graph_fresh_name(model->graph, "replaced");
    assert_ok(graph_add_storage(&storage, model->graph, name, &shape, diag), diag);
    assert_ok(tensor_create(&zeros, DTYPE_F32, rank, dim, diag), diag);
    storage->tensor = zeros;
    node_set_operand(model->graph, find(model, 1, role), operand,
                     graph_param(model->graph, storage));
    diag_destroy(diag);
}

static void test_unequal_layers(void **state) {
    (void)state;
    static const char *const inits[] = {"{group: 2, init: first}", "{group: 2}",
                                        "{group: 2, init: lsq}"};
    for (int i = 0; i < 3; i++) {
        Model *model = toy_vit(1);
        Diag *diag = diag_create();
        replace_weight(model, ROLE_FFN_IN, "weight", 2, (int64_t[]){24, 16});
        replace_weight(model, ROLE_FFN_IN, "bias", 1, (int64_t[]){24});
        replace_weight(model, ROLE_FFN_OUT, "weight", 2, (int64_t[]){16, 24});
        graph_remove_dead(model->graph);
        assert_ok(graph_infer(model->graph, diag), diag);
        diag_destroy(diag);
        expect_refused(model, "weight_multiplex", inits[i],
                       "layers 0 and 1 cannot share ffn_in: expected weight of equal "
                       "shape, found [32, 16] and [24, 16]");
    }
}

/* The scales of init: lsq would reach more than the matrices they belong to. */
static void test_shared_norms(void **state) {
    (void)state;
    Model *model = toy_vit(1);
    Node *first = find(model, 0, ROLE_NORM1), *second = find(model, 1, ROLE_NORM1);
    node_set_operand(model->graph, second, "weight", node_operand(first, "weight"));
    graph_remove_dead(model->graph);
    expect_refused(model, "weight_multiplex", "{group: 2, init: lsq}",
                   "layer 0 to have a norm \"norm1\" of its own");
    model = toy_vit(1);
    Node *residual = find(model, 1, ROLE_RESIDUAL2);
    residual->in[0] = find(model, 1, ROLE_NORM2);
    expect_refused(model, "weight_multiplex", "{group: 2, init: lsq}",
                   "\"norm2\" of layer 1 to have no other readers");
}

static void test_outputs_that_are_no_numbers(void **state) {
    (void)state;
    Model *model = toy_vit(1);
    Diag *diag = diag_create();
    void *data = NULL;
    Storage *storage = graph_storage(model->graph, "classifier.weight");
    assert_ok(tensor_writable(&storage->tensor, &data, diag), diag);
    for (int64_t i = 0; i < tensor_count(&storage->tensor); i++)
        ((float *)data)[i] = i % 2 ? 3e38f : -3e38f;
    diag_destroy(diag);
    expect_refused(model, "evaluate", "{data: toy}", "sample 0: expected finite logits");
}

static void test_no_logits(void **state) {
    (void)state;
    static const char *const passes[] = {"evaluate", "diagnose", "finetune", "distill"};
    for (int i = 0; i < 4; i++) {
        Model *model = toy_vit(1);
        graph_remove_output(model->graph, "logits");
        graph_remove_dead(model->graph);
        expect_refused(model, passes[i], "{data: toy}", "output \"logits\"");
    }
}

/* A model may have an input of its own called labels: of the right type it is used. */
static void test_input_called_labels(void **state) {
    (void)state;
    const Type good = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    const Type bad = {.dtype = DTYPE_F32, .rank = 1, .dim = {DIM_N}};
    Model *model = toy_vit(1);
    Diag *diag = diag_create();
    graph_input(model->graph, "labels", &good);
    assert_ok(test_run_pass(model, "finetune", "{data: toy, steps: 1}", false, diag),
              diag);
    model_destroy(model);
    diag_destroy(diag);
    model = toy_vit(1);
    graph_input(model->graph, "labels", &bad);
    expect_refused(model, "finetune", "{data: toy}", "operand 'labels'");
    model = toy_vit(1);
    graph_input(model->graph, "labels", &bad);
    expect_refused(model, "diagnose", "{data: toy}", "operand 'labels'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_misplaced_roles),
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_unequal_layers),
        cmocka_unit_test(test_shared_norms),
        cmocka_unit_test(test_outputs_that_are_no_numbers),
        cmocka_unit_test(test_no_logits),
        cmocka_unit_test(test_input_called_labels),
    };
    return cmocka_run_group_tests_name("models that do not fit", tests, NULL, NULL);
}
