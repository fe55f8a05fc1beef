/* Sessions: what is to be written is checked before the long work. Keys of messages are
 * those of the command line. */
#include "io/files/file.h"
#include "session/output_files.h"
#include "session/session.h"

#include <string.h>
#include <sys/stat.h>

/* Whether two paths name one file: the same existing file, or the same name in one
 * folder. */
static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    Arena *arena = arena_create();
    const char *last = strrchr(a, '/'), *other = strrchr(b, '/');
    if (stat(a, &x) != 0 || stat(b, &y) != 0) {
        const bool named = strcmp(last ? last + 1 : a, other ? other + 1 : b) == 0;
        if (!named || stat(path_folder(arena, a), &x) != 0 ||
            stat(path_folder(arena, b), &y) != 0)
            x.st_ino = y.st_ino + 1;
    }
    arena_destroy(arena);
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool is_standard(const char *path) {
    return strcmp(path, "-") == 0;
}

/* Whether two files that the run reads or writes are one; NULL and standard streams are
 * none. */
static bool is_one_file(const char *a, const char *b) {
    return a && b && !is_standard(a) && !is_standard(b) && same_file(a, b);
}

static Status fail_told(const char *flag, const char *whose, Diag *diag) {
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, flag, "expected another file than %s",
                     whose);
}

/* Checks one of the files that tell of a run, which `flag` names: that it is nothing that
 * the run reads or writes. */
static Status check_told(const Session *session, const char *flag, const char *path,
                         Diag *diag) {
    const SessionOptions *options = &session->options;
    if (is_one_file(path, options->recipe)) return fail_told(flag, "the recipe", diag);
    if (is_one_file(path, options->model)) return fail_told(flag, "the model", diag);
    bool taken = is_one_file(path, options->output);
    for (int i = 0; i < session->output_count; i++)
        taken |= is_one_file(path, session->outputs[i].path);
    return taken ? fail_told(flag, "the model's output", diag) : STATUS_OK;
}

/* Checks the report's place, so that it can be written however the run ends. */
static Status check_report(Session *session, Diag *diag) {
    const char *path = session->options.report;
    if (session->may_report || !path) return STATUS_OK;
    if (!is_standard(path)) TRY(output_check(session->arena, "--report", path, diag));
    TRY(check_told(session, "--report", path, diag));
    session->may_report = true;
    return STATUS_OK;
}

/* Opens the events, once the report's place is known to be another. */
static Status open_events(Session *session, Diag *diag) {
    const char *path = session->options.events, *report = session->options.report;
    if (session->events || !path) return STATUS_OK;
    if (report && (strcmp(path, report) == 0 || is_one_file(path, report)))
        return fail_told("--events", "the report's", diag);
    TRY(check_told(session, "--events", path, diag));
    return events_open(&session->events, path, diag);
}

Status session_check_told(Session *session, Diag *diag) {
    session->checked = true;
    const Status report = check_report(session, diag);
    const Status events = open_events(session, diag);
    return report == STATUS_OK ? events : report;
}

Status session_check_outputs(Session *session, Diag *diag) {
    const SessionOptions *options = &session->options;
    Arena *arena = session->arena;
    TRY(session_check_told(session, diag));
    for (int i = 0; i < session->output_count; i++) {
        const ModelOutput *output = &session->outputs[i];
        const char *what = options->output ? "--output" : "output";
        const ModelOutput failed = output_of_failed(arena, output);
        TRY(output_path_check(arena, what, output, diag));
        if (session->recipe.keep == KEEP_ON_FAILURE)
            TRY(output_path_check(arena, what, &failed, diag));
        for (int j = 0; j < i; j++)
            if (same_file(session->outputs[j].path, output->path))
                return diag_fail(diag, STATUS_RECIPE, output->at, "output",
                                 "two outputs have the path '%s'", output->path);
    }
    if (options->dump_folder) TRY(folder_check("--dump-dir", options->dump_folder, diag));
    return STATUS_OK;
}
