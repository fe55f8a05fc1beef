/* Training: the same bytes at any number of threads, optimisers against plain scalar
 * references, schedules, what stays untouched, and every error. */
#include "exec/ops.h"
#include "exec/schedule.h"
#include "exec/train.h"
#include "ir/random.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 100, WIDTH = 8, HIDDEN = 16, CLASSES = 3 };

/* ---- data ---- */

typedef struct Toy {
    Batches batches;
    Column columns[2];
    int64_t bad_label; /* sample with a label out of range; -1 = none */
    bool infinite;     /* features are infinite */
} Toy;

static float toy_feature(int64_t sample, int64_t i) {
    return (float)random_normal(5, (uint64_t)(sample * WIDTH + i));
}

static int32_t toy_label(int64_t sample) {
    int best = 0;
    for (int c = 1; c < CLASSES; c++)
        if (toy_feature(sample, c) > toy_feature(sample, best)) best = c;
    return best;
}

static Status toy_fetch(const Batches *self, const int64_t *index, int64_t n,
                        uint64_t key, void *const *dst, Diag *diag) {
    const Toy *toy = (const Toy *)self;
    (void)diag;
    for (int64_t s = 0; s < n; s++) {
        for (int64_t i = 0; i < WIDTH; i++)
            ((float *)dst[0])[s * WIDTH + i] =
                toy->infinite ? INFINITY : toy_feature(index[s], i) + (key ? 0.125f : 0);
        ((int32_t *)dst[1])[s] =
            index[s] == toy->bad_label ? CLASSES + 6 : toy_label(index[s]);
    }
    return STATUS_OK;
}

static void toy_destroy(Batches *self) {
    (void)self;
}

static void toy_open(Toy *toy) {
    *toy = (Toy){.bad_label = -1};
    toy->columns[0] = (Column){"x", {.dtype = DTYPE_F32, .rank = 1, .dim = {WIDTH}}};
    toy->columns[1] = (Column){"labels", {.dtype = DTYPE_I32}};
    toy->batches = (Batches){.name = "toy",
                             .count = SAMPLES,
                             .columns = toy->columns,
                             .column_count = 2,
                             .classes = CLASSES,
                             .fetch = toy_fetch,
                             .destroy = toy_destroy};
}

/* ---- model ---- */

typedef struct Fixture {
    Arena *arena;
    Diag *diag;
    Graph *graph;
    Node *loss, *logits, *parts[2];
    Toy toy;
} Fixture;

static Node *make(Fixture *f, const char *op, Node *const *in, int count,
                  const char *attrs) {
    Node *node = graph_insert(f->graph, NULL, op_find(f->graph->ops, op), in, count);
    if (attrs) assert_ok(node_set(f->graph, node, f->diag, "%s", attrs), f->diag);
    assert_ok(node_infer(node, f->diag), f->diag);
    return node;
}

static Node *weight(Fixture *f, const char *name, int rank, int64_t a, int64_t b) {
    const int64_t dim[] = {a, b};
    const Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    Storage *storage = NULL;
    assert_ok(graph_add_storage(&storage, f->graph, name, &shape, f->diag), f->diag);
    assert_ok(tensor_create(&storage->tensor, DTYPE_F32, rank, dim, f->diag), f->diag);
    void *data = NULL;
    assert_ok(tensor_writable(&storage->tensor, &data, f->diag), f->diag);
    const uint64_t key = random_key_name(1, name);
    for (int64_t i = 0; i < tensor_count(&shape); i++)
        ((float *)data)[i] = (float)(0.4 * random_normal(key, (uint64_t)i));
    return graph_param(f->graph, storage);
}

static Node *linear(Fixture *f, Node *x, const char *w, const char *b, int64_t to,
                    int64_t from) {
    Node *in[] = {x, weight(f, w, 2, to, from), weight(f, b, 1, to, 0)};
    return make(f, "linear", in, 3, NULL);
}

