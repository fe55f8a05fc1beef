/* The library: passes on a model that is there, and recipes from their files, planned or
 * run. */
#include "exec/run/reserve.h"
#include "session/companions.h"
#include "session/library.h"
#include "session/plugin.h"
#include "session/recipe_document.h"
#include "session/report/run_report.h"
#include "session/session.h"

enum { SETS_MAX = 10000 };

/* The document of a recipe that the caller wrote, of which nobody wants a version. */
static Status read_passes(Tree **out, const LibraryCall *call, const char *text) {
    TRY(recipe_document_parse(out, call->arena, "passes", text, call->diag));
    if (!tree_get(*out, "version")) tree_put_int(call->arena, *out, "version", 1);
    return STATUS_OK;
}

/* Warns of a number of threads that is not the context's, which decides. */
static void warn_threads(const Session *session, Diag *diag) {
    const Tree *threads = tree_get(session->recipe.source, "threads");
    const int64_t wanted = session->recipe.threads;
    if (wanted == 0 || wanted == session->threads) return;
    diag_warn(diag, threads->loc, "threads",
              "the context's number of threads, %d, is used in place of %lld",
              session->threads, (long long)wanted);
}

/* Warns of what is not done for a model in memory. */
static void warn_left_alone(const Session *session, Diag *diag) {
    const Tree *source = session->recipe.source;
    const Tree *checkpoint = tree_get_nonnull(source, "checkpoint");
    warn_threads(session, diag);
    if (checkpoint)
        diag_warn(diag, checkpoint->loc, "checkpoint",
                  "no checkpoint is kept of a model in memory");
    if (session->recipe.keep == KEEP_ON_FAILURE)
        diag_warn(diag, tree_get(source, "keep")->loc, "keep",
                  "a model in memory is left as it was when a gate does not hold");
}

/* A library cannot start its host anew, so a level of processors that a recipe wants is
 * the host's to give. */
static Status check_processor(const Session *session, Diag *diag) {
    const Processor wanted = session->recipe.processor;
    if (wanted == PROCESSOR_AUTO || processor_is_fixed_to(wanted)) return STATUS_OK;
    diag_fail(diag, STATUS_USAGE, LOC_FILE(session->options.recipe), "processor",
              "expected a level that the program was started with, found %s",
              processor_name(wanted));
    if (processor_has(wanted))
        diag_hint(diag, "start it with %s, or set processor=auto",
                  processor_environment(session->arena, wanted));
    return STATUS_USAGE;
}

/* Opens a session of steps for a model in memory. To be closed whatever it returns. */
static Status open_steps(Session *session, LibraryCall *call, const CompressModel *own,
                         const char *passes) {
    Tree *document;
    *session = (Session){0};
    TRY(library_need(call, own, "model"));
    TRY(library_need(call, passes, "passes"));
    TRY(read_passes(&document, call, passes));
    const SessionOptions options = {.recipe = "passes",
                                    .document = document,
                                    .folder = ".",
                                    .model = "memory",
                                    .no_checkpoint = true,
                                    .keeps_model = true,
                                    .threads = call->context->threads,
                                    .watch = &call->watch};
    TRY(session_open(session, &options, call->diag));
    session->outputs.count = 0;
    session->input.path = "memory";
    session->model = model_copy(own->model);
    warn_left_alone(session, call->diag);
    return STATUS_OK;
}

/* Plans and runs the steps on a copy of the model, which takes its place at the end. */
static Status run_steps(Session *session, Model *model, Diag *diag) {
    TRY(check_processor(session, diag));
    TRY(threads_reserve(session->threads, diag));
    TRY(session_plan(session, diag));
    TRY(session_run(session, diag));
    companions_give(session);
    model_swap(model, session->model);
    graph_number(model->graph);
    return STATUS_OK;
}

/* The report of a session whose recipe binds. */
static void keep_report(char **report, const Session *session, Status status,
                        const Diag *diag) {
    if (report && session->bound)
        *report = library_json(run_report(session, status, diag));
}

static Status apply(LibraryCall *call, CompressModel *own, const char *passes,
                    char **report) {
    Session session;
    Status status = open_steps(&session, call, own, passes);
    if (status == STATUS_OK) status = run_steps(&session, own->model, call->diag);
    keep_report(report, &session, status, call->diag);
    session_close(&session);
    return status;
}

CompressStatus compress_apply(CompressContext *context, CompressModel *model,
                              const char *passes, char **report) {
    LibraryCall call;
    if (report) *report = NULL;
    if (!library_begin(&call, context, LIBRARY_PASSES)) return COMPRESS_USAGE;
    return library_end(&call, apply(&call, model, passes, report));
}

