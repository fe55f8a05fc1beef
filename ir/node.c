/* Node: name, attributes by name, operands, type and place of a single node. */
#include "ir/graph_unchecked.h"

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
    else if (node->id < 0) /* of IR text that names nodes: its line is told */
        snprintf(out, NODE_LABEL_BYTES, "%s", node->op->name);
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

int64_t node_width(const Node *node) {
    return node && node->type.rank > 0 ? node->type.dim[node->type.rank - 1] : 0;
}

int64_t node_head_width(const Node *node) {
    const int64_t heads = node ? node_heads(node) : 0;
    return heads > 0 ? node_width(node->in[0]) / heads : 0;
}

/* Attribute of a kind by name, NULL when the node's op has none. */
static const void *find_attribute(const Node *node, const char *name, FieldKind kind,
                                  const Field **field) {
    *field = node->op->fields ? field_find(node->op->fields, name) : NULL;
    if (!*field || (*field)->kind != kind) return NULL;
    return (const char *)node->attrs + (*field)->offset;
}

int64_t node_integer(const Node *node, const char *name) {
    const Field *field;
    const int64_t *value = find_attribute(node, name, FIELD_INT, &field);
    return value ? *value : -1;
}

IntList node_integers(const Node *node, const char *name) {
    const Field *field;
    const IntList *value = find_attribute(node, name, FIELD_INTS, &field);
    return value ? *value : (IntList){NULL, 0};
}

double node_real(const Node *node, const char *name) {
    const Field *field;
    const double *value = find_attribute(node, name, FIELD_REAL, &field);
    return value ? *value : 0;
}

bool node_flag(const Node *node, const char *name) {
    const Field *field;
    const bool *value = find_attribute(node, name, FIELD_BOOL, &field);
    return value && *value;
}

bool node_chooses(const Node *node, const char *name, const char *choice) {
    const Field *field;
    const int *value = find_attribute(node, name, FIELD_CHOICE, &field);
    int length = 0;
    const char *chosen = value ? field_choice_name(field, *value, &length) : NULL;
    return chosen && strlen(choice) == (size_t)length &&
           memcmp(chosen, choice, (size_t)length) == 0;
}

Node *node_operand(const Node *node, const char *name) {
    int i = op_operand_index(node->op, name);
    return i >= 0 && i < node->in_count ? node->in[i] : NULL;
}

bool node_is_in(const Node *node, const char *stack, int layer) {
    return (layer < 0 || node->layer == layer) &&
           (!stack || (node->stack && strcmp(node->stack, stack) == 0));
}

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
