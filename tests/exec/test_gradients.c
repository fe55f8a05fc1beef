/* Gradients over a data set: the mean against one batch of all samples, numbers of every
 * batch against sums of them, and the bytes of one rank and one thread at any number of
 * both. The program is one of the ranks; CTest starts it alone and, where the build has
 * MPI, with several. */
#include "exec/run/gradients.h"
#include "exec/run/ranks.h"
#include "tests/exec/train_fixture.h"

/* Weights of several blocks, so that several ranks own some. */
enum { BROAD = 2500, NUMBERS = 3 };

/* Batch sizes that give 1, 2, 4, 7, 8 and 34 batches, the last of them not full. */
static const int64_t BATCHES[] = {100, 51, 30, 15, 13, 3};
enum { CASES = sizeof BATCHES / sizeof BATCHES[0] };

typedef struct Bench {
    Fixture f;
    Params *params;
    GradientRun run;
    int64_t count; /* elements of a gradient */
} Bench;

static void bench_open(Bench *b, int64_t batch_size, int threads) {
    Fixture *f = &b->f;
    *f = (Fixture){.arena = arena_create(), .diag = diag_create()};
    f->graph = graph_create(f->arena, ops_table());
    toy_open(&f->toy);
    const Type features = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, WIDTH}};
    const Type classes = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    Node *x = graph_input(f->graph, "x", &features);
    Node *labels = graph_input(f->graph, "labels", &classes);
    Node *h = linear(f, x, "in.weight", "in.bias", BROAD, WIDTH);
    h = make(f, "activation", &h, 1, "fn=tanh");
    f->logits = linear(f, h, "out.weight", "out.bias", CLASSES, BROAD);
    f->loss = make(f, "cross_entropy", (Node *[]){f->logits, labels}, 2, NULL);
    assert_ok(params_create(&b->params, f->graph, PRECISION_F32, false, f->diag),
              f->diag);
    b->count = params_gradient_count(b->params);
    b->run = (GradientRun){.graph = f->graph,
                           .loss = f->loss,
                           .params = b->params,
                           .data = &f->toy.batches,
                           .batch_size = batch_size,
                           .threads = threads};
}

static void bench_close(Bench *b) {
    params_destroy(b->params);
    model_close(&b->f);
}

static float *mean_of(int64_t batch_size, int64_t limit, int threads, int64_t *count) {
    Bench b;
    bench_open(&b, batch_size, threads);
    b.run.limit = limit;
    float *gradient = memory_alloc((size_t)b.count, sizeof *gradient);
    assert_ok(mean_gradient(&b.run, gradient, b.f.diag), b.f.diag);
    *count = b.count;
    bench_close(&b);
    return gradient;
}

/* GradientReduce: a sum, a sum of magnitudes, a square. */
static void reduce(void *self, const float *gradient, double *numbers) {
    const int64_t count = *(const int64_t *)self;
    for (int64_t i = 0; i < count; i++) {
        const double g = (double)gradient[i];
        numbers[0] += g;
        numbers[1] += fabs(g);
        numbers[2] += g * g;
    }
}

static void numbers_of(int64_t batch_size, int threads, double *numbers) {
    Bench b;
    bench_open(&b, batch_size, threads);
    memset(numbers, 0, NUMBERS * sizeof *numbers);
    assert_ok(batch_gradients(&b.run, reduce, &b.count, numbers, NUMBERS, b.f.diag),
              b.f.diag);
    bench_close(&b);
}

/* Before this process joins the others. */
static float *alone[CASES];
static double numbers_alone[CASES][NUMBERS];

static void run_alone(void) {
    int64_t count;
    for (int c = 0; c < CASES; c++) {
        alone[c] = mean_of(BATCHES[c], 0, 1, &count);
        numbers_of(BATCHES[c], 1, numbers_alone[c]);
    }
}

