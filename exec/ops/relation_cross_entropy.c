/* relation_cross_entropy: how each token relates to the others, student against teacher.
 *
 * Per sample R = softmax(x y^T / sqrt(D)) by rows, T likewise from the teacher over
 * sqrt(E), both over the tokens that count; a sample's loss is the mean over its rows
 * that count of -sum_j T_ij log R_ij, 0 where none does, the result the mean over
 * samples. With K_n rows that count the gradient of the student's scores x y^T / sqrt(D)
 * is (R - T) / (N K_n). The teacher gets none. Windows are to all of this what samples
 * are.
 *
 * Rows of scores are filled up to whole vectors: with 49 tokens of a window, what remains
 * beside them would cost as much as the rest. */
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/lanes.h"
#include "exec/ops/relation_window.h"
#include "exec/ops/score_block.h"

enum { X, Y, TEACHER_X, TEACHER_Y, MASK };

/* Fills up rows, and stands for tokens that are left out: has no share in a softmax, and
 * its product with 0 is 0. */
static const REAL OUTSIDE = (REAL)-1e30;

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "student's [N, T, D]"},
    {"y", OPERAND_REQUIRED, "student's [N, T, D]; may be x itself"},
    {"teacher_x", OPERAND_CONSTANT, "teacher's [N, T, E]; no gradient"},
    {"teacher_y", OPERAND_CONSTANT, "teacher's [N, T, E]; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, T]: 0 = token is left out"},
    {NULL},
};

static const Field FIELDS[] = {RELATION_WINDOW_FIELD(RelationAttrs), F_END};
static const RelationAttrs DEFAULTS = {0};

/* Tokens that relate to each other. */
static int64_t related_tokens(const Call *call) {
    const RelationAttrs *attrs = call->attrs;
    return attrs->window ? attrs->window : call->in[X].dim[1];
}

/* Samples, or windows of all samples. */
static int64_t related_groups(const Call *call) {
    return call->in[X].dim[0] * (call->in[X].dim[1] / related_tokens(call));
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(infer_rank(node, X, 3, 3, diag));
    TRY(infer_known(node, X, 2, diag));
    TRY(infer_shape(node, Y, 3, node->in[X]->type.dim, diag));
    TRY(infer_rank(node, TEACHER_X, 3, 3, diag));
    TRY(infer_known(node, TEACHER_X, 2, diag));
    const int64_t *dim = node->in[X]->type.dim;
    TRY(infer_dim(node, TEACHER_X, 0, dim[0], "the samples of x", diag));
    TRY(infer_dim(node, TEACHER_X, 1, dim[1], "the tokens of x", diag));
    TRY(infer_shape(node, TEACHER_Y, 3, node->in[TEACHER_X]->type.dim, diag));
    TRY(relation_check_window(node, ((const RelationAttrs *)node->attrs)->window, diag));
    if (node->in[MASK]) TRY(infer_shape(node, MASK, 2, dim, diag));
    *out = real_type(0, node->in[0]->type.dim);
    return STATUS_OK;
}

/* Whether a token, counted over all samples, counts. */
static bool token_counts(const Call *call, int64_t token) {
    const int32_t *mask = call->in[MASK].data;
    return !mask || mask[token] != 0;
}

/* What a row of a group weighs: all its rows by those that count, 1 without a mask. */
static double row_weight(const Call *call, int64_t group) {
    const int64_t tokens = related_tokens(call);
    int64_t kept = 0;
    for (int64_t i = group * tokens; i < (group + 1) * tokens; i++)
        kept += token_counts(call, i);
    return kept ? (double)tokens / (double)kept : 0;
}

static double flops(const Call *call) {
    const int64_t *x = call->in[X].dim;
    const double rows = (double)x[0] * (double)x[1], width = (double)x[2];
    return rows * 2 * (double)related_tokens(call) *
           (width + (double)call->in[TEACHER_X].dim[2]);
}

/* Log-sum-exp of every row of student (first) and teacher. */
static size_t aux_bytes(const Call *call) {
    return (size_t)(call->in[X].dim[0] * call->in[X].dim[1]) * 2 * sizeof(REAL);
}

/* One block of scores of student and of teacher. */
static size_t scratch_bytes(const Call *call) {
    const int64_t tokens = related_tokens(call);
    return (size_t)(score_block_rows(tokens) * LANES_ROUND_UP(tokens)) * 2 * sizeof(REAL);
}

/* scores[rows, T filled up] = x y^T / sqrt(width) from row `first` of operands x and
 * x + 1. */
static void relate(const Call *call, int x, int64_t first, int64_t rows, REAL *scores) {
    const int64_t tokens = related_tokens(call), width = call->in[x].dim[2];
    const int64_t stride = LANES_ROUND_UP(tokens);
    const REAL *a = (const REAL *)call->in[x].data + first * width;
    const REAL *b = (const REAL *)call->in[x + 1].data + first / tokens * tokens * width;
    gemm(false, true, rows, tokens, width, (REAL)(1 / sqrt((double)width)), a, width, b,
         width, 0, scores, stride);
    for (int64_t r = 0; r < rows; r++) {
        REAL *row = scores + r * stride;
        for (int64_t j = 0; call->in[MASK].data && j < tokens; j++)
            if (!token_counts(call, first / tokens * tokens + j)) row[j] = OUTSIDE;
        for (int64_t j = tokens; j < stride; j++) row[j] = OUTSIDE;
    }
}

