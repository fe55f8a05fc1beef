/* Calibration: rows and Gram matrices against sums in double over every sample alone,
 * with weights changed between the layers; padding, threads, ranks, bad values. The
 * program is one of the ranks; CTest starts it alone and, where the build has MPI, with
 * several. */
#include "exec/run/ranks.h"
#include "ir/random.h"
#include "ir/storage.h"
#include "passes/oneshot/calibration.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 37, LONGEST = 6, WORDS = 12, LAYERS = 3 };

/* ---- data: sentences of 2 to 6 tokens ---- */

static int64_t length_of(const Batches *self, int64_t i) {
    (void)self;
    return 2 + (i * 7) % (LONGEST - 1);
}

static int32_t value_of(const char *name, int64_t i, int64_t t) {
    const bool real = t < length_of(NULL, i);
    if (strcmp(name, "attention_mask") == 0) return real;
    if (strcmp(name, "token_type_ids") == 0) return real && t > 2;
    return real ? (int32_t)((i * 5 + t * t + 3 * t) % WORDS) : 0;
}

static Status fetch(const Batches *self, const Fetch *what, void *const *dst,
                    Diag *diag) {
    (void)diag;
    for (int c = 0; c < self->column_count; c++)
        for (int64_t k = 0; k < what->n * what->tokens; k++)
            ((int32_t *)dst[c])[k] = value_of(
                self->columns[c].name, what->index[k / what->tokens], k % what->tokens);
    return STATUS_OK;
}

static Batches sentences(int64_t count) {
    static const Column columns[] = {{"input_ids", {DTYPE_I32, 1, {DIM_T}}},
                                     {"attention_mask", {DTYPE_I32, 1, {DIM_T}}},
                                     {"token_type_ids", {DTYPE_I32, 1, {DIM_T}}}};
    return (Batches){.name = "sentences",
                     .count = count,
                     .columns = columns,
                     .column_count = 3,
                     .length = length_of,
                     .max_tokens = LONGEST,
                     .fetch = fetch};
}

/* ---- a step that calibrates ---- */

typedef struct Bench {
    Model *model;
    Batches data;
    RecipeInputs inputs;
    PassContext ctx;
    CalibrationOptions options;
    Calibration *c;
    Diag *diag;
} Bench;

static void bench_open(Bench *b, int64_t count, int64_t samples, int threads) {
    *b = (Bench){.model = configured_bert(LAYERS, 3),
                 .data = sentences(count),
                 .options = {.data = "d", .samples = samples, .damp = 0.01},
                 .diag = diag_create()};
    b->inputs.data = &b->data;
    b->ctx = (PassContext){.ops = b->model->graph->ops,
                           .arena = arena_create(),
                           .threads = threads,
                           .seed = 5,
                           .model = b->model,
                           .resources = inputs_resources(&b->inputs),
                           .source = {.key = "passes[0]"}};
    b->ctx.record = tree_new(b->ctx.arena, TREE_MAP, LOC_NONE);
}

static Status bench_start(Bench *b) {
    Node *last = graph_find(b->model->graph, "encoder", LAYERS - 1, ROLE_FFN_ACT);
    assert_non_null(last);
    return calibration_open(&b->c, &b->ctx, b->model->graph, &last, 1, &b->options,
                            b->diag);
}

static void bench_close(Bench *b) {
    calibration_close(b->c);
    model_destroy(b->model);
    arena_destroy(b->ctx.arena);
    diag_destroy(b->diag);
}

static Node *node_at(const Bench *b, int layer, Role role) {
    Node *node = graph_find(b->model->graph, "encoder", layer, role);
    assert_non_null(node);
    return node;
}

/* ---- the same by plain loops ---- */

/* Adds the rows of a value of one sample, run alone and without padding, in double. */
static int64_t add_sample(const Bench *b, Node *value, int64_t sample, double *sum,
                          double *mean) {
    const int64_t tokens = length_of(NULL, sample), K = node_width(value);
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = 1,
                                        [DIM_INDEX(DIM_T)] = tokens};
    Runner r;
    runner_open_sizes(&r, b->model->graph, sizes, PRECISION_F64, NULL, &value, 1);
    for (int c = 0; c < b->data.column_count; c++) {
        int32_t *input = workspace_input(r.workspace, b->data.columns[c].name);
        for (int64_t t = 0; input && t < tokens; t++)
            input[t] = value_of(b->data.columns[c].name, sample, t);
    }
    runner_run(&r);
    const double *x = workspace_value(r.workspace, value);
    for (int64_t t = 0; t < tokens; t++, x += K)
        for (int64_t i = 0; i < K; i++) {
            mean[i] += x[i];
            for (int64_t j = 0; j < K; j++) sum[i * K + j] += x[i] * x[j];
        }
    runner_close(&r);
    return tokens;
}

