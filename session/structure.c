/* What a model's layers are made of: see structure.h. */
#include "session/structure.h"

#include <stdio.h>
#include <string.h>

#define STACKS_MAX 16

/* What is being found out. */
typedef struct Finder {
    Arena *arena;
    const Model *model;
    const Node **first_user; /* by Node.id of a leaf: the first node that reads it */
} Finder;

/* Finds for every leaf the node that reads it first. */
static void find_first_users(Finder *finder) {
    Graph *graph = finder->model->graph;
    const int count = graph_number(graph);
    finder->first_user = ARENA_ARRAY(finder->arena, const Node *, (size_t)count + 1);
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++) {
            const Node *in = node->in[i];
            if (in && in->storage && !finder->first_user[in->id])
                finder->first_user[in->id] = node;
        }
}

/* Largest number that a layer's nodes of a role have. */
static int64_t layer_most(const Graph *graph, const char *stack, int layer, Role role,
                          int64_t (*number)(const Node *node)) {
    int64_t most = 0;
    for (const Node *node = graph_find(graph, stack, layer, role); node;
         node = graph_find_next(graph, node, stack, layer, role))
        if (number(node) > most) most = number(node);
    return most;
}

/* Parameters that come with a layer, and the first layer that it shares a matrix with,
 * -1 = none. */
static void layer_weights(const Finder *finder, const char *stack, int layer,
                          int64_t *parameters, int *shares) {
    const Graph *graph = finder->model->graph;
    *parameters = 0;
    *shares = -1;
    for (const Node *leaf = graph->first; leaf; leaf = leaf->next) {
        const Node *first = leaf->storage ? finder->first_user[leaf->id] : NULL;
        if (first && node_is_in(first, stack, layer))
            *parameters += tensor_count(&leaf->storage->tensor);
    }
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; node_is_in(node, stack, layer) && i < node->in_count; i++) {
            const Node *in = node->in[i];
            if (!in || !in->storage || in->storage->tensor.rank < 2) continue;
            const Node *first = finder->first_user[in->id];
            if (!first->stack || strcmp(first->stack, stack) != 0) continue;
            if (first->layer < 0 || first->layer >= layer) continue;
            if (*shares < 0 || first->layer < *shares) *shares = first->layer;
        }
}

static void put_number(Arena *arena, Tree *map, const char *key, int64_t value) {
    if (value > 0) tree_put_int(arena, map, key, value);
}

static void add_layer(const Finder *finder, Tree *list, const char *stack, int layer,
                      const Tree *original) {
    const Graph *graph = finder->model->graph;
    Arena *arena = finder->arena;
    Tree *map = tree_add_map(arena, list);
    int64_t parameters;
    int shares;
    char exit[32];
    if (original && original->kind == TREE_INT)
        tree_put_int(arena, map, "original", original->integer);
    put_number(arena, map, "heads",
               layer_most(graph, stack, layer, ROLE_ATTENTION, node_heads));
    put_number(arena, map, "cross_heads",
               layer_most(graph, stack, layer, ROLE_CROSS_ATTENTION, node_heads));
    put_number(arena, map, "ffn",
               layer_most(graph, stack, layer, ROLE_FFN_IN, node_width));
    put_number(arena, map, "recurrence",
               layer_most(graph, stack, layer, ROLE_RECURRENCE, node_width));
    layer_weights(finder, stack, layer, &parameters, &shares);
    if (shares >= 0) tree_put_int(arena, map, "shares", shares);
    snprintf(exit, sizeof exit, "exit.%d", layer + 1);
    if (strcmp(stack, graph_main_stack(graph)) == 0 && graph_output(graph, exit))
        tree_put_bool(arena, map, "exit", true);
    put_number(arena, map, "parameters", parameters);
}

/* A stack with layers; those of exits are told at the layers that they stand behind. */
static void add_stack(const Finder *finder, Tree *stacks, const char *name) {
    const int layers = graph_layer_count(finder->model->graph, name);
    const Tree *original = tree_get(tree_get(finder->model->provenance, "layers"), name);
    if (layers == 0 || strcmp(name, STACK_EXITS) == 0) return;
    Tree *map = tree_add_map(finder->arena, stacks);
    tree_put_string(finder->arena, map, "name", name);
    Tree *list = tree_put_list(finder->arena, map, "layers");
    original = original && original->kind == TREE_LIST ? original->first : NULL;
    for (int layer = 0; layer < layers; layer++) {
        add_layer(finder, list, name, layer, original);
        if (original) original = original->next;
    }
}

Tree *structure_tree(Arena *arena, const Model *model) {
    Finder finder = {.arena = arena, .model = model};
    const char *seen[STACKS_MAX];
    int count = 0;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *stacks = tree_put_list(arena, map, "stacks");
    find_first_users(&finder);
    for (const Node *node = model->graph->first; node; node = node->next) {
        bool known = !node->stack || node->layer < 0 || count == STACKS_MAX;
        for (int i = 0; i < count && !known; i++)
            known = strcmp(seen[i], node->stack) == 0;
        if (known) continue;
        seen[count++] = node->stack;
        add_stack(&finder, stacks, node->stack);
    }
    return map;
}
