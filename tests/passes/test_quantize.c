/* Rounding: grids against all scales of a fine comb, columns against the plain algorithm
 * with inverses of what is left, written out here; following against the inverse, and on
 * the toy model. */
#include "ir/arena.h"
#include "ir/random.h"
#include "passes/quantize/rounding.h"
#include "tests/passes/prune_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, COLUMNS = 150 };

static Tensor make(Tensor shape, Diag *diag) {
    assert_ok(tensor_allocate(&shape, diag), diag);
    return shape;
}

/* Weights of a normal distribution, some of them large. */
static Tensor weights(Diag *diag) {
    Tensor tensor = make(tensor_shape(DTYPE_F32, 2, (int64_t[]){ROWS, COLUMNS}), diag);
    float *w = (float *)(uintptr_t)tensor_data(&tensor);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        w[i] = (float)(random_normal(5, (uint64_t)i) * (i % 41 == 0 ? 4 : 1));
    return tensor;
}

static int forms(Tensor out[3]) {
    const int64_t dim[] = {ROWS, COLUMNS};
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
            const int signs = f == 1 ? 2 : 1;
            double least = INFINITY;
            for (int c = 0; c <= 200 * signs; c++) {
                const double part = 0.4 + 0.6 * (c % 201) / 200;
                const double scale = (c > 200 ? -1 : 1) * part * range / numbers;
                const int zero = (int)rint(-(double)low / (range / numbers));
                const Grid grid = quantised_grid(&form[f], scale, zero);
                least = fmin(least, error_on(&grid, group, 64));
                if (c == 200) plain[f] += error_on(&grid, group, 64);
            }
            const Grid grid = quantised_best_grid(&form[f], group, 64);
            found[f] += error_on(&grid, group, 64);
            best[f] += least;
        }
        assert_true(found[f] < (f == 1 ? 1.02 : 1.1) * best[f]);
        assert_true(found[f] < plain[f]);
    }
    tensor_release(&from);
    diag_destroy(diag);
}

/* The longer side of 4 bits is there on either side of 0. */
static void test_sides(void **state) {
    (void)state;
    const Tensor q4 = q4_shape(2, (int64_t[]){1, 32}, 32, false);
    for (int sign = -1; sign <= 1; sign += 2) {
        float w[32];
        for (int i = 0; i < 32; i++) w[i] = (float)(sign * (i % 16 - 7)) * 0.25f;
        const Grid grid = quantised_best_grid(&q4, w, 32); /* -7 to 8, or -8 to 7 */
        assert_true(grid.scale == -0.25f * (float)sign);
        assert_true(error_on(&grid, w, 32) == 0);
    }
    const float none[32] = {0};
    assert_true(quantised_best_grid(&q4, none, 32).scale == 0);
    const float tiny[32] = {1e-9f};
    assert_false(signbit(quantised_best_grid(&q4, tiny, 32).scale));
}

/* H of rows that depend on each other. */
static void fill_gram(Gram *gram, Diag *diag) {
    enum { VECTORS = 400 };
    float *x = calloc(VECTORS * COLUMNS, sizeof *x);
    assert_ok(gram_create(gram, COLUMNS, diag), diag);
    for (int s = 0; s < VECTORS; s++)
        for (int k = 0; k < COLUMNS; k++) {
            const double own = random_normal(9, (uint64_t)(s * COLUMNS + k));
            x[s * COLUMNS + k] =
                (float)((own + (k ? (double)x[s * COLUMNS + k - 1] : 0)) *
                        (0.4 + 0.01 * (k * 29 % 40)));
        }
    gram_add(gram, x, VECTORS, 1);
    bool finite;
    assert_ok(gram_finish(gram, 1, &finite, diag), diag);
    assert_true(finite);
    gram_damp(gram, 0.01);
    free(x);
}

static void invert(const double *h, double *out) {
    double *a = malloc(sizeof(double) * COLUMNS * COLUMNS);
    memcpy(a, h, sizeof(double) * COLUMNS * COLUMNS);
    memset(out, 0, sizeof(double) * COLUMNS * COLUMNS);
    for (int i = 0; i < COLUMNS; i++) out[i * COLUMNS + i] = 1;
    for (int i = 0; i < COLUMNS; i++) { /* Gauss and Jordan; H is positive definite */
        const double pivot = a[i * COLUMNS + i];
        for (int j = 0; j < COLUMNS; j++) {
            a[i * COLUMNS + j] /= pivot;
            out[i * COLUMNS + j] /= pivot;
        }
        for (int r = 0; r < COLUMNS; r++) {
            const double factor = a[r * COLUMNS + i];
            for (int j = 0; r != i && j < COLUMNS; j++) {
                a[r * COLUMNS + j] -= factor * a[i * COLUMNS + j];
                out[r * COLUMNS + j] -= factor * out[i * COLUMNS + j];
            }
        }
    }
    free(a);
}

/* Optimal brain quantisation in the order of falling diagonals: the inverse of what is
 * left loses a column after each. */
