/* Training on augmented images: soft targets of mixed samples, label smoothing, bytes
 * that depend neither on threads nor on micro-batches. */
#include "io/datasets/augment.h"
#include "io/files/json.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 12, SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 3, FIXED_KEY = 17 };

/* ---- data ---- */

/* The toy images, augmented as a map in JSON says. With `fixed` every augmented fetch
 * uses one key, so that a test can fetch what training saw. */
typedef struct Images {
    Batches base;
    Batches *toy;
    Column columns[IMAGE_COLUMNS];
    Arena *arena;
    Augment augment;
    AugmentSource view;
    int32_t labels[SAMPLES];
    bool fixed;
} Images;

static Status view_read(const void *self, int64_t sample, uint64_t key, const Box *box,
                        float *dst, Diag *diag) {
    const Images *images = self;
    int32_t label;
    (void)key, (void)box;
    return images->toy->fetch(images->toy, &(Fetch){.index = &sample, .n = 1},
                              (void *[]){dst, &label}, diag);
}

static Status images_fetch(const Batches *self, const Fetch *what, void *const *dst,
                           Diag *diag) {
    const Images *images = (const Images *)self;
    Fetch fetch = *what;
    if (images->fixed && fetch.key) fetch.key = FIXED_KEY;
    return augment_fetch(&images->augment, &images->view, images->labels, self, &fetch,
                         dst, diag);
}

static void images_open(Images *images, const char *json, bool fixed) {
    Diag *diag = diag_create();
    Tree *spec;
    *images = (Images){.toy = toy_batches(), .arena = arena_create(), .fixed = fixed};
    assert_ok(json_parse(&spec, images->arena, "recipe", json, strlen(json), diag), diag);
    assert_ok(augment_bind(&images->augment, spec, images->arena, diag), diag);
    for (int i = 0; i < SAMPLES; i++) images->labels[i] = i % CLASSES;
    images->view = (AugmentSource){
        .self = images, .channels = 1, .rows = SIDE, .cols = SIDE, .read = view_read};
    images->base = (Batches){.name = "images",
                             .count = SAMPLES,
                             .columns = images->columns,
                             .classes = CLASSES,
                             .partial = true,
                             .fetch = images_fetch};
    images->base.column_count = augment_columns(images->columns, "pixel_values",
                                                &images->augment, &images->view, true);
    diag_destroy(diag);
}

static void images_close(Images *images) {
    batches_destroy(images->toy);
    arena_destroy(images->arena);
}

/* ---- a step ---- */

/* Runs one step and returns its record. */
static const Tree *run_step(Model *model, Images *images, Model *teacher,
                            const char *step, int threads) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    RecipeInputs inputs = {&images->base, teacher};
    const char *yaml = arena_printf(
        arena,
        "version: 1\nseed: 1\ndata: {images: {format: idx}}\npasses:\n  - %s\n"
        "    allow_unchanged: true\n",
        step);
    assert_ok(run_with_inputs(&inputs, model, yaml, false, threads, diag), diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return last_record(model);
}

/* A loss that is run in float by one or two models (toy_vit, 1000 terms each). */
static void expect_near(double got, double want) {
    assert_within(got, want,
                  rounding_tolerance(PRECISION_F32, 2 * 1000, fmax(1, fabs(want))));
}

/* ---- plain loops ---- */

/* What training fetched, and a model's logits on it. */
typedef struct Seen {
    float x[SAMPLES * PIXELS], share[SAMPLES];
    int32_t label[SAMPLES], other[SAMPLES];
} Seen;

static Seen see(const Images *images, uint64_t key) {
    Seen seen = {{0}};
    Diag *diag = diag_create();
    int64_t index[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) index[i] = i;
    void *dst[] = {seen.x, seen.label, seen.other, seen.share};
    assert_ok(
        images->base.fetch(&images->base, &(Fetch){index, SAMPLES, 0, key, 0}, dst, diag),
        diag);
    diag_destroy(diag);
    return seen;
}

