/* Products of two matrices of floats (exec/loops/product.c): against sums in double, with
 * the bound of a float sum of k terms; the same bytes whatever is cut, and with AVX2 and
 * with AVX-512. */
#include "exec/loops/loops.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/levels.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Row strides are so much longer than rows; there is NaN in the gaps of operands, and
 * what is in those of c stays. */
enum { GAP = 3 };
#define UNTOUCHED 7.0f

typedef struct Case {
    int64_t m, n, k;
    bool trans_a, trans_b;
    float alpha, beta;
    float *a, *b, *before;
    int64_t lda, ldb, ldc;
} Case;

static float *drawn(uint64_t key, int64_t rows, int64_t columns, float gap) {
    float *x = malloc((size_t)(rows * (columns + GAP) + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns + GAP; j++)
            x[i * (columns + GAP) + j] =
                j < columns ? (float)random_normal(key, (uint64_t)(i * columns + j))
                            : gap;
    return x;
}

static Case case_open(int64_t m, int64_t n, int64_t k, int kind) {
    static const float FACTORS[][2] = {{1, 0}, {1, 1}, {0.125f, 0}, {-1.5f, 0.5f}};
    Case c = {.m = m,
              .n = n,
              .k = k,
              .trans_a = kind & 1,
              .trans_b = kind & 2,
              .alpha = FACTORS[kind / 4][0],
              .beta = FACTORS[kind / 4][1]};
    c.a = drawn(1, c.trans_a ? k : m, c.trans_a ? m : k, NAN);
    c.b = drawn(2, c.trans_b ? n : k, c.trans_b ? k : n, NAN);
    c.before = drawn(3, m, n, UNTOUCHED);
    c.lda = (c.trans_a ? m : k) + GAP;
    c.ldb = (c.trans_b ? k : n) + GAP;
    c.ldc = n + GAP;
    if (c.beta == 0)
        for (int64_t i = 0; i < m * c.ldc; i++)
            if (i % c.ldc < n) c.before[i] = NAN; /* must not count */
    return c;
}
enum { KINDS = 16 };

static void case_close(Case *c) {
    free(c->a);
    free(c->b);
    free(c->before);
}

/* The rows first .. first + m - 1, and so many columns likewise, into all of c. */
static void multiply_part(const Case *c, const Loops *loops, int64_t first, int64_t m,
                          int64_t column, int64_t n, float *out) {
    const float *a = c->a + first * (c->trans_a ? 1 : c->lda);
    const float *b = c->b + column * (c->trans_b ? c->ldb : 1);
    loops->multiply(c->trans_a, c->trans_b, m, n, c->k, c->alpha, a, c->lda, b, c->ldb,
                    c->beta, out + first * c->ldc + column, c->ldc);
}

static float *copy_of(const Case *c) {
    const size_t bytes = (size_t)(c->m * c->ldc) * sizeof(float);
    float *out = malloc(bytes + 1);
    assert_non_null(out);
    memcpy(out, c->before, bytes);
    return out;
}

static float *multiplied(const Case *c, const Loops *loops) {
    float *out = copy_of(c);
    multiply_part(c, loops, 0, c->m, 0, c->n, out);
    return out;
}

/* What element (i, j) is, and how much a sum in float may be off: every one of k + 2
 * steps by half a unit of the sum of magnitudes. */
static double naive(const Case *c, int64_t i, int64_t j, double *tolerance) {
    double sum = 0, size = 0;
    for (int64_t l = 0; l < c->k; l++) {
        const double a = c->trans_a ? c->a[l * c->lda + i] : c->a[i * c->lda + l];
        const double b = c->trans_b ? c->b[j * c->ldb + l] : c->b[l * c->ldb + j];
        sum += a * b, size += fabs(a * b);
    }
    const double before =
        c->beta == 0 ? 0 : (double)c->beta * (double)c->before[i * c->ldc + j];
    const double alpha = (double)c->alpha;
    *tolerance = (double)(c->k + 4) * FLT_EPSILON * (fabs(alpha) * size + fabs(before));
    return alpha * sum + before;
}

static void check_values(const Case *c, const float *out) {
    for (int64_t i = 0; i < c->m; i++)
        for (int64_t j = 0; j < c->ldc; j++) {
            const float found = out[i * c->ldc + j];
            double tolerance = 0;
            const double want = j < c->n ? naive(c, i, j, &tolerance) : UNTOUCHED;
            if (!(fabs((double)found - want) <= tolerance))
                fail_msg("%lld x %lld x %lld, transposed %d %d: (%lld, %lld) is %g, "
                         "expected %g",
                         (long long)c->m, (long long)c->n, (long long)c->k, c->trans_a,
                         c->trans_b, (long long)i, (long long)j, (double)found, want);
        }
}

/* Pieces of odd sizes. */
static void check_pieces(const Case *c, const Loops *loops, const float *whole) {
    float *out = copy_of(c);
    for (int64_t i = 0; i < c->m; i += 11)
        for (int64_t j = 0; j < c->n; j += 37)
            multiply_part(c, loops, i, c->m - i < 11 ? c->m - i : 11, j,
                          c->n - j < 37 ? c->n - j : 37, out);
    assert_memory_equal(out, whole, (size_t)(c->m * c->ldc) * sizeof *out);
    free(out);
}

static void check_size(const Loops *loops, int64_t m, int64_t n, int64_t k) {
    for (int kind = 0; kind < KINDS; kind++) {
        Case c = case_open(m, n, k, kind);
        float *out = multiplied(&c, loops);
        check_values(&c, out);
        check_pieces(&c, loops, out);
        free(out);
        case_close(&c);
    }
}

/* Beyond a block in each direction, and every edge of tiles. */
static const int64_t SIZES[][3] = {
    {1, 1, 1},   {2, 3, 5},    {6, 16, 17},   {7, 64, 33},  {13, 65, 1},    {5, 130, 40},
    {3, 48, 16}, {12, 31, 64}, {29, 17, 385}, {9, 70, 800}, {390, 20, 130}, {400, 5, 60}};

static void check_all(const Loops *loops) {
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        check_size(loops, SIZES[i][0], SIZES[i][1], SIZES[i][2]);
}

static void test_products(void **state) {
    (void)state;
    for_levels(check_all);
}

/* No term at all: c is beta c. */
static void test_empty(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        Case c = case_open(3, 5, 0, kind);
        float *out = multiplied(&c, loops_here());
        check_values(&c, out);
        free(out);
        case_close(&c);
    }
}

