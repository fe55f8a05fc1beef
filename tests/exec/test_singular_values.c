/* Singular values: closed forms, and NumPy's of a matrix by formula. */
#include "exec/linalg/blas.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

/* The second difference: 2 on the diagonal, -1 beside it. Its eigenvalues are
 * 2 - 2 cos(k pi / (n + 1)). */
static void test_second_difference(void **state) {
    enum { N = 40 };
    (void)state;
    double *a = calloc(N * N, sizeof *a), sigma[N];
    for (int i = 0; i < N; i++) {
        a[i * N + i] = 2;
        if (i > 0) a[i * N + i - 1] = a[(i - 1) * N + i] = -1;
    }
    assert_int_equal(singular_values_f64(N, N, a, sigma), 0);
    for (int k = 0; k < N; k++)
        assert_float_equal(sigma[k], 2 - 2 * cos((N - k) * acos(-1) / (N + 1)), 1e-13);
    free(a);
}

/* x y^T has one value, |x| |y|, whichever side is longer. */
static void test_rank_one(void **state) {
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        const int m = turned ? 7 : 3, n = turned ? 3 : 7;
        double a[21], sigma[3], x = 0, y = 0;
        for (int i = 0; i < m; i++) x += (i + 1) * (i + 1);
        for (int j = 0; j < n; j++) y += (j - 2) * (j - 2);
        for (int i = 0; i < m * n; i++) a[i] = (i / n + 1) * (i % n - 2);
        assert_int_equal(singular_values_f64(m, n, a, sigma), 0);
        assert_float_equal(sigma[0], sqrt(x * y), 1e-12);
        assert_float_equal(sigma[1], 0, 1e-12);
        assert_float_equal(sigma[2], 0, 1e-12);
    }
}

/* sin(1 + 2 i + j^2) of 5 x 4, by numpy.linalg.svd. */
static void test_numpy(void **state) {
    static const double expected[] = {2.627835064705087, 1.7336336471928648,
                                      2.4397634740912533e-16, 8.319351539953782e-17};
    (void)state;
    double a[20], sigma[4];
    for (int i = 0; i < 20; i++) a[i] = sin(1 + 2 * (i / 4) + (i % 4) * (i % 4));
    assert_int_equal(singular_values_f64(5, 4, a, sigma), 0);
    for (int k = 0; k < 4; k++) assert_float_equal(sigma[k], expected[k], 1e-13);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_difference),
        cmocka_unit_test(test_rank_one),
        cmocka_unit_test(test_numpy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
