/* Causal language models in passes: evaluate, finetune and distill against plain loops in
 * double, and from a text to a model that knows it by heart. */
#include "exec/ops.h"
#include "io/datasets/dataset.h"
#include "io/files/yaml.h"
#include "ir/rewrite.h"
#include "tests/passes/language_fixture.h"

#include <unistd.h>

/* One step at rate 0 over all sequences: the losses that are recorded are those of the
 * model as it is. */
#define STILL                                                                            \
    "steps: 1, lr: 0, batch_size: 7, shards: 3, micro_batch: 2}\n"                       \
    "    allow_unchanged: true\n"

/* ---- evaluate ---- */

static void test_naive(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = toy_gpt2(2, 8, 3);
    Batches data = sequences();
    RecipeInputs inputs = {&data, NULL};
    const Naive naive = naive_scores(model);
    for (int batch = 1; batch <= SAMPLES; batch += 2) {
        char step[128];
        const Tree *record;
        snprintf(step, sizeof step, "  - evaluate: {data: some, batch_size: %d}\n",
                 batch);
        assert_ok(run_steps(model, &inputs, step, 1 + batch % 2, &record, diag), diag);
        assert_true(number(record, "samples") == SAMPLES);
        assert_true(number(record, "tokens") == naive.rows);
        const double loss = number(record, "loss");
        assert_close(number(record, "accuracy"), 100.0 * naive.correct / naive.rows);
        expect_loss(model, NULL, loss, naive.loss);
        assert_close(number(record, "perplexity"), exp(loss));
        assert_close(number(record, "bits_per_character"), loss / log(2) / 2.5);
    }
    model_destroy(model);
    diag_destroy(diag);
}

/* Without weights every word is as likely: ln V, log2 V bits a token; of equal logits the
 * first word is the prediction. */
static void test_uniform(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = toy_gpt2(1, 4, 3);
    Batches data = sequences();
    RecipeInputs inputs = {&data, NULL};
    const Tree *record;
    int zeros = 0, rows = 0;
    for (int i = 0; i < model->graph->storage_count; i++) {
        Tensor *tensor = &model->graph->storages[i]->tensor;
        void *weights = NULL;
        assert_ok(tensor_writable(tensor, &weights, diag), diag);
        memset(weights, 0, tensor_bytes(tensor));
    }
    for (int k = 0; k < SAMPLES * TOKENS; k++) {
        zeros += sequence_label(k / TOKENS, k % TOKENS) == 0;
        rows += sequence_label(k / TOKENS, k % TOKENS) != INDEX_SKIP;
    }
    assert_ok(run_steps(model, &inputs,
                        "  - evaluate: {data: some, metric: bits_per_character,"
                        " min: 1.38, max: 1.39}\n",
                        1, &record, diag),
              diag);
    assert_close(number(record, "loss"), log(WORDS));
    assert_close(number(record, "perplexity"), WORDS);
    assert_close(number(record, "bits_per_character"), log2(WORDS) / 2.5);
    assert_close(number(record, "accuracy"), 100.0 * zeros / rows);
    model_destroy(model);
    diag_destroy(diag);
}

/* Logits of every token that are of other things than the vocabulary: neither masked nor
 * next tokens, and refused by name instead of trained as such. */
static void test_other_task(void **state) {
    (void)state;
    static const struct {
        const char *step, *message;
    } STEPS[] = {{"  - evaluate: {data: some, metric: loss}\n", "task find_span"},
                 {"  - finetune: {data: some, steps: 1}\n", "span_cross_entropy"},
                 {"  - importance: {data: some}\n", "span_cross_entropy"},
                 {"  - distill: {data: some, preset: distilbert, label: 1, steps: 1}\n",
                  "span_cross_entropy"}};
    static const char CONFIG[] =
        "{model_type: bert, architectures: [BertForMaskedLM],\n"
        " hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2,\n"
        " intermediate_size: 8, vocab_size: 12, max_position_embeddings: 6}\n";
    Batches data = sequences();
    Model *teacher = configured_model(CONFIG, 2);
    teacher->graph->task = TASK_FIND_SPAN;
    RecipeInputs inputs = {&data, teacher};
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
        Model *model = configured_model(CONFIG, 1);
        model->graph->task = TASK_FIND_SPAN;
        expect_refusal(model, &inputs, STEPS[i].step, STATUS_MODEL, STEPS[i].message);
    }
    model_destroy(teacher);
}

