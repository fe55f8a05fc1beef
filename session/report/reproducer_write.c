/* Reproducers: written. See reproducer.h. */
#include "session/report/reproducer.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/outfolder.h"
#include "io/formats/modelfile.h"
#include "ir/irtext.h"
#include "session/recipe_document.h"
#include "session/report/run_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Largest weights that are kept. */
#define WEIGHTS_LIMIT ((int64_t)1 << 30)

/* OutFolder's is_ours. */
static bool is_ours(const char *name) {
    return strcmp(name, REPRODUCER_REPORT) == 0 || strcmp(name, REPRODUCER_RECIPE) == 0 ||
           strcmp(name, REPRODUCER_MODEL) == 0 || strcmp(name, REPRODUCER_GRAPH) == 0;
}

/* The recipe's folder as an absolute path, where it can be told. */
static const char *absolute_folder(const Session *session) {
    char *path = realpath(session->recipe.folder, NULL);
    const char *kept = arena_strdup(session->arena, path ? path : session->recipe.folder);
    free(path);
    return kept;
}

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
    if (has_model) tree_put_string(arena, map, "model", REPRODUCER_MODEL);
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
    text_add(&text, "\n%d\n%s\n%s", index, session->input.hash, message);
    bytes_hash(text.data, text.length, hash);
    text_free(&text);
    const char *folder = session->options.dump_folder;
    if (!folder && session->outputs.count > 0)
        folder = path_folder(arena, session->outputs.items[0].path);
    const char *name = arena_printf(arena, "compress-reproducer-%.8s", hash);
    return folder && strcmp(folder, ".") != 0 ? path_join(arena, folder, name) : name;
}

static Status write_model(Arena *arena, const char *folder, Model *before,
                          bool *has_model, Diag *diag) {
    Text text = {0};
    Measure measure = {0};
    graph_print_values(&text, before->graph);
    const Status status = file_write(path_join(arena, folder, REPRODUCER_GRAPH),
                                     text.data, text.length, diag);
    text_free(&text);
    TRY(status);
    TRY(model_measure(&measure, before, diag));
    *has_model = measure.bytes <= WEIGHTS_LIMIT;
    if (!*has_model) return STATUS_OK;
    return modelfile_write(before, path_join(arena, folder, REPRODUCER_MODEL), NULL,
                           diag);
}

static Status write_files(const Session *session, const char *folder, int index,
                          Model *before, const Diag *told, Diag *diag) {
    Arena *arena = session->arena;
    bool has_model = false;
    Text text = {0};
    recipe_document_print(&text, session->recipe.source);
    const Status status = file_write(path_join(arena, folder, REPRODUCER_RECIPE),
                                     text.data, text.length, diag);
    text_free(&text);
    TRY(status);
    if (before) TRY(write_model(arena, folder, before, &has_model, diag));
    return json_write(make_report(session, index, has_model, told),
                      path_join(arena, folder, REPRODUCER_REPORT), diag);
}

Status reproducer_write(const char **path, const Session *session, int index,
                        Model *before, const Diag *told, Diag *diag) {
    OutFolder *out = NULL;
    const char *temporary;
    *path = make_path(session, index, told);
    TRY(outfolder_open(&out, &temporary, *path, is_ours, diag));
    const Status status = write_files(session, temporary, index, before, told, diag);
    return outfolder_end(out, status, diag);
}
