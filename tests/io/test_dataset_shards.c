/* Format images of tar shards: both forms of labels, names of every kind, what tar(1)
 * writes, and archives that lie. */
#include "io/datasets/tar.h"
#include "tests/io/image_fixture.h"
#include "tests/io/tar_fixture.h"

enum { SIDE = 4, ALL = 9 };

/* Image k of a class as PNG: a flat colour that tells both. */
static void flat_spill(const char *name, int class, int k) {
    Diag *diag = diag_create();
    Image image;
    assert_ok(image_create(&image, SIDE, SIDE, 3, diag), diag);
    for (int i = 0; i < 3 * SIDE * SIDE; i++)
        image.pixels[i] = (uint8_t)(i % 3 == 0   ? 40 * class
                                    : i % 3 == 1 ? 10 * k
                                                 : i / 3);
    png_spill_image(name, &image);
    image_free(&image);
    diag_destroy(diag);
}

/* Folders set/ant, set/bee, set/cat with three images each. */
static void folder_fill(void) {
    static const char *const NAMES[] = {"ant", "bee", "cat"};
    assert_int_equal(shell("rm -rf *; mkdir -p set/ant set/bee set/cat"), 0);
    for (int class = 0; class < 3; class ++)
        for (int k = 0; k < 3; k++) {
            char name[64];
            snprintf(name, sizeof name, "set/%s/%d.png", NAMES[class], k);
            flat_spill(name, class, k);
        }
}

#define OPEN(path, rest) "{\"format\": \"images\", \"path\": \"" path "\"" rest "}"

/* Class and number of a sample, from its pixels; its label. */
static void fetch_one(const Bench *bench, int64_t i, int *class, int *k, int *label) {
    static float x[3 * SIDE * SIDE];
    int32_t found = -1;
    const Fetch what = {.index = &i, .n = 1};
    assert_ok(bench->data->fetch(bench->data, &what, (void *[]){x, &found}, bench->diag),
              bench->diag);
    *class = (int)lround(x[0] * 255 / 40);
    *k = (int)lround(x[SIDE * SIDE] * 255 / 10);
    *label = found;
}

/* Every image comes once; `label` maps its class to its label. */
static void check_set(const char *json, const int *label, int64_t count) {
    Bench bench = bench_open();
    int seen[ALL] = {0};
    assert_ok(bench_load(&bench, json), bench.diag);
    assert_int_equal(bench.data->count, count);
    assert_int_equal(bench.data->classes, 3);
    for (int64_t i = 0; i < count; i++) {
        int class, k, found;
        fetch_one(&bench, i, &class, &k, &found);
        assert_int_equal(found, label[class]);
        assert_int_equal(seen[3 * class + k]++, 0);
    }
    bench_close(&bench);
}

static const int SAME[] = {0, 1, 2};

/* Samples of an archive stand in an order of their own, the same kept or decoded anew. */
static void test_same_order(void **state) {
    (void)state;
    folder_fill();
    assert_int_equal(shell("cd set && tar cf ../a.tar ant bee cat"), 0);
    Bench kept = bench_open(), fresh = bench_open();
    int order[3], mixed = 0;
    assert_ok(bench_load(&kept, OPEN("a.tar", "")), kept.diag);
    assert_ok(bench_load(&fresh, OPEN("a.tar", ", \"memory\": 0")), fresh.diag);
    assert_non_null(kept.data->class_names);
    assert_string_equal(kept.data->class_names[1], "bee");
    for (int64_t i = 0; i < ALL; i++) {
        int other[3];
        fetch_one(&kept, i, &order[0], &order[1], &order[2]);
        fetch_one(&fresh, i, &other[0], &other[1], &other[2]);
        assert_memory_equal(order, other, sizeof order);
        mixed += order[0] != (int)i / 3;
    }
    assert_true(mixed > 0);
    bench_close(&kept);
    bench_close(&fresh);
}

