/* Rewriting: replacing, removing and copying nodes. */
#include "ir/rewrite.h"

#include "ir/graph_unchecked.h"
#include "ir/name_map.h"
#include "ir/storage.h"

#include <stdlib.h>
#include <string.h>

void graph_replace_uses(Graph *graph, Node *old, Node *value) {
    for (Node *n = graph->first; n; n = n->next)
        for (int i = 0; n != value && i < n->in_count; i++)
            if (n->in[i] == old) n->in[i] = value;
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i].node == old) graph->outputs[i].node = value;
}

void graph_erase(Graph *graph, Node *node) {
    graph_unlink(graph, node);
}

void graph_move_before(Graph *graph, Node *node, Node *anchor) {
    if (node == anchor) return;
    graph_unlink(graph, node);
    graph_link(graph, node, anchor);
}

Status graph_infer(Graph *graph, Diag *diag) {
    for (Node *n = graph->first; n; n = n->next) TRY(node_infer(n, diag));
    return STATUS_OK;
}

/* Attributes of a node that spell dimensions. */
static Status bind_attributes(Graph *graph, Node *node, const int64_t sizes[DIM_SYMBOLS],
                              Diag *diag) {
    for (const Field *field = node->op->fields; field && field->name; field++) {
        const char **text = (const char **)(void *)((char *)node->attrs + field->offset);
        int64_t dim[RANK_MAX];
        char bound[DIMS_TEXT_BYTES];
        int rank;
        if (!field->dims || !*text || !dims_parse(*text, &rank, dim)) continue;
        for (int d = 0; d < rank; d++)
            if (!dim_replace(dim[d], sizes, &dim[d]))
                return diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                                 "%s: at these sizes too large: %s", node->op->name,
                                 *text);
        *text = arena_strdup(graph->arena, dims_text(bound, rank, dim));
    }
    return STATUS_OK;
}

Status graph_bind(Graph *graph, const int64_t sizes[DIM_SYMBOLS], Diag *diag) {
    for (Node *node = graph->first; node; node = node->next) {
        for (int d = 0; node_is_input(node) && d < node->type.rank; d++)
            if (!dim_replace(node->type.dim[d], sizes, &node->type.dim[d]))
                return diag_fail(diag, STATUS_MODEL, node->loc, node->name,
                                 "impossible sizes");
        TRY(bind_attributes(graph, node, sizes, diag));
    }
    return graph_infer(graph, diag);
}

/* Dead nodes. */

/* Drops the storages that no leaf names; the order of the others stays. */
static void drop_storages(Graph *graph) {
    NameMap named = {0};
    int kept = 0;
    for (const Node *n = graph->first; n; n = n->next)
        if (n->storage) name_map_add(&named, n->storage->name, n->storage);
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        if (name_map_get(&named, storage->name) == storage)
            graph->storages[kept++] = storage;
        else
            storage_release(storage);
    }
    graph->storage_count = kept;
    name_map_free(&named);
}

int graph_remove_dead(Graph *graph) {
    int count = graph_number(graph), removed = 0;
    bool *live = memory_alloc((size_t)count + 1, sizeof *live);
    for (int i = 0; i < graph->output_count; i++) live[graph->outputs[i].node->id] = true;
    /* users come after their operands, so one walk from the end is enough */
    for (const Node *n = graph->last; n; n = n->prev)
        for (int i = 0; live[n->id] && i < n->in_count; i++)
            if (n->in[i]) live[n->in[i]->id] = true;
    for (Node *n = graph->first, *next; n; n = next) {
        next = n->next;
        if (live[n->id] || node_is_input(n)) continue;
        graph_unlink(graph, n);
        removed++;
    }
    free(live);
    drop_storages(graph);
    return removed;
}

/* Copies. */

/* Copy of a node that is no leaf, at the end of the list. Stacks get `prefix`. */
static Node *copy_node(Graph *graph, const Node *from, const char *prefix, Node **map) {
    Node *node = graph_new_node(graph, from->op, from->in_count);
    for (int i = 0; i < from->in_count; i++)
        node->in[i] = from->in[i] ? map[from->in[i]->id] : NULL;
    node->attrs = attrs_copy(graph->arena, from->op, from->attrs);
    node->type = from->type;
    if (from->stack)
        node->stack = arena_printf(graph->arena, "%s%s", prefix, from->stack);
    node->layer = from->layer;
    node->role = from->role;
    graph_link(graph, node, NULL);
    return node;
}

/* The input of `graph` that stands for `from`. */
static Status import_input(Graph *graph, const Node *from, Node **out, Diag *diag) {
    *out = graph_find_input(graph, from->name);
    if (!*out) *out = graph_input(graph, from->name, &from->type);
    if (type_equal(&(*out)->type, &from->type)) return STATUS_OK;
    Text have = {0}, want = {0};
    type_print(&have, &(*out)->type);
    type_print(&want, &from->type);
    Status status = diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                              "input '%s' is %s, the imported graph expects %s",
                              from->name, have.data, want.data);
    text_free(&have);
    text_free(&want);
    return status;
}

/* A new parameter that shares the weights of `from`. */
static Status import_param(Graph *graph, const Node *from, const char *prefix, Node **out,
                           Diag *diag) {
    Storage *storage;
    const char *name = arena_printf(graph->arena, "%s%s", prefix, from->storage->name);
    TRY(graph_add_storage(&storage, graph, name, &from->storage->tensor, diag));
    storage_copy(graph->arena, storage, from->storage);
    *out = graph_param(graph, storage);
    return STATUS_OK;
}

Status graph_import(Graph *graph, Graph *from, const char *prefix, Node **map,
                    Diag *diag) {
    if (!prefix) prefix = "";
    graph_number(from);
    for (const Node *n = from->first; n; n = n->next) {
        if (node_is_input(n))
            TRY(import_input(graph, n, &map[n->id], diag));
        else if (n->storage)
            TRY(import_param(graph, n, prefix, &map[n->id], diag));
        else
            map[n->id] = copy_node(graph, n, prefix, map);
    }
    return STATUS_OK;
}

Graph *graph_copy(Arena *arena, Graph *graph) {
    Graph *copy = graph_create(arena, graph->ops);
    int count = graph_number(graph);
    Node **map = memory_alloc((size_t)count + 1, sizeof *map);
    const char *file = NULL;
    NameMap storages = {0};
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *storage = graph->storages[i];
        const char *name = arena_strdup(arena, storage->name);
        Storage *twin = graph_append_storage(copy, name, &storage->tensor);
        storage_copy(arena, twin, storage);
        name_map_add(&storages, name, twin);
    }
    for (const Node *n = graph->first; n; n = n->next) {
        Node *node;
        if (!node_is_leaf(n))
            node = copy_node(copy, n, "", map);
        else if (n->storage)
            node = graph_new_param(copy, name_map_get(&storages, n->storage->name));
        else
            node = graph_new_input(copy, arena_strdup(arena, n->name), &n->type);
        if (node_is_leaf(n)) graph_link(copy, node, NULL);
        node->loc = n->loc; /* places share one copy of each file's name in turn */
        if (n->loc.file && (!file || strcmp(file, n->loc.file) != 0))
            file = arena_strdup(arena, n->loc.file);
        if (n->loc.file) node->loc.file = file;
        map[n->id] = node;
    }
    for (int i = 0; i < graph->output_count; i++) {
        const Output *output = &graph->outputs[i];
        graph_append_output(copy, arena_strdup(arena, output->name),
                            map[output->node->id]);
    }
    copy->task = graph->task;
    graph_number(copy);
    name_map_free(&storages);
    free(map);
    return copy;
}
