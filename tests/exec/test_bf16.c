/* Products in bfloat16 against sums in double of values rounded here; linears with such
 * products; training with them. All of it by the processor's own instructions, where it
 * has them, and of rounded floats, for which the program starts itself again with a fixed
 * level of processor. */
#include "exec/linalg/bf16.h"
#include "exec/ops/kernel.h"
#include "tests/exec/train_fixture.h"

#include <unistd.h>

/* To 8 bits of precision, ties to even: by arithmetic, not by bits. */
static double nearest(double x) {
    int exponent;
    const double fraction = frexp(x, &exponent); /* in [1/2, 1) */
    return ldexp(nearbyint(fraction * 256), exponent - 8);
}

static void *lines(size_t bytes) {
    void *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(data, 0xa5, (bytes + 127) / 64 * 64);
    return data;
}

static float *draw(uint64_t key, int64_t count) {
    float *x = lines((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = (float)random_normal(key, (uint64_t)i);
    return x;
}

/* Element (i, j) of a product is the sum over l of a[i * ai + l * al] b[j * bj + l * bl];
 * c is what came of it, `before` what it was added to. */
typedef struct Product {
    int64_t m, n, k;
    const float *a, *b;
    int64_t ai, al, bj, bl;
    const float *before, *c;
} Product;

static void check(const Product *p) {
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = p->before ? (double)p->before[i * p->n + j] : 0;
            double size = fabs(sum);
            for (int64_t l = 0; l < p->k; l++) {
                const double term = nearest((double)p->a[i * p->ai + l * p->al]) *
                                    nearest((double)p->b[j * p->bj + l * p->bl]);
                sum += term;
                size += fabs(term);
            }
            assert_float_equal(p->c[i * p->n + j], sum, 1e-6 * size);
        }
}

static const int64_t SHAPES[][3] = {
    {1, 1, 1},    {1, 40, 3},   {12, 32, 2}, {13, 33, 31}, {5, 17, 100},
    {40, 95, 65}, {64, 16, 33}, {3, 2, 770}, {200, 7, 64}, {59, 70, 40}};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

static void test_rounding(void **state) {
    (void)state;
    assert_true(nearest(1.00390625) == 1);        /* 1 + 2^-8: to even */
    assert_true(nearest(1.01171875) == 1.015625); /* 1 + 3 2^-8: to even */
    assert_true(nearest(-1.00390626) == -1.0078125);
    const float x[] = {1.00390625f, 1.01171875f, -1.00390637f, 3e38f};
    const float one = 1;
    float c[4];
    Bf16Matrix w = {1, 1, BF16_ROWS, NULL};
    w.data = lines(bf16_bytes(&w));
    bf16_round(&w, &one);
    void *scratch = lines(bf16_scratch(4, 1));
    bf16_times(&w, BF16_ROWS, 4, x, false, c, scratch);
    for (int i = 0; i < 4; i++) assert_true((double)c[i] == nearest((double)x[i]));
    free(scratch);
    free(w.data);
}

static void test_products(void **state) {
    (void)state;
    for (int s = 0; s < SHAPE_COUNT; s++) {
        const int64_t m = SHAPES[s][0], n = SHAPES[s][1], k = SHAPES[s][2];
        float *a = draw(1, m * k), *turned = draw(2, k * m), *w = draw(3, n * k);
        float *b = draw(4, k * n), *before = draw(5, m * n), *c = draw(5, m * n);
        void *scratch = lines(bf16_scratch(m, k) + bf16_scratch(n, k));
        for (int sides = BF16_ROWS; sides <= (BF16_ROWS | BF16_COLUMNS); sides++) {
            Bf16Matrix rows = {n, k, sides, NULL}, columns = {k, n, sides, NULL};
            rows.data = lines(bf16_bytes(&rows));
            columns.data = lines(bf16_bytes(&columns));
            bf16_round(&rows, w);
            bf16_round(&columns, b);
            if (sides & BF16_ROWS) {
                bf16_times(&rows, BF16_ROWS, m, a, false, c, scratch);
                check(&(Product){m, n, k, a, w, k, 1, k, 1, NULL, c});
            }
            if (sides & BF16_COLUMNS) {
                memcpy(c, before, (size_t)(m * n) * sizeof *c);
                bf16_times(&columns, BF16_COLUMNS, m, a, true, c, scratch);
                check(&(Product){m, n, k, a, b, k, 1, 1, n, before, c});
            }
            free(rows.data);
            free(columns.data);
        }
        bf16_outer(m, n, k, turned, m, b, false, c, scratch);
        check(&(Product){m, n, k, turned, b, 1, m, 1, n, NULL, c});
        memcpy(c, before, (size_t)(m * n) * sizeof *c);
        bf16_outer(m, n, k, turned, m, b, true, c, scratch);
        check(&(Product){m, n, k, turned, b, 1, m, 1, n, before, c});
        void *all[] = {a, turned, w, b, before, c, scratch};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    }
}

/* The bytes of a row are those of all rows together, however many it is computed with. */
static void test_rows(void **state) {
    enum { ROWS = 64, M = 50, K = 77 };
    (void)state;
    if (!bf16_native()) return;
    float *a = draw(1, ROWS * K), *w = draw(2, M * K), *all = draw(3, ROWS * M);
    float *some = draw(3, ROWS * M);
    Bf16Matrix matrix = {M, K, BF16_ROWS, NULL};
    matrix.data = lines(bf16_bytes(&matrix));
    void *scratch = lines(bf16_scratch(ROWS, K));
    bf16_round(&matrix, w);
    bf16_times(&matrix, BF16_ROWS, ROWS, a, false, all, scratch);
    for (int64_t rows = 1; rows <= ROWS; rows++)
        for (int64_t first = 0; first + rows <= ROWS; first += 7) {
            bf16_times(&matrix, BF16_ROWS, rows, a + first * K, false, some, scratch);
            assert_memory_equal(some, all + first * M, (size_t)(rows * M) * sizeof *all);
        }
    void *lot[] = {a, w, all, some, scratch, matrix.data};
    for (size_t i = 0; i < sizeof lot / sizeof *lot; i++) free(lot[i]);
}

/* ---- linears ---- */

enum { R = 14, FROM = 37, TO = 45 };

/* Weights of a parameter, or computed by the graph, stored either way. */
static void check_linear(bool transposed, bool param) {
    float *x = draw(1, R * FROM), *w = draw(2, TO * FROM), *bias = draw(3, TO);
    float *dy = draw(4, R * TO), *y = draw(5, R * TO), *dx = draw(6, R * FROM);
    float *dw = draw(7, TO * FROM), *db = draw(8, TO), *before = draw(7, TO * FROM);
    float *biases = draw(9, R * TO);
    const int64_t out = transposed ? FROM : TO, in = transposed ? TO : FROM;
    Storage storage = {.name = "w"};
    Node leaf = {.storage = param ? &storage : NULL};
    Node *operands[] = {&leaf, &leaf, &leaf};
    const Node node = {.op = &op_linear, .in = operands, .in_count = 3};
    const LinearAttrs attrs = {transposed};
    Bf16Matrix rounded = {out, in, BF16_ROWS | BF16_COLUMNS, NULL};
    rounded.data = lines(bf16_bytes(&rounded));
    bf16_round(&rounded, w);
    View views[] = {{.data = x, .rank = 2, .dim = {R, FROM}, .count = R * FROM},
                    {.data = w, .rank = 2, .dim = {out, in}, .count = out * in},
                    {.data = bias, .rank = 1, .dim = {TO}, .count = TO}};
    View gradients[] = {views[0], views[1], views[2]};
    if (param) views[1].rounded = &rounded;
    gradients[0].data = dx, gradients[1].data = dw, gradients[2].data = db;
    gradients[1].accumulate = true;
    Call call = {.node = &node,
                 .attrs = &attrs,
                 .in_count = 3,
                 .in = views,
                 .d_in = gradients,
                 .out = {.data = y, .rank = 2, .dim = {R, TO}, .count = R * TO},
                 .d_out = {.data = dy, .rank = 2, .dim = {R, TO}, .count = R * TO},
                 .bf16 = true};
    const Kernel *kernel = kernel_of(kernels_for(PRECISION_F32), &op_linear);
    call.scratch = lines(kernel->scratch_bytes(&call));
    kernel->forward(&call);
    kernel->backward(&call);
    const int64_t row = transposed ? 1 : FROM, column = transposed ? TO : 1;
    for (int64_t i = 0; i < R * TO; i++) biases[i] = bias[i % TO];
    check(&(Product){R, TO, FROM, x, w, FROM, 1, row, column, biases, y});
    check(&(Product){R, FROM, TO, dy, w, TO, 1, column, row, NULL, dx});
    if (transposed)
        check(&(Product){FROM, TO, R, x, dy, 1, FROM, 1, TO, before, dw});
    else
        check(&(Product){TO, FROM, R, dy, x, 1, TO, 1, FROM, before, dw});
    for (int64_t j = 0; j < TO; j++) { /* not rounded */
        double sum = 0;
        for (int64_t r = 0; r < R; r++) sum += (double)dy[r * TO + j];
        assert_float_equal(db[j], sum, 1e-5);
    }
    void *all[] = {x,  w,      bias,   dy,           y,           dx, dw,
                   db, before, biases, call.scratch, rounded.data};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void test_linear(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) check_linear(i & 1, i & 2);
}

/* ---- training ---- */

static void train_toy(float *weights, TrainReport *report, int precision, int threads,
                      int64_t steps) {
    Fixture f;
    TrainOptions options = train_defaults;
    options.steps = steps, options.batch_size = 20, options.shards = 2;
    options.micro_batch = 5, options.lr = 0.02, options.precision = precision;
    model_open(&f, 0.1);
    assert_ok(run_training(&f, &options, 1, threads, report), f.diag);
    copy_weights(f.graph, weights);
    model_close(&f);
}

/* It learns what float learns, to other bytes; threads change nothing. */
static void test_training(void **state) {
    enum { STEPS = 60 };
    (void)state;
    float f32[WEIGHTS], one[WEIGHTS], two[WEIGHTS];
    TrainReport plain, report;
    train_toy(f32, &plain, TRAIN_F32, 2, STEPS);
    train_toy(one, &report, TRAIN_BF16, 1, STEPS);
    train_toy(two, &report, TRAIN_BF16, 2, STEPS);
    assert_memory_equal(one, two, sizeof one);
    assert_memory_not_equal(one, f32, sizeof one);
    assert_true(report.last_loss < 0.7 * report.first_loss);
    assert_float_equal(report.last_loss, plain.last_loss, 0.02 * plain.first_loss);
}

/* The first step's loss is that of weights as they are then, the second's of those that
 * the first left: a run whose weights were rounded once alone would not get so far. */
static void test_weights_rounded_again(void **state) {
    (void)state;
    float weights[WEIGHTS];
    TrainReport f32, bf16;
    train_toy(weights, &f32, TRAIN_F32, 1, 2);
    train_toy(weights, &bf16, TRAIN_BF16, 1, 2);
    assert_true(fabs(f32.first_loss - f32.last_loss) > 0.01);
    assert_float_equal(bf16.first_loss, f32.first_loss, 0.004);
    assert_float_equal(bf16.last_loss, f32.last_loss, 0.004);
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding), cmocka_unit_test(test_products),
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_linear),
        cmocka_unit_test(test_training), cmocka_unit_test(test_weights_rounded_again),
    };
    const bool native = bf16_native();
    printf("by %s\n", native ? "the processor" : "floats");
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    const char *level = getenv("COMPRESS_PROCESSOR");
    if (failed || !native || (level && strcmp(level, "v2") == 0)) return failed;
    fflush(stdout); /* a build for this machine alone has no level, and runs twice */
    setenv("COMPRESS_PROCESSOR", "v2", 1);
    execv(argv[0], argv);
    return 1;
}
