/* Node: type, operands and place of a single node. */
#include "ir/graph_internal.h"

#include <string.h>

/* Checks one value against its operand's row. */
static Status check_operand(const Node *node, const Operand *operand, const Node *value,
                            Status status, Diag *diag) {
    const char *op = node->op->name;
    if (!value) {
        if (operand->flags & OPERAND_OPTIONAL) return STATUS_OK;
        return diag_fail(diag, status, node->loc, NULL, "%s: operand '%s' is missing", op,
                         operand->name);
    }
    bool want_integer = (operand->flags & OPERAND_INTEGER) != 0;
    if (dtype_is_real(value->type.dtype) != want_integer) return STATUS_OK;
    return diag_fail(diag, status, node->loc, NULL,
                     "%s: operand '%s' must be %s, found %s", op, operand->name,
                     want_integer ? "i32" : "f32", dtype_name(value->type.dtype));
}

/* Checks that there are as many operands as declared. */
static Status check_count(const Node *node, Status status, Diag *diag) {
    int single = op_single_count(node->op);
    bool variadic = op_is_variadic(node->op);
    bool optional = variadic && (node->op->operands[single].flags & OPERAND_OPTIONAL);
    int least = single + (variadic && !optional);
    if (node->in_count >= least && (variadic || node->in_count == single))
        return STATUS_OK;
    return diag_fail(diag, status, node->loc, NULL,
                     "%s: expected %s%d operand%s, found %d", node->op->name,
                     variadic ? "at least " : "", least, least == 1 ? "" : "s",
                     node->in_count);
}

Status node_check_operands(const Node *node, Status status, Diag *diag) {
    TRY(check_count(node, status, diag));
    int single = op_single_count(node->op);
    for (int i = 0; i < node->in_count; i++) {
        Operand operand = node->op->operands[i < single ? i : single];
        if (i >= single) operand.flags &= ~OPERAND_OPTIONAL;
        TRY(check_operand(node, &operand, node->in[i], status, diag));
    }
    return STATUS_OK;
}

Status node_infer(Node *node, Diag *diag) {
    if (node_is_leaf(node) || !node->op->infer) return STATUS_OK;
    TRY(node_check_operands(node, STATUS_MODEL, diag));
    Type type = {0};
    TRY(node->op->infer(node, &type, diag));
    node->type = type;
    return STATUS_OK;
}

/* Operand `i`, the first of a variadic one or past the end, with room made for it. */
static void set_variadic(Graph *graph, Node *node, int i, Node *value) {
    if (!value) {
        if (i < node->in_count) node->in_count = i;
        return;
    }
    if (i >= node->in_count) {
        Node **in = ARENA_ARRAY(graph->arena, Node *, (size_t)i + 1);
        memcpy(in, node->in, (size_t)node->in_count * sizeof *in);
        node->in = in;
        node->in_count = i + 1;
    }
    node->in[i] = value;
}

void node_set_operand(Graph *graph, Node *node, const char *name, Node *value) {
    int i = op_operand_index(node->op, name);
    if (i < 0) return;
    if (i >= op_single_count(node->op))
        set_variadic(graph, node, i, value);
    else
        node->in[i] = value;
}

Node *node_place(Graph *graph, Node *node, const char *stack, int layer, Role role) {
    node->stack = arena_strdup(graph->arena, stack);
    node->layer = stack ? layer : -1;
    node->role = role;
    return node;
}
