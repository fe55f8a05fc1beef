/* pair_cosine_mse: how far the cosines of pairs are from their scores.
 *
 * Rows of x come in groups of `group`, of which the first two are a pair; c = u . v, the
 * cosine of their unit rows (rows of zeros stay zero), y the target of the first one. The
 * loss is the mean over the P groups of (c - y)^2. With e = 2 (c - y) / P the gradients
 * are dx = e (v - c u) / |x| of the first row and e (u - c v) / |x| of the second.
 * Further rows, and those behind the last whole group, are left out. */
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/unit_rows.h"

#include <string.h>

enum { X, TARGET };

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "[N, D], groups in order"},
    {"target", OPERAND_CONSTANT, "[N, 1]: of the first row of a group; no gradient"},
    {NULL},
};

static const Field FIELDS[] = {
    F_INT(PairCosineMseAttrs, group, 2, 64, "consecutive rows of a group"), F_END};

static const PairCosineMseAttrs DEFAULTS = {.group = 2};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, X, 2, 2, diag));
    TRY(infer_known(node, X, 1, diag));
    const int64_t target[] = {node->in[X]->type.dim[0], 1};
    TRY(infer_shape(node, TARGET, 2, target, diag));
    if (((const PairCosineMseAttrs *)node->attrs)->group < 2)
        return infer_fail_attr(node, "group", diag, "a number of at least 2");
    *out = real_type(0, node->in[X]->type.dim);
    return STATUS_OK;
}

static int64_t group_of(const Call *call) {
    return ((const PairCosineMseAttrs *)call->attrs)->group;
}

/* Unit rows of both. */
static size_t scratch_bytes(const Call *call) {
    return (size_t)(2 * call->in[X].dim[1]) * sizeof(REAL);
}

/* Unit rows and 1 / norm of a pair, and its cosine. */
static REAL compare_pair(const Call *call, int64_t pair, REAL *u, REAL *v,
                         REAL inverse[2]) {
    const int64_t D = call->in[X].dim[1];
    const REAL *x = (const REAL *)call->in[X].data + pair * group_of(call) * D;
    unit_rows(1, D, x, u, &inverse[0]);
    unit_rows(1, D, x + D, v, &inverse[1]);
    return row_dot(u, v, D);
}

static void forward(const Call *call) {
    const int64_t group = group_of(call), pairs = call->in[X].dim[0] / group;
    const REAL *target = call->in[TARGET].data;
    REAL *u = call->scratch, *v = u + call->in[X].dim[1], inverse[2];
    double total = 0;
    for (int64_t p = 0; p < pairs; p++) {
        const double error =
            (double)(compare_pair(call, p, u, v, inverse) - target[p * group]);
        total += error * error;
    }
    *(REAL *)call->out.data = pairs ? (REAL)(total / (double)pairs) : 0;
}

static void backward(const Call *call) {
    const int64_t group = group_of(call), D = call->in[X].dim[1];
    const int64_t pairs = call->in[X].dim[0] / group;
    const View *dx = &call->d_in[X];
    const REAL *target = call->in[TARGET].data;
    const REAL d_out = *(const REAL *)call->d_out.data;
    REAL *u = call->scratch, *v = u + D, inverse[2];
    if (!dx->data) return;
    if (!dx->accumulate) memset(dx->data, 0, (size_t)dx->count * sizeof(REAL));
    for (int64_t p = 0; p < pairs; p++) {
        const REAL c = compare_pair(call, p, u, v, inverse);
        const REAL e = 2 * (c - target[p * group]) / (REAL)pairs * d_out;
        REAL *restrict first = (REAL *)dx->data + p * group * D;
        REAL *restrict second = first + D;
        for (int64_t j = 0; j < D; j++) {
            first[j] += e * (v[j] - c * u[j]) * inverse[0];
            second[j] += e * (u[j] - c * v[j]) * inverse[1];
        }
    }
}

OP_RECORD(pair_cosine_mse) = {
    OP_ID(pair_cosine_mse),
    .summary =
        "mean squared difference of the cosines of pairs of rows and their targets",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(PairCosineMseAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_LOSS,
    .reads = READS_IN(X) | READS_IN(TARGET),
    .infer = infer,
};

KERNEL(pair_cosine_mse) = {
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
