/* binary_cross_entropy: mean over the rows that count and their labels of
 *     -w y log s(z) - (1 - y) log(1 - s(z)),   s the sigmoid,
 * where the target y is (1 - e) t + e / 2 for label smoothing e, and w weighs positive
 * labels.
 *
 * With l = 1 + (w - 1) y that is (1 - y) z + l log(1 + exp(-z)), and no exponential
 * overflows; with R rows of C labels dz = (l s(z) - w y) / (R C). The targets get none.
 */
#include "exec/ops/binary_entropy.h"
#include "exec/ops/rows.h"

static const Operand OPERANDS[] = {
    {"logits", OPERAND_REQUIRED, "[N..., C]"},
    {"targets", OPERAND_CONSTANT, "[N..., C], from 0 to 1; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N...]: 0 = row is left out"},
    {NULL},
};

static const Field FIELDS[] = {
    F_REAL(BinaryCrossEntropyAttrs, smoothing, 0, 1, "label smoothing"),
    F_REALS(BinaryCrossEntropyAttrs, positive, 0, 1e6,
            "weights of positive labels: none = 1, one for all labels, or one for each"),
    F_END,
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const BinaryCrossEntropyAttrs *attrs = node->attrs;
    TRY(rows_infer(node, out, diag));
    const Type *logits = &node->in[ROWS_X]->type;
    const int64_t labels = logits->dim[logits->rank - 1];
    if (!(attrs->smoothing >= 0 && attrs->smoothing <= 1))
        return infer_fail_attr(node, "smoothing", diag, "a number from 0 to 1, found %g",
                               attrs->smoothing);
    if (attrs->positive.count <= 1 || attrs->positive.count == labels) return STATUS_OK;
    return infer_fail_attr(node, "positive", diag,
                           "no weight, one, or one for each of %lld labels, found %d",
                           (long long)labels, attrs->positive.count);
}

/* What one label adds up from: its target and the weight of it as a positive one. */
typedef struct Target {
    REAL y, w;
} Target;

static inline Target target_of(const BinaryCrossEntropyAttrs *attrs, REAL t, int64_t c) {
    const REAL e = (REAL)attrs->smoothing;
    const RealList *w = &attrs->positive;
    return (Target){(1 - e) * t + e / 2,
                    w->count == 0 ? 1 : (REAL)w->items[w->count == 1 ? 0 : c]};
}

static void forward(const Call *call) {
    const int64_t rows = view_rows(&call->in[ROWS_X]), C = view_last(&call->in[ROWS_X]);
    const REAL *z = call->in[ROWS_X].data, *t = call->in[ROWS_TEACHER].data;
    double total = 0;
    for (int64_t i = 0; i < rows * C; i++) {
        if (!rows_keep(call, i / C)) continue;
        const Target to = target_of(call->attrs, t[i], i % C);
        const REAL l = 1 + (to.w - 1) * to.y;
        total += (double)((1 - to.y) * z[i] + l * softplus_real(-z[i]));
    }
    *(REAL *)call->out.data = rows_mean(call, total / (double)C);
}

static void backward(const Call *call) {
    REAL *dz = call->d_in[ROWS_X].data;
    if (!dz) return;
    const int64_t rows = view_rows(&call->in[ROWS_X]), C = view_last(&call->in[ROWS_X]);
    const REAL *z = call->in[ROWS_X].data, *t = call->in[ROWS_TEACHER].data;
    const REAL factor = rows_gradient(call) / (REAL)C;
    const bool accumulate = call->d_in[ROWS_X].accumulate;
    for (int64_t i = 0; i < rows * C; i++) {
        const Target to = target_of(call->attrs, t[i], i % C);
        const REAL l = 1 + (to.w - 1) * to.y;
        const REAL d =
            rows_keep(call, i / C) ? factor * (l * sigmoid_real(z[i]) - to.w * to.y) : 0;
        dz[i] = accumulate ? dz[i] + d : d;
    }
}

OP_RECORD(binary_cross_entropy) = {
    OP_ID(binary_cross_entropy),
    .summary = "mean of -y log sigmoid(logits) - (1 - y) log(1 - sigmoid(logits))",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(BinaryCrossEntropyAttrs),
    .traits = OP_LOSS,
    .reads = READS_IN(ROWS_X) | READS_IN(ROWS_TEACHER) | READS_IN(ROWS_MASK),
    .infer = infer,
    .count_rows = rows_count,
};

KERNEL(binary_cross_entropy) = {
    .forward = forward,
    .backward = backward,
};
