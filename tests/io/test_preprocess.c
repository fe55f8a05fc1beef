/* Resizing against Pillow, cropping and values, preprocessor_config.json. */
#include "io/datasets/preprocess_compare.h"
#include "tests/io/image_fixture.h"
#include "tests/support/rounding.h"

/* ---- resizing ---- */

/* The pattern [rows, cols, 3] of tests/io/image_fixture.h resized by Pillow 9.4.0
 * (Image.fromarray(a).resize((out_cols, out_rows), Image.BILINEAR or BICUBIC)): CRC-32 of
 * the bytes. */
static const struct {
    int64_t rows, cols, out_rows, out_cols;
    ResampleKind kind;
    uint32_t crc;
} PILLOW[] = {
    {5, 7, 3, 4, RESAMPLE_BILINEAR, 0x7465bd11},
    {5, 7, 3, 4, RESAMPLE_BICUBIC, 0x2c31add4},
    {5, 7, 11, 9, RESAMPLE_BILINEAR, 0x609bd965},
    {5, 7, 11, 9, RESAMPLE_BICUBIC, 0x39aa5c6c},
    {23, 17, 8, 6, RESAMPLE_BILINEAR, 0xf544dfce},
    {23, 17, 8, 6, RESAMPLE_BICUBIC, 0x348cb1a7},
    {64, 48, 7, 48, RESAMPLE_BILINEAR, 0xa7ae608e},
    {64, 48, 7, 48, RESAMPLE_BICUBIC, 0x51fa4193},
    {64, 48, 64, 31, RESAMPLE_BILINEAR, 0xee75182e},
    {64, 48, 64, 31, RESAMPLE_BICUBIC, 0x650f464a},
    {33, 65, 224, 224, RESAMPLE_BILINEAR, 0x05017f94},
    {33, 65, 224, 224, RESAMPLE_BICUBIC, 0x060cc2ea},
    {100, 300, 32, 32, RESAMPLE_BILINEAR, 0x7f01bdb7},
    {100, 300, 32, 32, RESAMPLE_BICUBIC, 0x9f11c249},
    {3, 200, 5, 1, RESAMPLE_BILINEAR, 0x9cd6bc2d},
    {3, 200, 5, 1, RESAMPLE_BICUBIC, 0x1172a8f9},
    {1, 1, 9, 4, RESAMPLE_BILINEAR, 0xe9df50b3},
    {1, 1, 9, 4, RESAMPLE_BICUBIC, 0xe9df50b3},
    {480, 640, 224, 224, RESAMPLE_BILINEAR, 0xdac7b8d1},
    {480, 640, 224, 224, RESAMPLE_BICUBIC, 0xbc766821},
};

/* The first two of them in full. */
static const uint8_t SMALL[2][36] = {
    {51,  104, 152, 114, 136, 132, 165, 130, 154, 145, 116, 107,
     142, 158, 147, 151, 114, 110, 131, 127, 151, 138, 164, 140,
     87,  83,  129, 127, 139, 115, 135, 125, 121, 134, 139, 111},
    {45,  106, 156, 118, 136, 130, 168, 129, 158, 143, 118, 103,
     149, 165, 149, 152, 110, 104, 132, 122, 152, 137, 166, 145,
     83,  78,  128, 127, 142, 118, 137, 126, 124, 135, 141, 108},
};

static void test_pillow(void **state) {
    (void)state;
    Diag *diag = diag_create();
    for (size_t i = 0; i < sizeof PILLOW / sizeof *PILLOW; i++) {
        Image from = pattern_image(PILLOW[i].rows, PILLOW[i].cols, 3, diag), to;
        assert_ok(resample_image(&to, &from, PILLOW[i].out_rows, PILLOW[i].out_cols,
                                 PILLOW[i].kind, diag),
                  diag);
        const size_t bytes = (size_t)(to.rows * to.cols * 3);
        if (i < 2) assert_memory_equal(to.pixels, SMALL[i], 36);
        if (crc32(0, to.pixels, (uInt)bytes) != PILLOW[i].crc)
            fail_msg("case %zu differs from Pillow", i);
        image_free(&from);
        image_free(&to);
    }
    diag_destroy(diag);
}

