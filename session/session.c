/* Session: what the pipeline asks of the recipe's data sets and models, running it, and
 * writing what comes of it. */
#include "session/session.h"

#include "exec/ops.h"
#include "exec/run/parallel.h"
#include "io/files/file.h"
#include "io/formats/load.h"
#include "io/formats/model_vocabulary.h"
#include "io/formats/modelfile.h"

#include <string.h>

int threads_choose(int64_t wanted) {
    return wanted > 0 ? (int)wanted : threads_available();
}

/* Opens all data sets that are not open, reporting all errors. */
static Status open_data(Session *session, Diag *diag) {
    Status status = STATUS_OK;
    for (int i = 0; i < session->data_count; i++) {
        DataEntry *entry = &session->data[i];
        if (entry->batches) continue;
        Status opened =
            dataset_open(&entry->batches, entry->format, entry->options, entry->at, diag);
        if (opened != STATUS_OK) diag_note(diag, "data set \"%s\"", entry->name);
        if (status == STATUS_OK) status = opened;
    }
    return status;
}

/* Resources.data. */
static Status find_data(Resources *self, const char *name, const Model *model, Loc at,
                        Batches **out, Diag *diag) {
    Session *session = (Session *)self;
    for (int i = 0; i < session->data_count; i++) {
        DataEntry *entry = &session->data[i];
        if (strcmp(entry->name, name) != 0) continue;
        *out = entry->batches;
        return *out ? session_check_data(session, entry, model, at, diag) : STATUS_OK;
    }
    return diag_fail(diag, STATUS_RECIPE, at, NULL, "unknown data set \"%s\"", name);
}

/* A model by path, read once; `shapes` = without weights. */
static Status other_model(Session *session, const char *path, bool shapes, Loc at,
                          Model **out, Diag *diag) {
    path = path_join(session->arena, session->recipe.folder, path);
    for (OtherModel *other = session->others; other; other = other->next) {
        if (strcmp(other->path, path) != 0 || other->shapes != shapes) continue;
        *out = other->model;
        return STATUS_OK;
    }
    Model *model = NULL;
    Status status = model_load(&model, path, ops_table(), !shapes, diag);
    if (status != STATUS_OK) {
        diag_note(diag, "named in %s:%d", at.file ? at.file : "the recipe", at.line);
        return status;
    }
    if (shapes) model_strip(model);
    if (path_is_folder(path)) vocabulary_note_folder(model, path);
    OtherModel *other = ARENA_NEW(session->arena, OtherModel);
    *other = (OtherModel){path, shapes, model, session->others};
    session->others = other;
    *out = model;
    return STATUS_OK;
}

/* Resources.model. */
static Status find_model(Resources *self, const char *path, bool shapes, Loc at,
                         Model **out, Diag *diag) {
    Session *session = (Session *)self;
    *out = shapes ? session->input_shapes : session->input;
    return path ? other_model(session, path, shapes, at, out, diag) : STATUS_OK;
}

/* ---- plan and run ---- */

/* PipelineHooks.step_end when planning. */
static void keep_planned(void *self, const Recipe *recipe, int index,
                         const StepResult *result) {
    report_add(&((Session *)self)->planned, recipe, index, result);
}

/* Gives the steps what they may ask for. */
static Status connect(Session *session, Diag *diag) {
    session->resources.data = find_data;
    session->resources.model = find_model;
    session->resources.arena = session->arena;
    return session->options.without_data ? STATUS_OK : open_data(session, diag);
}

Status session_plan(Session *session, Diag *diag) {
    TRY(connect(session, diag));
    session->input_shapes = model_copy(session->model);
    model_strip(session->input_shapes);
    Model *model = model_copy(session->input_shapes);
    const PipelineOptions options = {.plan = true,
                                     .threads = session->threads,
                                     .hooks = {.self = session, .step_end = keep_planned},
                                     .resources = &session->resources};
    Status status = model_measure(&session->planned.start, model, diag);
    session->report.start = session->planned.start;
    if (status == STATUS_OK)
        status = pipeline_run(model, &session->recipe, &options, diag);
    model_destroy(model);
    return status;
}

