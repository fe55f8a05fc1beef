/* soft_choice_cross_entropy: t^2 times the mean over groups of consecutive samples of the
 * cross-entropy over a group's scores against a teacher's, both at temperature t:
 * choice_cross_entropy with soft targets (Hinton et al., 2015). A group begins where the
 * place within it is 0.
 *
 * With p and q of both in a group, dz = t (p - q) / groups. */
#include "exec/ops/rows.h"
#include "exec/ops/soft_choice.h"
#include "exec/ops/soft_targets.h"

enum { SCORES, TEACHER, PLACE };

static const Operand OPERANDS[] = {
    {"scores", OPERAND_REQUIRED, "[N, 1]"},
    {"teacher", OPERAND_CONSTANT, "[N, 1]; no gradient"},
    {"place", OPERAND_REQUIRED | OPERAND_INTEGER,
     "[N]: of a sample in its group, which 0 begins"},
    {NULL},
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, SCORES, 2, 2, diag));
    const Type *scores = &node->in[SCORES]->type;
    if (scores->dim[1] != 1) return infer_fail(node, SCORES, diag, "[N, 1]");
    TRY(infer_shape(node, TEACHER, 2, scores->dim, diag));
    TRY(infer_shape(node, PLACE, 1, scores->dim, diag));
    TRY(soft_infer_temperature(node, diag));
    *out = real_type(0, scores->dim);
    return STATUS_OK;
}

/* Groups; the first sample begins one wherever it stands. */
static double count_rows(const Call *call) {
    const int32_t *place = call->in[PLACE].data;
    int64_t groups = 0;
    for (int64_t i = 0; i < call->in[PLACE].count; i++) groups += i == 0 || place[i] == 0;
    return (double)groups;
}

/* The scores of the group that starts at sample `first`. */
static Scores group_of(const Call *call, int operand, int64_t first) {
    const int32_t *place = call->in[PLACE].data;
    int64_t end = first + 1;
    while (end < call->in[PLACE].count && place[end] != 0) end++;
    return (Scores){(const REAL *)call->in[operand].data + first, end - first, 1, NULL};
}

static void forward(const Call *call) {
    const SoftCrossEntropyAttrs *a = call->attrs;
    double total = 0;
    for (int64_t i = 0; i < call->in[SCORES].count;) {
        const Scores x = group_of(call, SCORES, i), y = group_of(call, TEACHER, i);
        total += scores_cross_entropy(&x, &y, (REAL)a->temperature, a->kl);
        i += x.count;
    }
    *(REAL *)call->out.data = rows_mean(call, a->temperature * a->temperature * total);
}

static void backward(const Call *call) {
    REAL *d = call->d_in[SCORES].data;
    const REAL t = (REAL)((const SoftCrossEntropyAttrs *)call->attrs)->temperature;
    const REAL factor = t * rows_gradient(call);
    if (!d) return;
    if (!call->d_in[SCORES].accumulate)
        memset(d, 0, (size_t)call->in[SCORES].count * sizeof *d);
    for (int64_t i = 0; i < call->in[SCORES].count;) {
        const Scores x = group_of(call, SCORES, i), y = group_of(call, TEACHER, i);
        scores_gradient(d + i, &x, &y, t, factor);
        i += x.count;
    }
}

OP_RECORD(soft_choice_cross_entropy) = {
    OP_ID(soft_choice_cross_entropy),
    .summary = "choice_cross_entropy against a teacher's distribution, at a temperature",
    .operands = OPERANDS,
    .fields = SOFT_FIELDS,
    .attrs_size = sizeof(SoftCrossEntropyAttrs),
    .defaults = &SOFT_DEFAULTS,
    .traits = OP_LOSS,
    .reads = READS_IN(SCORES) | READS_IN(TEACHER) | READS_IN(PLACE),
    .infer = infer,
    .count_rows = count_rows,
};

KERNEL(soft_choice_cross_entropy) = {
    .forward = forward,
    .backward = backward,
};
