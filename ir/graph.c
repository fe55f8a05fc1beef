/* Graph: storages, leaves, nodes and outputs are made here. */
#include "ir/graph.h"

#include "ir/graph_internal.h"

#include <string.h>

Graph *graph_create(Arena *arena, const OpTable *ops) {
    Graph *graph = ARENA_NEW(arena, Graph);
    graph->arena = arena;
    graph->ops = ops;
    return graph;
}

void graph_release(Graph *graph) {
    for (int i = 0; graph && i < graph->storage_count; i++)
        storage_release(graph->storages[i]);
}

void storage_release(Storage *storage) {
    tensor_drop_data(&storage->tensor, storage->tensor.dtype);
    gaussian_release(storage->gaussian);
    storage->gaussian = NULL;
}

/* The array with room for one more item, in the arena. */
static void *array_reserve(Arena *arena, void *items, int count, int *capacity,
                           size_t size) {
    if (count < *capacity) return items;
    *capacity = *capacity ? *capacity * 2 : 8;
    void *grown = arena_array(arena, (size_t)*capacity, size);
    if (count > 0) memcpy(grown, items, (size_t)count * size);
    return grown;
}

bool name_is_valid(const char *name) {
    return name && name[0] && strnlen(name, NAME_LENGTH_MAX + 1) <= NAME_LENGTH_MAX &&
           utf8_is_valid(name);
}

Storage *graph_append_storage(Graph *graph, const char *name, const Tensor *shape) {
    graph->storages = array_reserve(graph->arena, graph->storages, graph->storage_count,
                                    &graph->storage_capacity, sizeof *graph->storages);
    Storage *storage = ARENA_NEW(graph->arena, Storage);
    storage->name = name;
    storage->tensor = tensor_shape(shape->dtype, shape->rank, shape->dim);
    graph->storages[graph->storage_count++] = storage;
    return storage;
}

Status graph_add_storage(Storage **out, Graph *graph, const char *name,
                         const Tensor *shape, Diag *diag) {
    if (!name_is_valid(name))
        return diag_fail(
            diag, STATUS_MODEL, LOC_NONE, NULL,
            "a storage's name must have 1 to %d bytes of UTF-8, found \"%.60s\"",
            NAME_LENGTH_MAX, name ? name : "");
    if (graph_storage(graph, name))
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "the graph has a storage named '%s' already", name);
    if (shape->rank < 0 || shape->rank > RANK_MAX || (int)shape->dtype < 0 ||
        shape->dtype >= DTYPE_COUNT)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "storage '%s': rank must be 0 to %d, found %d", name, RANK_MAX,
                         shape->rank);
    if (!shape_size(shape->dtype, shape->rank, shape->dim, NULL, NULL)) {
        char text[SHAPE_TEXT_BYTES];
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "storage '%s': impossible shape %s", name,
                         shape_text(text, shape->rank, shape->dim));
    }
    *out = graph_append_storage(graph, arena_strdup(graph->arena, name), shape);
    return STATUS_OK;
}

Node *graph_new_node(Graph *graph, const Op *op, int in_count) {
    Node *node = ARENA_NEW(graph->arena, Node);
    node->op = op;
    node->in = ARENA_ARRAY(graph->arena, Node *, (size_t)in_count);
    node->in_count = in_count;
    node->attrs = attrs_default(graph->arena, op);
    node->layer = -1;
    node->id = -1;
    return node;
}

void graph_link(Graph *graph, Node *node, Node *anchor) {
    node->next = anchor;
    node->prev = anchor ? anchor->prev : graph->last;
    if (node->prev)
        node->prev->next = node;
    else
        graph->first = node;
    if (anchor)
        anchor->prev = node;
    else
        graph->last = node;
    graph->node_count++;
}

void graph_unlink(Graph *graph, Node *node) {
    if (node->prev)
        node->prev->next = node->next;
    else
        graph->first = node->next;
    if (node->next)
        node->next->prev = node->prev;
    else
        graph->last = node->prev;
    node->prev = node->next = NULL;
    graph->node_count--;
}

Type storage_type(const Storage *storage) {
    const Tensor *tensor = &storage->tensor;
    Type type = {.dtype = dtype_is_real(tensor->dtype) ? DTYPE_F32 : DTYPE_I32,
                 .rank = tensor->rank};
    memcpy(type.dim, tensor->dim, sizeof type.dim);
    return type;
}

Node *graph_new_input(Graph *graph, const char *name, const Type *type) {
    Node *leaf = graph_new_node(graph, op_with(graph->ops, OP_INPUT), 0);
    leaf->name = name;
    leaf->type = *type;
    return leaf;
}

Node *graph_new_param(Graph *graph, Storage *storage) {
    Node *leaf = graph_new_node(graph, op_with(graph->ops, OP_PARAM), 0);
    leaf->storage = storage;
    leaf->type = storage_type(storage);
    return leaf;
}

Node *graph_param(Graph *graph, Storage *storage) {
    Node *anchor = graph->first;
    for (; anchor && node_is_leaf(anchor); anchor = anchor->next)
        if (anchor->storage == storage) return anchor;
    Node *leaf = graph_new_param(graph, storage);
    graph_link(graph, leaf, anchor);
    return leaf;
}

Node *graph_input(Graph *graph, const char *name, const Type *type) {
    Node *anchor = graph->first;
    while (anchor && node_is_input(anchor)) anchor = anchor->next;
    Node *leaf = graph_new_input(graph, arena_strdup(graph->arena, name), type);
    graph_link(graph, leaf, anchor);
    return leaf;
}

Node *graph_insert(Graph *graph, Node *anchor, const Op *op, Node *const *in,
                   int in_count) {
    int single = op_single_count(op);
    Node *node = graph_new_node(graph, op, in_count > single ? in_count : single);
    if (in_count > 0) memcpy(node->in, in, (size_t)in_count * sizeof(Node *));
    graph_link(graph, node, anchor);
    return node;
}

void graph_append_output(Graph *graph, const char *name, Node *node) {
    graph->outputs = array_reserve(graph->arena, graph->outputs, graph->output_count,
                                   &graph->output_capacity, sizeof *graph->outputs);
    graph->outputs[graph->output_count++] = (Output){name, node};
}

void graph_set_output(Graph *graph, const char *name, Node *node) {
    for (int i = 0; i < graph->output_count; i++)
        if (strcmp(graph->outputs[i].name, name) == 0) {
            graph->outputs[i].node = node;
            return;
        }
    graph_append_output(graph, arena_strdup(graph->arena, name), node);
}

void graph_remove_output(Graph *graph, const char *name) {
    int kept = 0;
    for (int i = 0; i < graph->output_count; i++)
        if (strcmp(graph->outputs[i].name, name) != 0)
            graph->outputs[kept++] = graph->outputs[i];
    graph->output_count = kept;
}