/* PipelineHooks when running. */
static void begin_step(void *self, const Recipe *recipe, int index) {
    const SessionOptions *options = &((Session *)self)->options;
    if (options->step_begin) options->step_begin(options->self, recipe, index);
}

static void end_step(void *self, const Recipe *recipe, int index,
                     const StepResult *result) {
    Session *session = self;
    const SessionOptions *options = &session->options;
    report_add(&session->report, recipe, index, result);
    if (options->step_end) options->step_end(options->self, recipe, index, result);
}

static Status dump_step(void *self, int index, const char *pass, const char *when,
                        const char *text, size_t length, Diag *diag) {
    const Session *session = self;
    const char *name =
        arena_printf(session->arena, "%02d-%s-%s.ir", index + 1, pass, when);
    const char *path = path_join(session->arena, session->options.dump_folder, name);
    return file_write(path, text, length, diag);
}

Status session_run(Session *session, Diag *diag) {
    const SessionOptions *wanted = &session->options;
    const Watch *watch = wanted->watch;
    TRY(connect(session, diag));
    session->input = model_copy(session->model);
    PipelineOptions options = {
        .dump = wanted->dump,
        .dump_values = wanted->dump_values,
        .threads = session->threads,
        .watch = watch,
        .hooks = {.self = session, .step_begin = begin_step, .step_end = end_step},
        .resources = &session->resources};
    if (wanted->dump_folder) options.hooks.dump = dump_step;
    TRY(pipeline_run(session->model, &session->recipe, &options, diag));
    if (watch && watch->cancelled && watch->cancelled(watch->self))
        return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
    return STATUS_OK;
}

/* ---- writing ---- */

/* A place for warnings in the report. */
typedef struct WarningList {
    Arena *arena;
    Tree *list;
} WarningList;

static void keep_warning(void *self, const char *line) {
    const WarningList *warnings = self;
    Tree *text = tree_new(warnings->arena, TREE_STRING, LOC_NONE);
    text->string = arena_strdup(warnings->arena, line);
    tree_append(warnings->arena, warnings->list, NULL, LOC_NONE, text);
}

static Status write_report(const Session *session, Diag *diag) {
    Arena *arena = session->arena;
    Tree *map = report_tree(&session->report, true);
    Tree *output = tree_new(arena, TREE_MAP, LOC_NONE);
    if (session->output) {
        tree_put_string(arena, output, "path", session->output);
        tree_put_int(arena, output, "file_bytes", (int64_t)session->file_bytes);
    }
    tree_put_string(arena, output, "hash", session->hash);
    tree_append(arena, map, "output", LOC_NONE, output);
    WarningList warnings = {arena, tree_new(arena, TREE_LIST, LOC_NONE)};
    diag_warnings(diag, keep_warning, &warnings);
    tree_append(arena, map, "warnings", LOC_NONE, warnings.list);
    Text text = {0};
    tree_print_json(&text, map, 2);
    text_add(&text, "\n");
    Status status = file_write(session->options.report, text.data, text.length, diag);
    text_free(&text);
    return status;
}

Status session_write(Session *session, Diag *diag) {
    model_hash(session->model, session->hash);
    if (session->output)
        TRY(modelfile_write(session->model, session->output, &session->file_bytes, diag));
    return session->options.report ? write_report(session, diag) : STATUS_OK;
}

void session_close(Session *session) {
    for (OtherModel *other = session->others; other; other = other->next)
        model_destroy(other->model);
    for (int i = 0; i < session->data_count; i++)
        batches_destroy(session->data[i].batches);
    model_destroy(session->input_shapes);
    model_destroy(session->input);
    model_destroy(session->model);
    arena_destroy(session->arena);
}
