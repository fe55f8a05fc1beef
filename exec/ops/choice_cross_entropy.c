/* choice_cross_entropy: mean over groups of consecutive samples of -log softmax over the
 * group's scores, of the right one (multiple choice: Radford et al., 2018). The right
 * ones are labelled 1, one in a group; a group begins where the place within it is 0.
 *
 * Per group: log sum_i exp(z_i) - sum_i y_i z_i; the gradient is (softmax_i - y_i) /
 * groups. */
#include "exec/ops/kernel_math.h"
#include "exec/ops/rows.h"

enum { SCORES, LABELS, PLACE };

static const Operand OPERANDS[] = {
    {"scores", OPERAND_REQUIRED, "[N, 1]"},
    {"labels", OPERAND_REQUIRED | OPERAND_INTEGER, "[N]: 1 = the right one, else 0"},
    {"place", OPERAND_REQUIRED | OPERAND_INTEGER,
     "[N]: of a sample in its group, which 0 begins"},
    {NULL},
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, SCORES, 2, 2, diag));
    const Type *scores = &node->in[SCORES]->type;
    if (scores->dim[1] != 1) return infer_fail(node, SCORES, diag, "[N, 1]");
    TRY(infer_shape(node, LABELS, 1, scores->dim, diag));
    TRY(infer_shape(node, PLACE, 1, scores->dim, diag));
    *out = real_type(0, scores->dim);
    return STATUS_OK;
}

static int64_t index_limit(const Call *call, int operand) {
    (void)call;
    return operand == LABELS ? 2 : 0;
}

/* Groups: each has one label 1. */
static double count_rows(const Call *call) {
    const int32_t *labels = call->in[LABELS].data;
    int64_t groups = 0;
    for (int64_t i = 0; i < call->in[LABELS].count; i++) groups += labels[i];
    return (double)groups;
}

/* The sample behind the group that starts at `first`. */
static int64_t group_end(const Call *call, int64_t first) {
    const int32_t *place = call->in[PLACE].data;
    int64_t end = first + 1;
    while (end < call->in[PLACE].count && place[end] != 0) end++;
    return end;
}

static void forward(const Call *call) {
    const REAL *z = call->in[SCORES].data;
    const int32_t *labels = call->in[LABELS].data;
    double total = 0;
    for (int64_t i = 0, end; i < call->in[SCORES].count; i = end) {
        end = group_end(call, i);
        total += (double)log_sum_exp(z + i, end - i);
        for (int64_t k = i; k < end; k++)
            if (labels[k]) total -= (double)z[k];
    }
    *(REAL *)call->out.data = rows_mean(call, total);
}

static void backward(const Call *call) {
    REAL *d = call->d_in[SCORES].data;
    const REAL *z = call->in[SCORES].data, factor = rows_gradient(call);
    const int32_t *labels = call->in[LABELS].data;
    const bool add = call->d_in[SCORES].accumulate;
    for (int64_t i = 0, end; d && i < call->in[SCORES].count; i = end) {
        end = group_end(call, i);
        const REAL sum = log_sum_exp(z + i, end - i);
        for (int64_t k = i; k < end; k++)
            d[k] = (add ? d[k] : 0) +
                   factor * (exp_real(z[k] - sum) - (REAL)(labels[k] != 0));
    }
}

OP_RECORD(choice_cross_entropy) = {
    OP_ID(choice_cross_entropy),
    .summary = "mean of -log softmax over a group of samples, of the right one",
    .operands = OPERANDS,
    .traits = OP_LOSS,
    .reads = READS_IN(SCORES) | READS_IN(LABELS) | READS_IN(PLACE),
    .infer = infer,
    .index_limit = index_limit,
    .count_rows = count_rows,
};

KERNEL(choice_cross_entropy) = {
    .forward = forward,
    .backward = backward,
};
