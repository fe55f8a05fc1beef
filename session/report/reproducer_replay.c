/* Reproducers: run again. See reproducer.h. */
#include "session/report/reproducer.h"

#include "io/files/file.h"
#include "io/files/json.h"

#include <string.h>

/* Largest report that is read. */
#define REPORT_LIMIT ((size_t)64 << 20)

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
    const char *path = path_join(arena, folder, REPRODUCER_REPORT);
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
    options.recipe = path_join(arena, folder, REPRODUCER_RECIPE);
    options.document = document_of(arena, resolved);
    options.folder = place->string;
    options.model = path_join(arena, folder, REPRODUCER_MODEL);
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
