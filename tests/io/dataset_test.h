/* Helpers of the tests of IDX and HDF5 data sets: a scratch folder, entries, failures. */
#ifndef COMPRESS_TESTS_DATASET_TEST_H
#define COMPRESS_TESTS_DATASET_TEST_H

#include "io/datasets/dataset.h"
#include "io/files/json.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 512, ROWS = 3, COLS = 4, SAMPLES = 5, PIXELS = ROWS * COLS };

/* Rounding of pixels in float: a byte over 255 and a mean that is taken off it, both at
 * most 1. A deviation divides it. */
#define PIXEL_ROUNDING rounding_tolerance(PRECISION_F32, 4, 1)

static char folder[PATH_BYTES];

/* One test's things. */
typedef struct Bench {
    Arena *arena;
    Diag *diag;
    Batches *data;
    char *message;
} Bench;

static inline Bench bench_open(void) {
    return (Bench){.arena = arena_create(), .diag = diag_create()};
}

static inline void bench_close(Bench *bench) {
    batches_destroy(bench->data);
    diag_destroy(bench->diag);
    arena_destroy(bench->arena);
    free(bench->message);
}

static inline const char *message_of(Bench *bench) {
    free(bench->message);
    return bench->message = diag_text(bench->diag);
}

/* Binds and opens an entry given as JSON. */
static inline Status bench_load(Bench *bench, const char *json) {
    const DataFormat *format;
    void *options;
    Tree *spec;
    batches_destroy(bench->data);
    bench->data = NULL;
    diag_clear(bench->diag);
    TRY(json_parse(&spec, bench->arena, "recipe", json, strlen(json), bench->diag));
    TRY(dataset_bind(&format, &options, bench->arena, spec, folder, bench->diag));
    return dataset_open(&bench->data, format, options, LOC_FILE("recipe"), bench->diag);
}

/* Expects a failure whose message holds every part of `wanted`, parted by '|'. */
static inline void expect_failure(const char *json, Status status, const char *wanted) {
    Bench bench = bench_open();
    Status found = bench_load(&bench, json);
    const char *message = message_of(&bench);
    char *parts = arena_strdup(bench.arena, wanted), *rest = NULL;
    if (found != status) print_message("%s: %s", json, message);
    assert_int_equal(found, status);
    assert_int_equal(diag_errors(bench.diag), 1);
    assert_null(bench.data);
    for (char *part = strtok_r(parts, "|", &rest); part;
         part = strtok_r(NULL, "|", &rest)) {
        if (!strstr(message, part)) print_message("no '%s' in: %s", part, message);
        assert_non_null(strstr(message, part));
    }
    bench_close(&bench);
}

/* --- files --- */

static inline const char *path_of(const char *name) {
    static char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static inline void spill(const char *name, const void *data, size_t length) {
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, length), length);
    close(fd);
}

__attribute__((format(printf, 1, 2))) static inline int shell(const char *fmt, ...) {
    char command[4 * PATH_BYTES];
    va_list args;
    va_start(args, fmt);
    int at = snprintf(command, sizeof command, "cd '%s' && ", folder);
    vsnprintf(command + at, sizeof command - (size_t)at, fmt, args);
    va_end(args);
    return system(command);
}

static inline uint8_t pixel(int64_t sample, int64_t at) {
    return (uint8_t)(sample * 40 + at * 3);
}

/* A column that is not wanted is left out; the other one comes. */
static inline void check_partial(const Batches *data, Diag *diag) {
    const int64_t sample = data->count - 1;
    const Fetch what = {&sample, 1, 0, 3};
    float x[PIXELS], same[PIXELS];
    int32_t label = -1, other = -1;
    assert_true(data->partial);
    assert_ok(data->fetch(data, &what, (void *[]){x, &label}, diag), diag);
    assert_ok(data->fetch(data, &what, (void *[]){same, NULL}, diag), diag);
    assert_ok(data->fetch(data, &what, (void *[]){NULL, &other}, diag), diag);
    assert_memory_equal(x, same, sizeof x);
    assert_int_equal(label, other);
}

static inline int make_folder(void **state) {
    const char *base = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/dataset.XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state) {
    (void)state;
    return shell("rm -r '%s'", folder);
}

#endif
