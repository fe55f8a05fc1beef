/* The library as a program sees it, through session/compress.h alone: statuses and
 * messages, models that failures leave as they were, hosts with locales, forks and
 * callbacks of their own. What it runs and writes: test_library_run.c. */
#include "session/compress.h"
#include "tests/session/library_fixture.h"
#include "tests/support/check.h"
#include "tests/support/reference.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- passes ---- */

static void test_apply(void **state) {
    Use use;
    char *report;
    (void)state;
    use_open(&use);
    CompressModel *before = compress_copy(use.model);
    char *old = described(&use);
    assert_int_equal(
        compress_apply(use.context, use.model,
                       "[remove_layer: {drop: [1]}, quantize: {dtype: int8}]", &report),
        COMPRESS_OK);
    assert_non_null(strstr(report, "\"status\": \"done\""));
    compress_free_text(report);
    char *new = described(&use);
    assert_null(strstr(old, "\"q8\""));
    assert_non_null(strstr(new, "\"q8\""));
    const Use copy = {use.context, before};
    char *kept = described(&copy);
    assert_string_equal(kept, old);
    compress_free_text(old);
    compress_free_text(new);
    compress_free_text(kept);
    compress_free_model(before);
    use_close(&use);
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Text and files that it extends are one recipe, with paths as they are of a file. */
static void test_extends(void **state) {
    static const char BASE[] =
        "version: 1\n"
        "data: {test: {format: text, path: test.tsv, limit: 4, tokenizer: words}}\n"
        "passes: [quantize: {dtype: int8}]\n";
    char folder[] = "/tmp/library_XXXXXX", path[64], text[256];
    Use use;
    (void)state;
    use_open(&use);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/base.yaml", folder);
    write_text(path, BASE);
    snprintf(text, sizeof text, "{extends: %s, data: null}", path);
    assert_int_equal(compress_apply(use.context, use.model, text, NULL), COMPRESS_OK);
    char *json = described(&use);
    assert_non_null(strstr(json, "\"q8\""));
    compress_free_text(json);
    snprintf(text, sizeof text, "{extends: %s, passes: [evaluate: {data: test}]}", path);
    assert_int_equal(compress_apply(use.context, use.model, text, NULL), COMPRESS_IO);
    snprintf(path, sizeof path, "%s/words", folder);
    assert_said(&use, path);
    assert_int_equal(compress_apply(use.context, use.model,
                                    "{extends: /nonexistent/base.yaml, passes: []}",
                                    NULL),
                     COMPRESS_IO);
    assert_said(&use, "/nonexistent/base.yaml: error: cannot open");
    assert_said(&use, "note: named in passes:1");
    snprintf(path, sizeof path, "%s/base.yaml", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    use_close(&use);
}

/* Keys that a call does not follow are warned of; those that the header names are not. */
static void test_left_alone(void **state) {
    Use use;
    (void)state;
    use_open(&use);
    assert_int_equal(compress_apply(use.context, use.model,
                                    "{threads: 5, checkpoint: {every: 1}, keep: "
                                    "on_failure, passes: []}",
                                    NULL),
                     COMPRESS_OK);
    assert_said(&use, "passes:1:11: warning: threads: the context's number of threads, "
                      "2, is used in place of 5");
    assert_said(&use, "warning: checkpoint: no checkpoint is kept");
    assert_said(&use, "warning: keep: a model in memory is left as it was");
    assert_int_equal(compress_apply(use.context, use.model,
                                    "{threads: 2, model: a.h5, output: b.h5, name: c, "
                                    "anchors: {a: 1}, passes: []}",
                                    NULL),
                     COMPRESS_OK);
    assert_string_equal(compress_messages(use.context), "");
    assert_int_equal(
        compress_apply(use.context, use.model, "{report: r.json, passes: []}", NULL),
        COMPRESS_RECIPE);
    assert_said(&use, "error: report: unknown key");
    use_close(&use);
}

/* What the data of a step have goes with the model. */
static void test_companions(void **state) {
    static const char PASSES[] =
        "data: {test: {format: text, path: recipes/data/authors/test.tsv, limit: 4,\n"
        "  tokenizer: recipes/data/authors/vocab.txt,\n"
        "  labels: [shakespeare, wells, tatoeba]}}\n"
        "passes: [evaluate: {data: test}]\n";
    Use use;
    (void)state;
    assert_int_equal(compress_open(&use.context, 1), COMPRESS_OK);
    assert_int_equal(
        compress_load(use.context, "recipes/models/bert_authors.h5", &use.model),
        COMPRESS_OK);
    char *before = described(&use);
    assert_int_equal(compress_apply(use.context, use.model, PASSES, NULL), COMPRESS_OK);
    char *after = described(&use);
    assert_null(strstr(before, "\"id2label\""));
    assert_non_null(strstr(after, "\"id2label\""));
    assert_non_null(strstr(after, "\"shakespeare\""));
    compress_free_text(before);
    compress_free_text(after);
    use_close(&use);
}

/* Steps that cannot run, and one that does before a gate that does not hold. */
static void test_failures(void **state) {
    static const struct {
        const char *passes, *said;
        CompressStatus status;
    } rows[] = {
        {"[prun: {}]", "passes:1:2: error: passes[0]: unknown pass", COMPRESS_RECIPE},
        {"[quantize: {dtype: int9}]", "passes[0].quantize.dtype", COMPRESS_RECIPE},
        {"5", "expected a list of steps, or a map of recipe keys, found integer",
         COMPRESS_RECIPE},
        {"", "expected a list of steps, or a map of recipe keys, found null",
         COMPRESS_RECIPE},
        {"[quantize: {dtype: int8, dtype: f16}]",
         "passes:1:26: error: passes[0].quantize.dtype: duplicate key", COMPRESS_RECIPE},
        {"[gate: {max_parameters: .inf}]",
         "passes[0].gate.max_parameters: number must be finite", COMPRESS_RECIPE},
        {"{passes: [gate: {max_parameters: .inf}]}",
         "error: passes[0].gate.max_parameters: number", COMPRESS_RECIPE},
        {"[evaluate: {data: test}]", "test", COMPRESS_RECIPE},
        {"[remove_layer: {drop: [99]}]", "99", COMPRESS_MODEL},
        {"[remove_layer: {drop: [1]}, gate: {max_parameters: 10}]", "parameters",
         COMPRESS_GATE},
    };
    Use use;
    (void)state;
    use_open(&use);
    char *old = described(&use);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(compress_apply(use.context, use.model, rows[i].passes, NULL),
                         rows[i].status);
        assert_said(&use, rows[i].said);
        char *now = described(&use);
        assert_string_equal(now, old);
        compress_free_text(now);
    }
    compress_free_text(old);
    use_close(&use);
}

static int always(void *self) {
    ++*(int *)self;
    return 1;
}

static void test_cancelled(void **state) {
    Use use;
    int asked = 0;
    (void)state;
    use_open(&use);
    compress_watch(use.context, &asked, NULL, always);
    assert_int_equal(
        compress_apply(use.context, use.model, "[quantize: {dtype: int8}]", NULL),
        COMPRESS_INTERRUPTED);
    assert_true(asked > 0);
    use_close(&use);
}

/* Runs are asked before their first samples; what cannot be cancelled does not ask. */
static void test_cancelled_run(void **state) {
    static const int32_t IDS[17 * 3];
    const CompressTensor input = {"input_ids", COMPRESS_I32, 2, {17, 3}, IDS};
    CompressTensor *outputs;
    CompressRunner *runner;
    size_t count;
    Use use;
    int asked = 0;
    (void)state;
    assert_int_equal(compress_open(&use.context, 1), COMPRESS_OK);
    compress_watch(use.context, &asked, NULL, always);
    assert_int_equal(compress_load(use.context, LLAMA, &use.model), COMPRESS_OK);
    compress_free_text(described(&use));
    assert_int_equal(compress_prepare(use.context, use.model, &runner), COMPRESS_OK);
    assert_int_equal(asked, 0);
    assert_int_equal(
        compress_run_prepared(use.context, runner, &input, 1, &outputs, &count),
        COMPRESS_INTERRUPTED);
    assert_int_equal(asked, 1);
    assert_said(&use, "stopped after 0 of 17 samples");
    assert_null(outputs);
    compress_free_runner(runner);
    use_close(&use);
}

/* ---- files ---- */

static void test_files(void **state) {
    Use use;
    CompressModel *again;
    char folder[] = "/tmp/library_XXXXXX", path[64];
    (void)state;
    use_open(&use);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/small.h5", folder);
    assert_int_equal(compress_load(use.context, path, &again), COMPRESS_IO);
    assert_null(again);
    assert_said(&use, path);
    assert_int_equal(compress_save(use.context, use.model, path, "{dtype: f17}"),
                     COMPRESS_USAGE);
    assert_int_equal(compress_save(use.context, use.model, path, "[]"), COMPRESS_USAGE);
    assert_int_equal(compress_save(use.context, use.model, "/tmp/model.txt", NULL),
                     COMPRESS_USAGE);
    assert_int_equal(compress_save(use.context, use.model, path, ""), COMPRESS_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(compress_load(use.context, path, &again), COMPRESS_IO);
    assert_int_equal(compress_save(use.context, use.model, path, "{dtype: f16}"),
                     COMPRESS_OK);
    assert_int_equal(compress_load(use.context, path, &again), COMPRESS_OK);
    const Use copy = {use.context, again};
    char *json = described(&copy);
    assert_non_null(strstr(json, "\"f16\""));
    compress_free_text(json);
    compress_free_model(again);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
    use_close(&use);
}

/* A working directory that was removed is no folder to write to. */
static void test_removed_folder(void **state) {
    char folder[] = "/tmp/library_XXXXXX";
    Use use;
    (void)state;
    if (THREAD_SANITIZED) skip(); /* whose children may have no threads at all */
    use_open(&use);
    assert_non_null(mkdtemp(folder));
    const pid_t child = fork();
    if (child == 0) {
        if (chdir(folder) != 0 || rmdir(folder) != 0) _exit(77);
        const CompressStatus status =
            compress_save(use.context, use.model, "small.h5", NULL);
        const char *said = compress_messages(use.context);
        _exit(strstr(said, "expected an existing folder, found one that was removed")
                  ? (int)status
                  : 78);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), COMPRESS_IO);
    use_close(&use);
}

/* A recipe and the file that it writes. */
static void test_recipe(void **state) {
    Use use;
    CompressModel *out, *written;
    char *report, folder[] = "/tmp/library_XXXXXX", output[64];
    const char *const sets[] = {"model=../" BERT, "passes=[quantize: {dtype: int8}]",
                                "data={}", output, "threads=7"};
    const char *const file = output + strlen("output=");
    (void)state;
    use_open(&use);
    assert_non_null(mkdtemp(folder));
    snprintf(output, sizeof output, "output=%s/small.h5", folder);
    if (compress_run_recipe(use.context, "recipes/oneshot_bert.yaml", sets, 5, &out,
                            &report) != COMPRESS_OK)
        fail_msg("%s", compress_messages(use.context));
    assert_said(&use, "warning: threads: the context's number of threads, 2, is used in "
                      "place of 7");
    assert_non_null(strstr(report, "\"status\": \"done\""));
    const Use made = {use.context, out};
    char *json = described(&made);
    assert_non_null(strstr(json, "\"q8\""));
    assert_int_equal(compress_load(use.context, file, &written), COMPRESS_OK);
    const Use read = {use.context, written};
    char *again = described(&read);
    assert_string_equal(again, json);
    compress_free_text(json);
    compress_free_text(again);
    compress_free_text(report);
    compress_free_model(out);
    compress_free_model(written);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0);
    use_close(&use);
}

