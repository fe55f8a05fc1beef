/* Recipe documents: variables, reading the files of one recipe, merging them, and their
 * paths. */
#include "session/recipe_document.h"

#include "io/datasets/dataset.h"
#include "io/files/file.h"
#include "io/files/yaml.h"
#include "passes/context.h"
#include "session/output_files.h"

#include <stdlib.h>
#include <string.h>

/* A file while it, or what it extends, is read. */
typedef struct OpenFile OpenFile;
struct OpenFile {
    const char *path;
    const char *folder;    /* relative to that of the recipe; "." = the same */
    const OpenFile *below; /* the file that extends it */
    int depth;
    bool memory; /* it is no file, but a text: `path` is what messages call it */
};

/* One file that was read. */
typedef struct FileFolder {
    const char *path, *folder;
} FileFolder;

typedef struct Documents {
    Arena *arena;
    const StringList *env;
    FileFolder files[EXTENDS_FILES_MAX];
    int file_count;
    Diag *diag;
} Documents;

/* ---- variables ---- */

/* Length of the name in "NAME" or "NAME=VALUE". */
static size_t env_name(const char *item) {
    return strcspn(item, "=");
}

static Status check_env(const StringList *env, Diag *diag) {
    for (int i = 0; i < env->count; i++)
        if (!yaml_is_variable(env->items[i], env_name(env->items[i])))
            return diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
                             "expected --env NAME or --env NAME=VALUE, found \"%s\"",
                             env->items[i]);
    return STATUS_OK;
}

/* YamlVariables.find. */
static Status find_variable(void *self, const char *name, YamlPlace place,
                            const char **value, Diag *diag) {
    const Documents *documents = self;
    const StringList *env = documents->env;
    const char *item = NULL;
    for (int i = 0; i < env->count; i++) /* the last one given counts */
        if (strlen(name) == env_name(env->items[i]) &&
            strncmp(env->items[i], name, strlen(name)) == 0)
            item = env->items[i];
    if (!item) {
        diag_fail(diag, STATUS_RECIPE, place.at, place.key,
                  "the variable ${%s} is not allowed", name);
        diag_hint(diag,
                  "--env %s of `compress` takes it from the environment, --env %s=VALUE "
                  "gives it; $${ stands for ${ itself",
                  name, name);
        return STATUS_RECIPE;
    }
    const char *equals = strchr(item, '=');
    *value = equals ? equals + 1 : getenv(name);
    if (*value && utf8_is_valid(*value)) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, place.at, place.key,
                     *value ? "the variable ${%s} is not UTF-8"
                            : "the variable ${%s} is not set in the environment",
                     name);
}

/* ---- merging ---- */

/* Lays a map over another, which takes its values and its place; null takes what it lies
 * over away. */
static void merge(Arena *arena, Tree *base, Tree *over) {
    for (Tree *entry = over->first, *next; entry; entry = next) {
        next = entry->next;
        const Loc key_loc = entry->key_loc;
        Tree *old = tree_get(base, entry->key);
        if (old && entry->kind == TREE_NULL) {
            tree_remove(old);
            continue;
        }
        if (old && old->kind == TREE_MAP && entry->kind == TREE_MAP)
            merge(arena, old, entry);
        else if (old)
            tree_put(arena, base, entry->key, entry);
        else
            tree_append(arena, base, entry->key, key_loc, entry);
        tree_get(base, entry->key)->key_loc = key_loc;
    }
    base->loc = over->loc;
}

/* A map without the keys that are for the reader alone. */
static Tree *without_own_keys(Arena *arena, Tree *map) {
    Tree *rest = tree_new(arena, TREE_MAP, map->loc);
    for (Tree *entry = map->first, *next; entry; entry = next) {
        next = entry->next;
        if (strcmp(entry->key, "extends") != 0 && strcmp(entry->key, "anchors") != 0)
            tree_append(arena, rest, entry->key, entry->key_loc, entry);
    }
    return rest;
}

/* ---- files ---- */

/* Appends the files from the recipe down to `file`. */
static void add_chain(Text *text, const OpenFile *file) {
    if (file->below) add_chain(text, file->below);
    text_add(text, "%s%s", file->below ? " -> " : "", file->path);
}

