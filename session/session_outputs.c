/* Sessions: what is to be written is checked before the long work. Keys of messages are
 * those of the command line. */
#include "io/files/file.h"
#include "session/job.h"
#include "session/output_files.h"
#include "session/reuse/step_reuse.h"

#include <string.h>
#include <sys/stat.h>

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

/* Whether a file is, or would be, part of what is written for a model: the file, or one
 * in its folder. */
static bool is_part(Arena *arena, const char *path, const ModelOutput *output) {
    if (!output->format) return false; /* it did not bind */
    return output_overlaps(arena, path, output->path);
}

/* The same of any of the run's outputs, and of what they are after a failure. */
static bool is_part_of_any(const Session *session, const char *path) {
    bool part = false;
    for (int i = 0; i < session->outputs.count; i++) {
        const ModelOutput *output = &session->outputs.items[i];
        part |= is_part(session->arena, path, output);
        if (!output->format || session->recipe.keep != KEEP_ON_FAILURE) continue;
        const ModelOutput failed = output_of_failed(session->arena, output);
        part |= is_part(session->arena, path, &failed);
    }
    return part;
}

/* Checks that what `flag` names is not the folder of the run's checkpoint, which goes
 * when the run ends, nor in it. */
static Status check_kept(const Session *session, const char *flag, const char *path,
                         Diag *diag) {
    const char *folder = step_reuse_checkpoint(session);
    if (!folder || !path || is_standard(path) ||
        !output_overlaps(session->arena, path, folder))
        return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, flag,
                     "expected another place than that of the run's checkpoint, found "
                     "'%s'",
                     path);
}

/* Checks one of the files that tell of a run, which `flag` names: that it is nothing that
 * the run reads or writes. */
static Status check_told(const Session *session, const char *flag, const char *path,
                         Diag *diag) {
    const SessionOptions *options = &session->options;
    if (is_one_file(path, options->recipe)) return fail_told(flag, "the recipe", diag);
    if (is_one_file(path, options->model)) return fail_told(flag, "the model", diag);
    TRY(check_kept(session, flag, path, diag));
    const bool taken = is_one_file(path, options->output) ||
                       (!is_standard(path) && is_part_of_any(session, path));
    return taken ? fail_told(flag, "the model's output", diag) : STATUS_OK;
}

/* ---- what the run reads ---- */

/* Adds every text of a tree that names a file or folder beside the recipe: what is not
 * one is of no account, as nothing is there that could be replaced. */
static void add_texts(StringList *read, Session *session, const Tree *tree) {
    Arena *arena = session->arena;
    for (const Tree *value = tree->first; value; value = value->next)
        add_texts(read, session, value);
    if (tree->kind != TREE_STRING || !*tree->string) return;
    const char *path = path_join(arena, session->recipe.folder, tree->string);
    struct stat info;
    if (stat(path, &info) != 0) return;
    const char **items = ARENA_ARRAY(arena, const char *, (size_t)read->count + 1);
    for (int i = 0; i < read->count; i++) items[i] = read->items[i];
    items[read->count++] = path;
    read->items = items;
}

/* Files and folders that a run reads: the recipe, its models and data sets, whatever else
 * the recipe names. */
static StringList find_read(Session *session) {
    const SessionOptions *options = &session->options;
    const char **items = ARENA_ARRAY(session->arena, const char *, 3);
    items[0] = options->recipe, items[1] = options->model, items[2] = options->input;
    StringList read = {.items = items, .count = 3};
    const Tree *recipe = session->recipe.source;
    for (const Tree *value = recipe ? recipe->first : NULL; value; value = value->next) {
        const bool written =
            strcmp(value->key, "output") == 0 || strcmp(value->key, "checkpoint") == 0;
        const bool replaced = options->model && strcmp(value->key, "model") == 0;
        if (!written && !replaced) add_texts(&read, session, value);
    }
    return read;
}

/* Whether what an output replaces may go. */
static Status check_replaced(Session *session, const char *what, const char *path,
                             OutputKind kind, const StringList *read, Diag *diag) {
    if (session->options.force) return STATUS_OK;
    return output_replace_check(what, path, kind, read, diag);
}

/* ---- report and events ---- */

/* Whether what a file that tells of the run replaces may go: it is one like it, and none
 * that the run reads, nor one in a folder that it reads. */
static Status check_told_replaced(Session *session, const char *flag, const char *path,
                                  Diag *diag) {
    const char *folder = session->recipe.folder;
    if (is_standard(path) || !path_is_file(path) || session->options.force)
        return STATUS_OK;
    const StringList read = find_read(session);
    for (int i = 0; i < read.count; i++) {
        const char *item = read.items[i];
        if (!item || !path_is_folder(item) || (folder && same_file(item, folder)))
            continue;
        if (output_overlaps(session->arena, path, item))
            return fail_told(flag, "one in a folder that is read", diag);
    }
    return output_replace_check(flag, path, OUTPUT_REPORT, &read, diag);
}

