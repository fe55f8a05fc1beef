/* Sessions: the input model is read or built. */
#include "exec/linalg/blas.h"
#include "exec/linalg/products.h"
#include "exec/ops.h"
#include "exec/processor.h"
#include "exec/run/ranks.h"
#include "exec/run/reserve.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/formats/hf.h"
#include "io/formats/load.h"
#include "io/formats/model_vocabulary.h"
#include "io/formats/modelfile.h"
#include "ir/resident.h"
#include "ir/version.h"
#include "session/job.h"
#include "session/memory.h"
#include "session/output_files.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_LIMIT ((size_t)16 << 20)

/* Options of `model:` when it is a map with `config`. */
typedef struct BuildKeys {
    const Tree *config;
    const char *weights, *names;
    int64_t seed;
} BuildKeys;

static const Field build_fields[] = {
    F_TREE(BuildKeys, config, "string|map",
           "path of a config.json, or the configuration itself",
           .expect = "a path or a map"),
    F_STRING(BuildKeys, weights, "file or folder of its weights, which are drawn else",
             .nullable = true),
    F_STRING(BuildKeys, names, "name map of the weights: docs/name-maps.md",
             .nullable = true),
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

void session_strip(Model *model) {
    model_strip(model);
    vocabulary_note_own(model);
}

/* Reads the folder that a `model:` map names, with the map's configuration. */
static Status adapt_model(Session *session, const Tree *map, bool weights, Diag *diag) {
    Arena *arena = session->arena;
    PathKeys keys = {.seed = session->recipe.seed};
    Tree *overrides = tree_new(arena, TREE_MAP, map->loc);
    TRY(split_keys(&keys, overrides, map, arena, diag));
    const HfOptions options = {overrides, true, (uint64_t)keys.seed};
    session->input.path = path_join(arena, session->recipe.folder, keys.path);
    TRY(model_load_with(&session->model, session->input.path, &options, ops_table(),
                        weights, diag));
    if (!weights) session_strip(session->model);
    return STATUS_OK;
}

/* Reads the weights of a configuration from a file of their own. */
static Status read_separate(Session *session, const BuildKeys *keys, const Tree *config,
                            bool weights, Diag *diag) {
    Arena *arena = session->arena;
    const char *folder = session->recipe.folder;
    const SeparateFiles files = {
        .config = config,
        .written = keys->config->kind == TREE_MAP,
        .weights = path_join(arena, folder, keys->weights),
        .names = keys->names ? path_join(arena, folder, keys->names) : NULL,
        .options = {.create_heads = true, .seed = (uint64_t)keys->seed}};
    session->input.path = files.weights;
    TRY(model_load_separate(&session->model, &files, ops_table(), weights, diag));
    if (!weights) session_strip(session->model);
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
    if (keys.weights) return read_separate(session, &keys, config, weights, diag);
    if (keys.names)
        return diag_fail(diag, STATUS_RECIPE, map->loc, "model.names",
                         "expected `weights`, whose names these are");
    session->input.path = "configuration";
    session->input.built = true;
    TRY(hf_build_from(&session->model, config, from_file ? CONFIG_FILE : CONFIG_WRITTEN,
                      ops_table(), diag));
    if (!weights) return STATUS_OK;
    return model_init_weights(session->model, (uint64_t)keys.seed, diag);
}

/* Reads or builds the model that the recipe or the options name. */
static Status read_model(Session *session, bool weights, Diag *diag) {
    const char *path = session->options.model;
    const Tree *model = session->recipe.model;
    if (!path && tree_get(model, "path"))
        return adapt_model(session, model, weights, diag);
    if (!path && model->kind == TREE_MAP)
        return build_model(session, model, weights, diag);
    if (!path) path = path_join(session->arena, session->recipe.folder, model->string);
    session->input.path = path;
    TRY(model_load(&session->model, path, ops_table(), weights, diag));
    if (!weights) session_strip(session->model);
    return STATUS_OK;
}

/* The same; a fault in a file says which line of the recipe names it. */
static Status load_model(Session *session, bool weights, Diag *diag) {
    const Status status = read_model(session, weights, diag);
    if (status != STATUS_OK && !session->options.model)
        diag_named(diag, session->recipe.model->loc);
    return status;
}

/* Whether somebody wants the run to end: asked where a report or events are to tell of
 * it, also before the first step. */
static Status check_stop(const Session *session, Diag *diag) {
    const Watch *watch = session->options.watch;
    const bool told = session->options.report || session->options.events;
    if (!told || !watch || !watch->cancelled || !watch->cancelled(watch->self))
        return STATUS_OK;
    return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
}

/* Event: the run begins. */
static void tell_begin(Session *session) {
    Arena *arena = session->arena;
    Tree *values = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, values, "recipe", session->options.recipe);
    tree_put_int(arena, values, "steps", session->recipe.step_count);
    events_put(session->told.events, "run_begin", values);
}

/* Steps without data use tensors one by one: the model need not fit into memory. */
static void bound_memory(Session *session) {
    const ModelOutput *output = session->outputs.items;
    if (memory_streams(session))
        resident_bound(RESIDENT_BYTES, session->outputs.count > 0
                                           ? output_folder(session->arena, output)
                                           : NULL);
}

/* Ranks that would not come to the same bytes do not begin: their programs, kernels or
 * recipes are not the same. */
static Status check_ranks(const Session *session, Diag *diag) {
    if (ranks_count() == 1) return STATUS_OK;
    const Loc at = LOC_FILE(session->options.recipe);
    Arena *arena = session->arena;
    const char *name = products_name(), *products = name ? name : "OpenBLAS";
    const char *level = processor_name(processor_level());
    const char *kernels = name ? level : arena_printf(arena, "%s %s", level, blas_core());
    Text recipe = {0};
    tree_print_json(&recipe, session->recipe.source, 0);
    Status status = job_same(COMPRESS_VERSION_TEXT, STATUS_USAGE, LOC_NONE,
                             "this program, " COMPRESS_VERSION_TEXT ",", NULL, diag);
    if (status == STATUS_OK)
        status = job_same(products, STATUS_USAGE, LOC_NONE,
                          arena_printf(arena, "what multiplies matrices, %s,", products),
                          "--products has to name the same library on all ranks", diag);
    if (status == STATUS_OK)
        status = job_same(
            kernels, STATUS_USAGE, LOC_NONE,
            arena_printf(arena, "the set of kernels, %s,", kernels),
            "--processor names a level that all machines have, for the same bytes on all",
            diag);
    if (status == STATUS_OK)
        status =
            job_same(recipe.data, STATUS_RECIPE, at, "the recipe",
                     "every rank reads the file by itself, and its environment", diag);
    text_free(&recipe);
    return status;
}

static Status load_session(Session *session, bool weights, Diag *diag) {
    if (weights) {
        TRY(check_ranks(session, diag));
        TRY(session_check_outputs(session, diag));
        tell_begin(session);
        TRY(check_stop(session, diag));
        blas_init();
        TRY(threads_reserve(session->threads, diag));
        bound_memory(session);
    } else {
        TRY(session_check_apart(session, diag));
    }
    TRY(load_model(session, weights, diag));
    session->input.bytes = session->model->file_bytes;
    return weights ? check_stop(session, diag) : STATUS_OK;
}

Status session_load(Session *session, bool weights, Diag *diag) {
    return job_agree(session, load_session(session, weights, diag), diag);
}
