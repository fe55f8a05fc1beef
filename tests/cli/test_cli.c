/* The command line: tests/cli/cases/<case>.case (tests/support/case_file.h).
 * Its sections:
 *
 *     needs       a shell command; when it fails the case is skipped
 *     files NAME  a file of that name is there
 *     run         commands for sh, in a fresh folder with COMPRESS = the program and
 *                 SRC = the root of the source tree; several run one after another
 *     stdout, stderr, exit
 *                 recorded, behind a run: what it printed and its exit code; absent:
 *                 nothing and 0
 *
 * Before comparing,
 *   - the working folder's path becomes $TMP and the source root's $SRC;
 *   - times ("0.42 s") and the spaces in front of them become " TIME". */
#include "ir/text.h"
#include "tests/support/case_file.h"
#include "tests/support/check.h"

#include <limits.h>
#include <regex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

static int exit_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs commands in FOLDER/work, their streams to files beside it. */
static int run_commands(const char *folder, const char *commands) {
    char path[PATH_MAX], line[4 * PATH_MAX];
    snprintf(path, sizeof path, "%s/cmd", folder);
    write_text(path, commands);
    snprintf(line, sizeof line,
             "cd '%s/work' && sh ../cmd >../stdout 2>../stderr </dev/null", folder);
    return exit_of(system(line));
}

/* Compares one recorded section of the run at `index`: it stands before the next run. */
static bool check_recorded(Case *one, int index, const char *kind, const char *got,
                           const char *absent) {
    const int next = case_find(one, "run", index + 1);
    const int end = next < 0 ? one->section_count : next;
    const int at = case_find(one, kind, index + 1);
    return case_compare(one, at < end ? at : -1, kind, got, absent, end - 1);
}

static bool check_run(Case *one, int index, const char *folder) {
    char code[16], work[PATH_MAX], path[PATH_MAX];
    snprintf(work, sizeof work, "%s/work", folder);
    snprintf(code, sizeof code, "%d\n", run_commands(folder, one->sections[index].text));
    static const char *const streams[] = {"stdout", "stderr"};
    bool equal = true;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, streams[i]);
        char *got = normalise(read_text(path), work, getenv("SRC"));
        equal &= check_recorded(one, index, streams[i], got, "");
        free(got);
    }
    return equal & check_recorded(one, index, "exit", code, "0\n");
}

static void write_files(const Case *one, const char *folder) {
    char path[PATH_MAX];
    for (int i = case_find(one, "files", 0); i >= 0; i = case_find(one, "files", i + 1)) {
        snprintf(path, sizeof path, "%s/work/%s", folder, one->sections[i].argument);
        write_text(path, one->sections[i].text);
    }
}

static void run_case(Case *one) {
    char folder[] = "/tmp/compress-cli-XXXXXX", command[PATH_MAX];
    const char *needs = case_text(one, "needs");
    if (needs && system(needs) != 0) skip();
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "mkdir '%s/work'", folder);
    assert_int_equal(system(command), 0);
    write_files(one, folder);
    bool equal = true;
    int runs = 0;
    for (int i = case_find(one, "run", 0); i >= 0; i = case_find(one, "run", i + 1)) {
        equal &= check_run(one, i, folder);
        runs++;
    }
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    if (!equal || runs == 0) fail_msg("%s: other output than expected", one->name);
}

int main(int argc, char **argv) {
    static char source[PATH_MAX], program[PATH_MAX];
    const char *named = getenv("COMPRESS_BIN");
    if (!named || !realpath(named, program) || !getcwd(source, sizeof source)) {
        fprintf(stderr, "expected COMPRESS_BIN to name the program\n");
        return 1;
    }
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL); /* under nohup, say, one is ignored */
    setenv("COMPRESS", program, 1);
    setenv("SRC", source, 1);
    setenv("LC_ALL", "C", 1);
    setenv("CI", "1", 1);
    unsetenv("COLUMNS");
    return case_main(argc, argv, "tests/cli/cases", run_case);
}
