/* Products of whole numbers of 8 bits, and of 4: every way that this processor has, in
 * every set, against sums in 64 bits and the formula in float, to the last bit. */
#include "exec/loops/loops.h"
#include "ir/quantised.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/levels.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 53 };

typedef struct Case {
    int64_t M, K, group, groups; /* int8: one group, of K */
    int8_t *w;                   /* [M, K], the zero point taken off */
    float *scale;                /* [M, groups] */
    float *x, *bias;             /* [COUNT, K], [M] */
    float *want;                 /* [COUNT, M] */
    Matrix matrix;
    void *packed;
} Case;

/* Vectors that are random, or as large as they can be, and odd ones. */
static void open_vectors(Case *c, bool extreme) {
    const int64_t M = c->M, K = c->K;
    c->bias = malloc((size_t)M * sizeof(float));
    c->x = malloc((size_t)(COUNT * K) * sizeof(float));
    c->want = malloc((size_t)(COUNT * M) * sizeof(float));
    for (int64_t i = 0; i < M; i++) c->bias[i] = (float)random_normal(3, (uint64_t)i);
    for (int64_t i = 0; i < COUNT * K; i++)
        c->x[i] =
            extreme ? (i / K % 3 ? 3.5f : -3.5f) : (float)random_normal(4, (uint64_t)i);
    for (int64_t k = 0; k < K; k++) {
        c->x[2 * K + k] = 0;                               /* zeros */
        c->x[4 * K + k] = k % 2 ? 1e-40f : 0;              /* 127 / max is infinite */
        c->x[5 * K + k] = k == K - 1 ? NAN : 1;            /* not a number */
        c->x[6 * K + k] = k == 0 ? -INFINITY : 1;          /* infinite */
        c->x[7 * K + k] = k % 2 ? FLT_MAX : -0.5f;         /* as large as there is */
        c->x[8 * K + k] = k ? (float)(k % 8) - 3.5f : 127; /* halves */
    }
}

static void *packed_room(const Matrix *matrix) {
    const size_t bytes = (matrix_bytes(matrix) + 63) / 64 * 64;
    void *data = aligned_alloc(64, bytes);
    memset(data, 0, bytes);
    return data;
}

static void case_open(Case *c, int64_t M, int64_t K, bool extreme) {
    *c = (Case){.M = M, .K = K, .group = K, .groups = 1, .matrix = {M, K, STEP_INT8}};
    c->w = malloc((size_t)(M * K));
    c->scale = malloc((size_t)M * sizeof(float));
    for (int64_t i = 0; i < M * K; i++)
        c->w[i] = (int8_t)(extreme ? (i / K % 2 ? 127 : -127)
                                   : (int)(random_uniform(1, (uint64_t)i) * 255) - 127);
    for (int64_t i = 0; i < M; i++)
        c->scale[i] = (float)random_uniform(2, (uint64_t)i) * 0.01f;
    open_vectors(c, extreme);
    c->packed = packed_room(&c->matrix);
    matrix_pack_int8(&c->matrix, c->w, c->scale, c->packed);
    c->matrix.data = c->packed;
}

/* A q4 tensor of random numbers and scales, or of the largest; the zero points are
 * random, or where numbers are the largest 0. */
static void int4_open(Case *c, int64_t M, int64_t K, int64_t group, bool zeros,
                      bool extreme) {
    Diag *diag = diag_create();
    const int64_t dim[] = {M, K};
    Tensor q4 = q4_shape(2, dim, group, zeros);
    assert_ok(tensor_allocate(&q4, diag), diag);
    *c = (Case){.M = M, .K = K, .group = group, .groups = tensor_q_groups(&q4)};
    c->w = malloc((size_t)(M * K));
    c->scale = malloc((size_t)(M * c->groups) * sizeof(float));
    for (int64_t i = 0; i < M * c->groups; i++) {
        int8_t q[QUANTISED_GROUP_MAX];
        const uint64_t at = (uint64_t)i;
        const int64_t first = i / c->groups * K + i % c->groups * group;
        const int zero = extreme ? 0 : (int)(random_uniform(5, at) * 16);
        const Grid grid = quantised_grid(&q4, random_uniform(2, at) * 0.01, zero);
        const int64_t left = K - i % c->groups * group;
        for (int64_t k = 0; k < group && k < left; k++) {
            q[k] =
                (int8_t)(extreme ? 15
                                 : (int)(random_uniform(1, at * 128 + (uint64_t)k) * 16));
            c->w[first + k] = (int8_t)(q[k] - grid.zero);
        }
        c->scale[i] = grid.scale;
        quantised_write(&q4, i / c->groups, i % c->groups, &grid, q);
    }
    open_vectors(c, extreme);
    c->matrix = matrix_of(&q4, false, STEP_INT4);
    c->packed = packed_room(&c->matrix);
    matrix_pack(&c->matrix, &q4, false, c->packed);
    c->matrix.data = c->packed;
    tensor_release(&q4);
    diag_destroy(diag);
}

static void case_close(Case *c) {
    free(c->w), free(c->scale), free(c->bias), free(c->x), free(c->want), free(c->packed);
}

