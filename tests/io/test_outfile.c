/* Output files and folders beside other writers and what dead ones left. */
#include "io_test.h"

#include "io/files/file.h"
#include "io/files/outfolder.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <utime.h>

static char folder[256], path[300];

/* Stands before the system's: the code that waiting for a part of a file fails with, 0 =
 * it is waited for, and how often somebody did. */
static int wait_code, waits;
int sync_file_range(int fd, off_t from, off_t bytes, unsigned flags) {
    if (flags & SYNC_FILE_RANGE_WAIT_AFTER) waits++;
    if ((flags & SYNC_FILE_RANGE_WAIT_AFTER) && wait_code) {
        errno = wait_code;
        return -1;
    }
    return (int)syscall(SYS_sync_file_range, fd, from, bytes, flags);
}

static int enter(void **state) {
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return 0;
}

static int leave(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

/* Makes a file of this name in the folder; the name is a printf format. */
static const char *make_beside(char *to, const char *name, int number) {
    int length = snprintf(to, 600, "%s/", folder);
    snprintf(to + length, 600 - (size_t)length, name, number);
    put_text(to, "x");
    return to;
}

static bool is_there(const char *name) {
    return access(name, F_OK) == 0;
}

/* What is left of dead writers goes: nobody holds its lock, or has it open. */
static void stale_files(void **state) {
    (void)state;
    char stale[600], numbered[600], open_one[600], other[600];
    Diag *diag = diag_create();
    make_beside(stale, ".model.safetensors.00112233445566ff.tmp", 0);
    make_beside(numbered, ".model.safetensors.%d.tmp", (int)getpid());
    make_beside(open_one, ".model.safetensors.%d.tmp", 999999);
    make_beside(other, ".other.00112233445566ff.tmp", 0);
    const int writer = open(open_one, O_RDWR);
    expect_ok(diag, file_write(path, "new", 3, diag));
    assert_false(is_there(stale));
    assert_false(is_there(numbered));
    assert_true(is_there(open_one));
    assert_true(is_there(other));
    assert_int_equal(diag_warning_count(diag), 1);
    assert_non_null(strstr(diag_warning(diag, 0).message,
                           ".model.safetensors.999999.tmp beside it is unfinished"));
    assert_int_equal(scratch_count(folder), 3);
    close(writer);
    expect_ok(diag, file_write(path, "newer", 5, diag));
    assert_false(is_there(open_one));
    unlink(other);
    expect_error(diag, file_write(folder, "x", 1, diag), STATUS_IO, "found a folder");
    expect_error(diag, file_write("/dev/null", "x", 1, diag), STATUS_IO,
                 "something else");
    expect_error(diag, file_write("/nowhere/x", "x", 1, diag), STATUS_IO, "No such file");
    diag_destroy(diag);
}

/* Two writers of one target have a file each; the last one stays. */
static void two_writers(void **state) {
    (void)state;
    Diag *diag = diag_create();
    OutFile *first, *second;
    const char *one, *other;
    expect_ok(diag, outfile_open(&first, &one, path, diag));
    assert_int_equal(diag_warning_count(diag), 0);
    expect_ok(diag, outfile_open(&second, &other, path, diag));
    assert_int_equal(diag_warning_count(diag), 1);
    assert_non_null(strstr(diag_warning(diag, 0).message, "another program is writing"));
    assert_string_not_equal(one, other);
    expect_ok(diag, outfile_write(second, "second", 6, diag));
    expect_ok(diag, outfile_write(first, "1", 1, diag));
    expect_ok(diag, outfile_commit(second, diag));
    expect_ok(diag, outfile_commit(first, diag));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 1);
    assert_int_equal(scratch_count(folder), 1);
    expect_ok(diag, outfile_open(&first, &one, path, diag));
    outfile_abandon_all();
    assert_false(is_there(one));
    outfile_abandon(first);
    diag_destroy(diag);
}

/* A temporary file that somebody has put another in place of is neither renamed nor
 * removed. */
