/* ViT and DeiT folders against torchvision's outputs and gradients, DINOv2's against its
 * formulas in float64 (tests/data/reference/README.md says how they were computed). */
#include "exec/ops.h"
#include "io/formats/hf.h"
#include "tests/support/check.h"
#include "tests/support/reference.h"

#define ROOT "tests/data/reference/"

typedef struct Case {
    Model *model;
    Checkpoint *reference;
    Diag *diag;
} Case;

static void case_open(Case *c, const char *folder, const char *reference) {
    c->diag = diag_create();
    assert_ok(hf_read(&c->model, folder, ops_table(), c->diag), c->diag);
    assert_ok(safetensors_read(&c->reference, reference, c->diag), c->diag);
}

static void case_close(Case *c) {
    checkpoint_destroy(c->reference);
    model_destroy(c->model);
    diag_destroy(c->diag);
}

/* Value entering layer 0, then the output of every layer. */
static int hidden_states(Graph *graph, Node **out) {
    const int layers = graph_layer_count(graph, "encoder");
    out[0] = graph_find(graph, "encoder", 0, ROLE_NORM1)->in[0];
    for (int l = 0; l < layers; l++)
        out[l + 1] = graph_find(graph, "encoder", l, ROLE_RESIDUAL2);
    return layers + 1;
}

static void check_forward(const Case *c, const char *const *outputs, int count) {
    Node *results[32];
    int n = hidden_states(c->model->graph, results);
    const int states = n;
    for (int i = 0; i < count; i++)
        results[n++] = graph_output(c->model->graph, outputs[i]);
    Runner r;
    runner_open(&r, c->model->graph, 2, PRECISION_F32, NULL, results, n);
    reference_feed(r.workspace, c->reference, "pixel_values", "pixel_values");
    runner_run(&r);
    for (int i = 0; i < n; i++) {
        char key[64];
        snprintf(key, sizeof key, "hidden_states.%d", i);
        runner_compare(&r, c->reference, i < states ? key : outputs[i - states],
                       results[i]);
    }
    runner_close(&r);
}

static void test_vit_forward(void **state) {
    (void)state;
    Case c;
    case_open(&c, ROOT "vit", ROOT "vit/reference.safetensors");
    check_forward(&c, (const char *[]){"logits", "last_hidden_state"}, 2);
    case_close(&c);
}

static void test_deit_forward(void **state) {
    (void)state;
    Case c;
    case_open(&c, ROOT "deit", ROOT "deit/reference.safetensors");
    check_forward(&c,
                  (const char *[]){"logits", "cls_logits", "distillation_logits",
                                   "last_hidden_state"},
                  4);
    case_close(&c);
}

static void test_vit_gradients(void **state) {
    (void)state;
    Case c;
    case_open(&c, ROOT "vit", ROOT "vit/reference.safetensors");
    reference_image_gradients(c.model->graph, c.reference,
                              ROOT "vit/gradients.safetensors");
    case_close(&c);
}

static void test_dinov2(void **state) {
    (void)state;
    Case c;
    case_open(&c, ROOT "dinov2", ROOT "dinov2/reference.safetensors");
    check_forward(&c, (const char *[]){"logits", "last_hidden_state"}, 2);
    reference_image_gradients(c.model->graph, c.reference,
                              ROOT "dinov2/gradients.safetensors");
    case_close(&c);
}

/* The bare model; its loss is the mean square of what its pooled output differs by. */
static void test_dinov2_features(void **state) {
    (void)state;
    Case c;
    Checkpoint *gradients;
    case_open(&c, ROOT "dinov2_features", ROOT "dinov2_features/reference.safetensors");
    check_forward(&c, (const char *[]){"pooler_output", "last_hidden_state"}, 2);
    assert_ok(safetensors_read(&gradients, ROOT "dinov2_features/gradients.safetensors",
                               c.diag),
              c.diag);
    Graph *graph = c.model->graph;
    Node *pooled = graph_output(graph, "pooler_output");
    Node *const in[] = {pooled, graph_input(graph, "target", &pooled->type)};
    Node *loss =
        graph_insert(graph, NULL, op_find(graph->ops, "mean_squared_error"), in, 2);
    assert_ok(node_infer(loss, c.diag), c.diag);
    Runner r;
    runner_open(&r, graph, 2, PRECISION_F32, loss, NULL, 0);
    reference_feed(r.workspace, c.reference, "pixel_values", "pixel_values");
    reference_feed(r.workspace, c.reference, "target", "target");
    runner_run(&r);
    runner_compare(&r, c.reference, "loss", loss);
    runner_compare_gradients(&r, gradients, "grad.");
    runner_close(&r);
    checkpoint_destroy(gradients);
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vit_forward),     cmocka_unit_test(test_deit_forward),
        cmocka_unit_test(test_vit_gradients),   cmocka_unit_test(test_dinov2),
        cmocka_unit_test(test_dinov2_features),
    };
    return cmocka_run_group_tests_name("vit and deit reference", tests, NULL, NULL);
}
