/* ViT and DeiT folders against torchvision's outputs and gradients
 * (tests/data/reference/README.md says how they were computed). */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vit_forward),
        cmocka_unit_test(test_deit_forward),
        cmocka_unit_test(test_vit_gradients),
    };
    return cmocka_run_group_tests_name("vit and deit reference", tests, NULL, NULL);
}
