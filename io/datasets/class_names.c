/* Class names: see io/datasets/class_names.h. */
#include "io/datasets/class_names.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "ir/class_name.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

int64_t class_names_find(const StringList *names, const char *name) {
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->items[i], name) == 0) return i;
    return -1;
}

const char *const *class_names_copy(Arena *arena, const StringList *names) {
    if (names->count == 0) return NULL;
    const char **copy = ARENA_ARRAY(arena, const char *, (size_t)names->count);
    for (int i = 0; i < names->count; i++) copy[i] = arena_strdup(arena, names->items[i]);
    return copy;
}

Status class_names_check(const StringList *names, Loc at, const char *key, Diag *diag) {
    for (int i = 1; i < names->count; i++) {
        const StringList before = {names->items, i};
        if (class_names_find(&before, names->items[i]) >= 0)
            return diag_fail(diag, STATUS_RECIPE, at, key, "class '%.64s' occurs twice",
                             names->items[i]);
    }
    return STATUS_OK;
}

Status class_names_of(StringList *out, const Tree *config, const char *path, Arena *arena,
                      Diag *diag) {
    const Tree *map = tree_get(config, "id2label");
    bool named = false;
    *out = (StringList){0};
    if (!map || map->kind != TREE_MAP || map->count == 0) return STATUS_OK;
    const char **names = ARENA_ARRAY(arena, const char *, (size_t)map->count);
    for (const Tree *value = map->first; value; value = value->next) {
        char *end;
        const long label = strtol(value->key, &end, 10);
        const bool number = *value->key && *end == 0;
        if (!number || label < 0 || label >= map->count || names[label] ||
            value->kind != TREE_STRING)
            return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), "id2label",
                             "expected a name for each of the labels 0 to %d, found key "
                             "'%.64s'",
                             map->count - 1, value->key);
        names[label] = value->string;
        named |= !class_name_is_generic(value->string);
    }
    if (named) *out = (StringList){names, map->count};
    return STATUS_OK;
}

bool class_names_given(const Tree *config) {
    const Tree *names = tree_get_nonnull(config, "id2label");
    const Tree *labels = tree_get_nonnull(config, "label2id");
    if ((names && names->kind != TREE_MAP) || (labels && labels->kind != TREE_MAP))
        return true;
    for (const Tree *name = names ? names->first : NULL; name; name = name->next)
        if (name->kind != TREE_STRING || !class_name_is_generic(name->string))
            return true;
    for (const Tree *label = labels ? labels->first : NULL; label; label = label->next)
        if (!class_name_is_generic(label->key)) return true;
    return false;
}

Status class_names_read(StringList *out, const char *path, Arena *arena, Diag *diag) {
    Tree *config;
    if (path_is_folder(path)) path = path_join(arena, path, "config.json");
    TRY(json_read(&config, arena, path, CONFIG_BYTES_MAX, diag));
    return class_names_of(out, config, path, arena, diag);
}