/* Checks that a file may be extended, too, by the innermost of those that are open. */
static Status check_chain(Documents *d, const OpenFile *file, const Tree *name) {
    const OpenFile *open = file->below;
    while (open && (open->memory || !same_file(open->path, file->path)))
        open = open->below;
    Text chain = {0};
    add_chain(&chain, file);
    Status status = STATUS_OK;
    if (open)
        status = diag_fail(d->diag, STATUS_RECIPE, name->loc, "extends",
                           "files extend each other in a circle: %s", chain.data);
    else if (file->depth > EXTENDS_DEPTH_MAX)
        status = diag_fail(d->diag, STATUS_RECIPE, name->loc, "extends",
                           "expected at most %d files that extend one another: %s",
                           EXTENDS_DEPTH_MAX, chain.data);
    else if (d->file_count == EXTENDS_FILES_MAX)
        status = diag_fail(d->diag, STATUS_RECIPE, name->loc, "extends",
                           "expected at most %d files in all", EXTENDS_FILES_MAX);
    text_free(&chain);
    return status;
}

/* A path that is relative to a folder; nothing stands in front of it for ".". */
static const char *path_in(Arena *arena, const char *folder, const char *path) {
    return strcmp(folder, ".") == 0 ? path : path_join(arena, folder, path);
}

static Status read_file(Documents *d, const OpenFile *file, Tree **out);

/* Lays the file that `name` names over what `base` holds so far. */
static Status read_extended(Documents *d, const OpenFile *file, const Tree *name,
                            Tree *base) {
    if (name->kind != TREE_STRING || !*name->string)
        return diag_fail(d->diag, STATUS_RECIPE, name->loc, tree_path(d->arena, name),
                         "expected the path of a recipe, found %s",
                         name->kind == TREE_STRING ? "an empty string"
                                                   : tree_kind_name(name->kind));
    const bool stream = file_descriptor(file->path) >= 0;
    const char *folder = stream ? "." : path_folder(d->arena, file->path);
    const char *inner = path_folder(d->arena, name->string);
    const bool same = strcmp(inner, ".") == 0;
    const OpenFile next = {.path = path_in(d->arena, folder, name->string),
                           .folder = same ? file->folder
                                          : path_in(d->arena, file->folder, inner),
                           .below = file,
                           .depth = file->depth + 1};
    TRY(check_chain(d, &next, name));
    Tree *document = NULL;
    Status status = read_file(d, &next, &document);
    if (status == STATUS_IO) diag_named(d->diag, name->loc);
    TRY(status);
    if (document->kind == TREE_MAP) merge(d->arena, base, document);
    if (document->kind == TREE_MAP || document->kind == TREE_NULL) return STATUS_OK;
    return diag_fail(d->diag, STATUS_RECIPE, document->loc, NULL,
                     "expected a map of recipe keys to extend, found %s",
                     tree_kind_name(document->kind));
}

/* Lays a document that was read over the files that it extends. */
static Status extend(Documents *d, const OpenFile *file, Tree **out) {
    d->files[d->file_count++] = (FileFolder){file->path, file->folder};
    if ((*out)->kind != TREE_MAP) return STATUS_OK;
    const Tree *extends = tree_get_nonnull(*out, "extends");
    Tree *base = tree_new(d->arena, TREE_MAP, (*out)->loc);
    const bool list = extends && extends->kind == TREE_LIST;
    for (const Tree *name = list ? extends->first : extends; name; name = name->next) {
        TRY(read_extended(d, file, name, base));
        if (!list) break; /* what follows is the document's next key */
    }
    merge(d->arena, base, without_own_keys(d->arena, *out));
    *out = base;
    return STATUS_OK;
}

static Status read_file(Documents *d, const OpenFile *file, Tree **out) {
    const YamlVariables variables = {d, find_variable};
    TRY(yaml_read_with(out, d->arena, file->path, &variables, d->diag));
    return extend(d, file, out);
}

/* ---- paths ---- */

/* Makes a path that stands in an extended file relative to the recipe's folder. */
static void move_path(const Documents *d, Tree *value) {
    if (!value || value->kind != TREE_STRING || !*value->string) return;
    for (int i = 0; i < d->file_count; i++) {
        const FileFolder *file = &d->files[i];
        if (!value->loc.file || strcmp(file->path, value->loc.file) != 0) continue;
        value->string = path_in(d->arena, file->folder, value->string);
        return;
    }
}

/* The paths of one data set, or a list of them under one key. */
static void move_data_paths(const Documents *d, const Tree *entry) {
    const Tree *name = tree_get(entry, "format");
    const DataFormat *format =
        name && name->kind == TREE_STRING ? dataformat_find(name->string) : NULL;
    for (const char *rest = format ? format->paths : NULL; rest && *rest;) {
        const size_t length = strcspn(rest, "|");
        Tree *value = tree_get(entry, arena_strndup(d->arena, rest, length));
        rest += length + (rest[length] == '|');
        const bool list = value && value->kind == TREE_LIST;
        if (!list) move_path(d, value);
        for (Tree *item = list ? value->first : NULL; item; item = item->next)
            move_path(d, item);
    }
}

