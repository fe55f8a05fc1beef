/* linear with activations of 8 bits: the definition in exec/ops/linear_act.h, written out
 * here in plain loops; bytes where sums are whole numbers, and gradients, which finite
 * differences of a step function cannot tell. */
#include "ir/quantised.h"
#include "passes/quantize/rounding.h"
#include "tests/exec/grad_harness.h"

enum { ROWS = 5, WIDTH = 37, UNITS = 11 };

static const Case PLAIN = {"linear", "", "5x37 11x37 11"};
static const Case ROUNDED = {"linear", "act=i8", "5x37 11x37 11"};
static const Case LONG_ROWS = {"linear", "act=i8", "1x140000 1x140000 1"};
static const Case TRANSPOSED = {"linear", "act=i8 transposed=true", "5x37 37x11 11"};

/* The rows of operand 0, rounded. */
static void round_by_hand(const double *x, int K, int *q, double *scale, bool single) {
    double most = 0;
    for (int k = 0; k < K; k++) most = fmax(most, fabs(x[k]));
    *scale = most / 127;
    const double by = most > 0 ? 127 / most : 0;
    const float by_float = most > 0 ? 127.0f / (float)most : 0;
    for (int k = 0; k < K; k++)
        q[k] = single ? (int)rintf((float)x[k] * by_float) : (int)rint(x[k] * by);
}

/* Weights of whole numbers give the same bytes as sums of whole numbers. */
static void test_whole(void **state) {
    (void)state;
    Problem p;
    assert_ok(problem_create(&p, &ROUNDED), p.diag);
    Storage storage = {.name = "w"};
    storage.tensor = q8_shape(2, (int64_t[]){UNITS, WIDTH});
    assert_ok(tensor_allocate(&storage.tensor, p.diag), p.diag);
    for (int m = 0; m < UNITS; m++) {
        float row[WIDTH];
        for (int k = 0; k < WIDTH; k++) row[k] = (float)p.value[1][m * WIDTH + k];
        quantised_round_row(&storage.tensor, m, row);
    }
    tensor_read_f64(&storage.tensor, 0, (int64_t)UNITS * WIDTH, p.value[1]);
    p.node->in[1]->storage = &storage;
    for (int k = 0; k < WIDTH; k++) p.value[0][2 * WIDTH + k] = 0; /* a row of zeros */
    Result got = execute(&p, (Mode){.single = true});
    const int8_t *w = tensor_q_values(&storage.tensor);
    const float *scale_w = tensor_q_scales(&storage.tensor);
    for (int r = 0; r < ROWS; r++) {
        int q[WIDTH];
        double scale;
        round_by_hand(p.value[0] + r * WIDTH, WIDTH, q, &scale, true);
        float most = 0;
        for (int k = 0; k < WIDTH; k++)
            most = fmaxf(most, fabsf((float)p.value[0][r * WIDTH + k]));
        const float scale_x = most / 127.0f;
        for (int m = 0; m < UNITS; m++) {
            int sum = 0;
            for (int k = 0; k < WIDTH; k++) sum += q[k] * w[m * WIDTH + k];
            const float factor = scale_x * scale_w[m];
            const float product = (float)sum * factor;
            const float want = product + (float)p.value[2][m];
            assert_true(got.out[r * UNITS + m] == (double)want);
        }
    }
    /* in double: products of the numbers that these stand for */
    Result wide = execute(&p, (Mode){0});
    for (int i = 0; i < ROWS * UNITS; i++)
        assert_true(fabs(wide.out[i] - got.out[i]) < 1e-4);
    result_free(&wide);
    result_free(&got);
    tensor_release(&storage.tensor);
    problem_destroy(&p);
}

/* Rows so long that their sums of whole numbers do not fit 32 bits. */
static void test_long(void **state) {
    (void)state;
    enum { LONG = 140000 };
    Problem p;
    assert_ok(problem_create(&p, &LONG_ROWS), p.diag);
    Storage storage = {.name = "w"};
    storage.tensor = q8_shape(2, (int64_t[]){1, LONG});
    assert_ok(tensor_allocate(&storage.tensor, p.diag), p.diag);
    float *row = malloc(LONG * sizeof *row);
    for (int k = 0; k < LONG; k++) row[k] = 1, p.value[0][k] = 1, p.value[1][k] = 1;
    quantised_round_row(&storage.tensor, 0, row);
    p.node->in[1]->storage = &storage;
    Result got = execute(&p, (Mode){.single = true});
    assert_true(fabs(got.out[0] - p.value[2][0] - LONG) < 1e-3 * LONG);
    result_free(&got);
    free(row);
    tensor_release(&storage.tensor);
    problem_destroy(&p);
}

