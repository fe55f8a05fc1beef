/* The command line, as folders of files: tests/cli/cases/<case>/{cmd,stdout,stderr,exit}.
 *
 * `cmd` runs through sh in a fresh folder with COMPRESS = the program and SRC = the root
 * of the source tree. What it prints must equal stdout and stderr and its exit code the
 * number in exit (no file: empty, 0). A file `needs` holds a shell command; when it
 * fails the case is skipped. Before comparing,
 *   - the working folder's path becomes $TMP and the source root's $SRC;
 *   - times ("0.42 s") and the spaces in front of them become " TIME".
 * With COMPRESS_REWRITE=1 the files are written instead of compared. */
#include <dirent.h>
#include <limits.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CASES_MAX    500
#define CASES_FOLDER "tests/cli/cases"

static const char *const TIME_PATTERN = " *[0-9]+\\.[0-9][0-9] s";

/* Whole file as a string, "" when there is none. */
static char *read_text(const char *path) {
    char *text = calloc(1, 1);
    size_t length = 0, got;
    char chunk[4096];
    FILE *file = fopen(path, "rb");
    while (file && (got = fread(chunk, 1, sizeof chunk, file)) > 0) {
        text = realloc(text, length + got + 1);
        memcpy(text + length, chunk, got);
        length += got;
        text[length] = 0;
    }
    if (file) fclose(file);
    return text;
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* Frees `text` and returns it with [start, end) replaced. */
static char *splice(char *text, size_t start, size_t end, const char *by) {
    char *out = malloc(strlen(text) + strlen(by) + 1);
    sprintf(out, "%.*s%s%s", (int)start, text, by, text + end);
    free(text);
    return out;
}

static char *replace_all(char *text, const char *what, const char *by) {
    size_t from = 0;
    for (char *at; (at = strstr(text + from, what));) {
        size_t start = (size_t)(at - text);
        text = splice(text, start, start + strlen(what), by);
        from = start + strlen(by);
    }
    return text;
}

static char *replace_pattern(char *text, const char *pattern, const char *by) {
    regex_t regex;
    regmatch_t match;
    size_t from = 0;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED), 0);
    while (regexec(&regex, text + from, 1, &match, 0) == 0) {
        size_t start = from + (size_t)match.rm_so;
        text = splice(text, start, from + (size_t)match.rm_eo, by);
        from = start + strlen(by);
    }
    regfree(&regex);
    return text;
}

static char *normalise(char *text, const char *folder, const char *source) {
    text = replace_all(text, folder, "$TMP");
    text = replace_all(text, source, "$SRC");
    return replace_pattern(text, TIME_PATTERN, " TIME");
}

/* `a/b` in `out`, which is returned. */
static char *join(char out[PATH_MAX], const char *a, const char *b) {
    snprintf(out, PATH_MAX, "%s/%s", a, b);
    return out;
}

/* Compares one stream with its golden file, or rewrites it. */
static bool check_stream(const char *folder, const char *name, const char *got) {
    char path[PATH_MAX];
    join(path, folder, name);
    if (getenv("COMPRESS_REWRITE")) {
        write_text(path, got);
        return true;
    }
    char *want = read_text(path);
    bool equal = strcmp(want, got) == 0;
    if (!equal) print_error("%s:\n--- expected\n%s--- found\n%s---\n", path, want, got);
    free(want);
    return equal;
}

static int exit_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs the case's cmd in `temporary`, its streams to files beside that folder. */
static int run_cmd(const char *folder, const char *temporary) {
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command,
             "cd '%s' && mkdir work && cd work && sh '%s/cmd' >../stdout 2>../stderr "
             "</dev/null",
             temporary, folder);
    return exit_of(system(command));
}

static bool is_skipped(const char *folder) {
    char path[PATH_MAX], command[PATH_MAX + 16];
    if (access(join(path, folder, "needs"), F_OK) != 0) return false;
    snprintf(command, sizeof command, "sh '%s'", path);
    return system(command) != 0;
}

static void remove_folder(const char *folder) {
    char command[PATH_MAX + 32];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void test_case(void **state) {
    char folder[PATH_MAX], temporary[] = "/tmp/compress-cli-XXXXXX", path[PATH_MAX];
    char work[sizeof temporary + 8], code[16];
    join(folder, getenv("SRC"), CASES_FOLDER);
    snprintf(folder + strlen(folder), 256, "/%s", (const char *)*state);
    if (is_skipped(folder)) skip();
    assert_non_null(mkdtemp(temporary));
    snprintf(work, sizeof work, "%s/work", temporary);
    snprintf(code, sizeof code, "%d\n", run_cmd(folder, temporary));
    bool equal = true;
    static const char *const streams[] = {"stdout", "stderr"};
    for (int i = 0; i < 2; i++) {
        char *got = read_text(join(path, temporary, streams[i]));
        got = normalise(got, work, getenv("SRC"));
        equal &= check_stream(folder, streams[i], got);
        free(got);
    }
    equal &= check_stream(folder, "exit", code);
    remove_folder(temporary);
    assert_true(equal);
}

static int compare_names(const void *a, const void *b) {
    const struct CMUnitTest *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int find_cases(struct CMUnitTest *tests) {
    int count = 0;
    DIR *folder = opendir(CASES_FOLDER);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.' || count == CASES_MAX) continue;
        char *name = strdup(entry->d_name);
        tests[count++] = (struct CMUnitTest){
            .name = name, .test_func = test_case, .initial_state = name};
    }
    if (folder) closedir(folder);
    qsort(tests, (size_t)count, sizeof *tests, compare_names);
    return count;
}

int main(void) {
    static struct CMUnitTest tests[CASES_MAX];
    char source[PATH_MAX], program[PATH_MAX];
    const char *named = getenv("COMPRESS_BIN");
    if (!named || !realpath(named, program) || !getcwd(source, sizeof source)) {
        fprintf(stderr, "expected COMPRESS_BIN to name the program\n");
        return 1;
    }
    setenv("COMPRESS", program, 1);
    setenv("SRC", source, 1);
    setenv("LC_ALL", "C", 1);
    setenv("CI", "1", 1);
    int count = find_cases(tests);
    int failed = _cmocka_run_group_tests("cli", tests, (size_t)count, NULL, NULL);
    for (int i = 0; i < count; i++) free((char *)tests[i].name);
    return failed;
}
