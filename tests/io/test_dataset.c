/* Data sets: binding of entries, IDX files good and bad. */
#include "tests/io/dataset_test.h"

/* --- files --- */

static void put_word(uint8_t *at, uint32_t word) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(word >> (24 - 8 * i));
}

/* Writes an IDX file; `extra` bytes are added (or, when negative, taken away). */
static void idx_write(const char *name, uint32_t magic, int rank, const uint32_t *dim,
                      int64_t count, int extra) {
    uint8_t bytes[4096] = {0};
    put_word(bytes, magic);
    for (int i = 0; i < rank; i++) put_word(bytes + 4 + 4 * i, dim[i]);
    uint8_t *data = bytes + 4 + 4 * rank;
    for (int64_t i = 0; i < count; i++)
        data[i] = rank == 1 ? (uint8_t)(i % 3) : pixel(i / PIXELS, i % PIXELS);
    spill(name, bytes, (size_t)(4 + 4 * rank + count + extra));
}

static void idx_pair(void) {
    idx_write("images", 0x803, 3, (uint32_t[]){SAMPLES, ROWS, COLS}, SAMPLES * PIXELS, 0);
    idx_write("labels", 0x801, 1, (uint32_t[]){SAMPLES}, SAMPLES, 0);
}

/* --- IDX --- */

static void check_idx(const char *json, int64_t offset, int64_t count) {
    Bench bench = bench_open();
    assert_ok(bench_load(&bench, json), bench.diag);
    Batches *data = bench.data;
    assert_int_equal(data->count, count);
    assert_int_equal(data->classes, 3);
    assert_int_equal(data->column_count, 2);
    assert_int_equal(batches_column(data, "labels"), 1);
    assert_int_equal(data->columns[0].type.dim[0], 1);
    assert_int_equal(data->columns[0].type.dim[2], COLS);
    for (int64_t i = 0; i < count; i++) {
        float x[PIXELS];
        int32_t label;
        assert_ok(
            data->fetch(data, &(Fetch){&i, 1, 0, 0}, (void *[]){x, &label}, bench.diag),
            bench.diag);
        assert_int_equal(label, (offset + i) % 3);
        for (int p = 0; p < PIXELS; p++)
            assert_within(x[p], (pixel(offset + i, p) / 255.0 - 0.5) / 0.25,
                          4 * PIXEL_ROUNDING);
    }
    check_partial(data, bench.diag);
    bench_close(&bench);
}

static void test_idx(void **state) {
    (void)state;
    idx_pair();
    assert_int_equal(shell("gzip -kf images labels"), 0);
    check_idx("{\"format\": \"idx\", \"images\": \"images\", \"labels\": \"labels\","
              " \"mean\": [0.5], \"std\": [0.25]}",
              0, SAMPLES);
    check_idx(
        "{\"format\": \"idx\", \"images\": \"images.gz\", \"labels\": \"labels.gz\","
        " \"mean\": [0.5], \"std\": [0.25], \"offset\": 1, \"limit\": 3}",
        1, 3);
}

static void test_idx_channels(void **state) {
    (void)state;
    Bench bench = bench_open();
    idx_write("colour", 0x804, 4, (uint32_t[]){2, 3, 2, 2}, 24, 0);
    assert_ok(bench_load(&bench, "{\"format\": \"idx\", \"images\": \"colour\","
                                 " \"mean\": [0, 0.5, 1], \"std\": [1]}"),
              bench.diag);
    float x[24];
    int64_t both[] = {1, 0};
    assert_ok(
        bench.data->fetch(bench.data, &(Fetch){both, 2, 0, 0}, (void *[]){x}, bench.diag),
        bench.diag);
    assert_int_equal(bench.data->classes, 0);
    assert_int_equal(bench.data->column_count, 1);
    assert_within(x[4], pixel(1, 4) / 255.0 - 0.5, PIXEL_ROUNDING);
    assert_within(x[20], pixel(0, 8) / 255.0 - 1.0, PIXEL_ROUNDING);
    bench_close(&bench);
}

/* Every augmented sample is the original, mirrored or not, moved by at most 1. */
static bool is_moved(const float *x, const float *original, bool flip, int down,
                     int right) {
    for (int y = 0; y < ROWS; y++)
        for (int c = 0; c < COLS; c++) {
            int from_y = y - down, from_c = c - right;
            bool inside = from_y >= 0 && from_y < ROWS && from_c >= 0 && from_c < COLS;
            if (flip) from_c = COLS - 1 - from_c;
            float wanted = inside ? original[from_y * COLS + from_c] : -2.0f;
            if (x[y * COLS + c] != wanted) return false;
        }
    return true;
}

