/* Truncated SVD: errors against the optimum, bytes, edge cases, failures. */
#include "exec/linalg/tsvd.h"

#include "tests/exec/spectra.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

enum { ROWS = 3000, WIDTH = 192, RANK = 90 };

/* What exec/linalg/tsvd.h promises: of the error's excess over the least, of the factors'
 * rounding per ||E||, and of the root of the predicted error. */
#define EXCESS     1e-7
#define FACTORS    5e-7
#define PREDICTION 3e-4

/* ---- helpers ---- */

static Tensor matrix(DType dtype, int64_t rows, int64_t width, const void *data) {
    Tensor e = tensor_shape(dtype, 2, (int64_t[]){rows, width});
    e.buf = buf_wrap(data, tensor_bytes(&e), NULL);
    return e;
}

/* The same matrix at an address that no element type is aligned to, as in a mapped file.
 */
static Tensor misaligned(DType dtype, int64_t rows, int64_t width, const void *data,
                         char *storage) {
    Tensor e = tensor_shape(dtype, 2, (int64_t[]){rows, width});
    memcpy(storage + 1, data, tensor_bytes(&e));
    e.buf = buf_wrap(storage, tensor_bytes(&e) + 1, NULL);
    e.offset = 1;
    return e;
}

static float *new_floats(int64_t count) {
    return memory_alloc((size_t)count, sizeof(float));
}

static float *normal_matrix(int64_t rows, int64_t width) {
    float *a = new_floats(rows * width);
    for (int64_t i = 0; i < rows * width; i++)
        a[i] = (float)random_normal(3, (uint64_t)i);
    return a;
}

static Tsvd decompose(const Tensor *e, int64_t rank, int threads) {
    Diag *diag = diag_create();
    Tsvd result;
    assert_ok(tsvd(&result, e, rank, threads, diag), diag);
    diag_destroy(diag);
    return result;
}

static Tsvd decompose_floats(const float *a, int64_t rows, int64_t width, int64_t rank) {
    Tensor e = matrix(DTYPE_F32, rows, width, a);
    Tsvd result = decompose(&e, rank, 2);
    buf_release(e.buf);
    return result;
}

static double error_of(const float *a, int64_t rows, int64_t width, const Tsvd *result) {
    return spectra_error(a, rows, width, tensor_data(&result->left),
                         tensor_data(&result->right), result->right.dim[0]);
}

static double norm_of(const float *a, int64_t rows, int64_t width) {
    return spectra_error(a, rows, width, NULL, NULL, 0);
}

static bool same_tensor(const Tensor *a, const Tensor *b) {
    return tensor_bytes(a) == tensor_bytes(b) &&
           memcmp(tensor_data(a), tensor_data(b), tensor_bytes(a)) == 0;
}

static void assert_same(const Tsvd *a, const Tsvd *b) {
    assert_true(same_tensor(&a->left, &b->left));
    assert_true(same_tensor(&a->right, &b->right));
    assert_true(same_tensor(&a->sigma, &b->sigma));
    assert_true(a->error == b->error && a->energy == b->energy);
    assert_int_equal(a->double_precision, b->double_precision);
}

/* Orthonormal rows, each with its largest component positive; finite left factor. */
static void assert_factors(const Tsvd *result) {
    const int64_t rank = result->right.dim[0], width = result->right.dim[1];
    const float *right = tensor_data(&result->right);
    for (int64_t i = 0; i < rank; i++) {
        float largest = 0;
        for (int64_t c = 0; c < width; c++)
            if (fabsf(right[i * width + c]) > fabsf(largest))
                largest = right[i * width + c];
        assert_true(largest > 0);
        for (int64_t j = 0; j <= i; j++) {
            double inner = 0;
            for (int64_t c = 0; c < width; c++)
                inner += (double)right[i * width + c] * right[j * width + c];
            /* of two vectors of length 1 whose elements are rounded to float */
            assert_within(inner, i == j, rounding_tolerance(PRECISION_F32, 2, 1));
        }
    }
    assert_int_equal(tensor_find_nonfinite(&result->left), -1);
    const double *sigma = tensor_data(&result->sigma);
    for (int64_t i = 1; i < width; i++) assert_true(sigma[i] <= sigma[i - 1]);
    assert_true(sigma[width - 1] >= 0);
}

