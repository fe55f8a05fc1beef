/* Formats images, cifar and sheet: values, labels, memory, damaged files. */
#include "tests/io/image_fixture.h"

/* ---- a folder ---- */

enum { SIDE = 4, PER_CLASS = 3 };

/* Image k of a class: a flat colour that tells both. */
static void flat_spill(const char *name, int side, int class, int k) {
    Diag *diag = diag_create();
    Image image;
    assert_ok(image_create(&image, side, side, 3, diag), diag);
    for (int i = 0; i < 3 * side * side; i++)
        image.pixels[i] = (uint8_t)(i % 3 == 0   ? 40 * class
                                    : i % 3 == 1 ? 10 * k
                                                 : i / 3);
    png_spill_image(name, &image);
    image_free(&image);
    diag_destroy(diag);
}

/* Folders ant, bee, cat with three images each. */
static void folder_fill(void) {
    static const char *const NAMES[] = {"ant", "bee", "cat"};
    shell("rm -rf set; mkdir -p set/ant set/bee set/cat");
    for (int class = 0; class < 3; class ++)
        for (int k = 0; k < PER_CLASS; k++) {
            char name[64];
            snprintf(name, sizeof name, "set/%s/%d.%s", NAMES[class], k,
                     k == 1 ? "PNG" : "png");
            flat_spill(name, SIDE, class, k);
        }
}

typedef struct Sample {
    float x[3 * 8 * 8];
    int32_t label;
} Sample;

static Sample fetch_one(const Bench *bench, int64_t i, uint64_t key) {
    Sample s = {.label = -1};
    int32_t other;
    float share;
    void *dst[] = {s.x, &s.label, &other, &share};
    const Fetch what = {.index = &i, .n = 1, .key = key};
    assert_ok(bench->data->fetch(bench->data, &what, dst, bench->diag), bench->diag);
    return s;
}

static int64_t dim_of(const Bench *bench, int i) {
    return bench->data->columns[0].type.dim[i];
}

#define SET(rest) "{\"format\": \"images\", \"path\": \"set\"" rest "}"

/* Every image comes once, with its label; `label` maps the class in the pixels. */
static void check_set(const char *json, const int *label, int64_t count) {
    Bench bench = bench_open();
    int seen[3][PER_CLASS] = {{0}};
    assert_ok(bench_load(&bench, json), bench.diag);
    assert_int_equal(bench.data->count, count);
    assert_int_equal(bench.data->classes, 3);
    assert_non_null(bench.data->class_names);
    for (int d = 0; d < 3; d++) assert_int_equal(dim_of(&bench, d), d ? SIDE : 3);
    for (int64_t i = 0; i < count; i++) {
        const Sample s = fetch_one(&bench, i, 0);
        const int class = (int)lround(s.x[0] * 255 / 40);
        const int k = (int)lround(s.x[SIDE * SIDE] * 255 / 10);
        assert_int_equal(s.label, label[class]);
        for (int p = 0; p < SIDE * SIDE; p++)
            assert_within(s.x[2 * SIDE * SIDE + p], p / 255.0, PIXEL_ROUNDING);
        seen[class][k]++;
    }
    for (int i = 0; i < 9; i++) assert_true(seen[i / 3][i % 3] <= 1);
    bench_close(&bench);
}

static void test_folder(void **state) {
    (void)state;
    folder_fill();
    check_set(SET(""), (const int[]){0, 1, 2}, 9);
    check_set(SET(", \"memory\": 0"), (const int[]){0, 1, 2}, 9);
    check_set(SET(", \"labels\": [\"cat\", \"ant\", \"bee\"]"), (const int[]){1, 2, 0},
              9);
    check_set(SET(", \"limit\": 4, \"offset\": 2"), (const int[]){0, 1, 2}, 4);
    const char *config =
        "{\"id2label\": {\"1\": \"ant\", \"0\": \"bee\", \"2\": \"cat\"}}";
    spill("config.json", config, strlen(config));
    check_set(SET(", \"config\": \".\""), (const int[]){1, 0, 2}, 9);
    check_set(SET(", \"config\": \"config.json\""), (const int[]){1, 0, 2}, 9);
}