/* Against linear without rounding, of rows rounded by hand: outputs and gradients are the
 * same, the gradient of x being that of the rounded x. */
static void check_floats(const Case *rounded, const Case *plain) {
    for (int single = 0; single < 2; single++) {
        Problem p, want;
        assert_ok(problem_create(&p, rounded), p.diag);
        assert_ok(problem_create(&want, plain), want.diag);
        for (int r = 0; r < ROWS; r++) {
            int q[WIDTH];
            double scale;
            round_by_hand(p.value[0] + r * WIDTH, WIDTH, q, &scale, single);
            for (int k = 0; k < WIDTH; k++) want.value[0][r * WIDTH + k] = q[k] * scale;
        }
        const Mode mode = {.single = single, .training = true, .backward = true};
        Result got = execute(&p, mode), expected = execute(&want, mode);
        compare_value(&p, "rounded rows", single, got.out, expected.out, 1);
        for (int i = 0; i < 3; i++)
            compare_gradient(&p, "rounded rows", i, single, got.d_in[i], expected.d_in[i],
                             1);
        result_free(&got);
        result_free(&expected);
        problem_destroy(&p);
        problem_destroy(&want);
    }
}

static void test_floats(void **state) {
    (void)state;
    const Case plain = {"linear", "transposed=true", "5x37 37x11 11"};
    check_floats(&ROUNDED, &PLAIN);
    check_floats(&TRANSPOSED, &plain);
}

/* With `round`, linear of the weights that quantize would leave; the gradient of the
 * weight is that of a linear layer without rounding. */
static void test_rounded_weights(void **state) {
    (void)state;
    static const char *const ROUND[] = {"round=q8", "round=q4_32", "round=q4_64 act=i8"};
    const int64_t dim[] = {UNITS, WIDTH};
    const Tensor form[] = {q8_shape(2, dim), q4_shape(2, dim, 32, false),
                           q4_shape(2, dim, 64, false)};
    for (int f = 0; f < 3; f++) {
        for (int single = 0; single < 2; single++) {
            const Case rounded = {"linear", ROUND[f], "5x37 11x37 11"};
            const Case plain = {"linear", f == 2 ? "act=i8" : "", "5x37 11x37 11"};
            Problem p, want;
            assert_ok(problem_create(&p, &rounded), p.diag);
            assert_ok(problem_create(&want, &plain), want.diag);
            Tensor from = tensor_shape(DTYPE_F64, 2, dim), to = form[f];
            from.buf = buf_wrap(p.value[1], sizeof(double) * UNITS * WIDTH, NULL);
            assert_ok(tensor_allocate(&to, p.diag), p.diag);
            round_nearest(&to, &from, 1);
            tensor_read_f64(&to, 0, (int64_t)UNITS * WIDTH, want.value[1]);
            const Mode mode = {.single = single, .training = true, .backward = true};
            Result got = execute(&p, mode), expected = execute(&want, mode);
            compare_value(&p, ROUND[f], single, got.out, expected.out, 1);
            for (int i = 0; i < 3; i++)
                compare_gradient(&p, ROUND[f], i, single, got.d_in[i], expected.d_in[i],
                                 1);
            result_free(&got);
            result_free(&expected);
            tensor_release(&from);
            tensor_release(&to);
            problem_destroy(&p);
            problem_destroy(&want);
        }
    }
}

/* What is not finite is not lost, and what is too small to divide by counts as zeros. */
static void test_edges(void **state) {
    (void)state;
    Problem p;
    assert_ok(problem_create(&p, &ROUNDED), p.diag);
    p.value[0][0 * WIDTH + 3] = (double)NAN;
    p.value[0][1 * WIDTH + 7] = (double)INFINITY;
    for (int k = 0; k < WIDTH; k++) p.value[0][2 * WIDTH + k] = 1e-40;
    Result got = execute(&p, (Mode){.single = true});
    for (int m = 0; m < UNITS; m++) {
        assert_true(isnan(got.out[m]));
        assert_true(isnan(got.out[UNITS + m]));
        assert_true(got.out[2 * UNITS + m] == p.value[2][m]);
        assert_true(isfinite(got.out[3 * UNITS + m]));
    }
    result_free(&got);
    problem_destroy(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),           cmocka_unit_test(test_long),
        cmocka_unit_test(test_floats),          cmocka_unit_test(test_edges),
        cmocka_unit_test(test_rounded_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
