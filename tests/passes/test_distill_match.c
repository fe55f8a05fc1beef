/* Students and teachers of different shapes: which layers and exits are compared, what
 * the losses are then, and what is said when they cannot be. */
#include "ir/storage.h"
#include "passes/nodes.h"
#include "tests/passes/distill_fixture.h"

/* ---- layers ---- */

/* The matched places, as the record lists them. */
static void expect_matched(Model *student, Model *teacher, const char *options,
                           const char *want) {
    char all[300];
    snprintf(all, sizeof all, STILL "preset: none, hidden: 1, %s", options);
    distill_ok(student, teacher, all);
    expect_matched_places(student, want);
}

#define HIDDEN "preset: none, hidden: 1, "

static void expect_fault(Model *student, Model *teacher, const char *options,
                         Status status, const char *text) {
    char *got = fault_of(student, teacher, options, status);
    if (!strstr(got, text)) fail_msg("expected \"%s\" in:\n%s", text, got);
    if (!strstr(got, "test:5:")) fail_msg("no place in:\n%s", got);
    free(got);
}

static void test_rules(void **state) {
    (void)state;
    Model *three = classifier(3, 1), *six = classifier(6, 2), *seven = classifier(7, 3);
    expect_matched(three, six, "match: even",
                   "encoder.0=encoder.1 encoder.1=encoder.3 encoder.2=encoder.5");
    expect_matched(three, seven, "match: even",
                   "encoder.0=encoder.1 encoder.1=encoder.3 encoder.2=encoder.6");
    expect_matched(three, seven, "match: ends",
                   "encoder.0=encoder.0 encoder.1=encoder.3 encoder.2=encoder.6");
    expect_matched(three, six, "match: ends, student_layers: [2, 1]",
                   "encoder.2=encoder.5 encoder.1=encoder.3");
    expect_matched(seven, three, "match: ends, student_layers: [0, 1, 2, 3, 6]",
                   "encoder.0=encoder.0 encoder.1=encoder.0 encoder.2=encoder.1 "
                   "encoder.3=encoder.1 encoder.6=encoder.2");
    expect_matched(three, six, "match: every",
                   "encoder.0=encoder.1 encoder.1=encoder.3 encoder.2=encoder.5");
    expect_matched(three, seven, "match: every, every: 1",
                   "encoder.0=encoder.0 encoder.1=encoder.1 encoder.2=encoder.2");
    expect_matched(three, seven, "match: every, every: 3, student_layers: [0, 1]",
                   "encoder.0=encoder.2 encoder.1=encoder.5");
    expect_matched(three, seven, "match: origin",
                   "encoder.0=encoder.0 encoder.1=encoder.1 encoder.2=encoder.2");
    expect_matched(three, seven, "pairs: [encoder.2=encoder.6, encoder.0=encoder.4]",
                   "encoder.2=encoder.6 encoder.0=encoder.4");
    model_destroy(three);
    model_destroy(six);
    model_destroy(seven);
}

/* Pairs are of the layers they name. */
static void test_pairs(void **state) {
    (void)state;
    Model *student = classifier(2, 1), *teacher = classifier(4, 2);
    distill_ok(student, teacher,
               STILL "preset: none, hidden: 1, hidden_form: state, embeddings: false, "
                     "pairs: [encoder.1=encoder.0, encoder.0=encoder.2]");
    expect_near(recorded(student, "loss_hidden"),
                state_loss(student, 1, teacher, 0) + state_loss(student, 0, teacher, 2));
    model_destroy(student);
    model_destroy(teacher);
}

