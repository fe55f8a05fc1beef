/* Expansion: see yaml_expand.h. Every function does work in proportion to what it gives,
 * which its callers bound. */
#include "io/files/yaml_expand.h"

#include <string.h>

#define MERGE_KEY "<<"

static bool holds_children(const Tree *value) {
    return value->kind == TREE_LIST || value->kind == TREE_MAP;
}

ValueSize value_size(const Tree *value) {
    ValueSize size = {.values = 1};
    if (value->kind == TREE_STRING) size.bytes = strlen(value->string);
    if (!holds_children(value)) return size;
    for (const Tree *child = value->first; child; child = child->next) {
        const ValueSize inner = value_size(child);
        size.values += inner.values;
        size.bytes += inner.bytes + (child->key ? strlen(child->key) : 0);
        if (inner.depth > size.depth) size.depth = inner.depth;
    }
    size.depth++;
    return size;
}

Tree *value_copy(Arena *arena, const Tree *value) {
    Tree *copy = tree_new(arena, value->kind, value->loc);
    if (!holds_children(value)) {
        *copy = *value;
        copy->key = NULL;
        copy->parent = copy->next = NULL;
        return copy;
    }
    for (const Tree *child = value->first; child; child = child->next)
        tree_append(arena, copy, child->key, child->key_loc, value_copy(arena, child));
    return copy;
}

/* ---- merge keys ---- */

/* Takes from a map the values under keys that neither `map` nor `found` has. */
static void take_entries(Arena *arena, Tree *found, const Tree *map, Tree *from) {
    for (Tree *entry = from->first, *next; entry; entry = next) {
        next = entry->next;
        if (!tree_get(map, entry->key) && !tree_get(found, entry->key))
            tree_append(arena, found, entry->key, entry->key_loc, entry);
    }
}

static Status fail_merge(Arena *arena, const Tree *value, Diag *diag) {
    return diag_fail(diag, STATUS_RECIPE, value->loc, tree_path(arena, value),
                     "expected a map, or a list of maps, to merge, found %s",
                     tree_kind_name(value->kind));
}

Status merge_key_expand(Arena *arena, Tree *map, Diag *diag) {
    Tree *merged = tree_get(map, MERGE_KEY);
    if (!merged) return STATUS_OK;
    if (!holds_children(merged)) return fail_merge(arena, merged, diag);
    Tree *found = tree_new(arena, TREE_MAP, merged->loc);
    if (merged->kind == TREE_MAP) {
        take_entries(arena, found, map, merged);
    } else {
        for (Tree *item = merged->first; item; item = item->next) {
            if (item->kind != TREE_MAP) return fail_merge(arena, item, diag);
            take_entries(arena, found, map, item);
        }
    }
    Tree *entry = map->first, *next;
    map->first = map->last = NULL;
    map->count = 0;
    map->index = NULL;
    for (; entry; entry = next) {
        next = entry->next;
        if (entry != merged) {
            tree_append(arena, map, entry->key, entry->key_loc, entry);
            continue;
        }
        for (Tree *from = found->first, *rest; from; from = rest) {
            rest = from->next;
            tree_append(arena, map, from->key, from->key_loc, from);
        }
    }
    return STATUS_OK;
}

/* ---- variables ---- */

bool yaml_is_variable(const char *name, size_t length) {
    static const char LETTERS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    for (size_t i = 0; i < length; i++) {
        const bool digit = i > 0 && name[i] >= '0' && name[i] <= '9';
        if (!digit && (!name[i] || !strchr(LETTERS, name[i]))) return false;
    }
    return length > 0;
}

/* Reads the variable that `text` begins with, "${NAME}"; *length: of its name. */
static Status read_variable(const VariableText *in, const char *text, size_t *length,
                            Diag *diag) {
    *length = strcspn(text + 2, "}");
    if (text[2 + *length] == '}' && yaml_is_variable(text + 2, *length)) return STATUS_OK;
    diag_fail(diag, STATUS_RECIPE, in->place.at, in->place.key,
              "expected ${NAME}, found \"%.40s\"", text);
    diag_hint(diag, "$${ stands for ${ itself");
    return STATUS_RECIPE;
}

Status variables_expand(Text *out, VariableText *in, const YamlVariables *variables,
                        size_t limit, Diag *diag) {
    const char *rest = in->text;
    Arena *arena = arena_create();
    Status status = STATUS_OK;
    while (status == STATUS_OK && out->length <= limit) {
        const char *at = strstr(rest, "${");
        if (!at) break;
        const bool escaped = at > rest && at[-1] == '$';
        text_bytes(out, rest, (size_t)(at - rest) - escaped);
        size_t length = 0;
        const char *value = "${";
        if (!escaped) {
            status = read_variable(in, at, &length, diag);
            if (status != STATUS_OK) break;
            const char *name = arena_strndup(arena, at + 2, length);
            status = variables->find(variables->self, name, in->place, &value, diag);
            in->alone = at == in->text && !at[length + 3];
        }
        if (status == STATUS_OK) text_bytes(out, value, strlen(value));
        rest = at + (escaped ? 2 : length + 3);
    }
    if (status == STATUS_OK) text_bytes(out, rest, strlen(rest));
    arena_destroy(arena);
    if (status != STATUS_OK || out->length <= limit) return status;
    return diag_fail(diag, STATUS_RECIPE, in->place.at, in->place.key,
                     "expected variables and aliases that stand for at most %d bytes",
                     YAML_EXPANDED_MAX);
}
