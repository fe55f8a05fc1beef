/* HDF5 data sets, good and bad. */
#include "io/files/sandbox.h"
#include "io/formats/hdf5.h"
#include "tests/io/dataset_test.h"

/* What test files hold. */
typedef struct Arrays {
    char path[2 * PATH_BYTES];
    Hdf5Set sets[2];
} Arrays;

static bool arrays_work(void *state, Text *reply) {
    Arrays *arrays = state;
    return hdf5_write(arrays->path, arrays->sets, 2, reply);
}

static void arrays_write(const char *name, Hdf5Set x, Hdf5Set y) {
    const SandboxLimits unlimited = {0};
    Arrays arrays = {.sets = {x, y}};
    Text reply = {0};
    strcpy(arrays.path, path_of(name));
    assert_int_equal(sandbox_run(&reply, arrays_work, &arrays, &unlimited), SANDBOX_DONE);
    text_free(&reply);
}

static const int64_t LABELS[SAMPLES] = {0, 2, 1, 0, 2};
static uint8_t image_bytes[SAMPLES * PIXELS];
static float image_reals[SAMPLES * PIXELS];

static const Hdf5Set Y = {
    .name = "y", .dtype = DTYPE_I64, .rank = 1, .dim = {SAMPLES}, .data = LABELS};

static Hdf5Set x_set(DType dtype, const void *data) {
    return (Hdf5Set){.name = "x",
                     .dtype = dtype,
                     .rank = 3,
                     .dim = {SAMPLES, ROWS, COLS},
                     .data = data};
}

static void arrays_fill(void) {
    for (int i = 0; i < SAMPLES * PIXELS; i++) {
        image_bytes[i] = pixel(i / PIXELS, i % PIXELS);
        image_reals[i] = image_bytes[i];
    }
}

static void check_hdf5(const char *json, int64_t offset, int64_t count, double scale) {
    Bench bench = bench_open();
    assert_ok(bench_load(&bench, json), bench.diag);
    const Batches *data = bench.data;
    assert_int_equal(data->count, count);
    assert_int_equal(data->columns[0].type.rank, 2);
    assert_int_equal(data->columns[0].type.dim[1], COLS);
    for (int64_t i = 0; i < count; i++) {
        float x[PIXELS];
        int32_t label = 0;
        assert_ok(
            data->fetch(data, &(Fetch){&i, 1, 0, 9}, (void *[]){x, &label}, bench.diag),
            bench.diag);
        if (data->column_count == 2) assert_int_equal(label, LABELS[offset + i]);
        for (int p = 0; p < PIXELS; p++)
            assert_within(x[p], pixel(offset + i, p) * scale,
                          255 * scale * PIXEL_ROUNDING);
    }
    check_partial(data, bench.diag);
    bench_close(&bench);
}

#define H5(rest) "{\"format\": \"hdf5\", \"path\": \"d.h5\"" rest "}"

static void test_hdf5(void **state) {
    (void)state;
    arrays_fill();
    for (int bytes = 0; bytes < 2; bytes++) {
        if (bytes)
            arrays_write("d.h5", x_set(DTYPE_U8, image_bytes), Y);
        else
            arrays_write("d.h5", x_set(DTYPE_F32, image_reals), Y);
        check_hdf5(H5(""), 0, SAMPLES, 1.0);
        check_hdf5(H5(", \"scale\": 0.5, \"offset\": 2, \"limit\": 2"), 2, 2, 0.5);
        check_hdf5(H5(", \"y\": \"\""), 0, SAMPLES, 1.0);
        check_hdf5(H5(", \"y\": null"), 0, SAMPLES, 1.0);
        if (shell("command -v h5repack > /dev/null") != 0) continue;
        assert_int_equal(shell("mv d.h5 e.h5; h5repack -l x:CHUNK=2x3x4 -f x:SHUF"
                               " -f x:GZIP=9 -f y:FLET -l y:CHUNK=2 e.h5 d.h5"),
                         0);
        check_hdf5(H5(""), 0, SAMPLES, 1.0);
        check_hdf5(H5(", \"offset\": 1, \"limit\": 3"), 1, 3, 1.0);
    }
}