/* After layers were removed, by where they stem from. */
static void test_origin(void **state) {
    (void)state;
    Model *student = classifier(6, 1), *teacher = classifier(6, 2);
    run_pass(student, "remove_layer", "{keep: [0, 2, 5]}");
    expect_matched(student, teacher, "match: origin",
                   "encoder.0=encoder.0 encoder.1=encoder.2 encoder.2=encoder.5");
    expect_matched(student, teacher, "match: even",
                   "encoder.0=encoder.1 encoder.1=encoder.3 encoder.2=encoder.5");
    run_pass(teacher, "remove_layer", "{keep: [0, 1, 2, 5]}");
    expect_matched(student, teacher, "match: origin",
                   "encoder.0=encoder.0 encoder.1=encoder.2 encoder.2=encoder.3");
    run_pass(teacher, "remove_layer", "{keep: [0, 1, 3]}");
    expect_fault(student, teacher, HIDDEN "match: origin", STATUS_MODEL,
                 "match: origin: layer 1 of the student was layer 2 of the model as it "
                 "was read; the teacher, of 3 layers, has none from there\n"
                 "    hint: match: even");
    model_destroy(student);
    model_destroy(teacher);
}

static void test_faults(void **state) {
    (void)state;
    Model *three = classifier(3, 1), *seven = classifier(7, 3);
    expect_fault(three, seven, HIDDEN "match: every", STATUS_MODEL,
                 "match: every: expected the student's 3 layers to divide the teacher's "
                 "7, or `every`");
    expect_fault(three, seven, HIDDEN "match: every, every: 3", STATUS_MODEL,
                 "every: expected at most 2, so that the student's layer 2 has its match "
                 "among the teacher's 7, found 3");
    expect_fault(three, seven, HIDDEN "every: 3", STATUS_RECIPE,
                 "expected match: every beside");
    expect_fault(three, seven, HIDDEN "match: ends, teacher_layers: [1, 2, 3]",
                 STATUS_RECIPE, "expected teacher_layers or match, found both");
    expect_fault(three, seven, HIDDEN "pairs: [encoder.0=encoder.1], match: ends",
                 STATUS_RECIPE,
                 "expected pairs, or match, student_layers and teacher_layers");
    expect_fault(three, seven, HIDDEN "pairs: [encoder.0]", STATUS_RECIPE,
                 "pairs: expected \"STACK.LAYER=STACK.LAYER\", the student's place and "
                 "the teacher's, found \"encoder.0\"");
    expect_fault(three, seven, HIDDEN "pairs: [encoder.x=encoder.0]", STATUS_RECIPE,
                 "found \"encoder.x=encoder.0\"");
    expect_fault(three, seven, HIDDEN "pairs: [encoder.0=.0]", STATUS_RECIPE,
                 "pairs: expected");
    expect_fault(three, seven, HIDDEN "pairs: [encoder.3=encoder.1]", STATUS_MODEL,
                 "expected student layers below 3, found 3");
    expect_fault(three, seven, HIDDEN "pairs: [encoder.2=encoder.7]", STATUS_MODEL,
                 "expected teacher layers below 7, found 7");
    expect_fault(three, seven, HIDDEN "pairs: [encoder.2=decoder.0]", STATUS_MODEL,
                 "the teacher has no layers in stack \"decoder\"");
    model_destroy(three);
    model_destroy(seven);
}

/* ---- widths and head counts ---- */

static Node *find(Model *model, int layer, Role role) {
    return graph_find(model->graph, "encoder", layer, role);
}

static int width_of(const Node *node) {
    return (int)node->type.dim[2];
}

static const Groups SENTENCES = {SAMPLES, TOKENS, sentence_length};

static double relation_loss(Model *student, int s, Model *teacher, int t) {
    static const Role roles[3] = {ROLE_Q, ROLE_K, ROLE_V};
    double *ours[3], *theirs[3];
    for (int i = 0; i < 3; i++) {
        ours[i] = value_of(student, find(student, s, roles[i]));
        theirs[i] = value_of(teacher, find(teacher, t, roles[i]));
    }
    return plain_relations(ours, width_of(find(student, s, ROLE_Q)), theirs,
                           width_of(find(teacher, t, ROLE_Q)), SENTENCES);
}