/* The formula of exec/linalg/gemv.h. Volatile: products are rounded. */
static void expect(Case *c, const float *bias) {
    for (int64_t t = 0; t < COUNT; t++) {
        const float *x = c->x + t * c->K;
        float most = 0;
        bool finite = true;
        for (int64_t k = 0; k < c->K; k++) {
            if (fabsf(x[k]) > most) most = fabsf(x[k]);
            if (!isfinite(x[k])) finite = false;
        }
        const volatile float by = 127.0f / most;
        const bool zero = !isfinite(by);
        const volatile float scale = !finite ? NAN : zero ? 0 : most / 127.0f;
        for (int64_t r = 0; r < c->M; r++) {
            volatile float product = 0;
            for (int64_t g = 0; g < c->groups; g++) {
                int64_t sum = 0;
                for (int64_t k = g * c->group;
                     k < c->K && k < (g + 1) * c->group && finite && !zero; k++) {
                    const volatile float scaled = x[k] * by;
                    sum += (int64_t)nearbyintf(scaled) * c->w[r * c->K + k];
                }
                const float of_w = c->scale[r * c->groups + g];
                const volatile float scales = scale * of_w;
                const bool int4 = c->matrix.kind == STEP_INT4;
                const volatile float part = (float)sum * (int4 ? of_w : scales);
                product = int4 ? product + part : part;
            }
            if (c->matrix.kind == STEP_INT4) product = product * scale;
            c->want[t * c->M + r] = bias ? product + bias[r] : product;
        }
    }
}

static bool same(float a, float b) {
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

/* Rows first .. last - 1 for `count` vectors, and nothing else. */
static void check_range(const Case *c, const Loops *loops, IntegerWay way,
                        const float *bias, int64_t first, int64_t last, int64_t count) {
    float *y = malloc((size_t)(COUNT * c->M) * sizeof(float));
    for (int64_t i = 0; i < COUNT * c->M; i++) y[i] = 77;
    loops->integer_times_by(way, &c->matrix, first, last, bias, c->x, c->K, y, c->M,
                            count);
    for (int64_t t = 0; t < COUNT; t++)
        for (int64_t r = 0; r < c->M; r++) {
            const bool inside = t < count && r >= first && r < last;
            const float want = inside ? c->want[t * c->M + r] : 77;
            const float got = y[t * c->M + r];
            if (!same(got, want))
                fail_msg("way %d, %lld x %lld, row %lld of vector %lld: %.9g, not %.9g",
                         way, (long long)c->M, (long long)c->K, (long long)r,
                         (long long)t, got, want);
        }
    free(y);
}

static void check_case(Case *c, const Loops *loops) {
    for (int biased = 0; biased < 2; biased++) {
        const float *bias = biased ? c->bias : NULL;
        expect(c, bias);
        for (IntegerWay way = INTEGER_PLAIN; way < INTEGER_WAYS; way++) {
            if (!loops->integer_has(way)) continue;
            for (int64_t count = 1; count <= COUNT; count += count < 10 ? 1 : 3)
                check_range(c, loops, way, bias, 0, c->M, count);
            for (int64_t first = 0; first < c->M; first += 13)
                for (int64_t last = first + 1; last <= c->M; last += 23)
                    check_range(c, loops, way, bias, first, last, first % 2 ? 1 : COUNT);
        }
    }
}

static void check_set(const Loops *loops) {
    static const int64_t SIZES[][2] = {{1, 1},   {2, 3},    {16, 4},  {17, 5},  {48, 31},
                                       {65, 18}, {150, 22}, {40, 64}, {50, 201}};
    assert_true(loops->integer_has(INTEGER_PLAIN));
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int extreme = 0; extreme < 2; extreme++) {
            Case c;
            case_open(&c, SIZES[i][0], SIZES[i][1], extreme);
            check_case(&c, loops);
            case_close(&c);
        }
    static const int64_t GROUPED[][3] = {{1, 1, 32},   {2, 31, 32},  {17, 33, 32},
                                         {48, 64, 32}, {65, 75, 64}, {70, 300, 128}};
    for (size_t i = 0; i < sizeof GROUPED / sizeof *GROUPED; i++)
        for (int how = 0; how < 4; how++) {
            Case c;
            int4_open(&c, GROUPED[i][0], GROUPED[i][1], GROUPED[i][2], how & 1, how & 2);
            check_case(&c, loops);
            case_close(&c);
        }
}

static void test_ways(void **state) {
    (void)state;
    for_levels(check_set);
}

/* The longest rows that there may be, all numbers at their ends: sums near 2^30. */
static void test_longest(void **state) {
    (void)state;
    Case c;
    case_open(&c, 2, INTEGER_COLUMNS_MAX, true);
    expect(&c, NULL);
    for (IntegerWay way = INTEGER_PLAIN; way < INTEGER_WAYS; way++)
        if (loops_here()->integer_has(way))
            check_range(&c, loops_here(), way, NULL, 0, 2, COUNT);
    case_close(&c);
    int4_open(&c, 2, INTEGER_COLUMNS_MAX, 32, true, true);
    expect(&c, NULL);
    for (IntegerWay way = INTEGER_PLAIN; way < INTEGER_WAYS; way++)
        if (loops_here()->integer_has(way))
            check_range(&c, loops_here(), way, NULL, 0, 2, COUNT);
    case_close(&c);
}

/* More vectors than are rounded at once, through the door that everybody uses. */
static void check_blocks(bool int4) {
    enum { MANY = 2100, K = 75, M = 20 };
    Case c;
    if (int4)
        int4_open(&c, M, K, 32, false, false);
    else
        case_open(&c, M, K, false);
    float *x = malloc(sizeof(float) * MANY * K), *y = malloc(sizeof(float) * MANY * M);
    for (int64_t t = 0; t < MANY; t++)
        memcpy(x + t * K, c.x + t % COUNT * K, K * sizeof(float));
    expect(&c, c.bias);
    loops_here()->matrix_times(&c.matrix, 0, M, c.bias, x, K, y, M, MANY);
    for (int64_t i = 0; i < MANY * M; i++)
        assert_true(same(y[i], c.want[i / M % COUNT * M + i % M]));
    free(x), free(y);
    case_close(&c);
}

static void test_blocks(void **state) {
    (void)state;
    check_blocks(false);
    check_blocks(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
