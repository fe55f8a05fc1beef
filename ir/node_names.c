/* Names of nodes by place and role. */
#include "ir/node_names.h"

#include "ir/name_map.h"

#include <string.h>

/* How often a name was wanted. */
typedef struct NameUse {
    int count;
} NameUse;

/* Longest name of a stack that is part of names: with the rest they still fit IR text. */
#define STACK_LENGTH 400

static const char *wanted_name(Arena *arena, const Node *node) {
    const char *what = node->role != ROLE_NONE ? role_name(node->role) : node->op->name;
    if (!node->stack || strlen(node->stack) > STACK_LENGTH) return what;
    if (node->layer < 0) return arena_printf(arena, "%s.%s", node->stack, what);
    return arena_printf(arena, "%s.%d.%s", node->stack, node->layer, what);
}

/* The name, or the first one with a number behind it that is free: what a stack is called
 * may end in a number as well. */
static const char *free_name(Arena *arena, NameMap *uses, const char *wanted) {
    NameUse *use = name_map_get(uses, wanted);
    const char *name = wanted;
    NameUse *fresh = ARENA_NEW(arena, NameUse);
    fresh->count = 1;
    while (!name_map_add(uses, name, fresh))
        name = arena_printf(arena, "%s.%d", wanted, ++use->count);
    return name;
}

const char **graph_node_names(Arena *arena, Graph *graph) {
    const char **names =
        ARENA_ARRAY(arena, const char *, (size_t)graph_number(graph) + 1);
    NameMap uses = {0};
    for (const Node *node = graph->first; node; node = node->next) {
        if (node_is_leaf(node))
            names[node->id] = node->storage ? node->storage->name : node->name;
        else
            names[node->id] = free_name(arena, &uses, wanted_name(arena, node));
    }
    name_map_free(&uses);
    return names;
}