/* Fused steps in the same order in both sets. */
static void test_levels(void **state) {
    (void)state;
    if (!processor_has(PROCESSOR_V3) || !processor_has(PROCESSOR_V4)) skip();
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            Case c = case_open(SIZES[i][0], SIZES[i][1], SIZES[i][2], kind);
            float *v3 = multiplied(&c, loops_at(PROCESSOR_V3));
            float *v4 = multiplied(&c, loops_at(PROCESSOR_V4));
            assert_memory_equal(v3, v4, (size_t)(c.m * c.ldc) * sizeof *v3);
            free(v3);
            free(v4);
            case_close(&c);
        }
}

/* On a thread with as little stack as threads have on some systems. */
static void *multiply_once(void *self) {
    Case *c = self;
    return multiplied(c, loops_here());
}

static void test_small_stack(void **state) {
    (void)state;
    enum { STACK = 128 << 10 };
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK), 0);
    for (int kind = 0; kind < KINDS; kind++) {
        Case c = case_open(384, 70, 300, kind);
        pthread_t thread;
        void *out = NULL;
        assert_int_equal(pthread_create(&thread, &attributes, multiply_once, &c), 0);
        pthread_join(thread, &out);
        check_values(&c, out);
        free(out);
        case_close(&c);
    }
    pthread_attr_destroy(&attributes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_small_stack), cmocka_unit_test(test_levels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
