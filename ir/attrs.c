/* Attributes of nodes: defaults, deep copies, binding and range checks by the op's
 * fields. */
#include "ir/graph_unchecked.h"
#include "ir/irtext_lex.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const Field NO_FIELDS[] = {F_END};

static const Field *op_fields(const Op *op) {
    return op->fields ? op->fields : NO_FIELDS;
}

const void *attrs_defaults(Arena *arena, const Op *op) {
    return op->defaults ? op->defaults : arena_alloc(arena, op->attrs_size);
}

void *attrs_default(Arena *arena, const Op *op) {
    return attrs_copy(arena, op, op->defaults);
}

static void *copy_bytes(Arena *arena, const void *from, size_t count, size_t size) {
    void *copy = arena_array(arena, count, size);
    if (count > 0) memcpy(copy, from, count * size);
    return copy;
}

/* Replaces what a member points at by a copy. */
static void copy_member(Arena *arena, const Field *field, void *member) {
    switch (field->kind) {
    case FIELD_STRING:
        *(const char **)member = arena_strdup(arena, *(const char **)member);
        break;
    case FIELD_INTS: {
        IntList *list = member;
        list->items =
            copy_bytes(arena, list->items, (size_t)list->count, sizeof *list->items);
        break;
    }
    case FIELD_REALS: {
        RealList *list = member;
        list->items =
            copy_bytes(arena, list->items, (size_t)list->count, sizeof *list->items);
        break;
    }
    case FIELD_STRINGS: {
        StringList *list = member;
        list->items =
            copy_bytes(arena, list->items, (size_t)list->count, sizeof *list->items);
        for (int i = 0; i < list->count; i++)
            list->items[i] = arena_strdup(arena, list->items[i]);
        break;
    }
    case FIELD_TREE: {
        const Tree **tree = member;
        if (*tree) *tree = tree_copy(arena, *tree);
        break;
    }
    default: break;
    }
}

void *attrs_copy(Arena *arena, const Op *op, const void *from) {
    if (op->attrs_size == 0) return NULL;
    char *copy = arena_alloc(arena, op->attrs_size);
    if (!from) return copy;
    memcpy(copy, from, op->attrs_size);
    for (const Field *f = op_fields(op); f->name; f++)
        copy_member(arena, f, copy + f->offset);
    return copy;
}

Status attrs_bind(Graph *graph, Node *node, const Tree *map, Status status, Diag *diag) {
    return fields_bind(op_fields(node->op), map, node->attrs, graph->arena, status, diag);
}

Status node_set(Graph *graph, Node *node, Diag *diag, const char *fmt, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int length = vasprintf(&text, fmt, args);
    va_end(args);
    if (length < 0)
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL, "out of memory");
    Lexer lexer = lexer_start(graph->arena, LOC_NONE, text, (size_t)length, diag);
    lexer.status = STATUS_MODEL;
    Tree *map = NULL;
    Status status = lex_attrs(&lexer, '\0', &map);
    if (status == STATUS_OK) status = attrs_bind(graph, node, map, STATUS_MODEL, diag);
    if (status != STATUS_OK)
        diag_note(diag, "in the attributes of %s: %s", node->op->name, text);
    free(text);
    return status;
}

/* Range checks. */

static bool in_range(const Field *field, double value) {
    if (!isfinite(value)) return false;
    if (field->min == 0 && field->max == 0) return true;
    return value >= field->min && value <= field->max;
}

/* First of the list's items out of range, or NULL. */
static const double *bad_real(const Field *field, const RealList *list) {
    for (int i = 0; i < list->count; i++)
        if (!in_range(field, list->items[i])) return &list->items[i];
    return NULL;
}

static const int64_t *bad_int(const Field *field, const IntList *list) {
    for (int i = 0; i < list->count; i++)
        if (!in_range(field, (double)list->items[i])) return &list->items[i];
    return NULL;
}

/* Whether a member is out of range; its value goes to `found`. */
static bool member_is_bad(const Field *field, const void *member, double *found) {
    const double *real = NULL;
    const int64_t *integer = NULL;
    int choice = 0, choices = 1;
    switch (field->kind) {
    case FIELD_INT: integer = bad_int(field, &(IntList){(int64_t *)member, 1}); break;
    case FIELD_REAL: real = bad_real(field, &(RealList){(double *)member, 1}); break;
    case FIELD_INTS: integer = bad_int(field, member); break;
    case FIELD_REALS: real = bad_real(field, member); break;
    case FIELD_CHOICE:
        choice = *(const int *)member;
        *found = choice;
        for (const char *c = field->choices; *c; c++) choices += *c == '|';
        return choice < 0 || choice >= choices;
    default: break;
    }
    if (integer) *found = (double)*integer;
    if (real) *found = *real;
    return integer || real;
}

Status attrs_check(const Node *node, Status status, Diag *diag) {
    for (const Field *f = op_fields(node->op); f->name; f++) {
        double found;
        if (!member_is_bad(f, (const char *)node->attrs + f->offset, &found)) continue;
        char label[NODE_LABEL_BYTES];
        Text want = {0};
        field_expect(&want, f);
        diag_fail(diag, status, node->loc, f->name, "%s: expected %s, found %s%g",
                  node_label(label, node), want.data,
                  f->kind == FIELD_CHOICE ? "choice number " : "", found);
        text_free(&want);
        return status;
    }
    return STATUS_OK;
}