/* Sum of exp(x[j] - shift). n is a multiple of LANE_COUNT here and below. */
static REAL exp_sum(int64_t n, const REAL *x, REAL shift) {
    n &= -LANE_COUNT;
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) sum += exp_real(x[j] - shift);
    return sum;
}

/* -sum_j softmax(t)_j log softmax(s)_j, and the log-sum-exps of s and t. Destroys t. */
static REAL row_loss(const REAL *restrict s, REAL *restrict t, int64_t n,
                     REAL log_sum[2]) {
    n &= -LANE_COUNT;
    const REAL top_s = lanes_max(n, s), top_t = lanes_max(n, t);
    const REAL log_s = top_s + log_real(exp_sum(n, s, top_s));
    const REAL sum_t = exp_row(t, n, top_t);
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) sum += t[j] * (log_s - s[j]);
    log_sum[0] = log_s;
    log_sum[1] = top_t + log_real(sum_t);
    return sum / sum_t;
}

static double forward_block(const Call *call, int64_t first, int64_t rows, REAL *student,
                            REAL *teacher) {
    const int64_t tokens = related_tokens(call), all = related_groups(call) * tokens;
    const int64_t stride = LANES_ROUND_UP(tokens);
    double total = 0;
    relate(call, X, first, rows, student);
    relate(call, TEACHER_X, first, rows, teacher);
    for (int64_t r = 0; r < rows; r++) {
        REAL log_sum[2];
        const REAL loss =
            row_loss(student + r * stride, teacher + r * stride, stride, log_sum);
        if (token_counts(call, first + r)) total += (double)loss;
        if (!call->aux) continue;
        REAL *kept = (REAL *)call->aux + first + r;
        kept[0] = log_sum[0];
        kept[all] = log_sum[1];
    }
    return total;
}

static void forward(const Call *call) {
    const int64_t groups = related_groups(call), tokens = related_tokens(call);
    const int64_t block = score_block_rows(tokens);
    REAL *student = call->scratch, *teacher = student + block * LANES_ROUND_UP(tokens);
    double total = 0;
    for (int64_t n = 0; n < groups; n++) {
        const double weight = row_weight(call, n);
        for (int64_t row = 0; row < tokens; row += block) {
            const int64_t left = tokens - row;
            total +=
                weight * forward_block(call, n * tokens + row,
                                       left < block ? left : block, student, teacher);
        }
    }
    *(REAL *)call->out.data = (REAL)(total / (double)(groups * tokens));
}

/* student = softmax(student) - softmax(teacher) for rows first .. first + rows - 1, 0 for
 * one that is left out. */
static void difference(const Call *call, int64_t first, int64_t rows, REAL *student,
                       const REAL *teacher) {
    const int64_t tokens = related_tokens(call), all = related_groups(call) * tokens;
    const int64_t stride = LANES_ROUND_UP(tokens);
    const REAL *log_sum = (const REAL *)call->aux + first;
    for (int64_t r = 0; r < rows; r++) {
        REAL *restrict s = student + r * stride;
        const REAL *restrict t = teacher + r * stride;
        const REAL log_s = log_sum[r], log_t = log_sum[all + r];
        for (int64_t j = 0; j < stride; j++)
            s[j] = exp_real(s[j] - log_s) - exp_real(t[j] - log_t);
        for (int64_t j = 0; !token_counts(call, first + r) && j < stride; j++) s[j] = 0;
    }
}

static void backward(const Call *call) {
    const int64_t groups = related_groups(call), tokens = related_tokens(call);
    const int64_t width = call->in[X].dim[2], block = score_block_rows(tokens);
    const int64_t stride = LANES_ROUND_UP(tokens);
    const REAL *x = call->in[X].data, *y = call->in[Y].data;
    REAL *student = call->scratch, *teacher = student + block * stride;
    REAL *d_x = gradient_of(call, X), *d_y = gradient_of(call, Y);
    const bool add_x = gradient_adds(call, X), add_y = gradient_adds(call, Y);
    const REAL mean = *(const REAL *)call->d_out.data / (REAL)(groups * tokens) /
                      (REAL)sqrt((double)width);
    if (!d_x && !d_y) return;
    for (int64_t start = 0; start < groups * tokens; start += tokens) {
        const REAL factor = (REAL)row_weight(call, start / tokens) * mean;
        for (int64_t row = 0; row < tokens; row += block) {
            const int64_t rows = tokens - row < block ? tokens - row : block;
            const int64_t first = start + row;
            relate(call, X, first, rows, student);
            relate(call, TEACHER_X, first, rows, teacher);
            difference(call, first, rows, student, teacher);
            if (d_x)
                gemm(false, false, rows, width, tokens, factor, student, stride,
                     y + start * width, width, add_x, d_x + first * width, width);
            if (d_y)
                gemm(true, false, tokens, width, rows, factor, student, stride,
                     x + first * width, width, add_y || row > 0, d_y + start * width,
                     width);
        }
    }
}

OP_RECORD(relation_cross_entropy) = {
    OP_ID(relation_cross_entropy),
    .summary = "cross-entropy of softmax(x y^T / sqrt(D)) against the teacher's, by rows",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(RelationAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_LOSS,
    .reads = READS_IN(X) | READS_IN(Y) | READS_IN(TEACHER_X) | READS_IN(TEACHER_Y) |
             READS_IN(MASK),
    .infer = infer,
    .flops = flops,
};

KERNEL(relation_cross_entropy) = {
    .aux_bytes = aux_bytes,
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
