/* embedding and add_position: rows of a table, read where the model keeps it. */
#include "exec/generate/step.h"
#include "exec/ops.h"

enum { X, TABLE };

static void embedding_run(const StepCall *call, int64_t first, int64_t last) {
    (void)first, (void)last;
    const int32_t *ids = call->in[X];
    const Tensor *table = call->in[TABLE];
    const int64_t D = table->dim[1];
    for (int64_t t = 0; t < call->count; t++)
        tensor_read_f32(table, ids[t] * D, D, call->out + t * D);
}

STEP_KERNEL(embedding) = {
    .share = STEP_LIGHT,
    .tables = READS_IN(TABLE),
    .run = embedding_run,
};

static void position_run(const StepCall *call, int64_t first, int64_t last) {
    (void)first, (void)last;
    const Tensor *table = call->in[TABLE];
    const int64_t D = table->dim[1];
    const int64_t row = ((const AddPositionAttrs *)call->attrs)->offset + call->position;
    tensor_read_f32(table, row * D, call->count * D, call->out);
    const float *restrict x = call->in[X];
    for (int64_t i = 0; i < call->count * D; i++) call->out[i] += x[i];
}

/* Padding in front of a text is not known to a step. */
static Status position_check(const Node *node, Diag *diag) {
    return step_check_absent(node, TABLE + 1, 0, diag);
}

STEP_KERNEL(add_position) = {
    .share = STEP_LIGHT,
    .check = position_check,
    .tables = READS_IN(TABLE),
    .position = true,
    .run = position_run,
};
