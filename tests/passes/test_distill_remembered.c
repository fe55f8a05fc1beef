/* distill: a teacher that is asked once trains the student as one that is asked in every
 * step; and where it must be asked in every step, it is. Training by `steps` never
 * remembers. */
#include "tests/passes/distill_fixture.h"

/* Two epochs of three steps, in the words of either. */
#define EPOCHS "batch_size: 2, shards: 2, lr: 1.0e-2, epochs: 2, "
#define STEPS  "batch_size: 2, shards: 2, lr: 1.0e-2, steps: 6, log_every: 3, "

static Model *student_of(int layers) {
    return classifier(layers, 3);
}

static void expect_remembered(const char *options, double numbers) {
    Model *student = student_of(2), *teacher = classifier(2, 5);
    char all[300];
    snprintf(all, sizeof all, EPOCHS "%s", options);
    distill_ok(student, teacher, all);
    if (numbers > 0)
        assert_true(recorded(student, "remembered") == numbers);
    else
        assert_true(isnan(recorded(student, "remembered")));
    model_destroy(student);
    model_destroy(teacher);
}

/* The same losses and the same weights, whichever way. */
static void expect_same_training(const char *options) {
    Model *once = student_of(2), *always = student_of(2), *teacher = classifier(3, 5);
    char all[300];
    snprintf(all, sizeof all, EPOCHS "%s", options);
    distill_ok(once, teacher, all);
    snprintf(all, sizeof all, STEPS "%s", options);
    distill_ok(always, teacher, all);
    assert_false(isnan(recorded(once, "remembered")));
    assert_true(isnan(recorded(always, "remembered")));
    expect_near(recorded(once, "first_loss"), recorded(always, "first_loss"));
    expect_near(recorded(once, "last_loss"), recorded(always, "last_loss"));
    double *z = output_of(once, "logits"), *y = output_of(always, "logits");
    for (int i = 0; i < SAMPLES * CLASSES; i++) expect_near(z[i], y[i]);
    free(z);
    free(y);
    model_destroy(once);
    model_destroy(always);
    model_destroy(teacher);
}

static void test_same_training(void **state) {
    (void)state;
    expect_same_training("preset: none, prediction: 1");
    expect_same_training("preset: none, prediction: 1, temperature: 2, kl: true");
    expect_same_training("preset: none, prediction: 1, label: 0.5");
    expect_same_training("preset: none, cosine: 1, cosine_on: probabilities");
}

static void test_what_is_remembered(void **state) {
    (void)state;
    expect_remembered("preset: none, prediction: 1", CLASSES);
    expect_remembered("preset: none, prediction: 1, cosine: 1", 0); /* states of tokens */
    expect_remembered("preset: cost_eff", 0);
    expect_remembered("preset: none, prediction: 1, augment: true", 0);
    expect_remembered("preset: none, label: 1", 0); /* nothing is read of a teacher */
}

/* With one epoch there is nothing to gain. */
static void test_one_epoch(void **state) {
    (void)state;
    Model *student = student_of(2), *teacher = classifier(2, 5);
    distill_ok(student, teacher, "preset: none, prediction: 1, epochs: 1");
    assert_true(isnan(recorded(student, "remembered")));
    model_destroy(student);
    model_destroy(teacher);
}

/* Samples of which other tokens are masked in every step are not alike. */
static int64_t masked_of(const Batches *self, int64_t tokens) {
    (void)self;
    (void)tokens;
    return MASKED;
}

static void test_masked_data(void **state) {
    (void)state;
    Model *student = student_of(2), *teacher = classifier(2, 5);
    Batches data = sentences();
    Diag *diag = diag_create();
    data.masked = masked_of;
    assert_ok(
        distill_on(data, student, teacher, EPOCHS "preset: none, prediction: 1", diag),
        diag);
    assert_true(isnan(recorded(student, "remembered")));
    diag_destroy(diag);
    model_destroy(student);
    model_destroy(teacher);
}