/* Files stand mixed: a small limit meets several classes. */
static void test_order(void **state) {
    (void)state;
    Bench bench = bench_open();
    int classes = 0, seen[3] = {0};
    folder_fill();
    assert_ok(bench_load(&bench, SET(", \"limit\": 4")), bench.diag);
    for (int64_t i = 0; i < 4; i++) seen[fetch_one(&bench, i, 0).label] = 1;
    for (int i = 0; i < 3; i++) classes += seen[i];
    assert_true(classes > 1);
    bench_close(&bench);
}

static void test_folder_refused(void **state) {
    (void)state;
    folder_fill();
    expect_failure(SET(", \"labels\": [\"ant\", \"bee\", \"cats\"]"), STATUS_FORMAT,
                   "set|class folder 'cat' is none of the 3 classes|did you mean 'cats'");
    expect_failure(SET(", \"labels\": [\"ant\", \"ant\"]"), STATUS_RECIPE,
                   "class 'ant' occurs twice");
    expect_failure(SET(", \"limit\": 10"), STATUS_RECIPE, "has 9");
    expect_failure(SET(", \"mean\": [1, 2]"), STATUS_RECIPE, "mean|3 channels");
    expect_failure(SET(", \"resize\": [1, 2, 3]"), STATUS_RECIPE, "resize");
    expect_failure(SET(", \"augment\": {\"crop\": -1}"), STATUS_RECIPE, "crop");
    expect_failure("{\"format\": \"images\", \"path\": \"absent\"}", STATUS_IO,
                   "absent|cannot open");
    expect_failure("{\"format\": \"images\", \"path\": null}", STATUS_RECIPE, "path");
    spill("config.json", "{\"id2label\": {\"0\": \"LABEL_0\"}}", 30);
    expect_failure(SET(", \"config\": \".\""), STATUS_FORMAT,
                   "expected names of the classes, found none");
    spill("config.json", "{\"id2label\": {\"1\": \"ant\"}}", 26);
    expect_failure(SET(", \"config\": \".\""), STATUS_FORMAT, "id2label");
    shell("mkdir set/empty");
    expect_failure(SET(""), STATUS_FORMAT, "set/empty|found none");
    shell("rm -r set; mkdir set; touch set/a.png");
    expect_failure(SET(""), STATUS_FORMAT, "expected a sub-folder for each class");
}

static void test_sizes(void **state) {
    (void)state;
    folder_fill();
    flat_spill("set/bee/9.png", 8, 1, 3);
    expect_failure(SET(""), STATUS_FORMAT, "pixels as in other images|resize");
    for (int memory = 0; memory < 2; memory++) {
        Bench bench = bench_open();
        assert_ok(bench_load(&bench, memory ? SET(", \"resize\": [6, 5]")
                                            : SET(", \"resize\": [6, 5], \"memory\": 0")),
                  bench.diag);
        assert_int_equal(bench.data->count, 10);
        assert_int_equal(dim_of(&bench, 1), 6);
        assert_int_equal(dim_of(&bench, 2), 5);
        for (int64_t i = 0; i < 10; i++) {
            const Sample s = fetch_one(&bench, i, 0);
            assert_int_equal(lround(s.x[7] * 255 / 40), s.label);
        }
        bench_close(&bench);
    }
    Bench bench = bench_open(); /* without memory the mismatch is found when fetching */
    assert_ok(bench_load(&bench, SET(", \"memory\": 0")), bench.diag);
    int failed = 0;
    for (int64_t i = 0; i < 10; i++) {
        float x[3 * 8 * 8];
        int32_t label;
        failed += bench.data->fetch(bench.data, &(Fetch){&i, 1, 0, 0},
                                    (void *[]){x, &label}, bench.diag) == STATUS_FORMAT;
    }
    assert_true(failed == 1 || failed == 9);
    bench_close(&bench);
}