static void model_open(Fixture *f, double dropout) {
    *f = (Fixture){.arena = arena_create(), .diag = diag_create()};
    f->graph = graph_create(f->arena, ops_table());
    toy_open(&f->toy);
    const Type features = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, WIDTH}};
    const Type classes = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    Node *x = graph_input(f->graph, "x", &features);
    Node *labels = graph_input(f->graph, "labels", &classes);
    Node *h = linear(f, x, "in.weight", "in.bias", HIDDEN, WIDTH);
    h = make(f, "activation", &h, 1, "fn=tanh");
    char rate[32];
    snprintf(rate, sizeof rate, "rate=%g", dropout);
    h = make(f, "dropout", &h, 1, rate);
    f->logits = linear(f, h, "out.weight", "out.bias", CLASSES, HIDDEN);
    f->parts[0] = make(f, "cross_entropy", (Node *[]){f->logits, labels}, 2, NULL);
    f->parts[1] =
        make(f, "cross_entropy", (Node *[]){f->logits, labels}, 2, "smoothing=0.1");
    f->loss = make(f, "weighted_sum", f->parts, 2, "weights=[0.75, 0.25]");
    weight(f, "unused", 2, 3, 3);
}

static void model_close(Fixture *f) {
    graph_release(f->graph);
    arena_destroy(f->arena);
    diag_destroy(f->diag);
}

static Status run_training(Fixture *f, const TrainOptions *options, uint64_t seed,
                           int threads, TrainReport *report) {
    return train(f->graph, f->loss, f->parts, 2, &f->toy.batches, options, seed, threads,
                 NULL, f->arena, report, f->diag);
}

/* All weights one after the other. */
enum { WEIGHTS = HIDDEN * WIDTH + HIDDEN + CLASSES * HIDDEN + CLASSES + 9 };

static void copy_weights(const Graph *graph, float *out) {
    for (int i = 0; i < graph->storage_count; i++) {
        const Tensor *tensor = &graph->storages[i]->tensor;
        memcpy(out, tensor_data(tensor), tensor_bytes(tensor));
        out += tensor_count(tensor);
    }
}

static TrainOptions usual_options(void) {
    TrainOptions options = train_defaults;
    options.epochs = 3;
    options.batch_size = 32; /* the last batch of an epoch has 4 */
    options.shards = 5;
    options.micro_batch = 3;
    options.lr = 0.02;
    options.ema = 0.9;
    options.augment = true;
    return options;
}

/* ---- determinism ---- */

static void train_weights(const TrainOptions *options, uint64_t seed, int threads,
                          float *out, TrainReport *report) {
    Fixture f;
    model_open(&f, 0.3);
    assert_ok(run_training(&f, options, seed, threads, report), f.diag);
    copy_weights(f.graph, out);
    model_close(&f);
}

static void test_threads(void **state) {
    (void)state;
    const TrainOptions options = usual_options();
    float one[WEIGHTS], other[WEIGHTS];
    TrainReport first, report;
    train_weights(&options, 1, 1, one, &first);
    for (int threads = 2; threads <= 3; threads++) {
        train_weights(&options, 1, threads, other, &report);
        assert_memory_equal(one, other, sizeof one);
        assert_true(first.last_loss == report.last_loss);
        assert_true(first.largest_norm == report.largest_norm);
    }
    train_weights(&options, 2, 1, other, &report);
    assert_memory_not_equal(one, other, sizeof one);
    TrainOptions shifted = options;
    shifted.seed = 1;
    train_weights(&shifted, 0, 2, other, &report);
    assert_memory_equal(one, other, sizeof one);
    shifted.augment = false;
    train_weights(&shifted, 0, 2, other, &report);
    assert_memory_not_equal(one, other, sizeof one);
}

static void test_report(void **state) {
    (void)state;
    Fixture f;
    TrainReport report;
    TrainOptions options = usual_options();
    options.epochs = 30;
    options.micro_batch = 0;
    model_open(&f, 0);
    assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
    assert_int_equal(report.steps, 30 * 4);
    assert_int_equal(report.curve_count, 30);
    assert_int_equal(report.curve_step[29], 120);
    assert_true(report.curve_loss[0] == report.first_loss);
    assert_true(report.curve_loss[29] == report.last_loss);
    assert_true(report.last_loss < 0.5 * report.first_loss);
    const double sum = 0.75 * report.part_loss[0] + 0.25 * report.part_loss[1];
    assert_true(fabs(sum - report.last_loss) < 1e-6);
    model_close(&f);
    model_open(&f, 0);
    options.steps = 10;
    options.log_every = 4;
    assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
    assert_int_equal(report.steps, 10);
    assert_int_equal(report.curve_count, 3);
    assert_int_equal(report.curve_step[2], 10);
    model_close(&f);
}

