/* Rounding: grids against all scales of a fine comb, columns against the plain algorithm
 * with inverses of what is left, written out here. */
#include "ir/arena.h"
#include "ir/random.h"
#include "passes/quantize/rounding.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, WIDTH = 150 };

static Tensor make(Tensor shape, Diag *diag) {
    assert_ok(tensor_allocate(&shape, diag), diag);
    return shape;
}

/* Weights of a normal distribution, some of them large. */
static Tensor weights(Diag *diag) {
    Tensor tensor = make(tensor_shape(DTYPE_F32, 2, (int64_t[]){ROWS, WIDTH}), diag);
    float *w = (float *)(uintptr_t)tensor_data(&tensor);
    for (int i = 0; i < ROWS * WIDTH; i++)
        w[i] = (float)(random_normal(5, (uint64_t)i) * (i % 41 == 0 ? 4 : 1));
    return tensor;
}

static int forms(Tensor out[3]) {
    const int64_t dim[] = {ROWS, WIDTH};
    out[0] = q8_shape(2, dim);
    out[1] = q4_shape(2, dim, 32, false);
    out[2] = q4_shape(2, dim, 64, true);
    return 3;
}

static double error_on(const Grid *grid, const float *w, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const double d = (double)w[i] - (double)grid->scale *
                                            (grid_round(grid, (double)w[i]) - grid->zero);
        sum += d * d;
    }
    return sum;
}

/* The grid found is hardly worse than the best of a fine comb of scales, and better than
 * the one that reaches all weights. */
static void test_grids(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Tensor from = weights(diag), form[3];
    const float *w = tensor_data(&from);
    const int count = forms(form);
    double found[3] = {0}, best[3] = {0}, plain[3] = {0};
    for (int f = 0; f < count; f++) {
        for (int g = 0; g < 60; g++) {
            const float *group = w + 64 * g;
            float low = 0, high = 0;
            for (int i = 0; i < 64; i++) {
                low = fminf(low, group[i]);
                high = fmaxf(high, group[i]);
            }
            const double reach = fmax((double)high, -(double)low);
            const double range = form[f].zeros ? (double)high - (double)low : reach;
            const int numbers = f == 0 ? 127 : form[f].zeros ? 15 : 7;
            double least = INFINITY;
            for (int c = 0; c <= 200; c++) {
                const double scale = range / numbers * (0.4 + 0.6 * c / 200);
                const int zero = (int)rint(-(double)low / (range / numbers));
                const Grid grid = quantised_grid(&form[f], scale, zero);
                least = fmin(least, error_on(&grid, group, 64));
                if (c == 200) plain[f] += error_on(&grid, group, 64);
            }
            const Grid grid = quantised_best_grid(&form[f], group, 64);
            found[f] += error_on(&grid, group, 64);
            best[f] += least;
        }
        assert_true(found[f] < 1.1 * best[f]);
        assert_true(found[f] < plain[f]);
    }
    tensor_release(&from);
    diag_destroy(diag);
}

/* H of rows that depend on each other. */
static void fill_gram(Gram *gram, Diag *diag) {
    enum { SAMPLES = 400 };
    float *x = calloc(SAMPLES * WIDTH, sizeof *x);
    assert_ok(gram_create(gram, WIDTH, diag), diag);
    for (int s = 0; s < SAMPLES; s++)
        for (int k = 0; k < WIDTH; k++) {
            const double own = random_normal(9, (uint64_t)(s * WIDTH + k));
            x[s * WIDTH + k] = (float)((own + (k ? (double)x[s * WIDTH + k - 1] : 0)) *
                                       (0.4 + 0.01 * (k * 29 % 40)));
        }
    gram_add(gram, x, SAMPLES, 1);
    assert_true(gram_finish(gram, 1));
    gram_damp(gram, 0.01);
    free(x);
}

static void invert(const double *h, double *out) {
    double *a = malloc(sizeof(double) * WIDTH * WIDTH);
    memcpy(a, h, sizeof(double) * WIDTH * WIDTH);
    memset(out, 0, sizeof(double) * WIDTH * WIDTH);
    for (int i = 0; i < WIDTH; i++) out[i * WIDTH + i] = 1;
    for (int i = 0; i < WIDTH; i++) { /* Gauss and Jordan; H is positive definite */
        const double pivot = a[i * WIDTH + i];
        for (int j = 0; j < WIDTH; j++) {
            a[i * WIDTH + j] /= pivot;
            out[i * WIDTH + j] /= pivot;
        }
        for (int r = 0; r < WIDTH; r++) {
            const double factor = a[r * WIDTH + i];
            for (int j = 0; r != i && j < WIDTH; j++) {
                a[r * WIDTH + j] -= factor * a[i * WIDTH + j];
                out[r * WIDTH + j] -= factor * out[i * WIDTH + j];
            }
        }
    }
    free(a);
}

