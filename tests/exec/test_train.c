/* Training: the same bytes at any number of threads, what stays untouched, the report,
 * every error, and forward runs over data. */
#include "tests/exec/train_fixture.h"

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
    assert_int_equal(report.row_count, 30);
    assert_int_equal(report.rows[29].step, 120);
    assert_true(report.rows[0].loss == report.first_loss);
    assert_true(report.rows[29].loss == report.last_loss);
    assert_true(report.last_loss < 0.5 * report.first_loss);
    const double sum = 0.75 * report.part_loss[0] + 0.25 * report.part_loss[1];
    assert_within(sum, report.last_loss, /* of parts that are floats in the graph */
                  rounding_tolerance(PRECISION_F32, 4, sum));
    model_close(&f);
    model_open(&f, 0);
    options.steps = 10;
    options.log_every = 4;
    assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
    assert_int_equal(report.steps, 10);
    assert_int_equal(report.row_count, 3);
    assert_int_equal(report.rows[2].step, 10);
    model_close(&f);
}

/* Trains; out.weight changes, and every other weight keeps every bit. */
static void check_out_alone_moves(Fixture *f, const TrainOptions *options) {
    TrainReport report;
    float before[WEIGHTS], after[WEIGHTS];
    copy_weights(f->graph, before);
    assert_ok(run_training(f, options, 1, 2, &report), f->diag);
    copy_weights(f->graph, after);
    const int first = HIDDEN * WIDTH + HIDDEN, out = CLASSES * HIDDEN;
    assert_memory_equal(before, after, (size_t)first * sizeof(float));
    assert_memory_not_equal(before + first, after + first, (size_t)out * sizeof(float));
    assert_memory_equal(before + first + out, after + first + out,
                        (CLASSES + 9) * sizeof(float));
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
    check_out_alone_moves(&f, &options);
    for (int i = 0; i < f.graph->storage_count; i++)
        assert_false(f.graph->storages[i]->frozen);
    const char *all[] = {"*"};
    options.freeze = (StringList){all, 1};
    assert_int_equal(run_training(&f, &options, 1, 1, &report), STATUS_MODEL);
    model_close(&f);
}

/* With `only`, weights that it does not name keep every bit, and those that `freeze`
 * names too; patterns may have * anywhere. */
static void test_only(void **state) {
    (void)state;
    Fixture f;
    TrainReport report;
    TrainOptions options = usual_options();
    const char *only[] = {"*.weight"}, *freeze[] = {"in.*"}, *none[] = {"*.weights"};
    options.only = (StringList){only, 1};
    options.freeze = (StringList){freeze, 1};
    model_open(&f, 0);
    check_out_alone_moves(&f, &options);
    options.only = (StringList){none, 1};
    assert_int_equal(run_training(&f, &options, 1, 1, &report), STATUS_MODEL);
    model_close(&f);
}

