/* Augmentation: exact small cases, ranges and statistics of what is drawn, mixing. */
#include "io/datasets/augment_draw.h"
#include "ir/random.h"
#include "tests/io/dataset_test.h"
#include "tests/support/rounding.h"

enum { H = 6, W = 5, C = 2, N = 7, EACH = C * H * W };

static float black[C] = {-1, -2};

/* Value of a pixel of a sample. */
static float value(int64_t sample, int64_t c, int64_t y, int64_t x) {
    return (float)(sample * 1000 + c * 100 + y * 10 + x);
}

static Status toy_read(const void *self, int64_t sample, uint64_t key, const Box *box,
                       float *dst, Diag *diag) {
    (void)self, (void)key, (void)diag;
    assert_null(box);
    for (int64_t i = 0; i < EACH; i++)
        dst[i] = value(sample, i / (H * W), i / W % H, i % W);
    return STATUS_OK;
}

static const AugmentSource TOY = {
    .channels = C, .rows = H, .cols = W, .black = black, .read = toy_read};
static const int32_t LABELS[N] = {3, 1, 4, 1, 5, 2, 6};

/* An augmentation bound from JSON, and a data set over it. */
typedef struct Toy {
    Bench bench;
    Augment augment;
    Column columns[IMAGE_COLUMNS];
    Batches data;
} Toy;

static Toy toy_open(const char *json) {
    Toy t = {.bench = bench_open()};
    Tree *spec;
    assert_ok(
        json_parse(&spec, t.bench.arena, "recipe", json, strlen(json), t.bench.diag),
        t.bench.diag);
    assert_ok(augment_bind(&t.augment, spec, t.bench.arena, t.bench.diag), t.bench.diag);
    t.data = (Batches){.name = "toy", .count = N};
    t.data.column_count = augment_columns(t.columns, "x", &t.augment, &TOY, true);
    return t;
}

static void toy_fetch(Toy *t, uint64_t key, const int64_t *index, int64_t n, float *x,
                      int32_t *label, int32_t *other, float *share) {
    const Fetch what = {.index = index, .n = n, .key = key};
    assert_ok(augment_fetch(&t->augment, &TOY, LABELS, &t->data, &what,
                            (void *[]){x, label, other, share}, t->bench.diag),
              t->bench.diag);
}

/* ---- binding ---- */

