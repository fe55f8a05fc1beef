/* weighted_sum: sum of weights[i] * x[i] over scalars. */
#include "exec/infer.h"
#include "exec/ops/kernel.h"

static const Operand OPERANDS[] = {
    {"x", OPERAND_VARIADIC, "scalars"},
    {NULL},
};

static const Field FIELDS[] = {
    F_REALS(WeightedSumAttrs, weights, -1e30, 1e30, "one factor per operand"),
    F_END,
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const WeightedSumAttrs *attrs = node->attrs;
    for (int i = 0; i < node->in_count; i++) TRY(infer_rank(node, i, 0, 0, diag));
    if (attrs->weights.count != node->in_count)
        return infer_fail_attr(node, "weights", diag,
                               "as many numbers as operands (%d), found %d",
                               node->in_count, attrs->weights.count);
    *out = real_type(0, node->in[0]->type.dim);
    return STATUS_OK;
}

static void forward(const Call *call) {
    const WeightedSumAttrs *attrs = call->attrs;
    double sum = 0;
    for (int i = 0; i < call->in_count; i++)
        sum += attrs->weights.items[i] * (double)*(const REAL *)call->in[i].data;
    *(REAL *)call->out.data = (REAL)sum;
}

static void backward(const Call *call) {
    const WeightedSumAttrs *attrs = call->attrs;
    const REAL d_out = *(const REAL *)call->d_out.data;
    for (int i = 0; i < call->in_count; i++) {
        REAL *d = call->d_in[i].data;
        if (!d) continue;
        const REAL change = (REAL)attrs->weights.items[i] * d_out;
        *d = call->d_in[i].accumulate ? *d + change : change;
    }
}

OP_RECORD(weighted_sum) = {
    OP_ID(weighted_sum),
    .summary = "sum of weights[i] * x[i] over scalars",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(WeightedSumAttrs),
    .infer = infer,
};

KERNEL(weighted_sum) = {
    .forward = forward,
    .backward = backward,
};