/* ---- damaged images ---- */

static void test_damaged(void **state) {
    (void)state;
    folder_fill();
    spill("set/bee/1.PNG", "\x89PNG\r\n\x1a\nrubbish", 15);
    spill("set/notes.txt", "x", 1);
    spill("set/ant/notes.txt", "x", 1);
    expect_failure(SET(""), STATUS_FORMAT, "set/bee/1.PNG|damaged PNG");
    for (int memory = 0; memory < 2; memory++) {
        Bench bench = bench_open();
        assert_ok(bench_load(&bench, memory ? SET(", \"on_error\": \"skip\"")
                                            : SET(", \"on_error\": \"skip\","
                                                  " \"memory\": 0")),
                  bench.diag);
        assert_int_equal(bench.data->count, 8);
        assert_non_null(strstr(message_of(&bench), "bee/1.PNG"));
        assert_non_null(strstr(message_of(&bench), "1 of 9 images are damaged"));
        assert_non_null(strstr(message_of(&bench), "1 files that are not PNG or JPEG"));
        for (int64_t i = 0; i < 8; i++) {
            const Sample s = fetch_one(&bench, i, 0);
            assert_int_equal(lround(s.x[0] * 255 / 40), s.label);
        }
        bench_close(&bench);
    }
    shell("for f in set/*/*.[pP]*; do head -c 40 $f > t; cp t $f; done");
    expect_failure(SET(", \"on_error\": \"skip\""), STATUS_FORMAT,
                   "every one of 9 images is damaged");
}

/* ---- values and augmentation ---- */

static void test_preprocessor(void **state) {
    (void)state;
    const char *config = "{\"size\": {\"shortest_edge\": 8}, \"do_center_crop\": true,"
                         " \"crop_size\": 6, \"image_mean\": [0.5, 0.25, 0],"
                         " \"image_std\": [0.5, 1, 2]}";
    folder_fill();
    spill("preprocessor_config.json", config, strlen(config));
    Bench bench = bench_open();
    assert_ok(bench_load(&bench, SET(", \"preprocessor\": \".\"")), bench.diag);
    assert_int_equal(dim_of(&bench, 1), 6);
    for (int64_t i = 0; i < 9; i++) {
        const Sample s = fetch_one(&bench, i, 0);
        assert_within(s.x[0], (40 * s.label / 255.0 - 0.5) / 0.5, 2 * PIXEL_ROUNDING);
    }
    assert_ok(bench_load(&bench, SET(", \"preprocessor\": \".\", \"resize\": [5, 5],"
                                     " \"mean\": [0], \"std\": [1]")),
              bench.diag);
    assert_int_equal(dim_of(&bench, 1), 5);
    const Sample s = fetch_one(&bench, 3, 0);
    assert_within(s.x[0], 40 * s.label / 255.0, PIXEL_ROUNDING);
    bench_close(&bench);
}

/* The same bytes whether images are kept or decoded each time, for every augmentation. */
static void test_memory(void **state) {
    (void)state;
    static const char *const CHANGES[] = {
        "{\"flip\": true, \"crop\": 1, \"mixup\": 0.5}",
        "{\"resized_crop\": [0.3, 0.8], \"flip\": true, \"cutmix\": 1, \"erase\": 0.5}",
    };
    folder_fill();
    for (int c = 0; c < 2; c++) {
        Bench kept = bench_open(), fresh = bench_open();
        char json[400];
        for (int memory = 0; memory < 2; memory++) {
            snprintf(json, sizeof json,
                     SET(", \"resize\": [8, 8], \"mean\": [0.5], \"memory\": %d, "
                         "\"augment\": %s"),
                     memory, CHANGES[c]);
            assert_ok(bench_load(memory ? &kept : &fresh, json), kept.diag);
        }
        assert_int_equal(kept.data->column_count, 4);
        for (int64_t i = 0; i < 9; i++)
            for (uint64_t key = 0; key < 20; key++) {
                const Sample a = fetch_one(&kept, i, key), b = fetch_one(&fresh, i, key);
                assert_memory_equal(a.x, b.x, sizeof a.x);
                assert_int_equal(a.label, b.label);
                assert_int_equal(a.label, fetch_one(&kept, i, 0).label);
            }
        bench_close(&kept);
        bench_close(&fresh);
    }
}