/* A model that no file is written of has what goes with it as well. */
static void test_recipe_without_output(void **state) {
    static const char *const sets[] = {"output=null", "passes=[evaluate: {data: test}]"};
    Use use;
    CompressModel *out;
    char *tokens;
    const CompressSample text = {.text = "to be"};
    (void)state;
    use_open(&use);
    if (compress_run_recipe(use.context, "recipes/oneshot_bert.yaml", sets, 2, &out,
                            NULL) != COMPRESS_OK)
        fail_msg("%s", compress_messages(use.context));
    if (compress_tokenize(use.context, out, &text, 1, NULL, &tokens) != COMPRESS_OK)
        fail_msg("%s", compress_messages(use.context));
    compress_free_text(tokens);
    const Use made = {use.context, out};
    char *json = described(&made);
    assert_non_null(strstr(json, "\"shakespeare\"")); /* id2label */
    compress_free_text(json);
    compress_free_model(out);
    use_close(&use);
}

static void test_no_recipe(void **state) {
    Use use;
    CompressModel *out;
    char *report;
    (void)state;
    use_open(&use);
    assert_int_equal(
        compress_run_recipe(use.context, "recipes/absent.yaml", NULL, 0, &out, &report),
        COMPRESS_IO);
    assert_null(out);
    assert_null(report);
    use_close(&use);
}

