/* Packed: see exec/linalg/packed.h. */
#include "exec/linalg/packed.h"

#include "exec/linalg/products.h"
#include "exec/ops.h"
#include "ir/quantised.h"

enum { WEIGHT = 1 }; /* operand of linear and of embedding */

/* Numbers of few bits share scales along the rows that are stored; what is rounded with
 * x goes by the plain kernel. */
static bool can_turn(const Node *node, const LinearAttrs *attrs) {
    const Storage *storage = node->in[WEIGHT]->storage;
    return attrs->act == LINEAR_ACT_FLOAT && storage &&
           !dtype_is_quantised(storage->tensor.dtype);
}

int packed_form_of(const Node *node, int operand) {
    if (operand != WEIGHT || node->op != &op_linear) return -1;
    const LinearAttrs *attrs = node->attrs;
    if (attrs->round) return -1;
    if (attrs->transposed) return can_turn(node, attrs) ? PACKED_TURNED : -1;
    return attrs->act == LINEAR_ACT_I8 ? PACKED_WHOLE : PACKED_WEIGHTS;
}

/* Longer rows are multiplied as real numbers: sums may not fit 32 bits. */
StepWeights packed_kind(const Tensor *tensor, int form) {
    if (!dtype_is_quantised(tensor->dtype)) return STEP_F32;
    const bool whole =
        form == PACKED_WHOLE && quantised_width(tensor) <= INTEGER_COLUMNS_MAX;
    if (tensor->dtype == DTYPE_Q4) return whole ? STEP_INT4 : STEP_Q4;
    return whole ? STEP_INT8 : STEP_Q8;
}

/* All dimensions but the first are columns, as linear has them. */
Matrix packed_matrix(const Tensor *tensor, int form) {
    if (form == PACKED_TURNED) return matrix_of(tensor, true, STEP_F32);
    Matrix matrix = matrix_of(tensor, false, packed_kind(tensor, form));
    matrix.rows = tensor->dim[0];
    matrix.columns = matrix.rows > 0 ? tensor_count(tensor) / matrix.rows : 0;
    return matrix;
}

/* Whether the weights of a tensor may be packed at all. */
static bool can_pack(const Tensor *tensor) {
    const bool real = dtype_is_real(tensor->dtype) && tensor->rank > 1;
    return dtype_is_quantised(tensor->dtype) || (real && products_packed());
}

static PackedForms user_form(const Node *node, int operand) {
    const int form = packed_form_of(node, operand);
    if (form >= 0) return PACKED_IN(form);
    return operand == WEIGHT && node->op == &op_embedding ? PACKED_ROWS : PACKED_FLOATS;
}

PackedForms packed_forms(const Graph *graph, const Storage *storage) {
    PackedForms forms = 0;
    if (!can_pack(&storage->tensor)) return 0;
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && node->in[i]->storage == storage)
                forms |= user_form(node, i);
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i].node->storage == storage) forms |= PACKED_FLOATS;
    return forms;
}