/* Floats give what bytes give but for two roundings; constants and, inside, slopes are
 * kept. */
static void test_plane(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Image from = pattern_image(23, 17, 1, diag), to;
    float plane[23 * 20], out[8 * 6], wide[46 * 34];
    memset(plane, 0, sizeof plane);
    for (int i = 0; i < 23 * 17; i++) plane[i / 17 * 20 + i % 17] = from.pixels[i];
    for (int kind = 0; kind < 2; kind++) {
        assert_ok(resample_image(&to, &from, 8, 6, (ResampleKind)kind, diag), diag);
        assert_ok(resample_plane(out, 8, 6, plane, 23, 17, 20, (ResampleKind)kind, diag),
                  diag);
        for (int i = 0; i < 48; i++)
            assert_true(fabs(fmin(fmax(out[i], 0), 255) - to.pixels[i]) < 1.3);
        image_free(&to);
        for (int i = 0; i < 23 * 20; i++) plane[i] = 3 + 2.0f * (float)(i % 20);
        assert_ok(
            resample_plane(wide, 46, 34, plane, 23, 17, 20, (ResampleKind)kind, diag),
            diag);
        for (int x = 4; x < 30; x++)
            /* two sums of up to four weighted values of up to 41 */
            assert_within(wide[5 * 34 + x], 3 + 2 * ((x + 0.5) / 2 - 0.5),
                          rounding_tolerance(PRECISION_F32, 2 * 8, 41));
        for (int i = 0; i < 23 * 17; i++) plane[i / 17 * 20 + i % 17] = from.pixels[i];
    }
    image_free(&from);
    diag_destroy(diag);
}

/* ---- sizes and crops ---- */

static void expect_size(const Preprocess *p, int64_t rows, int64_t cols, int64_t to_rows,
                        int64_t to_cols) {
    Diag *diag = diag_create();
    Image from = pattern_image(rows, cols, 3, diag), to;
    assert_ok(preprocess_image(&to, &from, p, "image", diag), diag);
    assert_int_equal(to.rows, to_rows);
    assert_int_equal(to.cols, to_cols);
    assert_true(preprocess_size(p, &rows, &cols));
    assert_int_equal(rows, to_rows);
    assert_int_equal(cols, to_cols);
    image_free(&from);
    image_free(&to);
    diag_destroy(diag);
}

static void test_sizes(void **state) {
    (void)state;
    Preprocess p = preprocess_default;
    expect_size(&p, 5, 7, 5, 7);
    p.resize = RESIZE_SHORTEST;
    p.rows = 8;
    expect_size(&p, 5, 7, 8, 11); /* floor(8 * 7 / 5) */
    expect_size(&p, 7, 5, 11, 8);
    expect_size(&p, 16, 16, 8, 8);
    p.resize = RESIZE_EXACT;
    p.cols = 3;
    expect_size(&p, 5, 7, 8, 3);
    p.crop_rows = 4;
    p.crop_cols = 6;
    expect_size(&p, 5, 7, 4, 6);
}

/* The middle, the odd pixel at the far side; black around what is too small. */
static void test_crop(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Preprocess p = preprocess_default;
    p.crop_rows = 2;
    p.crop_cols = 8;
    Image from = pattern_image(5, 5, 1, diag), to;
    assert_ok(preprocess_image(&to, &from, &p, "image", diag), diag);
    for (int y = 0; y < 2; y++)
        for (int x = 0; x < 8; x++) { /* rows from 1, columns from -2 */
            const int from_x = x - 2;
            const int want = from_x >= 0 && from_x < 5 ? pattern(y + 1, from_x, 0) : 0;
            assert_int_equal(to.pixels[y * 8 + x], want);
        }
    image_free(&to);
    image_free(&from);
    p = (Preprocess){.resize = RESIZE_SHORTEST, .rows = 8000};
    from = pattern_image(1, 9000, 1, diag);
    assert_int_equal(preprocess_image(&to, &from, &p, "image", diag), STATUS_FORMAT);
    image_free(&from);
    diag_destroy(diag);
}

/* ---- the file ---- */