static void round_by_hand(Tensor *to, const float *w, const Gram *gram) {
    double *inverse = malloc(sizeof(double) * COLUMNS * COLUMNS),
           *left = malloc(sizeof(double) * COLUMNS * COLUMNS);
    const int groups = (int)quantised_groups(to);
    invert(gram->sum, inverse);
    for (int row = 0; row < ROWS; row++) {
        double v[COLUMNS];
        bool done[COLUMNS] = {false};
        int8_t q[COLUMNS];
        Grid grid[8];
        for (int g = 0; g < groups; g++) {
            const int64_t first = g * to->group, rest = COLUMNS - first;
            grid[g] = quantised_best_grid(to, w + row * COLUMNS + first,
                                          rest < to->group ? rest : to->group);
        }
        for (int k = 0; k < COLUMNS; k++) v[k] = (double)w[row * COLUMNS + k];
        memcpy(left, inverse, sizeof(double) * COLUMNS * COLUMNS);
        for (int step = 0; step < COLUMNS; step++) {
            int i = -1;
            for (int k = 0; k < COLUMNS; k++)
                if (!done[k] &&
                    (i < 0 || gram->sum[k * COLUMNS + k] > gram->sum[i * COLUMNS + i]))
                    i = k;
            const Grid *at = &grid[i / to->group];
            q[i] = (int8_t)grid_round(at, v[i]);
            const double pivot = left[i * COLUMNS + i];
            const double off = (v[i] - (double)at->scale * (q[i] - at->zero)) / pivot;
            done[i] = true;
            for (int k = 0; k < COLUMNS; k++)
                if (!done[k]) v[k] -= off * left[i * COLUMNS + k];
            double line[COLUMNS];
            memcpy(line, left + i * COLUMNS, sizeof line);
            for (int a = 0; a < COLUMNS; a++)
                for (int b = 0; b < COLUMNS; b++)
                    left[a * COLUMNS + b] -= line[a] * line[b] / pivot;
        }
        for (int g = 0; g < groups; g++)
            quantised_write(to, row, g, &grid[g], q + g * to->group);
    }
    free(inverse);
    free(left);
}

/* tr(D H D^T) of what rounding changed. */
static double output_error(const Tensor *rounded, const float *w, const Gram *gram) {
    double sum = 0, row[COLUMNS];
    for (int r = 0; r < ROWS; r++) {
        tensor_read_f64(rounded, r * COLUMNS, COLUMNS, row);
        for (int k = 0; k < COLUMNS; k++) row[k] -= (double)w[r * COLUMNS + k];
        for (int a = 0; a < COLUMNS; a++)
            for (int b = 0; b < COLUMNS; b++)
                sum += row[a] * gram->sum[a * COLUMNS + b] * row[b];
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
        round_gptq(&have, &from, NULL, factor, 1);
        round_gptq(&again, &from, NULL, factor, 3);
        const RoundingError error = round_nearest(&nearest, &from, 2);
        assert_memory_equal(tensor_data(&have), tensor_data(&want), tensor_bytes(&want));
        assert_memory_equal(tensor_data(&again), tensor_data(&want), tensor_bytes(&want));
        assert_true(output_error(&have, w, &gram) <
                    0.6 * output_error(&nearest, w, &gram));
        double off = 0, row[COLUMNS];
        for (int r = 0; r < ROWS; r++) {
            tensor_read_f64(&nearest, r * COLUMNS, COLUMNS, row);
            for (int k = 0; k < COLUMNS; k++)
                off += pow(row[k] - (double)w[r * COLUMNS + k], 2);
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

/* ---- following ---- */

/* Weights move by T H^-1. */
static void test_missing(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Tensor from = weights(diag);
    float *w = (float *)(uintptr_t)tensor_data(&from);
    double *cross = malloc(sizeof(double) * ROWS * COLUMNS),
           *inverse = malloc(sizeof(double) * COLUMNS * COLUMNS);
    float *have = malloc(sizeof(float) * ROWS * COLUMNS);
    GptqFactor *factor;
    Gram gram;
    fill_gram(&gram, diag);
    invert(gram.sum, inverse);
    assert_ok(gptq_factor(&factor, &gram, "w", diag), diag);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        cross[i] = 100 * random_normal(3, (uint64_t)i);
    memcpy(have, w, sizeof(float) * ROWS * COLUMNS);
    assert_ok(gptq_follow(have, ROWS, cross, factor, diag), diag);
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < COLUMNS; k++) {
            double want = (double)w[r * COLUMNS + k];
            for (int j = 0; j < COLUMNS; j++)
                want += cross[r * COLUMNS + j] * inverse[j * COLUMNS + k];
            assert_true(fabs((double)have[r * COLUMNS + k] - want) <
                        1e-5 * (1 + fabs(want)));
        }
    gptq_factor_free(factor);
    gram_destroy(&gram);
    tensor_release(&from);
    free(cross);
    free(inverse);
    free(have);
    diag_destroy(diag);
}

/* |logits' - logits| of the toy model, quantised. */
static double logits_error(const char *options) {
    double x[SAMPLES * CLASSES], y[SAMPLES * CLASSES], sum = 0;
    Model *model = toy_vit(2);
    Diag *diag = diag_create();
    run_model(model, x);
    assert_ok(test_run_pass(model, "quantize", options, false, diag), diag);
    run_model(model, y);
    for (int i = 0; i < SAMPLES * CLASSES; i++) sum += pow(y[i] - x[i], 2);
    diag_destroy(diag);
    model_destroy(model);
    return sqrt(sum);
}

#define GPTQ "{dtype: int4, group: 32, method: gptq, data: toy, samples: 60"

/* What rounding has done so far is made up for by the layers behind. */
static void test_follow(void **state) {
    (void)state;
    const double nearest = logits_error("{dtype: int4, group: 32}");
    const double alone = logits_error(GPTQ "}");
    const double followed = logits_error(GPTQ ", follow: true}");
    if (!(alone < nearest && followed < alone))
        fail_msg("%g, %g and %g", nearest, alone, followed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grids),  cmocka_unit_test(test_sides),
        cmocka_unit_test(test_gptq),   cmocka_unit_test(test_missing),
        cmocka_unit_test(test_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
