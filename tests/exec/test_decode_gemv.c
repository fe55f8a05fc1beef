/* Products with packed weights against naive loops in double, in all the ways rows and
 * vectors can be taken together; rounding to bf16 against values by hand. */
#include "exec/loops/loops.h"
#include "ir/quantised.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/levels.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 40, ROW = 200 }; /* weights of fewer bits are widened from 32 on */

typedef struct Case {
    const Loops *loops;
    int64_t M, K;
    bool transposed;
    StepWeights kind;
    Tensor weight;
    Matrix matrix;
    void *packed;
    float *x, *bias; /* [COUNT, K], [M] */
} Case;

static float to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void *zeros(size_t bytes) {
    void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(data, 0, (bytes + 63) / 64 * 64);
    return data;
}

/* Ways that weights are kept: q4 with and without zero points, and in short groups. */
static const struct {
    StepWeights kind;
    bool transposed;
    int64_t group;
    bool zeros;
} WAYS[] = {
    {STEP_F32},
    {STEP_F32, true},
    {STEP_BF16},
    {STEP_BF16, true},
    {STEP_Q8},
    {STEP_Q4, .group = 32},
    {STEP_Q4, .group = 64, .zeros = true},
};
enum { WAY_COUNT = sizeof WAYS / sizeof *WAYS };

/* The nearest q8 or q4 in place of the weight. */
static void quantise(Case *c, int64_t group, bool zeros, Diag *diag) {
    Tensor q = c->kind == STEP_Q8 ? q8_shape(2, c->weight.dim)
                                  : q4_shape(2, c->weight.dim, group, zeros);
    assert_ok(tensor_allocate(&q, diag), diag);
    for (int64_t r = 0; r < c->M; r++)
        quantised_round_row(&q, r, (const float *)tensor_data(&c->weight) + r * c->K);
    tensor_release(&c->weight);
    c->weight = q;
}

static void case_open(Case *c, int64_t M, int64_t K, int way) {
    const bool transposed = WAYS[way].transposed;
    const StepWeights kind = WAYS[way].kind;
    Diag *diag = diag_create();
    void *data = NULL;
    *c = (Case){.M = M, .K = K, .transposed = transposed, .kind = kind};
    const int64_t dim[] = {transposed ? K : M, transposed ? M : K};
    assert_ok(tensor_create(&c->weight, DTYPE_F32, 2, dim, diag), diag);
    assert_ok(tensor_writable(&c->weight, &data, diag), diag);
    for (int64_t i = 0; i < M * K; i++)
        ((float *)data)[i] = (float)random_normal(1, (uint64_t)i);
    if (kind == STEP_Q8 || kind == STEP_Q4)
        quantise(c, WAYS[way].group, WAYS[way].zeros, diag);
    c->matrix = matrix_of(&c->weight, transposed, kind);
    assert_int_equal(c->matrix.rows, M);
    assert_int_equal(c->matrix.columns, K);
    c->packed = zeros(matrix_bytes(&c->matrix));
    matrix_pack(&c->matrix, &c->weight, transposed, c->packed);
    c->matrix.data = c->packed;
    c->x = malloc((size_t)(COUNT * K) * sizeof(float));
    c->bias = malloc((size_t)M * sizeof(float));
    for (int64_t i = 0; i < COUNT * K; i++)
        c->x[i] = (float)random_normal(2, (uint64_t)i);
    for (int64_t i = 0; i < M; i++) c->bias[i] = (float)random_normal(3, (uint64_t)i);
    diag_destroy(diag);
}

static void case_close(Case *c) {
    tensor_release(&c->weight);
    free(c->packed);
    free(c->x);
    free(c->bias);
}

/* The sum, and how far one in float may be from it. */
static double naive(const Case *c, int64_t t, int64_t row, double *tolerance) {
    double sum = c->bias[row], size = fabs(sum);
    for (int64_t k = 0; k < c->K; k++) {
        float x;
        tensor_read_f32(&c->weight, c->transposed ? k * c->M + row : row * c->K + k, 1,
                        &x);
        if (c->kind == STEP_BF16) x = to_bf16(x);
        sum += (double)x * c->x[t * c->K + k];
        size += fabs((double)x * c->x[t * c->K + k]);
    }
    *tolerance = rounding_error(PRECISION_F32, (double)c->K + 4) * size;
    return sum;
}

