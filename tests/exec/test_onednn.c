/* Products by oneDNN against sums in double and in integers, and what they must not
 * depend on: rows that are computed together, lanes, what was asked for before. Without
 * the library (or a processor that has the instructions) the tests look only at the
 * refusal.
 */
#include "exec/linalg/onednn.h"
#include "exec/run/parallel.h"
#include "ir/half.h"
#include "ir/random.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const NAMES[] = {"f32", "bf16", "s8", "u8"};

static size_t bytes_of(OnednnType type) {
    return type == ONEDNN_F32 ? 4 : type == ONEDNN_BF16 ? 2 : 1;
}

/* Writes element i as the type has it; returns its value. */
static double put(void *data, OnednnType type, int64_t i, uint64_t key) {
    const double value = random_normal(key, (uint64_t)i);
    switch (type) {
    case ONEDNN_F32: return ((float *)data)[i] = (float)value;
    case ONEDNN_BF16:
        ((uint16_t *)data)[i] = bf16_from_float((float)value);
        return bf16_to_float(((uint16_t *)data)[i]);
    case ONEDNN_S8: return ((int8_t *)data)[i] = (int8_t)(i * 7919 % 255 - 127);
    default: return ((uint8_t *)data)[i] = (uint8_t)(255 - i * 7919 % 256);
    }
}

/* x[rows, K] and W[M, K] with the values that they stand for. */
typedef struct Case {
    OnednnType type;
    int64_t rows, M, K;
    void *x, *weights, *turned;
    double *x_value, *weight_value;
    float *bias;
    OnednnMatrix *matrix;
} Case;

static void case_open(Case *c, OnednnType type, int64_t rows, int64_t M, int64_t K) {
    const size_t size = bytes_of(type);
    const OnednnType weights = type == ONEDNN_U8 ? ONEDNN_S8 : type;
    Diag *diag = diag_create();
    *c = (Case){.type = type, .rows = rows, .M = M, .K = K};
    c->x = malloc((size_t)(rows * K) * size);
    c->weights = malloc((size_t)(M * K) * size);
    c->turned = malloc((size_t)(M * K) * size);
    c->x_value = malloc((size_t)(rows * K) * sizeof(double));
    c->weight_value = malloc((size_t)(M * K) * sizeof(double));
    c->bias = malloc((size_t)M * sizeof(float));
    for (int64_t i = 0; i < rows * K; i++) c->x_value[i] = put(c->x, type, i, 1);
    for (int64_t i = 0; i < M * K; i++)
        c->weight_value[i] = put(c->weights, weights, i, 2);
    for (int64_t i = 0; i < M; i++) c->bias[i] = (float)random_normal(3, (uint64_t)i);
    for (int64_t m = 0; m < M; m++)
        for (int64_t k = 0; k < K; k++)
            memcpy((char *)c->turned + (size_t)(k * M + m) * size,
                   (char *)c->weights + (size_t)(m * K + k) * size, size);
    assert_ok(onednn_pack(&c->matrix, type, false, M, K, c->weights, diag), diag);
    diag_destroy(diag);
}

static void case_close(Case *c) {
    onednn_free(c->matrix);
    free(c->x);
    free(c->weights);
    free(c->turned);
    free(c->x_value);
    free(c->weight_value);
    free(c->bias);
}

static const void *row_of(const Case *c, int64_t row) {
    return (const char *)c->x + (size_t)(row * c->K) * bytes_of(c->type);
}

/* Against sums in double, which are exact for integers. */
static void check(const Case *c, const float *bias, const void *y) {
    const bool real = c->type <= ONEDNN_BF16;
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t m = 0; m < c->M; m++) {
            double sum = bias ? bias[m] : 0, size = fabs(sum);
            for (int64_t k = 0; k < c->K; k++) {
                const double term =
                    c->x_value[r * c->K + k] * c->weight_value[m * c->K + k];
                sum += term;
                size += fabs(term);
            }
            if (real)
                assert_float_equal(((const float *)y)[r * c->M + m], sum, 1e-6 * size);
            else
                assert_int_equal(((const int32_t *)y)[r * c->M + m], (int64_t)sum);
        }
}

static bool skipped(OnednnType type) {
    if (onednn_has(type)) return false;
    printf("no products of %s here\n", NAMES[type]);
    return true;
}

