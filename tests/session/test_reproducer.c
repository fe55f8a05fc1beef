/* Reproducers: what a step leaves that failed by a defect, and running it again. */
#include "exec/ops.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "session/report/reproducer.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "tests/data/reference/vit"

static const char RECIPE[] = "version: 1\n"
                             "seed: 7\n"
                             "passes:\n"
                             "  - remove_layer: {drop: [1]}\n"
                             "  - prune_heads: {keep: 2, score: magnitude}\n";

/* A pass with a defect: it removes heads and says that this changes nothing. */
static Status broken_run(PassContext *ctx, Model *model, const void *options,
                         Diag *diag) {
    TRY(pass_find("prune_heads")->run(ctx, model, options, diag));
    ctx->exact = !ctx->plan;
    return STATUS_OK;
}

/* Runs the recipe with the defect in its second step. */
static Status run_broken(Session *session, const SessionOptions *options, Pass *broken,
                         Diag *diag) {
    TRY(session_open(session, options, diag));
    *broken = *pass_find("prune_heads");
    broken->run = broken_run;
    session->recipe.steps[1].pass = broken;
    TRY(session_load(session, true, diag));
    TRY(session_plan(session, diag));
    return session_run(session, diag);
}

/* Path of the folder that the hint names. */
static void find_folder(void *self, const DiagEntry *entry) {
    char *out = self;
    const char *at = strstr(entry->message, "replay ");
    if (entry->kind == DIAG_HINT && at) sscanf(at + 7, "%199[^`]", out);
}

static void find_message(void *self, const DiagEntry *entry) {
    char *out = self;
    if (entry->kind == DIAG_ERROR && !*out) snprintf(out, 600, "%s", entry->message);
}

/* SessionOptions.step_begin: gives the step the defect. */
static void break_step(void *self, const Recipe *recipe, int index) {
    recipe->steps[index].pass = self;
}

static void test_defect(void **state) {
    (void)state;
    char place[] = "/tmp/reproducer_XXXXXX", folder[200] = "", command[400];
    assert_non_null(mkdtemp(place));
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const char *recipe = path_join(arena, place, "recipe.yaml");
    assert_ok(file_write(recipe, RECIPE, sizeof RECIPE - 1, diag), diag);
    const SessionOptions options = {.recipe = recipe,
                                    .model = MODEL,
                                    .output = path_join(arena, place, "out.h5"),
                                    .threads = 1};
    Session session;
    Pass broken;
    assert_int_equal(run_broken(&session, &options, &broken, diag), STATUS_INTERNAL);
    diag_visit(diag, find_folder, folder);
    assert_non_null(strstr(folder, "/compress-reproducer-"));
    assert_int_equal(strncmp(folder, place, strlen(place)), 0);

    /* the model before the step is that of one layer less, with all its heads */
    Model *before = NULL;
    diag_clear(diag);
    assert_ok(model_load(&before, path_join(arena, folder, "before.h5"), ops_table(),
                         true, diag),
              diag);
    const int64_t layer = 4 * (32 * 32 + 32) + 2 * 32 * 64 + 64 + 32 + 4 * 32;
    Measure measure;
    assert_ok(model_measure(&measure, before, diag), diag);
    assert_int_equal(measure.parameters, 32679 - layer);
    assert_true(path_is_file(path_join(arena, folder, "before.ir")));
    assert_true(path_is_file(path_join(arena, folder, "recipe.yaml")));
    model_destroy(before);
    session_close(&session);

    /* the same failure leaves the same folder; without the defect it is gone */
    char again[200] = "", message[600] = "";
    assert_int_equal(run_broken(&session, &options, &broken, diag), STATUS_INTERNAL);
    diag_visit(diag, find_folder, again);
    diag_visit(diag, find_message, message);
    assert_non_null(strstr(message, "claims to preserve"));
    assert_string_equal(again, folder);
    session_close(&session);
    diag_clear(diag);
    const char *step = "";
    const SessionOptions with = {.threads = 1};
    assert_ok(reproducer_replay(&step, arena, folder, &with, diag), diag);
    assert_string_equal(step, "step 2 of 2, prune_heads");

    /* with the defect still there it comes again, in the same words */
    const SessionOptions defect = {
        .threads = 1, .self = &broken, .step_begin = break_step};
    char *words = arena_strdup(arena, message);
    assert_int_equal(reproducer_replay(&step, arena, folder, &defect, diag),
                     STATUS_INTERNAL);
    message[0] = 0;
    diag_visit(diag, find_message, message);
    assert_string_equal(message, words);
    snprintf(command, sizeof command, "rm -r '%s'", place);
    assert_int_equal(system(command), 0);
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_defect)};
    return cmocka_run_group_tests_name("reproducer", tests, NULL, NULL);
}
