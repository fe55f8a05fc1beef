/* linear: rows of the weight are units. */
#include "exec/generate/step.h"
#include "exec/ops.h"
#include "exec/ops/linear_act.h"

enum { X, WEIGHT, BIAS };

static Status check(const Node *node, Diag *diag) {
    if (((const LinearAttrs *)node->attrs)->round)
        return diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                         "linear: expected round: none to generate");
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

static bool is_rounded(const Node *node) {
    return ((const LinearAttrs *)node->attrs)->act == LINEAR_ACT_I8;
}

static int64_t scratch_floats(const Node *node, int64_t capacity, int64_t count) {
    (void)capacity;
    return is_rounded(node) ? count * step_width(&node->in[X]->type) : 0;
}

static void run(const StepCall *call, int64_t first, int64_t last) {
    const Matrix *weight = call->in[WEIGHT];
    const float *bias = step_operand(call->node, BIAS) ? call->in[BIAS] : NULL;
    const float *x = call->in[X];
    if (is_rounded(call->node) && !matrix_rounds(weight)) {
        REAL_FN(rounded_rows)(call->count, weight->columns, x, call->scratch);
        x = call->scratch;
    }
    REAL_FN(matrix_times)
    (weight, first, last, bias, x, weight->columns, call->out, weight->rows, call->count);
}

STEP_KERNEL(linear) = {
    .share = STEP_UNITS,
    .matrices = READS_IN(WEIGHT),
    .units = units,
    .check = check,
    .is_transposed = is_transposed,
    .scratch_floats = scratch_floats,
    .run = run,
};
