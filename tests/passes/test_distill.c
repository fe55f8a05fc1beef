/* What each loss of distill is: the losses recorded at rate 0 against plain loops over
 * the values of student and teacher run on their own. */
#include "ir/storage.h"
#include "passes/nodes.h"
#include "tests/passes/distill_fixture.h"

/* ---- hidden states, attention scores, cosine ---- */

static void test_states(void **state) {
    (void)state;
    Model *student = classifier(2, 1), *teacher = classifier(4, 2);
    const double embeddings = state_loss(student, -1, teacher, -1);
    const double first = state_loss(student, 0, teacher, 1);
    const double second = state_loss(student, 1, teacher, 3);
    assert_true(embeddings > 0.01);
#define FORM STILL "preset: none, hidden: 1, hidden_form: state"
    distill_ok(student, teacher, FORM);
    expect_near(recorded(student, "loss_hidden"), embeddings + first + second);
    distill_ok(student, teacher, FORM ", over_layers: mean");
    expect_near(recorded(student, "loss_hidden"), (embeddings + first + second) / 3);
    distill_ok(student, teacher, FORM ", embeddings: false");
    expect_near(recorded(student, "loss_hidden"), first + second);
    distill_ok(student, teacher, FORM ", student_layers: [1], teacher_layers: [0]");
    expect_near(recorded(student, "loss_hidden"),
                embeddings + state_loss(student, 1, teacher, 0));
#undef FORM
    model_destroy(student);
    model_destroy(teacher);
}

/* Scores of attention of one head: q[i] . k[j] / sqrt(width). */
static double score(const double *q, const double *k, int i, int j, int head, int width) {
    double sum = 0;
    for (int c = head * width; c < (head + 1) * width; c++)
        sum += q[i * WIDTH + c] * k[j * WIDTH + c];
    return sum / sqrt(width);
}

/* TinyBERT's attention loss of one pair of layers, 2 heads: mean over samples of the mean
 * over heads and pairs of tokens. */
static double map_loss(Model *student, int s, Model *teacher, int t) {
    double *x[4], loss = 0;
    for (int i = 0; i < 4; i++) {
        Model *model = i < 2 ? student : teacher;
        x[i] = value_of(model, graph_find(model->graph, "encoder", i < 2 ? s : t,
                                          i % 2 ? ROLE_K : ROLE_Q));
    }
    for (int n = 0; n < SAMPLES; n++) {
        const int real = sentence_length(n), at = n * TOKENS;
        double total = 0;
        for (int e = 0; e < 2 * real * real; e++) {
            const int i = at + e / 2 / real, j = at + e / 2 % real;
            const double d = score(x[0], x[1], i, j, e % 2, WIDTH / 2) -
                             score(x[2], x[3], i, j, e % 2, WIDTH / 2);
            total += d * d;
        }
        loss += total / (2 * real * real) / SAMPLES;
    }
    for (int i = 0; i < 4; i++) free(x[i]);
    return loss;
}

static void test_maps(void **state) {
    (void)state;
    Model *student = classifier(2, 1), *teacher = classifier(4, 2);
    const double first = map_loss(student, 0, teacher, 1);
    const double second = map_loss(student, 1, teacher, 3);
    distill_ok(student, teacher, STILL "preset: none, attention: 1, attention_form: map");
    expect_near(recorded(student, "loss_attention"), first + second);
    distill_ok(student, teacher,
               STILL
               "preset: none, attention: 1, attention_form: map, over_layers: mean");
    expect_near(recorded(student, "loss_attention"), (first + second) / 2);
    model_destroy(student);
    model_destroy(teacher);
}

static void test_cosine_of_states(void **state) {
    (void)state;
    Model *student = classifier(2, 1), *teacher = classifier(4, 2);
    double *x = state_of(student, 1), *y = state_of(teacher, 3);
    distill_ok(student, teacher, STILL "preset: none, cosine: 1");
    expect_near(recorded(student, "loss_cosine"),
                plain_cosine(x, y, SAMPLES * TOKENS, WIDTH, real_tokens()));
    free(x);
    free(y);
    model_destroy(student);
    model_destroy(teacher);
}

/* A student that is its teacher has nothing to learn. */
static void test_equal_models(void **state) {
    (void)state;
    Model *student = classifier(3, 1), *teacher = classifier(3, 1);
    distill_ok(student, teacher,
               STILL "preset: tinybert, kl: true, cosine: 1, temperature: 3");
    /* a difference of logarithms, times the temperature's square */
    assert_within(recorded(student, "loss_prediction"), 0,
                  rounding_tolerance(PRECISION_F32, FUNCTION_TERMS, 3 * 3));
    assert_true(recorded(student, "loss_attention") == 0);
    assert_true(recorded(student, "loss_hidden") == 0);
    assert_within(recorded(student, "loss_cosine"), 0,
                  rounding_tolerance(PRECISION_F32, WIDTH + FUNCTION_TERMS, 1));
    model_destroy(student);
    model_destroy(teacher);
}