/* log softmax of the model's logits. */
static void log_predictions(Model *model, const float *x, double out[SAMPLES * CLASSES]) {
    Runner r;
    Node *logits = graph_output(model->graph, "logits");
    runner_open(&r, model->graph, SAMPLES, PRECISION_F64, NULL, &logits, 1);
    double *input = workspace_input(r.workspace, "pixel_values");
    for (int i = 0; i < SAMPLES * PIXELS; i++) input[i] = x[i];
    runner_run(&r);
    const double *z = workspace_value(r.workspace, logits);
    for (int i = 0; i < SAMPLES; i++) {
        double sum = 0;
        for (int c = 0; c < CLASSES; c++) sum += exp(z[i * CLASSES + c]);
        for (int c = 0; c < CLASSES; c++)
            out[i * CLASSES + c] = z[i * CLASSES + c] - log(sum);
    }
    runner_close(&r);
}

/* Mean cross-entropy against (1 - e) ((1 - s) label + s other) + e / C. */
static double plain_loss(const Seen *seen, const double *log_p, double e) {
    double loss = 0;
    for (int i = 0; i < SAMPLES; i++)
        for (int c = 0; c < CLASSES; c++) {
            double target = e / CLASSES;
            if (c == seen->label[i]) target += (1 - e) * (1 - (double)seen->share[i]);
            if (c == seen->other[i]) target += (1 - e) * (double)seen->share[i];
            loss -= target * log_p[i * CLASSES + c] / SAMPLES;
        }
    return loss;
}

#define MIXED   "{\"flip\": true, \"crop\": 1, \"mixup\": 0.8, \"cutmix\": 1}"
#define STILL   "steps: 1, lr: 0, batch_size: 12, shards: 3, micro_batch: 2, "
#define AUGMENT "augment: true"

/* ---- tests ---- */

static void test_soft_targets(void **state) {
    (void)state;
    Images images;
    double log_p[SAMPLES * CLASSES];
    Model *model = toy_vit(3);
    images_open(&images, MIXED, true);
    const Seen seen = see(&images, FIXED_KEY), plain = see(&images, 0);
    int mixed = 0;
    for (int i = 0; i < SAMPLES; i++) mixed += seen.other[i] != seen.label[i];
    assert_true(mixed > 3);
    log_predictions(model, seen.x, log_p);
    const Tree *record =
        run_step(model, &images, NULL, "finetune: {data: images, " STILL AUGMENT "}", 1);
    expect_near(number(record, "loss_label"), plain_loss(&seen, log_p, 0));
    record =
        run_step(model, &images, NULL,
                 "finetune: {data: images, " STILL AUGMENT ", label_smoothing: 0.3}", 2);
    expect_near(number(record, "loss_label"), plain_loss(&seen, log_p, 0.3));
    log_predictions(model, plain.x, log_p); /* nothing is augmented: hard labels */
    record = run_step(model, &images, NULL,
                      "finetune: {data: images, " STILL "label_smoothing: 0.1}", 1);
    expect_near(number(record, "loss_label"), plain_loss(&plain, log_p, 0.1));
    images_close(&images);
    model_destroy(model);
}

/* Label smoothing e on hard labels: (1 - e) times the cross-entropy, plus e times the
 * mean over classes of -log p; for a model that says nothing, ln C whatever e is. */
static void test_smoothing(void **state) {
    (void)state;
    Images images;
    double log_p[SAMPLES * CLASSES], hard = 0, even = 0;
    Model *model = toy_vit(5);
    images_open(&images, "{}", false);
    const Seen seen = see(&images, 0);
    log_predictions(model, seen.x, log_p);
    for (int i = 0; i < SAMPLES; i++) {
        hard -= log_p[i * CLASSES + seen.label[i]] / SAMPLES;
        for (int c = 0; c < CLASSES; c++)
            even -= log_p[i * CLASSES + c] / (SAMPLES * CLASSES);
    }
    for (int tenths = 0; tenths < 10; tenths += 3) {
        char step[200];
        snprintf(step, sizeof step,
                 "finetune: {data: images, " STILL "label_smoothing: 0.%d}", tenths);
        const Tree *record = run_step(model, &images, NULL, step, 1);
        expect_near(number(record, "loss_label"),
                    (1 - tenths / 10.0) * hard + tenths / 10.0 * even);
    }
    Diag *diag = diag_create();
    for (int i = 0; i < model->graph->storage_count; i++) {
        void *weights;
        Tensor *tensor = &model->graph->storages[i]->tensor;
        assert_ok(tensor_writable(tensor, &weights, diag), diag);
        memset(weights, 0, tensor_bytes(tensor));
    }
    const Tree *record =
        run_step(model, &images, NULL,
                 "finetune: {data: images, " STILL "label_smoothing: 0.4}", 1);
    expect_near(number(record, "loss_label"), log(3));
    diag_destroy(diag);
    images_close(&images);
    model_destroy(model);
}

