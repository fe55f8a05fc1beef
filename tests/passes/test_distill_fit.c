/* Which weights hold, which teachers fit a student, and what is said of those that do
 * not. */
#include "exec/ops.h"
#include "tests/passes/distill_fixture.h"

/* ---- presets ---- */

/* The weights that hold, as the record lists them. */
static void expect_weights(Model *student, Model *teacher, const char *options,
                           const char *want) {
    char all[300], *got = NULL;
    size_t length = 0;
    snprintf(all, sizeof all, STILL "%s", options);
    distill_ok(student, teacher, all);
    FILE *out = open_memstream(&got, &length);
    const Tree *weights = tree_get(last_record(student), "weights");
    for (const Tree *w = weights->first; w; w = w->next)
        fprintf(out, "%s %.4g, ", w->key, w->real);
    fprintf(out, "t %g", recorded(student, "temperature"));
    fclose(out);
    assert_string_equal(got, want);
    free(got);
}

static void test_presets(void **state) {
    (void)state;
    Model *student = classifier(2, 1), *teacher = classifier(2, 2);
    expect_weights(student, teacher, "epochs: 1",
                   "prediction 1, attention 1, hidden 0.1, t 1");
    expect_weights(student, teacher, "preset: cost_eff", "prediction 1, hidden 1, t 1");
    expect_weights(student, teacher, "preset: cost_eff, prediction: 0",
                   "hidden 1, t nan");
    expect_weights(student, teacher, "preset: tinybert",
                   "prediction 1, attention 1, hidden 1, t 1");
    expect_weights(student, teacher, "preset: distilbert",
                   "prediction 5, cosine 1, label 2, t 2");
    expect_weights(student, teacher, "preset: distilbert, label: 0",
                   "prediction 5, cosine 1, t 2");
    expect_weights(student, teacher, "preset: distilbert, masked_lm: 0, cosine: 3",
                   "prediction 5, cosine 3, t 2");
    expect_weights(student, teacher, "preset: distilbert, temperature: 4, label: 0.5",
                   "prediction 5, cosine 1, label 0.5, t 4");
    expect_weights(student, teacher, "preset: none, label: 1", "label 1, t nan");
    model_destroy(student);
    model_destroy(teacher);
}

static void test_presets_of_tokens(void **state) {
    (void)state;
    Model *student = masked_lm(2, 1), *teacher = masked_lm(2, 2);
    expect_weights(student, teacher, "preset: distilbert",
                   "prediction 5, cosine 1, masked_lm 2, t 2");
    expect_weights(student, teacher, "preset: distilbert_mean",
                   "prediction 0.3333, cosine 0.3333, masked_lm 0.3333, t 2");
    model_destroy(student);
    model_destroy(teacher);
}

/* The forms of a preset, against the same given one by one. */
static void test_preset_forms(void **state) {
    (void)state;
    Model *student = classifier(2, 1), *teacher = classifier(2, 2);
    distill_ok(student, teacher, STILL "preset: tinybert");
    const double attention = recorded(student, "loss_attention");
    const double hidden = recorded(student, "loss_hidden");
    distill_ok(student, teacher, STILL "attention_form: map, hidden_form: state");
    assert_true(recorded(student, "loss_attention") == attention);
    assert_true(recorded(student, "loss_hidden") == hidden);
    distill_ok(student, teacher,
               STILL "preset: tinybert, attention_form: relation, hidden_form: relation");
    const double relation = recorded(student, "loss_attention");
    assert_true(relation != attention && recorded(student, "loss_hidden") != hidden);
    distill_ok(student, teacher, STILL "epochs: 1");
    assert_true(recorded(student, "loss_attention") == relation);
    model_destroy(student);
    model_destroy(teacher);
}

/* ---- teachers that fit ---- */

static const char DISTILBERT[] =
    "{model_type: distilbert, architectures: [DistilBertForSequenceClassification],\n"
    " dim: 8, n_layers: 2, n_heads: 2, hidden_dim: 16, vocab_size: 12,\n"
    " max_position_embeddings: 6, num_labels: 3, initializer_range: 0.3, dropout: 0,\n"
    " attention_dropout: 0, seq_classif_dropout: 0}\n";

/* A student without token types follows a teacher with them, and the other way round. */
static void test_other_inputs(void **state) {
    (void)state;
    Model *plain = configured_model(DISTILBERT, 1), *typed = classifier(4, 2);
    assert_null(graph_find_input(plain->graph, "token_type_ids"));
    distill_ok(plain, typed, STILL "preset: cost_eff");
    expect_near(recorded(plain, "loss_prediction"),
                exit_loss(plain, "logits", typed, "logits", 1));
    expect_near(recorded(plain, "loss_hidden"), state_loss(plain, -1, typed, -1) +
                                                    state_loss(plain, 0, typed, 1) +
                                                    state_loss(plain, 1, typed, 3));
    distill_ok(typed, plain, STILL "preset: cost_eff");
    expect_near(recorded(typed, "loss_prediction"),
                exit_loss(typed, "logits", plain, "logits", 1));
    distill_ok(plain, typed, "preset: cost_eff, epochs: 1, batch_size: 2");
    model_destroy(plain);
    model_destroy(typed);
}

/* A teacher with dropout gives what it gives in inference. */
static void test_teacher_without_dropout(void **state) {
    (void)state;
    const Toy toy = {"BertForSequenceClassification", 2, WIDTH, 2, 0.5};
    Model *student = classifier(2, 1), *teacher = toy_bert(toy, 2);
    distill_ok(student, teacher, STILL "preset: none, prediction: 1");
    expect_near(recorded(student, "loss_prediction"),
                exit_loss(student, "logits", teacher, "logits", 1));
    model_destroy(student);
    model_destroy(teacher);
}

