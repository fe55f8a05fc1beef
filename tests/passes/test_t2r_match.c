/* Forms `match` and `output` of distill: the loss at rate 0 against plain loops, and that
 * training lowers it and changes feature maps alone. */
#include "tests/passes/distill_fixture.h"

enum { HEADS = 2, HEAD = WIDTH / HEADS, FEATURES = 6 };

/* The teacher with its attention swapped. */
static Model *swapped(const Model *teacher, const char *options) {
    Model *student = model_copy(teacher);
    run_pass(student, "attention_to_t2r", options);
    return student;
}

static double *role_value(Model *model, int layer, Role role) {
    return value_of(model, graph_find(model->graph, "encoder", layer, role));
}

/* relu(W scale x + b) by heads of all tokens; free it. */
static double *plain_features(const Model *student, int layer, const double *x,
                              double scale) {
    double w[HEADS * FEATURES * HEAD], b[HEADS * FEATURES];
    char name[64];
    snprintf(name, sizeof name, "encoder.%d.feature_map.weight", layer);
    tensor_read_f64(&graph_storage(student->graph, name)->tensor, 0,
                    HEADS * FEATURES * HEAD, w);
    snprintf(name, sizeof name, "encoder.%d.feature_map.bias", layer);
    tensor_read_f64(&graph_storage(student->graph, name)->tensor, 0, HEADS * FEATURES, b);
    double *out = malloc(sizeof *out * SAMPLES * TOKENS * HEADS * FEATURES);
    for (int row = 0; row < SAMPLES * TOKENS * HEADS; row++)
        for (int i = 0; i < FEATURES; i++) {
            const int at = row % HEADS * FEATURES + i;
            double y = b[at];
            for (int j = 0; j < HEAD; j++)
                y += w[at * HEAD + j] * scale * x[row * HEAD + j];
            out[row * FEATURES + i] = y > 0 ? y : 0;
        }
    return out;
}

static double dot(const double *x, const double *y, int n, int i, int j, int head,
                  int width) {
    const double *a = x + ((n * TOKENS + i) * HEADS + head) * width;
    const double *b = y + ((n * TOKENS + j) * HEADS + head) * width;
    double sum = 0;
    for (int c = 0; c < width; c++) sum += a[c] * b[c];
    return sum;
}

/* -sum P log A of one row; the keys are the tokens that are no padding. */
static double row_loss(double *const x[4], int n, int i, int head, double eps) {
    double p[TOKENS], a[TOKENS], sum_p = 0, sum_a = 0, loss = 0;
    for (int j = 0; j < sentence_length(n); j++) {
        p[j] = exp(dot(x[2], x[3], n, i, j, head, HEAD) / sqrt(HEAD));
        a[j] = dot(x[0], x[1], n, i, j, head, FEATURES);
        sum_p += p[j];
        sum_a += a[j];
    }
    for (int j = 0; j < sentence_length(n); j++)
        loss -= p[j] / sum_p * log(fmax(a[j] / fmax(sum_a, eps), 1e-6));
    return loss;
}

/* The loss of one pair of layers; features of the student's own queries and keys, or of
 * the teacher's. */
static double match_loss(Model *student, int s, Model *teacher, int t, bool own) {
    double *x[4], loss = 0;
    x[2] = role_value(teacher, t, ROLE_Q);
    x[3] = role_value(teacher, t, ROLE_K);
    x[0] = own ? role_value(student, s, ROLE_FEATURE_Q)
               : plain_features(student, s, x[2], 1 / sqrt(HEAD));
    x[1] = own ? role_value(student, s, ROLE_FEATURE_K)
               : plain_features(student, s, x[3], 1);
    for (int row = 0; row < SAMPLES * TOKENS * HEADS; row++) {
        const int n = row / HEADS / TOKENS, at = row / HEADS % TOKENS;
        if (at < sentence_length(n)) /* no padding */
            loss += row_loss(x, n, at, row % HEADS, 0.2) / sentence_length(n);
    }
    for (int i = 0; i < 4; i++) free(x[i]);
    return loss / (SAMPLES * HEADS);
}

#define MATCH "preset: none, attention: 1, attention_form: match"

/* Sums over the layers that have linear attention; the others are left out. */
static void test_value(void **state) {
    (void)state;
    Model *teacher = classifier(3, 2);
    Model *student = swapped(teacher, "{feature_size: 6, eps: 0.2, keep_softmax: [1]}");
    for (int own = 0; own < 2; own++) {
        const double first = match_loss(student, 0, teacher, 0, own);
        const double last = match_loss(student, 2, teacher, 2, own);
        distill_ok(student, teacher,
                   own ? STILL MATCH ", match_on: student" : STILL MATCH);
        expect_near(recorded(student, "loss_attention"), first + last);
        distill_ok(student, teacher,
                   own ? STILL MATCH ", match_on: student, over_layers: mean"
                       : STILL MATCH ", over_layers: mean");
        expect_near(recorded(student, "loss_attention"), (first + last) / 2);
    }
    const double crossed = match_loss(student, 2, teacher, 0, false);
    distill_ok(student, teacher,
               STILL MATCH ", student_layers: [2], teacher_layers: [0]");
    expect_near(recorded(student, "loss_attention"), crossed);
    assert_true(fabs(crossed - match_loss(student, 2, teacher, 2, false)) > 1e-4);
    assert_true(fabs(match_loss(student, 2, teacher, 2, true) -
                     match_loss(student, 2, teacher, 2, false)) > 1e-4);
    model_destroy(student);
    model_destroy(teacher);
}

