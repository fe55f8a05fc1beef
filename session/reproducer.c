/* Reproducers: see reproducer.h. */
#include "session/reproducer.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/outfolder.h"
#include "io/formats/modelfile.h"
#include "ir/irtext.h"
#include "session/recipe_document.h"
#include "session/run_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Largest weights that are kept, and largest report that is read. */
#define WEIGHTS_LIMIT ((int64_t)1 << 30)
#define REPORT_LIMIT  ((size_t)64 << 20)

static const char REPORT[] = "report.json", RECIPE[] = "recipe.yaml";
static const char MODEL[] = "before.h5", GRAPH[] = "before.ir";

/* OutFolder's is_ours. */
static bool is_ours(const char *name) {
    return strcmp(name, REPORT) == 0 || strcmp(name, RECIPE) == 0 ||
           strcmp(name, MODEL) == 0 || strcmp(name, GRAPH) == 0;
}

/* The recipe's folder as an absolute path, where it can be told. */
static const char *absolute_folder(const Session *session) {
    char *path = realpath(session->recipe.folder, NULL);
    const char *kept = arena_strdup(session->arena, path ? path : session->recipe.folder);
    free(path);
    return kept;
}

/* ---- writing ---- */

/* The report of the run, and which step it is about. */
static Tree *make_report(const Session *session, int index, bool has_model,
                         const Diag *told) {
    Arena *arena = session->arena;
    Tree *report = run_report(session, STATUS_INTERNAL, told);
    Tree *map = tree_put_map(arena, report, "reproducer");
    tree_put_int(arena, map, "step", index + 1);
    tree_put_string(arena, map, "pass", session->recipe.steps[index].pass->name);
    tree_put_string(arena, map, "folder", absolute_folder(session));
    if (session->options.model)
        tree_put_string(arena, map, "input", session->options.model);
    if (has_model) tree_put_string(arena, map, "model", MODEL);
    return report;
}

/* The first error's message, "" when there is none. */
static void find_message(void *self, const DiagEntry *entry) {
    const char **message = self;
    if (entry->kind == DIAG_ERROR && !**message) *message = entry->message;
}

/* Path of the folder: named by the recipe, the step, the input and the failure. */
static const char *make_path(const Session *session, int index, const Diag *told) {
    Arena *arena = session->arena;
    Text text = {0};
    char hash[HASH_TEXT_BYTES];
    const char *message = "";
    diag_visit(told, find_message, (void *)&message);
    if (session->recipe.source) tree_print_json(&text, session->recipe.source, 0);
    text_add(&text, "\n%d\n%s\n%s", index, session->input_hash, message);
    bytes_hash(text.data, text.length, hash);
    text_free(&text);
    const char *folder = session->options.dump_folder;
    if (!folder && session->output_count > 0)
        folder = path_folder(arena, session->outputs[0].path);
    const char *name = arena_printf(arena, "compress-reproducer-%.8s", hash);
    return folder && strcmp(folder, ".") != 0 ? path_join(arena, folder, name) : name;
}

static Status write_model(Arena *arena, const char *folder, Model *before,
                          bool *has_model, Diag *diag) {
    Text text = {0};
    Measure measure = {0};
    graph_print_values(&text, before->graph);
    const Status status =
        file_write(path_join(arena, folder, GRAPH), text.data, text.length, diag);
    text_free(&text);
    TRY(status);
    TRY(model_measure(&measure, before, diag));
    *has_model = measure.bytes <= WEIGHTS_LIMIT;
    if (!*has_model) return STATUS_OK;
    return modelfile_write(before, path_join(arena, folder, MODEL), NULL, diag);
}

static Status write_files(const Session *session, const char *folder, int index,
                          Model *before, const Diag *told, Diag *diag) {
    Arena *arena = session->arena;
    bool has_model = false;
    Text text = {0};
    recipe_document_print(&text, session->recipe.source);
    const Status status =
        file_write(path_join(arena, folder, RECIPE), text.data, text.length, diag);
    text_free(&text);
    TRY(status);
    if (before) TRY(write_model(arena, folder, before, &has_model, diag));
    return json_write(make_report(session, index, has_model, told),
                      path_join(arena, folder, REPORT), diag);
}

Status reproducer_write(const char **path, const Session *session, int index,
                        Model *before, const Diag *told, Diag *diag) {
    OutFolder *out = NULL;
    const char *temporary;
    *path = make_path(session, index, told);
    TRY(outfolder_open(&out, &temporary, *path, is_ours, diag));
    const Status status = write_files(session, temporary, index, before, told, diag);
    if (status == STATUS_OK) return outfolder_commit(out, diag);
    outfolder_abandon(out);
    return status;
}

/* ---- running it again ---- */

static const Tree *value_of(const Tree *map, const char *key, TreeKind kind,
                            const char *path, Diag *diag) {
    const Tree *value = tree_get(map, key);
    if (value && value->kind == kind) return value;
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), key,
              "expected the report of a reproducer, with a %s here",
              tree_kind_name(kind));
    return NULL;
}

/* The recipe without what it writes: a step alone writes nothing. */
static Tree *document_of(Arena *arena, const Tree *resolved) {
    Tree *document = tree_new(arena, TREE_MAP, resolved->loc);
    for (const Tree *value = resolved->first; value; value = value->next)
        if (strcmp(value->key, "output") != 0 && strcmp(value->key, "checkpoint") != 0)
            tree_append(arena, document, value->key, value->key_loc,
                        tree_copy(arena, value));
    return document;
}

static Status run_step(Session *session, const SessionOptions *options, Diag *diag) {
    TRY(session_open(session, options, diag));
    if (options->only < 1 || options->only > session->recipe.step_count)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(options->recipe), "reproducer",
                         "expected a step of the recipe, found %d", options->only);
    TRY(session_load(session, true, diag));
    return session_run(session, diag);
}

Status reproducer_replay(const char **step, Arena *arena, const char *folder,
                         const SessionOptions *with, Diag *diag) {
    const char *path = path_join(arena, folder, REPORT);
    Tree *report = NULL;
    TRY(json_read(&report, arena, path, REPORT_LIMIT, diag));
    const Tree *own = value_of(report, "reproducer", TREE_MAP, path, diag);
    const Tree *number = own ? value_of(own, "step", TREE_INT, path, diag) : NULL;
    const Tree *place = own ? value_of(own, "folder", TREE_STRING, path, diag) : NULL;
    const Tree *recipe = tree_get(report, "recipe");
    const Tree *resolved = value_of(recipe, "resolved", TREE_MAP, path, diag);
    TRY(diag_status(diag));
    if (!tree_get(own, "model"))
        return diag_fail(diag, STATUS_MODEL, LOC_FILE(path), NULL,
                         "the model that the step got is not in the folder: the recipe "
                         "has to be run as a whole");
    const Tree *input = tree_get(own, "input");
    SessionOptions options = *with;
    options.recipe = path_join(arena, folder, RECIPE);
    options.document = document_of(arena, resolved);
    options.folder = place->string;
    options.model = path_join(arena, folder, MODEL);
    options.input = input && input->kind == TREE_STRING ? input->string : NULL;
    options.only =
        number->integer > 0 && number->integer < 100000 ? (int)number->integer : -1;
    Session session = {0};
    const Status status = run_step(&session, &options, diag);
    if (session.bound && options.only >= 1 && options.only <= session.recipe.step_count)
        *step = arena_printf(arena, "step %d of %d, %s", options.only,
                             session.recipe.step_count,
                             session.recipe.steps[options.only - 1].pass->name);
    session_close(&session);
    return status;
}