/* distill: both models see the mixed pixels; labels, where they count, are soft. */
static void test_distill(void **state) {
    (void)state;
    Images images;
    double p[SAMPLES * CLASSES], q[SAMPLES * CLASSES], loss = 0;
    Model *student = toy_vit(3), *teacher = toy_vit(4);
    images_open(&images, MIXED, true);
    const Seen seen = see(&images, FIXED_KEY);
    log_predictions(student, seen.x, p);
    log_predictions(teacher, seen.x, q);
    for (int i = 0; i < SAMPLES * CLASSES; i++) loss -= exp(q[i]) * p[i] / SAMPLES;
    const Tree *record = run_step(
        student, &images, teacher,
        "distill: {data: images, preset: none, prediction: 1, " STILL AUGMENT "}", 1);
    expect_near(number(record, "loss_prediction"), loss);
    assert_null(tree_get(record, "loss_label"));
    record = run_step(
        student, &images, teacher,
        "distill: {data: images, preset: none, prediction: 1, label: 0.5, " STILL AUGMENT
        ", label_smoothing: 0.2}",
        1);
    expect_near(number(record, "loss_prediction"), loss);
    expect_near(number(record, "loss_label"), plain_loss(&seen, p, 0.2));
    images_close(&images);
    model_destroy(student);
    model_destroy(teacher);
}

#define ALL                                                                              \
    "{\"flip\": true, \"crop\": 2, \"resized_crop\": [0.3, 1], \"erase\": 0.5, "         \
    "\"erase_fill\": \"noise\", \"mixup\": 0.8, \"cutmix\": 1}"

/* Trains for two epochs; micro-batches of `micro` samples. */
static Model *trained(Images *images, int micro, int threads, bool augment,
                      double *loss) {
    char step[300];
    Model *model = toy_vit(6);
    snprintf(step, sizeof step,
             "finetune: {data: images, epochs: 2, batch_size: 6, shards: 3, "
             "micro_batch: %d, lr: 1.0e-3, optimizer: sgd, augment: %s}",
             micro, augment ? "true" : "false");
    *loss = number(run_step(model, images, NULL, step, threads), "last_loss");
    return model;
}

static double largest_difference(const Model *a, const Model *b) {
    double largest = 0;
    for (int i = 0; i < a->graph->storage_count; i++) {
        const Tensor *x = &a->graph->storages[i]->tensor;
        const Tensor *y = &b->graph->storages[i]->tensor;
        const float *p = tensor_data(x), *q = tensor_data(y);
        for (int64_t k = 0; k < tensor_count(x); k++)
            largest = fmax(largest, fabs((double)p[k] - (double)q[k]));
    }
    return largest;
}

static void test_determinism(void **state) {
    (void)state;
    Images images;
    double first, loss, without;
    images_open(&images, ALL, false);
    Model *one = trained(&images, 1, 1, true, &first);
    /* four steps with momentum 0.9, of gradients of size 1, of weights below 1 */
    const double gradient = 3 * loss_tolerance(one->graph, 1);
    const double tolerance = training_tolerance(4, 1e-3, 1 / (1 - 0.9), gradient, 1);
    for (int threads = 1; threads <= 3; threads++) {
        Model *same = trained(&images, 1, threads, true, &loss);
        assert_true(largest_difference(one, same) == 0);
        assert_true(loss == first);
        model_destroy(same);
        Model *pairs = trained(&images, 2, threads, true, &loss);
        assert_true(largest_difference(one, pairs) <= tolerance);
        assert_within(loss, first, loss_tolerance(one->graph, first));
        model_destroy(pairs);
    }
    Model *plain = trained(&images, 1, 1, false, &without);
    assert_true(largest_difference(one, plain) > 2 * tolerance);
    model_destroy(plain);
    model_destroy(one);
    images_close(&images);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_soft_targets),
        cmocka_unit_test(test_smoothing),
        cmocka_unit_test(test_distill),
        cmocka_unit_test(test_determinism),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