/* A crop that is the whole image is the resized image but for rounding to bytes. */
static void test_whole_crop(void **state) {
    (void)state;
    Bench bench = bench_open();
    folder_fill();
    assert_ok(bench_load(&bench, SET(", \"resize\": [8, 8], \"augment\":"
                                     " {\"resized_crop\": [1, 1],"
                                     " \"resized_ratio\": [1, 1]}")),
              bench.diag);
    for (int64_t i = 0; i < 9; i++) {
        const Sample plain = fetch_one(&bench, i, 0), crop = fetch_one(&bench, i, 5);
        for (int p = 0; p < 3 * 8 * 8; p++)
            assert_true(fabs(plain.x[p] - crop.x[p]) < 1.3 / 255);
    }
    bench_close(&bench);
}

static void test_gray(void **state) {
    (void)state;
    Bench bench = bench_open();
    folder_fill();
    assert_ok(bench_load(&bench, SET(", \"color\": \"gray\", \"std\": [0.5]")),
              bench.diag);
    assert_int_equal(dim_of(&bench, 0), 1);
    for (int64_t i = 0; i < 9; i++) {
        const Sample s = fetch_one(&bench, i, 0);
        assert_true(s.x[0] <= (0.299 * 80 + 0.587 * 20 + 1) / 255 / 0.5);
        assert_true(s.x[0] >= (0.299 * 40 * s.label - 1) / 255 / 0.5);
    }
    bench_close(&bench);
}

/* ---- CIFAR ---- */

static uint8_t cifar_byte(int record, int at) {
    return (uint8_t)(record * 31 + at * 7);
}

static void cifar_spill(const char *name, int labels, int records, int extra) {
    uint8_t data[3 * 3074 + 1] = {0};
    int length = 0;
    for (int r = 0; r < records; r++) {
        for (int i = 0; i < labels; i++)
            data[length++] = (uint8_t)(labels == 1 ? 3 * r + 1 : i ? 90 + r : 5 + r);
        for (int at = 0; at < 3072; at++) data[length++] = cifar_byte(r, at);
    }
    spill(name, data, (size_t)(length + extra));
}

#define CIFAR(rest) "{\"format\": \"cifar\", " rest "}"

static void check_cifar(const char *json, int64_t classes, const int *labels, int count) {
    Bench bench = bench_open();
    static float x[3072];
    assert_ok(bench_load(&bench, json), bench.diag);
    assert_int_equal(bench.data->count, count);
    assert_int_equal(bench.data->classes, classes);
    assert_int_equal(dim_of(&bench, 2), 32);
    for (int64_t i = 0; i < count; i++) {
        int32_t label;
        assert_ok(bench.data->fetch(bench.data, &(Fetch){&i, 1, 0, 0},
                                    (void *[]){x, &label}, bench.diag),
                  bench.diag);
        assert_int_equal(label, labels[i]);
        for (int at = 0; at < 3072; at++)
            assert_within(x[at], cifar_byte((int)i % 2, at) / 255.0, PIXEL_ROUNDING);
    }
    bench_close(&bench);
}

