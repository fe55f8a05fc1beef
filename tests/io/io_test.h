/* Helpers of the tests in this folder: a scratch folder, files, messages. */
#ifndef COMPRESS_TESTS_IO_TEST_H
#define COMPRESS_TESTS_IO_TEST_H

#include "ir/arena.h"
#include "tests/support/check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Makes a folder below TMPDIR and enters its name at `folder`. */
static inline void scratch_make(char folder[256]) {
    const char *base = getenv("TMPDIR");
    snprintf(folder, 256, "%s/compress-test-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
}

/* Removes the folder and the files in it. */
static inline void scratch_remove(const char *folder) {
    DIR *list = opendir(folder);
    for (struct dirent *entry; list && (entry = readdir(list));)
        unlinkat(dirfd(list), entry->d_name, 0);
    if (list) closedir(list);
    rmdir(folder);
}

/* Number of entries in a folder. */
static inline int scratch_count(const char *folder) {
    int count = -2; /* "." and ".." */
    DIR *list = opendir(folder);
    while (readdir(list)) count++;
    closedir(list);
    return count;
}

/* Writes a file as it is. */
static inline void put_file(const char *path, const void *data, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static inline void put_text(const char *path, const char *text) {
    put_file(path, text, strlen(text));
}

/* Checks that there is exactly one error, that it has this status and that the message
 * holds `part`; forgets it. */
static inline void expect_error(Diag *diag, Status got, Status status, const char *part) {
    char *text = diag_text(diag);
    if (got != status || diag_errors(diag) != 1 || !strstr(text, part))
        fail_msg("expected status %d with '%s', got %d with %d errors: %s", status, part,
                 got, diag_errors(diag), text);
    free(text);
    diag_clear(diag);
}

/* Checks that nothing failed. */
static inline void expect_ok(const Diag *diag, Status got) {
    char *text = diag_text(diag);
    if (got != STATUS_OK) fail_msg("unexpected: %s", text);
    free(text);
}

#endif