static void test_refused(void **state) {
    (void)state;
    static const char classifier[] =
        "{model_type: bert, architectures: [BertForSequenceClassification],\n"
        " hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2,\n"
        " intermediate_size: 8, vocab_size: 12, max_position_embeddings: 6}\n";
    static const Column scalar[] = {{"input_ids", {DTYPE_I32, 1, {TOKENS}}},
                                    {"labels", {DTYPE_I32, 0, {0}}}};
    static const Column shorter[] = {{"input_ids", {DTYPE_I32, 1, {TOKENS}}},
                                     {"labels", {DTYPE_I32, 1, {TOKENS - 1}}}};
    Batches data = sequences();
    RecipeInputs inputs = {&data, NULL};
    expect_refusal(configured_model(classifier, 1), &inputs,
                   "  - evaluate: {data: some, metric: bits_per_character}\n",
                   STATUS_MODEL,
                   "task classify (accuracy, f1, mcc, loss), found bits_per_character");
    expect_refusal(
        toy_gpt2(1, 8, 1), &inputs, "  - evaluate: {data: some, metric: f1}\n",
        STATUS_MODEL,
        "task next_token (accuracy, loss, perplexity, bits_per_character, bleu, ");
    expect_refusal(toy_gpt2(1, 8, 1), &inputs,
                   "  - evaluate: {data: some, metric: bits_per_character, max: 0.5}\n",
                   STATUS_GATE, "expected bits_per_character at most 0.5");
    data.columns = scalar;
    expect_refusal(toy_gpt2(1, 8, 1), &inputs, "  - evaluate: {data: some}\n",
                   STATUS_MODEL, "labels of one integer for each token");
    data.columns = shorter;
    expect_refusal(toy_gpt2(1, 8, 1), &inputs, "  - evaluate: {data: some}\n",
                   STATUS_MODEL, "labels for 5 rows of logits, found 4");
    data = sequences();
    data.column_count = 1;
    expect_refusal(toy_gpt2(1, 8, 1), &inputs, "  - evaluate: {data: some}\n",
                   STATUS_MODEL, "has no labels");
    data = sequences();
    data.label_characters = 0;
    expect_refusal(toy_gpt2(1, 8, 1), &inputs,
                   "  - evaluate: {data: some, metric: bits_per_character}\n",
                   STATUS_MODEL, "does not know its number of characters");
}

/* ---- finetune ---- */

