/* Session: the recipe as a document, with its data entries and outputs. What is done with
 * it stands in the other files of this name: session_outputs.c, session_load.c,
 * session_data.c, session_run.c. */
#include "session/session.h"

#include "exec/linalg/blas.h"
#include "exec/run/parallel.h"
#include "io/files/file.h"
#include "io/files/yaml.h"
#include "session/recipe_document.h"
#include "session/units.h"

#include <string.h>

int threads_choose(int64_t wanted) {
    const int64_t threads = wanted > 0 ? wanted : threads_available();
    const int most = blas_threads_most();
    return threads < most ? (int)threads : most;
}

/* ---- opening: the document and its data entries ---- */

/* Whether a value is plain text in which YAML would take " #" for the start of a comment.
 * A value on the command line has none. */
static bool is_text_with_hash(const char *value) {
    value += strspn(value, " ");
    if (*value && strchr("[{\"'", *value)) return false;
    const char *hash = strchr(value, '#');
    while (hash && hash > value && hash[-1] != ' ') hash = strchr(hash + 1, '#');
    return hash != NULL;
}

/* Applies one `--set key=value`; the value is YAML, or text as it is. How it is written
 * is a matter of usage; where it does not fit the recipe, the recipe that it makes is
 * wrong (STATUS_RECIPE). */
static Status apply_set(Arena *arena, Tree *document, const char *text, Diag *diag) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --set key=value, found \"%s\"", text);
    const char *key = arena_strndup(arena, text, (size_t)(equals - text));
    const char *flag = arena_printf(arena, "--set %s", key);
    const char *written = equals + 1;
    if (strcmp(key, "extends") == 0)
        return diag_fail(
            diag, STATUS_USAGE, LOC_NONE, "--set",
            "expected a key of the recipe, found extends, which is done with "
            "when the file has been read");
    Tree *value = NULL;
    if (is_text_with_hash(written)) {
        value = tree_new(arena, TREE_STRING, (Loc){flag, 1, 1});
        value->string = arena_strdup(arena, written);
    } else {
        TRY(yaml_parse(&value, arena, flag, written, strlen(written), diag));
    }
    return tree_set(arena, document, key, value, diag);
}

/* Binds every entry of `data:`; errors are only reported. */
static void bind_data(Session *session, const Tree *data, Diag *diag) {
    if (!data || data->kind != TREE_MAP) return;
    Arena *arena = session->arena;
    session->data.entries = ARENA_ARRAY(arena, DataEntry, (size_t)data->count + 1);
    for (const Tree *spec = data->first; spec; spec = spec->next) {
        DataEntry *entry = &session->data.entries[session->data.count++];
        entry->name = spec->key;
        entry->at = spec->loc;
        dataset_bind(&entry->format, &entry->options, arena, spec, session->recipe.folder,
                     diag);
    }
}

/* What --output says of the recipe's output: its path is another one. A map keeps its
 * other options where the path has the same format. */
static const Tree *output_at(const Session *session, const char *path) {
    Arena *arena = session->arena;
    const Tree *own = session->recipe.output;
    const Tree *old = own && own->kind == TREE_MAP ? tree_get(own, "path") : NULL;
    Tree *given = tree_new(arena, TREE_STRING, LOC_NONE);
    given->string = path;
    if (!old || old->kind != TREE_STRING || !output_same_format(old->string, path))
        return given;
    Tree *map = tree_copy(arena, own);
    map->key = own->key, map->parent = own->parent; /* so that paths are whole */
    tree_get(map, "path")->string = path;
    return map;
}

/* Binds where the model is to go. */
static Status bind_outputs(Session *session, Diag *diag) {
    const char *path = session->options.output;
    const Tree *output = session->recipe.output;
    const bool is_list = !path && output && output->kind == TREE_LIST;
    const int most = is_list ? output->count : 1;
    session->outputs.items = ARENA_ARRAY(session->arena, ModelOutput, (size_t)most + 1);
    if (path) {
        const Tree *given = output_at(session, path);
        session->outputs.count = 1;
        return output_bind(&session->outputs.items[0], session->arena, given,
                           given->kind == TREE_MAP ? STATUS_RECIPE : STATUS_USAGE, diag);
    }
    for (const Tree *own = is_list ? output->first : output; own; own = own->next) {
        output_bind(&session->outputs.items[session->outputs.count++], session->arena,
                    own, STATUS_RECIPE, diag);
        if (!is_list) break; /* what follows is the recipe's next key */
    }
    return diag_status(diag);
}

Status session_document(Tree **out, Arena *arena, const SessionOptions *options,
                        Diag *diag) {
    if (options->document)
        *out = tree_copy(arena, options->document);
    else
        TRY(recipe_document_read(out, arena, options->recipe, &options->env, diag));
    const bool is_map = *out && (*out)->kind == TREE_MAP;
    for (int i = 0; i < options->sets.count && is_map; i++)
        TRY(apply_set(arena, *out, options->sets.items[i], diag));
    return STATUS_OK;
}

/* Reads the document and reports everything that is wrong with it. */
static Status bind_document(Session *session, Diag *diag) {
    Arena *arena = session->arena;
    const char *path = session->options.recipe;
    const char *folder = session->options.folder;
    if (!folder) folder = file_descriptor(path) < 0 ? path_folder(arena, path) : ".";
    Tree *document = NULL;
    TRY(session_document(&document, arena, &session->options, diag));
    session->recipe.folder = folder;
    bind_data(session, tree_get(document, "data"), diag);
    recipe_bind(&session->recipe, arena, document, path, folder, diag);
    bind_outputs(session, diag);
    const bool is_map = document && document->kind == TREE_MAP;
    if (is_map && !tree_get_nonnull(document, "model") && !session->options.model)
        diag_fail(diag, STATUS_RECIPE, document->loc, "model",
                  "expected the model to start from in the recipe, or as --model of "
                  "`compress`");
    return diag_status(diag);
}

static Status read_memory(Session *session, Diag *diag) {
    const char *memory = session->options.memory;
    if (!memory ||
        (size_parse(memory, &session->memory_limit) && session->memory_limit > 0))
        return STATUS_OK;
    return diag_fail(diag, STATUS_USAGE, LOC_NONE, "--memory",
                     "expected a size like 600M or 2G, found \"%s\"", memory);
}

Status session_open(Session *session, const SessionOptions *options, Diag *diag) {
    Arena *arena = arena_create();
    *session = (Session){.options = *options,
                         .arena = arena,
                         .start = ticker_seconds(),
                         .failed = {.step = -1},
                         .planned = {.arena = arena},
                         .report = {.arena = arena}};
    TRY(read_memory(session, diag));
    TRY(bind_document(session, diag));
    session->bound = true;
    session->threads =
        threads_choose(options->threads ? options->threads : session->recipe.threads);
    return STATUS_OK;
}
