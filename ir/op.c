/* Op and Type: look-up in op tables, and the types of values. */
#include "ir/op.h"

#include "ir/graph_unchecked.h"

#include <string.h>

bool type_equal(const Type *a, const Type *b) {
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

int64_t type_count(const Type *type) {
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++) count *= type->dim[i];
    return count;
}

bool type_bind(const Type *type, const int64_t sizes[DIM_SYMBOLS], Type *out) {
    Type bound = *type;
    for (int i = 0; i < type->rank; i++)
        if (!dim_bind(type->dim[i], sizes, &bound.dim[i])) return false;
    *out = bound;
    return shape_size(bound.dtype, bound.rank, bound.dim, NULL, NULL);
}

void type_print(Text *text, const Type *type) {
    char dim[DIM_TEXT_BYTES];
    text_add(text, "%s[", dtype_name(type->dtype));
    for (int i = 0; i < type->rank; i++)
        text_add(text, "%s%s", i > 0 ? ", " : "", dim_text(dim, type->dim[i]));
    text_bytes(text, "]", 1);
}

const Op *op_find(const OpTable *table, const char *name) {
    for (int i = 0; i < table->count; i++)
        if (strcmp(table->ops[i]->name, name) == 0) return table->ops[i];
    return NULL;
}

const Op *op_with(const OpTable *table, OpTrait trait) {
    for (int i = 0; i < table->count; i++)
        if (table->ops[i]->traits & (int)trait) return table->ops[i];
    return NULL;
}

int op_operand_count(const Op *op) {
    int count = 0;
    while (op->operands && op->operands[count].name) count++;
    return count;
}

int op_operand_index(const Op *op, const char *name) {
    int count = op_operand_count(op);
    for (int i = 0; i < count; i++)
        if (strcmp(op->operands[i].name, name) == 0) return i;
    return -1;
}

bool op_is_variadic(const Op *op) {
    int count = op_operand_count(op);
    return count > 0 && (op->operands[count - 1].flags & OPERAND_VARIADIC);
}

int op_single_count(const Op *op) {
    return op_operand_count(op) - op_is_variadic(op);
}
