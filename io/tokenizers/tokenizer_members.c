/* Tokenizer: members of tokenizer.json, checked for their kinds. */
#include "io/tokenizers/tokenizer_members.h"

#include <string.h>

enum { WHERE_MAX = 128 };

Status json_member(const Tree **out, const Tree *map, const char *key, TreeKind kind,
                   const char *where, Diag *diag) {
    const Tree *value = tree_get_nonnull(map, key);
    *out = value;
    if (!value || value->kind == kind) return STATUS_OK;
    char path[WHERE_MAX];
    snprintf(path, sizeof path, "%.80s%s%.40s", where, *where ? "." : "", key);
    return diag_fail(diag, STATUS_FORMAT, value->loc, path, "expected %s, found %s",
                     tree_kind_name(kind), tree_kind_name(value->kind));
}

Status json_flag(bool *out, const Tree *map, const char *key, bool fallback,
                 const char *where, Diag *diag) {
    const Tree *value;
    TRY(json_member(&value, map, key, TREE_BOOL, where, diag));
    *out = value ? value->boolean : fallback;
    return STATUS_OK;
}

Status json_token(Token *out, Arena *arena, const Tree *map, const char *key,
                  const char *where, Diag *diag) {
    const Tree *value;
    TRY(json_member(&value, map, key, TREE_STRING, where, diag));
    size_t length = value ? strlen(value->string) : 0;
    if (length < 1 || length > TOKEN_BYTES_MAX)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected %s of 1 to %d bytes, found %zu", key, TOKEN_BYTES_MAX,
                         length);
    *out = (Token){arena_strdup(arena, value->string), (uint32_t)length};
    return STATUS_OK;
}

Status json_pattern(Regex **out, Arena *arena, const Tree *map, const char *where,
                    Diag *diag) {
    const Tree *pattern, *regex;
    Token text = {0};
    TRY(json_member(&pattern, map, "pattern", TREE_MAP, where, diag));
    TRY(json_member(&regex, pattern, "Regex", TREE_STRING, where, diag));
    if (regex) return regex_compile(out, arena, regex->string, map->loc, where, diag);
    if (!tree_get(pattern, "String"))
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected a pattern that is a String or a Regex");
    TRY(json_token(&text, arena, pattern, "String", where, diag));
    *out = regex_literal(arena, text.text, text.length);
    return STATUS_OK;
}

Status json_replace(Regex **from, Token *to, Arena *arena, const Tree *map,
                    const char *where, Diag *diag) {
    const Tree *content;
    TRY(json_pattern(from, arena, map, where, diag));
    TRY(json_member(&content, map, "content", TREE_STRING, where, diag));
    if (!content || strlen(content->string) > TOKEN_BYTES_MAX)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected a content of at most %d bytes", TOKEN_BYTES_MAX);
    *to =
        (Token){arena_strdup(arena, content->string), (uint32_t)strlen(content->string)};
    return STATUS_OK;
}

Status json_type(const Tree *component, const char *name, const char *wanted,
                 const Tree *root, Diag *diag) {
    const Tree *type = NULL;
    char key[WHERE_MAX];
    snprintf(key, sizeof key, "%s.type", name);
    if (component) TRY(json_member(&type, component, "type", TREE_STRING, name, diag));
    if (type && strcmp(type->string, wanted) == 0) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, root->loc, key, "expected %s, found %s%.64s%s",
                     wanted, type ? "'" : "", type ? type->string : "none",
                     type ? "'" : "");
}

static Status one_step(const Tree *part, const char *where, JsonStep step, void *user,
                       Diag *diag) {
    const Tree *type = NULL;
    if (part->kind == TREE_MAP)
        TRY(json_member(&type, part, "type", TREE_STRING, where, diag));
    if (!type)
        return diag_fail(diag, STATUS_FORMAT, part->loc, where,
                         "expected a map with a type");
    return step(user, part, type->string, where, diag);
}

Status json_steps(const Tree *component, const char *name, const char *parts,
                  JsonStep step, void *user, Diag *diag) {
    const Tree *type, *list;
    int index = 0;
    if (!component) return STATUS_OK;
    TRY(json_member(&type, component, "type", TREE_STRING, name, diag));
    if (!type || strcmp(type->string, "Sequence") != 0)
        return one_step(component, name, step, user, diag);
    TRY(json_member(&list, component, parts, TREE_LIST, name, diag));
    if (!list)
        return diag_fail(diag, STATUS_FORMAT, component->loc, name, "expected %s", parts);
    for (const Tree *part = list->first; part; part = part->next, index++) {
        char where[WHERE_MAX];
        snprintf(where, sizeof where, "%s.%s[%d]", name, parts, index);
        TRY(one_step(part, where, step, user, diag));
    }
    return STATUS_OK;
}
