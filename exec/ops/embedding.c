/* embedding(ids[N, T...], weight[V, D]) -> y[N, T..., D]: y = weight[ids].
 *
 * dweight[v] = sum of dy over the positions where ids = v, in their order. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/tiles.h"

static const Operand OPERANDS[] = {
    {"ids", OPERAND_REQUIRED | OPERAND_INTEGER, "[N, T...], from 0 to V - 1"},
    {"weight", OPERAND_REQUIRED, "one row for each id [V, D]"},
    {NULL},
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, 0, 1, RANK_MAX - 1, diag));
    TRY(infer_rank(node, 1, 2, 2, diag));
    TRY(infer_known(node, 1, 0, diag));
    TRY(infer_known(node, 1, 1, diag));
    const Type *ids = &node->in[0]->type;
    *out = real_type(ids->rank, ids->dim);
    out->dim[out->rank++] = node->in[1]->type.dim[1];
    return STATUS_OK;
}

static int64_t index_limit(const Call *call, int operand) {
    return operand == 0 ? call->in[1].dim[0] : 0;
}

static void read_rows(const Tensor *weight, const int32_t *ids, int64_t count, int64_t D,
                      REAL *y) {
    for (int64_t i = 0; i < count; i++)
#ifdef REAL_IS_DOUBLE
        tensor_read_f64(weight, ids[i] * D, D, y + i * D);
#else
        tensor_read_f32(weight, ids[i] * D, D, y + i * D);
#endif
}

static void forward(const Call *call) {
    const int64_t D = call->in[1].dim[1];
    const int32_t *ids = call->in[0].data;
    const REAL *weight = call->in[1].data;
    REAL *y = call->out.data;
    if (!weight) { /* as they are stored */
        read_rows(&call->node->in[1]->storage->tensor, ids, call->in[0].count, D, y);
        return;
    }
    for (int64_t i = 0; i < call->in[0].count; i++)
        memcpy(y + i * D, weight + ids[i] * D, (size_t)D * sizeof(REAL));
}

static void backward(const Call *call) {
    REAL *gradient = gradient_to_add(call, 1);
    if (!gradient) return;
    const int64_t D = call->in[1].dim[1];
    const int32_t *ids = call->in[0].data;
    const REAL *dy = call->d_out.data;
    const Range columns = call_range(call, D, TILE_UNIT);
    for (int64_t i = 0; i < call->in[0].count; i++)
        put_row(gradient + ids[i] * D + columns.first, dy + i * D + columns.first,
                columns.end - columns.first, true);
}

/* By columns; but a gradient that is cleared first is so as a whole. */
static int64_t backward_tiles(const Call *call) {
    return call->d_in[1].accumulate ? element_tiles(call) : 1;
}

OP_RECORD(embedding) = {
    OP_ID(embedding),     .summary = "rows of the weight by integer ids",
    .operands = OPERANDS, .reads = READS_IN(0),
    .infer = infer,       .index_limit = index_limit,
};

KERNEL(embedding) = {
    .step = STEP(embedding),
    .forward = forward,
    .backward = backward,
    .backward_tiles = backward_tiles,
};