static void test_cifar(void **state) {
    (void)state;
    cifar_spill("a.bin", 1, 2, 0);
    cifar_spill("h.bin", 2, 2, 0);
    check_cifar(CIFAR("\"files\": [\"a.bin\", \"a.bin\"]"), 10, (const int[]){1, 4, 1, 4},
                4);
    check_cifar(CIFAR("\"files\": [\"a.bin\"], \"memory\": 0"), 10, (const int[]){1, 4},
                2);
    check_cifar(CIFAR("\"files\": [\"h.bin\"], \"labels\": \"fine\""), 100,
                (const int[]){90, 91}, 2);
    check_cifar(CIFAR("\"files\": [\"h.bin\"], \"labels\": \"coarse\""), 20,
                (const int[]){5, 6}, 2);
    expect_failure(CIFAR("\"files\": [\"h.bin\"]"), STATUS_FORMAT,
                   "h.bin|records of 3073 bytes, found 6148");
    expect_failure(CIFAR("\"files\": []"), STATUS_RECIPE, "files");
    cifar_spill("long.bin", 1, 1, 1);
    expect_failure(CIFAR("\"files\": [\"a.bin\", \"long.bin\"]"), STATUS_FORMAT,
                   "long.bin|found 3074");
    spill("none.bin", "", 0);
    expect_failure(CIFAR("\"files\": [\"none.bin\"]"), STATUS_FORMAT, "found 0 bytes");
    uint8_t record[3073] = {10};
    spill("label.bin", record, sizeof record);
    expect_failure(CIFAR("\"files\": [\"label.bin\"]"), STATUS_FORMAT,
                   "label 10 of sample 0");
}

/* ---- sheets ---- */

#define SHEET(rest) "{\"format\": \"sheet\", " rest "}"

/* Rows of a sheet of `cols` pixels in 1 or 3 channels with the fixture's pattern, which
 * are images of 2 x 3 pixels (or squares) in colour: value of image i. */
typedef uint8_t PixelOf(int64_t i, int64_t c, int64_t at);

static uint8_t colour_pixel(int64_t i, int64_t c, int64_t at) {
    return pattern(i, at, c);
}
static uint8_t planes_pixel(int64_t i, int64_t c, int64_t at) {
    return pattern(i, c * 6 + at, 0);
}
static uint8_t values_pixel(int64_t i, int64_t c, int64_t at) {
    return pattern(i, 3 * at + c, 0);
}

static void check_sheet(const char *json, int64_t count, PixelOf *want) {
    Bench bench = bench_open();
    assert_ok(bench_load(&bench, json), bench.diag);
    assert_int_equal(bench.data->count, count);
    assert_int_equal(dim_of(&bench, 1), 2);
    assert_int_equal(dim_of(&bench, 2), 3);
    for (int64_t i = 0; i < count; i++) {
        const Sample s = fetch_one(&bench, i, 0);
        if (bench.data->column_count > 1) assert_int_equal(s.label, i % 3);
        for (int64_t c = 0; c < 3; c++)
            for (int64_t at = 0; at < 6; at++)
                assert_within(s.x[c * 6 + at], want(i % 4, c, at) / 255.0,
                              PIXEL_ROUNDING);
    }
    bench_close(&bench);
}

static void sheet_spill(const char *name, int64_t rows, int64_t cols, int64_t channels) {
    Diag *diag = diag_create();
    Image image = pattern_image(rows, cols, channels, diag);
    png_spill_image(name, &image);
    image_free(&image);
    diag_destroy(diag);
}

static void test_sheet(void **state) {
    (void)state;
    sheet_spill("colour.png", 4, 6, 3);
    sheet_spill("flat.png", 4, 18, 1);
    spill("labels.json", "[0,1,2,0]", 9);
    spill("more.json", "[1,2,0,1]", 9);
    check_sheet(SHEET("\"images\": [\"colour.png\"], \"rows\": 2, \"cols\": 3"), 4,
                colour_pixel);
    check_sheet(SHEET("\"images\": [\"colour.png\", \"colour.png\"],"
                      " \"labels\": [\"labels.json\", \"more.json\"],"
                      " \"rows\": 2, \"cols\": 3"),
                8, colour_pixel);
    check_sheet(SHEET("\"images\": [\"flat.png\"], \"rows\": 2, \"cols\": 3,"
                      " \"labels\": [\"labels.json\"]"),
                4, planes_pixel);
    check_sheet(SHEET("\"images\": [\"flat.png\"], \"rows\": 2, \"cols\": 3,"
                      " \"layout\": \"pixels\", \"memory\": 0"),
                4, values_pixel);
}