/* Messages know the file of the first sample of each class, of all where they are decoded
 * anew. */
static void test_origins(void **state) {
    (void)state;
    folder_fill();
    assert_int_equal(shell("cd set && tar cf ../a.tar ant bee cat"), 0);
    for (int fresh = 0; fresh < 2; fresh++) {
        static const char *const NAMES[] = {"ant", "bee", "cat"};
        Bench bench = bench_open();
        bool seen[3] = {false};
        assert_ok(bench_load(&bench, fresh
                                         ? OPEN("a.tar", ", \"memory\": 0, \"offset\": 1")
                                         : OPEN("a.tar", ", \"offset\": 1")),
                  bench.diag);
        for (int64_t i = 0; i < ALL - 1; i++) {
            int class, k, label;
            char wanted[64];
            fetch_one(&bench, i, &class, &k, &label);
            const char *origin = bench.data->origin(bench.data, i);
            const char *text = batches_sample(bench.arena, bench.data, i);
            snprintf(wanted, sizeof wanted, "a.tar/%s/%d.png", NAMES[class], k);
            if (fresh || !seen[class]) assert_non_null(strstr(origin, wanted));
            if (!fresh && seen[class]) assert_null(origin);
            snprintf(wanted, sizeof wanted, "sample %d", (int)i);
            assert_int_equal(strncmp(text, wanted, strlen(wanted)), 0);
            assert_int_equal(origin && strstr(text, origin) != NULL, origin != NULL);
            seen[class] = true;
        }
        bench_close(&bench);
    }
}

/* Folders as classes, in archives as GNU tar writes them in each of its forms. */
static void test_folders(void **state) {
    (void)state;
    static const char *const FORMS[] = {"v7", "oldgnu", "gnu", "ustar", "posix"};
    folder_fill();
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        assert_int_equal(shell("tar cf a.tar --format=%s set", FORMS[i]), 0);
        check_set(OPEN("a.tar", ""), SAME, ALL);
        assert_int_equal(shell("cd set && tar cf ../a.tar --format=%s .", FORMS[i]), 0);
        check_set(OPEN("a.tar", ", \"memory\": 0"), SAME, ALL);
    }
    check_set(OPEN("a.tar", ", \"labels\": [\"cat\", \"ant\", \"bee\"]"),
              (const int[]){1, 2, 0}, ALL);
    expect_failure(OPEN("a.tar", ", \"labels\": [\"cat\", \"ant\", \"be\"]"),
                   STATUS_FORMAT, "a.tar/bee/|class 'bee' is none of the 3 classes");
}

/* Several archives in a folder, all of them or those of a pattern. */
static void test_shards(void **state) {
    (void)state;
    folder_fill();
    assert_int_equal(shell("mkdir in && cd set && tar cf ../in/train-0.tar ant bee/0.png"
                           " && tar cf ../in/train-1.tar bee/1.png bee/2.png cat"
                           " && tar cf ../in/val-0.tar ant/0.png bee/1.png cat/2.png"),
                     0);
    check_set(OPEN("in", ", \"shards\": \"train-*.tar\""), SAME, ALL);
    check_set(OPEN("in", ", \"shards\": \"val-*\", \"memory\": 0"), SAME, 3);
    check_set(OPEN("in", ", \"shards\": \"train-?.tar\", \"limit\": 4, \"offset\": 2"),
              SAME, 4);
    expect_failure(OPEN("in", ", \"shards\": \"test-*\""), STATUS_FORMAT,
                   "in|match 'test-*', found none");
    assert_int_equal(shell("rm in/val-0.tar"), 0);
    check_set(OPEN("in", ""), SAME, ALL);
}

