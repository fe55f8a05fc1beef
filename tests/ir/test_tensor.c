/* Buffers, tensors, conversions and hashes. */
#include "ir/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CODES = 65536 };

/* The value of a code with the given exponent and fraction widths, by the definition of
 * IEEE 754 binary formats. */
static double decode(uint32_t code, int exponent_bits, int fraction_bits) {
    uint32_t fraction = code & ((1u << fraction_bits) - 1);
    int largest = (1 << exponent_bits) - 1, bias = largest / 2;
    int exponent = (int)(code >> fraction_bits) & largest;
    double sign = code >> (exponent_bits + fraction_bits) & 1 ? -1.0 : 1.0;
    if (exponent == largest) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign *
           ldexp(fraction + ldexp(1, fraction_bits), exponent - bias - fraction_bits);
}

static void check_codes(DType dtype, int exponent_bits, int fraction_bits) {
    static uint16_t codes[CODES];
    static float floats[CODES];
    static double doubles[CODES];
    for (int i = 0; i < CODES; i++) codes[i] = (uint16_t)i;
    Tensor tensor = tensor_shape(dtype, 1, (int64_t[]){CODES});
    tensor.buf = buf_wrap(codes, sizeof codes, NULL);
    tensor_read_f32(&tensor, 0, CODES, floats);
    tensor_read_f64(&tensor, 0, CODES, doubles);
    for (uint32_t i = 0; i < CODES; i++) {
        double expected = decode(i, exponent_bits, fraction_bits);
        if (isnan(expected)) {
            assert_true(isnan(floats[i]) && isnan(doubles[i]));
            continue;
        }
        float single = (float)expected;
        assert_memory_equal(&floats[i], &single, sizeof single);
        assert_memory_equal(&doubles[i], &expected, sizeof expected);
    }
    tensor_release(&tensor);
}

static void test_f16(void **state) {
    (void)state;
    check_codes(DTYPE_F16, 5, 10);
}

static void test_bf16(void **state) {
    (void)state;
    check_codes(DTYPE_BF16, 8, 7);
}

/* Elements may start at any byte and reading may start at any element. */
static void test_read(void **state) {
    (void)state;
    static const int32_t values[] = {-3, 0, 7, 2147483647};
    char bytes[1 + sizeof values];
    memcpy(bytes + 1, values, sizeof values);
    Tensor tensor = tensor_shape(DTYPE_I32, 2, (int64_t[]){2, 2});
    tensor.buf = buf_wrap(bytes, sizeof bytes, NULL);
    tensor.offset = 1;
    double out[3];
    tensor_read_f64(&tensor, 1, 3, out);
    assert_true(out[0] == 0 && out[1] == 7 && out[2] == 2147483647.0);
    tensor_release(&tensor);
    static const uint8_t flags[] = {1, 255};
    tensor = tensor_shape(DTYPE_U8, 1, (int64_t[]){2});
    tensor.buf = buf_wrap(flags, sizeof flags, NULL);
    float small[2];
    tensor_read_f32(&tensor, 0, 2, small);
    assert_true(small[1] == 255);
    tensor.dtype = DTYPE_I8;
    tensor_read_f32(&tensor, 0, 2, small);
    assert_true(small[1] == -1);
    tensor_release(&tensor);
}

static void test_dtypes(void **state) {
    (void)state;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        DType dtype;
        assert_true(dtype_parse(dtype_name((DType)i), &dtype));
        assert_int_equal(dtype, i);
    }
    DType dtype;
    assert_false(dtype_parse("f8", &dtype));
    assert_int_equal(dtype_bytes(DTYPE_BF16), 2);
    assert_true(dtype_is_real(DTYPE_F16));
    assert_false(dtype_is_real(DTYPE_I8));
}

static void test_shapes(void **state) {
    (void)state;
    int64_t count;
    size_t bytes;
    const int64_t dim[] = {2, 3, 4, 5, 6, 7, 8};
    assert_true(shape_size(DTYPE_F32, 6, dim, &count, &bytes));
    assert_int_equal(count, 5040);
    assert_int_equal(bytes, 20160);
    assert_true(shape_size(DTYPE_F64, 0, dim, &count, NULL));
    assert_int_equal(count, 1);
    assert_false(shape_size(DTYPE_F32, 7, dim, NULL, NULL));
    assert_false(shape_size(DTYPE_F32, -1, dim, NULL, NULL));
    assert_false(shape_size(DTYPE_F32, 1, (int64_t[]){-1}, NULL, NULL));
    assert_false(shape_size(DTYPE_F32, 1, (int64_t[]){INT64_MAX / 2}, NULL, NULL));
    assert_false(shape_size(DTYPE_I8, 2, (int64_t[]){1ll << 40, 1ll << 40}, NULL, NULL));
    char text[SHAPE_TEXT_BYTES];
    assert_string_equal(shape_text(text, 2, dim), "[2, 3]");
    assert_string_equal(shape_text(text, 0, dim), "[]");
    const int64_t least[] = {INT64_MIN, INT64_MIN, INT64_MIN,
                             INT64_MIN, INT64_MIN, INT64_MIN};
    assert_true(strlen(shape_text(text, 6, least)) < SHAPE_TEXT_BYTES);
}

static int released;

static void count_release(void *data, size_t bytes) {
    (void)data;
    released += (int)bytes;
}