/* All batch sizes have the mean over all samples. */
static void test_mean(void **state) {
    (void)state;
    for (int c = 1; c < CASES; c++) {
        int64_t count;
        float largest = 0;
        float *mean = mean_of(BATCHES[c], 0, 2, &count);
        for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(alone[0][i]));
        assert_true(largest > 0.001F);
        for (int64_t i = 0; i < count; i++)
            if (!(fabsf(mean[i] - alone[0][i]) <= 2e-6F * largest))
                fail_msg("batches of %d, element %d: %.9g, not %.9g", (int)BATCHES[c],
                         (int)i, (double)mean[i], (double)alone[0][i]);
        free(mean);
    }
}

/* The first samples alone. */
static void test_limit(void **state) {
    (void)state;
    int64_t count;
    float *whole = mean_of(40, 40, 1, &count), *parts = mean_of(5, 40, 1, &count);
    double error = 0, norm = 0, others = 0;
    for (int64_t i = 0; i < count; i++) {
        error += pow((double)(whole[i] - parts[i]), 2);
        others += pow((double)(whole[i] - alone[0][i]), 2);
        norm += pow((double)whole[i], 2);
    }
    assert_true(error < 1e-11 * norm && others > 1e-4 * norm);
    free(whole);
    free(parts);
}

/* Numbers of a batch are weighted by its samples: a linear one is that of the mean. */
static void test_numbers(void **state) {
    (void)state;
    int64_t count;
    double want[NUMBERS] = {0};
    float *mean = mean_of(100, 0, 1, &count);
    reduce(&count, mean, want);
    for (int c = 0; c < CASES; c++) {
        double numbers[NUMBERS];
        numbers_of(BATCHES[c], 2, numbers);
        assert_true(fabs(numbers[0] - want[0]) < 1e-5 * want[1]);
        assert_true(numbers[1] > want[1] * (c > 0 ? 1.001 : 0.999));
    }
    free(mean);
}

static void test_bytes(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++)
        for (int threads = 1; threads <= 3; threads++) {
            int64_t count;
            double numbers[NUMBERS];
            float *mean = mean_of(BATCHES[c], 0, threads, &count);
            if (memcmp(mean, alone[c], (size_t)count * sizeof *mean) != 0)
                fail_msg("batches of %d, %d threads: not the bytes of one rank",
                         (int)BATCHES[c], threads);
            numbers_of(BATCHES[c], threads, numbers);
            assert_memory_equal(numbers, numbers_alone[c], sizeof numbers);
            free(mean);
        }
}

static void test_buffers(void **state) {
    (void)state;
    assert_int_equal(mean_gradient_buffers(10, 10), 1);
    assert_int_equal(mean_gradient_buffers(11, 10), 2);
    assert_int_equal(mean_gradient_buffers(50, 10), 3);
    assert_int_equal(mean_gradient_buffers(80, 10), 4);
    assert_int_equal(mean_gradient_buffers(1000000, 10), 4);
}

/* A sample that cannot be used, in the last rank's part: all fail as one rank does. */
static void test_failure(void **state) {
    (void)state;
    Bench b;
    bench_open(&b, 10, 1);
    b.f.toy.bad_label = 97;
    float *gradient = memory_alloc((size_t)b.count, sizeof *gradient);
    assert_int_equal(mean_gradient(&b.run, gradient, b.f.diag), STATUS_MODEL);
    char *text = diag_text(b.f.diag);
    assert_non_null(strstr(text, "sample 97"));
    assert_int_equal(diag_errors(b.f.diag), 1);
    free(text);
    free(gradient);
    bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_failure), /* after it ranks do nothing together */
    };
    Diag *diag = diag_create();
    run_alone();
    const Status status = ranks_open(diag);
    diag_print(diag, stderr);
    diag_destroy(diag);
    if (status != STATUS_OK) return status_exit_code(status);
    if (cmocka_run_group_tests(tests, NULL, NULL) > 0) ranks_abort(1);
    for (int c = 0; c < CASES; c++) free(alone[c]);
    ranks_close();
    return 0;
}
