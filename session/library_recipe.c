/* The library: passes on a model that is there, and recipes from their files. */
#include "exec/run/reserve.h"
#include "io/files/yaml.h"
#include "session/companions.h"
#include "session/library.h"
#include "session/plugin.h"
#include "session/report/run_report.h"
#include "session/session.h"

#include <string.h>

/* The document of a recipe: what the caller wrote, or the steps that it lists. */
static Status read_passes(Tree **out, const LibraryCall *call, const char *text) {
    Arena *arena = call->arena;
    Tree *written = NULL;
    TRY(yaml_parse(&written, arena, "passes", text, strlen(text), call->diag));
    *out = written;
    if (written->kind == TREE_LIST) {
        *out = tree_new(arena, TREE_MAP, written->loc);
        tree_append(arena, *out, "passes", written->loc, written);
    }
    if ((*out)->kind == TREE_MAP && !tree_get(*out, "version"))
        tree_put_int(arena, *out, "version", 1);
    return STATUS_OK;
}

/* Plans and runs the steps on a copy of the model, which takes its place at the end. */
static Status run_steps(Session *session, Model *model, Diag *diag) {
    session->source = "memory";
    session->model = model_copy(model);
    TRY(threads_reserve(session->threads, diag));
    TRY(session_plan(session, diag));
    TRY(session_run(session, diag));
    companions_give(session);
    model_swap(model, session->model);
    return STATUS_OK;
}

/* The report of a session whose recipe binds. */
static void keep_report(char **report, const Session *session, Status status,
                        const Diag *diag) {
    if (report && session->bound)
        *report = library_json(run_report(session, status, diag));
}

static Status apply(LibraryCall *call, Model *model, const char *passes, char **report) {
    Session session;
    SessionOptions options = {.recipe = "passes",
                              .folder = ".",
                              .model = "memory",
                              .no_checkpoint = true,
                              .keeps_model = true,
                              .threads = call->context->threads,
                              .watch = &call->watch};
    Tree *document;
    TRY(read_passes(&document, call, passes));
    options.document = document;
    Status status = session_open(&session, &options, call->diag);
    session.output_count = 0;
    if (status == STATUS_OK) status = run_steps(&session, model, call->diag);
    keep_report(report, &session, status, call->diag);
    session_close(&session);
    return status;
}

CompressStatus compress_apply(CompressContext *context, CompressModel *model,
                              const char *passes, char **report) {
    LibraryCall call;
    if (report) *report = NULL;
    if (!library_begin(&call, context)) return COMPRESS_USAGE;
    Status status = library_need(&call, model, "model");
    if (status == STATUS_OK) status = library_need(&call, passes, "passes");
    if (status == STATUS_OK) status = apply(&call, model->model, passes, report);
    return library_end(&call, status);
}

/* Runs a recipe; its model is taken out of the session. */
static Status run_recipe(Session *session, const SessionOptions *options, Model **out,
                         Diag *diag) {
    Status status = session_open(session, options, diag);
    if (status == STATUS_OK) status = session_load(session, true, diag);
    if (status == STATUS_OK) status = session_plan(session, diag);
    if (status == STATUS_OK) status = session_run(session, diag);
    if (status == STATUS_OK) status = session_write(session, diag);
    status = session_finish(session, status, diag);
    if (status == STATUS_OK) *out = model_copy(session->model);
    return status;
}

CompressStatus compress_run_recipe(CompressContext *context, const char *path,
                                   const char *const *sets, size_t count,
                                   CompressModel **out, char **report) {
    LibraryCall call;
    Session session;
    Model *model = NULL;
    if (out) *out = NULL;
    if (report) *report = NULL;
    if (!library_begin(&call, context)) return COMPRESS_USAGE;
    const Status given = library_need(&call, path, "path");
    if (given != STATUS_OK) return library_end(&call, given);
    SessionOptions options = {
        .recipe = path, .threads = context->threads, .watch = &call.watch};
    options.sets.items = ARENA_ARRAY(call.arena, const char *, count + 1);
    for (size_t i = 0; i < count; i++) options.sets.items[options.sets.count++] = sets[i];
    const Status status = run_recipe(&session, &options, &model, call.diag);
    keep_report(report, &session, status, call.diag);
    session_close(&session);
    if (out && model)
        *out = library_model(model);
    else
        model_destroy(model);
    return library_end(&call, status);
}

CompressStatus compress_add_plugin(CompressContext *context, const char *path) {
    LibraryCall call;
    if (!library_begin(&call, context)) return COMPRESS_USAGE;
    Status status = library_need(&call, path, "path");
    if (status == STATUS_OK) status = plugin_load(path, call.diag);
    return library_end(&call, status);
}
