/* The workflows of docs/ci/: their shell steps are taken out of the files and run as they
 * are written, in a checkout of its own with a small recipe, once with a gate that holds
 * and once with one that does not. Stand-ins take the place of what installs, clones,
 * builds and sends; `compress` is the program under test. */
#include "io/files/yaml.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS_MAX = 32 };

/* One shell step of a job. */
typedef struct ShellStep {
    const char *name, *script;
    const Tree *env;   /* of the step alone, or NULL */
    const char *guard; /* its `if`, "" = it runs unless a step before failed */
    bool after;        /* runs in any case */
} ShellStep;

typedef struct Job {
    Arena *arena;
    char folder[64]; /* the checkout */
    ShellStep steps[STEPS_MAX];
    int count;
} Job;

/* ---- the checkout ---- */

/* Runs a line of shell in the checkout; its exit code. */
static int shell(const Job *job, const char *line) {
    const char *whole = arena_printf(job->arena, "cd '%s' && { %s\n}", job->folder, line);
    const int status = system(whole);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static const char SETUP[] =
    "mkdir -p recipes bin && cd recipes && . \"$SRC/tests/cli/tiny.sh\"\n"
    "tiny \"  - evaluate: {data: train}\n"
    "  - prune_ffn: {keep: 8, score: magnitude}\n"
    "  - finetune: {data: train, epochs: 1, batch_size: 16}\n"
    "  - evaluate: {data: train, min: $GATE}\"\n"
    "mv tiny.yaml small.yaml; cd ../bin\n"
    "printf '#!/bin/sh\\necho apt-get \"$@\" >>\"$LOG\"\\n' >apt-get\n"
    "printf '#!/bin/sh\\necho curl \"$@\" >>\"$LOG\"\\n' >curl\n"
    "printf '#!/bin/sh\\necho jq \"$@\" >>\"$LOG\"; echo {}\\n' >jq\n"
    "printf '#!/bin/sh\\nfor last; do :; done\\nmkdir -p \"$last/scripts\"\\n"
    "cp \"$SRC/scripts/deps\" \"$last/scripts\"\\n' >git\n"
    "printf '#!/bin/sh\\n[ \"$1\" = --install ] || exit 0\\nmkdir -p \"$4/bin\"\\n"
    "ln -sf \"$COMPRESS\" \"$4/bin/compress\"\\n' >cmake\n"
    "chmod +x *\n";

static void open_checkout(Job *job, const char *gate) {
    *job = (Job){.arena = arena_create(), .folder = "/tmp/compress-ci-XXXXXX"};
    assert_non_null(mkdtemp(job->folder));
    setenv("GATE", gate, 1);
    setenv("LOG", arena_printf(job->arena, "%s/log", job->folder), 1);
    setenv("GITHUB_WORKSPACE", job->folder, 1);
    setenv("CI_PROJECT_DIR", job->folder, 1);
    setenv("GITHUB_PATH", arena_printf(job->arena, "%s/path", job->folder), 1);
    setenv("GITHUB_STEP_SUMMARY", arena_printf(job->arena, "%s/summary", job->folder), 1);
    assert_int_equal(shell(job, SETUP), 0);
}

static void close_checkout(Job *job) {
    assert_int_equal(system(arena_printf(job->arena, "rm -rf '%s'", job->folder)), 0);
    arena_destroy(job->arena);
}

static void expect_shell(const Job *job, const char *line) {
    if (shell(job, line) == 0) return;
    shell(job, "ls -a; cat output log comment.json summary 2>/dev/null");
    fail_msg("not so: %s", line);
}

/* ---- taking a workflow apart ---- */

static Tree *read_workflow(Job *job, const char *path) {
    Diag *diag = diag_create();
    Tree *tree = NULL;
    assert_ok(yaml_read(&tree, job->arena, path, diag), diag);
    diag_destroy(diag);
    return tree;
}

static const char *string_at(const Tree *map, const char *key) {
    const Tree *value = tree_get(map, key);
    return value && value->kind == TREE_STRING ? value->string : "";
}

static void add_step(Job *job, ShellStep step) {
    assert_true(job->count < STEPS_MAX);
    job->steps[job->count++] = step;
}

static void take_github(Job *job, const Tree *steps) {
    for (const Tree *step = steps->first; step; step = step->next) {
        const char *guard = string_at(step, "if");
        if (!*string_at(step, "run")) continue; /* an action */
        add_step(job, (ShellStep){.name = string_at(step, "name"),
                                  .script = string_at(step, "run"),
                                  .env = tree_get(step, "env"),
                                  .guard = guard,
                                  .after = strstr(guard, "!cancelled()") != NULL});
    }
}

/* The lines of one section are one shell. */
static void take_gitlab(Job *job, const char *before, const Tree *lines, bool after) {
    Text text = {0};
    text_add(&text, "%s", before);
    for (const Tree *line = lines->first; line; line = line->next)
        text_add(&text, "%s\n", line->string);
    add_step(job, (ShellStep){.name = after ? "after_script" : "script",
                              .script = arena_strdup(job->arena, text.data),
                              .guard = "",
                              .after = after});
    text_free(&text);
}

/* ---- running ---- */

/* What stands in for an expression of GitHub's, as a value of `env`. */
static const char *expression_value(const char *text) {
    static const char *const VALUES[][2] = {
        {"${{ vars.COMPRESS_SOURCE }}", "https://example.org/compress.git"},
        {"${{ vars.COMPRESS_VERSION }}", "v1"},
        {"${{ github.token }}", "secret"},
        {"${{ github.event.number }}", "7"}};
    for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++)
        if (strcmp(text, VALUES[i][0]) == 0) return VALUES[i][1];
    fail_msg("no stand-in for %s", text);
    return NULL;
}

