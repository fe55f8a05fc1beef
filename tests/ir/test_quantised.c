/* Quantised tensors: where parts lie, reading, rounding, keeping, checking. What is read
 * is compared with the definition in ir/quantised.h, written out here by hand. */
#include "ir/half.h"
#include "ir/quantised.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, WIDTH = 71, COUNT = ROWS * WIDTH };

typedef struct Form {
    const char *word;
    Tensor shape;
    size_t scales, zeros, bytes, stored;
} Form;

/* 3 rows of 71: 36 bytes of nibbles a row, groups of 32, 32 and 7, or 64 and 7. */
static int forms(Form out[4]) {
    const int64_t dim[] = {ROWS, WIDTH};
    out[0] = (Form){"q8", q8_shape(2, dim), 256, 268, 268, 225};
    out[1] = (Form){"q4_32", q4_shape(2, dim, 32, false), 128, 146, 146, 126};
    out[2] = (Form){"q4z_32", q4_shape(2, dim, 32, true), 128, 192, 201, 135};
    out[3] = (Form){"q4z_64", q4_shape(2, dim, 64, true), 128, 192, 198, 126};
    return 4;
}

static Tensor make(const Tensor *shape, Diag *diag) {
    Tensor tensor = *shape;
    assert_ok(tensor_allocate(&tensor, diag), diag);
    return tensor;
}

static unsigned char *bytes_of(const Tensor *tensor) {
    return (unsigned char *)(uintptr_t)tensor_data(tensor);
}

static void test_parts(void **state) {
    (void)state;
    Form form[4];
    const int count = forms(form);
    for (int f = 0; f < count; f++) {
        const QuantisedParts parts = quantised_parts(&form[f].shape);
        char word[FORM_TEXT_BYTES];
        Tensor parsed;
        int64_t elements;
        size_t bytes;
        assert_int_equal(parts.scales, form[f].scales);
        assert_int_equal(parts.zeros, form[f].zeros);
        assert_int_equal(parts.bytes, form[f].bytes);
        assert_int_equal(tensor_bytes(&form[f].shape), form[f].bytes);
        assert_int_equal(tensor_stored_bytes(&form[f].shape), form[f].stored);
        assert_true(tensor_size(&form[f].shape, &elements, &bytes));
        assert_int_equal(elements, COUNT);
        assert_int_equal(bytes, form[f].bytes);
        assert_string_equal(tensor_form_text(word, &form[f].shape), form[f].word);
        assert_true(tensor_form_parse(form[f].word, &parsed));
        parsed = tensor_shape_like(&parsed, 2, form[f].shape.dim);
        assert_true(tensor_same_form(&parsed, &form[f].shape));
    }
    Tensor parsed;
    assert_false(tensor_form_parse("q4", &parsed));
    assert_false(tensor_form_parse("q4_48", &parsed));
    assert_false(tensor_form_parse("q8_64", &parsed));
}

/* Shapes that no quantised tensor has. */
static void test_shapes(void **state) {
    (void)state;
    Tensor tensor = q8_shape(1, (int64_t[]){5});
    assert_false(tensor_size(&tensor, NULL, NULL));
    tensor = q8_shape(2, (int64_t[]){1ll << 40, 1ll << 40});
    assert_false(tensor_size(&tensor, NULL, NULL));
    tensor = q8_shape(2, (int64_t[]){1ll << 62, 0}); /* 2^64 bytes of scales */
    assert_false(tensor_size(&tensor, NULL, NULL));
    tensor = q4_shape(2, (int64_t[]){1ll << 58, 1}, 128, false); /* a block for each 1 */
    assert_false(tensor_size(&tensor, NULL, NULL));
    tensor = q8_shape(2, (int64_t[]){2, -1});
    assert_false(tensor_size(&tensor, NULL, NULL));
    tensor = q8_shape(2, (int64_t[]){2, 6});
    tensor.group = 3;
    assert_false(tensor_size(&tensor, NULL, NULL));
    tensor = q4_shape(2, (int64_t[]){2, 6}, 0, false);
    assert_false(tensor_size(&tensor, NULL, NULL));
    tensor = tensor_shape(DTYPE_F32, 1, (int64_t[]){5});
    tensor.group = 5;
    assert_false(tensor_size(&tensor, NULL, NULL));
    assert_false(shape_size(DTYPE_Q8, 2, (int64_t[]){2, 6}, NULL, NULL));
    tensor = q4_shape(3, (int64_t[]){0, 2, 6}, 32, false);
    assert_true(tensor_size(&tensor, NULL, NULL));
    tensor = q8_shape(2, (int64_t[]){4, 0});
    assert_true(tensor_size(&tensor, NULL, NULL));
}