static void taken_away(void **state) {
    (void)state;
    char text[8] = "";
    Diag *diag = diag_create();
    OutFile *file;
    const char *temporary;
    put_text(path, "old");
    expect_ok(diag, outfile_open(&file, &temporary, path, diag));
    char *copy = strdup(temporary);
    assert_int_equal(unlink(copy), 0);
    expect_error(diag, outfile_commit(file, diag), STATUS_IO,
                 "another program has removed or replaced the temporary file");
    expect_ok(diag, outfile_open(&file, &temporary, path, diag));
    free(copy);
    copy = strdup(temporary);
    assert_int_equal(unlink(copy), 0);
    put_text(copy, "half");
    expect_error(diag, outfile_commit(file, diag), STATUS_IO,
                 "another program has removed or replaced the temporary file");
    assert_true(is_there(copy));
    unlink(copy);
    free(copy);
    const int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, text, sizeof text), 3);
    close(fd);
    assert_string_equal(text, "old");
    diag_destroy(diag);
}

static pid_t start_child(bool apart) {
    fflush(NULL);
    if (apart && unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
        return -1;
    return fork();
}

/* A child writes the target, first saying so and waiting to be told to go on. */
static void write_slowly(const int tell[2], const int told[2]) {
    char byte = 'x';
    OutFile *file;
    Diag *diag = diag_create();
    alarm(60);
    close(told[1]);
    bool good = outfile_open(&file, NULL, path, diag) == STATUS_OK &&
                outfile_write(file, "all of ", 7, diag) == STATUS_OK &&
                write(tell[1], &byte, 1) == 1 && read(told[0], &byte, 1) == 1 &&
                outfile_write(file, "it", 2, diag) == STATUS_OK &&
                outfile_commit(file, diag) == STATUS_OK;
    _exit(good ? 0 : 1);
}

/* Two containers on one volume: both writers have process number 1. Neither takes the
 * other's file away, nor does this process, in whose eyes number 1 is another program. */
static void two_namespaces(void **state) {
    (void)state;
    int tell[2][2], told[2][2], status;
    char byte = 'x';
    pid_t keeper[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(tell[i]) | pipe(told[i]), 0);
        keeper[i] = fork(); /* what unshare changes stays in it */
        if (keeper[i] == 0) {
            alarm(60); /* where the test fails meanwhile */
            const pid_t child = start_child(true);
            if (child == 0) write_slowly(tell[i], told[i]);
            close(told[i][0]);
            if (child < 0) _exit(77); /* no namespaces here */
            _exit(waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 2);
        }
        close(tell[i][1]);
        if (read(tell[i][0], &byte, 1) != 1) { /* it has ended */
            waitpid(keeper[i], &status, 0);
            assert_int_equal(WEXITSTATUS(status), 77);
            skip();
        }
    }
    Diag *diag = diag_create();
    expect_ok(diag, file_write(path, "mine", 4, diag));
    assert_int_equal(diag_warning_count(diag), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write(told[i][1], &byte, 1), 1);
        assert_int_equal(waitpid(keeper[i], &status, 0), keeper[i]);
        assert_int_equal(status, 0);
    }
    char text[16] = "";
    const int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, text, sizeof text), 9);
    close(fd);
    assert_string_equal(text, "all of it");
    assert_int_equal(scratch_count(folder), 1);
    diag_destroy(diag);
}

/* Names as long as a file system has them. */
static void long_name(void **state) {
    (void)state;
    char name[700];
    Diag *diag = diag_create();
    const int at = snprintf(name, sizeof name, "%s/", folder);
    memset(name + at, 'n', 255);
    name[at + 255] = 0;
    expect_ok(diag, file_write(name, "x", 1, diag));
    assert_int_equal(scratch_count(folder), 1);
    diag_destroy(diag);
}

static bool is_a(const char *name) {
    return strcmp(name, "a") == 0;
}

/* A folder that somebody has locked stays, as does one without a lock, which is about to
 * be put in place; others go. */