/* Frozen weights, and weights that the loss does not depend on, keep every bit. */
static void test_frozen(void **state) {
    (void)state;
    Fixture f;
    TrainReport report;
    TrainOptions options = usual_options();
    const char *freeze[] = {"in.*", "out.bias"};
    options.freeze = (StringList){freeze, 2};
    model_open(&f, 0);
    float before[WEIGHTS], after[WEIGHTS];
    copy_weights(f.graph, before);
    assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
    copy_weights(f.graph, after);
    const int first = HIDDEN * WIDTH + HIDDEN, out = CLASSES * HIDDEN;
    assert_memory_equal(before, after, (size_t)first * sizeof(float));
    assert_memory_not_equal(before + first, after + first, (size_t)out * sizeof(float));
    assert_memory_equal(before + first + out, after + first + out,
                        (CLASSES + 9) * sizeof(float));
    for (int i = 0; i < f.graph->storage_count; i++)
        assert_false(f.graph->storages[i]->frozen);
    const char *all[] = {"*"};
    options.freeze = (StringList){all, 1};
    assert_int_equal(run_training(&f, &options, 1, 1, &report), STATUS_MODEL);
    model_close(&f);
}

/* ---- optimisers against a scalar reference ---- */

/* The model above in double precision, without dropout; all samples are one batch. */
typedef struct Reference {
    double w[WEIGHTS], g[WEIGHTS], m[WEIGHTS], v[WEIGHTS], average[WEIGHTS];
    double lr, norm;
} Reference;

static void reference_sample(Reference *r, int64_t sample) {
    const double *w1 = r->w, *b1 = w1 + HIDDEN * WIDTH, *w2 = b1 + HIDDEN,
                 *b2 = w2 + CLASSES * HIDDEN;
    double *g1 = r->g, *gb1 = g1 + HIDDEN * WIDTH, *g2 = gb1 + HIDDEN,
           *gb2 = g2 + CLASSES * HIDDEN;
    double h[HIDDEN], dh[HIDDEN] = {0}, p[CLASSES], sum = 0;
    for (int i = 0; i < HIDDEN; i++) {
        h[i] = b1[i];
        for (int k = 0; k < WIDTH; k++)
            h[i] += w1[i * WIDTH + k] * (double)toy_feature(sample, k);
        h[i] = tanh(h[i]);
    }
    for (int c = 0; c < CLASSES; c++) {
        double z = b2[c];
        for (int i = 0; i < HIDDEN; i++) z += w2[c * HIDDEN + i] * h[i];
        sum += p[c] = exp(z);
    }
    for (int c = 0; c < CLASSES; c++) {
        const double target =
            0.975 * (c == toy_label(sample)) + 0.025 / CLASSES; /* of both parts */
        const double dz = (p[c] / sum - target) / SAMPLES;
        gb2[c] += dz;
        for (int i = 0; i < HIDDEN; i++) {
            g2[c * HIDDEN + i] += dz * h[i];
            dh[i] += dz * w2[c * HIDDEN + i];
        }
    }
    for (int i = 0; i < HIDDEN; i++) {
        const double da = dh[i] * (1 - h[i] * h[i]);
        gb1[i] += da;
        for (int k = 0; k < WIDTH; k++)
            g1[i * WIDTH + k] += da * (double)toy_feature(sample, k);
    }
}

static void reference_gradient(Reference *r, double clip) {
    memset(r->g, 0, sizeof r->g);
    for (int64_t s = 0; s < SAMPLES; s++) reference_sample(r, s);
    r->norm = 0;
    for (int i = 0; i < WEIGHTS; i++) r->norm += r->g[i] * r->g[i];
    r->norm = sqrt(r->norm);
    if (clip > 0 && r->norm > clip)
        for (int i = 0; i < WEIGHTS; i++) r->g[i] *= clip / r->norm;
}

/* Whether weight i belongs to a matrix, and to the second layer. */
static bool is_matrix(int i) {
    const int b1 = HIDDEN * WIDTH, w2 = b1 + HIDDEN, b2 = w2 + CLASSES * HIDDEN;
    return i < b1 || (i >= w2 && i < b2);
}

static bool is_second(int i) {
    return i >= HIDDEN * WIDTH + HIDDEN;
}