static void set_env(const Tree *env) {
    for (const Tree *entry = env ? env->first : NULL; entry; entry = entry->next)
        setenv(entry->key, expression_value(entry->string), 1);
}

/* Whether the files that a guard of GitHub's names are there. */
static bool guard_holds(const Job *job, const char *guard) {
    for (const char *at = guard; (at = strstr(at, "hashFiles('"));) {
        at += strlen("hashFiles('");
        const char *name = arena_strndup(job->arena, at, strcspn(at, "'"));
        if (shell(job, arena_printf(job->arena, "[ -f '%s' ]", name)) != 0) return false;
    }
    return true;
}

/* Runs all steps as a runner does; the exit code of the first that failed. */
static int run_job(Job *job) {
    int failed = 0;
    for (int i = 0; i < job->count; i++) {
        const ShellStep *step = &job->steps[i];
        assert_null(strstr(step->script, "${{")); /* a shell does not know these */
        if ((failed && !step->after) || !guard_holds(job, step->guard)) continue;
        set_env(step->env);
        FILE *file = fopen(arena_printf(job->arena, "%s/step", job->folder), "w");
        assert_non_null(file);
        fputs(step->script, file);
        assert_int_equal(fclose(file), 0);
        const int code =
            shell(job, "PATH=\"$PWD/bin:$(cat path 2>/dev/null):$PATH\"; export PATH\n"
                       "bash -e step >>output 2>&1");
        if (code != 0 && !failed) failed = code;
        if (code != 0 && step->after) {
            shell(job, "cat output");
            fail_msg("%s failed with %d", step->name, code);
        }
    }
    return failed;
}

static void test_github(void **state) {
    (void)state;
    setenv("GITHUB_ACTIONS", "true", 1);
    unsetenv("GITLAB_CI");
    for (int holds = 0; holds < 2; holds++) {
        Job job;
        open_checkout(&job, holds ? "1" : "101");
        const Tree *workflow = read_workflow(&job, "docs/ci/github.yml");
        const Tree *one = tree_get(tree_get(workflow, "jobs"), "compress");
        take_github(&job, tree_get(one, "steps"));
        assert_true(job.count >= 5);
        set_env(tree_get(one, "env"));
        assert_int_equal(run_job(&job), holds ? 0 : 8);
        expect_shell(&job, "test -s small.json && cmp summary small.md");
        expect_shell(&job,
                     "grep -q '^curl .*Bearer secret.*/repos/o/r/issues/7/comments' log");
        expect_shell(&job,
                     "grep -q '^jq .*small.md' log && grep -q '^apt-get .*cmake' log");
        expect_shell(&job, holds ? "test -s small.h5 && ! grep ^:: output"
                                 : "test ! -e small.h5 && grep -q '^::error "
                                   "file=recipes/small.yaml,line=[0-9]*,col=' output");
        expect_shell(&job, "test -d .compress/steps");
        close_checkout(&job);
    }
}

static void test_gitlab(void **state) {
    (void)state;
    setenv("GITLAB_CI", "true", 1);
    unsetenv("GITHUB_ACTIONS");
    for (int holds = 0; holds < 2; holds++) {
        Job job;
        open_checkout(&job, holds ? "1" : "101");
        const Tree *one = tree_get(read_workflow(&job, "docs/ci/gitlab.yml"), "compress");
        take_gitlab(&job, "", tree_get(one, "before_script"), false);
        take_gitlab(&job, job.steps[0].script, tree_get(one, "script"), false);
        job.steps[0] = job.steps[1]; /* the two are one shell */
        job.count = 1;
        take_gitlab(&job, "", tree_get(one, "after_script"), true);
        assert_int_equal(run_job(&job), holds ? 0 : 8);
        expect_shell(&job, "test -s small.json && test -s small.md");
        expect_shell(
            &job,
            "grep -q '^curl .*body@small.md .*/projects/3/merge_requests/7/notes' log");
        expect_shell(
            &job,
            holds
                ? "test -s small.h5 && [ \"$(cat gl-code-quality-report.json)\" = '[]' ]"
                : "test ! -e small.h5 && grep -q '\"path\": \"recipes/small.yaml\"' "
                  "gl-code-quality-report.json");
        expect_shell(&job, "test -d .compress/steps");
        close_checkout(&job);
    }
}

int main(void) {
    static char source[4096], program[4096];
    const char *named = getenv("COMPRESS_BIN");
    if (!named || !realpath(named, program) || !getcwd(source, sizeof source)) {
        fprintf(stderr, "expected COMPRESS_BIN to name the program\n");
        return 1;
    }
    if (system("bash --version >/dev/null") != 0) return 0;
    setenv("COMPRESS", program, 1);
    setenv("SRC", source, 1);
    setenv("CI", "true", 1);
    setenv("GITHUB_API_URL", "https://api.example.org", 1);
    setenv("GITHUB_REPOSITORY", "o/r", 1);
    setenv("COMPRESS_SOURCE", "https://example.org/compress.git", 1);
    setenv("COMPRESS_VERSION", "v1", 1);
    setenv("COMMENT_TOKEN", "secret", 1);
    setenv("CI_API_V4_URL", "https://gitlab.example.org/api/v4", 1);
    setenv("CI_PROJECT_ID", "3", 1);
    setenv("CI_MERGE_REQUEST_IID", "7", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_github),
        cmocka_unit_test(test_gitlab),
    };
    return cmocka_run_group_tests_name("workflows", tests, NULL, NULL);
}
