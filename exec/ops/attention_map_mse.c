/* attention_map_mse: scores of attention, student against teacher.
 *
 * Per sample and head A = q k^T / sqrt(D/H), B likewise from the teacher over sqrt(E/H);
 * the sample's loss is the mean of (A - B)^2 over heads and pairs of tokens that both
 * count, 0 when none does; the result is the mean over samples. With F = 2 (A - B) / (N H
 * P sqrt(D/H)) for P pairs: dq = F k, dk = F^T q. The teacher gets none. */
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/score_block.h"

enum { Q, K, TEACHER_Q, TEACHER_K, MASK };

static const Operand OPERANDS[] = {
    {"q", OPERAND_REQUIRED, "student's queries [N, T, D]"},
    {"k", OPERAND_REQUIRED, "student's keys [N, T, D]"},
    {"teacher_q", OPERAND_CONSTANT, "teacher's queries [N, T, E]; no gradient"},
    {"teacher_k", OPERAND_CONSTANT, "teacher's keys [N, T, E]; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, T]: 0 = token is left out"},
    {NULL},
};

static const Field FIELDS[] = {
    F_INT(AttentionMapMseAttrs, heads, 1, 65536, "heads; divides both widths"), F_END};

static const AttentionMapMseAttrs DEFAULTS = {.heads = 1};

static int64_t head_count(const void *attrs) {
    return ((const AttentionMapMseAttrs *)attrs)->heads;
}

/* Operands `q` and the one after it are queries and keys of `heads` heads. */
static Status check_pair(const Node *node, int q, Diag *diag) {
    TRY(infer_rank(node, q, 3, 3, diag));
    TRY(infer_known(node, q, 2, diag));
    const Type *type = &node->in[q]->type;
    if (type->dim[2] % head_count(node->attrs) != 0)
        return infer_fail(node, q, diag, "a last dimension that heads=%lld divides",
                          (long long)head_count(node->attrs));
    return infer_shape(node, q + 1, 3, type->dim, diag);
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    if (head_count(node->attrs) < 1)
        return infer_fail_attr(node, "heads", diag, "at least 1, found %lld",
                               (long long)head_count(node->attrs));
    TRY(check_pair(node, Q, diag));
    TRY(check_pair(node, TEACHER_Q, diag));
    const int64_t *dim = node->in[Q]->type.dim;
    TRY(infer_dim(node, TEACHER_Q, 0, dim[0], "the samples of q", diag));
    TRY(infer_dim(node, TEACHER_Q, 1, dim[1], "the tokens of q", diag));
    if (node->in[MASK]) TRY(infer_shape(node, MASK, 2, dim, diag));
    *out = real_type(0, dim);
    return STATUS_OK;
}

static double flops(const Call *call) {
    const int64_t *q = call->in[Q].dim;
    const double pairs = (double)q[0] * (double)q[1] * (double)q[1];
    return 2 * pairs * ((double)q[2] + (double)call->in[TEACHER_Q].dim[2]);
}

static size_t scratch_bytes(const Call *call) {
    const int64_t tokens = call->in[Q].dim[1];
    return (size_t)(score_block_rows(tokens) * tokens) * sizeof(REAL);
}

/* Rows row .. row + rows - 1 of the scores of one head and sample. */
typedef struct MapSpan {
    int64_t sample, head, row, rows;
} MapSpan;

/* The mask of a sample's tokens, NULL when all count. */
static const int32_t *sample_mask(const Call *call, int64_t sample) {
    const int32_t *mask = call->in[MASK].data;
    return mask ? mask + sample * call->in[Q].dim[1] : NULL;
}

/* Ordered pairs of tokens that count. */
static double count_pairs(const Call *call, int64_t sample) {
    const int32_t *mask = sample_mask(call, sample);
    const int64_t tokens = call->in[Q].dim[1];
    int64_t kept = mask ? 0 : tokens;
    for (int64_t i = 0; mask && i < tokens; i++) kept += mask[i] != 0;
    return (double)kept * (double)kept;
}

/* scores = by * q k^T / sqrt(head width) + add * scores, of operands q and q + 1. */
static void add_scores(const Call *call, int q, MapSpan span, REAL by, REAL add,
                       REAL *scores) {
    const int64_t tokens = call->in[q].dim[1], width = call->in[q].dim[2];
    const int64_t head = width / head_count(call->attrs);
    const int64_t at = span.sample * tokens * width + span.head * head;
    gemm(false, true, span.rows, tokens, head, by / (REAL)sqrt((double)head),
         (const REAL *)call->in[q].data + at + span.row * width, width,
         (const REAL *)call->in[q + 1].data + at, width, add, scores, tokens);
}