static void reference_step(Reference *r, const TrainOptions *o, int step) {
    const double t = step + 1;
    reference_gradient(r, o->clip);
    for (int i = 0; i < WEIGHTS - 9; i++) {
        const double lr = o->lr * (is_second(i) ? 0.5 : 1);
        if (is_matrix(i)) r->w[i] *= 1 - lr * o->weight_decay;
        if (o->optimizer == 0) {
            r->m[i] = o->beta1 * r->m[i] + (1 - o->beta1) * r->g[i];
            r->v[i] = o->beta2 * r->v[i] + (1 - o->beta2) * r->g[i] * r->g[i];
            const double m = r->m[i] / (1 - pow(o->beta1, t));
            r->w[i] -= lr * m / (sqrt(r->v[i] / (1 - pow(o->beta2, t))) + o->eps);
        } else {
            r->m[i] = o->momentum * r->m[i] + r->g[i];
            r->w[i] -= lr * r->m[i];
        }
    }
    const double decay = fmin(o->ema, (1 + t) / (10 + t));
    for (int i = 0; i < WEIGHTS; i++)
        r->average[i] = decay * r->average[i] + (1 - decay) * r->w[i];
}

static void compare_with_reference(int optimizer, double momentum, double clip,
                                   double ema) {
    Fixture f;
    TrainReport report;
    TrainOptions options = train_defaults;
    const char *groups[] = {"out.*=0.5"};
    options.steps = 5;
    options.batch_size = 1000; /* more than there are */
    options.optimizer = optimizer;
    options.lr = 0.01;
    options.eps = 1e-4;
    options.momentum = momentum;
    options.clip = clip;
    options.ema = ema;
    options.warmup = 0;
    options.schedule = 2; /* constant */
    options.lr_groups = (StringList){groups, 1};
    model_open(&f, 0);
    float start[WEIGHTS], end[WEIGHTS];
    Reference *r = memory_alloc(1, sizeof *r);
    copy_weights(f.graph, start);
    for (int i = 0; i < WEIGHTS; i++) r->w[i] = r->average[i] = (double)start[i];
    double largest = 0;
    for (int step = 0; step < 5; step++) {
        reference_step(r, &options, step);
        largest = fmax(largest, r->norm);
    }
    assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
    copy_weights(f.graph, end);
    for (int i = 0; i < WEIGHTS; i++) {
        const double want = ema > 0 ? r->average[i] : r->w[i];
        if (!(fabs(want - (double)end[i]) < 1e-6))
            fail_msg("weight %d: expected %.9g, got %.9g", i, want, (double)end[i]);
    }
    assert_true(fabs(report.largest_norm - largest) < 1e-5 * largest);
    free(r);
    model_close(&f);
}

static void test_adamw(void **state) {
    (void)state;
    compare_with_reference(0, 0, 0, 0);
    compare_with_reference(0, 0, 0.05, 0);
    compare_with_reference(0, 0, 0, 0.9);
    compare_with_reference(0, 0, 0, 0.2);
}

static void test_sgd(void **state) {
    (void)state;
    compare_with_reference(1, 0.9, 0, 0);
    compare_with_reference(1, 0, 0.05, 0);
    compare_with_reference(1, 0.5, 0.05, 0.5);
}

/* Any cut into shards and micro-batches gives the same gradient up to rounding. */
static void test_cuts(void **state) {
    (void)state;
    static const int64_t cuts[][2] = {{1, 0}, {1, 7}, {3, 100}, {100, 1}, {1024, 5}};
    TrainOptions options = usual_options();
    options.epochs = 1;
    float first[WEIGHTS], other[WEIGHTS];
    TrainReport report;
    options.eps = 1e-3;
    train_weights(&options, 1, 2, first, &report);
    for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
        options.shards = cuts[c][0];
        options.micro_batch = cuts[c][1];
        train_weights(&options, 1, 2, other, &report);
        for (int i = 0; i < WEIGHTS; i++) assert_true(fabsf(first[i] - other[i]) < 1e-5f);
    }
}

static void check_factor(const TrainOptions *options, int64_t step, double expected) {
    const double got = schedule_factor(options, step, 100);
    if (fabs(got - expected) > 1e-12)
        fail_msg("step %d: expected %g, got %g", (int)step, expected, got);
}

