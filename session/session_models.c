/* Opening a session: the recipe as a document, its data entries, its model. */
#include "session/session.h"

#include "exec/linalg/blas.h"
#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "io/formats/load.h"
#include "io/formats/model_vocabulary.h"
#include "session/output_files.h"

#include <string.h>
#include <sys/stat.h>

#define CONFIG_LIMIT ((size_t)16 << 20)

/* Whether a value is plain text in which YAML would take " #" for the start of a comment.
 * A value on the command line has none. */
static bool is_text_with_hash(const char *value) {
    value += strspn(value, " ");
    if (*value && strchr("[{\"'", *value)) return false;
    const char *hash = strchr(value, '#');
    while (hash && hash > value && hash[-1] != ' ') hash = strchr(hash + 1, '#');
    return hash != NULL;
}

/* Reads the value of a `--set key=value`: YAML, or text as it is. */
static Status read_value(Tree **out, Arena *arena, const char *key, const char *value,
                         Diag *diag) {
    const char *flag = arena_printf(arena, "--set %s", key);
    if (!is_text_with_hash(value))
        return yaml_parse(out, arena, flag, value, strlen(value), diag);
    *out = tree_new(arena, TREE_STRING, (Loc){flag, 1, 1});
    (*out)->string = arena_strdup(arena, value);
    return STATUS_OK;
}

/* Applies one `--set key=value`. How it is written is a matter of usage; where it does
 * not fit the recipe, the recipe that it makes is wrong (STATUS_RECIPE). */
static Status apply_set(Session *session, Tree *document, const char *text, Diag *diag) {
    Arena *arena = session->arena;
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                         "expected --set key=value, found \"%s\"", text);
    const char *key = arena_strndup(arena, text, (size_t)(equals - text));
    Tree *value = NULL;
    TRY(read_value(&value, arena, key, equals + 1, diag));
    return tree_set(arena, document, key, value, diag);
}

static Status apply_sets(Session *session, Tree *document, Diag *diag) {
    const StringList *list = &session->options.sets;
    for (int i = 0; i < list->count; i++)
        TRY(apply_set(session, document, list->items[i], diag));
    return STATUS_OK;
}

/* Binds every entry of `data:`; errors are only reported. */
static void bind_data(Session *session, const Tree *data, Diag *diag) {
    if (!data || data->kind != TREE_MAP) return;
    Arena *arena = session->arena;
    session->data = ARENA_ARRAY(arena, DataEntry, (size_t)data->count + 1);
    for (const Tree *spec = data->first; spec; spec = spec->next) {
        DataEntry *entry = &session->data[session->data_count++];
        entry->name = spec->key;
        entry->at = spec->loc;
        dataset_bind(&entry->format, &entry->options, arena, spec, session->recipe.folder,
                     diag);
    }
}

/* Reads the document and reports everything that is wrong with it. */
static Status bind_document(Session *session, const char *path, Diag *diag) {
    Arena *arena = session->arena;
    const char *folder = path_folder(arena, path);
    Tree *document = NULL;
    TRY(yaml_read(&document, arena, path, diag));
    if (document && document->kind == TREE_MAP) TRY(apply_sets(session, document, diag));
    session->recipe.folder = folder;
    bind_data(session, tree_get(document, "data"), diag);
    recipe_bind(&session->recipe, arena, document, path, folder, diag);
    if (document && document->kind == TREE_MAP && !tree_get_nonnull(document, "model") &&
        !session->options.model)
        diag_fail(diag, STATUS_RECIPE, document->loc, "model",
                  "expected the model to start from in the recipe or as --model");
    return diag_status(diag);
}

Status session_open(Session *session, const SessionOptions *options, Diag *diag) {
    Arena *arena = arena_create();
    *session = (Session){.options = *options,
                         .arena = arena,
                         .planned = {.arena = arena},
                         .report = {.arena = arena}};
    TRY(bind_document(session, options->recipe, diag));
    session->output = options->output ? options->output : session->recipe.output;
    session->threads =
        threads_choose(options->threads ? options->threads : session->recipe.threads);
    return STATUS_OK;
}

/* ---- what is to be written ---- */

/* Whether two paths name one file: the same text, or the same existing file. */
static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    if (strcmp(a, b) == 0) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* Checks everything that can be written before the long work. Keys are those of the
 * command line. */
static Status check_outputs(const Session *session, Diag *diag) {
    const SessionOptions *options = &session->options;
    const char *output = session->output, *report = options->report;
    Arena *arena = session->arena;
    TRY(output_check(arena, options->output ? "--output" : "output", output, diag));
    TRY(output_check(arena, "--report", report, diag));
    if (report && output && same_file(report, output))
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, "--report",
                         "expected another file than the model's output");
    if (options->dump_folder) TRY(folder_check("--dump-dir", options->dump_folder, diag));
    return STATUS_OK;
}

