/* The MiniViT student and teacher of tests/data/reference/minivit: forward values,
 * label loss, the three weight-distillation losses and both gradients, against values
 * computed by an independent program (see tests/data/reference/README.md). */
#include "exec/ops.h"
#include "io/families/build.h"
#include "tests/support/check.h"
#include "tests/support/reference.h"

#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/data/reference/minivit/"
enum { LAYERS = 4 };

/* One side of the case: its sizes and the nodes that the losses read. */
typedef struct Side {
    const char *prefix;
    int width, heads, hidden, groups;
    bool mixing;
    Node *q[LAYERS], *k[LAYERS], *v[LAYERS], *mlp[LAYERS], *hidden_states[LAYERS + 1];
    Node *logits;
} Side;

static const char *name_of(Builder *b, const char *prefix, int index, const char *part) {
    return arena_printf(b->model->arena, "%s.%d.%s", prefix, index, part);
}

static Node *attention(Builder *b, Side *side, int layer) {
    Node *q = side->q[layer], *k = side->k[layer], *v = side->v[layer];
    Node *node = build_op(b, "attention", ROLE_ATTENTION, (Node *[4]){q, k, v},
                          "heads=%d", side->heads);
    if (!side->mixing) return node;
    const int64_t shape[2] = {side->heads, side->heads};
    Graph *graph = b->model->graph;
    node_set_operand(graph, node, "mix_before",
                     build_param(b, name_of(b, "layer", layer, "mix_before"),
                                 INIT_IDENTITY, 2, shape));
    node_set_operand(
        graph, node, "mix_after",
        build_param(b, name_of(b, "layer", layer, "mix_after"), INIT_IDENTITY, 2, shape));
    return node;
}

static Node *build_block(Builder *b, Side *side, int layer, Node *x) {
    const int group = layer / (LAYERS / side->groups), width = side->width;
    b->layer = layer;
    Node *n =
        build_layer_norm(b, ROLE_NORM1, name_of(b, "layer", layer, "norm1"), x, 1e-6);
    side->q[layer] =
        build_linear(b, ROLE_Q, name_of(b, "group", group, "query"), n, width, true);
    side->k[layer] =
        build_linear(b, ROLE_K, name_of(b, "group", group, "key"), n, width, true);
    side->v[layer] =
        build_linear(b, ROLE_V, name_of(b, "group", group, "value"), n, width, true);
    Node *a = attention(b, side, layer);
    Node *o =
        build_linear(b, ROLE_OUT, name_of(b, "group", group, "out"), a, width, true);
    x = build_add(b, ROLE_RESIDUAL1, x, o);
    n = build_layer_norm(b, ROLE_NORM2, name_of(b, "layer", layer, "norm2"), x, 1e-6);
    Node *h = build_linear(b, ROLE_FFN_IN, name_of(b, "group", group, "fc1"), n,
                           side->hidden, true);
    h = build_op(b, "activation", ROLE_FFN_ACT, (Node *[4]){h}, "fn=gelu");
    side->mlp[layer] =
        build_linear(b, ROLE_FFN_OUT, name_of(b, "group", group, "fc2"), h, width, true);
    return build_add(b, ROLE_RESIDUAL2, x, side->mlp[layer]);
}

static void build_side(Builder *b, Side *side, Node *pixels) {
    b->prefix = side->prefix;
    Node *x = build_op(b, "patches", ROLE_PATCHES, (Node *[4]){pixels}, "size=6");
    const int64_t patch[4] = {side->width, 3, 6, 6}, wide = side->width;
    const int64_t table[3] = {1, 9, side->width};
    Node *weight = build_param(b, "patch.weight", INIT_ZEROS, 4, patch);
    Node *bias = build_param(b, "patch.bias", INIT_ZEROS, 1, &wide);
    x = build_op(b, "linear", ROLE_EMBED, (Node *[4]){x, weight, bias}, NULL);
    x = build_add(b, ROLE_POSITION, x, build_param(b, "position", INIT_ZEROS, 3, table));
    side->hidden_states[0] = x;
    for (int layer = 0; layer < LAYERS; layer++)
        x = side->hidden_states[layer + 1] = build_block(b, side, layer, x);
    b->layer = -1;
    x = build_layer_norm(b, ROLE_FINAL_NORM, "norm", x, 1e-6);
    x = build_op(b, "mean_tokens", ROLE_POOL, (Node *[4]){x}, NULL);
    side->logits = build_linear(b, ROLE_HEAD, "head", x, 5, true);
}