static void test_schedules(void **state) {
    (void)state;
    TrainOptions options = train_defaults;
    options.warmup = 0.2;
    options.final_lr = 0.1;
    for (options.schedule = 0; options.schedule < 3; options.schedule++) {
        check_factor(&options, 0, 0.05);
        check_factor(&options, 9, 0.5);
        check_factor(&options, 19, 1);
        check_factor(&options, 20, 1);
    }
    options.schedule = 0;
    check_factor(&options, 60, 0.55);
    check_factor(&options, 40, 0.1 + 0.9 * 0.5 * (1 + cos(M_PI / 4)));
    options.schedule = 1;
    check_factor(&options, 40, 0.775);
    check_factor(&options, 99, 0.1 + 0.9 / 80);
    options.schedule = 2;
    check_factor(&options, 99, 1);
    options.warmup = 1;
    check_factor(&options, 99, 1);
}

/* ---- errors ---- */

static void expect_message(Diag *diag, const char *const *parts, int count) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    diag_print(diag, out);
    fclose(out);
    for (int i = 0; i < count; i++)
        if (!strstr(text, parts[i])) fail_msg("no \"%s\" in: %s", parts[i], text);
    free(text);
    diag_clear(diag);
}

static void expect_failure(Fixture *f, const TrainOptions *options, const char *first,
                           const char *second) {
    float before[WEIGHTS], after[WEIGHTS];
    TrainReport report;
    copy_weights(f->graph, before);
    assert_int_equal(run_training(f, options, 1, 2, &report), STATUS_MODEL);
    expect_message(f->diag, (const char *[]){first, second}, 2);
    copy_weights(f->graph, after);
    assert_memory_equal(before, after, sizeof before);
}

static void test_errors(void **state) {
    (void)state;
    Fixture f;
    TrainOptions options = usual_options();
    options.batch_size = SAMPLES;
    model_open(&f, 0);
    f.toy.columns[0].name = "pixels";
    expect_failure(&f, &options, "x: ", "\"toy\"");
    toy_open(&f.toy);
    f.toy.columns[0].type.dim[0] = WIDTH + 1;
    expect_failure(&f, &options, "f32[8]", "f32[9]");
    toy_open(&f.toy);
    f.toy.columns[1].type.dtype = DTYPE_F32;
    expect_failure(&f, &options, "labels", "i32[]");
    toy_open(&f.toy);
    f.toy.bad_label = 73;
    expect_failure(&f, &options, "sample 73", "0 to 2, found 9");
    toy_open(&f.toy);
    f.toy.infinite = true;
    expect_failure(&f, &options, "step 1", "cross_entropy");
    toy_open(&f.toy);
    f.toy.batches.count = 0;
    expect_failure(&f, &options, "toy", "samples");
    toy_open(&f.toy);
    TrainReport report;
    const char *groups[] = {"out.*"};
    options.lr_groups = (StringList){groups, 1};
    assert_int_equal(run_training(&f, &options, 1, 1, &report), STATUS_RECIPE);
    expect_message(f.diag, (const char *[]){"lr_groups"}, 1);
    model_close(&f);
}

/* ---- watch ---- */

typedef struct Watcher {
    int64_t done, total;
    int asked, allowed, told;
} Watcher;

static bool watcher_cancelled(void *self) {
    Watcher *watcher = self;
    return watcher->asked++ >= watcher->allowed;
}

static void watcher_progress(void *self, int64_t done, int64_t total, const char *text) {
    Watcher *watcher = self;
    assert_true(strncmp(text, "loss ", 5) == 0);
    watcher->done = done;
    watcher->total = total;
    watcher->told++;
}

static void test_watch(void **state) {
    (void)state;
    Fixture f;
    TrainReport report;
    TrainOptions options = usual_options();
    Watcher watcher = {.allowed = 1 << 20};
    const Watch watch = {&watcher, watcher_progress, watcher_cancelled};
    model_open(&f, 0);
    assert_ok(train(f.graph, f.loss, NULL, 0, &f.toy.batches, &options, 1, 2, &watch,
                    f.arena, &report, f.diag),
              f.diag);
    assert_int_equal(watcher.done, 12);
    assert_int_equal(watcher.total, 12);
    watcher.allowed = 0;
    float before[WEIGHTS], after[WEIGHTS];
    copy_weights(f.graph, before);
    assert_int_equal(train(f.graph, f.loss, NULL, 0, &f.toy.batches, &options, 1, 2,
                           &watch, f.arena, &report, f.diag),
                     STATUS_INTERRUPTED);
    expect_message(f.diag, (const char *[]){"0 of 12 steps"}, 1);
    copy_weights(f.graph, after);
    assert_memory_equal(before, after, sizeof before);
    model_close(&f);
}