static void stale_folders(void **state) {
    (void)state;
    char dead[600], empty[600], fresh[600], inner[700];
    Diag *diag = diag_create();
    OutFolder *first, *second;
    const char *one, *other;
    snprintf(dead, sizeof dead, "%s/.model.safetensors.00112233445566ff.tmp", folder);
    snprintf(empty, sizeof empty, "%s/.model.safetensors.00112233445566fe.tmp", folder);
    snprintf(fresh, sizeof fresh, "%s/.model.safetensors.00112233445566fd.tmp", folder);
    assert_int_equal(mkdir(dead, 0777) | mkdir(empty, 0777) | mkdir(fresh, 0777), 0);
    snprintf(inner, sizeof inner, "%s/.lock", dead);
    put_text(inner, "");
    snprintf(inner, sizeof inner, "%s/a", dead);
    put_text(inner, "x");
    snprintf(inner, sizeof inner, "%s/a", fresh);
    put_text(inner, "x");
    expect_ok(diag, outfolder_open(&first, &one, path, is_a, diag));
    assert_false(is_there(dead));
    assert_false(is_there(empty));
    assert_true(is_there(fresh));
    assert_int_equal(diag_warning_count(diag), 1);
    const struct utimbuf old = {.actime = 1, .modtime = 1};
    assert_int_equal(utime(fresh, &old), 0);
    expect_ok(diag, outfolder_open(&second, &other, path, is_a, diag));
    assert_false(is_there(fresh));
    assert_true(is_there(one));
    assert_int_equal(diag_warning_count(diag), 2);
    snprintf(inner, sizeof inner, "%s/a", other);
    put_text(inner, "2");
    expect_ok(diag, outfolder_commit(second, diag));
    snprintf(inner, sizeof inner, "%s/a", one);
    put_text(inner, "11");
    expect_ok(diag, outfolder_commit(first, diag));
    struct stat info;
    snprintf(inner, sizeof inner, "%s/a", path);
    assert_int_equal(stat(inner, &info), 0);
    assert_int_equal(info.st_size, 2);
    assert_int_equal(scratch_count(folder), 1);
    assert_int_equal(scratch_count(path), 1);
    diag_destroy(diag);
}

/* A temporary folder that was taken away is not put in place. */
static void folder_taken_away(void **state) {
    (void)state;
    Diag *diag = diag_create();
    OutFolder *out;
    const char *temporary;
    expect_ok(diag, outfolder_open(&out, &temporary, path, is_a, diag));
    scratch_remove(temporary);
    expect_error(diag, outfolder_commit(out, diag), STATUS_IO,
                 "another program has removed or replaced the temporary folder");
    assert_int_equal(scratch_count(folder), 0);
    diag_destroy(diag);
}

/* The start of a file's text. */
static const char *text_of(const char *name) {
    static char text[64];
    memset(text, 0, sizeof text);
    FILE *file = fopen(name, "r");
    if (file) assert_true(fread(text, 1, sizeof text - 1, file) < sizeof text);
    if (file) fclose(file);
    return text;
}

#define STEM  "beside"
#define ONE   STEM "-0000000000000001"
#define TWO   STEM "-0000000000000002"
#define THREE STEM "-0000000000000003"

static const char *in_scratch(const char *name) {
    static char text[600];
    snprintf(text, sizeof text, "%s/%s", folder, name);
    return text;
}

/* Writes a file that holds the name of the one beside it; `lost` removes the file's
 * temporary, `taken` puts a folder in its place. */
static void write_pair(const char *name, bool lost, bool taken) {
    Diag *diag = diag_create();
    OutFile *weights, *file;
    const char *temporary;
    expect_ok(diag, outfile_open(&weights, NULL, in_scratch(STEM), diag));
    expect_ok(diag, outfile_write(weights, name, strlen(name), diag));
    expect_ok(diag, outfile_open(&file, &temporary, path, diag));
    expect_ok(diag, outfile_write(file, name, strlen(name), diag));
    if (lost) assert_int_equal(unlink(temporary), 0);
    if (taken) assert_int_equal(mkdir(path, 0700), 0);
    const Status status = outfile_commit_pair(weights, name, file, STEM, diag);
    if (lost || taken)
        expect_error(diag, status, STATUS_IO, lost ? "removed or replaced" : "in place");
    else
        expect_ok(diag, status);
    diag_destroy(diag);
}