typedef struct Case {
    Model *model;
    Builder builder;
    Side student, teacher;
    Node *label, *prediction, *attention, *hidden, *distillation;
    Node *relations[LAYERS][9], *hidden_relation[LAYERS];
    Checkpoint *weights, *reference, *gradients;
    Diag *diag;
} Case;

static Node *sum(Builder *b, Node *const *terms, const double *weights, int count) {
    Graph *graph = b->model->graph;
    Node *node =
        graph_insert(graph, NULL, op_find(graph->ops, "weighted_sum"), terms, count);
    Text attrs = {0};
    text_add(&attrs, "weights=[");
    for (int i = 0; i < count; i++) {
        text_add(&attrs, i ? ", " : "");
        text_real(&attrs, weights ? weights[i] : 1.0 / count);
    }
    text_add(&attrs, "]");
    assert_ok(node_set(graph, node, b->diag, "%s", attrs.data), b->diag);
    assert_ok(node_infer(node, b->diag), b->diag);
    text_free(&attrs);
    return node;
}

static void build_losses(Case *c) {
    Builder *b = &c->builder;
    Node *all[LAYERS * 9], *hidden[LAYERS];
    for (int l = 0; l < LAYERS; l++) {
        Node *s[3] = {c->student.q[l], c->student.k[l], c->student.v[l]};
        Node *t[3] = {c->teacher.q[l], c->teacher.k[l], c->teacher.v[l]};
        for (int i = 0; i < 9; i++)
            all[l * 9 + i] = c->relations[l][i] =
                build_op(b, "relation_cross_entropy", ROLE_LOSS,
                         (Node *[4]){s[i / 3], s[i % 3], t[i / 3], t[i % 3]}, NULL);
        Node *h = c->student.mlp[l], *g = c->teacher.mlp[l];
        hidden[l] = c->hidden_relation[l] = build_op(
            b, "relation_cross_entropy", ROLE_LOSS, (Node *[4]){h, h, g, g}, NULL);
    }
    c->attention = sum(b, all, NULL, LAYERS * 9);
    c->hidden = sum(b, hidden, NULL, LAYERS);
    c->prediction =
        build_op(b, "soft_cross_entropy", ROLE_LOSS,
                 (Node *[4]){c->student.logits, c->teacher.logits}, "temperature=1.0");
    c->distillation = sum(b, (Node *[]){c->prediction, c->attention, c->hidden},
                          (double[]){1, 1, 0.1}, 3);
}

static int setup(void **state) {
    Case *c = memory_alloc(1, sizeof *c);
    c->diag = diag_create();
    c->model = model_create(ops_table());
    c->builder =
        (Builder){.model = c->model, .diag = c->diag, .stack = "encoder", .layer = -1};
    const int64_t pixels[4] = {DIM_N, 3, 18, 18}, labels[1] = {DIM_N};
    Node *x = build_input(&c->builder, "pixel_values", DTYPE_F32, 4, pixels);
    Node *y = build_input(&c->builder, "labels", DTYPE_I32, 1, labels);
    c->student = (Side){.prefix = "student.",
                        .width = 24,
                        .heads = 3,
                        .hidden = 48,
                        .groups = 2,
                        .mixing = true};
    c->teacher =
        (Side){.prefix = "teacher.", .width = 32, .heads = 4, .hidden = 40, .groups = 4};
    build_side(&c->builder, &c->student, x);
    build_side(&c->builder, &c->teacher, x);
    c->label = build_op(&c->builder, "cross_entropy", ROLE_LOSS,
                        (Node *[4]){c->student.logits, y}, NULL);
    build_losses(c);
    assert_ok(c->builder.status, c->diag);
    assert_ok(safetensors_read(&c->weights, FOLDER "model.safetensors", c->diag),
              c->diag);
    assert_ok(safetensors_read(&c->reference, FOLDER "reference.safetensors", c->diag),
              c->diag);
    assert_ok(safetensors_read(&c->gradients, FOLDER "gradients.safetensors", c->diag),
              c->diag);
    reference_bind(c->model->graph, c->weights);
    for (int i = 0; i < c->model->graph->storage_count; i++) {
        Storage *storage = c->model->graph->storages[i];
        storage->frozen = strncmp(storage->name, "teacher.", 8) == 0;
    }
    *state = c;
    return 0;
}

static int teardown(void **state) {
    Case *c = *state;
    checkpoint_destroy(c->weights);
    checkpoint_destroy(c->reference);
    checkpoint_destroy(c->gradients);
    model_destroy(c->model);
    diag_destroy(c->diag);
    free(c);
    return 0;
}