/* ---- forward ---- */

typedef struct Sink {
    int64_t next;
    float logits[SAMPLES * CLASSES];
} Sink;

static Status sink_take(void *self, int64_t first, int64_t n, const float *const *values,
                        const void *const *columns, Diag *diag) {
    Sink *sink = self;
    (void)diag;
    assert_int_equal(first, sink->next);
    sink->next += n;
    memcpy(sink->logits + first * CLASSES, values[0],
           (size_t)n * CLASSES * sizeof(float));
    for (int64_t s = 0; s < n; s++) {
        assert_int_equal(((const int32_t *)columns[1])[s], toy_label(first + s));
        assert_true(((const float *)columns[0])[s * WIDTH] == toy_feature(first + s, 0));
    }
    return STATUS_OK;
}

static Status sink_ignore(void *self, int64_t first, int64_t n,
                          const float *const *values, const void *const *columns,
                          Diag *diag) {
    (void)self, (void)n, (void)values, (void)columns, (void)diag;
    assert_true(first < 33);
    return STATUS_OK;
}

static void test_forward(void **state) {
    (void)state;
    Fixture f;
    model_open(&f, 0.5);
    Sink *first = memory_alloc(1, sizeof *first), *other = memory_alloc(1, sizeof *other);
    assert_ok(forward_batches(f.graph, &f.logits, 1, &f.toy.batches, 0, 16, 1, NULL,
                              sink_take, first, f.diag),
              f.diag);
    assert_int_equal(first->next, SAMPLES);
    assert_ok(forward_batches(f.graph, &f.logits, 1, &f.toy.batches, 0, 16, 3, NULL,
                              sink_take, other, f.diag),
              f.diag);
    assert_memory_equal(first->logits, other->logits, sizeof first->logits);
    other->next = 0;
    assert_ok(forward_batches(f.graph, &f.logits, 1, &f.toy.batches, 20, 64, 2, NULL,
                              sink_take, other, f.diag),
              f.diag);
    assert_int_equal(other->next, 20);
    Watcher watcher = {.allowed = 0};
    const Watch watch = {&watcher, NULL, watcher_cancelled};
    assert_int_equal(forward_batches(f.graph, &f.logits, 1, &f.toy.batches, 0, 16, 2,
                                     &watch, sink_take, other, f.diag),
                     STATUS_INTERRUPTED);
    diag_clear(f.diag);
    f.toy.bad_label = 33;
    Node *loss[] = {f.loss};
    assert_int_equal(forward_batches(f.graph, loss, 1, &f.toy.batches, 0, 16, 2, NULL,
                                     sink_ignore, NULL, f.diag),
                     STATUS_MODEL);
    expect_message(f.diag, (const char *[]){"sample 33", "found 9"}, 2);
    free(first);
    free(other);
    model_close(&f);
}

/* ---- memory ---- */

static void test_bytes(void **state) {
    (void)state;
    Fixture f;
    model_open(&f, 0);
    graph_release(f.graph); /* shapes are enough */
    TrainOptions options = usual_options();
    size_t one = 0, two = 0, plain = 0;
    assert_ok(train_bytes(f.graph, f.loss, &options, 1, &one, f.diag), f.diag);
    assert_ok(train_bytes(f.graph, f.loss, &options, 2, &two, f.diag), f.diag);
    options.ema = 0;
    assert_ok(train_bytes(f.graph, f.loss, &options, 1, &plain, f.diag), f.diag);
    /* five gradients, two moments and the average, each storage a multiple of 16 */
    const size_t weights = (HIDDEN * WIDTH + HIDDEN + CLASSES * HIDDEN + 16 + 16);
    assert_int_equal(one - plain, weights * sizeof(float));
    assert_true(one > 8 * weights * sizeof(float));
    assert_true(two > one);
    assert_int_equal(two - one, one - 8 * weights * sizeof(float));
    model_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_report),
        cmocka_unit_test(test_frozen),    cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_sgd),       cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_schedules), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_watch),     cmocka_unit_test(test_forward),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests_name("train", tests, NULL, NULL);
}