/* A pair is replaced as a whole, or not at all; what the old file does not name stays. */
static void pairs(void **state) {
    (void)state;
    write_pair(ONE, false, false);
    assert_string_equal(text_of(in_scratch(ONE)), ONE);
    write_pair(TWO, true, false);
    assert_string_equal(text_of(path), ONE);
    assert_string_equal(text_of(in_scratch(ONE)), ONE);
    assert_int_equal(scratch_count(folder), 2);
    put_text(in_scratch(STEM), "another's");
    put_text(in_scratch(THREE), "another's");
    write_pair(TWO, false, false);
    assert_string_equal(text_of(path), TWO);
    assert_string_equal(text_of(in_scratch(TWO)), TWO);
    assert_int_equal(scratch_count(folder), 4);
    write_pair(TWO, false, false); /* the same once more */
    assert_string_equal(text_of(in_scratch(TWO)), TWO);
    assert_int_equal(scratch_count(folder), 4);
}

/* Where the second of the two cannot be put in place the first does not stay, unless it
 * was there. */
static void pair_refused(void **state) {
    (void)state;
    write_pair(ONE, false, true);
    assert_int_equal(scratch_count(folder), 1); /* the folder */
    put_text(in_scratch(ONE), ONE);
    assert_int_equal(rmdir(path), 0);
    write_pair(ONE, false, true);
    assert_string_equal(text_of(in_scratch(ONE)), ONE);
    assert_int_equal(scratch_count(folder), 2);
}

/* What an earlier version called by the name alone goes with the file that names it. */
static void pair_of_fixed_name(void **state) {
    (void)state;
    put_text(path, "location: " STEM " ...");
    put_text(in_scratch(STEM), "old");
    write_pair(ONE, false, false);
    assert_int_equal(scratch_count(folder), 2);
    assert_string_equal(text_of(in_scratch(ONE)), ONE);
}

enum { PIECES = 300, PIECE_BYTES = 1 << 20 };

static void fill_piece(unsigned char *piece, int i) {
    for (int k = 0; k < PIECE_BYTES; k++) piece[k] = (unsigned char)(k * 31 + i * 7);
}

static Status write_large(Diag *diag) {
    static unsigned char piece[PIECE_BYTES];
    OutFile *file;
    Status status = outfile_open(&file, NULL, path, diag);
    for (int i = 0; i < PIECES && status == STATUS_OK; i++) {
        fill_piece(piece, i);
        status = outfile_write(file, piece, sizeof piece, diag);
    }
    if (status == STATUS_OK) return outfile_commit(file, diag);
    outfile_abandon(file);
    return status;
}

/* A file that is on its way to disk while it is written, whose first parts memory need
 * not keep: what it holds, also where the system cannot wait for a part, and what a disk
 * that fails then comes to. */
static void large(void **state) {
    (void)state;
    static unsigned char piece[PIECE_BYTES], back[PIECE_BYTES];
    Diag *diag = diag_create();
    const int codes[] = {0, EINVAL};
    for (int c = 0; c < 2; c++) {
        wait_code = codes[c], waits = 0;
        expect_ok(diag, write_large(diag));
        assert_true(waits > 1);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        for (int i = 0; i < PIECES; i++) {
            assert_int_equal(fread(back, 1, sizeof back, file), sizeof back);
            fill_piece(piece, i);
            assert_memory_equal(piece, back, sizeof back);
        }
        assert_int_equal(fgetc(file), EOF);
        fclose(file);
    }
    put_text(path, "old");
    wait_code = EIO;
    expect_error(diag, write_large(diag), STATUS_IO, "make the data durable");
    wait_code = 0;
    assert_string_equal(text_of(path), "old");
    assert_int_equal(scratch_count(folder), 1);
    diag_destroy(diag);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)
    const struct CMUnitTest tests[] = {
        TEST(stale_files),        TEST(two_writers),   TEST(taken_away),
        TEST(two_namespaces),     TEST(stale_folders), TEST(folder_taken_away),
        TEST(long_name),          TEST(pairs),         TEST(pair_refused),
        TEST(pair_of_fixed_name), TEST(large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