static void compare_side(const Case *c, const Runner *r, const Side *side,
                         const char *name) {
    for (int l = 0; l < LAYERS; l++) {
        const struct {
            const char *what;
            const Node *node;
        } rows[] = {{"query", side->q[l]},
                    {"key", side->k[l]},
                    {"value", side->v[l]},
                    {"mlp_output", side->mlp[l]},
                    {"hidden_states", side->hidden_states[l]}};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            char key[64];
            snprintf(key, sizeof key, "%s.%s.%d", name, rows[i].what, l);
            runner_compare(r, c->reference, key, rows[i].node);
        }
    }
}

static void test_forward(void **state) {
    Case *c = *state;
    Node *results[LAYERS * 10 + 2];
    int n = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int s = 0; s < 2; s++) {
            Side *side = s ? &c->teacher : &c->student;
            results[n++] = side->q[l], results[n++] = side->k[l];
            results[n++] = side->v[l], results[n++] = side->mlp[l];
            results[n++] = side->hidden_states[l];
        }
    results[n++] = c->student.logits, results[n++] = c->teacher.logits;
    Runner r;
    runner_open(&r, c->model->graph, 2, PRECISION_F32, NULL, results, n);
    reference_feed(r.workspace, c->reference, "pixel_values", "pixel_values");
    runner_run(&r);
    compare_side(c, &r, &c->student, "student");
    compare_side(c, &r, &c->teacher, "teacher");
    runner_compare(&r, c->reference, "student.logits", c->student.logits);
    runner_compare(&r, c->reference, "teacher.logits", c->teacher.logits);
    runner_close(&r);
}

static void check_losses(const Case *c, const Runner *r) {
    float relations[9];
    for (int l = 0; l < LAYERS; l++) {
        char key[64];
        for (int i = 0; i < 9; i++)
            relations[i] =
                *(const float *)workspace_value(r->workspace, c->relations[l][i]);
        snprintf(key, sizeof key, "loss_attention.%d", l);
        reference_compare(c->reference, key, relations, PRECISION_F32,
                          runner_terms(r, c->relations[l][8]), 0);
        snprintf(key, sizeof key, "loss_hidden.%d", l);
        runner_compare(r, c->reference, key, c->hidden_relation[l]);
    }
    const struct {
        const char *key;
        const Node *node;
    } rows[] = {{"loss_prediction", c->prediction},
                {"loss_attention", c->attention},
                {"loss_hidden", c->hidden},
                {"loss_distillation", c->distillation}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        runner_compare(r, c->reference, rows[i].key, rows[i].node);
}

static void test_distillation(void **state) {
    Case *c = *state;
    Node *results[LAYERS * 10 + 3];
    int n = 0;
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < 9; i++) results[n++] = c->relations[l][i];
        results[n++] = c->hidden_relation[l];
    }
    results[n++] = c->prediction, results[n++] = c->attention, results[n++] = c->hidden;
    Runner r;
    runner_open(&r, c->model->graph, 2, PRECISION_F32, c->distillation, results, n);
    reference_feed(r.workspace, c->reference, "pixel_values", "pixel_values");
    runner_run(&r);
    check_losses(c, &r);
    runner_compare_gradients(&r, c->gradients, "grad_distillation.");
    runner_close(&r);
}

static void check_label_loss(const Case *c, Precision precision) {
    Runner r;
    runner_open(&r, c->model->graph, 2, precision, c->label, NULL, 0);
    if (precision == PRECISION_F32)
        reference_feed(r.workspace, c->reference, "pixel_values", "pixel_values");
    else
        tensor_read_f64(checkpoint_find(c->reference, "pixel_values"), 0, 2 * 3 * 18 * 18,
                        workspace_input(r.workspace, "pixel_values"));
    reference_feed(r.workspace, c->reference, "labels", "labels");
    runner_run(&r);
    runner_compare(&r, c->reference, "loss", c->label);
    runner_compare_gradients(&r, c->gradients, "grad.");
    runner_close(&r);
}

static void test_label_loss(void **state) {
    check_label_loss(*state, PRECISION_F32);
}

static void test_label_loss_double(void **state) {
    check_label_loss(*state, PRECISION_F64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_forward, setup, teardown),
        cmocka_unit_test_setup_teardown(test_distillation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_label_loss, setup, teardown),
        cmocka_unit_test_setup_teardown(test_label_loss_double, setup, teardown),
    };
    return cmocka_run_group_tests_name("minivit reference", tests, NULL, NULL);
}