/* Rows first .. last - 1 of `count` vectors: right, and nothing else written. */
static void check_range(const Case *c, int64_t first, int64_t last, int64_t count,
                        const float *whole) {
    static float y[COUNT * ROW];
    for (int i = 0; i < COUNT * ROW; i++) y[i] = 77;
    c->loops->matrix_times(&c->matrix, first, last, c->bias, c->x, c->K, y, ROW, count);
    for (int64_t t = 0; t < COUNT; t++)
        for (int64_t r = 0; r < ROW; r++) {
            const float got = y[t * ROW + r];
            if (t >= count || r < first || r >= last)
                assert_true(got == 77);
            else if (memcmp(&got, &whole[t * ROW + r], sizeof got) != 0)
                fail_msg("row %lld of vector %lld differs", (long long)r, (long long)t);
        }
}

/* Weights that are packed while they are multiplied: the same bytes. */
static void check_later(const Case *c, int64_t first, int64_t last, int64_t count,
                        const float *whole) {
    static float y[COUNT * ROW];
    Matrix matrix = c->matrix;
    matrix.data = NULL;
    float *room = zeros(matrix_room_bytes(c->K));
    for (int i = 0; i < COUNT * ROW; i++) y[i] = 77;
    c->loops->weights_times(&matrix, first, last, tensor_data(&c->weight), c->transposed,
                            c->bias, c->x, c->K, y, ROW, count, room);
    for (int64_t t = 0; t < COUNT; t++)
        for (int64_t r = 0; r < ROW; r++) {
            const bool written = t < count && r >= first && r < last;
            const float want = written ? whole[t * ROW + r] : 77;
            if (memcmp(&y[t * ROW + r], &want, sizeof want) != 0)
                fail_msg("row %lld of vector %lld differs", (long long)r, (long long)t);
        }
    free(room);
}

static void check_case(Case *c) {
    static float whole[COUNT * ROW];
    for (int64_t t = 0; t < COUNT; t++) /* one by one */
        c->loops->matrix_times(&c->matrix, 0, c->M, c->bias, c->x + t * c->K, c->K,
                               whole + t * ROW, ROW, 1);
    for (int64_t t = 0; t < COUNT; t++)
        for (int64_t r = 0; r < c->M; r++) {
            double tolerance;
            const double want = naive(c, t, r, &tolerance);
            if (!(fabs(whole[t * ROW + r] - want) <= tolerance))
                fail_msg("M %lld K %lld: row %lld is %g, expected %g", (long long)c->M,
                         (long long)c->K, (long long)r, whole[t * ROW + r], want);
        }
    for (int64_t count = 1; count <= COUNT; count += 3)
        for (int64_t first = 0; first < c->M; first += 13)
            for (int64_t last = first + 1; last <= c->M; last += 23)
                check_range(c, first, last, count, whole);
    check_range(c, 0, c->M, COUNT, whole);
    for (int64_t count = 1; c->kind == STEP_F32 && count <= COUNT; count++) {
        check_later(c, 0, c->M, count, whole);
        check_later(c, c->M / 3, c->M - c->M / 4, count, whole);
    }
}

static void check_products(const Loops *loops) {
    static const int64_t SIZES[][2] = {{1, 1},  {2, 3},   {16, 16},  {17, 5},
                                       {64, 8}, {40, 33}, {150, 79}, {40, 801}};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int way = 0; way < WAY_COUNT; way++) {
            Case c;
            case_open(&c, SIZES[i][0], SIZES[i][1], way);
            c.loops = loops;
            check_case(&c);
            case_close(&c);
        }
}

static void test_products(void **state) {
    (void)state;
    for_levels(check_products);
}

/* Sums in order of k, with fused steps in both sets: the same bytes. */
static void test_levels(void **state) {
    (void)state;
    static float y[2][COUNT * ROW];
    if (!processor_has(PROCESSOR_V3) || !processor_has(PROCESSOR_V4)) skip();
    for (int way = 0; WAYS[way].kind == STEP_F32; way++) {
        Case c;
        case_open(&c, 150, 79, way);
        for (int i = 0; i < 2; i++)
            loops_at(i ? PROCESSOR_V4 : PROCESSOR_V3)
                ->matrix_times(&c.matrix, 0, c.M, c.bias, c.x, c.K, y[i], ROW, COUNT);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        case_close(&c);
    }
}