/* Names longer than a header's field, by prefix, by GNU's and by pax's headers. */
static void test_long_names(void **state) {
    (void)state;
    static const char *const FORMS[] = {"gnu", "ustar", "posix"};
    char deep[200] = {0};
    folder_fill();
    for (int i = 0; i < 12; i++) strcat(deep, "twelve_bytes/");
    assert_int_equal(shell("mkdir -p %s && cp -r set/* %s", deep, deep), 0);
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        assert_int_equal(shell("tar cf a.tar --format=%s twelve_bytes", FORMS[i]), 0);
        check_set(OPEN("a.tar", ""), SAME, ALL);
    }
}

/* Adds KEY.png of a class, as it lies in the folder. */
static void add_png(TarFixture *tar, const char *name, int class, int k) {
    size_t length;
    flat_spill("one.png", class, k);
    uint8_t *data = slurp("one.png", &length);
    tar_add(tar, name, '0', data, length);
    free(data);
}

/* Ends an archive, writes it as a.tar and frees it. */
static void tar_spill(TarFixture *tar) {
    tar_finish(tar);
    spill("a.tar", tar->data, tar->bytes);
    free(tar->data);
    *tar = (TarFixture){0};
}

/* WebDataset: numbers or names beside the images, other parts passed over. */
static void test_samples(void **state) {
    (void)state;
    for (int named = 0; named < 2; named++) {
        static const char *const NAMES[] = {"ant", "bee", "cat\n"};
        TarFixture tar = {0};
        for (int i = 0; i < ALL; i++) {
            char name[64], text[32];
            snprintf(name, sizeof name, "part/%03d.mask.png", i);
            add_png(&tar, name, 3, 9);
            snprintf(name, sizeof name, "part/%03d.json", i);
            tar_add(&tar, name, '0', "{}", 2);
            if (i % 2) {
                snprintf(name, sizeof name, "part/%03d.PNG", i);
                add_png(&tar, name, i / 3, i % 3);
            }
            snprintf(text, sizeof text, i % 3 ? "%d" : "%d\n", i / 3);
            if (named) snprintf(text, sizeof text, "%s", NAMES[i / 3]);
            snprintf(name, sizeof name, "part/%03d.cls", i);
            tar_add(&tar, name, '0', text, strlen(text));
            if (i % 2 == 0) {
                snprintf(name, sizeof name, "part/%03d.png", i);
                add_png(&tar, name, i / 3, i % 3);
            }
        }
        tar_spill(&tar);
        if (named)
            expect_failure(OPEN("a.tar", ""), STATUS_FORMAT,
                           "part/000.cls|expected the number of a class, found 'ant'");
        else
            check_set(OPEN("a.tar", ""), SAME, ALL);
        check_set(OPEN("a.tar", ", \"labels\": [\"ant\", \"bee\", \"cat\"]"), SAME, ALL);
    }
    expect_failure(OPEN("a.tar", ", \"labels\": [\"ant\", \"bee\", \"dog\"]"),
                   STATUS_FORMAT, "part/006.cls|class 'cat' is none of the 3 classes");
}