static void check_near(double found, double expected, double scale) {
    if (fabs(found - expected) > 2e-6 * scale)
        fail_msg("expected %.12g, found %.12g", expected, found);
}

/* Compares a Gram matrix with the sums over samples [0, count). */
static void check_gram(const Bench *b, Node *value, const Gram *gram, int64_t count) {
    const int64_t K = node_width(value);
    double *sum = calloc((size_t)(K * K), sizeof *sum), largest = 0;
    double *mean = calloc((size_t)K, sizeof *mean);
    int64_t rows = 0;
    for (int64_t s = 0; s < count; s++) rows += add_sample(b, value, s, sum, mean);
    assert_int_equal(gram->width, K);
    assert_int_equal(gram->rows, rows);
    for (int64_t i = 0; i < K; i++) largest = fmax(largest, sum[i * K + i]);
    for (int64_t i = 0; i < K * K; i++) check_near(gram->sum[i], sum[i], largest);
    for (int64_t i = 0; i < K; i++)
        check_near(gram->mean[i], mean[i] / (double)rows, sqrt(largest));
    free(sum);
    free(mean);
}

/* Halves all weights that a node reads. */
static void change(Bench *b, Node *node) {
    Node *leaf = node_operand(node, "weight");
    const Tensor *old = storage_tensor(leaf->storage);
    Tensor values;
    void *data;
    assert_ok(storage_blank(&values, &data, leaf->storage, DTYPE_F32, old->rank, old->dim,
                            b->diag),
              b->diag);
    tensor_read_f32(old, 0, tensor_count(old), data);
    for (int64_t i = 0; i < tensor_count(old); i++) ((float *)data)[i] *= 0.5F;
    assert_ok(
        storage_replace(b->model->graph, leaf, STORAGE_ALL_USERS, values, -1, b->diag),
        b->diag);
}

/* ---- tests ---- */

/* Layer by layer, each after what reads the values of the one before has changed; then
 * the first layer again. */
static void test_layers(void **state) {
    static const Role values[] = {ROLE_ATTENTION, ROLE_FFN_ACT};
    static const Role readers[] = {ROLE_OUT, ROLE_FFN_OUT};
    (void)state;
    Bench b;
    Gram gram;
    bench_open(&b, SAMPLES, SAMPLES, 2);
    assert_ok(bench_start(&b), b.diag);
    assert_int_equal(calibration_samples(b.c), SAMPLES);
    for (int step = 0; step <= 2 * LAYERS; step++) {
        const int layer = step / 2 % LAYERS, k = step % 2;
        if (step == 2 * LAYERS) calibration_restart(b.c);
        Node *value = node_at(&b, layer, values[k]);
        assert_ok(calibration_gram(b.c, &value, 1, &gram, b.diag), b.diag);
        check_gram(&b, value, &gram, SAMPLES);
        gram_destroy(&gram);
        change(&b, node_at(&b, layer, readers[k]));
    }
    bench_close(&b);
}

/* What layers give one after the other, each after what reads the one before has changed:
 * the rows of two values, summed up in their order, and a Gram matrix. */
enum { STEPS = 2 * LAYERS };
typedef struct Walk {
    double rows[STEPS];
    Gram grams[STEPS];
} Walk;

static Status weigh_rows(void *self, const CalibrationRows *rows, Diag *diag) {
    double *sum = self;
    (void)diag;
    for (int v = 0; v < 2; v++)
        for (int64_t i = 0; i < rows[v].count * rows[v].width; i++)
            *sum = *sum * 0.999 + (double)rows[v].x[i];
    return STATUS_OK;
}

static void walk_layers(Walk *walk, int threads) {
    static const Role values[] = {ROLE_ATTENTION, ROLE_FFN_ACT};
    static const Role readers[] = {ROLE_OUT, ROLE_FFN_OUT};
    Bench b;
    *walk = (Walk){0};
    bench_open(&b, SAMPLES, SAMPLES, threads);
    assert_ok(bench_start(&b), b.diag);
    for (int step = 0; step < STEPS; step++) {
        Node *value = node_at(&b, step / 2, values[step % 2]);
        Node *pair[] = {value, node_at(&b, LAYERS - 1, ROLE_NORM2)};
        assert_ok(calibration_gram(b.c, &value, 1, &walk->grams[step], b.diag), b.diag);
        assert_ok(calibration_rows(b.c, pair, 2, weigh_rows, &walk->rows[step], b.diag),
                  b.diag);
        change(&b, node_at(&b, step / 2, readers[step % 2]));
    }
    bench_close(&b);
}

