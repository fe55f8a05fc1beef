/* What step kernels of every set ask. */
#include "exec/generate/step.h"

int64_t step_width(const Type *type) {
    Type bound;
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = 1, [DIM_INDEX(DIM_T)] = 1};
    return type_bind(type, sizes, &bound) ? type_count(&bound) : 0;
}

Status step_check_absent(const Node *node, int first, unsigned except, Diag *diag) {
    for (int i = first; i < node->in_count; i++)
        if (node->in[i] && !(except & READS_IN(i)))
            return diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                             "%s: operand '%s' cannot be used token by token",
                             node->op->name, node->op->operands[i].name);
    return STATUS_OK;
}