/* Calls `move` with the paths among the options of steps: those of teachers. */
static void visit_step_paths(const Tree *passes, void (*move)(const void *, Tree *),
                             const void *self) {
    const Tree *step = passes && passes->kind == TREE_LIST ? passes->first : NULL;
    for (; step; step = step->next) {
        const Tree *entry = step->kind == TREE_MAP ? step->first : NULL;
        for (; entry; entry = entry->next) {
            Tree *teacher = tree_get(entry, "teacher");
            if (teacher && teacher->kind == TREE_STRING &&
                !snapshot_name(teacher->string))
                move(self, teacher);
            if (strcmp(entry->key, "repeat") == 0)
                visit_step_paths(tree_get(entry, "passes"), move, self);
        }
    }
}

static void move_step_path(const void *self, Tree *value) {
    move_path(self, value);
}

/* Where the paths of steps are moved to. */
typedef struct StepFolder {
    Arena *arena;
    const char *folder;
} StepFolder;

static void join_step_path(const void *self, Tree *value) {
    const StepFolder *to = self;
    if (*value->string) value->string = path_in(to->arena, to->folder, value->string);
}

void recipe_steps_move(Arena *arena, Tree *passes, const char *folder) {
    const StepFolder to = {arena, folder};
    visit_step_paths(passes, join_step_path, &to);
}

static void move_paths(const Documents *d, const Tree *document) {
    static const char *const MODEL_KEYS[] = {"path", "config", "weights", "names"};
    Tree *model = tree_get(document, "model");
    move_path(d, model);
    for (size_t i = 0; i < sizeof MODEL_KEYS / sizeof *MODEL_KEYS; i++)
        move_path(d, tree_get(model, MODEL_KEYS[i]));
    const Tree *data = tree_get(document, "data");
    const Tree *entry = data && data->kind == TREE_MAP ? data->first : NULL;
    for (; entry; entry = entry->next) move_data_paths(d, entry);
    visit_step_paths(tree_get(document, "passes"), move_step_path, d);
}

Status recipe_document_read(Tree **out, Arena *arena, const char *path,
                            const StringList *env, Diag *diag) {
    Documents d = {.arena = arena, .env = env, .diag = diag};
    const OpenFile file = {.path = path, .folder = ".", .depth = 1};
    const int stream = file_descriptor(path);
    TRY(check_env(env, diag));
    if (stream >= 0) TRY(file_keep_stream(stream, YAML_BYTES_MAX, path, diag));
    TRY(read_file(&d, &file, out));
    move_paths(&d, *out);
    return STATUS_OK;
}

/* A map, of what may be the list of its passes. */
static Status take_passes(Tree **document, Arena *arena, Diag *diag) {
    Tree *written = *document;
    if (written->kind == TREE_LIST) {
        *document = tree_new(arena, TREE_MAP, written->loc);
        tree_append(arena, *document, "passes", written->loc, written);
    }
    if ((*document)->kind == TREE_MAP) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, written->loc, NULL,
                     "expected a list of steps, or a map of recipe keys, found %s",
                     tree_kind_name(written->kind));
}

Status recipe_document_parse(Tree **out, Arena *arena, const char *name, const char *text,
                             Diag *diag) {
    static const StringList none;
    Documents d = {.arena = arena, .env = &none, .diag = diag};
    const OpenFile self = {.path = name, .folder = ".", .depth = 1, .memory = true};
    TRY(yaml_parse_under(out, arena, name, "passes", text, strlen(text), diag));
    TRY(take_passes(out, arena, diag));
    TRY(extend(&d, &self, out));
    move_paths(&d, *out);
    return STATUS_OK;
}

/* ---- printing ---- */

/* Writes ${ in all strings so that it is no variable. */
static void escape_variables(Arena *arena, Tree *tree) {
    if (tree->kind == TREE_STRING && strstr(tree->string, "${")) {
        Text text = {0};
        const char *rest = tree->string;
        for (const char *at; (at = strstr(rest, "${")); rest = at + 1) {
            text_bytes(&text, rest, (size_t)(at - rest));
            text_add(&text, "$$");
        }
        text_add(&text, "%s", rest);
        tree->string = arena_strdup(arena, text.data);
        text_free(&text);
    }
    if (tree->kind != TREE_MAP && tree->kind != TREE_LIST) return;
    for (Tree *child = tree->first; child; child = child->next)
        escape_variables(arena, child);
}

void recipe_document_print(Text *text, const Tree *document) {
    Arena *arena = arena_create();
    Tree *copy = tree_copy(arena, document);
    escape_variables(arena, copy);
    yaml_print(text, copy);
    arena_destroy(arena);
}
