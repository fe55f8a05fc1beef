/* Windows of a grid of tokens against the published steps, one array after the other:
 * pad, roll, view as windows, permute; and patch merging as four strided slices side by
 * side. */
#include "tests/exec/grad_harness.h"

enum { D = 3, SAMPLES = 2 };

/* ---- the steps, on arrays [rows, columns] of token numbers, -1 = zeros ---- */

typedef struct Map {
    int64_t rows, columns;
    int cell[1024];
} Map;

static Map tokens(int64_t rows, int64_t columns) {
    Map map = {rows, columns, {0}};
    for (int i = 0; i < rows * columns; i++) map.cell[i] = i;
    return map;
}

static Map pad(const Map *in, int64_t rows, int64_t columns) {
    Map map = {rows, columns, {0}};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            map.cell[i * columns + j] =
                i < in->rows && j < in->columns ? in->cell[i * in->columns + j] : -1;
    return map;
}

/* As torch.roll by (-shift, -shift). */
static Map roll(const Map *in, int64_t shift) {
    Map map = *in;
    for (int64_t i = 0; i < in->rows; i++)
        for (int64_t j = 0; j < in->columns; j++) {
            const int64_t row = (i - shift + in->rows) % in->rows;
            const int64_t column = (j - shift + in->columns) % in->columns;
            map.cell[row * in->columns + column] = in->cell[i * in->columns + j];
        }
    return map;
}

/* view(rows / w, w, columns / w, w).permute(0, 2, 1, 3). */
static Map windows(const Map *in, int64_t w) {
    Map map = *in;
    int at = 0;
    for (int64_t a = 0; a < in->rows / w; a++)
        for (int64_t b = 0; b < in->columns / w; b++)
            for (int64_t i = 0; i < w; i++)
                for (int64_t j = 0; j < w; j++)
                    map.cell[at++] = in->cell[(a * w + i) * in->columns + b * w + j];
    return map;
}

static int64_t round_up(int64_t n, int64_t w) {
    return (n + w - 1) / w * w;
}

/* ---- checks ---- */

static Result run(Problem *p, const Case *c) {
    assert_ok(problem_create(p, c), p->diag);
    return execute(p, (Mode){0});
}

/* Output token t of every sample is token map[t] of x, D elements of which start at
 * column `from` of `width`. */
static void check_moved(const Problem *p, const Result *r, const int *map, int64_t count,
                        int64_t width, int64_t from) {
    const int64_t tokens_in = p->type[0].dim[1];
    for (int64_t n = 0; n < SAMPLES; n++)
        for (int64_t t = 0; t < count; t++)
            for (int64_t d = 0; d < D; d++) {
                const double got = r->out[(n * count + t) * width + from + d];
                const double want =
                    map[t] < 0 ? 0 : p->value[0][(n * tokens_in + map[t]) * D + d];
                assert_true(got == want);
            }
}

static void check_windows(int64_t rows, int64_t columns, int64_t w, int64_t shift) {
    char attrs[128], whole[64], cut[64];
    const int64_t full = round_up(rows, w) * round_up(columns, w);
    snprintf(attrs, sizeof attrs, "grid_h=%lld grid_w=%lld window=%lld shift=%lld",
             (long long)rows, (long long)columns, (long long)w, (long long)shift);
    snprintf(whole, sizeof whole, "%dx%lldx%d", SAMPLES, (long long)(rows * columns), D);
    snprintf(cut, sizeof cut, "%dx%lldx%d", SAMPLES, (long long)full, D);
    Map map = tokens(rows, columns);
    map = pad(&map, round_up(rows, w), round_up(columns, w));
    map = roll(&map, shift);
    map = windows(&map, w);
    Problem p, q;
    Result r = run(&p, &(Case){"window_partition", attrs, whole});
    check_moved(&p, &r, map.cell, full, D, 0);
    Result s = run(&q, &(Case){"window_reverse", attrs, cut});
    int back[1024];
    for (int t = 0; t < full; t++)
        if (map.cell[t] >= 0) back[map.cell[t]] = t;
    check_moved(&q, &s, back, rows * columns, D, 0);
    result_free(&r);
    result_free(&s);
    problem_destroy(&p);
    problem_destroy(&q);
}

static void test_windows(void **state) {
    (void)state;
    for (int64_t rows = 1; rows < 8; rows++)
        for (int64_t columns = 1; columns < 8; columns++)
            for (int64_t w = 1; w < 6; w++)
                for (int64_t shift = 0; shift < w; shift++)
                    check_windows(rows, columns, w, shift);
}

/* x[0::2, 0::2], x[1::2, 0::2], x[0::2, 1::2], x[1::2, 1::2] of the padded grid. */
static void check_merging(int64_t rows, int64_t columns) {
    char attrs[64], whole[64];
    snprintf(attrs, sizeof attrs, "grid_h=%lld grid_w=%lld", (long long)rows,
             (long long)columns);
    snprintf(whole, sizeof whole, "%dx%lldx%d", SAMPLES, (long long)(rows * columns), D);
    const Map all = tokens(rows, columns);
    const Map map = pad(&all, round_up(rows, 2), round_up(columns, 2));
    Problem p;
    Result r = run(&p, &(Case){"patch_merging", attrs, whole});
    const int64_t count = map.rows / 2 * (map.columns / 2);
    for (int64_t part = 0; part < 4; part++) {
        int slice[1024], at = 0;
        for (int64_t i = part % 2; i < map.rows; i += 2)
            for (int64_t j = part / 2; j < map.columns; j += 2)
                slice[at++] = map.cell[i * map.columns + j];
        assert_int_equal(at, count);
        check_moved(&p, &r, slice, count, 4 * D, part * D);
    }
    result_free(&r);
    problem_destroy(&p);
}

static void test_merging(void **state) {
    (void)state;
    for (int64_t rows = 1; rows < 8; rows++)
        for (int64_t columns = 1; columns < 8; columns++) check_merging(rows, columns);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_merging),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