static void test_idx_augmented(void **state) {
    (void)state;
    Bench bench = bench_open();
    idx_pair();
    assert_ok(bench_load(&bench, "{\"format\": \"idx\", \"images\": \"images\","
                                 " \"mean\": [0.5], \"std\": [0.25],"
                                 " \"flip\": true, \"shift\": 1}"),
              bench.diag);
    float plain[PIXELS], x[PIXELS], again[PIXELS];
    int64_t sample = 3;
    int seen[18] = {0}, kinds = 0;
    const Batches *data = bench.data;
    assert_ok(
        data->fetch(data, &(Fetch){&sample, 1, 0, 0}, (void *[]){plain}, bench.diag),
        bench.diag);
    for (uint64_t key = 1; key <= 400; key++) {
        assert_ok(
            data->fetch(data, &(Fetch){&sample, 1, 0, key}, (void *[]){x}, bench.diag),
            bench.diag);
        assert_ok(data->fetch(data, &(Fetch){&sample, 1, 0, key}, (void *[]){again},
                              bench.diag),
                  bench.diag);
        assert_memory_equal(x, again, sizeof x);
        int match = -1;
        for (int m = 0; m < 18 && match < 0; m++)
            if (is_moved(x, plain, m >= 9, m % 3 - 1, m / 3 % 3 - 1)) match = m;
        assert_true(match >= 0);
        seen[match]++;
    }
    for (int m = 0; m < 18; m++) kinds += seen[m] > 0;
    assert_int_equal(kinds, 18);
    bench_close(&bench);
}

typedef struct BadIdx {
    uint32_t magic;
    int rank;
    uint32_t dim[4];
    int64_t count;
    int extra;
    const char *message;
} BadIdx;

#define BAD_IDX(file) "{\"format\": \"idx\", \"images\": \"" file "\"}"

static void test_idx_bad(void **state) {
    (void)state;
    static const BadIdx BAD[] = {
        {0x801, 3, {5, 3, 4}, 60, 0, "magic number|0x00000801"},
        {0x00000d03, 3, {5, 3, 4}, 60, 0, "magic number"},
        {0x01000803, 3, {5, 3, 4}, 60, 0, "magic number"},
        {0x805, 3, {5, 3, 4}, 60, 0, "magic number"},
        {0x803, 3, {5, 3, 4}, 60, 1, "more bytes follow"},
        {0x803, 3, {5, 3, 4}, 60, -1, "the header declares 5 samples of 12 bytes"},
        {0x803, 3, {5, 3, 4}, 0, -1, "ends after 3 of 4 bytes"},
        {0x803, 3, {5, 3, 4}, 0, -16, "ends after 0 of 4 bytes"},
        {0x803, 3, {0, 3, 4}, 0, 0, "dimension 0"},
        {0x803, 3, {5, 0, 4}, 0, 0, "dimension 1"},
        {0x803, 3, {5, 3, 0xffffffffu}, 60, 0, "dimension 2"},
        {0x803, 3, {0xffffffffu, 3, 4}, 60, 0, "dimension 0"},
        {0x803, 3, {0x7fffffffu, 16384, 16384}, 60, 0, "the header declares"},
        {0x804, 4, {0x7fffffffu, 64, 16384, 16384}, 60, 0, "the header declares"},
        {0x804, 4, {1, 65, 2, 2}, 260, 0, "dimension 1"}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        const BadIdx *bad = &BAD[i];
        idx_write("bad", bad->magic, bad->rank, bad->dim, bad->count, bad->extra);
        expect_failure(BAD_IDX("bad"), STATUS_FORMAT, bad->message);
    }
}

#define PAIR "\"format\": \"idx\", \"images\": \"images\", \"labels\": \"labels\""

static void test_idx_labels(void **state) {
    (void)state;
    idx_pair();
    expect_failure("{" PAIR ", \"classes\": 2}", STATUS_FORMAT,
                   "labels|label 2 of sample 2|[0, 2)");
    expect_failure("{" PAIR ", \"classes\": 2, \"offset\": 3, \"limit\": 2, \"mean\": 0}",
                   STATUS_RECIPE, "mean");
    expect_failure("{" PAIR ", \"limit\": 6}", STATUS_RECIPE, "limit|at least 6|has 5");
    expect_failure("{" PAIR ", \"offset\": 5}", STATUS_RECIPE, "offset|has 5");
    expect_failure("{" PAIR ", \"std\": [1, 1]}", STATUS_RECIPE,
                   "std|one value, or one for each");
    idx_write("labels", 0x801, 1, (uint32_t[]){4}, 4, 0);
    expect_failure("{" PAIR "}", STATUS_FORMAT, "labels|expected 5 labels|found 4");
    idx_write("labels", 0x803, 1, (uint32_t[]){5}, 5, 0);
    expect_failure("{" PAIR "}", STATUS_FORMAT, "labels|magic number");
}

