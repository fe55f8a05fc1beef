/* Names of classes, see class_name.h. */
#include "ir/class_name.h"

#include <stdio.h>
#include <string.h>

static const char GENERIC[] = "LABEL_";

const char *class_name_generic(int64_t label, Arena *arena) {
    return arena_printf(arena, "%s%lld", GENERIC, (long long)label);
}

bool class_name_is_generic(const char *name) {
    const size_t length = strlen(GENERIC);
    return strncmp(name, GENERIC, length) == 0 && name[length] &&
           name[length + strspn(name + length, "0123456789")] == 0;
}

const char *class_name(const Tree *config, int64_t label, Arena *arena) {
    char key[24];
    snprintf(key, sizeof key, "%lld", (long long)label);
    const Tree *name = tree_get(tree_get_nonnull(config, "id2label"), key);
    return name && name->kind == TREE_STRING ? name->string
                                             : class_name_generic(label, arena);
}