/* Plans a session; where a bound does not hold, what there is up to it is told, too. */
static Status plan(char **out, Session *session, Diag *diag) {
    const Status status = session_plan(session, diag);
    if (status == STATUS_OK || status == STATUS_GATE)
        *out = library_json(run_report_plan(session));
    return status;
}

static Status plan_steps(LibraryCall *call, const CompressModel *own, const char *passes,
                         char **out) {
    Session session;
    TRY(library_need(call, out, "plan"));
    Status status = open_steps(&session, call, own, passes);
    if (status == STATUS_OK) status = plan(out, &session, call->diag);
    session_close(&session);
    return status;
}

CompressStatus compress_plan(CompressContext *context, const CompressModel *model,
                             const char *passes, char **out) {
    LibraryCall call;
    if (out) *out = NULL;
    if (!library_begin(&call, context, LIBRARY_PASSES)) return COMPRESS_USAGE;
    return library_end(&call, plan_steps(&call, model, passes, out));
}

/* Runs a recipe; its model is taken out of the session. */
static Status run_recipe(Session *session, const SessionOptions *options, Model **out,
                         Diag *diag) {
    Status status = session_open(session, options, diag);
    if (status == STATUS_OK) warn_threads(session, diag);
    if (status == STATUS_OK) status = check_processor(session, diag);
    if (status == STATUS_OK) status = session_load(session, true, diag);
    if (status == STATUS_OK) status = session_plan(session, diag);
    if (status == STATUS_OK) status = session_run(session, diag);
    if (status == STATUS_OK) status = session_write(session, diag);
    status = session_finish(session, status, diag);
    if (status == STATUS_OK) {
        companions_give(session); /* also what no output could hold */
        *out = model_copy(session->model);
    }
    return status;
}

/* The caller's changes of the recipe. */
static Status list_sets(StringList *out, const LibraryCall *call, const char *const *sets,
                        size_t count) {
    if (count > SETS_MAX)
        return diag_fail(call->diag, STATUS_USAGE, LOC_NONE, "count",
                         "expected at most %d sets, found %zu", SETS_MAX, count);
    if (count > 0) TRY(library_need(call, sets, "sets"));
    const char **items = ARENA_ARRAY(call->arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++) {
        TRY(library_need(call, sets[i], "sets"));
        items[i] = sets[i];
    }
    *out = (StringList){.items = items, .count = (int)count};
    return STATUS_OK;
}

static Status run_file(LibraryCall *call, SessionOptions *options,
                       const char *const *sets, size_t count, CompressModel **out,
                       char **report) {
    Session session;
    Model *model = NULL;
    TRY(library_need(call, options->recipe, "path"));
    TRY(list_sets(&options->sets, call, sets, count));
    const Status status = run_recipe(&session, options, &model, call->diag);
    keep_report(report, &session, status, call->diag);
    session_close(&session);
    if (out && model)
        *out = library_model(model);
    else
        model_destroy(model);
    return status;
}

CompressStatus compress_run_recipe(CompressContext *context, const char *path,
                                   const char *const *sets, size_t count,
                                   CompressModel **out, char **report) {
    LibraryCall call;
    if (out) *out = NULL;
    if (report) *report = NULL;
    if (!library_begin(&call, context, LIBRARY_PASSES)) return COMPRESS_USAGE;
    SessionOptions options = {.recipe = path,
                              .keeps_model = out != NULL,
                              .threads = context->threads,
                              .watch = &call.watch};
    return library_end(&call, run_file(&call, &options, sets, count, out, report));
}

static Status plan_file(LibraryCall *call, SessionOptions *options,
                        const char *const *sets, size_t count, char **out) {
    Session session;
    TRY(library_need(call, options->recipe, "path"));
    TRY(library_need(call, out, "plan"));
    TRY(list_sets(&options->sets, call, sets, count));
    Status status = session_open(&session, options, call->diag);
    if (status == STATUS_OK) status = session_load(&session, false, call->diag);
    if (status == STATUS_OK) status = plan(out, &session, call->diag);
    session_close(&session);
    return status;
}

CompressStatus compress_plan_recipe(CompressContext *context, const char *path,
                                    const char *const *sets, size_t count, char **out) {
    LibraryCall call;
    if (out) *out = NULL;
    if (!library_begin(&call, context, LIBRARY_PASSES)) return COMPRESS_USAGE;
    SessionOptions options = {
        .recipe = path, .threads = context->threads, .watch = &call.watch};
    return library_end(&call, plan_file(&call, &options, sets, count, out));
}

CompressStatus compress_add_plugin(CompressContext *context, const char *path) {
    LibraryCall call;
    if (!library_begin(&call, context, LIBRARY_PASSES)) return COMPRESS_USAGE;
    Status status = library_need(&call, path, "path");
    if (status == STATUS_OK) status = plugin_load(path, call.diag);
    return library_end(&call, status);
}