static void test_label_loss(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = toy_gpt2(2, 8, 5);
    Batches data = sequences();
    RecipeInputs inputs = {&data, NULL};
    const Tree *record;
    const Naive naive = naive_scores(model);
    assert_ok(
        run_steps(model, &inputs, "  - finetune: {data: some, " STILL, 2, &record, diag),
        diag);
    expect_loss(model, NULL, number(record, "loss_label"), naive.loss);
    expect_loss(model, NULL, number(record, "first_loss"), naive.loss);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- distill ---- */

/* T^2 times the mean over all tokens of -sum q log p. */
static double soft_loss(Model *student, Model *teacher, double t) {
    double *z = logits_of(student), *y = logits_of(teacher), total = 0;
    for (int k = 0; k < LOGITS; k++) {
        const int row = k / WORDS * WORDS;
        total -= exp(log_probability(y + row, k % WORDS, t)) *
                 log_probability(z + row, k % WORDS, t);
    }
    free(z);
    free(y);
    return t * t * total / (SAMPLES * TOKENS);
}

static Node *state_node(Model *model, int layer) {
    return graph_layer_output(model->graph, "decoder", layer);
}

static double square_loss(Model *student, int s, Model *teacher, int t) {
    double *x = value_of(student, state_node(student, s));
    double *y = value_of(teacher, state_node(teacher, t)), total = 0;
    for (int k = 0; k < SAMPLES * TOKENS * 8; k++) total += (x[k] - y[k]) * (x[k] - y[k]);
    free(x);
    free(y);
    return total / (SAMPLES * TOKENS * 8);
}

static double cosine_loss(Model *student, Model *teacher) {
    double *x = value_of(student, graph_output(student->graph, "last_hidden_state"));
    double *y = value_of(teacher, graph_output(teacher->graph, "last_hidden_state"));
    double total = 0;
    for (int r = 0; r < SAMPLES * TOKENS; r++) {
        double xx = 0, yy = 0, xy = 0;
        for (int c = r * 8; c < r * 8 + 8; c++) {
            xx += x[c] * x[c];
            yy += y[c] * y[c];
            xy += x[c] * y[c];
        }
        total += 1 - xy / sqrt(xx * yy);
    }
    free(x);
    free(y);
    return total / (SAMPLES * TOKENS);
}

static void test_distill(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *student = toy_gpt2(2, 8, 5), *teacher = toy_gpt2(4, 8, 6);
    Batches data = sequences();
    RecipeInputs inputs = {&data, teacher};
    const Tree *record;
    const double prediction = soft_loss(student, teacher, 2);
    const double hidden =
        square_loss(student, 0, teacher, 1) + square_loss(student, 1, teacher, 3);
    const double cosine = cosine_loss(student, teacher);
    const Naive naive = naive_scores(student);
    assert_ok(run_steps(student, &inputs,
                        "  - distill: {data: some, teacher: x, preset: distilbert,"
                        " hidden: 1, hidden_form: state, embeddings: false, " STILL,
                        2, &record, diag),
              diag);
    expect_loss(student, teacher, number(record, "loss_prediction"), prediction);
    expect_loss(student, teacher, number(record, "loss_hidden"), hidden);
    expect_loss(student, teacher, number(record, "loss_cosine"), cosine);
    expect_loss(student, NULL, number(record, "loss_label"), naive.loss);
    assert_true(number(tree_get(record, "weights"), "label") == 2);
    model_destroy(student);
    model_destroy(teacher);
    diag_destroy(diag);
}

/* Relations compare models of any widths. */
static void test_distill_relations(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *student = toy_gpt2(2, 4, 5), *teacher = toy_gpt2(4, 8, 6);
    Batches data = sequences();
    RecipeInputs inputs = {&data, teacher};
    const Tree *record;
    assert_ok(run_steps(student, &inputs,
                        "  - distill: {data: some, teacher: x, preset: minivit,"
                        " kl: true, epochs: 1, lr: 0.001}\n",
                        2, &record, diag),
              diag);
    assert_true(number(record, "loss_attention") > 0);
    assert_true(number(record, "loss_hidden") > 0);
    assert_true(number(record, "loss_prediction") > 0);
    model_destroy(student);
    model_destroy(teacher);
    diag_destroy(diag);
}

static void test_distill_refused(void **state) {
    (void)state;
    static const char masked[] =
        "{model_type: bert, architectures: [BertForMaskedLM], hidden_size: 8,\n"
        " num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 8,\n"
        " vocab_size: 11, max_position_embeddings: 6}\n";
    Batches data = sequences();
    Model *teacher = configured_model(masked, 1);
    RecipeInputs inputs = {&data, teacher};
    expect_refusal(toy_gpt2(1, 8, 1), &inputs,
                   "  - distill: {data: some, teacher: x, attention: 0, hidden: 0}\n",
                   STATUS_MODEL, "one predicts next tokens, the other does not");
    expect_refusal(toy_gpt2(1, 8, 1), &inputs,
                   "  - distill: {data: some, teacher: x, masked_lm: 1}\n", STATUS_MODEL,
                   "expected label in place of masked_lm");
    model_destroy(teacher);
}

static const char LSTM[] =
    "{model_type: lstm_lm, vocab_size: 11, embedding_size: 8, hidden_size: 8,\n"
    " num_layers: 2}\n";

/* Prediction loss between an LSTM and a transformer, whichever is the teacher; the rest
 * of the preset is left out, or refused where it is asked for. */
static void check_other_kind(Model *student, Model *teacher, const char *reason) {
    Diag *diag = diag_create();
    Batches data = sequences();
    RecipeInputs inputs = {&data, teacher};
    const Tree *record;
    const double prediction = soft_loss(student, teacher, 1);
    assert_ok(run_steps(student, &inputs, "  - distill: {data: some, teacher: x, " STILL,
                        1, &record, diag),
              diag);
    expect_loss(student, teacher, number(record, "loss_prediction"), prediction);
    assert_null(tree_get(record, "loss_attention"));
    assert_null(tree_get(record, "loss_hidden"));
    assert_non_null(strstr(tree_get(record, "left_out")->string, reason));
    expect_refusal(student, &inputs,
                   "  - distill: {data: some, teacher: x, attention: 1}\n", STATUS_MODEL,
                   reason);
    model_destroy(teacher);
    diag_destroy(diag);
}

static void test_distill_other_kind(void **state) {
    (void)state;
    check_other_kind(toy_gpt2(2, 8, 5), configured_model(LSTM, 6),
                     "the teacher has no transformer layers");
    check_other_kind(configured_model(LSTM, 6), toy_gpt2(2, 8, 5),
                     "the student has no transformer layers");
}

/* ---- other passes ---- */

/* Layers are those of stack "decoder" where nothing else is said. */
static void test_stack(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = configured_model(
        "{model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 8,\n"
        " num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 12,\n"
        " vocab_size: 11, max_position_embeddings: 8}",
        5);
    Batches data = sequences();
    RecipeInputs inputs = {&data, model};
    assert_string_equal(graph_main_stack(model->graph), "decoder");
    assert_ok(run_steps(model, &inputs,
                        "  - remove_layer: {keep: [0, 3]}\n"
                        "  - weight_multiplex: {group: 2, position: none}\n",
                        1, NULL, diag),
              diag);
    assert_int_equal(graph_layer_count(model->graph, "decoder"), 2);
    assert_ptr_equal(graph_find(model->graph, "decoder", 0, ROLE_Q)->in[1],
                     graph_find(model->graph, "decoder", 1, ROLE_Q)->in[1]);
    model_destroy(model);
    diag_destroy(diag);
}

/* Gradient norms, similarity and importance of the next-token loss. */
static void test_gradients(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = toy_gpt2(3, 8, 5);
    Batches data = sequences();
    RecipeInputs inputs = {&data, model};
    const Tree *record;
    assert_ok(run_steps(model, &inputs,
                        "  - diagnose: {data: some, teacher: x, batch_size: 3}\n", 1,
                        &record, diag),
              diag);
    assert_int_equal(tree_get(record, "gradient_norms")->count, 3);
    assert_int_equal(tree_get(record, "cka")->count, 3);
    for (const Tree *i = tree_get(record, "gradient_norms")->first; i; i = i->next)
        assert_true(i->real > 0);
    for (const Tree *i = tree_get(record, "cka")->first; i; i = i->next)
        assert_within(i->real, 1, loss_tolerance(model->graph, 1)); /* of equal floats */
    assert_ok(run_steps(model, &inputs,
                        "  - importance: {data: some}\n"
                        "  - prune_heads: {keep: 1, score: stored}\n",
                        1, NULL, diag),
              diag);
    assert_int_equal(
        ((const AttentionAttrs *)graph_find(model->graph, "decoder", 2, ROLE_ATTENTION)
             ->attrs)
            ->heads,
        1);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- from a text to a model ---- */

static const char TEXT[] = "the cat sat on the mat. un happy cat, the mat sat on!\n"
                           "a naive cat: the un un mat on mat sat resume cafe the\n";

static Batches *text_open(Arena *arena, Diag *diag) {
    const DataFormat *format;
    void *options;
    Batches *data = NULL;
    Tree *spec;
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(arena, "%s/text.XXXXXX", base ? base : "/tmp");
    char *vocabulary = realpath("tests/data/text/vocab.txt", NULL);
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, TEXT, sizeof TEXT - 1), sizeof TEXT - 1);
    close(fd);
    const char *yaml = arena_printf(
        arena, "{format: language, path: %s, tokenizer: %s, length: 8, stride: 4}", path,
        vocabulary);
    free(vocabulary);
    assert_ok(yaml_parse(&spec, arena, "data", yaml, strlen(yaml), diag), diag);
    assert_ok(dataset_bind(&format, &options, arena, spec, ".", diag), diag);
    assert_ok(dataset_open(&data, format, options, LOC_FILE("data"), diag), diag);
    unlink(path);
    return data;
}

