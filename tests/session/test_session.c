/* A recipe run by a program without a command line, through session.h alone: what it is
 * told, what is written, and what is left behind when it goes wrong. */
#include "exec/ops.h"
#include "io/formats/load.h"
#include "session/session.h"
#include "tests/support/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL "tests/data/reference/vit"

/* A folder of its own for each test. */
typedef struct Place {
    char folder[64], recipe[96], output[96], report[96];
} Place;

static Place place_open(const char *recipe) {
    Place place = {.folder = "/tmp/session_XXXXXX"};
    assert_non_null(mkdtemp(place.folder));
    snprintf(place.recipe, sizeof place.recipe, "%s/recipe.yaml", place.folder);
    snprintf(place.output, sizeof place.output, "%s/small.h5", place.folder);
    snprintf(place.report, sizeof place.report, "%s/report.json", place.folder);
    FILE *file = fopen(place.recipe, "w");
    assert_non_null(file);
    fputs(recipe, file);
    assert_int_equal(fclose(file), 0);
    return place;
}

static void place_close(const Place *place) {
    unlink(place->recipe);
    unlink(place->output);
    unlink(place->report);
    assert_int_equal(rmdir(place->folder), 0); /* nothing else was left there */
}

static bool exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

static const char SMALLER[] = "version: 1\n"
                              "seed: 7\n"
                              "passes:\n"
                              "  - remove_layer: {drop: [1]}\n"
                              "  - prune_heads: {keep: 2, score: magnitude}\n"
                              "    label: fewer heads\n"
                              "  - prune_ffn: {keep: 40, score: magnitude}\n";
enum { STEPS = 3 };

/* What a program sees while the steps run. */
typedef struct Seen {
    int begun, ended;
    int64_t parameters[STEPS];
    int stop_before; /* a step, from 0; -1 = none */
} Seen;

static void on_begin(void *self, const Recipe *recipe, int index) {
    Seen *seen = self;
    assert_int_equal(recipe->step_count, STEPS);
    assert_int_equal(index, seen->begun++);
}

static void on_end(void *self, const Recipe *recipe, int index,
                   const StepResult *result) {
    Seen *seen = self;
    (void)recipe;
    assert_int_equal(index, seen->ended++);
    seen->parameters[index] = result->measure.parameters;
}

static bool is_cancelled(void *self) {
    const Seen *seen = self;
    return seen->stop_before >= 0 && seen->ended >= seen->stop_before;
}

static SessionOptions options_of(const Place *place, Seen *seen) {
    return (SessionOptions){.recipe = place->recipe,
                            .model = MODEL,
                            .output = place->output,
                            .report = place->report,
                            .threads = 1,
                            .self = seen,
                            .step_begin = on_begin,
                            .step_end = on_end};
}

/* All that a run is; stops at the first thing that fails. */
static Status run_all(Session *session, const SessionOptions *options, Diag *diag) {
    Status status = session_open(session, options, diag);
    if (status == STATUS_OK) status = session_load(session, true, diag);
    if (status == STATUS_OK) status = session_plan(session, diag);
    if (status == STATUS_OK) status = session_run(session, diag);
    if (status == STATUS_OK) status = session_write(session, diag);
    return session_finish(session, status, diag);
}

/* Sends what the process prints to a file; returns what was there before. */
static void redirect(int file, int kept[2]) {
    fflush(NULL);
    kept[0] = dup(STDOUT_FILENO);
    kept[1] = dup(STDERR_FILENO);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
}

static void restore(const int kept[2]) {
    fflush(NULL);
    dup2(kept[0], STDOUT_FILENO);
    dup2(kept[1], STDERR_FILENO);
    close(kept[0]);
    close(kept[1]);
}

static void test_whole_run(void **state) {
    (void)state;
    const Place place = place_open(SMALLER);
    Seen seen = {.stop_before = -1};
    const SessionOptions options = options_of(&place, &seen);
    Session session;
    Diag *diag = diag_create();
    char printed[] = "/tmp/session_printed_XXXXXX";
    const int file = mkstemp(printed);
    int kept[2];
    redirect(file, kept);
    const Status status = run_all(&session, &options, diag);
    restore(kept);
    assert_ok(status, diag);
    struct stat info;
    assert_int_equal(fstat(file, &info), 0);
    assert_int_equal(info.st_size, 0); /* nothing is printed */
    close(file);
    unlink(printed);

    assert_int_equal(seen.begun, STEPS);
    assert_int_equal(seen.ended, STEPS);
    assert_int_equal(session.planned.count, STEPS);
    assert_int_equal(session.report.count, STEPS);
    assert_int_equal(session.report.start.parameters,
                     32679); /* of the folder's tensors */
    assert_int_equal(session.report.task, TASK_CLASSIFY);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(session.report.steps[i].result.measure.parameters,
                         seen.parameters[i]);
        assert_int_equal(session.planned.steps[i].result.measure.parameters,
                         seen.parameters[i]);
    }
    /* One of 3 layers; of two heads of 4 three projections' rows and biases and the last
     * one's columns; of 24 units of 64 rows, biases and columns: width 32, head width 8.
     */
    const int64_t layer = 4 * (32 * 32 + 32) + 2 * 32 * 64 + 64 + 32 + 4 * 32;
    const int64_t heads = 3 * 16 * (32 + 1) + 32 * 16, units = 24 * (32 + 1 + 32);
    assert_int_equal(seen.parameters[0], 32679 - layer);
    assert_int_equal(seen.parameters[1], seen.parameters[0] - 2 * heads);
    assert_int_equal(seen.parameters[2], seen.parameters[1] - 2 * units);

    char hash[HASH_TEXT_BYTES];
    Model *model = NULL;
    assert_ok(model_load(&model, place.output, ops_table(), true, diag), diag);
    model_hash(model, hash);
    assert_string_equal(hash, session.outputs.hash);
    assert_true(exists(place.report));
    model_destroy(model);
    session_close(&session);
    diag_destroy(diag);
    place_close(&place);
}