/* Samples that lack a part, or have one twice. */
static void test_samples_refused(void **state) {
    (void)state;
    static const struct {
        const char *name[4], *text, *wanted;
    } CASES[] = {
        {{"1.png", "1.cls", "2.png"}, "0", "2.png|expected a .cls file of the same key"},
        {{"1.png", "1.cls", "2.cls"}, "0", "2.cls|expected an image of the same key"},
        {{"1.png", "1.cls", "1.jpg"}, "0", "1.jpg|one image and one .cls"},
        {{"1.cls", "2.png", "2.cls", "1.png"}, "0", "1.cls|expected an image"},
        {{"1.png", "1.cls"}, "-1", "1.cls|number of a class, found '-1'"},
        {{"1.png", "1.cls"}, "", "1.cls|number of a class, found ''"},
        {{"1.png", "1.cls"}, "99999999999", "1.cls|found '99999999999'"},
        {{"1.png", "2.png"}, "", "1.png|found neither .cls nor folder|CLASS/KEY.jpg"},
        {{"notes.txt", "x/.1.png"}, "", "a.tar|expected PNG or JPEG files"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        TarFixture tar = {0};
        for (int k = 0; k < 4 && CASES[i].name[k]; k++) {
            const char *name = CASES[i].name[k];
            if (strstr(name, ".cls"))
                tar_add(&tar, name, '0', CASES[i].text, strlen(CASES[i].text));
            else
                add_png(&tar, name, 0, 0);
        }
        tar_spill(&tar);
        expect_failure(OPEN("a.tar", ""), STATUS_FORMAT, CASES[i].wanted);
    }
    TarFixture tar = {0};
    add_png(&tar, "1.png", 0, 0);
    tar_add(&tar, "1.cls", '0', "2", 1);
    tar_spill(&tar);
    expect_failure(OPEN("a.tar", ", \"labels\": [\"a\", \"b\"]"), STATUS_FORMAT,
                   "1.cls|expected a class below 2, found 2");
}

/* Files of one name in an archive all count, with a warning; in two archives they differ.
 */
static void test_repeated(void **state) {
    (void)state;
    folder_fill();
    assert_int_equal(
        shell("cd set && tar cf ../a.tar ant bee && tar rf ../a.tar ant/1.png bee"
              " && mkdir ../in && cp ../a.tar ../in/a.tar"
              " && tar cf ../in/b.tar ant"),
        0);
    Bench bench = bench_open();
    assert_ok(bench_load(&bench, OPEN("in", "")), bench.diag);
    assert_int_equal(bench.data->count, 6 + 4 + 3);
    assert_int_equal(diag_warning_count(bench.diag), 1);
    assert_string_equal(
        diag_warning(bench.diag, 0).message,
        "4 of its files have the name of another one, as ant/1.png: all of "
        "them count");
    bench_close(&bench);
    assert_int_equal(shell("rm -r in"), 0);
}

/* A damaged image in an archive is named, or left out. */
static void test_damaged_image(void **state) {
    (void)state;
    folder_fill();
    spill("set/bee/1.png", "\x89PNG\r\n\x1a\nrubbish", 15);
    assert_int_equal(shell("tar cf a.tar set"), 0);
    expect_failure(OPEN("a.tar", ""), STATUS_FORMAT, "a.tar/set/bee/1.png|damaged PNG");
    check_set(OPEN("a.tar", ", \"on_error\": \"skip\""), SAME, ALL - 1);
    check_set(OPEN("a.tar", ", \"on_error\": \"skip\", \"memory\": 0"), SAME, ALL - 1);
}

/* ---- archives that lie ---- */

/* An archive with a folder, an image and a pax header before another image. */
static size_t lying_make(TarFixture *tar) {
    const char *record = "20 path=ant/two.png\n";
    tar_add(tar, "ant/", '5', NULL, 0);
    const size_t at = tar->bytes;
    add_png(tar, "ant/one.png", 0, 0);
    tar_add(tar, "pax", 'x', record, strlen(record));
    add_png(tar, "other", 0, 1);
    return at;
}

static void expect_lie(TarFixture *tar, const char *wanted) {
    tar_spill(tar);
    expect_failure(OPEN("a.tar", ""), STATUS_FORMAT, wanted);
}

static void set_size(TarFixture *tar, size_t at, const char *field) {
    memset(tar->data + at + 124, 0, 12);
    memcpy(tar->data + at + 124, field, strlen(field));
    tar_seal(tar->data + at);
}

static void test_sizes_that_lie(void **state) {
    (void)state;
    TarFixture tar = {0};
    size_t at = lying_make(&tar);
    tar_spill(&tar);
    Bench bench = bench_open();
    assert_ok(bench_load(&bench, OPEN("a.tar", "")), bench.diag);
    assert_int_equal(bench.data->count, 2);
    bench_close(&bench);
    static const struct {
        const char *field, *wanted;
    } CASES[] = {
        {"77777777777", "a file ends behind the archive, at byte 512"},
        {"\x80\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff", "a size that is no number"},
        {"\xff\xff\xff\xff", "a size that is no number"},
        {"12x", "a size that is no number"},
        {"           ", "a size that is no number"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        at = lying_make(&tar);
        set_size(&tar, at, CASES[i].field);
        expect_lie(&tar, CASES[i].wanted);
    }
}

static void test_headers_that_lie(void **state) {
    (void)state;
    static const struct {
        const char *record, *wanted;
    } CASES[] = {
        {"99 path=x\n", "a record of another length than it says"},
        {"0 path=x\n", "a record of another length than it says"},
        {"99999999999999999999 path=x\n", "a record of another length than it says"},
        {"path=x\n", "a record of another length than it says"},
        {"8 pathx\n", "a record without '='"},
        {"11 size=1x\n", "a size that is no number"},
        {"29 size=99999999999999999999\n", "a size that is no number"},
        {"24 size=999999999999999\n", "a file ends behind the archive"},
        {"22 GNU.sparse.major=1\n", "sparse files are not read"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        TarFixture tar = {0};
        char record[64];
        snprintf(record, sizeof record, "%s", CASES[i].record);
        tar_add(&tar, "pax", 'x', record, strlen(record));
        add_png(&tar, "ant/one.png", 0, 0);
        expect_lie(&tar, CASES[i].wanted);
    }
    TarFixture tar = {0};
    char *name = calloc(1, 2 << 20);
    memset(name, 'n', (2 << 20) - 1);
    tar_add(&tar, "long", 'L', name, 5000);
    expect_lie(&tar, "a name of more than 4096 bytes");
    tar_add(&tar, "long", 'x', name, 2 << 20);
    expect_lie(&tar, "a header of more than 1 MiB");
    tar_add(&tar, "sparse", 'S', name, 10);
    expect_lie(&tar, "sparse files are not read");
    free(name);
}

static void test_ends(void **state) {
    (void)state;
    TarFixture tar = {0};
    size_t at = lying_make(&tar);
    tar.data[at]++;
    expect_lie(&tar, "a header's sum is wrong, at byte 512");
    lying_make(&tar);
    spill("a.tar", tar.data, tar.bytes);
    expect_failure(OPEN("a.tar", ""), STATUS_FORMAT, "it ends without zeros");
    spill("a.tar", tar.data, tar.bytes - 500);
    expect_failure(OPEN("a.tar", ""), STATUS_FORMAT, "a file ends behind the archive");
    tar_finish(&tar);
    lying_make(&tar);
    expect_lie(&tar, "something follows behind its end");
    spill("a.tar", "", 0);
    expect_failure(OPEN("a.tar", ""), STATUS_FORMAT, "a.tar|found an empty file");
    memset(tar_grow(&tar, 2048), 'x', 2048);
    expect_lie(&tar, "no tar header");
}

/* Nothing can be found in place in a compressed archive. */
static void test_packed(void **state) {
    (void)state;
    folder_fill();
    assert_int_equal(shell("mkdir in; tar czf in/a.tar.gz set; cp in/a.tar.gz b.tar"), 0);
    expect_failure(OPEN("in", ""), STATUS_FORMAT,
                   "in/a.tar.gz|one compressed by gzip|unpack it (`gzip -d`)");
    expect_failure(OPEN("b.tar", ""), STATUS_FORMAT, "b.tar|one compressed by gzip");
    spill("b.tar", "\x28\xb5\x2f\xfd...", 7);
    expect_failure(OPEN("b.tar", ""), STATUS_FORMAT, "one compressed by zstd");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_order),       cmocka_unit_test(test_origins),
        cmocka_unit_test(test_folders),          cmocka_unit_test(test_shards),
        cmocka_unit_test(test_long_names),       cmocka_unit_test(test_samples),
        cmocka_unit_test(test_samples_refused),  cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_damaged_image),    cmocka_unit_test(test_sizes_that_lie),
        cmocka_unit_test(test_headers_that_lie), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_packed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