static void test_idx_files(void **state) {
    (void)state;
    idx_pair();
    expect_failure(BAD_IDX("missing"), STATUS_IO, "missing");
    expect_failure(BAD_IDX("."), STATUS_IO, "/.");
    expect_failure(BAD_IDX("/dev/zero"), STATUS_IO, "/dev/zero");
    if (geteuid() != 0) {
        chmod(path_of("images"), 0);
        expect_failure(BAD_IDX("images"), STATUS_IO, "images");
        chmod(path_of("images"), 0600);
    }
}

static void test_gzip_bad(void **state) {
    (void)state;
    idx_pair();
    assert_int_equal(shell("gzip -nkf images; n=$(stat -c %%s images.gz);"
                           "head -c $((n - 5)) images.gz > cut.gz;"
                           "{ cat images.gz; echo rest; } > rest.gz;"
                           "{ head -c $((n - 8)) images.gz; printf 12345678; } > sum.gz;"
                           "{ head -c 10 images.gz; printf 'xxxxxxxxxxxx'; } > data.gz"),
                     0);
    expect_failure(BAD_IDX("cut.gz"), STATUS_FORMAT, "cut.gz|ends early");
    expect_failure(BAD_IDX("rest.gz"), STATUS_FORMAT, "rest.gz|5 bytes follow");
    expect_failure(BAD_IDX("sum.gz"), STATUS_FORMAT, "sum.gz|damaged gzip");
    expect_failure(BAD_IDX("data.gz"), STATUS_FORMAT, "data.gz|damaged gzip");
}

/* 160 MB of zeros in 160 KB, behind a header that declares little, then all of it. */
static void test_gzip_bomb(void **state) {
    (void)state;
    uint8_t head[16];
    put_word(head, 0x803), put_word(head + 4, 2);
    put_word(head + 8, 2), put_word(head + 12, 2);
    spill("head", head, sizeof head);
    assert_int_equal(shell("{ cat head; head -c 160000000 /dev/zero; } | gzip > bomb.gz"),
                     0);
    expect_failure(BAD_IDX("bomb.gz"), STATUS_FORMAT, "bomb.gz|more bytes follow");
    put_word(head + 4, 40000), put_word(head + 8, 50), put_word(head + 12, 80);
    spill("head", head, sizeof head);
    assert_int_equal(shell("{ cat head; head -c 160000000 /dev/zero; } | gzip > bomb.gz"),
                     0);
    expect_failure(BAD_IDX("bomb.gz"), STATUS_FORMAT, "bomb.gz|can follow");
}

/* --- binding --- */

static void test_bind(void **state) {
    (void)state;
    idx_pair();
    expect_failure("{\"images\": \"images\"}", STATUS_RECIPE, "'format'|idx, hdf5");
    expect_failure("{\"format\": 3}", STATUS_RECIPE, "'format'");
    expect_failure("[]", STATUS_RECIPE, "map|list");
    expect_failure("{\"format\": \"hdf\"}", STATUS_RECIPE, "'hdf'|hdf5");
    expect_failure("{\"format\": \"idx\"}", STATUS_RECIPE, "images");
    expect_failure("{" PAIR ", \"offst\": 1}", STATUS_RECIPE, "offst|offset");
    expect_failure("{" PAIR ", \"offset\": -1}", STATUS_RECIPE, "offset");
    for (const DataFormat *const *format = dataformat_list(); *format; format++)
        assert_ptr_equal(dataformat_find((*format)->name), *format);
    assert_null(dataformat_find("nothing"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bind),         cmocka_unit_test(test_idx),
        cmocka_unit_test(test_idx_channels), cmocka_unit_test(test_idx_augmented),
        cmocka_unit_test(test_idx_bad),      cmocka_unit_test(test_idx_labels),
        cmocka_unit_test(test_idx_files),    cmocka_unit_test(test_gzip_bad),
        cmocka_unit_test(test_gzip_bomb)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