/* Optimal brain quantisation in the order of falling diagonals: the inverse of what is
 * left loses a column after each. */
static void round_by_hand(Tensor *to, const float *w, const Gram *gram) {
    double *inverse = malloc(sizeof(double) * WIDTH * WIDTH),
           *left = malloc(sizeof(double) * WIDTH * WIDTH);
    const int groups = (int)quantised_groups(to);
    invert(gram->sum, inverse);
    for (int row = 0; row < ROWS; row++) {
        double v[WIDTH];
        bool done[WIDTH] = {false};
        int8_t q[WIDTH];
        Grid grid[8];
        for (int g = 0; g < groups; g++) {
            const int64_t first = g * to->group, rest = WIDTH - first;
            grid[g] = quantised_best_grid(to, w + row * WIDTH + first,
                                          rest < to->group ? rest : to->group);
        }
        for (int k = 0; k < WIDTH; k++) v[k] = (double)w[row * WIDTH + k];
        memcpy(left, inverse, sizeof(double) * WIDTH * WIDTH);
        for (int step = 0; step < WIDTH; step++) {
            int i = -1;
            for (int k = 0; k < WIDTH; k++)
                if (!done[k] &&
                    (i < 0 || gram->sum[k * WIDTH + k] > gram->sum[i * WIDTH + i]))
                    i = k;
            const Grid *at = &grid[i / to->group];
            q[i] = (int8_t)grid_round(at, v[i]);
            const double pivot = left[i * WIDTH + i];
            const double off = (v[i] - (double)at->scale * (q[i] - at->zero)) / pivot;
            done[i] = true;
            for (int k = 0; k < WIDTH; k++)
                if (!done[k]) v[k] -= off * left[i * WIDTH + k];
            double line[WIDTH];
            memcpy(line, left + i * WIDTH, sizeof line);
            for (int a = 0; a < WIDTH; a++)
                for (int b = 0; b < WIDTH; b++)
                    left[a * WIDTH + b] -= line[a] * line[b] / pivot;
        }
        for (int g = 0; g < groups; g++)
            quantised_write(to, row, g, &grid[g], q + g * to->group);
    }
    free(inverse);
    free(left);
}

/* tr(D H D^T) of what rounding changed. */
static double output_error(const Tensor *rounded, const float *w, const Gram *gram) {
    double sum = 0, row[WIDTH];
    for (int r = 0; r < ROWS; r++) {
        tensor_read_f64(rounded, r * WIDTH, WIDTH, row);
        for (int k = 0; k < WIDTH; k++) row[k] -= (double)w[r * WIDTH + k];
        for (int a = 0; a < WIDTH; a++)
            for (int b = 0; b < WIDTH; b++)
                sum += row[a] * gram->sum[a * WIDTH + b] * row[b];
    }
    return sum;
}

static void test_gptq(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Tensor from = weights(diag), form[3];
    const float *w = tensor_data(&from);
    GptqFactor *factor;
    Gram gram;
    const int count = forms(form);
    fill_gram(&gram, diag);
    assert_ok(gptq_factor(&factor, &gram, "w", diag), diag);
    for (int f = 0; f < count; f++) {
        Tensor want = make(form[f], diag), have = make(form[f], diag),
               again = make(form[f], diag), nearest = make(form[f], diag);
        round_by_hand(&want, w, &gram);
        round_gptq(&have, &from, factor, 1);
        round_gptq(&again, &from, factor, 3);
        const RoundingError error = round_nearest(&nearest, &from, 2);
        assert_memory_equal(tensor_data(&have), tensor_data(&want), tensor_bytes(&want));
        assert_memory_equal(tensor_data(&again), tensor_data(&want), tensor_bytes(&want));
        assert_true(output_error(&have, w, &gram) <
                    0.6 * output_error(&nearest, w, &gram));
        double off = 0, row[WIDTH];
        for (int r = 0; r < ROWS; r++) {
            tensor_read_f64(&nearest, r * WIDTH, WIDTH, row);
            for (int k = 0; k < WIDTH; k++)
                off += pow(row[k] - (double)w[r * WIDTH + k], 2);
        }
        assert_true(fabs(off - error.off) < 1e-5 * off);
        tensor_release(&want);
        tensor_release(&have);
        tensor_release(&again);
        tensor_release(&nearest);
    }
    gptq_factor_free(factor);
    gram.sum[0] = -1;
    assert_int_equal(gptq_factor(&factor, &gram, "w", diag), STATUS_MODEL);
    gram_destroy(&gram);
    tensor_release(&from);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_gptq),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