/* The rates of one training: the student's loss is that of inference, and the model keeps
 * the rates it had. */
static void test_dropout_of_a_step(void **state) {
    (void)state;
    const Toy lossy = {"BertForSequenceClassification", 2, WIDTH, 2, 0.5};
    Model *student = toy_bert(lossy, 3), *teacher = classifier(2, 5);
    const double want = exit_loss(student, "logits", teacher, "logits", 1);
    distill_ok(student, teacher, STILL "preset: none, prediction: 1");
    assert_true(fabs(recorded(student, "loss_prediction") - want) > 1e-3);
    distill_ok(student, teacher, STILL "preset: none, prediction: 1, dropout: 0");
    expect_near(recorded(student, "loss_prediction"), want);
    for (const Node *node = student->graph->first; node; node = node->next)
        if (node_is(node, &op_dropout))
            assert_true(((const DropoutAttrs *)node->attrs)->rate == 0.5);
    model_destroy(student);
    model_destroy(teacher);
}

/* Without losses on predictions the teacher needs no head, or may have another. */
static void test_headless_teacher(void **state) {
    (void)state;
    const Toy toy = {"BertModel", 2, WIDTH, 2, 0};
    Model *bare = toy_bert(toy, 2), *other = classifier(2, 2), *student = masked_lm(2, 1);
    distill_ok(student, bare,
               STILL "preset: none, masked_lm: 1, hidden: 1, hidden_form: state");
    const double loss = recorded(student, "loss_hidden");
    expect_near(loss, state_loss(student, -1, bare, -1) +
                          state_loss(student, 0, bare, 0) +
                          state_loss(student, 1, bare, 1));
    distill_ok(student, other, STILL "preset: none, masked_lm: 1, cosine: 1");
    distill_ok(student, bare, STILL "preset: none, hidden: 1, hidden_form: state");
    assert_true(recorded(student, "loss_hidden") == loss);
    model_destroy(student);
    model_destroy(other);
    model_destroy(bare);
}

static void expect_fault(Model *student, Model *teacher, const char *options,
                         Status status, const char *text) {
    char *got = fault_of(student, teacher, options, status);
    if (!strstr(got, text)) fail_msg("expected \"%s\" in:\n%s", text, got);
    free(got);
}

static void test_faults(void **state) {
    (void)state;
    const Toy narrow = {"BertForSequenceClassification", 2, 4, 1, 0};
    const Toy headless = {"BertModel", 2, WIDTH, 2, 0};
    Model *bert = classifier(2, 1), *tokens = masked_lm(2, 1),
          *thin = toy_bert(narrow, 2);
    Model *bare = toy_bert(headless, 2);
    expect_fault(bert, thin, "preset: none, hidden: 1, hidden_form: state", STATUS_MODEL,
                 "expected hidden states of equal width, found 8 in the student and 4 in "
                 "the teacher\n    hint: hidden_form: relation compares any widths");
    expect_fault(bert, thin, "preset: none, cosine: 1", STATUS_MODEL,
                 "hint: cosine_on: probabilities compares any widths");
    expect_fault(bert, thin, "preset: none, attention: 1, attention_form: map",
                 STATUS_MODEL,
                 "equal head counts, found 2 in layer 0 of the student and 1 in layer 0 "
                 "of the teacher\n    hint: attention_form: relation compares");
    expect_fault(bert, bare, "preset: cost_eff", STATUS_MODEL,
                 "the teacher has no output \"logits\" to follow");
    expect_fault(bert, tokens, "preset: distilbert", STATUS_MODEL,
                 "expected a teacher with logits f32[N, 3], found f32[N, T, 12]");
    expect_fault(tokens, bert, "preset: distilbert", STATUS_MODEL,
                 "expected a teacher with logits f32[N, T, 12], found f32[N, 3]");
    expect_fault(bert, bert, "masked_lm: 1", STATUS_MODEL,
                 "expected label in place of masked_lm");
    expect_fault(tokens, tokens, "label: 1", STATUS_MODEL,
                 "expected masked_lm in place of label");
    expect_fault(bert, bert, "exits: early", STATUS_MODEL, "no early exits");
    expect_fault(
        bert, bert, "hidden: -0.5", STATUS_RECIPE,
        "passes[0].distill.hidden: expected number between 0 and 1000000, found float -0.5");
    expect_fault(bert, bert, "temperature: 0.001", STATUS_RECIPE,
                 "between 0.01 and 1000, found float 0.001");
    expect_fault(bert, bert, "temperature: 0", STATUS_RECIPE, "found integer 0");
    expect_fault(bert, bert, "preset: cost_eff, attention_form: map", STATUS_RECIPE,
                 "expected a weight for the attention loss");
    expect_fault(bert, bert, "preset: none", STATUS_RECIPE, "at least one loss");
    model_destroy(bert);
    model_destroy(tokens);
    model_destroy(thin);
    model_destroy(bare);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_presets_of_tokens),
        cmocka_unit_test(test_preset_forms),
        cmocka_unit_test(test_other_inputs),
        cmocka_unit_test(test_teacher_without_dropout),
        cmocka_unit_test(test_dropout_of_a_step),
        cmocka_unit_test(test_headless_teacher),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("distill: what fits", tests, NULL, NULL);
}