static void test_buffers(void **state) {
    (void)state;
    Diag *diag = diag_create();
    const size_t sizes[] = {0, 1, 64, 1000, (4 << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Buf *buf;
        assert_int_equal(buf_create(&buf, sizes[i], diag), STATUS_OK);
        const unsigned char *data = buf_data(buf);
        assert_int_equal((uintptr_t)data % 64, 0);
        assert_int_equal(buf_bytes(buf), sizes[i]);
        assert_true(buf_is_exclusive(buf));
        for (size_t k = 0; k < sizes[i]; k += 61) assert_int_equal(data[k], 0);
        buf_retain(buf);
        assert_false(buf_is_exclusive(buf));
        buf_release(buf);
        buf_release(buf);
    }
    Buf *buf;
    assert_int_equal(buf_create(&buf, SIZE_MAX, diag), STATUS_MEMORY);
    assert_int_equal(buf_create(&buf, (size_t)1 << 60, diag), STATUS_MEMORY);
    buf_release(buf_wrap("abc", 3, count_release));
    assert_int_equal(released, 3);
    buf_release(NULL);
    diag_destroy(diag);
}

static void test_writable(void **state) {
    (void)state;
    Diag *diag = diag_create();
    static const float values[] = {1, 2, 3, 4};
    Tensor tensor = tensor_shape(DTYPE_F32, 1, (int64_t[]){3});
    tensor.buf = buf_wrap(values, sizeof values, NULL);
    tensor.offset = sizeof(float);
    Tensor other = tensor_retain(&tensor);
    void *data, *again;
    assert_int_equal(tensor_writable(&tensor, &data, diag), STATUS_OK);
    assert_memory_equal(data, values + 1, 3 * sizeof(float));
    ((float *)data)[0] = 9;
    assert_true(values[1] == 2);
    assert_int_equal(tensor_writable(&tensor, &again, diag), STATUS_OK);
    assert_ptr_equal(data, again);
    Tensor shared;
    assert_int_equal(tensor_to_f32(&shared, &tensor, diag), STATUS_OK);
    assert_int_equal(tensor_writable(&tensor, &again, diag), STATUS_OK);
    assert_ptr_not_equal(data, again);
    tensor_release(&tensor);
    tensor_release(&other);
    tensor_release(&shared);
    tensor = tensor_shape(DTYPE_F32, 1, (int64_t[]){3});
    assert_int_equal(tensor_writable(&tensor, &data, diag), STATUS_INTERNAL);
    diag_destroy(diag);
}

static void test_to_f32(void **state) {
    (void)state;
    Diag *diag = diag_create();
    static const double values[] = {1.5, -2, 0.1};
    Tensor tensor = tensor_shape(DTYPE_F64, 2, (int64_t[]){1, 3}), out;
    assert_int_equal(tensor_to_f32(&out, &tensor, diag), STATUS_OK);
    assert_null(out.buf);
    tensor.buf = buf_wrap(values, sizeof values, NULL);
    assert_int_equal(tensor_to_f32(&out, &tensor, diag), STATUS_OK);
    assert_int_equal(out.rank, 2);
    const float *data = tensor_data(&out);
    assert_true(data[0] == 1.5f && data[1] == -2.0f && data[2] == 0.1f);
    tensor_release(&out);
    tensor_release(&tensor);
    diag_destroy(diag);
}

static void test_nonfinite(void **state) {
    (void)state;
    enum { COUNT = 5000 };
    static float values[COUNT];
    Tensor tensor = tensor_shape(DTYPE_F32, 1, (int64_t[]){COUNT});
    tensor.buf = buf_wrap(values, sizeof values, NULL);
    values[17] = 3.4e38f;
    assert_int_equal(tensor_find_nonfinite(&tensor), -1);
    values[4999] = INFINITY;
    assert_int_equal(tensor_find_nonfinite(&tensor), 4999);
    values[2049] = NAN;
    assert_int_equal(tensor_find_nonfinite(&tensor), 2049);
    values[0] = -INFINITY;
    assert_int_equal(tensor_find_nonfinite(&tensor), 0);
    tensor.dtype = DTYPE_I32;
    assert_int_equal(tensor_find_nonfinite(&tensor), -1);
    tensor_release(&tensor);
    static const uint16_t halves[] = {0x7bff, 0x7c00};
    tensor = tensor_shape(DTYPE_F16, 1, (int64_t[]){2});
    tensor.buf = buf_wrap(halves, sizeof halves, NULL);
    assert_int_equal(tensor_find_nonfinite(&tensor), 1);
    tensor.dtype = DTYPE_BF16;
    assert_int_equal(tensor_find_nonfinite(&tensor), -1);
    tensor_release(&tensor);
}

static void test_hash(void **state) {
    (void)state;
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    bytes_hash(NULL, 0, a);
    assert_string_equal(a, "99aa06d3014798d86001c324468d497f");
    static const float values[] = {1, 2, 3, 4, 5, 6};
    Tensor tensor = tensor_shape(DTYPE_F32, 2, (int64_t[]){2, 3});
    tensor.buf = buf_wrap(values, sizeof values, NULL);
    tensor_hash(&tensor, a);
    tensor_hash(&tensor, b);
    assert_string_equal(a, b);
    tensor.dim[0] = 3;
    tensor.dim[1] = 2;
    tensor_hash(&tensor, b);
    assert_string_not_equal(a, b);
    tensor.dim[0] = 2;
    tensor.dim[1] = 3;
    tensor.dtype = DTYPE_I32;
    tensor_hash(&tensor, b);
    assert_string_not_equal(a, b);
    tensor_release(&tensor);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16),       cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_read),      cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_shapes),    cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_writable),  cmocka_unit_test(test_to_f32),
        cmocka_unit_test(test_nonfinite), cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