/* Sessions share nothing: two of them, step by step in turns, give what one gives alone.
 */
static void test_side_by_side(void **state) {
    (void)state;
    const Place places[] = {place_open(SMALLER), place_open(SMALLER)};
    char *const fewer[] = {"passes.1.prune_heads.keep=1"};
    Seen seen[] = {{.stop_before = -1}, {.stop_before = -1}, {.stop_before = -1}};
    SessionOptions options[] = {options_of(&places[0], &seen[0]),
                                options_of(&places[1], &seen[1])};
    options[1].sets = (StringList){(const char **)fewer, 1};
    Session session[2], alone;
    Diag *diag = diag_create();
    for (int i = 0; i < 2; i++)
        assert_ok(session_open(&session[i], &options[i], diag), diag);
    for (int i = 0; i < 2; i++) assert_ok(session_load(&session[i], true, diag), diag);
    for (int i = 0; i < 2; i++) assert_ok(session_plan(&session[i], diag), diag);
    for (int i = 1; i >= 0; i--) assert_ok(session_run(&session[i], diag), diag);
    for (int i = 0; i < 2; i++) assert_ok(session_write(&session[i], diag), diag);
    assert_string_not_equal(session[0].outputs.hash, session[1].outputs.hash);
    assert_true(seen[1].parameters[1] < seen[0].parameters[1]);
    options[0].self = &seen[2];
    assert_ok(run_all(&alone, &options[0], diag), diag);
    assert_string_equal(alone.outputs.hash, session[0].outputs.hash);
    session_close(&alone);
    for (int i = 0; i < 2; i++) {
        session_close(&session[i]);
        place_close(&places[i]);
    }
    diag_destroy(diag);
}

/* A program that stops in the middle, and may then close. */
static void test_cancelled(void **state) {
    (void)state;
    const Place place = place_open(SMALLER);
    Seen seen = {.stop_before = 1};
    const Watch watch = {.self = &seen, .cancelled = is_cancelled};
    SessionOptions options = options_of(&place, &seen);
    options.watch = &watch;
    Session session;
    Diag *diag = diag_create();
    assert_int_equal(run_all(&session, &options, diag), STATUS_INTERRUPTED);
    assert_int_equal(seen.ended, 1);
    assert_false(exists(place.output));
    assert_true(exists(place.report));
    session_close(&session);
    diag_destroy(diag);
    place_close(&place);
}

/* What is wrong is told all together, in the Diag alone, and the session can be closed
 * wherever it stopped. */
static void test_faults(void **state) {
    (void)state;
    static const struct {
        const char *recipe;
        Status status;
        int errors;
        const char *part;
    } FAULTS[] = {
        {"version: 1\npasses:\n  - prune_heads: {keep: none}\n  - no_such_pass\n",
         STATUS_RECIPE, 2, "unknown pass \"no_such_pass\""},
        {"version: 1\npasses:\n  - remove_layer: {drop: [9]}\n", STATUS_MODEL, 1,
         "remove_layer"},
        {"version: 1\npasses:\n  - fold_token_type\n", STATUS_MODEL, 1,
         "fold_token_type"},
        {"version: 1\nmodel: [\n", STATUS_RECIPE, 1, "recipe.yaml:3"}};
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        const Place place = place_open(FAULTS[i].recipe);
        Seen seen = {.stop_before = -1};
        const SessionOptions options = options_of(&place, &seen);
        Session session;
        Diag *diag = diag_create();
        const Status status = run_all(&session, &options, diag);
        char *text = diag_text(diag);
        if (status != FAULTS[i].status || diag_errors(diag) != FAULTS[i].errors ||
            !strstr(text, FAULTS[i].part))
            fail_msg("case %zu: status %d, %d errors:\n%s", i, status, diag_errors(diag),
                     text);
        assert_int_equal(seen.begun, 0);
        assert_false(exists(place.output));
        free(text);
        session_close(&session);
        diag_destroy(diag);
        place_close(&place);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_run),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