/* ---- exits ---- */

/* Puts a classifier of the first token on a layer's output. */
static void add_exit(Model *model, int layer, uint64_t seed) {
    Graph *graph = model->graph;
    Diag *diag = diag_create();
    Node *x = graph_layer_output(graph, "encoder", layer - 1), *in[2] = {NULL};
    char name[32];
    snprintf(name, sizeof name, "exit.%d", layer);
    assert_ok(node_add(&in[0], graph, NULL, &op_select_token, &x, 1, diag, NULL), diag);
    assert_ok(storage_create(&in[1], graph, name, (Init){INIT_NORMAL, 1}, 2,
                             (const int64_t[]){CLASSES, WIDTH}, diag),
              diag);
    node_place(graph, in[0], "exits", layer - 1, ROLE_POOL);
    Node *logits = NULL;
    assert_ok(node_add(&logits, graph, NULL, &op_linear, in, 2, diag, NULL), diag);
    node_place(graph, logits, "exits", layer - 1, ROLE_HEAD);
    graph_set_output(graph, name, logits);
    assert_ok(model_init_weights(model, seed, diag), diag);
    diag_destroy(diag);
}

static Model *with_exits(int layers, int exits, uint64_t seed) {
    Model *model = classifier(layers, seed);
    for (int i = 1; i <= exits; i++) add_exit(model, i, seed);
    return model;
}

/* Exits 1 and 2 and the last one of the student; the teacher has no exit 2. */
static void test_exits(void **state) {
    (void)state;
    Model *student = with_exits(3, 2, 1), *teacher = with_exits(3, 1, 2);
    const double one = exit_loss(student, "exit.1", teacher, "exit.1", 2);
    const double two = exit_loss(student, "exit.2", teacher, "logits", 2);
    const double last = exit_loss(student, "logits", teacher, "logits", 2);
#define FORM STILL "preset: none, prediction: 1, temperature: 2"
    distill_ok(student, teacher, FORM);
    expect_near(recorded(student, "loss_prediction"), one + two + last);
    distill_ok(student, teacher, FORM ", exits: last");
    expect_near(recorded(student, "loss_prediction"), last);
    distill_ok(student, teacher, FORM ", exits: early, gradient: sum");
    expect_near(recorded(student, "loss_prediction"), one + two);
#undef FORM
    model_destroy(student);
    model_destroy(teacher);
}

/* Change of one weight of the embeddings in one step of plain gradient descent. */
static double embedding_step(const char *options) {
    static const char name[] = "bert.embeddings.position_embeddings.weight";
    Model *student = with_exits(3, 2, 1), *teacher = with_exits(3, 2, 2);
    char all[400];
    double before, after;
    snprintf(all, sizeof all,
             "preset: none, optimizer: sgd, momentum: 0, weight_decay: 0, clip: 0, "
             "warmup: 0, schedule: constant, steps: 1, lr: 0.5, batch_size: 6, %s",
             options);
    tensor_read_f64(&graph_storage(student->graph, name)->tensor, 3, 1, &before);
    distill_ok(student, teacher, all);
    tensor_read_f64(&graph_storage(student->graph, name)->tensor, 3, 1, &after);
    model_destroy(student);
    model_destroy(teacher);
    return after - before;
}

/* Three exits stand behind the embeddings: they get the mean of three gradients. Losses
 * of the last exit alone are not balanced. */
static void test_equilibrium(void **state) {
    (void)state;
    const double sum = embedding_step("prediction: 1, gradient: sum");
    const double mean = embedding_step("prediction: 1");
    /* a change of a weight by 0.5 times the gradient */
    const double gradient = rounding_tolerance(PRECISION_F32, LOSS_TERMS, 2 * fabs(sum));
    const double tolerance = training_tolerance(1, 0.5, 1, gradient, fabs(sum));
    assert_true(fabs(sum) > 1e-3);
    assert_within(mean, sum / 3, tolerance);
    const double last = embedding_step("prediction: 1, exits: last, gradient: sum");
    assert_true(embedding_step("prediction: 1, exits: last") == last);
    const double hidden = embedding_step("hidden: 1, gradient: sum");
    assert_true(fabs(hidden) > 1e-6);
    assert_true(embedding_step("hidden: 1") == hidden);
}

/* ---- masked tokens ---- */

enum { ROWS = SAMPLES * MASKED };

/* The rows of logits [N, T, V] at the masked positions, and which of them count. */
static double *masked_rows(Model *model, int keep[ROWS]) {
    double *all = output_of(model, "logits");
    double *rows = malloc(ROWS * WORDS * sizeof *rows);
    for (int r = 0; r < ROWS; r++) {
        const int at = masked_position(r / MASKED, r % MASKED);
        keep[r] = at != 0;
        memcpy(rows + (ptrdiff_t)r * WORDS,
               all + (ptrdiff_t)(r / MASKED * TOKENS + at) * WORDS, WORDS * sizeof *rows);
    }
    free(all);
    return rows;
}