/* Fills a tensor with numbers, scales and zero points by plain bytes, and `want` with
 * what they mean. */
static void fill(Tensor *tensor, double want[COUNT]) {
    const QuantisedParts parts = quantised_parts(tensor);
    const bool q8 = tensor->dtype == DTYPE_Q8;
    unsigned char *data = bytes_of(tensor);
    const int groups = q8 ? 1 : (int)((WIDTH + tensor->group - 1) / tensor->group);
    for (int i = 0; i < COUNT; i++) {
        const int row = i / WIDTH, column = i % WIDTH;
        const int index = row * groups + (q8 ? 0 : column / (int)tensor->group);
        const float scale = 0.25f * (float)(1 + index);
        const int zero = tensor->zeros ? (5 * index + 1) % 16 : 8;
        const int q = q8 ? (i * 37) % 255 - 127 : (i * 7) % 16;
        const uint16_t half = f16_from_float(scale);
        if (q8) {
            data[i] = (unsigned char)(signed char)q;
            memcpy(data + parts.scales + 4 * (size_t)index, &scale, 4);
            want[i] = (double)scale * q;
            continue;
        }
        data[row * 36 + column / 2] |= (unsigned char)(column % 2 ? q << 4 : q);
        memcpy(data + parts.scales + 2 * (size_t)index, &half, 2);
        if (tensor->zeros) data[parts.zeros + (size_t)index] = (unsigned char)zero;
        want[i] = (double)scale * (q - zero);
    }
}

static void test_read(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Form form[4];
    const int count = forms(form);
    for (int f = 0; f < count; f++) {
        Tensor tensor = make(&form[f].shape, diag), floats;
        double want[COUNT], wide[COUNT];
        float single[COUNT];
        fill(&tensor, want);
        assert_ok(quantised_check(&tensor, STATUS_FORMAT, "w", diag), diag);
        tensor_read_f64(&tensor, 0, COUNT, wide);
        for (int i = 0; i < COUNT; i++) assert_true(wide[i] == want[i]);
        for (int first = 0; first < COUNT; first += 13) { /* spans cut anywhere */
            const int n = COUNT - first < 80 ? COUNT - first : 80;
            tensor_read_f32(&tensor, first, n, single);
            for (int i = 0; i < n; i++) assert_true(single[i] == (float)want[first + i]);
        }
        assert_ok(tensor_to_f32(&floats, &tensor, diag), diag);
        assert_int_equal(floats.group, 0);
        assert_int_equal(tensor_bytes(&floats), 4 * COUNT);
        tensor_release(&floats);
        tensor_release(&tensor);
    }
    diag_destroy(diag);
}

/* Every weight is at most half a step from what is kept of it, what is on a grid already
 * stays, and a row of zeros has the scale 0. */