/* The results of a level are had in a program that is started with it. */
static void test_processor(void **state) {
    static const char *const sets[] = {"processor=v2"};
    Use use;
    char *report;
    (void)state;
    use_open(&use);
    const CompressStatus status =
        compress_run_recipe(use.context, "recipes/minivit.yaml", sets, 1, NULL, &report);
    assert_int_equal(status, COMPRESS_USAGE);
    assert_said(&use, "error: processor: expected a level that the program was started "
                      "with, found v2");
    compress_free_text(report);
    assert_int_equal(
        compress_apply(use.context, use.model, "{processor: v2, passes: []}", NULL),
        COMPRESS_USAGE);
    use_close(&use);
}

/* ---- texts ---- */

/* NULL where something is needed is the caller's mistake, and told. */
static void test_nothing_given(void **state) {
    Use use;
    CompressModel *model;
    CompressTensor *outputs;
    size_t count;
    char *text;
    (void)state;
    use_open(&use);
    CompressContext *context = use.context;
    assert_int_equal(compress_load(context, NULL, &model), COMPRESS_USAGE);
    assert_said(&use, "error: path: expected one, found NULL");
    assert_null(model);
    assert_int_equal(compress_save(context, use.model, NULL, NULL), COMPRESS_USAGE);
    assert_int_equal(compress_save(context, NULL, "a.h5", NULL), COMPRESS_USAGE);
    assert_int_equal(compress_inspect(context, NULL, &text), COMPRESS_USAGE);
    assert_int_equal(compress_apply(context, use.model, NULL, NULL), COMPRESS_USAGE);
    assert_int_equal(compress_apply(context, NULL, "[]", NULL), COMPRESS_USAGE);
    assert_int_equal(compress_run_recipe(context, NULL, NULL, 0, NULL, NULL),
                     COMPRESS_USAGE);
    assert_int_equal(compress_run(context, NULL, NULL, 0, &outputs, &count),
                     COMPRESS_USAGE);
    assert_null(outputs);
    CompressRunner *runner;
    assert_int_equal(compress_prepare(context, NULL, &runner), COMPRESS_USAGE);
    assert_null(runner);
    assert_int_equal(compress_prepare(context, use.model, NULL), COMPRESS_USAGE);
    assert_int_equal(compress_run_prepared(context, NULL, NULL, 0, &outputs, &count),
                     COMPRESS_USAGE);
    assert_said(&use, "error: runner: expected one, found NULL");
    assert_int_equal(compress_generate(context, NULL, "a", NULL, &text), COMPRESS_USAGE);
    assert_int_equal(compress_generate(context, use.model, NULL, NULL, &text),
                     COMPRESS_MODEL); /* it writes no text */
    assert_int_equal(compress_add_plugin(context, NULL), COMPRESS_USAGE);
    assert_null(compress_copy(NULL));
    use_close(&use);
}

