/* soft_span_cross_entropy: t^2 times the mean over samples of half the sum of two
 * cross-entropies over the tokens, of a span's first and last token, against a teacher's,
 * both at temperature t: span_cross_entropy with soft targets (Hinton et al., 2015).
 *
 * With p and q of both at one end, dz = t (p - q) / (2 N). */
#include "exec/ops/rows.h"
#include "exec/ops/soft_choice.h"
#include "exec/ops/soft_targets.h"

enum { LOGITS, TEACHER, MASK };
enum { ENDS = 2 };

static const Operand OPERANDS[] = {
    {"logits", OPERAND_REQUIRED, "[N, T, 2]: of being the first token, the last"},
    {"teacher", OPERAND_CONSTANT, "[N, T, 2]; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, T]: 0 = token takes no part"},
    {NULL},
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, LOGITS, 3, 3, diag));
    const Type *logits = &node->in[LOGITS]->type;
    if (logits->dim[2] != ENDS) return infer_fail(node, LOGITS, diag, "[N, T, 2]");
    TRY(infer_shape(node, TEACHER, 3, logits->dim, diag));
    if (node->in[MASK]) TRY(infer_shape(node, MASK, 2, logits->dim, diag));
    TRY(soft_infer_temperature(node, diag));
    *out = real_type(0, logits->dim);
    return STATUS_OK;
}

/* One end of sample n, of the student or the teacher. */
static Scores end_of(const Call *call, int operand, int64_t n, int64_t end) {
    const int64_t tokens = call->in[LOGITS].dim[1];
    const int32_t *mask = call->in[MASK].data;
    return (Scores){(const REAL *)call->in[operand].data + n * tokens * ENDS + end,
                    tokens, ENDS, mask ? mask + n * tokens : NULL};
}

static void forward(const Call *call) {
    const SoftCrossEntropyAttrs *a = call->attrs;
    double total = 0;
    for (int64_t i = 0; i < call->in[LOGITS].dim[0] * ENDS; i++) {
        const Scores x = end_of(call, LOGITS, i / ENDS, i % ENDS);
        const Scores y = end_of(call, TEACHER, i / ENDS, i % ENDS);
        total += 0.5 * scores_cross_entropy(&x, &y, (REAL)a->temperature, a->kl);
    }
    *(REAL *)call->out.data =
        (REAL)(a->temperature * a->temperature * total / (double)call->in[LOGITS].dim[0]);
}

static void backward(const Call *call) {
    REAL *d = call->d_in[LOGITS].data;
    const int64_t samples = call->in[LOGITS].dim[0], tokens = call->in[LOGITS].dim[1];
    const REAL t = (REAL)((const SoftCrossEntropyAttrs *)call->attrs)->temperature;
    const REAL factor = t * *(const REAL *)call->d_out.data / (REAL)(2 * samples);
    if (!d) return;
    if (!call->d_in[LOGITS].accumulate)
        memset(d, 0, (size_t)(samples * tokens * ENDS) * sizeof *d);
    for (int64_t i = 0; i < samples * ENDS; i++) {
        const Scores x = end_of(call, LOGITS, i / ENDS, i % ENDS);
        const Scores y = end_of(call, TEACHER, i / ENDS, i % ENDS);
        scores_gradient(d + i / ENDS * tokens * ENDS + i % ENDS, &x, &y, t, factor);
    }
}

OP_RECORD(soft_span_cross_entropy) = {
    OP_ID(soft_span_cross_entropy),
    .summary = "span_cross_entropy against a teacher's distributions, at a temperature",
    .operands = OPERANDS,
    .fields = SOFT_FIELDS,
    .attrs_size = sizeof(SoftCrossEntropyAttrs),
    .defaults = &SOFT_DEFAULTS,
    .traits = OP_LOSS,
    .reads = READS_IN(LOGITS) | READS_IN(TEACHER) | READS_IN(MASK),
    .infer = infer,
};

KERNEL(soft_span_cross_entropy) = {
    .forward = forward,
    .backward = backward,
};