static void test_values(void **state) {
    Diag *diag = diag_create();
    (void)state;
    static const int64_t shapes[][3] = {
        {1, 5, 7}, {3, 64, 64}, {17, 33, 96}, {64, 100, 65}, {130, 48, 192}};
    for (OnednnType type = 0; type < ONEDNN_TYPES; type++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes && !skipped(type); i++) {
            Case c;
            case_open(&c, type, shapes[i][0], shapes[i][1], shapes[i][2]);
            assert_true(onednn_bytes(c.matrix) >= (size_t)(c.M * c.K) * bytes_of(type));
            int32_t *y = malloc((size_t)(c.rows * c.M) * sizeof *y);
            assert_true(onednn_times(c.matrix, c.rows, c.x, c.K, NULL, y));
            check(&c, NULL, y);
            assert_ok(onednn_pack_again(c.matrix, true, c.turned, diag), diag);
            assert_true(onednn_times(c.matrix, c.rows, c.x, c.K,
                                     type <= ONEDNN_BF16 ? c.bias : NULL, y));
            check(&c, type <= ONEDNN_BF16 ? c.bias : NULL, y);
            free(y);
            case_close(&c);
        }
    diag_destroy(diag);
}

/* Rows that are apart: every second one of twice as wide a matrix. */
static void test_stride(void **state) {
    (void)state;
    Case c;
    if (skipped(ONEDNN_F32)) return;
    case_open(&c, ONEDNN_F32, 9, 40, 32);
    float *wide = calloc((size_t)(c.rows * 2 * c.K), sizeof *wide);
    float *y = malloc((size_t)(c.rows * c.M) * sizeof *y);
    for (int64_t r = 0; r < c.rows; r++)
        memcpy(wide + r * 2 * c.K, row_of(&c, r), (size_t)c.K * sizeof *wide);
    assert_true(onednn_times(c.matrix, c.rows, wide, 2 * c.K, NULL, y));
    check(&c, NULL, y);
    free(wide);
    free(y);
    case_close(&c);
}

/* The bytes of a row are those of all rows together, however many it is computed with. */
static void test_rows(void **state) {
    (void)state;
    static const int64_t together[] = {1, 2, 3, 5, 8, 16, 31, 64, 100, 128, 200, 256};
    static const int64_t shapes[][2] = {{96, 64}, {768, 768}, {384, 3072}, {50, 770}};
    for (OnednnType type = 0; type < ONEDNN_TYPES; type++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes && !skipped(type); i++) {
            Case c;
            case_open(&c, type, 256, shapes[i][0], shapes[i][1]);
            const size_t row = (size_t)c.M * 4;
            char *all = malloc(256 * row), *some = malloc(256 * row);
            assert_true(onednn_times(c.matrix, 256, c.x, c.K, NULL, all));
            for (size_t n = 0; n < sizeof together / sizeof *together; n++)
                for (int64_t first = 0; first + together[n] <= 256; first += 128) {
                    assert_true(onednn_times(c.matrix, together[n], row_of(&c, first),
                                             c.K, NULL, some));
                    if (memcmp(some, all + (size_t)first * row,
                               (size_t)together[n] * row) != 0)
                        fail_msg("%s, %lld x %lld: %lld rows from %lld on differ",
                                 NAMES[type], (long long)c.M, (long long)c.K,
                                 (long long)together[n], (long long)first);
                }
            free(all);
            free(some);
            case_close(&c);
        }
}

/* Element (i, j) of op(A). */
static float *element(float *a, bool transposed, int64_t lda, int64_t i, int64_t j) {
    return &a[transposed ? j * lda + i : i * lda + j];
}

/* C = alpha op(A) op(B) + beta C, all ways to store A and B, with rows that are apart,
 * against sums in double. */