/* The same of arrays, of what is in them, and of where results go. */
static void test_no_array(void **state) {
    static const char *const none[] = {NULL};
    static const char RECIPE[] = "recipes/minivit.yaml";
    Use use;
    CompressModel *model;
    CompressTensor *outputs;
    size_t count;
    (void)state;
    use_open(&use);
    CompressContext *context = use.context;
    assert_int_equal(compress_run_recipe(context, RECIPE, NULL, 1, &model, NULL),
                     COMPRESS_USAGE);
    assert_said(&use, "error: sets: expected one, found NULL");
    assert_int_equal(compress_run_recipe(context, RECIPE, none, 1, &model, NULL),
                     COMPRESS_USAGE);
    assert_int_equal(compress_run_recipe(context, RECIPE, none, SIZE_MAX, NULL, NULL),
                     COMPRESS_USAGE);
    assert_int_equal(compress_run(context, use.model, NULL, 1, &outputs, &count),
                     COMPRESS_USAGE);
    assert_said(&use, "error: inputs: expected one, found NULL");
    assert_int_equal(compress_run(context, use.model, NULL, 0, NULL, &count),
                     COMPRESS_USAGE);
    assert_int_equal(compress_run(context, use.model, NULL, 0, &outputs, NULL),
                     COMPRESS_USAGE);
    assert_int_equal(compress_load(context, "a.h5", NULL), COMPRESS_USAGE);
    assert_int_equal(compress_inspect(context, use.model, NULL), COMPRESS_USAGE);
    assert_int_equal(compress_generate(context, use.model, "a", NULL, NULL),
                     COMPRESS_USAGE);
    use_close(&use);
}

