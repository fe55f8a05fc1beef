/* Files of sentence-transformers: see sentence_files.h. */
#include "io/formats/sentence_files.h"

#include "io/families/sentence.h"
#include "io/files/json.h"
#include "io/files/path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define MODULES_FILE   "modules.json"
#define POOLING_FOLDER "1_Pooling"
#define POOLING_FILE   POOLING_FOLDER "/config.json"

static const size_t FILE_BYTES_MAX = (size_t)1 << 20;
enum { MODULES_MAX = 16 };

/* The ways to pool, as sentence-transformers calls them; NULL = none of ours. */
static const struct {
    const char *key, *pooling;
} MODES[] = {{"pooling_mode_cls_token", "first"},
             {"pooling_mode_mean_tokens", "mean"},
             {"pooling_mode_max_tokens", NULL},
             {"pooling_mode_mean_sqrt_len_tokens", NULL},
             {"pooling_mode_weightedmean_tokens", NULL},
             {"pooling_mode_lasttoken", "last"}};
enum { MODE_COUNT = sizeof MODES / sizeof *MODES };

bool sentence_file_is_known(const char *name) {
    return strcmp(name, MODULES_FILE) == 0 || strcmp(name, POOLING_FOLDER "/") == 0 ||
           strcmp(name, POOLING_FILE) == 0 || strcmp(name, "2_Normalize/") == 0;
}

/* ---- reading ---- */

static Status hint_without(Status status, Diag *diag) {
    if (status == STATUS_MODEL)
        diag_hint(diag, "`model: {path: ..., pooling: mean}` pools by its own key and "
                        "leaves " MODULES_FILE " aside; `pooling: none` reads the "
                        "encoder alone");
    return status;
}

/* Reads a file in a folder that a file of the folder names. */
static Status read_inside(Tree **out, const char *folder, const char *name, Arena *arena,
                          Diag *diag) {
    const char *path = path_join(arena, folder, name);
    TRY(path_check_inside(folder, path, diag));
    return json_read(out, arena, path, FILE_BYTES_MAX, diag);
}

/* The one way to pool that a module's configuration switches on. */
static Status read_pooling(const char **pooling, const char *folder, const char *name,
                           Arena *arena, Diag *diag) {
    Tree *config;
    int chosen = -1;
    TRY(read_inside(&config, folder, arena_printf(arena, "%s/config.json", name), arena,
                    diag));
    for (int i = 0; i < MODE_COUNT; i++) {
        const Tree *value = tree_get_nonnull(config, MODES[i].key);
        if (!value || value->kind != TREE_BOOL || !value->boolean) continue;
        if (chosen >= 0)
            return diag_fail(diag, STATUS_MODEL, value->loc, MODES[i].key,
                             "expected one way to pool, found %s as well",
                             MODES[chosen].key);
        chosen = i;
    }
    if (chosen < 0)
        return diag_fail(diag, STATUS_FORMAT, config->loc, NULL,
                         "expected a way to pool: %s or others", MODES[1].key);
    *pooling = MODES[chosen].pooling;
    if (*pooling) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, config->loc, MODES[chosen].key,
                     "expected mean, first or last tokens; this way to pool is not "
                     "there yet");
}

/* Takes up one module; `place` counts them. */
static Status read_module(const Tree *module, int place, const char **pooling,
                          bool *normalize, const char *folder, Arena *arena, Diag *diag) {
    const char *type = tree_string(module, "type"), *path = tree_string(module, "path");
    if (!type || !path)
        return diag_fail(diag, STATUS_FORMAT, module->loc, NULL,
                         "expected a module with \"type\" and \"path\"");
    if (place == 0 && text_ends_with(type, ".Transformer")) return STATUS_OK;
    if (place == 1 && text_ends_with(type, ".Pooling"))
        return read_pooling(pooling, folder, path, arena, diag);
    *normalize = text_ends_with(type, ".Normalize");
    if (place == 2 && *normalize) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, module->loc, NULL,
                     "expected a Transformer, Pooling and Normalize in turn, found "
                     "'%.80s' as module %d",
                     type, place + 1);
}

Status sentence_files_read(Tree *config, const char *folder, Arena *arena, Diag *diag) {
    Tree *modules;
    const char *pooling = NULL;
    bool normalize = false;
    if (tree_get(config, SENTENCE_POOLING) || config->kind != TREE_MAP ||
        !path_is_file(path_join(arena, folder, MODULES_FILE)))
        return STATUS_OK;
    TRY(read_inside(&modules, folder, MODULES_FILE, arena, diag));
    if (modules->kind != TREE_LIST || modules->count > MODULES_MAX)
        return diag_fail(diag, STATUS_FORMAT, modules->loc, NULL,
                         "expected a list of at most %d modules", MODULES_MAX);
    int place = 0;
    for (const Tree *module = modules->first; module; module = module->next)
        TRY(hint_without(
            read_module(module, place++, &pooling, &normalize, folder, arena, diag),
            diag));
    if (!pooling) return STATUS_OK;
    tree_put_string(arena, config, SENTENCE_POOLING, pooling);
    tree_put_bool(arena, config, SENTENCE_NORMALIZE, normalize);
    return STATUS_OK;
}

/* ---- writing ---- */

static void add_module(Arena *arena, Tree *list, const char *path, const char *type) {
    Tree *module = tree_add_map(arena, list);
    tree_put_int(arena, module, "idx", list->count - 1);
    tree_put_string(arena, module, "name", arena_printf(arena, "%d", list->count - 1));
    tree_put_string(arena, module, "path", path);
    tree_put_string(arena, module, "type",
                    arena_printf(arena, "sentence_transformers.models.%s", type));
}

Tree *sentence_config_strip(Arena *arena, const Tree *config) {
    Tree *out = tree_new(arena, TREE_MAP, config->loc);
    for (const Tree *own = config->first; own; own = own->next)
        if (strcmp(own->key, SENTENCE_POOLING) != 0 &&
            strcmp(own->key, SENTENCE_NORMALIZE) != 0)
            tree_append(arena, out, own->key, own->key_loc, tree_copy(arena, own));
    return out;
}

Status sentence_files_write(const Tree *config, const char *folder, int64_t width,
                            Arena *arena, Diag *diag) {
    const char *pooling = tree_string(config, SENTENCE_POOLING);
    const Tree *normalize = tree_get(config, SENTENCE_NORMALIZE);
    if (!pooling || strcmp(pooling, "none") == 0) return STATUS_OK;
    Tree *modules = tree_new(arena, TREE_LIST, LOC_NONE);
    Tree *how = tree_new(arena, TREE_MAP, LOC_NONE);
    add_module(arena, modules, "", "Transformer");
    add_module(arena, modules, POOLING_FOLDER, "Pooling");
    if (normalize && normalize->kind == TREE_BOOL && normalize->boolean)
        add_module(arena, modules, "2_Normalize", "Normalize");
    tree_put_int(arena, how, "word_embedding_dimension", width);
    for (int i = 0; i < MODE_COUNT; i++)
        tree_put_bool(arena, how, MODES[i].key,
                      MODES[i].pooling && strcmp(MODES[i].pooling, pooling) == 0);
    tree_put_bool(arena, how, "include_prompt", true);
    const char *inner = path_join(arena, folder, POOLING_FOLDER);
    if (mkdir(inner, 0777) != 0)
        return diag_fail(diag, STATUS_IO, LOC_FILE(inner), NULL,
                         "cannot make the folder: %s", strerror(errno));
    TRY(json_write(modules, path_join(arena, folder, MODULES_FILE), diag));
    return json_write(how, path_join(arena, folder, POOLING_FILE), diag);
}
