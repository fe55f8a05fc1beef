/* span_cross_entropy: mean over samples of half the sum of two cross-entropies over the
 * tokens, of the first and of the last token of a span (Devlin et al., 2019,
 * section 4.2). Tokens where the mask is 0 take no part.
 *
 * Per sample and end e: log sum_t exp(z_te) - z_{p_e e}; the gradient is (softmax over t
 * - one-hot(p_e)) / (2 N). */
#include "exec/ops/rows.h"
#include "exec/ops/soft_choice.h"

enum { LOGITS, FIRST, LAST, MASK };
enum { ENDS = 2 };

static const Operand OPERANDS[] = {
    {"logits", OPERAND_REQUIRED, "[N, T, 2]: of being the first token, the last"},
    {"first", OPERAND_REQUIRED | OPERAND_INTEGER, "[N], from 0 to T - 1"},
    {"last", OPERAND_REQUIRED | OPERAND_INTEGER, "[N], from 0 to T - 1"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, T]: 0 = token takes no part"},
    {NULL},
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, LOGITS, 3, 3, diag));
    const Type *logits = &node->in[LOGITS]->type;
    if (logits->dim[2] != ENDS) return infer_fail(node, LOGITS, diag, "[N, T, 2]");
    TRY(infer_shape(node, FIRST, 1, logits->dim, diag));
    TRY(infer_shape(node, LAST, 1, logits->dim, diag));
    if (node->in[MASK]) TRY(infer_shape(node, MASK, 2, logits->dim, diag));
    *out = real_type(0, logits->dim);
    return STATUS_OK;
}

static int64_t index_limit(const Call *call, int operand) {
    return operand == FIRST || operand == LAST ? call->in[LOGITS].dim[1] : 0;
}

/* The log-sum-exp of both ends of every sample. */
static size_t aux_bytes(const Call *call) {
    return (size_t)(call->in[LOGITS].dim[0] * ENDS) * sizeof(REAL);
}

static double count_rows(const Call *call) {
    return (double)call->in[FIRST].count;
}

/* One end of sample n. */
static Scores end_of(const Call *call, int64_t n, int64_t end) {
    const int64_t tokens = call->in[LOGITS].dim[1];
    const int32_t *mask = call->in[MASK].data;
    return (Scores){(const REAL *)call->in[LOGITS].data + n * tokens * ENDS + end, tokens,
                    ENDS, mask ? mask + n * tokens : NULL};
}

static void forward(const Call *call) {
    REAL *log_sum = call->aux;
    double total = 0;
    for (int64_t i = 0; i < call->in[LOGITS].dim[0] * ENDS; i++) {
        const int64_t n = i / ENDS, end = i % ENDS;
        const int32_t *place = call->in[FIRST + end].data;
        const Scores x = end_of(call, n, end);
        const REAL sum = scores_log_sum(&x, 1);
        if (log_sum) log_sum[i] = sum;
        total += 0.5 * (double)(sum - x.z[(int64_t)place[n] * ENDS]);
    }
    *(REAL *)call->out.data = rows_mean(call, total);
}

static void backward(const Call *call) {
    if (!call->d_in[LOGITS].data) return;
    const int64_t samples = call->in[LOGITS].dim[0], tokens = call->in[LOGITS].dim[1];
    const REAL *log_sum = call->aux, factor = rows_gradient(call) / 2;
    REAL *d = call->d_in[LOGITS].data;
    if (!call->d_in[LOGITS].accumulate)
        memset(d, 0, (size_t)(samples * tokens * ENDS) * sizeof *d);
    for (int64_t i = 0; i < samples * ENDS; i++) {
        const int64_t n = i / ENDS, end = i % ENDS, at = n * tokens * ENDS + end;
        const int32_t *place = call->in[FIRST + end].data;
        const Scores x = end_of(call, n, end);
        for (int64_t t = 0; t < tokens; t++)
            if (scores_count(&x, t))
                d[at + t * ENDS] += factor * exp_real(x.z[t * ENDS] - log_sum[i]);
        d[at + (int64_t)place[n] * ENDS] -= factor;
    }
}

OP_RECORD(span_cross_entropy) = {
    OP_ID(span_cross_entropy),
    .summary = "mean of -log softmax over the tokens, of a span's first and last token",
    .operands = OPERANDS,
    .traits = OP_LOSS,
    .reads = READS_IN(LOGITS) | READS_IN(FIRST) | READS_IN(LAST) | READS_IN(MASK),
    .infer = infer,
    .index_limit = index_limit,
    .count_rows = count_rows,
};

KERNEL(span_cross_entropy) = {
    .aux_bytes = aux_bytes,
    .forward = forward,
    .backward = backward,
};
