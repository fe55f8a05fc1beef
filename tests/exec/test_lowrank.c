/* The nearest product of two thin matrices: singular values against a spectrum that is
 * known in closed form and against LAPACK's divide and conquer, errors against what was
 * left out, seen through inputs and not, and the form of the factors. */
#include "exec/linalg/lowrank.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>

enum { TALL = 14, SHORT = 9 };

/* What rounding factors to float leaves of their product, per norm. */
#define FACTORS 5e-7

static const double SIGMA[SHORT] = {16, 9, 5, 3, 2, 1, 0.5, 0.25, 0.125};

/* Entry i of basis vector k of the orthonormal cosines in `n` dimensions. */
static double cosine(int64_t n, int64_t k, int64_t i) {
    const double scale = sqrt((k == 0 ? 1.0 : 2.0) / (double)n);
    return scale * cos(M_PI * ((double)i + 0.5) * (double)k / (double)n);
}

static void fill_known(double *w, int64_t M, int64_t K) {
    for (int64_t m = 0; m < M; m++)
        for (int64_t k = 0; k < K; k++) {
            w[m * K + k] = 0;
            for (int64_t i = 0; i < SHORT; i++)
                w[m * K + k] += SIGMA[i] * cosine(M, i, m) * cosine(K, i, k);
        }
}

static void fill_random(double *w, int64_t count, uint64_t key) {
    for (int64_t i = 0; i < count; i++) w[i] = random_normal(key, (uint64_t)i);
}

/* A lower factor of the Gram matrix of more inputs than K, some of them much larger. */
static void fill_inputs(double *l, int64_t K) {
    enum { ROWS = 40 };
    double x[ROWS * TALL];
    fill_random(x, ROWS * K, 5);
    for (int64_t i = 0; i < ROWS * K; i++) x[i] *= i % K < 3 ? 4 : 0.5;
    syrk_f64(K, ROWS, x, K, 0, l);
    assert_int_equal(cholesky_f64(K, l), 0);
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = i + 1; j < K; j++) l[i * K + j] = 0;
}

static double tail(const double *squares, int64_t rank, int64_t count) {
    double sum = 0;
    for (int64_t i = count - 1; i >= rank; i--) sum += squares[i];
    return sum;
}

typedef struct Factors {
    Tensor second, first;
    LowRankNorms whole, error;
} Factors;

static Factors factors_of(const LowRank *low, int64_t rank, bool turned) {
    Diag *diag = diag_create();
    Factors f;
    assert_ok(low_rank_factors(&f.second, &f.first, low, rank, turned, diag), diag);
    assert_ok(low_rank_norms(&f.whole, &f.error, low, &f.second, &f.first, turned, diag),
              diag);
    diag_destroy(diag);
    return f;
}

static void drop(Factors *f) {
    tensor_release(&f->second);
    tensor_release(&f->first);
}

static LowRank open_low(const double *w, int64_t M, int64_t K, const double *l) {
    Diag *diag = diag_create();
    LowRank low;
    assert_ok(low_rank_open(&low, w, M, K, l, diag), diag);
    diag_destroy(diag);
    return low;
}

/* ---- spectra ---- */

static void check_known(int64_t M, int64_t K) {
    double w[TALL * TALL], squares[SHORT];
    fill_known(w, M, K);
    for (int i = 0; i < SHORT; i++) squares[i] = SIGMA[i] * SIGMA[i];
    LowRank low = open_low(w, M, K, NULL);
    const double norm = sqrt(tail(squares, 0, SHORT));
    assert_int_equal(low.count, SHORT);
    for (int i = 0; i < SHORT; i++) assert_within(low.squares[i], squares[i], 1e-11);
    for (int64_t rank = 1; rank <= SHORT; rank++) {
        Factors f = factors_of(&low, rank, false);
        assert_within(sqrt(f.error.seen), sqrt(tail(squares, rank, SHORT)),
                      FACTORS * norm);
        assert_true(f.error.seen == f.error.plain);
        assert_within(sqrt(f.whole.seen), norm, 1e-12 * norm);
        drop(&f);
    }
    low_rank_close(&low);
}

static void test_known_spectrum(void **state) {
    (void)state;
    check_known(TALL, SHORT);
    check_known(SHORT, TALL);
    check_known(SHORT, SHORT);
}

/* Through inputs: the squares are those of W L, and what is left out is the error. The
 * factors without inputs are further off. */