static void test_patterns(void **state) {
    (void)state;
    static const char *const yes[][2] = {
        {"a.b", "a.b"},    {"a.*", "a."},   {"*", ""},    {"*.w", "a.w.w"},
        {"a*b*c", "abbc"}, {"*ab", "aaab"}, {"a**", "a"}, {"*.map.*", "x.3.map.weight"}};
    static const char *const no[][2] = {{"a.b", "a.bc"}, {"a.bc", "a.b"},  {"", "a"},
                                        {"*.w", "a.wx"}, {"a*b*c", "acb"}, {"a*a", "a"}};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(name_matches(yes[i][0], yes[i][1]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(name_matches(no[i][0], no[i][1]));
}

/* Any cut into shards and micro-batches gives the same gradient up to rounding. */
static void test_cuts(void **state) {
    (void)state;
    static const int64_t cuts[][2] = {{1, 0}, {1, 7}, {3, 100}, {100, 1}, {1024, 5}};
    TrainOptions options = usual_options();
    options.epochs = 1;
    float first[WEIGHTS], other[WEIGHTS];
    TrainReport report;
    options.eps = 1; /* so that an update differs no more than its gradient does */
    train_weights(&options, 1, 2, first, &report);
    Fixture f;
    model_open(&f, 0.3);
    const double tolerance = weight_tolerance(&f, &options, 4, 1, report.largest_norm);
    model_close(&f);
    for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
        options.shards = cuts[c][0];
        options.micro_batch = cuts[c][1];
        train_weights(&options, 1, 2, other, &report);
        for (int i = 0; i < WEIGHTS; i++) assert_within(first[i], other[i], tolerance);
    }
}

/* ---- errors ---- */

static void expect_message(Diag *diag, const char *const *parts, int count) {
    char *text = diag_text(diag);
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

static Status sink_take(void *self, const Fetch *what, const float *const *values,
                        const void *const *columns, Diag *diag) {
    Sink *sink = self;
    const int64_t first = what->index[0], n = what->n;
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

static Status sink_ignore(void *self, const Fetch *what, const float *const *values,
                          const void *const *columns, Diag *diag) {
    (void)self, (void)values, (void)columns, (void)diag;
    assert_true(what->index[0] < 33);
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
    assert_ok(bytes_of_training(f.graph, f.loss, &options, 1, &one, f.diag), f.diag);
    assert_ok(bytes_of_training(f.graph, f.loss, &options, 2, &two, f.diag), f.diag);
    options.ema = 0;
    assert_ok(bytes_of_training(f.graph, f.loss, &options, 1, &plain, f.diag), f.diag);
    /* five shards: three gradients, or four where two lanes run two and three of them;
     * two moments and the average; each storage a multiple of 16 */
    const size_t weights = (HIDDEN * WIDTH + HIDDEN + CLASSES * HIDDEN + 16 + 16);
    assert_int_equal(one - plain, weights * sizeof(float));
    assert_true(one > 6 * weights * sizeof(float));
    assert_true(two > one);
    assert_int_equal(two - one, one - 5 * weights * sizeof(float));
    options.moments = MOMENTS_BF16;
    assert_ok(bytes_of_training(f.graph, f.loss, &options, 1, &one, f.diag), f.diag);
    assert_int_equal(plain - one, weights * sizeof(float));
    model_close(&f);
}

/* Shards of a classifier with so many hidden numbers, of which there are shapes alone. */
static int64_t shards_of(int64_t hidden, int64_t shards) {
    Fixture f = {.arena = arena_create(), .diag = diag_create()};
    f.graph = graph_create(f.arena, ops_table());
    const Type features = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, WIDTH}};
    const Type classes = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    Node *x = graph_input(f.graph, "x", &features);
    Node *labels = graph_input(f.graph, "labels", &classes);
    const int64_t dims[2][2] = {{hidden, WIDTH}, {CLASSES, hidden}};
    for (int i = 0; i < 2; i++) {
        Storage *storage = NULL;
        const Tensor shape = tensor_shape(DTYPE_F32, 2, dims[i]);
        assert_ok(graph_add_storage(&storage, f.graph, i ? "out" : "in", &shape, f.diag),
                  f.diag);
        x = make(&f, "linear", (Node *[]){x, graph_param(f.graph, storage), NULL}, 3,
                 NULL);
    }
    f.loss = make(&f, "cross_entropy", (Node *[]){x, labels}, 2, NULL);
    TrainOptions options = train_defaults;
    TrainNeeds needs;
    options.shards = shards;
    assert_ok(train_plan(f.graph, f.loss, &options, 3, &needs, f.diag), f.diag);
    model_close(&f);
    return needs.shards;
}

/* A gradient of up to 128 MiB has two where nobody says how many; no machine counts. */
static void test_shards(void **state) {
    (void)state;
    const int64_t most = ((int64_t)32 << 20) / (WIDTH + CLASSES);
    assert_int_equal(shards_of(most - 16, 0), 2);
    assert_int_equal(shards_of(most + 16, 0), 1);
    assert_int_equal(shards_of(most + 16, 2), 2);
    assert_int_equal(shards_of(100, 5), 5);
}

/* ---- samples that belong together ---- */

/* Counts fetches that take a group apart or bring it in another order. */
static _Atomic int torn;

static Status grouped_fetch(const Batches *self, const Fetch *what, void *const *dst,
                            Diag *diag) {
    for (int64_t i = 0; i < what->n; i++)
        if (what->n % self->group || what->index[i] % self->group != i % self->group ||
            (i % self->group && what->index[i] != what->index[i - 1] + 1))
            torn++;
    return toy_fetch(self, what, dst, diag);
}

static void test_groups(void **state) {
    (void)state;
    Fixture f;
    TrainReport report;
    TrainOptions options = usual_options();
    options.batch_size = 30; /* of 100 samples, the last one 10 */
    options.shards = 4;      /* of 10, 10, 5 and 5 samples */
    options.micro_batch = 0;
    model_open(&f, 0);
    f.toy.batches.fetch = grouped_fetch;
    f.toy.batches.group = 5;
    torn = 0;
    assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
    assert_int_equal(torn, 0);
    options.batch_size = 32;
    assert_int_equal(run_training(&f, &options, 1, 1, &report), STATUS_RECIPE);
    expect_message(f.diag, (const char *[]){"batch_size", "multiple of 5"}, 2);
    model_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),  cmocka_unit_test(test_report),
        cmocka_unit_test(test_frozen),   cmocka_unit_test(test_only),
        cmocka_unit_test(test_patterns), cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_errors),   cmocka_unit_test(test_watch),
        cmocka_unit_test(test_forward),  cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_shards),   cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests_name("train", tests, NULL, NULL);
}
