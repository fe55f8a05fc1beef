/* linear: rows of the weight are units. */
#include "exec/generate/step.h"
#include "exec/ops.h"

enum { X, WEIGHT, BIAS };

static Status check(const Node *node, Diag *diag) {
    if (node->in[WEIGHT]->type.rank == 2) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                     "linear: expected a weight of rank 2 to generate, found rank %d",
                     node->in[WEIGHT]->type.rank);
}

static int64_t units(const Node *node) {
    return step_width(&node->type);
}

static bool is_transposed(const Node *node) {
    return ((const LinearAttrs *)node->attrs)->transposed;
}

static void run(const StepCall *call, int64_t first, int64_t last) {
    const Matrix *weight = call->in[WEIGHT];
    const float *bias = step_operand(call->node, BIAS) ? call->in[BIAS] : NULL;
    REAL_FN(matrix_times)
    (weight, first, last, bias, call->in[X], weight->columns, call->out, weight->rows,
     call->count);
}

STEP_KERNEL(linear) = {
    .share = STEP_UNITS,
    .matrices = READS_IN(WEIGHT),
    .units = units,
    .check = check,
    .is_transposed = is_transposed,
    .run = run,
};