static void check_inputs(int64_t M, int64_t K) {
    double w[TALL * TALL], l[TALL * TALL] = {0}, product[TALL * TALL], sigma[TALL];
    fill_random(w, M * K, 7);
    fill_inputs(l, K);
    gemm_f64(false, false, M, K, K, 1, w, K, l, K, 0, product, K);
    assert_int_equal(singular_values_f64(M, K, product, sigma), 0);
    LowRank low = open_low(w, M, K, l), blind = open_low(w, M, K, NULL);
    const double norm = sqrt(tail(low.squares, 0, low.count));
    for (int64_t i = 0; i < low.count; i++)
        assert_within(sqrt(low.squares[i]), sigma[i], 1e-7 * sigma[0]);
    for (int64_t rank = 1; rank <= low.count; rank++) {
        Factors f = factors_of(&low, rank, false), b = factors_of(&blind, rank, false);
        LowRankNorms whole, error;
        Diag *diag = diag_create();
        assert_within(sqrt(f.error.seen), sqrt(tail(low.squares, rank, low.count)),
                      2e-6 * norm); /* L magnifies the rounding */
        assert_ok(low_rank_norms(&whole, &error, &low, &b.second, &b.first, false, diag),
                  diag);
        if (rank < low.count) assert_true(error.seen > 1.05 * f.error.seen);
        if (rank < low.count) assert_true(b.error.plain < f.error.plain);
        diag_destroy(diag);
        drop(&f);
        drop(&b);
    }
    low_rank_close(&low);
    low_rank_close(&blind);
}

static void test_inputs(void **state) {
    (void)state;
    check_inputs(TALL, SHORT);
    check_inputs(SHORT, TALL);
}

static void test_energy(void **state) {
    (void)state;
    double w[TALL * SHORT], squares[SHORT];
    fill_known(w, TALL, SHORT);
    for (int i = 0; i < SHORT; i++) squares[i] = SIGMA[i] * SIGMA[i];
    LowRank low = open_low(w, TALL, SHORT, NULL);
    for (int64_t rank = 1; rank < SHORT; rank++) {
        const double kept = 1 - tail(squares, rank, SHORT) / tail(squares, 0, SHORT);
        assert_int_equal(low_rank_by_energy(&low, kept - 1e-9), rank);
        assert_int_equal(low_rank_by_energy(&low, kept + 1e-9), rank + 1);
    }
    assert_int_equal(low_rank_by_energy(&low, 1), SHORT);
    low_rank_close(&low);
}

/* ---- factors ---- */

/* Columns of B and rows of A have equal norms, and rows a positive largest component;
 * turned factors are the transposed ones. */
static void check_form(int64_t M, int64_t K) {
    enum { RANK = 4 };
    double w[TALL * SHORT];
    fill_random(w, M * K, 9);
    LowRank low = open_low(w, M, K, NULL);
    Factors f = factors_of(&low, RANK, false), t = factors_of(&low, RANK, true);
    const float *b = tensor_data(&f.second), *a = tensor_data(&f.first);
    const float *bt = tensor_data(&t.second), *at = tensor_data(&t.first);
    for (int64_t i = 0; i < RANK; i++) {
        double left = 0, right = 0, most = 0;
        for (int64_t m = 0; m < M; m++) {
            left += (double)b[m * RANK + i] * (double)b[m * RANK + i];
            assert_true(b[m * RANK + i] == bt[i * M + m]);
        }
        for (int64_t k = 0; k < K; k++) {
            const double x = (double)a[i * K + k];
            right += x * x;
            if (fabs(x) > fabs(most)) most = x;
            assert_true(a[i * K + k] == at[k * RANK + i]);
        }
        assert_within(left, sqrt(low.squares[i]), 1e-5 * left);
        assert_within(right, left, 1e-5 * left);
        assert_true(most > 0);
    }
    double *product = memory_alloc((size_t)(M * K), sizeof *product);
    double *turned = memory_alloc((size_t)(M * K), sizeof *turned);
    Diag *diag = diag_create();
    assert_ok(low_rank_multiply(product, &f.second, &f.first, false, diag), diag);
    assert_ok(low_rank_multiply(turned, &t.second, &t.first, true, diag), diag);
    for (int64_t m = 0; m < M; m++)
        for (int64_t k = 0; k < K; k++) {
            double sum = 0;
            for (int64_t i = 0; i < RANK; i++)
                sum += (double)b[m * RANK + i] * (double)a[i * K + k];
            assert_within(product[m * K + k], sum, 1e-13);
            assert_within(turned[m * K + k], sum, 1e-13);
        }
    free(product);
    free(turned);
    diag_destroy(diag);
    drop(&f);
    drop(&t);
    low_rank_close(&low);
}

static void test_form(void **state) {
    (void)state;
    check_form(TALL, SHORT);
    check_form(SHORT, TALL);
}

static void test_zeros(void **state) {
    (void)state;
    const double w[TALL * SHORT] = {0};
    LowRank low = open_low(w, TALL, SHORT, NULL);
    Factors f = factors_of(&low, 2, false);
    assert_true(f.error.seen == 0 && f.whole.seen == 0);
    assert_int_equal(tensor_find_nonfinite(&f.second), -1);
    assert_int_equal(tensor_find_nonfinite(&f.first), -1);
    drop(&f);
    low_rank_close(&low);
}

static void test_not_finite(void **state) {
    (void)state;
    double w[TALL * SHORT] = {0};
    LowRank low;
    Diag *diag = diag_create();
    w[17] = NAN;
    assert_int_equal(low_rank_open(&low, w, TALL, SHORT, NULL, diag), STATUS_MODEL);
    w[17] = INFINITY;
    assert_int_equal(low_rank_open(&low, w, SHORT, TALL, NULL, diag), STATUS_MODEL);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_spectrum), cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_energy),         cmocka_unit_test(test_form),
        cmocka_unit_test(test_zeros),          cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
