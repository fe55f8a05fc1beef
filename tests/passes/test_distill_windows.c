/* Distillation of Swin, whose relations are within windows, against plain loops over the
 * values of student and teacher. */
#include "ir/storage.h"
#include "passes/nodes.h"
#include "tests/passes/distill_fixture.h"

enum { IMAGES = 6, SIDE = 8, DEPTH = 4, WINDOW = 3, WINDOW_TOKENS = WINDOW * WINDOW };

/* 8 x 8 tokens in windows of 3, padded to 9 x 9, then 4 x 4, padded to 6 x 6; every
 * second layer is shifted by 1. */
static Model *deep_swin(int width, int first, int second, uint64_t seed) {
    char yaml[400];
    snprintf(yaml, sizeof yaml,
             "{model_type: swin, image_size: 8, patch_size: 1, num_channels: 1,\n"
             " num_labels: 3, embed_dim: %d, depths: [%d, %d], num_heads: [%d, %d],\n"
             " window_size: 3, mlp_ratio: 2, initializer_range: 0.3}\n",
             width, first, second, width / 4, width / 2);
    return configured_model(yaml, seed);
}

static Model *toy_swin(int width, uint64_t seed) {
    return deep_swin(width, 2, 2, seed);
}

static Node *find(Model *model, int layer, Role role) {
    Node *node = graph_find(model->graph, "encoder", layer, role);
    assert_non_null(node);
    return node;
}

static int width_of(const Node *node) {
    return (int)node->type.dim[2];
}

/* A node's value for the first images, in double; free it. */
static double *image_value(Model *model, Node *node) {
    Batches *toy = toy_batches();
    Diag *diag = diag_create();
    float pixels[IMAGES * SIDE * SIDE];
    int32_t labels[IMAGES];
    const int64_t index[IMAGES] = {0, 1, 2, 3, 4, 5};
    assert_ok(toy->fetch(toy, &(Fetch){.index = index, .n = IMAGES},
                         (void *[]){pixels, labels}, diag),
              diag);
    Runner r;
    runner_open(&r, model->graph, IMAGES, PRECISION_F64, NULL, &node, 1);
    double *input = workspace_input(r.workspace, "pixel_values");
    for (int i = 0; i < IMAGES * SIDE * SIDE; i++) input[i] = (double)pixels[i];
    runner_run(&r);
    const size_t count =
        (size_t)(IMAGES * node->type.dim[1] * node->type.dim[2]) * sizeof(double);
    double *value = malloc(count);
    memcpy(value, workspace_value(r.workspace, node), count);
    runner_close(&r);
    batches_destroy(toy);
    diag_destroy(diag);
    return value;
}

/* Windows of all images in a layer. */
static Groups windows_of(Model *model, int layer) {
    const int rows = IMAGES * (int)find(model, layer, ROLE_Q)->type.dim[1];
    return (Groups){rows / WINDOW_TOKENS, WINDOW_TOKENS};
}

static double attention_loss(Model *student, Model *teacher, int layer) {
    static const Role roles[3] = {ROLE_Q, ROLE_K, ROLE_V};
    double *ours[3], *theirs[3];
    for (int i = 0; i < 3; i++) {
        ours[i] = image_value(student, find(student, layer, roles[i]));
        theirs[i] = image_value(teacher, find(teacher, layer, roles[i]));
    }
    return plain_relations(ours, width_of(find(student, layer, ROLE_Q)), theirs,
                           width_of(find(teacher, layer, ROLE_Q)),
                           windows_of(student, layer));
}

/* Rows of an image's square grid by window: padded with zeros, turned by `shift`. */
static double *cut(const double *x, int side, int width, int shift) {
    const int padded = (side + WINDOW - 1) / WINDOW * WINDOW, across = padded / WINDOW;
    double *out = calloc((size_t)(IMAGES * padded * padded * width), sizeof *out);
    for (int to = 0; to < IMAGES * padded * padded; to++) {
        const int window = to % (padded * padded) / WINDOW_TOKENS;
        const int in_window = to % WINDOW_TOKENS;
        const int row = (window / across * WINDOW + in_window / WINDOW + shift) % padded;
        const int column =
            (window % across * WINDOW + in_window % WINDOW + shift) % padded;
        if (row >= side || column >= side) continue;
        const int from = (to / (padded * padded) * side + row) * side + column;
        memcpy(out + (ptrdiff_t)to * width, x + (ptrdiff_t)from * width,
               (size_t)width * sizeof *out);
    }
    return out;
}

/* The MLP's output of a layer, by window. */
static double *mlp_windows(Model *model, int layer) {
    Node *node = find(model, layer, ROLE_FFN_OUT);
    double *value = image_value(model, node);
    double *windows = cut(value, layer < 2 ? SIDE : SIDE / 2, width_of(node), layer % 2);
    free(value);
    return windows;
}