static void test_round(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Form form[4];
    const int count = forms(form);
    for (int f = 0; f < count; f++) {
        Tensor tensor = make(&form[f].shape, diag), again = make(&form[f].shape, diag);
        float weights[WIDTH], back[COUNT];
        for (int row = 0; row < ROWS; row++) {
            for (int i = 0; i < WIDTH; i++)
                weights[i] = row == 1 ? 0 : sinf((float)(i * i + row)) + 0.25f;
            quantised_round_row(&tensor, row, weights);
            tensor_read_f32(&tensor, row * WIDTH, WIDTH, back);
            for (int i = 0; i < WIDTH; i++) {
                const Grid grid = quantised_read_grid(&tensor, row, i / tensor.group);
                const double off = fabs((double)weights[i] - (double)back[i]);
                /* float16 scales and whole zero points may fall short of the ends */
                const double most = tensor.zeros ? 1.02 : 0.51;
                assert_true(off <= most * (double)grid.scale);
                if (row == 1) assert_true(back[i] == 0);
            }
        }
        tensor_read_f32(&tensor, 0, COUNT, back);
        for (int row = 0; row < ROWS && !tensor.zeros; row++)
            quantised_round_row(&again, row, back + row * WIDTH);
        float twice[COUNT];
        tensor_read_f32(&again, 0, COUNT, twice);
        for (int i = 0; i < COUNT && !tensor.zeros; i++)
            assert_true(fabs((double)twice[i] - (double)back[i]) < 2e-3);
        assert_ok(quantised_check(&tensor, STATUS_FORMAT, "w", diag), diag);
        tensor_release(&tensor);
        tensor_release(&again);
    }
    diag_destroy(diag);
}

static void test_grid(void **state) {
    (void)state;
    const Tensor q8 = {.dtype = DTYPE_Q8}, q4 = {.dtype = DTYPE_Q4, .group = 32};
    Grid grid = quantised_grid(&q8, 0.5, 0);
    assert_int_equal(grid_round(&grid, 1), 2);
    assert_int_equal(grid_round(&grid, -0.75), -2); /* halves to even */
    assert_int_equal(grid_round(&grid, 1e30), 127);
    assert_int_equal(grid_round(&grid, -1e30), -127);
    grid = quantised_grid(&q4, 0.5, 3);
    assert_int_equal(grid.zero, 8);
    assert_int_equal(grid_round(&grid, 0), 8);
    assert_int_equal(grid_round(&grid, -100), 0);
    assert_int_equal(grid_round(&grid, 100), 15);
    grid = quantised_grid(&q4, 1e9, 0);
    assert_true(grid.scale == 65504);
    grid = quantised_grid(&q8, 0, 0);
    assert_int_equal(grid_round(&grid, 5), 0);
}

/* Rows are kept as they are, columns of q8 too; those of q4 become floats. */
static void test_keep(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Form form[4];
    const int count = forms(form);
    const int64_t rows[] = {0, 2}, columns[] = {1, 5, 31, 32, 33, 70};
    for (int f = 0; f < count; f++) {
        Tensor tensor = make(&form[f].shape, diag);
        double want[COUNT], have[COUNT];
        fill(&tensor, want);
        Tensor cut = tensor_shape_like(&tensor, 2, (int64_t[]){2, WIDTH});
        assert_ok(tensor_keep(&cut, &tensor, 1, ROWS, rows, 2, diag), diag);
        tensor_read_f64(&cut, 0, 2 * WIDTH, have);
        for (int i = 0; i < 2 * WIDTH; i++)
            assert_true(have[i] == want[rows[i / WIDTH] * WIDTH + i % WIDTH]);
        tensor_release(&cut);
        const int64_t narrow[] = {ROWS, 6};
        cut = tensor.dtype == DTYPE_Q8 ? tensor_shape_like(&tensor, 2, narrow)
                                       : tensor_shape(DTYPE_F32, 2, narrow);
        assert_ok(tensor_keep(&cut, &tensor, ROWS, WIDTH, columns, 6, diag), diag);
        assert_int_equal(cut.group, tensor.dtype == DTYPE_Q8 ? 6 : 0);
        tensor_read_f64(&cut, 0, (int64_t)ROWS * 6, have);
        for (int i = 0; i < ROWS * 6; i++)
            assert_true(have[i] == want[i / 6 * WIDTH + columns[i % 6]]);
        tensor_release(&cut);
        tensor_release(&tensor);
    }
    diag_destroy(diag);
}