/* Labels that are numbers, one or two a sample; flips leave them. */
static void test_hdf5_values(void **state) {
    (void)state;
    static const double NUMBERS[2 * SAMPLES] = {0.5, -1, 2, 0, 1, 1, -3, 4, 0.25, 8};
    static const char *const REST[] = {"", ", \"augment\": {\"flip\": true}"};
    arrays_fill();
    for (int width = 1; width <= 2; width++) {
        Hdf5Set x = {.name = "x",
                     .dtype = DTYPE_U8,
                     .rank = 4,
                     .dim = {SAMPLES, 1, ROWS, COLS},
                     .data = image_bytes};
        Hdf5Set y = {.name = "y",
                     .dtype = DTYPE_F64,
                     .rank = width,
                     .dim = {SAMPLES, 2},
                     .data = NUMBERS};
        arrays_write("v.h5", x, y);
        for (int flip = 0; flip < 2; flip++) {
            char json[160];
            snprintf(json, sizeof json,
                     "{\"format\": \"hdf5\", \"path\": \"v.h5\", \"targets\": "
                     "\"values\", \"offset\": 1%s}",
                     REST[flip]);
            Bench bench = bench_open();
            assert_ok(bench_load(&bench, json), bench.diag);
            const Batches *data = bench.data;
            assert_int_equal(data->column_count, 2);
            assert_int_equal(data->classes, width);
            assert_true(data->columns[1].type.dtype == DTYPE_F32 &&
                        data->columns[1].type.rank == 1 &&
                        data->columns[1].type.dim[0] == width);
            for (int64_t i = 0; i < data->count; i++) {
                float pixels[PIXELS], found[2];
                assert_ok(data->fetch(data, &(Fetch){&i, 1, 0, 9},
                                      (void *[]){pixels, found}, bench.diag),
                          bench.diag);
                for (int v = 0; v < width; v++)
                    assert_true((double)found[v] == NUMBERS[(i + 1) * width + v]);
            }
            bench_close(&bench);
        }
    }
}

static void test_hdf5_bad(void **state) {
    (void)state;
    arrays_fill();
    arrays_write("d.h5", x_set(DTYPE_U8, image_bytes), Y);
    expect_failure(H5(", \"x\": \"images\""), STATUS_FORMAT,
                   "d.h5|'images'|found 'x', 'y'");
    expect_failure(H5(", \"y\": \"x\""), STATUS_FORMAT, "d.h5|dimensions");
    expect_failure(H5(", \"classes\": 2"), STATUS_FORMAT, "d.h5|label 2 of sample 1");
    expect_failure(H5(", \"x\": null"), STATUS_RECIPE, "x: expected a name, found null");
    expect_failure(H5(", \"input\": null"), STATUS_RECIPE, "input: expected a name");
    expect_failure(H5(", \"limit\": 9"), STATUS_RECIPE, "limit|has 5");
    expect_failure("{\"format\": \"hdf5\", \"path\": \"no.h5\"}", STATUS_IO, "no.h5");
    expect_failure("{\"format\": \"hdf5\", \"path\": \".\"}", STATUS_IO, "/.");
    Hdf5Set y = Y;
    y.dim[0] = 4;
    arrays_write("d.h5", x_set(DTYPE_U8, image_bytes), y);
    expect_failure(H5(""), STATUS_FORMAT, "expected 5 labels|found 4");
    y.dim[0] = 5, y.dtype = DTYPE_F64;
    arrays_write("d.h5", x_set(DTYPE_U8, image_bytes), y);
    expect_failure(H5(""), STATUS_FORMAT, "integer labels");
    image_reals[2 * PIXELS + 1] = NAN;
    arrays_write("d.h5", x_set(DTYPE_F32, image_reals), Y);
    expect_failure(H5(""), STATUS_FORMAT, "sample 2|not finite");
    expect_failure(H5(", \"offset\": 1"), STATUS_FORMAT, "sample 2|not finite");
    image_reals[2 * PIXELS + 1] = 0;
    spill("d.h5", "not HDF5", 8);
    expect_failure(H5(""), STATUS_FORMAT, "d.h5|not a readable HDF5 file");
}

/* Deterministic damage: every outcome but a crash, a hang or a wrong shape is fine. */
static void test_hdf5_mutants(void **state) {
    (void)state;
    uint8_t bytes[1 << 15];
    arrays_fill();
    arrays_write("d.h5", x_set(DTYPE_U8, image_bytes), Y);
    if (shell("command -v h5repack > /dev/null") == 0)
        shell("mv d.h5 e.h5; h5repack -l x:CHUNK=2x3x4 -f x:GZIP=9 e.h5 d.h5");
    FILE *file = fopen(path_of("d.h5"), "rb");
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(length < sizeof bytes);
    for (size_t i = 0; i < 300; i++) {
        Bench bench = bench_open();
        uint8_t old = bytes[i * 7919 % length];
        bytes[i * 7919 % length] = (uint8_t)(old + 1 + i % 255);
        spill("d.h5", bytes, length);
        Status status = bench_load(&bench, H5(""));
        if (status != STATUS_OK)
            assert_int_equal(diag_status(bench.diag), status);
        else
            assert_true(bench.data->count > 0);
        bytes[i * 7919 % length] = old;
        bench_close(&bench);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hdf5), cmocka_unit_test(test_hdf5_values),
        cmocka_unit_test(test_hdf5_bad), cmocka_unit_test(test_hdf5_mutants)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