/* ---- the input model ---- */

/* Options of `model:` when it is a map with `config`. */
typedef struct BuildKeys {
    const Tree *config;
    int64_t seed;
} BuildKeys;

static const Field build_fields[] = {
    F_TREE(BuildKeys, config, "string|map",
           "path of a config.json, or the configuration itself",
           .expect = "a path or a map"),
    F_INT(BuildKeys, seed, 0, 1e15, "seed of the new weights"),
    F_END,
};

/* `model:` as a map with `path`: every key but these two is one of the configuration. */
typedef struct PathKeys {
    const char *path;
    int64_t seed;
} PathKeys;

static const Field path_fields[] = {
    F_STRING(PathKeys, path, "Hugging Face folder"),
    F_INT(PathKeys, seed, 0, 1e15, "seed of the weights of new heads"),
    F_END,
};

/* Sorts a map's keys into `keys` and the rest. */
static Status split_keys(PathKeys *keys, Tree *rest, const Tree *map, Arena *arena,
                         Diag *diag) {
    for (const Tree *value = map->first; value; value = value->next) {
        const Field *field = field_find(path_fields, value->key);
        if (field)
            TRY(field_set(field, value, keys, arena, STATUS_RECIPE, diag));
        else
            tree_append(arena, rest, value->key, value->key_loc, tree_copy(arena, value));
    }
    if (keys->path && !tree_get(rest, "config")) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, map->loc, "model",
                     "expected either `path`, a folder, or `config`");
}

/* Leaves the model that was read from `path` its shapes; it knows its vocabulary as one
 * that is read with weights does. */
static void strip_weights(Session *session, const char *path) {
    model_strip(session->model);
    if (path_is_folder(path)) vocabulary_note_folder(session->model, path);
}

/* Reads the folder that a `model:` map names, with the map's configuration. */
static Status adapt_model(Session *session, const Tree *map, bool weights, Diag *diag) {
    Arena *arena = session->arena;
    PathKeys keys = {.seed = session->recipe.seed};
    Tree *overrides = tree_new(arena, TREE_MAP, map->loc);
    TRY(split_keys(&keys, overrides, map, arena, diag));
    const HfOptions options = {overrides, true, (uint64_t)keys.seed};
    session->source = path_join(arena, session->recipe.folder, keys.path);
    TRY(model_load_with(&session->model, session->source, &options, ops_table(), weights,
                        diag));
    if (!weights) strip_weights(session, session->source);
    return STATUS_OK;
}

/* Builds the model that a `model:` map describes. */
static Status build_model(Session *session, const Tree *map, bool weights, Diag *diag) {
    BuildKeys keys = {.seed = session->recipe.seed};
    const Tree *config = map;
    if (tree_get(map, "config")) {
        TRY(fields_bind(build_fields, map, &keys, session->arena, STATUS_RECIPE, diag));
        config = keys.config;
    }
    const bool from_file = config->kind == TREE_STRING;
    if (from_file) {
        const char *path =
            path_join(session->arena, session->recipe.folder, config->string);
        Tree *read = NULL;
        TRY(json_read(&read, session->arena, path, CONFIG_LIMIT, diag));
        config = read;
    }
    if (config->kind != TREE_MAP)
        return diag_fail(diag, STATUS_RECIPE, config->loc, "model.config",
                         "expected a path or a map, found %s",
                         tree_kind_name(config->kind));
    session->source = "configuration";
    session->built = true;
    TRY(from_file ? hf_build(&session->model, config, ops_table(), diag)
                  : hf_build_written(&session->model, config, ops_table(), diag));
    if (!weights) return STATUS_OK;
    return model_init_weights(session->model, (uint64_t)keys.seed, diag);
}

Status session_load(Session *session, bool weights, Diag *diag) {
    const char *path = session->options.model;
    const Tree *model = session->recipe.model;
    if (weights) {
        TRY(check_outputs(session, diag));
        blas_init();
    }
    if (!path && tree_get(model, "path"))
        return adapt_model(session, model, weights, diag);
    if (!path && model->kind == TREE_MAP)
        return build_model(session, model, weights, diag);
    if (!path) path = path_join(session->arena, session->recipe.folder, model->string);
    session->source = path;
    TRY(model_load(&session->model, path, ops_table(), weights, diag));
    if (!weights) strip_weights(session, path);
    return STATUS_OK;
}
