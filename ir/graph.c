/* Graph: making storages, leaves, nodes and outputs; finding and counting. */
#include "ir/graph.h"

#include "ir/graph_unchecked.h"

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
    storage->tensor = tensor_shape_like(shape, shape->rank, shape->dim);
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
    if (!tensor_size(shape, NULL, NULL)) {
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

/* ---- finding and counting ---- */

Storage *graph_storage(const Graph *graph, const char *name) {
    for (int i = 0; i < graph->storage_count; i++)
        if (strcmp(graph->storages[i]->name, name) == 0) return graph->storages[i];
    return NULL;
}

const char *graph_fresh_name(Graph *graph, const char *name) {
    const char *fresh = arena_strdup(graph->arena, name);
    for (int i = 2; graph_storage(graph, fresh); i++)
        fresh = arena_printf(graph->arena, "%s.%d", name, i);
    return fresh;
}

Node *graph_find_input(const Graph *graph, const char *name) {
    for (Node *n = graph->first; n && node_is_leaf(n); n = n->next)
        if (node_is_input(n) && strcmp(n->name, name) == 0) return n;
    return NULL;
}

Node *graph_output(const Graph *graph, const char *name) {
    for (int i = 0; i < graph->output_count; i++)
        if (strcmp(graph->outputs[i].name, name) == 0) return graph->outputs[i].node;
    return NULL;
}

/* First match from `node` on. */
static Node *find_from(Node *node, const char *stack, int layer, Role role) {
    for (; node; node = node->next)
        if (node->role == role && node_is_in(node, stack, layer)) return node;
    return NULL;
}

Node *graph_find(const Graph *graph, const char *stack, int layer, Role role) {
    return find_from(graph->first, stack, layer, role);
}

Node *graph_find_next(const Graph *graph, const Node *after, const char *stack, int layer,
                      Role role) {
    (void)graph;
    return find_from(after->next, stack, layer, role);
}

Node *graph_layer_output(const Graph *graph, const char *stack, int layer) {
    static const Role sums[] = {ROLE_RESIDUAL2, ROLE_RESIDUAL_CROSS, ROLE_RESIDUAL1};
    static const Role norms[] = {ROLE_NORM2, ROLE_NORM_CROSS, ROLE_NORM1};
    for (int i = 0; i < 3; i++) {
        Node *sum = graph_find(graph, stack, layer, sums[i]);
        if (!sum) continue;
        Node *norm = find_from(sum->next, stack, layer, norms[i]);
        return norm ? norm : sum;
    }
    return NULL;
}

int graph_layer_count(const Graph *graph, const char *stack) {
    int count = 0;
    for (const Node *n = graph->first; n; n = n->next)
        if (n->stack && node_is_in(n, stack, -1) && n->layer >= count)
            count = n->layer + 1;
    return count;
}

int graph_layer_stage(const Graph *graph, const char *stack, int layer) {
    int stage = 0;
    for (const Node *n = graph->first; n; n = n->next) {
        if (!node_is_in(n, stack, -1)) continue;
        if (n->layer == layer) break;
        stage += n->role == ROLE_MERGE;
    }
    return stage;
}

const char *graph_main_stack(const Graph *graph) {
    return graph_layer_count(graph, STACK_DECODER) > 0 ? STACK_DECODER : STACK_ENCODER;
}

int64_t graph_vocabulary(const Graph *graph) {
    const Node *ids = graph_find_input(graph, INPUT_IDS);
    for (const Node *n = graph->first; n && ids; n = n->next)
        if (n->in_count == 2 && n->in[0] == ids && n->in[1] && n->in[1]->storage &&
            n->role == ROLE_EMBED)
            return n->in[1]->type.dim[0];
    return 0;
}

/* Whether logits of this width are of the tokens that the graph reads. True where there
 * is no table to tell. */
static bool is_vocabulary(const Graph *graph, int64_t width) {
    const int64_t tokens = graph_vocabulary(graph);
    return tokens == 0 || tokens == width;
}

Task graph_implied_task(const Graph *graph) {
    const Node *logits = graph_output(graph, OUTPUT_LOGITS);
    const Type *type = logits ? &logits->type : NULL;
    if (!type) return graph->output_count > 0 ? TASK_EMBED : TASK_NONE;
    if (type->rank == 2) return TASK_CLASSIFY;
    if (type->rank != 3) return TASK_NONE;
    if (graph_layer_count(graph, STACK_DECODER) > 0)
        return graph_find_input(graph, INPUT_TARGET_IDS) ? TASK_TRANSLATE
                                                         : TASK_NEXT_TOKEN;
    return is_vocabulary(graph, type->dim[2]) ? TASK_FILL_IN : TASK_LABEL_TOKENS;
}

Task graph_task(const Graph *graph) {
    return graph->task == TASK_NONE ? graph_implied_task(graph) : graph->task;
}

int64_t graph_classes(const Graph *graph) {
    const Node *logits = graph_output(graph, OUTPUT_LOGITS);
    const int rank = logits ? logits->type.rank : 0;
    const bool words = rank == 3 && graph_task(graph) == TASK_LABEL_TOKENS;
    return rank == 2 || words ? logits->type.dim[rank - 1] : 0;
}

int graph_number(Graph *graph) {
    int id = 0;
    for (Node *n = graph->first; n; n = n->next, id++)
        if (n->id != id)
            n->id = id; /* no write: threads may be reading a numbered graph */
    return id;
}

int graph_use_count(const Graph *graph, const Node *node) {
    int count = 0;
    for (const Node *n = graph->first; n; n = n->next)
        for (int i = 0; i < n->in_count; i++) count += n->in[i] == node;
    for (int i = 0; i < graph->output_count; i++) count += graph->outputs[i].node == node;
    return count;
}

Node *graph_only_reader(const Graph *graph, const Node *node) {
    if (graph_use_count(graph, node) != 1) return NULL;
    for (Node *reader = node->next; reader; reader = reader->next)
        for (int i = 0; i < reader->in_count; i++)
            if (reader->in[i] == node) return reader;
    return NULL;
}

int64_t graph_parameter_count(const Graph *graph) {
    int64_t count = 0;
    for (const Node *n = graph->first; n; n = n->next)
        if (n->storage) count += tensor_count(&n->storage->tensor);
    return count;
}

size_t graph_parameter_bytes(const Graph *graph) {
    size_t bytes = 0;
    for (const Node *n = graph->first; n; n = n->next)
        if (n->storage) bytes += tensor_stored_bytes(&n->storage->tensor);
    return bytes;
}