static double hidden_loss(Model *student, int s, Model *teacher, int t) {
    const Node *ours = find(student, s, ROLE_FFN_OUT),
               *theirs = find(teacher, t, ROLE_FFN_OUT);
    double *x = value_of(student, ours), *u = value_of(teacher, theirs);
    const double loss =
        plain_relation(x, x, width_of(ours), u, u, width_of(theirs), SENTENCES);
    free(x);
    free(u);
    return loss;
}

/* A student of 2 layers, width 4, 1 head learns from a teacher of 4, width 8, 2 heads. */
static void test_other_widths(void **state) {
    (void)state;
    Model *student = toy_bert((Toy){"BertForSequenceClassification", 2, 4, 1, 0}, 1);
    Model *teacher = classifier(4, 2);
    distill_ok(student, teacher, STILL "preset: minivit, match: ends");
    expect_near(
        recorded(student, "loss_attention"),
        (relation_loss(student, 0, teacher, 0) + relation_loss(student, 1, teacher, 3)) /
            2);
    expect_near(
        recorded(student, "loss_hidden"),
        (hidden_loss(student, 0, teacher, 0) + hidden_loss(student, 1, teacher, 3)) / 2);
    distill_ok(student, teacher, "preset: minivit, steps: 2, batch_size: 3");
    expect_fault(student, teacher, HIDDEN "hidden_form: state", STATUS_MODEL,
                 "expected hidden states of equal width, found 4 in the student and 8 in "
                 "the teacher\n    hint: hidden_form: relation compares any widths");
    model_destroy(student);
    model_destroy(teacher);
}

/* ---- exits ---- */

static double exits_loss(Model *student, Model *teacher, const char *const pairs[][2],
                         int count) {
    double total = 0;
    for (int i = 0; i < count; i++)
        total += exit_loss(student, pairs[i][0], teacher, pairs[i][1], 1);
    return total;
}

/* An exit keeps following the exit behind the layer that it stood behind at first. */
static void test_exits(void **state) {
    (void)state;
    Model *student = classifier(5, 1), *teacher = classifier(5, 2);
    run_pass(student, "add_exits", "{}");
    run_pass(teacher, "add_exits", "{}");
    run_pass(student, "remove_layer", "{keep: [0, 2, 3, 4]}");
    static const char *const pairs[][2] = {{"exit.1", "exit.1"},
                                           {"exit.2", "exit.3"},
                                           {"exit.3", "exit.4"},
                                           {"logits", "logits"}};
    distill_ok(student, teacher, STILL "preset: none, prediction: 1");
    expect_near(recorded(student, "loss_prediction"),
                exits_loss(student, teacher, pairs, 4));
    run_pass(teacher, "remove_layer", "{drop: [0]}"); /* of layers 1 to 4 */
    expect_fault(student, teacher, "preset: none, prediction: 1", STATUS_MODEL,
                 "\"exit.1\" of the student reads layer 0 of the model as it was read; "
                 "the teacher has no layer from there whose exit it could follow\n"
                 "    hint: exits: last");
    run_pass(student, "remove_layer", "{drop: [0]}"); /* of layers 2, 3, 4 */
    static const char *const later[][2] = {
        {"exit.1", "exit.2"}, {"exit.2", "exit.3"}, {"logits", "logits"}};
    distill_ok(student, teacher, STILL "preset: none, prediction: 1");
    expect_near(recorded(student, "loss_prediction"),
                exits_loss(student, teacher, later, 3));
    model_destroy(student);
    model_destroy(teacher);
}

/* ---- teachers of another kind ---- */

/* Takes the places away: what is left is no transformer to a pass. */
static Model *without_layers(Model *model) {
    for (Node *node = model->graph->first; node; node = node->next)
        node_place(model->graph, node, NULL, -1, ROLE_NONE);
    return model;
}

