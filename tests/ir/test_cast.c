/* Casts: every rounding against the definition of the formats, what is reported, what
 * stays. */
#include "ir/cast.h"

#include "ir/half.h"
#include "ir/random.h"
#include "ir/storage.h"
#include "tests/ir/toy_graph.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The value of a code, by the definition of IEEE 754 binary formats. */
static double decode(uint32_t code, int exponent_bits, int fraction_bits) {
    const uint32_t fraction = code & ((1u << fraction_bits) - 1);
    const int exponent = (int)(code >> fraction_bits),
              bias = (1 << exponent_bits) / 2 - 1;
    if (exponent == 0) return ldexp(fraction, 1 - bias - fraction_bits);
    return ldexp(fraction + ldexp(1, fraction_bits), exponent - bias - fraction_bits);
}

static void check_float(DType dtype, float value, uint32_t expected) {
    const uint16_t found =
        dtype == DTYPE_F16 ? f16_from_float(value) : bf16_from_float(value);
    if (found != expected)
        fail_msg("%a: expected %s code %04x, found %04x", (double)value,
                 dtype_name(dtype), (unsigned)expected, (unsigned)found);
}

/* Between neighbours a < b: a, just below the middle, the middle (the even one of both),
 * just above it, b; with both signs. */
static void check_neighbours(DType dtype, int exponent_bits, int fraction_bits) {
    const uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
    for (uint32_t code = 0; code < infinity; code++) {
        const double a = decode(code, exponent_bits, fraction_bits);
        const double b = decode(code + 1, exponent_bits, fraction_bits);
        const float middle = (float)(a + (b - a) / 2);
        const struct {
            float value;
            uint32_t expected;
        } cases[] = {{(float)a, code},
                     {nextafterf(middle, 0), code},
                     {middle, code + (code & 1)},
                     {nextafterf(middle, INFINITY), code + 1}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const uint32_t sign = 0x8000;
            if (dtype == DTYPE_BF16 && code + 1 == infinity && i > 1) continue;
            check_float(dtype, cases[i].value, cases[i].expected);
            check_float(dtype, -cases[i].value, cases[i].expected | sign);
        }
    }
    check_float(dtype, FLT_MAX, infinity);
    check_float(dtype, INFINITY, infinity);
    check_float(dtype, -INFINITY, infinity | 0x8000);
    const uint16_t nan = dtype == DTYPE_F16 ? f16_from_float(NAN) : bf16_from_float(NAN);
    assert_true((nan & 0x7fff) > infinity);
}

static void test_neighbours(void **state) {
    (void)state;
    check_neighbours(DTYPE_F16, 5, 10);
    check_neighbours(DTYPE_BF16, 8, 7);
}

/* Gives `w` 16 values of a type. */
static void fill(Fixture *f, DType dtype, const double *values) {
    Tensor tensor;
    void *data;
    assert_ok(tensor_create(&tensor, dtype, 2, f->w->tensor.dim, f->diag), f->diag);
    assert_ok(tensor_writable(&tensor, &data, f->diag), f->diag);
    for (int i = 0; i < 16; i++) {
        if (dtype == DTYPE_F64) ((double *)data)[i] = values[i];
        if (dtype == DTYPE_F32) ((float *)data)[i] = (float)values[i];
        if (dtype == DTYPE_BF16)
            ((uint16_t *)data)[i] = bf16_from_float((float)values[i]);
    }
    storage_set_values(f->w, tensor);
}

static double value_at(const Storage *storage, int64_t i) {
    double value;
    tensor_read_f64(&storage->tensor, i, 1, &value);
    return value;
}

/* From double there is one rounding: the nearest float of what lies just above the middle
 * of two halves is that middle, which would go to the even one. */
static void test_once(void **state) {
    Fixture *f = *state;
    const double middle = 1 + 0x1p-11;
    double values[16] = {middle,  middle + 0x1p-40,  -middle - 0x1p-40, middle - 0x1p-40,
                         0x1p-25, 0x1p-25 + 0x1p-60, -0x1p-1070};
    fill(f, DTYPE_F64, values);
    CastReport report;
    assert_ok(model_cast(f->model, DTYPE_F16, &report, f->diag), f->diag);
    const double expected[] = {1, 1 + 0x1p-10, -1 - 0x1p-10, 1, 0, 0x1p-24, 0};
    for (int i = 0; i < 7; i++) assert_true(value_at(f->w, i) == expected[i]);
    assert_int_equal(report.zeros, 2);
    assert_int_equal(report.subnormals, 1);
    assert_int_equal(report.storages, 2);
    assert_int_equal(report.elements, 20);
    assert_string_equal(report.worst, "w");
    assert_true(report.error <= 0x1p-11 && report.error > 0x1p-12);
}