/* What linear attention over features `x` gives of values [rows, HEADS HEAD]; free it. */
static double *plain_attention(double *const x[2], const double *v, double eps) {
    double *out = malloc(sizeof *out * SAMPLES * TOKENS * WIDTH);
    for (int at = 0; at < SAMPLES * TOKENS * WIDTH; at++) {
        const int row = at / WIDTH, n = row / TOKENS, head = at % WIDTH / HEAD;
        double sum = 0, weights = 0;
        for (int j = 0; j < sentence_length(n); j++) {
            const double a = dot(x[0], x[1], n, row % TOKENS, j, head, FEATURES);
            sum += a * v[(n * TOKENS + j) * WIDTH + at % WIDTH];
            weights += a;
        }
        out[at] = sum / fmax(weights, eps);
    }
    return out;
}

/* The mean over sentences of their squared error over the teacher's squares. */
static double output_loss(Model *student, int s, Model *teacher, int t, bool own) {
    double *theirs = role_value(teacher, t, ROLE_ATTENTION), *ours, loss = 0;
    if (own) {
        ours = role_value(student, s, ROLE_ATTENTION);
    } else {
        double *q = role_value(teacher, t, ROLE_Q), *k = role_value(teacher, t, ROLE_K);
        double *v = role_value(teacher, t, ROLE_V);
        double *x[2] = {plain_features(student, s, q, 1 / sqrt(HEAD)),
                        plain_features(student, s, k, 1)};
        ours = plain_attention(x, v, 0.2);
        double *const all[] = {q, k, v, x[0], x[1]};
        for (int i = 0; i < 5; i++) free(all[i]);
    }
    for (int n = 0; n < SAMPLES; n++) {
        double error = 0, size = 0;
        for (int i = 0; i < sentence_length(n) * WIDTH; i++) {
            const double y = ours[n * TOKENS * WIDTH + i];
            const double want = theirs[n * TOKENS * WIDTH + i];
            error += (y - want) * (y - want);
            size += want * want;
        }
        loss += error / size / SAMPLES;
    }
    free(theirs);
    free(ours);
    return loss;
}

#define OUTPUT "preset: none, attention: 1, attention_form: output"

/* What entry `i` of the record's layers says; its place is `place`. */
static double layer_loss(Model *student, int i, const char *place) {
    const Tree *entry = tree_get(last_record(student), "layers")->first;
    while (i-- > 0) entry = entry->next;
    assert_string_equal(tree_get(entry, "place")->string, place);
    return number(entry, "attention");
}

static void test_output(void **state) {
    (void)state;
    Model *teacher = classifier(3, 2);
    Model *student = swapped(teacher, "{feature_size: 6, eps: 0.2, keep_softmax: [1]}");
    for (int own = 0; own < 2; own++) {
        const double first = output_loss(student, 0, teacher, 0, own);
        const double last = output_loss(student, 2, teacher, 2, own);
        distill_ok(student, teacher,
                   own ? STILL OUTPUT ", match_on: student" : STILL OUTPUT);
        expect_near(recorded(student, "loss_attention"), first + last);
        expect_near(layer_loss(student, 0, "encoder.0"), first);
        expect_near(layer_loss(student, 1, "encoder.2"), last);
        distill_ok(student, teacher, STILL OUTPUT ", over_layers: mean");
        if (!own) expect_near(recorded(student, "loss_attention"), (first + last) / 2);
    }
    assert_true(fabs(output_loss(student, 2, teacher, 2, true) -
                     output_loss(student, 2, teacher, 2, false)) > 1e-4);
    model_destroy(student);
    model_destroy(teacher);
}

static bool is_map(const Storage *storage) {
    return strstr(storage->name, "feature_map") != NULL;
}

/* Trains; every storage but feature maps keeps its hash, and all of those change. */
static void expect_trained(const char *options) {
    Model *teacher = classifier(2, 2);
    Model *student = swapped(teacher, "{feature_size: 6}");
    Model *before = model_copy(student);
    distill_ok(student, teacher, options);
    const double first = recorded(student, "first_loss");
    const double last = recorded(student, "last_loss");
    if (!(last < 0.9 * first)) fail_msg("the loss went from %g to %g", first, last);
    for (int i = 0; i < student->graph->storage_count; i++) {
        const Storage *now = student->graph->storages[i];
        char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
        tensor_hash(&now->tensor, a);
        tensor_hash(&graph_storage(before->graph, now->name)->tensor, b);
        if ((strcmp(a, b) != 0) != is_map(now)) fail_msg("%s", now->name);
    }
    model_destroy(before);
    model_destroy(student);
    model_destroy(teacher);
}

#define STEPS "steps: 150, batch_size: 6, lr: 0.02, warmup: 0, "

static void test_training(void **state) {
    (void)state;
    expect_trained(STEPS MATCH);
    expect_trained(STEPS MATCH ", match_on: student, only: [\"*.feature_map.*\"]");
    expect_trained(STEPS OUTPUT);
    expect_trained(STEPS OUTPUT ", match_on: student, only: [\"*.feature_map.*\"]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_value),
        cmocka_unit_test(test_output),
        cmocka_unit_test(test_training),
    };
    return cmocka_run_group_tests_name("matching attention", tests, NULL, NULL);
}