static void softmax_rows(double *z, int rows, int classes, double t) {
    for (int r = 0; r < rows; r++, z += classes) {
        double sum = 0;
        for (int c = 0; c < classes; c++) sum += z[c] = exp(z[c] / t);
        for (int c = 0; c < classes; c++) z[c] /= sum;
    }
}

/* Mean of -log p[label] over the masked tokens. */
static double plain_labels(const double *p, const int *keep) {
    double total = 0;
    int kept = 0;
    for (int r = 0; r < ROWS; r++) {
        if (!keep[r]) continue;
        total -=
            log(p[r * WORDS + sentence_value("masked_labels", r / MASKED, r % MASKED)]);
        kept++;
    }
    return total / kept;
}

/* DistilBERT's three losses: heads that see the masked tokens alone give what those of
 * all tokens give there. */
static void test_masked(void **state) {
    (void)state;
    Model *student = masked_lm(2, 1), *teacher = masked_lm(4, 2);
    int keep[ROWS];
    double *z = masked_rows(student, keep), *y = masked_rows(teacher, keep);
    double *x = state_of(student, 1), *h = state_of(teacher, 3);
    distill_ok(student, teacher, STILL "preset: distilbert");
    const double soft = plain_soft(z, y, ROWS, WORDS, 2, false, keep);
    const double cosine = plain_cosine(x, h, SAMPLES * TOKENS, WIDTH, real_tokens());
    expect_near(recorded(student, "loss_prediction"), soft);
    expect_near(recorded(student, "loss_cosine"), cosine);
    softmax_rows(z, ROWS, WORDS, 1);
    const double labels = plain_labels(z, keep);
    expect_near(recorded(student, "loss_masked_lm"), labels);
    expect_near(recorded(student, "first_loss"), 5 * soft + 2 * labels + cosine);
    free(x);
    free(h);
    free(z);
    free(y);
    model_destroy(student);
    model_destroy(teacher);
}

static void test_cosine_of_predictions(void **state) {
    (void)state;
    Model *student = masked_lm(2, 1), *teacher = masked_lm(4, 2);
    int keep[ROWS];
    double *z = masked_rows(student, keep), *y = masked_rows(teacher, keep);
    distill_ok(student, teacher, STILL "preset: distilbert_mean, kl: true");
    const double soft = plain_soft(z, y, ROWS, WORDS, 2, true, keep);
    double *p = masked_rows(student, keep);
    softmax_rows(p, ROWS, WORDS, 1);
    softmax_rows(z, ROWS, WORDS, 2);
    softmax_rows(y, ROWS, WORDS, 2);
    const double cosine = plain_cosine(z, y, ROWS, WORDS, keep);
    expect_near(recorded(student, "loss_prediction"), soft);
    expect_near(recorded(student, "loss_cosine"), cosine);
    expect_near(recorded(student, "first_loss"),
                (soft + plain_labels(p, keep) + cosine) / 3);
    free(p);
    free(z);
    free(y);
    model_destroy(student);
    model_destroy(teacher);
}

/* ---- the plain loops themselves ---- */

/* PyTorch 1.13 in float64: KLDivLoss(batchmean) * T^2, the same less the teacher's
 * entropy, CosineEmbeddingLoss on both, MSELoss, at T = 2. */
static void test_plain_loops(void **state) {
    (void)state;
    double z[] = {0.5, -1.25, 2.0, 1.5, 0.25, -0.75};
    double y[] = {1.0, 0.5, -0.5, -2.0, 0.75, 1.25};
    expect_close(plain_soft(z, y, 2, 3, 2, true, NULL), 1.69458953221786);
    expect_close(plain_soft(z, y, 2, 3, 2, false, NULL), 5.68807898515933);
    expect_close(plain_cosine(z, y, 2, 3, NULL), 1.63731679205097);
    expect_close(plain_squares(z, y, 2, 3, NULL), 4.34375);
    softmax_rows(z, 2, 3, 1);
    softmax_rows(y, 2, 3, 1);
    expect_close(plain_cosine(z, y, 2, 3, NULL), 0.677664477595354);
    expect_close(-log(z[2]), 0.232621983102033); /* CrossEntropyLoss, label 2 */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_loops),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_cosine_of_states),
        cmocka_unit_test(test_equal_models),
        cmocka_unit_test(test_exits),
        cmocka_unit_test(test_equilibrium),
        cmocka_unit_test(test_masked),
        cmocka_unit_test(test_cosine_of_predictions),
    };
    return cmocka_run_group_tests_name("distill", tests, NULL, NULL);
}