/* Every exit follows an exit of its own: all of them are remembered. */
static void test_exits(void **state) {
    (void)state;
    Model *student = student_of(3), *teacher = classifier(3, 5);
    const char *exits = "version: 1\nseed: 1\npasses:\n  - add_exits\n";
    Model *both[] = {student, teacher};
    Diag *diag = diag_create();
    for (int i = 0; i < 2; i++) {
        Batches none = sentences();
        RecipeInputs inputs = {&none, teacher};
        assert_ok(run_with_inputs(&inputs, both[i], exits, false, 1, diag), diag);
    }
    distill_ok(student, teacher, EPOCHS "preset: none, prediction: 1");
    assert_true(recorded(student, "remembered") == 3 * CLASSES);
    diag_destroy(diag);
    model_destroy(student);
    model_destroy(teacher);
}

static void train_image_student(Model *student, Model *teacher, const char *way) {
    Batches *images = toy_batches();
    RecipeInputs inputs = {images, teacher, {0}};
    Diag *diag = diag_create();
    char yaml[400];
    snprintf(yaml, sizeof yaml,
             "version: 1\nseed: 1\ndata: {toy: {format: text}}\npasses:\n"
             "  - distill: {data: toy, batch_size: 20, lr: 1.0e-3, %s, preset: none, "
             "prediction: 1, cosine: 1}\n",
             way);
    assert_ok(run_with_inputs(&inputs, student, yaml, false, 1, diag), diag);
    diag_destroy(diag);
    batches_destroy(images);
}

/* Of images, states are of a known size: the predictions are made of states that a loss
 * reads too. 3 classes, and 5 tokens of width 16. */
static void test_values_behind_each_other(void **state) {
    (void)state;
    Model *once = toy_vit(3), *always = toy_vit(3), *teacher = toy_vit(5);
    train_image_student(once, teacher, "epochs: 2");
    train_image_student(always, teacher, "steps: 6, log_every: 3");
    assert_true(recorded(once, "remembered") == 3 + 5 * 16);
    assert_true(isnan(recorded(always, "remembered")));
    expect_near(recorded(once, "loss_prediction"), recorded(always, "loss_prediction"));
    expect_near(recorded(once, "loss_cosine"), recorded(always, "loss_cosine"));
    model_destroy(once);
    model_destroy(always);
    model_destroy(teacher);
}

/* Keeps the memory that a step's training takes. */
static void keep_bytes(void *self, const Recipe *recipe, int index,
                       const StepResult *result) {
    (void)recipe;
    (void)index;
    *(size_t *)self = result->train_bytes;
}

static size_t planned_bytes(const char *options) {
    Model *student = student_of(1), *teacher = classifier(3, 5);
    Batches data = sentences();
    size_t bytes = 0;
    RecipeInputs inputs = {&data, teacher, {.self = &bytes, .step_end = keep_bytes}};
    char yaml[400];
    Diag *diag = diag_create();
    snprintf(yaml, sizeof yaml,
             "version: 1\nseed: 1\ndata: {text: {format: text}}\npasses:\n"
             "  - distill: {data: text, %spreset: none, prediction: 1}\n",
             options);
    assert_ok(run_with_inputs(&inputs, student, yaml, true, 1, diag), diag);
    diag_destroy(diag);
    model_destroy(student);
    model_destroy(teacher);
    return bytes;
}

/* A teacher that is asked ahead takes no memory in training, and the plan says so; it is
 * asked for 32 samples at a time, which is the most where batches are small. */
static void test_plan(void **state) {
    (void)state;
    const size_t once = planned_bytes("batch_size: 64, epochs: 2, ");
    assert_true(once > 0 && once < planned_bytes("batch_size: 64, steps: 6, "));
    const size_t small = planned_bytes("batch_size: 1, epochs: 2, ");
    assert_true(small > planned_bytes("batch_size: 1, steps: 6, "));
    assert_true(small == planned_bytes("batch_size: 2, epochs: 2, "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_training),
        cmocka_unit_test(test_what_is_remembered),
        cmocka_unit_test(test_one_epoch),
        cmocka_unit_test(test_masked_data),
        cmocka_unit_test(test_exits),
        cmocka_unit_test(test_values_behind_each_other),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
