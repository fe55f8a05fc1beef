/* multiply(a[...], b[...]): y = a * b, element by element; da = b dy, db = a dy. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/tiles.h"

static const Operand OPERANDS[] = {{"a", OPERAND_REQUIRED, "any shape"},
                                   {"b", OPERAND_REQUIRED, "the shape of a"},
                                   {NULL, 0, NULL}};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const Type *a = &node->in[0]->type;
    TRY(infer_shape(node, 1, a->rank, a->dim, diag));
    *out = *a;
    return STATUS_OK;
}

static void forward(const Call *call) {
    const REAL *a = call->in[0].data, *b = call->in[1].data;
    REAL *restrict y = call->out.data;
    const Range r = call_range(call, call->out.count, TILE_UNIT);
    for (int64_t i = r.first; i < r.end; i++) y[i] = a[i] * b[i];
}

/* d (+)= other * dy; nothing when the gradient is not wanted. */
static void put_product(const View *d, const View *other, const View *d_out, Range r) {
    REAL *restrict to = d->data;
    const REAL *x = other->data, *dy = d_out->data;
    if (!to) return;
    if (d->accumulate)
        for (int64_t i = r.first; i < r.end; i++) to[i] += x[i] * dy[i];
    else
        for (int64_t i = r.first; i < r.end; i++) to[i] = x[i] * dy[i];
}

static void backward(const Call *call) {
    const Range r = call_range(call, call->out.count, TILE_UNIT);
    put_product(&call->d_in[0], &call->in[1], &call->d_out, r);
    put_product(&call->d_in[1], &call->in[0], &call->d_out, r);
}

OP_RECORD(multiply) = {
    OP_ID(multiply),
    .summary = "a * b, of equal shapes",
    .operands = OPERANDS,
    .traits = OP_ELEMENTWISE | OP_ROWWISE,
    .reads = READS_IN(0) | READS_IN(1),
    .infer = infer,
};

KERNEL(multiply) = {
    .step = STEP(elementwise),
    .forward = forward,
    .backward = backward,
    .forward_tiles = element_tiles,
    .backward_tiles = element_tiles,
};