/* The hash knows the groups, and a copy that may be written has them too. */
static void test_hash(void **state) {
    (void)state;
    Diag *diag = diag_create();
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    const int64_t dim[] = {2, 30}; /* one group a row, whichever length */
    Tensor shape = q4_shape(2, dim, 32, false), other = q4_shape(2, dim, 64, false);
    Tensor tensor = make(&shape, diag), wide = make(&other, diag);
    float weights[30];
    for (int i = 0; i < 30; i++) weights[i] = (float)(i - 12);
    for (int row = 0; row < 2; row++) {
        quantised_round_row(&tensor, row, weights);
        quantised_round_row(&wide, row, weights);
    }
    assert_memory_equal(tensor_data(&tensor), tensor_data(&wide), tensor_bytes(&wide));
    tensor_hash(&tensor, a);
    tensor_hash(&wide, b);
    assert_string_not_equal(a, b);
    Tensor copy = tensor_retain(&tensor);
    void *data;
    assert_ok(tensor_writable(&copy, &data, diag), diag);
    assert_ptr_not_equal(data, tensor_data(&tensor));
    assert_true(tensor_same_form(&copy, &tensor));
    tensor_hash(&copy, b);
    assert_string_equal(a, b);
    tensor_drop_data(&copy, DTYPE_Q4);
    assert_true(tensor_same_form(&copy, &tensor));
    tensor_drop_data(&copy, DTYPE_F32);
    assert_int_equal(copy.group, 0);
    tensor_release(&copy);
    tensor_release(&tensor);
    tensor_release(&wide);
    diag_destroy(diag);
}

/* A file's bytes that are no quantised tensor. */
static void test_check(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Form form[4];
    forms(form);
    const struct {
        int form;
        size_t at;
        unsigned char byte[4];
        int bytes;
        const char *message;
    } BAD[] = {
        {0, 71 + 4, {0x80}, 1, "row 1, column 4: expected a number from -127 to 127"},
        {0, 256 + 8, {0, 0, 0x80, 0xbf}, 4, "row 2, group 0: expected a finite scale"},
        {0, 256, {0, 0, 0, 0x80}, 4, "at least 0, found -0"},
        {0, 256 + 4, {0, 0, 0xc0, 0x7f}, 4, "row 1, group 0: expected a finite scale"},
        {1, 36 + 35, {0x10}, 1, "row 1: expected zero bits behind its 71 numbers"},
        {1, 128 + 8, {0, 0x7c}, 2, "row 1, group 1: expected a finite scale"},
        {1, 128 + 8, {0, 0x80}, 2, "row 1, group 1: expected a finite scale, and no -0"},
        {2, 128 + 2, {0, 0xbc}, 2, "expected a finite scale of at least 0, found -1"},
        {2, 192 + 3, {16}, 1, "row 1, group 0: expected a zero point from 0 to 15"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Tensor tensor = make(&form[BAD[i].form].shape, diag);
        memcpy(bytes_of(&tensor) + BAD[i].at, BAD[i].byte, (size_t)BAD[i].bytes);
        assert_int_equal(quantised_check(&tensor, STATUS_FORMAT, "w", diag),
                         STATUS_FORMAT);
        char *text = diag_text(diag);
        assert_non_null(strstr(text, BAD[i].message));
        free(text);
        diag_clear(diag);
        tensor_release(&tensor);
    }
    Tensor tensor = make(&form[1].shape, diag);
    memcpy(bytes_of(&tensor) + 128 + 8, (unsigned char[]){0, 0xbc}, 2); /* -1 */
    assert_ok(quantised_check(&tensor, STATUS_FORMAT, "w", diag), diag);
    assert_int_equal(tensor_find_nonfinite(&tensor), -1);
    memcpy(bytes_of(&tensor) + 128 + 8, (unsigned char[]){0, 0x7c}, 2);
    assert_int_equal(tensor_find_nonfinite(&tensor), WIDTH + 32);
    tensor_release(&tensor);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_read),  cmocka_unit_test(test_round),
        cmocka_unit_test(test_grid),  cmocka_unit_test(test_keep),
        cmocka_unit_test(test_hash),  cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