static void assert_optimal(const float *a, int64_t rows, int64_t width,
                           const Tsvd *result) {
    const int64_t rank = result->right.dim[0];
    const double optimum = spectra_optimum(a, rows, width, rank);
    const double error = error_of(a, rows, width, result);
    const double rounding = FACTORS * norm_of(a, rows, width);
    assert_true(error <= hypot(optimum * (1 + EXCESS), rounding));
    assert_within(sqrt(result->error), optimum, PREDICTION * optimum + rounding);
}

/* ---- errors ---- */

/* How far the sum of the eigenvalues that are cut off is from the one of a Gram matrix of
 * `rows` rows in f32 or f64, per unit of its trace. Sums of `rows` terms are off by what
 * rounding_tolerance says; errors of `cut` such sums are independent, so that of their
 * mean is as if there were fewer terms. */
static double trace_tolerance(bool wide, int64_t rows, int64_t cut) {
    return rounding_tolerance(wide ? PRECISION_F64 : PRECISION_F32,
                              (double)rows / (double)cut, 1);
}

static void check_kind(const char *kind, bool wide) {
    float *a = new_floats(ROWS * WIDTH);
    spectra_fill(a, ROWS, WIDTH, kind, 5);
    Tsvd result = decompose_floats(a, ROWS, WIDTH, RANK);
    const double optimum = spectra_optimum(a, ROWS, WIDTH, RANK);
    const double kept = pow(optimum / norm_of(a, ROWS, WIDTH), 2);
    const double tolerance = trace_tolerance(wide, ROWS, WIDTH - RANK);
    assert_int_equal(result.double_precision, wide);
    assert_optimal(a, ROWS, WIDTH, &result);
    assert_within(result.error / (optimum * optimum), 1, tolerance / kept);
    assert_within(result.energy, 1 - kept, tolerance);
    assert_factors(&result);
    tsvd_release(&result);
    free(a);
}

static void test_optimum(void **state) {
    (void)state;
    check_kind("real", false);
    check_kind("flat", false);
    check_kind("steep", true);
}

/* Spectra of every steepness: f32 is left early enough. */
static void test_steepness(void **state) {
    (void)state;
    float *a = new_floats(ROWS * WIDTH);
    double sigma[WIDTH];
    for (double fall = 8; fall < 60; fall *= 1.25) {
        for (int64_t i = 0; i < WIDTH; i++) sigma[i] = exp(-(double)i / fall);
        spectra_make(a, ROWS, WIDTH, sigma, 9);
        Tsvd result = decompose_floats(a, ROWS, WIDTH, RANK);
        assert_optimal(a, ROWS, WIDTH, &result);
        const double *found = tensor_data(&result.sigma);
        assert_within(found[RANK] / sigma[RANK], 1, PREDICTION);
        tsvd_release(&result);
    }
    free(a);
}

/* One large row that the sample of rows does not see. */
static void test_sample_misled(void **state) {
    (void)state;
    float *a = normal_matrix(ROWS, WIDTH);
    for (int64_t c = 0; c < WIDTH; c++) a[WIDTH + c] *= 1e5f;
    Tsvd result = decompose_floats(a, ROWS, WIDTH, RANK);
    assert_true(result.double_precision);
    assert_optimal(a, ROWS, WIDTH, &result);
    tsvd_release(&result);
    free(a);
}

/* ---- bytes ---- */