static void test_bind(void **state) {
    (void)state;
    static const char *const BAD[][2] = {
        {"{\"flop\": true}", "did you mean \"flip\""},
        {"{\"mixup\": -1}", "mixup"},
        {"{\"erase\": 2}", "erase"},
        {"{\"resized_crop\": [0.5]}", "expected two numbers"},
        {"{\"resized_crop\": [0.9, 0.5]}", "expected two numbers"},
        {"{\"resized_ratio\": [2, 1]}", "the larger one first"},
        {"{\"resized_ratio\": [1, 2]}", "resized_ratio: expected resized_crop with it"},
        {"{\"erase_fill\": \"noise\"}", "erase_fill: expected erase with it"},
        {"{\"flip\": true, \"mix\": 0.5}", "mix: expected mixup or cutmix with it"},
        {"{\"cutmix_share\": 0.5}", "cutmix_share: expected mixup or cutmix with it"},
        {"[1]", "expected"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Bench bench = bench_open();
        Augment augment;
        Tree *spec;
        assert_ok(json_parse(&spec, bench.arena, "recipe", BAD[i][0], strlen(BAD[i][0]),
                             bench.diag),
                  bench.diag);
        assert_int_equal(augment_bind(&augment, spec, bench.arena, bench.diag),
                         STATUS_RECIPE);
        if (!strstr(message_of(&bench), BAD[i][1])) fail_msg("%s", message_of(&bench));
        bench_close(&bench);
    }
    Toy none = toy_open("{}"), mixed = toy_open("{\"mixup\": 0.2}");
    assert_false(none.augment.on);
    assert_int_equal(none.data.column_count, 2);
    assert_true(mixed.augment.on);
    assert_int_equal(mixed.data.column_count, 4);
    assert_string_equal(mixed.columns[2].name, DATA_MIX_LABELS);
    assert_string_equal(mixed.columns[3].name, DATA_MIX_SHARE);
    bench_close(&none.bench);
    bench_close(&mixed.bench);
}

/* ---- one image ---- */

/* Whether x is sample 2 mirrored or not and moved; black where it has no pixel. */
static bool is_shifted(const float *x, Shift shift) {
    for (int i = 0; i < EACH; i++) {
        const int c = i / (H * W), y = i / W % H, col = i % W;
        const int64_t from_y = y + shift.down;
        const int64_t from_x = (shift.flip ? W - 1 - col : col) + shift.right;
        const bool in = from_y >= 0 && from_y < H && from_x >= 0 && from_x < W;
        if (x[i] != (in ? value(2, c, from_y, from_x) : black[c])) return false;
    }
    return true;
}

/* All 2 * 5 * 5 moves occur, about equally often; key 0 changes nothing. */
static void test_shift(void **state) {
    (void)state;
    Toy t = toy_open("{\"flip\": true, \"crop\": 2}");
    const int64_t sample = 2;
    float x[EACH];
    int32_t label;
    int seen[50] = {0};
    toy_fetch(&t, 0, &sample, 1, x, &label, NULL, NULL);
    assert_true(is_shifted(x, (Shift){0}));
    assert_int_equal(label, LABELS[2]);
    for (uint64_t key = 1; key <= 5000; key++) {
        int found = -1;
        toy_fetch(&t, key, &sample, 1, x, &label, NULL, NULL);
        for (int m = 0; m < 50; m++)
            if (is_shifted(x, (Shift){m >= 25, m % 5 - 2, m / 5 % 5 - 2})) found = m;
        assert_true(found >= 0);
        seen[found]++;
    }
    double chi = 0; /* 49 degrees of freedom: above 85.4 in one of 1000 */
    for (int m = 0; m < 50; m++) chi += (seen[m] - 100.0) * (seen[m] - 100.0) / 100;
    assert_true(chi < 85.4);
    bench_close(&t.bench);
}

/* A resized crop of a slope is a slope: where its box lay follows from two values. */
static void test_resized_crop(void **state) {
    (void)state;
    Toy t = toy_open("{\"resized_crop\": [0.2, 0.7]}");
    const int64_t sample = 0;
    double areas = 0;
    int32_t label;
    float x[EACH];
    for (uint64_t key = 1; key <= 2000; key++) {
        const Box box = draw_resized_crop(&t.augment, draw_key(key, 0), H, W);
        assert_true(box.top >= 0 && box.left >= 0 && box.rows >= 1 && box.cols >= 1);
        assert_true(box.top + box.rows <= H && box.left + box.cols <= W);
        areas += (double)(box.rows * box.cols) / (H * W);
        toy_fetch(&t, key, &sample, 1, x, &label, NULL, NULL);
        const double mid_y = (double)box.top + (double)(box.rows - 1) / 2;
        const double mid_x = (double)box.left + (double)(box.cols - 1) / 2;
        double mean = 0;
        for (int i = 0; i < H * W; i++) mean += x[i] / (H * W);
        assert_true(fabs(mean - (10 * mid_y + mid_x)) < 2);
    }
    assert_true(fabs(areas / 2000 - 0.45) < 0.04);
    bench_close(&t.bench);
}

/* Large images: shares of the area and logarithms of ratios are uniform. */
static void test_resized_crop_ranges(void **state) {
    (void)state;
    Toy t = toy_open("{\"resized_crop\": [0.08, 0.5]}");
    double area = 0, ratio = 0, square = 0;
    const int draws = 4000;
    for (int i = 1; i <= draws; i++) {
        const Box box =
            draw_resized_crop(&t.augment, draw_key((uint64_t)i, 9), 900, 1000);
        const double share = (double)(box.rows * box.cols) / 900e3;
        const double shape = log((double)box.cols / (double)box.rows);
        assert_true(share > 0.079 && share < 0.501);
        assert_true(fabs(shape) < log(4.0 / 3) + 0.01);
        area += share / draws;
        ratio += shape / draws;
        square += shape * shape / draws;
    }
    assert_true(fabs(area - 0.29) < 0.01);
    assert_true(fabs(ratio) < 0.01);
    assert_true(fabs(square - pow(log(4.0 / 3), 2) / 3) < 0.002);
    const Box thin = draw_resized_crop(&t.augment, 5, 10, 1000); /* 10 x 13 fits alone */
    assert_true(thin.rows <= 10 && (double)thin.cols <= 14);
    bench_close(&t.bench);
}

static void test_erase(void **state) {
    (void)state;
    Toy zero = toy_open("{\"erase\": 0.5}");
    Toy noise = toy_open("{\"erase\": 1, \"erase_fill\": \"noise\"}");
    const int64_t sample = 1;
    float x[EACH];
    int32_t label;
    int erased = 0;
    double sum = 0, squares = 0, count = 0;
    for (uint64_t key = 1; key <= 2000; key++) {
        Box box = {0};
        toy_fetch(&zero, key, &sample, 1, x, &label, NULL, NULL);
        const bool any = draw_erase(&zero.augment, draw_key(key, 1), H, W, &box);
        erased += any;
        for (int i = 0; i < EACH; i++) {
            const int y = i / W % H, col = i % W;
            const bool in = any && y >= box.top && y < box.top + box.rows &&
                            col >= box.left && col < box.left + box.cols;
            assert_true(x[i] == (in ? 0 : value(1, i / (H * W), y, col)));
        }
        toy_fetch(&noise, key, &sample, 1, x, &label, NULL, NULL);
        for (int i = 0; i < EACH; i++)
            if (x[i] != value(1, i / (H * W), i / W % H, i % W)) {
                sum += x[i];
                squares += (double)x[i] * x[i];
                count++;
            }
    }
    assert_true(abs(erased - 1000) < 120); /* a few boxes fit into no try */
    assert_true(count > 5000);
    assert_true(fabs(sum / count) < 0.03);
    assert_true(fabs(squares / count - 1) < 0.05);
    bench_close(&zero.bench);
    bench_close(&noise.bench);
}

/* ---- two images ---- */

/* Mean and variance of beta(a, a): 1/2 and 1 / (4 (2 a + 1)). */
static void test_beta(void **state) {
    (void)state;
    static const double ALPHAS[] = {0.02, 0.2, 1, 3};
    for (int a = 0; a < 4; a++) {
        double mean = 0, variance = 0;
        const int draws = 20000;
        for (int i = 0; i < draws; i++) {
            const double u = draw_beta(random_key(11, (uint64_t)i), ALPHAS[a]);
            assert_true(u >= 0 && u <= 1);
            mean += u / draws;
            variance += (u - 0.5) * (u - 0.5) / draws;
        }
        assert_true(fabs(mean - 0.5) < 0.015);
        assert_true(fabs(variance * 4 * (2 * ALPHAS[a] + 1) - 1) < 0.04);
    }
}

/* Every pixel is the weighted mean; labels and share say so. */
static void test_mixup(void **state) {
    (void)state;
    Toy t = toy_open("{\"mixup\": 0.8, \"mix\": 0.75}");
    const int64_t sample = 3;
    int mixed = 0, partners[N] = {0};
    for (uint64_t key = 1; key <= 4000; key++) {
        float x[EACH], share;
        int32_t label, other;
        toy_fetch(&t, key, &sample, 1, x, &label, &other, &share);
        const Mix mix = augment_mix(&t.augment, key, 3, N, H, W);
        assert_true(share == (float)mix.share);
        assert_int_equal(label, LABELS[3]);
        assert_int_equal(other, LABELS[mix.other]);
        assert_false(mix.cut);
        for (int i = 0; i < EACH; i += 7) {
            const int c = i / (H * W), y = i / W % H, col = i % W;
            const double a = (double)value(3, c, y, col);
            const double b = (double)value(mix.other, c, y, col);
            const double want = (1 - mix.share) * a + mix.share * b;
            const double largest = fmax(fabs(a), fabs(b));
            assert_within(x[i], want, rounding_tolerance(PRECISION_F32, 4, largest));
        }
        mixed += mix.share > 0;
        if (mix.share > 0) partners[mix.other]++;
    }
    assert_true(abs(mixed - 3000) < 110);
    for (int i = 0; i < N; i++) assert_true(abs(partners[i] - mixed / N) < 90);
    bench_close(&t.bench);
}

/* The box is the other's, and its share is its area's, also where the border cuts it. */
static void test_cutmix(void **state) {
    (void)state;
    Toy t = toy_open("{\"cutmix\": 1, \"mixup\": 0.3, \"cutmix_share\": 0.6}");
    const int64_t sample = 0;
    int cuts = 0;
    for (uint64_t key = 1; key <= 3000; key++) {
        float x[EACH], share;
        int32_t label, other;
        const Mix mix = augment_mix(&t.augment, key, 0, N, H, W);
        cuts += mix.cut;
        if (!mix.cut) continue;
        toy_fetch(&t, key, &sample, 1, x, &label, &other, &share);
        const Box b = mix.box;
        assert_within(share, (double)(b.rows * b.cols) / (H * W),
                      rounding_tolerance(PRECISION_F32, 1, 1));
        assert_int_equal(other, LABELS[mix.other]);
        for (int i = 0; i < EACH; i++) {
            const int c = i / (H * W), y = i / W % H, col = i % W;
            const bool in = y >= b.top && y < b.top + b.rows && col >= b.left &&
                            col < b.left + b.cols;
            assert_true(x[i] == value(in ? mix.other : 0, c, y, col));
        }
    }
    assert_true(abs(cuts - 1800) < 110);
    bench_close(&t.bench);
}

/* CutMix in large images: without the border's cut the area's share is uniform, so its
 * mean is 1/2; the cut takes some of it. */
static void test_cutmix_area(void **state) {
    (void)state;
    Toy t = toy_open("{\"cutmix\": 1}");
    double mean = 0;
    for (int i = 0; i < 20000; i++) {
        const Mix mix = augment_mix(&t.augment, 77, i, 100, 1000, 1000);
        assert_true(mix.other >= 0 && mix.other < 100);
        mean += mix.share / 20000;
    }
    /* E[u] with sides sqrt(u) cut at the border: E[(s - s^2 / 4)^2] = 1/2 - 1/5 + 1/48 */
    assert_true(fabs(mean - (1.0 / 2 - 1.0 / 5 + 1.0 / 48)) < 0.006);
    bench_close(&t.bench);
}

/* ---- how samples are fetched ---- */

/* One by one, all at once, in another order: the same bytes for a sample. */
static void test_batches(void **state) {
    (void)state;
    Toy t = toy_open("{\"flip\": true, \"crop\": 1, \"resized_crop\": [0.3, 1],"
                     " \"erase\": 0.5, \"mixup\": 0.4, \"cutmix\": 1}");
    const int64_t order[N] = {4, 0, 6, 2, 1, 5, 3};
    float all[N * EACH], shares[N], x[EACH], share;
    int32_t labels[N], others[N], label, other;
    toy_fetch(&t, 42, order, N, all, labels, others, shares);
    for (int i = 0; i < N; i++) {
        toy_fetch(&t, 42, &order[i], 1, x, &label, &other, &share);
        assert_memory_equal(x, all + i * EACH, sizeof x);
        assert_int_equal(label, labels[i]);
        assert_int_equal(other, others[i]);
        assert_true(share == shares[i]);
        toy_fetch(&t, 42, &order[i], 1, NULL, NULL, &other, &share);
        assert_int_equal(other, others[i]);
        assert_true(share == shares[i]);
        toy_fetch(&t, 0, &order[i], 1, x, &label, &other, &share);
        assert_true(x[W] == value(order[i], 0, 1, 0));
        assert_int_equal(other, label);
        assert_true(share == 0);
    }
    bench_close(&t.bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bind),         cmocka_unit_test(test_shift),
        cmocka_unit_test(test_resized_crop), cmocka_unit_test(test_resized_crop_ranges),
        cmocka_unit_test(test_erase),        cmocka_unit_test(test_beta),
        cmocka_unit_test(test_mixup),        cmocka_unit_test(test_cutmix),
        cmocka_unit_test(test_cutmix_area),  cmocka_unit_test(test_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