static Preprocess read_config(const char *json) {
    Bench bench = bench_open();
    Preprocess p;
    spill("preprocessor_config.json", json, strlen(json));
    assert_ok(preprocess_read(&p, folder, bench.arena, bench.diag), bench.diag);
    bench_close(&bench);
    return p;
}

static void expect_change(const Preprocess *p, int resize, int64_t rows, int64_t cols,
                          int64_t crop, int resample) {
    assert_int_equal(p->resize, resize);
    if (resize != RESIZE_NONE) assert_int_equal(p->rows, rows);
    if (resize == RESIZE_EXACT) assert_int_equal(p->cols, cols);
    assert_int_equal(p->crop_rows, crop);
    assert_int_equal(p->crop_cols, crop);
    assert_int_equal(p->resample, resample);
}

static void test_config(void **state) {
    (void)state;
    Preprocess p = read_config("{}");
    expect_change(&p, RESIZE_EXACT, 224, 224, 0, RESAMPLE_BILINEAR);
    /* (x / 255 - 1 / 2) / (1 / 2): of terms up to 2 */
    const double tolerance = rounding_tolerance(PRECISION_F32, 4, 2);
    assert_within(preprocess_value(&p, 1, 255), 1, tolerance);
    assert_within(preprocess_value(&p, 2, 0), -1, tolerance);
    p = read_config("{\"do_resize\": true, \"size\": 384, \"resample\": 3}");
    expect_change(&p, RESIZE_EXACT, 384, 384, 0, RESAMPLE_BICUBIC);
    p = read_config("{\"size\": {\"height\": 20, \"width\": 30}, \"resample\": 2}");
    expect_change(&p, RESIZE_EXACT, 20, 30, 0, RESAMPLE_BILINEAR);
    p = read_config("{\"size\": {\"shortest_edge\": 256}, \"do_center_crop\": true,"
                    " \"crop_size\": {\"height\": 224, \"width\": 224}}");
    expect_change(&p, RESIZE_SHORTEST, 256, 0, 224, RESAMPLE_BILINEAR);
    p = read_config("{\"size\": {\"shortest_edge\": 224}, \"crop_pct\": 0.875}");
    expect_change(&p, RESIZE_SHORTEST, 256, 0, 224, RESAMPLE_BILINEAR);
    p = read_config("{\"size\": 384, \"crop_pct\": 0.875}");
    expect_change(&p, RESIZE_EXACT, 384, 384, 0, RESAMPLE_BILINEAR);
    p = read_config("{\"do_resize\": false, \"do_center_crop\": true, \"crop_size\": 9}");
    expect_change(&p, RESIZE_NONE, 0, 0, 9, RESAMPLE_BILINEAR);
    p = read_config("{\"image_mean\": [0.1, 0.2, 0.3], \"image_std\": [1, 2, 4]}");
    assert_within(preprocess_value(&p, 2, 51), (0.2 - 0.3) / 4,
                  rounding_tolerance(PRECISION_F32, 4, 0.3 / 4));
    p = read_config("{\"do_rescale\": false, \"do_normalize\": false,"
                    " \"image_mean\": [0.1, 0.2, 0.3]}");
    assert_true(preprocess_value(&p, 1, 77) == 77);
    p = read_config("{\"rescale_factor\": 0.5, \"do_normalize\": false}");
    assert_true(preprocess_value(&p, 1, 7) == 3.5f);
}

