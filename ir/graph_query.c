/* Graph: finding and counting. */
#include "ir/graph.h"

#include "ir/graph_internal.h"

#include <stdio.h>
#include <string.h>

static const char *const ROLE_NAMES[ROLE_COUNT] = {
#define ROLE(name, text, help) [ROLE_##name] = text,
#include "ir/roles.def"
#undef ROLE
};

const char *role_name(Role role) {
    return (unsigned)role < ROLE_COUNT ? ROLE_NAMES[role] : "?";
}

Role role_parse(const char *name) {
    int role = 0;
    while (role < ROLE_COUNT && strcmp(ROLE_NAMES[role], name) != 0) role++;
    return (Role)role;
}

const char *node_label(char out[NODE_LABEL_BYTES], const Node *node) {
    if (node->storage)
        snprintf(out, NODE_LABEL_BYTES, "@%s", node->storage->name);
    else if (node_is_leaf(node))
        snprintf(out, NODE_LABEL_BYTES, "$%s", node->name ? node->name : "");
    else
        snprintf(out, NODE_LABEL_BYTES, "%%%d %s", node->id, node->op->name);
    return out;
}

static int64_t read_integer(const Node *node, const char *attribute) {
    const Field *field =
        node->op->fields ? field_find(node->op->fields, attribute) : NULL;
    if (!field) return 0;
    return *(const int64_t *)((const char *)node->attrs + field->offset);
}

int64_t node_heads(const Node *node) {
    return read_integer(node, "heads");
}

int64_t node_key_heads(const Node *node) {
    const int64_t heads = read_integer(node, "kv_heads");
    return heads ? heads : node_heads(node);
}

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

Node *node_operand(const Node *node, const char *name) {
    int i = op_operand_index(node->op, name);
    return i >= 0 && i < node->in_count ? node->in[i] : NULL;
}

Node *graph_output(const Graph *graph, const char *name) {
    for (int i = 0; i < graph->output_count; i++)
        if (strcmp(graph->outputs[i].name, name) == 0) return graph->outputs[i].node;
    return NULL;
}

bool node_is_in(const Node *node, const char *stack, int layer) {
    return (layer < 0 || node->layer == layer) &&
           (!stack || (node->stack && strcmp(node->stack, stack) == 0));
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

/* Whether logits of this width are of the tokens that the graph reads: the table that the
 * input ids select rows of has as many. True where there is no such table to tell. */
static bool is_vocabulary(const Graph *graph, int64_t width) {
    const Node *ids = graph_find_input(graph, INPUT_IDS);
    for (const Node *n = graph->first; n && ids; n = n->next)
        if (n->in_count == 2 && n->in[0] == ids && n->in[1] && n->in[1]->storage &&
            n->role == ROLE_EMBED)
            return n->in[1]->type.dim[0] == width;
    return true;
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

int64_t node_integer(const Node *node, const char *name) {
    const Field *field = node->op->fields ? field_find(node->op->fields, name) : NULL;
    if (!field || field->kind != FIELD_INT) return -1;
    return *(const int64_t *)((const char *)node->attrs + field->offset);
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

int64_t graph_parameter_count(const Graph *graph) {
    int64_t count = 0;
    for (const Node *n = graph->first; n; n = n->next)
        if (n->storage) count += tensor_count(&n->storage->tensor);
    return count;
}

size_t graph_parameter_bytes(const Graph *graph) {
    size_t bytes = 0;
    for (const Node *n = graph->first; n; n = n->next)
        if (n->storage) bytes += tensor_bytes(&n->storage->tensor);
    return bytes;
}