static void check_threads(const char *kind, DType dtype) {
    float *a = new_floats(ROWS * WIDTH);
    spectra_fill(a, ROWS, WIDTH, kind, 5);
    char *bytes = memory_alloc(ROWS * WIDTH * 4 + 1, 1);
    uint16_t *halves = memory_alloc(ROWS * WIDTH, sizeof *halves);
    for (int64_t i = 0; i < ROWS * WIDTH; i++) {
        uint32_t bits;
        memcpy(&bits, a + i, sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
    }
    const void *data = dtype == DTYPE_BF16 ? (void *)halves : (void *)a;
    Tensor plain = matrix(dtype, ROWS, WIDTH, data);
    Tensor mapped = misaligned(dtype, ROWS, WIDTH, data, bytes);
    Tsvd first = decompose(&plain, RANK, 1);
    for (int threads = 1; threads <= 7; threads += threads < 3 ? 1 : 4) {
        Tsvd other = decompose(threads == 2 ? &mapped : &plain, RANK, threads);
        assert_same(&first, &other);
        tsvd_release(&other);
    }
    tsvd_release(&first);
    buf_release(plain.buf);
    buf_release(mapped.buf);
    free(a), free(bytes), free(halves);
}

static void test_threads(void **state) {
    (void)state;
    check_threads("real", DTYPE_F32);
    check_threads("real", DTYPE_BF16);
    check_threads("steep", DTYPE_F32);
}

/* Small integers are the same in every type, so the results are. */
static void test_dtypes(void **state) {
    (void)state;
    enum { V = 300, H = 40 };
    static float f32[V * H];
    static double f64[V * H];
    static uint16_t f16[V * H], bf16[V * H];
    const uint16_t halves[] = {0xc000, 0xbc00, 0, 0x3c00, 0x4000};
    for (int i = 0; i < V * H; i++) {
        const int x = (int)(random_u64(1, (uint64_t)i) % 5);
        f64[i] = f32[i] = (float)(x - 2);
        f16[i] = halves[x];
        uint32_t bits;
        memcpy(&bits, f32 + i, sizeof bits);
        bf16[i] = (uint16_t)(bits >> 16);
    }
    const void *data[] = {f32, f64, f16, bf16};
    const DType dtype[] = {DTYPE_F32, DTYPE_F64, DTYPE_F16, DTYPE_BF16};
    Tsvd first = decompose_floats(f32, V, H, 7);
    for (int i = 0; i < 4; i++) {
        Tensor e = matrix(dtype[i], V, H, data[i]);
        Tsvd other = decompose(&e, 7, 2);
        assert_same(&first, &other);
        tsvd_release(&other);
        buf_release(e.buf);
    }
    tsvd_release(&first);
}

/* The sign is the right factor's: -E has the same one. */
static void test_signs(void **state) {
    (void)state;
    float *a = normal_matrix(100, 30);
    Tsvd first = decompose_floats(a, 100, 30, 9);
    for (int i = 0; i < 3000; i++) a[i] = -a[i];
    Tsvd other = decompose_floats(a, 100, 30, 9);
    assert_true(same_tensor(&first.right, &other.right));
    const float *x = tensor_data(&first.left), *y = tensor_data(&other.left);
    for (int i = 0; i < 900; i++) assert_true(x[i] == -y[i]);
    tsvd_release(&first);
    tsvd_release(&other);
    free(a);
}

/* ---- edge cases ---- */

/* Decomposes and compares with the optimum. */
static void check_shape(const float *a, int64_t rows, int64_t width, int64_t rank) {
    Tsvd result = decompose_floats(a, rows, width, rank);
    assert_optimal(a, rows, width, &result);
    assert_true(result.energy >= 0 && result.energy <= 1);
    assert_factors(&result);
    tsvd_release(&result);
}

static void test_shapes(void **state) {
    (void)state;
    const int64_t shape[][3] = {{200, 30, 1},  {200, 30, 30}, {30, 30, 30}, {20, 50, 5},
                                {20, 50, 20},  {1, 8, 1},     {8, 1, 1},    {1, 1, 1},
                                {65, 2, 2},    {2, 2, 1},     {5, 300, 5},  {700, 3, 2},
                                {1000, 70, 69}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        float *a = normal_matrix(shape[i][0], shape[i][1]);
        check_shape(a, shape[i][0], shape[i][1], shape[i][2]);
        free(a);
    }
}

/* Zero columns and rows, equal columns, all zeros, a matrix of rank 5. */
static void test_deficient(void **state) {
    (void)state;
    enum { V = 400, H = 40 };
    float *a = normal_matrix(V, H);
    for (int i = 0; i < V; i++)
        for (int c = 0; c < H; c += 3) a[i * H + c] = 0;
    check_shape(a, V, H, 10);
    check_shape(a, V, H, 40);
    for (int i = 0; i < V * H; i++) a[i] = (float)random_normal(4, (uint64_t)(i / H));
    check_shape(a, V, H, 1);
    check_shape(a, V, H, 3);
    for (int i = 0; i < V * H; i++) {
        a[i] = 0;
        for (int k = 0; k < 5; k++)
            a[i] += (float)(random_normal(5, (uint64_t)(i / H * 5 + k)) *
                            random_normal(6, (uint64_t)(i % H * 5 + k)));
    }
    check_shape(a, V, H, 5);
    check_shape(a, V, H, 20);
    memset(a, 0, V * H * sizeof *a);
    check_shape(a, V, H, 4);
    Tsvd result = decompose_floats(a, V, H, 4);
    assert_true(result.error == 0 && result.energy == 1);
    tsvd_release(&result);
    free(a);
}

/* Numbers whose squares leave the range of f32. */
static void test_scale(void **state) {
    (void)state;
    enum { V = 300, H = 40, R = 12 };
    float *a = normal_matrix(V, H);
    Tsvd plain = decompose_floats(a, V, H, R);
    for (int power = -110; power <= 110; power += 44) {
        float *b = normal_matrix(V, H);
        for (int i = 0; i < V * H; i++) b[i] = ldexpf(b[i], power);
        Tsvd scaled = decompose_floats(b, V, H, R);
        const double tolerance = trace_tolerance(false, V, H - R);
        assert_within(scaled.error / plain.error / ldexp(1, 2 * power), 1,
                      tolerance / (1 - plain.energy));
        assert_within(scaled.energy, plain.energy, tolerance);
        assert_factors(&scaled);
        tsvd_release(&scaled);
        free(b);
    }
    tsvd_release(&plain);
    free(a);
}

/* ---- failures ---- */

static void assert_fails(const Tensor *e, int64_t rank) {
    Diag *diag = diag_create();
    Tsvd result;
    assert_int_equal(tsvd(&result, e, rank, 2, diag), STATUS_MODEL);
    assert_int_equal(diag_errors(diag), 1);
    diag_destroy(diag);
}

static void assert_floats_fail(float *a, int at, float value) {
    const float old = a[at];
    a[at] = value;
    Tensor e = matrix(DTYPE_F32, 1000, 20, a);
    assert_fails(&e, 3);
    buf_release(e.buf);
    a[at] = old;
}

static void test_failures(void **state) {
    (void)state;
    float *a = normal_matrix(1000, 20);
    assert_floats_fail(a, 0, NAN);
    assert_floats_fail(a, 19999, NAN);
    assert_floats_fail(a, 777, INFINITY);
    assert_floats_fail(a, 778, -INFINITY);
    Tensor e = matrix(DTYPE_F32, 1000, 20, a);
    assert_fails(&e, 0);
    assert_fails(&e, -1);
    assert_fails(&e, 21);
    e.rank = 3;
    assert_fails(&e, 1);
    e.rank = 2;
    e.dtype = DTYPE_I32;
    assert_fails(&e, 1);
    e.dtype = DTYPE_F32;
    e.dim[0] = 10; /* fewer rows than columns */
    assert_fails(&e, 11);
    buf_release(e.buf);
    for (int i = 0; i < 20000; i++)
        a[i] *= 1e37f; /* the elements fit, the norm does not */
    assert_floats_fail(a, 0, 3e38f);
    double huge[6] = {1e200, 1, 1, 1, 1, 1};
    e = matrix(DTYPE_F64, 3, 2, huge);
    assert_fails(&e, 1);
    huge[0] = 1e100;
    assert_fails(&e, 1);
    buf_release(e.buf);
    free(a);
}

int main(void) {
    blas_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimum),       cmocka_unit_test(test_steepness),
        cmocka_unit_test(test_sample_misled), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_dtypes),        cmocka_unit_test(test_signs),
        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_deficient),
        cmocka_unit_test(test_scale),         cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