static void test_no_context(void **state) {
    CompressModel *model;
    CompressTensor *outputs;
    size_t count;
    char *text;
    (void)state;
    assert_int_equal(compress_open(NULL, 1), COMPRESS_USAGE);
    assert_string_equal(compress_messages(NULL), "");
    compress_watch(NULL, NULL, NULL, NULL);
    compress_close(NULL);
    assert_int_equal(compress_load(NULL, "a.h5", &model), COMPRESS_USAGE);
    assert_null(model);
    assert_int_equal(compress_save(NULL, NULL, "a.h5", NULL), COMPRESS_USAGE);
    assert_int_equal(compress_inspect(NULL, NULL, &text), COMPRESS_USAGE);
    assert_int_equal(compress_apply(NULL, NULL, "[]", &text), COMPRESS_USAGE);
    assert_int_equal(compress_add_plugin(NULL, "a.so"), COMPRESS_USAGE);
    assert_int_equal(compress_run_recipe(NULL, "a.yaml", NULL, 0, &model, &text),
                     COMPRESS_USAGE);
    assert_int_equal(compress_run(NULL, NULL, NULL, 0, &outputs, &count), COMPRESS_USAGE);
    assert_int_equal(compress_generate(NULL, NULL, "a", NULL, &text), COMPRESS_USAGE);
    assert_null(text);
}

static void test_names(void **state) {
    (void)state;
    assert_string_equal(compress_status_text(COMPRESS_MEMORY), "out of memory");
    assert_non_null(strstr(compress_status_text(COMPRESS_USAGE), "argument or option"));
    assert_non_null(
        strstr(compress_status_text(COMPRESS_INTERRUPTED), "by the calling program"));
    assert_string_equal(compress_status_text((CompressStatus)77), "no status");
    CompressContext *context;
    assert_int_equal(compress_open(&context, -1), COMPRESS_USAGE);
    assert_null(context);
}

/* ---- hosts ---- */