/* Squares are found, as in the sheets of 1024 x 10000 pixels that CIFAR-10 comes in. */
static void test_square_sheet(void **state) {
    (void)state;
    Bench bench = bench_open();
    sheet_spill("square.png", 3, 16, 3);
    assert_ok(bench_load(&bench, SHEET("\"images\": [\"square.png\"]")), bench.diag);
    assert_int_equal(dim_of(&bench, 0), 3);
    assert_int_equal(dim_of(&bench, 1), 4);
    assert_int_equal(bench.data->column_count, 1);
    sheet_spill("square.png", 3, 48, 1);
    assert_ok(bench_load(&bench, SHEET("\"images\": [\"square.png\"]")), bench.diag);
    assert_int_equal(dim_of(&bench, 0), 3);
    assert_int_equal(dim_of(&bench, 1), 4);
    sheet_spill("square.png", 3, 16, 1);
    assert_ok(bench_load(&bench, SHEET("\"images\": [\"square.png\"],"
                                       " \"color\": \"gray\"")),
              bench.diag);
    assert_int_equal(dim_of(&bench, 0), 1);
    assert_int_equal(dim_of(&bench, 1), 4);
    bench_close(&bench);
}

static void test_sheet_refused(void **state) {
    (void)state;
    sheet_spill("colour.png", 4, 6, 3);
    sheet_spill("flat.png", 4, 18, 1);
    spill("few.json", "[0,1,2]", 7);
    spill("map.json", "{}", 2);
    spill("word.json", "[0,1,2,\"a\"]", 11);
    expect_failure(SHEET("\"images\": [\"colour.png\"]"), STATUS_FORMAT,
                   "rows of 6 colour pixels|square|give `rows` and `cols`");
    expect_failure(SHEET("\"images\": [\"colour.png\"], \"rows\": 4"), STATUS_FORMAT,
                   "of this size");
    expect_failure(SHEET("\"images\": [\"colour.png\"], \"cols\": 4"), STATUS_RECIPE,
                   "expected rows beside cols");
    expect_failure(SHEET("\"images\": [\"colour.png\", \"flat.png\"], \"rows\": 2,"
                         " \"cols\": 3"),
                   STATUS_FORMAT, "flat.png|expected rows as in");
    expect_failure(SHEET("\"images\": [\"colour.png\"], \"rows\": 2, \"cols\": 3,"
                         " \"labels\": [\"few.json\"]"),
                   STATUS_FORMAT, "few.json|expected 4 labels|found 3");
    expect_failure(SHEET("\"images\": [\"colour.png\"], \"rows\": 2, \"cols\": 3,"
                         " \"labels\": [\"map.json\"]"),
                   STATUS_FORMAT, "expected a list of labels, found map");
    expect_failure(SHEET("\"images\": [\"colour.png\"], \"rows\": 2, \"cols\": 3,"
                         " \"labels\": [\"word.json\"]"),
                   STATUS_FORMAT, "label 3: expected a number from 0, found string");
    expect_failure(SHEET("\"images\": []"), STATUS_RECIPE, "images");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder),         cmocka_unit_test(test_order),
        cmocka_unit_test(test_folder_refused), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_damaged),        cmocka_unit_test(test_preprocessor),
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_whole_crop),
        cmocka_unit_test(test_gray),           cmocka_unit_test(test_cifar),
        cmocka_unit_test(test_sheet),          cmocka_unit_test(test_square_sheet),
        cmocka_unit_test(test_sheet_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