static void walk_close(Walk *walk) {
    for (int step = 0; step < STEPS; step++) gram_destroy(&walk->grams[step]);
}

/* Before this process joins the others. */
static Walk alone;

static void test_ranks(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        Walk walk;
        walk_layers(&walk, threads);
        for (int step = 0; step < STEPS; step++) {
            const Gram *one = &alone.grams[step], *gram = &walk.grams[step];
            const size_t K = (size_t)gram->width;
            assert_true(walk.rows[step] == alone.rows[step]);
            assert_int_equal(gram->rows, one->rows);
            assert_memory_equal(gram->sum, one->sum, K * K * sizeof(double));
            assert_memory_equal(gram->mean, one->mean, K * sizeof(double));
        }
        walk_close(&walk);
    }
}

/* Several values at once, and the same bytes at any number of threads. */
static void test_threads(void **state) {
    (void)state;
    Gram grams[3][2];
    for (int threads = 1; threads <= 3; threads++) {
        Bench b;
        bench_open(&b, SAMPLES, SAMPLES, threads);
        assert_ok(bench_start(&b), b.diag);
        Node *values[] = {node_at(&b, 1, ROLE_ATTENTION), node_at(&b, 2, ROLE_FFN_ACT)};
        assert_ok(calibration_gram(b.c, values, 2, grams[threads - 1], b.diag), b.diag);
        for (int i = 0; i < 2; i++) {
            const Gram *one = &grams[0][i], *gram = &grams[threads - 1][i];
            const size_t K = (size_t)gram->width;
            check_gram(&b, values[i], gram, SAMPLES);
            assert_memory_equal(one->sum, gram->sum, K * K * sizeof(double));
            assert_memory_equal(one->mean, gram->mean, K * sizeof(double));
        }
        bench_close(&b);
    }
    for (int i = 0; i < 6; i++) gram_destroy(&grams[i / 2][i % 2]);
}

/* Inputs and outputs of a layer, row by row: they belong together. */
static Status count_pairs(void *self, const CalibrationRows *rows, Diag *diag) {
    double *difference = self;
    (void)diag;
    assert_int_equal(rows[0].count, rows[1].count);
    assert_int_equal(rows[0].width, rows[1].width);
    for (int64_t i = 0; i < rows[0].count * rows[0].width; i++)
        difference[1] += fabs((double)(rows[0].x[i] - rows[1].x[i]));
    difference[0] += (double)rows[0].count;
    return STATUS_OK;
}

static void test_rows(void **state) {
    (void)state;
    Bench b;
    double seen[2] = {0}, expected = 0;
    bench_open(&b, SAMPLES, SAMPLES, 1);
    assert_ok(bench_start(&b), b.diag);
    Node *norm = node_at(&b, 0, ROLE_NORM1);
    Node *pair[] = {norm, norm};
    assert_ok(calibration_rows(b.c, pair, 2, count_pairs, seen, b.diag), b.diag);
    for (int64_t s = 0; s < SAMPLES; s++) expected += (double)length_of(NULL, s);
    assert_true(seen[0] == expected && seen[1] == 0);
    bench_close(&b);
}

/* Fewer samples than the set has: as many different ones, the same for a seed. */
static void test_samples(void **state) {
    (void)state;
    double rows[3];
    for (int i = 0; i < 3; i++) {
        Bench b;
        Gram gram;
        bench_open(&b, SAMPLES, 9, 1);
        b.ctx.seed = i == 2 ? 6 : 5;
        assert_ok(bench_start(&b), b.diag);
        assert_int_equal(calibration_samples(b.c), 9);
        Node *value = node_at(&b, 0, ROLE_FFN_ACT);
        assert_ok(calibration_gram(b.c, &value, 1, &gram, b.diag), b.diag);
        rows[i] = gram.sum[0];
        gram_destroy(&gram);
        bench_close(&b);
    }
    assert_true(rows[0] == rows[1] && rows[0] != rows[2]);
}

static void expect_text(Diag *diag, const char *part) {
    char *text = diag_text(diag);
    if (!strstr(text, part)) fail_msg("expected \"%s\" in:\n%s", part, text);
    free(text);
}