/* A model trained with so many threads; the gates held. */
static Model *trained(int threads) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *model = configured_model(
        "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 16, n_layer: 2,\n"
        " n_head: 2, vocab_size: 104, n_positions: 8, resid_pdrop: 0, embd_pdrop: 0,\n"
        " attn_pdrop: 0}",
        7);
    Batches *data = text_open(arena, diag);
    RecipeInputs inputs = {data, NULL};
    const Tree *record;
    assert_ok(run_steps(model, &inputs,
                        "  - finetune: {data: some, epochs: 60, batch_size: 3,"
                        " lr: 0.02, weight_decay: 0}\n"
                        "  - evaluate: {data: some, max: 0.4, metric: loss}\n",
                        threads, &record, diag),
              diag);
    assert_close(number(record, "bits_per_character"),
                 number(record, "loss") / log(2) / data->label_characters);
    batches_destroy(data);
    diag_destroy(diag);
    arena_destroy(arena);
    return model;
}

static void test_learns_a_text(void **state) {
    (void)state;
    Model *one = trained(1), *two = trained(2);
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    model_hash(one, a);
    model_hash(two, b);
    assert_string_equal(a, b);
    model_destroy(one);
    model_destroy(two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naive),           cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_label_loss),
        cmocka_unit_test(test_distill),         cmocka_unit_test(test_distill_relations),
        cmocka_unit_test(test_distill_refused), cmocka_unit_test(test_distill_other_kind),
        cmocka_unit_test(test_stack),           cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_learns_a_text),   cmocka_unit_test(test_other_task),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