/* Checks the report's place, so that it can be written however the run ends. */
static Status check_report(Session *session, Diag *diag) {
    const char *path = session->options.report;
    if (session->told.may_report || !path) return STATUS_OK;
    if (!is_standard(path)) TRY(output_check(session->arena, "--report", path, diag));
    TRY(check_told(session, "--report", path, diag));
    TRY(check_told_replaced(session, "--report", path, diag));
    session->told.may_report = true;
    return STATUS_OK;
}

/* Opens the events, once the report's place is known to be another. */
static Status open_events(Session *session, Diag *diag) {
    const char *path = session->options.events, *report = session->options.report;
    if (session->told.events || !path) return STATUS_OK;
    if (report && (strcmp(path, report) == 0 || is_one_file(path, report)))
        return fail_told("--events", "the report's", diag);
    TRY(check_told(session, "--events", path, diag));
    TRY(check_told_replaced(session, "--events", path, diag));
    return events_open(&session->told.events, path, diag);
}

Status session_check_told(Session *session, Diag *diag) {
    session->told.checked = true;
    if (!job_leads()) return STATUS_OK;
    const Status report = check_report(session, diag);
    const Status events = open_events(session, diag);
    return report == STATUS_OK ? events : report;
}

/* Whether output i, and the model that it is after a failure, are apart from output j. */
static Status check_pair(const Session *session, int i, int j, Diag *diag) {
    Arena *arena = session->arena;
    const ModelOutput *output = &session->outputs.items[i],
                      *other = &session->outputs.items[j];
    const ModelOutput failed = output_of_failed(arena, output);
    const bool keeps = session->recipe.keep == KEEP_ON_FAILURE;
    if (same_file(other->path, output->path))
        return j > i ? STATUS_OK
                     : diag_fail(diag, STATUS_RECIPE, output->at, "output",
                                 "two outputs have the path '%s'", output->path);
    if (output_overlaps(arena, output->path, other->path) ||
        (keeps && output_overlaps(arena, failed.path, other->path)))
        return diag_fail(diag, STATUS_RECIPE, output->at, "output",
                         "'%s' and '%s' overlap", output->path, other->path);
    return STATUS_OK;
}

/* ---- folders ---- */

/* Checks a folder that the run keeps things in: it is no output, nor in one. */
static Status check_folder(const Session *session, const char *key, const char *folder,
                           Diag *diag) {
    if (!folder || !is_part_of_any(session, folder)) return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, key,
                     "expected another folder than the model's output, found '%s'",
                     folder);
}

/* Folders that the run keeps things in are apart from its outputs, and nothing else is in
 * that of its checkpoint. */
static Status check_folders(const Session *session, Diag *diag) {
    const SessionOptions *options = &session->options;
    const char *checkpoint = step_reuse_checkpoint(session);
    TRY(check_folder(session, "checkpoint.folder", checkpoint, diag));
    TRY(check_kept(session, "--cache", options->cache, diag));
    TRY(check_kept(session, "--dump-dir", options->dump_folder, diag));
    TRY(check_folder(session, "--cache", options->cache, diag));
    TRY(check_folder(session, "--dump-dir", options->dump_folder, diag));
    for (int i = 0; i < session->outputs.count; i++)
        TRY(check_kept(session, "output", session->outputs.items[i].path, diag));
    return STATUS_OK;
}

Status session_check_apart(const Session *session, Diag *diag) {
    for (int i = 0; i < session->outputs.count; i++)
        for (int j = 0; j < session->outputs.count; j++)
            if (i != j) TRY(check_pair(session, i, j, diag));
    return check_folders(session, diag);
}

Status session_check_outputs(Session *session, Diag *diag) {
    const SessionOptions *options = &session->options;
    Arena *arena = session->arena;
    TRY(session_check_told(session, diag));
    if (!job_leads()) return STATUS_OK;
    const StringList read = session->outputs.count > 0 && !options->force
                                ? find_read(session)
                                : (StringList){0};
    session->outputs.before =
        ARENA_ARRAY(arena, FileState, (size_t)session->outputs.count + 1);
    for (int i = 0; i < session->outputs.count; i++) {
        const ModelOutput *output = &session->outputs.items[i];
        const char *what = options->output ? "--output" : "output";
        const ModelOutput failed = output_of_failed(arena, output);
        TRY(output_path_check(arena, what, output, diag));
        TRY(check_replaced(session, what, output->path, OUTPUT_MODEL, &read, diag));
        session->outputs.before[i] = path_state(output->path);
        if (session->recipe.keep == KEEP_ON_FAILURE) {
            TRY(output_path_check(arena, what, &failed, diag));
            TRY(check_replaced(session, what, failed.path, OUTPUT_MODEL, &read, diag));
        }
    }
    TRY(session_check_apart(session, diag));
    if (options->dump_folder) TRY(folder_check("--dump-dir", options->dump_folder, diag));
    return STATUS_OK;
}