/* Keys and values of attention: panels at any distance. */
static void check_panels(const Loops *loops) {
    enum { K = 21, STEP = 50, PANELS = 3, WIDE = PANEL_ROWS * PANELS };
    float w[K * STEP], x[COUNT * K], y[COUNT * WIDE], parts[COUNT * WIDE];
    for (int i = 0; i < K * STEP; i++) w[i] = (float)random_normal(4, (uint64_t)i);
    for (int i = 0; i < COUNT * K; i++) x[i] = (float)random_normal(5, (uint64_t)i);
    const Panels panels = {w, STEP, PANEL_ROWS, PANELS, K};
    loops->panels_times(&panels, x, K, y, WIDE, COUNT);
    for (int t = 0; t < COUNT; t++)
        for (int c = 0; c < WIDE; c++) {
            double want = 0, size = 0;
            for (int k = 0; k < K; k++) {
                want += (double)w[k * STEP + c] * x[t * K + k];
                size += fabs((double)w[k * STEP + c] * x[t * K + k]);
            }
            assert_true(fabs(y[t * WIDE + c] - want) <=
                        rounding_error(PRECISION_F32, K) * size);
        }
    for (int first = 0; first < K; first += 9) { /* by parts: the same bytes */
        const int left = K - first;
        const Panels part = {w + first * STEP,    STEP,     PANEL_ROWS, PANELS,
                             left < 9 ? left : 9, first > 0};
        loops->panels_times(&part, x + first, K, parts, WIDE, COUNT);
    }
    assert_memory_equal(parts, y, sizeof y);
    const Panels none = {w, STEP, PANEL_ROWS, PANELS, 0};
    loops->panels_times(&none, x, K, y, WIDE, 1);
    for (int c = 0; c < WIDE; c++) assert_true(y[c] == 0);
}

static void test_panels(void **state) {
    (void)state;
    for_levels(check_panels);
}

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* What one weight becomes in bf16, by a product with 1. */
static float rounded(float value) {
    Diag *diag = diag_create();
    Tensor weight;
    void *data = NULL;
    const int64_t dim[] = {1, 1};
    assert_ok(tensor_create(&weight, DTYPE_F32, 2, dim, diag), diag);
    assert_ok(tensor_writable(&weight, &data, diag), diag);
    *(float *)data = value;
    Matrix matrix = {1, 1, STEP_BF16, NULL};
    void *packed = zeros(matrix_bytes(&matrix));
    matrix_pack(&matrix, &weight, false, packed);
    matrix.data = packed;
    const float one = 1;
    float y = 0;
    loops_here()->matrix_times(&matrix, 0, 1, NULL, &one, 1, &y, 1, 1);
    free(packed);
    tensor_release(&weight);
    diag_destroy(diag);
    return y;
}

static void test_rounding(void **state) {
    (void)state;
    /* halves go to the even code, everything else to the nearest */
    static const uint32_t PAIRS[][2] = {
        {0x3f800000, 0x3f800000}, {0x3f808000, 0x3f800000}, {0x3f808001, 0x3f810000},
        {0x3f818000, 0x3f820000}, {0x3f817fff, 0x3f810000}, {0xbf808000, 0xbf800000},
        {0xbf818000, 0xbf820000}, {0x7f7fffff, 0x7f800000}, {0x7f800000, 0x7f800000},
        {0x3fffffff, 0x40000000}, {0x00800000, 0x00800000}};
    for (size_t i = 0; i < sizeof PAIRS / sizeof *PAIRS; i++)
        assert_true(rounded(from_bits(PAIRS[i][0])) == from_bits(PAIRS[i][1]));
    assert_true(isnan(rounded(from_bits(0x7f800001)))); /* not infinity */
    assert_true(isnan(rounded(NAN)));
}

/* int8 of a tensor is that of its numbers and scales. */
static void test_pack_int8(void **state) {
    (void)state;
    Case c;
    case_open(&c, 21, 35, 4);
    const Matrix matrix = matrix_of(&c.weight, false, STEP_INT8);
    void *a = zeros(matrix_bytes(&matrix)), *b = zeros(matrix_bytes(&matrix));
    matrix_pack(&matrix, &c.weight, false, a);
    matrix_pack_int8(&matrix, tensor_q_values(&c.weight), tensor_q_scales(&c.weight), b);
    assert_memory_equal(a, b, matrix_bytes(&matrix));
    free(a), free(b);
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),  cmocka_unit_test(test_levels),
        cmocka_unit_test(test_panels),    cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_pack_int8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