static void test_bad_config(void **state) {
    (void)state;
    static const char *const BAD[][2] = {
        {"[]", "expected a map, found list"},
        {"{\"size\": 0}", "size: expected a number of pixels"},
        {"{\"size\": 1.5}", "size: expected a number of pixels"},
        {"{\"size\": 100000}", "size"},
        {"{\"size\": {\"height\": 5}}", "{height, width} or {shortest_edge}"},
        {"{\"size\": {\"shortest_edge\": -1}}", "size"},
        {"{\"resample\": 1}", "expected 2 (bilinear) or 3 (bicubic), found integer 1"},
        {"{\"resample\": \"bilinear\"}", "resample"},
        {"{\"image_std\": [1, 1]}",
         "image_std: expected one number, or three, found list"},
        {"{\"image_std\": 0}", "image_std: expected numbers from 1e-6 to 1e6, found"},
        {"{\"image_std\": [0, 1, 1]}", "numbers from 1e-6 to 1e6, found integer 0"},
        {"{\"image_mean\": [0, 1, 1e7]}", "numbers from -1e6 to 1e6, found"},
        {"{\"do_flip_channel_order\": true}", "do_flip_channel_order: expected false"},
        {"{\"rescale_offset\": true}", "rescale_offset: expected false"},
        {"{\"do_pad\": true}", "do_pad: expected false"},
        {"{\"do_thumbnail\": true}", "do_thumbnail: expected false"},
        {"{\"do_pad\": 1}", "do_pad: expected true or false"},
        {"{\"size\": {\"shortest_edge\": 8, \"longest_edge\": 9}}",
         "size.longest_edge: expected none beside shortest_edge, found integer 9"},
        {"{\"background\": \"red\"}", "background: expected \"white\" or \"black\""},
        {"{\"image_mean\": [\"a\", 1, 1]}", "image_mean"},
        {"{\"rescale_factor\": 0}", "rescale_factor"},
        {"{\"do_resize\": 1}", "do_resize: expected true or false"},
        {"{\"crop_pct\": 2}", "crop_pct"},
        {"{\"do_center_crop\": true, \"crop_size\": \"x\"}", "crop_size"},
        {"{", "preprocessor_config.json"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Bench bench = bench_open();
        Preprocess p;
        spill("preprocessor_config.json", BAD[i][0], strlen(BAD[i][0]));
        assert_int_equal(preprocess_read(&p, folder, bench.arena, bench.diag),
                         STATUS_FORMAT);
        if (!strstr(message_of(&bench), BAD[i][1]))
            fail_msg("no '%s' in: %s", BAD[i][1], message_of(&bench));
        bench_close(&bench);
    }
}

/* What is warned of, and what is not: keys that say nothing of pixels. */
static void test_keys(void **state) {
    (void)state;
    static const char *const WARNED[][2] = {
        {"{\"do_normalise\": false}",
         "do_normalise: not known here, and not followed: did "
         "you mean \"do_normalize\"?"},
        {"{\"do_centre_crop\": true}", "did you mean \"do_center_crop\"?"},
        {"{\"do_something_else\": true}", "do_something_else: not known here"},
        {"{\"do_pad\": false, \"do_flip_channel_order\": null, \"do_convert_rgb\": true,"
         " \"do_reduce_labels\": false, \"do_anything\": null, \"rescale_offset\": false,"
         " \"image_processor_type\": \"ViTImageProcessor\", \"return_tensors\": null,"
         " \"feature_extractor_type\": \"ViTFeatureExtractor\", \"data_format\": 1,"
         " \"processor_class\": null, \"_valid_processor_keys\": [\"images\"],"
         " \"pad_size\": null, \"input_data_format\": null, \"device\": null,"
         " \"default_to_square\": true, \"disable_grouping\": null}",
         NULL},
    };
    for (size_t i = 0; i < sizeof WARNED / sizeof *WARNED; i++) {
        Bench bench = bench_open();
        Preprocess p;
        assert_ok(preprocess_parse(&p, "p", WARNED[i][0], strlen(WARNED[i][0]),
                                   bench.arena, bench.diag),
                  bench.diag);
        assert_int_equal(diag_warning_count(bench.diag), WARNED[i][1] != NULL);
        if (WARNED[i][1] && !strstr(message_of(&bench), WARNED[i][1]))
            fail_msg("no '%s' in: %s", WARNED[i][1], message_of(&bench));
        bench_close(&bench);
    }
}

/* ---- writing ---- */

static void expect_written(const Preprocess *p, int64_t channels, const char *part,
                           bool found) {
    Bench bench = bench_open();
    Preprocess again;
    const char *text = preprocess_text(bench.arena, p, channels);
    if (!strstr(text, part) == found) fail_msg("'%s' in: %s", part, text);
    assert_ok(preprocess_parse(&again, "p", text, strlen(text), bench.arena, bench.diag),
              bench.diag);
    assert_int_equal(diag_warning_count(bench.diag), 0);
    assert_int_equal(again.background, p->background);
    assert_true(again.mean[0] == p->mean[0] && again.std[0] == p->std[0]);
    bench_close(&bench);
}

static void test_writing(void **state) {
    (void)state;
    Preprocess p = preprocess_default;
    expect_written(&p, 3, "background", false);
    expect_written(&p, 3, "\"image_mean\": [0.0, 0.0, 0.0]", true);
    expect_written(&p, 3, "do_convert_rgb", false);
    expect_written(&p, 1, "\"image_mean\": [0.0]", true);
    expect_written(&p, 1, "\"do_convert_rgb\": false", true);
    p.background = IMAGE_BLACK;
    expect_written(&p, 3, "\"background\": \"black\"", true);
}

/* ---- comparing ---- */

#define HALF "\"image_mean\": [0.5, 0.5, 0.5], \"image_std\": [0.5, 0.5, 0.5]"

/* Compares two files for images of 3 x 16 x 16; NULL = no difference. */
static void expect_difference(const char *own, const char *other, bool drawn,
                              const char *wanted) {
    const PreparedImages images = {3, 16, 16, drawn};
    Bench bench = bench_open();
    Preprocess p, q;
    assert_ok(preprocess_parse(&p, "p", own, strlen(own), bench.arena, bench.diag),
              bench.diag);
    assert_ok(preprocess_parse(&q, "q", other, strlen(other), bench.arena, bench.diag),
              bench.diag);
    const char *found = preprocess_difference(bench.arena, &p, &q, &images);
    if (strcmp(found ? found : "none", wanted ? wanted : "none") != 0)
        fail_msg("%s, %s: expected %s, found %s", own, other, wanted, found);
    bench_close(&bench);
}

static void test_difference(void **state) {
    (void)state;
    static const char SQUARE[] = "{\"size\": 16, " HALF "}";
    static const char CROPPED[] =
        "{\"size\": {\"shortest_edge\": 18}, \"resample\": 3,"
        " \"do_center_crop\": true, \"crop_size\": 16, " HALF "}";
    static const char AS_IS[] = "{\"do_resize\": false, " HALF "}";
    expect_difference(SQUARE, SQUARE, false, NULL);
    expect_difference(SQUARE, CROPPED, false,
                      "resize [16, 16] bilinear where that has resize [18] bicubic, "
                      "center_crop [16, 16]");
    expect_difference(SQUARE, CROPPED, true, NULL); /* as training draws them */
    expect_difference(SQUARE, "{\"size\": 32, " HALF "}", true,
                      "resize [16, 16] bilinear where that has resize [32, 32] bilinear");
    expect_difference(AS_IS, SQUARE, false, NULL); /* they have that size */
    expect_difference(SQUARE, AS_IS, false, NULL);
    expect_difference(AS_IS, CROPPED, false,
                      "no resize where that has resize [18] bicubic, center_crop [16, "
                      "16]");
    expect_difference(SQUARE,
                      "{\"size\": 16, \"do_center_crop\": true, \"crop_size\": 16}",
                      false, NULL);
    /* the same numbers, said in bytes; rounded ones; other ones */
    expect_difference("{\"size\": 16, \"rescale_factor\": 1, \"image_mean\": 127.5,"
                      " \"image_std\": 127.5}",
                      SQUARE, false, NULL);
    expect_difference("{\"size\": 16, \"image_mean\": 0.5009}", SQUARE, false, NULL);
    expect_difference("{\"size\": 16, \"image_mean\": [0.5, 0.6, 0.5]}", SQUARE, false,
                      "mean [0.5, 0.6, 0.5], std 0.5 where that has mean 0.5, std 0.5");
    expect_difference("{\"size\": 16, \"rescale_factor\": 1}", SQUARE, false,
                      "rescale 1, mean 0.5, std 0.5 where that has rescale 0.00392157, "
                      "mean 0.5, std 0.5");
    expect_difference("{\"size\": 16, \"background\": \"black\"}", SQUARE, false,
                      "background black where that has background white");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pillow),     cmocka_unit_test(test_plane),
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_crop),
        cmocka_unit_test(test_config),     cmocka_unit_test(test_bad_config),
        cmocka_unit_test(test_keys),       cmocka_unit_test(test_writing),
        cmocka_unit_test(test_difference),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