/* The host's numbers have a comma. The locale is made here: none is sure to be there. */
static void test_locale(void **state) {
    (void)state;
    char folder[] = "/tmp/locales-XXXXXX", command[128];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>/dev/null", folder);
    const int made = system(command);
    setenv("LOCPATH", folder, 1);
    const bool there = made == 0 && setlocale(LC_ALL, "de_DE.UTF-8");
    Use use;
    char *json = NULL, path[64], number[8];
    snprintf(path, sizeof path, "%s/out.safetensors", folder);
    if (there) {
        use_open(&use);
        assert_int_equal(compress_save(use.context, use.model, path, NULL), COMPRESS_OK);
        assert_int_equal(
            compress_apply(use.context, use.model,
                           "[prune_ffn: {keep_ratio: 0.5, score: magnitude}]", NULL),
            COMPRESS_OK);
        assert_int_equal(compress_inspect(use.context, use.model, &json), COMPRESS_OK);
        assert_null(strstr(json, "0,1"));
        compress_free_text(json);
        use_close(&use);
        snprintf(number, sizeof number, "%.1f", 0.5);
        assert_string_equal(number, "0,5"); /* the host has what it had */
    }
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    CompressContext *context;
    CompressModel *model = NULL;
    assert_int_equal(compress_open(&context, 1), COMPRESS_OK);
    if (there) assert_int_equal(compress_load(context, path, &model), COMPRESS_OK);
    compress_free_model(model);
    compress_close(context);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    if (!there) skip();
}

/* Threads are not there behind a fork, and are not waited for: it starts its own. */
static void test_fork(void **state) {
    (void)state;
    Use use;
    if (THREAD_SANITIZED) skip(); /* whose children may have no threads at all */
    use_open(&use);
    static const char *const STEP = "[prune_ffn: {keep_ratio: 0.5, score: magnitude}]";
    assert_int_equal(compress_apply(use.context, use.model, STEP, NULL), COMPRESS_OK);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(compress_apply(use.context, use.model, STEP, NULL));
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), COMPRESS_OK);
    use_close(&use);
}

typedef struct Again {
    CompressContext *context;
    CompressStatus status;
    int called;
} Again;

static int call_again(void *self) {
    Again *again = self;
    CompressModel *model;
    again->status = compress_load(again->context, BERT, &model);
    again->called++;
    return 0;
}

/* A callback that calls the library is told so. */
static void test_callback_calls(void **state) {
    (void)state;
    Use use;
    use_open(&use);
    Again again = {.context = use.context};
    compress_watch(use.context, &again, NULL, call_again);
    assert_int_equal(compress_apply(use.context, use.model,
                                    "[prune_ffn: {keep_ratio: 0.5, score: magnitude}]",
                                    NULL),
                     COMPRESS_OK);
    assert_true(again.called > 0);
    assert_int_equal(again.status, COMPRESS_USAGE);
    use_close(&use);
}

/* What is no YAML is an argument that is wrong, and no recipe. */
static void test_broken_options(void **state) {
    (void)state;
    Use use;
    char *text;
    use_open(&use);
    assert_int_equal(compress_save(use.context, use.model, "never.h5", "{"),
                     COMPRESS_USAGE);
    assert_int_equal(compress_generate(use.context, use.model, "a", "[", &text),
                     COMPRESS_USAGE);
    use_close(&use);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_apply),
                                       cmocka_unit_test(test_recipe_without_output),
                                       cmocka_unit_test(test_companions),
                                       cmocka_unit_test(test_failures),
                                       cmocka_unit_test(test_cancelled),
                                       cmocka_unit_test(test_cancelled_run),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_recipe),
                                       cmocka_unit_test(test_no_recipe),
                                       cmocka_unit_test(test_locale),
                                       cmocka_unit_test(test_fork),
                                       cmocka_unit_test(test_callback_calls),
                                       cmocka_unit_test(test_broken_options),
                                       cmocka_unit_test(test_nothing_given),
                                       cmocka_unit_test(test_no_array),
                                       cmocka_unit_test(test_no_context),
                                       cmocka_unit_test(test_processor),
                                       cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_extends),
                                       cmocka_unit_test(test_left_alone),
                                       cmocka_unit_test(test_removed_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