/* Gaussian, lineage and the distribution of first values stay; shapes get the type. */
static void test_what_stays(void **state) {
    Fixture *f = *state;
    const double values[16] = {1, 2, 3};
    const int64_t keep[] = {0, 1, 3};
    fill(f, DTYPE_F32, values);
    Gaussian *g = gaussian_create(f->graph->arena, GAUSSIAN_DIAGONAL, DTYPE_F32,
                                  &f->w->tensor, 0, "origin");
    assert_ok(gaussian_allocate(g, f->diag), f->diag);
    storage_set_gaussian(f->w, g);
    f->w->init = (Init){INIT_NORMAL, 0.5};
    assert_ok(storage_keep(f->graph, graph_param(f->graph, f->w), STORAGE_ALL_USERS, 0,
                           keep, 3, f->diag),
              f->diag);
    assert_ok(model_cast(f->model, DTYPE_BF16, NULL, f->diag), f->diag);
    assert_int_equal(f->w->tensor.dtype, DTYPE_BF16);
    assert_int_equal(f->b->tensor.dtype, DTYPE_BF16);
    assert_false(storage_has_data(f->b));
    assert_ptr_equal(storage_gaussian(f->w), g);
    assert_int_not_equal(f->w->kept[0].count, 0);
    assert_int_equal(f->w->init.kind, INIT_NORMAL);
    assert_int_equal(graph_param(f->graph, f->w)->type.dtype, DTYPE_F32);
    assert_true(value_at(f->w, 1) == 2);
    model_strip(f->model);
    CastReport report;
    assert_ok(model_cast(f->model, DTYPE_F32, &report, f->diag), f->diag);
    assert_int_equal(f->w->tensor.dtype, DTYPE_F32);
    assert_int_equal(report.elements, 16);
    assert_null(report.worst);
}

static void test_overflow(void **state) {
    Fixture *f = *state;
    double values[16] = {[5] = 65519.5, [9] = -70000};
    fill(f, DTYPE_F32, values);
    assert_int_equal(model_cast(f->model, DTYPE_F16, NULL, f->diag), STATUS_MODEL);
    check_message(f->diag, "error: w: weight [2, 1] is -70000: expected at most 65504, "
                           "the largest number of type f16\n"
                           "    hint: bf16 has the range of f32\n");
    assert_int_equal(f->w->tensor.dtype, DTYPE_F32);
    diag_clear(f->diag);
    values[9] = INFINITY; /* that was no number before either */
    fill(f, DTYPE_F32, values);
    assert_ok(model_cast(f->model, DTYPE_F16, NULL, f->diag), f->diag);
    values[9] = -1e39;
    fill(f, DTYPE_F64, values);
    assert_int_equal(model_cast(f->model, DTYPE_F32, NULL, f->diag), STATUS_MODEL);
    assert_int_equal(model_cast(f->model, DTYPE_BF16, NULL, f->diag), STATUS_MODEL);
}

/* Whatever is cast up comes back. */
static void test_there_and_back(void **state) {
    Fixture *f = *state;
    double values[16];
    uint16_t before[16];
    for (int i = 0; i < 16; i++) values[i] = random_normal(7, (uint64_t)i);
    fill(f, DTYPE_BF16, values);
    memcpy(before, tensor_data(&f->w->tensor), sizeof before);
    assert_true(dtype_widens(DTYPE_BF16, DTYPE_F32));
    assert_false(dtype_widens(DTYPE_F16, DTYPE_BF16));
    assert_ok(model_cast(f->model, DTYPE_F32, NULL, f->diag), f->diag);
    assert_ok(model_cast(f->model, DTYPE_BF16, NULL, f->diag), f->diag);
    assert_memory_equal(tensor_data(&f->w->tensor), before, sizeof before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test_setup_teardown(test_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overflow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_there_and_back, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