static void check_gemm(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b,
                       float beta) {
    const int64_t lda = (trans_a ? m : k) + 3, ldb = (trans_b ? k : n) + 1, ldc = n + 2;
    float *a = calloc((size_t)(lda * (trans_a ? k : m)), sizeof *a);
    float *b = calloc((size_t)(ldb * (trans_b ? n : k)), sizeof *b);
    float *c = calloc((size_t)(ldc * m), sizeof *c);
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++)
            *element(a, trans_a, lda, i, l) =
                (float)random_normal(1, (uint64_t)(i * k + l));
    for (int64_t l = 0; l < k; l++)
        for (int64_t j = 0; j < n; j++)
            *element(b, trans_b, ldb, l, j) =
                (float)random_normal(2, (uint64_t)(l * n + j));
    for (int64_t i = 0; i < ldc * m; i++) c[i] = 7;
    assert_true(
        onednn_gemm(trans_a, trans_b, m, n, k, 0.5f, a, lda, b, ldb, beta, c, ldc));
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < ldc; j++) {
            double sum = j < n ? 7.0 * beta : 7, size = fabs(sum);
            for (int64_t l = 0; j < n && l < k; l++) {
                const double term = 0.5 * *element(a, trans_a, lda, i, l) *
                                    *element(b, trans_b, ldb, l, j);
                sum += term;
                size += fabs(term);
            }
            assert_float_equal(c[i * ldc + j], sum, 1e-6 * size);
        }
    free(a);
    free(b);
    free(c);
}

static void test_gemm(void **state) {
    (void)state;
    float one = 1;
    if (skipped(ONEDNN_F32)) return;
    static const int64_t shapes[][3] = {
        {2, 1, 1}, {5, 3, 9}, {64, 48, 33}, {130, 65, 257}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int way = 0; way < 8; way++)
            check_gemm(shapes[i][0], shapes[i][1], shapes[i][2], way & 1, way & 2,
                       way & 4 ? 1 : 0);
    assert_false(onednn_gemm(false, false, 1, 1, 0, 1, &one, 1, &one, 1, 0, &one, 1));
    assert_float_equal(one, 1, 0);
}

typedef struct Lanes {
    Case *c;
    char **y;
    atomic_int failed;
} Lanes;

static void multiply(void *self, int64_t i, int lane) {
    Lanes *lanes = self;
    (void)lane;
    for (int64_t rows = 1; rows <= lanes->c->rows; rows++)
        if (!onednn_times(lanes->c->matrix, rows, lanes->c->x, lanes->c->K, NULL,
                          lanes->y[i]))
            lanes->failed++;
}

/* Lanes at once, over more shapes than are kept. */
static void test_lanes(void **state) {
    enum { LANES = 4 };
    (void)state;
    for (OnednnType type = 0; type < ONEDNN_TYPES; type++) {
        Case c;
        if (skipped(type)) continue;
        case_open(&c, type, ONEDNN_SHAPES + 9, 80, 48);
        const size_t bytes = (size_t)(c.rows * c.M) * 4;
        char *y[LANES];
        Lanes lanes = {&c, y, 0};
        for (int i = 0; i < LANES; i++) y[i] = malloc(bytes);
        parallel_for(LANES, LANES, multiply, &lanes);
        assert_int_equal(lanes.failed, 0);
        for (int i = 0; i < LANES; i++) {
            assert_memory_equal(y[i], y[0], bytes);
            check(&c, NULL, y[i]);
        }
        for (int i = 0; i < LANES; i++) free(y[i]);
        case_close(&c);
    }
}

/* A shape that the library refuses, as where memory runs out: the caller is told, and
 * later shapes work. */
static void test_no_product(void **state) {
    (void)state;
    Case c;
    if (skipped(ONEDNN_F32)) return;
    case_open(&c, ONEDNN_F32, 3, 40, 32);
    float *y = malloc((size_t)(c.rows * c.M) * sizeof *y);
    assert_false(onednn_times(c.matrix, -2, c.x, c.K, NULL, y));
    assert_true(onednn_times(c.matrix, c.rows, c.x, c.K, NULL, y));
    check(&c, NULL, y);
    free(y);
    case_close(&c);
}

static void test_refusal(void **state) {
    (void)state;
    const float weights[4] = {0};
    OnednnMatrix *matrix = NULL;
    for (OnednnType type = 0; type < ONEDNN_TYPES; type++) {
        if (onednn_has(type)) continue;
        Diag *diag = diag_create();
        assert_int_equal(onednn_pack(&matrix, type, false, 2, 2, weights, diag),
                         STATUS_USAGE);
        assert_null(matrix);
        diag_destroy(diag);
    }
    if (onednn_has(ONEDNN_F32)) assert_true(strlen(onednn_library()) > 0);
    onednn_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),  cmocka_unit_test(test_stride),
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_lanes),   cmocka_unit_test(test_no_product),
        cmocka_unit_test(test_refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
