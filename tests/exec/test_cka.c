/* Kernel alignment by its properties, and widths that there is no memory for. */
#include "exec/linalg/cka.h"
#include "ir/random.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLES = 12, X = 5, Y = 3 };

static double cka(const float *x, int64_t x_width, const float *y, int64_t y_width) {
    double out;
    Diag *diag = diag_create();
    assert_ok(linear_cka(&out, x, x_width, y, y_width, SAMPLES, diag), diag);
    diag_destroy(diag);
    return out;
}

static void draw(float *out, int64_t count, uint64_t key) {
    for (int64_t i = 0; i < count; i++) out[i] = (float)random_normal(key, (uint64_t)i);
}

/* 1 of anything with itself, also shifted, scaled and with columns swapped; the same
 * either way round, between 0 and 1, and against plain loops. */
static void test_values(void **state) {
    float x[SAMPLES * X], y[SAMPLES * Y], moved[SAMPLES * X];
    double cross = 0, own[2] = {0, 0};
    (void)state;
    draw(x, SAMPLES * X, 1);
    draw(y, SAMPLES * Y, 2);
    for (int i = 0; i < SAMPLES * X; i++) moved[i] = 3 * x[i / X * X + (i + 1) % X] + 2;
    assert_float_equal(cka(x, X, x, X), 1, 1e-12);
    assert_float_equal(cka(x, X, moved, X), 1, 1e-6);
    assert_true(cka(x, X, y, Y) > 0 && cka(x, X, y, Y) < 1);
    assert_float_equal(cka(x, X, y, Y), cka(y, Y, x, X), 1e-12);
    /* by the products of samples: tr(K L) / sqrt(tr(K K) tr(L L)) with both centred */
    double k[SAMPLES][SAMPLES], l[SAMPLES][SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        for (int j = 0; j < SAMPLES; j++) {
            k[i][j] = l[i][j] = 0;
            for (int c = 0; c < X; c++) k[i][j] += (double)x[i * X + c] * x[j * X + c];
            for (int c = 0; c < Y; c++) l[i][j] += (double)y[i * Y + c] * y[j * Y + c];
        }
    for (int i = 0; i < SAMPLES; i++)
        for (int j = 0; j < SAMPLES; j++) {
            double a = k[i][j], b = l[i][j];
            for (int s = 0; s < SAMPLES; s++) {
                a -= (k[s][j] + k[i][s]) / SAMPLES;
                b -= (l[s][j] + l[i][s]) / SAMPLES;
                for (int t = 0; t < SAMPLES; t++) {
                    a += k[s][t] / SAMPLES / SAMPLES;
                    b += l[s][t] / SAMPLES / SAMPLES;
                }
            }
            cross += a * b, own[0] += a * a, own[1] += b * b;
        }
    assert_float_equal(cka(x, X, y, Y), cross / sqrt(own[0] * own[1]), 1e-10);
}

static void test_constant(void **state) {
    float x[SAMPLES * X], y[SAMPLES];
    (void)state;
    draw(x, SAMPLES * X, 1);
    for (int i = 0; i < SAMPLES; i++) y[i] = 7;
    assert_true(isnan(cka(x, X, y, 1)));
}

static void test_no_memory(void **state) {
    static const struct {
        int64_t x_width, y_width, samples;
    } CASES[] = {{(int64_t)1 << 40, 1, (int64_t)1 << 40}, /* 2^80 numbers */
                 {(int64_t)1 << 60, 1, 1},
                 {1, (int64_t)1 << 60, 1}};
    static const float x[1] = {1};
    (void)state;
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        double out;
        Diag *diag = diag_create();
        assert_int_equal(linear_cka(&out, x, CASES[c].x_width, x, CASES[c].y_width,
                                    CASES[c].samples, diag),
                         STATUS_MEMORY);
        assert_int_equal(diag_errors(diag), 1);
        diag_destroy(diag);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_constant),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