/* The prediction loss alone is left, and the step says so. */
static void test_other_architecture(void **state) {
    (void)state;
    Model *student = classifier(2, 1), *teacher = without_layers(classifier(2, 2));
    Diag *diag = diag_create();
    graph_remove_output(teacher->graph, "last_hidden_state");
    assert_ok(distill(student, teacher, STILL "preset: minivit", diag), diag);
    char *text = diag_text(diag);
    assert_string_equal(text,
                        "test:5:5: warning: passes[0]: attention and hidden losses are "
                        "left out: the teacher has no transformer layers\n");
    assert_string_equal(tree_get(last_record(student), "left_out")->string,
                        "attention, hidden: the teacher has no transformer layers");
    expect_near(recorded(student, "first_loss"),
                exit_loss(student, "logits", teacher, "logits", 1));
    assert_true(isnan(recorded(student, "loss_attention")));
    distill_ok(student, teacher, STILL "preset: distilbert, label: 0");
    assert_true(isnan(recorded(student, "loss_cosine")));
    expect_fault(student, teacher, "hidden: 1", STATUS_MODEL,
                 "no attention and hidden losses are possible: the teacher has no "
                 "transformer layers");
    expect_fault(student, teacher, "hidden: 0, attention: 1", STATUS_MODEL,
                 "no attention and hidden losses are possible");
    expect_fault(student, teacher, "prediction: 0", STATUS_MODEL,
                 "nothing to train on but losses that are not possible");
    free(text);
    diag_destroy(diag);
    model_destroy(student);
    model_destroy(teacher);
}

/* A ViT of 2 layers that cuts 8 x 8 pixels into patches of the given size. */
static Model *patched(int patch, uint64_t seed) {
    char yaml[400];
    snprintf(yaml, sizeof yaml,
             "{model_type: vit, architectures: [ViTForImageClassification],\n"
             " hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2,\n"
             " intermediate_size: 16, hidden_act: gelu, image_size: 8, patch_size: %d,\n"
             " num_channels: 1, num_labels: 3, initializer_range: 0.2}\n",
             patch);
    return configured_model(yaml, seed);
}

/* Relations are tokens by tokens: other patches, other tokens. */
static void test_other_tokens(void **state) {
    (void)state;
    Model *student = patched(4, 1), *teacher = patched(2, 2);
    Batches *toy = toy_batches();
    Diag *diag = diag_create();
    assert_ok(distill_on(*toy, student, teacher, "steps: 1, batch_size: 6", diag), diag);
    char *text = diag_text(diag);
    assert_string_equal(
        text, "test:5:5: warning: passes[0]: attention and hidden losses are left out: "
              "layer 0 of the student gives f32[N, 5, 8], layer 0 of the teacher f32[N, "
              "17, 8]: their tokens are not the same\n");
    assert_int_equal(distill_on(*toy, student, teacher, "steps: 1, attention: 1", diag),
                     STATUS_MODEL);
    free(text);
    batches_destroy(toy);
    diag_destroy(diag);
    model_destroy(student);
    model_destroy(teacher);
}

/* ---- patterns of weights ---- */

static void test_pattern_without_match(void **state) {
    (void)state;
    Model *student = classifier(2, 1), *teacher = classifier(2, 2);
    Diag *diag = diag_create();
    assert_ok(
        distill(student, teacher, STILL "freeze: [\"*.query.*\", \"teacher.*\"]", diag),
        diag);
    char *text = diag_text(diag);
    assert_string_equal(text,
                        "test:5:94: warning: passes[0].distill.freeze: no weights are "
                        "called \"teacher.*\"\n");
    free(text);
    diag_destroy(diag);
    model_destroy(student);
    model_destroy(teacher);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_origin),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_other_widths),
        cmocka_unit_test(test_exits),
        cmocka_unit_test(test_other_architecture),
        cmocka_unit_test(test_other_tokens),
        cmocka_unit_test(test_pattern_without_match),
    };
    return cmocka_run_group_tests_name("distill: what is matched", tests, NULL, NULL);
}