static double hidden_loss(Model *student, Model *teacher, int layer) {
    double *x = mlp_windows(student, layer), *u = mlp_windows(teacher, layer);
    const double loss = plain_relation(x, x, width_of(find(student, layer, ROLE_FFN_OUT)),
                                       u, u, width_of(find(teacher, layer, ROLE_FFN_OUT)),
                                       windows_of(student, layer));
    free(x);
    free(u);
    return loss;
}

static void distill_images(Model *student, Model *teacher, const char *options) {
    Diag *diag = diag_create();
    Batches *toy = toy_batches();
    toy->count = IMAGES;
    assert_ok(distill_on(*toy, student, teacher, options, diag), diag);
    batches_destroy(toy);
    diag_destroy(diag);
}

/* MiniViT's losses of a student half as wide, with half the heads. */
static void test_relations(void **state) {
    (void)state;
    Model *student = toy_swin(4, 1), *teacher = toy_swin(8, 2);
    double attention = 0, hidden = 0;
    for (int l = 0; l < DEPTH; l++) {
        attention += attention_loss(student, teacher, l) / DEPTH;
        hidden += hidden_loss(student, teacher, l) / DEPTH;
    }
    distill_images(student, teacher, STILL "preset: minivit");
    expect_near(recorded(student, "loss_attention"), attention);
    expect_near(recorded(student, "loss_hidden"), hidden);
    distill_images(student, teacher, "steps: 3, batch_size: 3, lr: 1.0e-2");
    distill_images(student, teacher, "steps: 1, batch_size: 3, hidden_form: gram");
    model_destroy(student);
    model_destroy(teacher);
}

/* Rules hold within stages. */
static void test_stages(void **state) {
    (void)state;
    static const char *const rules[][2] = {
        {"match: even", "encoder.0=encoder.1 encoder.1=encoder.3 encoder.2=encoder.6"},
        {"match: ends", "encoder.0=encoder.0 encoder.1=encoder.3 encoder.2=encoder.4"},
        {"match: every, every: 1",
         "encoder.0=encoder.0 encoder.1=encoder.1 encoder.2=encoder.4"},
        {"match: origin", ""}}; /* layer 2 has other tokens */
    Model *student = deep_swin(4, 2, 1, 1), *teacher = deep_swin(8, 4, 3, 2);
    for (int i = 0; i < 4; i++) {
        char options[120];
        snprintf(options, sizeof options, STILL "preset: minivit, attention: 0, %s",
                 rules[i][0]);
        distill_images(student, teacher, options);
        expect_matched_places(student, rules[i][1]);
    }
    model_destroy(student);
    model_destroy(teacher);
}

/* A multiplexed student follows the model it was made of. */
static void test_multiplexed(void **state) {
    (void)state;
    Model *student = toy_swin(8, 2), *teacher = model_copy(student);
    Diag *diag = diag_create();
    assert_ok(test_run_pass(student, "weight_multiplex",
                            "{layers_left: [1, 1], mixing_bias: true, position: none, "
                            "mlp_transform: norm_conv, kernel: 7}",
                            false, diag),
              diag);
    distill_images(student, teacher, "preset: minivit, steps: 20, batch_size: 6");
    assert_true(recorded(student, "last_loss") < recorded(student, "first_loss"));
    diag_destroy(diag);
    model_destroy(student);
    model_destroy(teacher);
}

static void expect_fault(Model *student, Model *teacher, const char *options,
                         const char *text) {
    Diag *diag = diag_create();
    Batches *toy = toy_batches();
    assert_int_equal(distill_on(*toy, student, teacher, options, diag), STATUS_MODEL);
    char *got = diag_text(diag);
    if (!strstr(got, text)) fail_msg("expected \"%s\" in:\n%s", text, got);
    free(got);
    batches_destroy(toy);
    diag_destroy(diag);
}

static void test_faults(void **state) {
    (void)state;
    Model *student = toy_swin(4, 1), *teacher = toy_swin(8, 2);
    expect_fault(student, teacher, "steps: 1, pairs: [encoder.0=encoder.1]",
                 "the attention loss expects equal windows, found size 3, shift 0 in "
                 "layer 0 of the student and size 3, shift 1 in layer 1 of the teacher\n"
                 "    hint: match layers of equal windows");
    expect_fault(student, teacher, "steps: 1, attention_form: map",
                 "attention_form: map expects attention to all tokens, found windows in "
                 "layer 0 of the student");
    expect_fault(student, teacher,
                 "steps: 1, attention: 0, hidden: 1, pairs: [encoder.0=encoder.2]",
                 "no attention and hidden losses are possible: layer 0 of the student "
                 "gives f32[N, 64, 4], layer 2 of the teacher f32[N, 16, 16]");
    distill_images(student, teacher,
                   "steps: 1, attention: 0, hidden: 1, pairs: [encoder.0=encoder.1]");
    model_destroy(student);
    model_destroy(teacher);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relations),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_multiplexed),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("distill: windows", tests, NULL, NULL);
}