/* difference[rows, T] = student's scores - teacher's, 0 where a token is left out. */
static void compare(const Call *call, MapSpan span, REAL *difference) {
    const int64_t tokens = call->in[Q].dim[1];
    const int32_t *mask = sample_mask(call, span.sample);
    add_scores(call, Q, span, 1, 0, difference);
    add_scores(call, TEACHER_Q, span, -1, 1, difference);
    for (int64_t r = 0; mask && r < span.rows; r++) {
        REAL *restrict row = difference + r * tokens;
        const bool kept = mask[span.row + r] != 0;
        for (int64_t j = 0; j < tokens; j++) row[j] = kept && mask[j] ? row[j] : 0;
    }
}

/* Sum of the squared differences of one head and sample. */
static double head_loss(const Call *call, int64_t sample, int64_t head) {
    const int64_t tokens = call->in[Q].dim[1], block = score_block_rows(tokens);
    REAL *difference = call->scratch;
    double total = 0;
    for (int64_t row = 0; row < tokens; row += block) {
        const int64_t rows = tokens - row < block ? tokens - row : block;
        compare(call, (MapSpan){sample, head, row, rows}, difference);
        for (int64_t r = 0; r < rows; r++)
            total +=
                (double)row_dot(difference + r * tokens, difference + r * tokens, tokens);
    }
    return total;
}

static void forward(const Call *call) {
    const int64_t samples = call->in[Q].dim[0], heads = head_count(call->attrs);
    double total = 0;
    for (int64_t n = 0; n < samples; n++) {
        const double pairs = count_pairs(call, n);
        for (int64_t h = 0; pairs > 0 && h < heads; h++)
            total += head_loss(call, n, h) / pairs;
    }
    *(REAL *)call->out.data = (REAL)(total / (double)(samples * heads));
}

/* Adds one head's part to the gradients of q and k; with `add` false a gradient is
 * overwritten. */
static void head_backward(const Call *call, int64_t sample, int64_t head, REAL factor,
                          bool add_q, bool add_k) {
    const int64_t tokens = call->in[Q].dim[1], width = call->in[Q].dim[2];
    const int64_t d = width / head_count(call->attrs), block = score_block_rows(tokens);
    const int64_t at = sample * tokens * width + head * d;
    const REAL *q = (const REAL *)call->in[Q].data + at;
    const REAL *k = (const REAL *)call->in[K].data + at;
    REAL *d_q = gradient_of(call, Q), *d_k = gradient_of(call, K);
    REAL *difference = call->scratch;
    for (int64_t row = 0; row < tokens; row += block) {
        const int64_t rows = tokens - row < block ? tokens - row : block;
        compare(call, (MapSpan){sample, head, row, rows}, difference);
        if (d_q)
            gemm(false, false, rows, d, tokens, factor, difference, tokens, k, width,
                 add_q, d_q + at + row * width, width);
        if (d_k)
            gemm(true, false, tokens, d, rows, factor, difference, tokens,
                 q + row * width, width, add_k || row > 0, d_k + at, width);
    }
}

static void backward(const Call *call) {
    const int64_t samples = call->in[Q].dim[0], heads = head_count(call->attrs);
    const bool add_q = gradient_adds(call, Q), add_k = gradient_adds(call, K);
    const double d = (double)(call->in[Q].dim[2] / heads);
    const double d_out = (double)*(const REAL *)call->d_out.data;
    if (!gradient_of(call, Q) && !gradient_of(call, K)) return;
    for (int64_t n = 0; n < samples; n++) {
        const double pairs = count_pairs(call, n);
        const double all = (double)(samples * heads) * pairs * sqrt(d);
        for (int64_t h = 0; h < heads; h++)
            head_backward(call, n, h, all > 0 ? (REAL)(2 * d_out / all) : 0, add_q,
                          add_k);
    }
}

OP_RECORD(attention_map_mse) = {
    OP_ID(attention_map_mse),
    .summary = "mean squared difference of the scores q k^T / sqrt(d) of all heads",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(AttentionMapMseAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_LOSS,
    .reads = READS_IN(Q) | READS_IN(K) | READS_IN(TEACHER_Q) | READS_IN(TEACHER_K) |
             READS_IN(MASK),
    .infer = infer,
    .flops = flops,
};

KERNEL(attention_map_mse) = {
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