static void test_bad(void **state) {
    (void)state;
    Bench b;
    bench_open(&b, 0, 9, 1);
    assert_int_equal(bench_start(&b), STATUS_MODEL);
    expect_text(b.diag, "expected samples to calibrate with, found none");
    bench_close(&b);

    bench_open(&b, 4, 9, 1);
    b.ctx.plan = true;
    assert_ok(bench_start(&b), b.diag);
    assert_null(b.c);
    expect_text(b.diag, "has 4 samples, all of which are used");
    bench_close(&b);

    bench_open(&b, 4, 9, 1);
    Gram gram;
    Node *norm = node_at(&b, 1, ROLE_NORM2);
    Tensor *weight = &node_operand(norm, "weight")->storage->tensor;
    void *data;
    assert_ok(tensor_writable(weight, &data, b.diag), b.diag);
    ((float *)data)[1] = NAN;
    assert_ok(bench_start(&b), b.diag);
    Node *value = node_at(&b, 2, ROLE_FFN_ACT);
    assert_int_equal(calibration_gram(b.c, &value, 1, &gram, b.diag), STATUS_MODEL);
    expect_text(b.diag, "encoder.2: a value of \"ffn_act\" is not finite, for sample ");
    bench_close(&b);
}

enum { WIDTH = 531, ROWS = 2500 };

/* Of rows of WIDTH, before this process joins the others. */
static Gram gram_alone;

static void fill_rows(float *x) {
    for (int i = 0; i < WIDTH * ROWS; i++)
        x[i] = i % WIDTH == 7 ? 0 : (float)random_normal(1, (uint64_t)i);
}

static void sum_alone(void) {
    Diag *diag = diag_create();
    float *x = malloc(sizeof(float) * WIDTH * ROWS);
    bool finite;
    fill_rows(x);
    assert_ok(gram_create(&gram_alone, WIDTH, diag), diag);
    gram_add(&gram_alone, x, ROWS, 1);
    assert_ok(gram_finish(&gram_alone, 1, &finite, diag), diag);
    free(x);
    diag_destroy(diag);
}

/* Sums of any rows against plain loops; damping and columns of zeros. */
static void test_gram(void **state) {
    (void)state;
    Diag *diag = diag_create();
    float *x = malloc(sizeof(float) * WIDTH * ROWS);
    double *sum = calloc((size_t)WIDTH * WIDTH, sizeof *sum), trace = 0;
    fill_rows(x);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < WIDTH; i++)
            for (int j = 0; j < WIDTH; j++)
                sum[i * WIDTH + j] += (double)x[r * WIDTH + i] * (double)x[r * WIDTH + j];
    Gram gram, other;
    assert_ok(gram_create(&gram, WIDTH, diag), diag);
    assert_ok(gram_create(&other, WIDTH, diag), diag);
    gram_add(&gram, x, ROWS, 2);
    for (int r = 0; r < ROWS; r++) gram_add(&other, x + r * WIDTH, 1, 1);
    bool finite[2];
    assert_ok(gram_finish(&gram, 2, &finite[0], diag), diag);
    assert_ok(gram_finish(&other, 1, &finite[1], diag), diag);
    assert_true(finite[0] && finite[1]);
    assert_int_equal(gram.rows, ROWS);
    assert_memory_equal(gram.sum, other.sum, sizeof(double) * WIDTH * WIDTH);
    assert_memory_equal(gram.sum, gram_alone.sum, sizeof(double) * WIDTH * WIDTH);
    assert_memory_equal(gram.mean, gram_alone.mean, sizeof(double) * WIDTH);
    for (int i = 0; i < WIDTH * WIDTH; i++) check_near(gram.sum[i], sum[i], 1.2 * ROWS);
    for (int i = 0; i < WIDTH; i++) trace += sum[i * WIDTH + i];
    const double first = gram.sum[0], added = gram_damp(&gram, 0.5);
    check_near(added, 0.5 * trace / WIDTH, ROWS);
    assert_true(gram.sum[0] == first + added);
    assert_true(gram_is_dead(&gram, 7) && !gram_is_dead(&gram, 8));
    assert_int_equal(gram_dead_count(&other), 1);
    gram_destroy(&gram);
    gram_destroy(&other);
    free(x);
    free(sum);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gram),    cmocka_unit_test(test_layers),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_samples), cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_bad), /* after it ranks do nothing together */
    };
    Diag *diag = diag_create();
    walk_layers(&alone, 1);
    sum_alone();
    const Status status = ranks_open(diag);
    diag_print(diag, stderr);
    diag_destroy(diag);
    if (status != STATUS_OK) return status_exit_code(status);
    if (cmocka_run_group_tests(tests, NULL, NULL) > 0) ranks_abort(1);
    walk_close(&alone);
    gram_destroy(&gram_alone);
    ranks_close();
    return 0;
}
