/* attention_match: rows of linear attention against those of softmax attention
 * (Hedgehog, Zhang et al., 2024).
 *
 * Per sample, head and query t, over the keys j that mask and causality allow: P =
 * softmax(scale teacher_q . teacher_k_j), s_j = q . k_j, m = max(sum s, eps), A_j = s_j /
 * m. The row's loss is -sum P_j log max(A_j, 1e-6), 0 for a row without keys; the result
 * is the mean over samples of their means over heads and the rows that count, 0 for a
 * sample that has none: so padding changes nothing. With F the keys where A_j > 1e-6:
 *
 *     ds_j = (-[j in F] P_j / A_j + sum of P over F) / m,  without the sum where clamped;
 *
 * dq = ds k, dk = ds^T q. The teacher gets none. */
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/heads.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/score_block.h"

enum { Q, K, TEACHER_Q, TEACHER_K, MASK, ROWS };

#define FLOOR ((REAL)1e-6)

static const Operand OPERANDS[] = {
    {"q", OPERAND_REQUIRED, "features of the queries [N, T, H f]"},
    {"k", OPERAND_REQUIRED, "features of the keys [N, S, G f]"},
    {"teacher_q", OPERAND_CONSTANT, "teacher's queries [N, T, H d]; no gradient"},
    {"teacher_k", OPERAND_CONSTANT, "teacher's keys [N, S, G d]; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, S]: 0 = key takes no part"},
    {"rows", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, T]: 0 = query takes no part"},
    {NULL},
};

static const Field FIELDS[] = {
    F_INT(AttentionMatchAttrs, heads, 1, 65536, "heads H of the queries"),
    F_INT(AttentionMatchAttrs, kv_heads, 0, 65536,
          "heads G of the keys; 0 = as many, else a divisor"),
    F_BOOL(AttentionMatchAttrs, causal, "a query sees no later keys"),
    F_REAL(AttentionMatchAttrs, scale, 0, 1e6,
           "factor of the teacher's scores; 0 = 1 / sqrt(d)"),
    F_REAL(AttentionMatchAttrs, eps, 1e-12, 1e6, "least denominator"),
    F_END,
};

static const AttentionMatchAttrs DEFAULTS = {.heads = 1, .eps = 0.01};

static Status check_attrs(const Node *node, Diag *diag) {
    const AttentionMatchAttrs *attrs = node->attrs;
    TRY(heads_check(node, attrs->heads, attrs->kv_heads, diag));
    if (!(attrs->scale >= 0 && attrs->scale < INFINITY))
        return infer_fail_attr(node, "scale", diag, "a number from 0 on, found %g",
                               attrs->scale);
    if (!(attrs->eps > 0 && attrs->eps < INFINITY))
        return infer_fail_attr(node, "eps", diag, "a number above 0, found %g",
                               attrs->eps);
    return STATUS_OK;
}

/* Operands `q` and the one after it are queries and keys. */
static Status check_pair(const Node *node, int q, Diag *diag) {
    const AttentionMatchAttrs *attrs = node->attrs;
    TRY(heads_check_width(node, q, attrs->heads, "heads", diag));
    return heads_check_keys(node, q, q + 1, attrs->heads, attrs->kv_heads, diag);
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    TRY(check_attrs(node, diag));
    TRY(check_pair(node, Q, diag));
    TRY(check_pair(node, TEACHER_Q, diag));
    const int64_t *q = node->in[Q]->type.dim, *k = node->in[K]->type.dim;
    TRY(infer_dim(node, TEACHER_Q, 0, q[0], "the samples of q", diag));
    TRY(infer_dim(node, TEACHER_Q, 1, q[1], "the tokens of q", diag));
    TRY(infer_dim(node, TEACHER_K, 1, k[1], "the tokens of k", diag));
    if (node_has(node, MASK)) TRY(infer_shape(node, MASK, 2, k, diag));
    if (node_has(node, ROWS)) TRY(infer_shape(node, ROWS, 2, q, diag));
    *out = real_type(0, q);
    return STATUS_OK;
}

/* Whether a query counts; all of a sample that do. */
static bool row_counts(const Call *call, int64_t sample, int64_t row) {
    const int32_t *rows = call_data(call, ROWS);
    return !rows || rows[sample * call->in[Q].dim[1] + row];
}

static int64_t count_rows(const Call *call, int64_t sample) {
    int64_t count = 0;
    for (int64_t row = 0; row < call->in[Q].dim[1]; row++)
        count += row_counts(call, sample, row);
    return count;
}

/* Queries row .. row + rows - 1 of one head and sample against its first `keys` keys. */
typedef struct MatchSpan {
    int64_t sample, head, row, rows, keys;
} MatchSpan;

static MatchSpan span_at(const Call *call, int64_t sample, int64_t head, int64_t row) {
    const int64_t queries = call->in[Q].dim[1], keys = call->in[K].dim[1];
    const int64_t block = score_block_rows(keys), left = queries - row;
    MatchSpan span = {sample, head, row, left < block ? left : block, keys};
    const bool causal = ((const AttentionMatchAttrs *)call->attrs)->causal;
    if (causal && row + span.rows < keys) span.keys = row + span.rows;
    return span;
}

/* Head width of operand `q`, Q or TEACHER_Q. */
static int64_t head_width(const Call *call, int q) {
    return call->in[q].dim[2] / ((const AttentionMatchAttrs *)call->attrs)->heads;
}

/* Where a span's rows of operand `q` and the keys they read begin. */
static int64_t query_at(const Call *call, int q, MatchSpan span) {
    const int64_t *dim = call->in[q].dim;
    return (span.sample * dim[1] + span.row) * dim[2] + span.head * head_width(call, q);
}

static int64_t key_at(const Call *call, int q, MatchSpan span) {
    const AttentionMatchAttrs *attrs = call->attrs;
    const int64_t *dim = call->in[q + 1].dim;
    const int64_t share = attrs->heads / heads_of_keys(attrs->heads, attrs->kv_heads);
    return span.sample * dim[1] * dim[2] + span.head / share * head_width(call, q);
}

static double flops(const Call *call) {
    const double samples = (double)call->in[Q].dim[0];
    const double heads = (double)((const AttentionMatchAttrs *)call->attrs)->heads;
    const double width = (double)(head_width(call, Q) + head_width(call, TEACHER_Q));
    double pairs = 0;
    for (int64_t row = 0; row < call->in[Q].dim[1];) {
        const MatchSpan span = span_at(call, 0, 0, row);
        pairs += (double)span.rows * (double)span.keys;
        row += span.rows;
    }
    return 2 * samples * heads * pairs * width;
}

/* A block of scores of student and of teacher. */
static size_t scratch_bytes(const Call *call) {
    const int64_t keys = call->in[K].dim[1];
    return (size_t)(score_block_rows(keys) * keys) * 2 * sizeof(REAL);
}

/* scores[rows, keys] = by * q k^T of operands q and q + 1. */
static void multiply(const Call *call, int q, MatchSpan span, REAL by, REAL *scores) {
    const View *queries = &call->in[q], *keys = &call->in[q + 1];
    gemm(false, true, span.rows, span.keys, head_width(call, q), by,
         (const REAL *)queries->data + query_at(call, q, span), queries->dim[2],
         (const REAL *)keys->data + key_at(call, q, span), keys->dim[2], 0, scores,
         span.keys);
}

/* scores = value at the keys that a query does not see. */
static void leave_out(const Call *call, MatchSpan span, REAL value, REAL *scores) {
    const int32_t *mask = call_data(call, MASK);
    const bool causal = ((const AttentionMatchAttrs *)call->attrs)->causal;
    if (mask) mask += span.sample * call->in[K].dim[1];
    for (int64_t r = 0; r < span.rows; r++) {
        REAL *restrict row = scores + r * span.keys;
        for (int64_t j = 0; mask && j < span.keys; j++) row[j] = mask[j] ? row[j] : value;
        for (int64_t j = span.row + r + 1; causal && j < span.keys; j++) row[j] = value;
    }
}

/* student = s, teacher = P, both 0 at the keys left out. */
static void compare(const Call *call, MatchSpan span, REAL *student, REAL *teacher) {
    const double scale = ((const AttentionMatchAttrs *)call->attrs)->scale;
    const double width = (double)head_width(call, TEACHER_Q);
    multiply(call, Q, span, 1, student);
    multiply(call, TEACHER_Q, span, (REAL)(scale > 0 ? scale : 1 / sqrt(width)), teacher);
    leave_out(call, span, 0, student);
    leave_out(call, span, -INFINITY, teacher);
    for (int64_t r = 0; r < span.rows; r++)
        softmax_row(teacher + r * span.keys, span.keys);
}

/* -sum P_j log max(s_j / m, FLOOR) of a row. */
static REAL row_loss(int64_t n, const REAL *restrict s, const REAL *restrict p, REAL m) {
    const REAL inverse = 1 / m;
    REAL sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        const REAL a = s[j] * inverse;
        sum -= p[j] * log_real(a > FLOOR ? a : FLOOR);
    }
    return sum;
}

/* Turns a row s into ds; keys left out get what is cleared later. */
static void row_gradient(int64_t n, REAL *restrict s, const REAL *restrict p, REAL eps) {
    const REAL sum = row_sum(s, n), m = sum < eps ? eps : sum;
    REAL share = 0;
#pragma omp simd reduction(+ : share)
    for (int64_t j = 0; j < n; j++) share += s[j] > FLOOR * m ? p[j] : 0;
    const REAL shift = sum < eps ? 0 : share / m;
    for (int64_t j = 0; j < n; j++) s[j] = (s[j] > FLOOR * m ? -p[j] / s[j] : 0) + shift;
}

static double forward_block(const Call *call, MatchSpan span) {
    const REAL eps = (REAL)((const AttentionMatchAttrs *)call->attrs)->eps;
    const int64_t keys = call->in[K].dim[1];
    REAL *student = call->scratch, *teacher = student + score_block_rows(keys) * keys;
    double total = 0;
    compare(call, span, student, teacher);
    for (int64_t r = 0; r < span.rows; r++) {
        const REAL *s = student + r * span.keys;
        const REAL sum = row_sum(s, span.keys);
        if (!row_counts(call, span.sample, span.row + r)) continue;
        total += (double)row_loss(span.keys, s, teacher + r * span.keys,
                                  sum < eps ? eps : sum);
    }
    return total;
}

/* What the loss of each of a sample's rows is divided by. */
static double divisor(const Call *call, int64_t sample) {
    const double heads = (double)((const AttentionMatchAttrs *)call->attrs)->heads;
    const int64_t rows = count_rows(call, sample);
    return (double)call->in[Q].dim[0] * heads * (double)(rows > 0 ? rows : 1);
}

static void forward(const Call *call) {
    const int64_t heads = ((const AttentionMatchAttrs *)call->attrs)->heads;
    double loss = 0;
    for (int64_t n = 0; n < call->in[Q].dim[0]; n++) {
        double total = 0;
        for (int64_t h = 0; h < heads; h++)
            for (int64_t row = 0; row < call->in[Q].dim[1];) {
                const MatchSpan span = span_at(call, n, h, row);
                total += forward_block(call, span);
                row += span.rows;
            }
        loss += total / divisor(call, n);
    }
    *(REAL *)call->out.data = (REAL)loss;
}

/* The gradients wanted (NULL = not), which are added to. */
typedef struct MatchGradients {
    REAL *q, *k;
    REAL factor; /* of every row's gradient, in the sample at hand */
} MatchGradients;

static void backward_block(const Call *call, MatchSpan span, const MatchGradients *d) {
    const REAL eps = (REAL)((const AttentionMatchAttrs *)call->attrs)->eps;
    const View *q = &call->in[Q], *k = &call->in[K];
    const int64_t keys = k->dim[1], width = head_width(call, Q);
    const int64_t at_q = query_at(call, Q, span), at_k = key_at(call, Q, span);
    REAL *student = call->scratch, *teacher = student + score_block_rows(keys) * keys;
    compare(call, span, student, teacher);
    for (int64_t r = 0; r < span.rows; r++)
        if (row_counts(call, span.sample, span.row + r))
            row_gradient(span.keys, student + r * span.keys, teacher + r * span.keys,
                         eps);
        else
            memset(student + r * span.keys, 0, (size_t)span.keys * sizeof *student);
    leave_out(call, span, 0, student);
    if (d->q)
        gemm(false, false, span.rows, width, span.keys, d->factor, student, span.keys,
             (const REAL *)k->data + at_k, k->dim[2], 1, d->q + at_q, q->dim[2]);
    if (d->k)
        gemm(true, false, span.keys, width, span.rows, d->factor, student, span.keys,
             (const REAL *)q->data + at_q, q->dim[2], 1, d->k + at_k, k->dim[2]);
}

static void backward(const Call *call) {
    const int64_t heads = ((const AttentionMatchAttrs *)call->attrs)->heads;
    MatchGradients d = {.q = gradient_to_add(call, Q), .k = gradient_to_add(call, K)};
    if (!d.q && !d.k) return;
    for (int64_t n = 0; n < call->in[Q].dim[0]; n++) {
        d.factor = (REAL)((double)*(const REAL *)call->d_out.data / divisor(call, n));
        for (int64_t h = 0; h < heads; h++)
            for (int64_t row = 0; row < call->in[Q].dim[1];) {
                const MatchSpan span = span_at(call, n, h, row);
                backward_block(call, span, &d);
                row += span.rows;
            }
    }
}

OP_RECORD(attention_match) = {
    OP_ID(attention_match),
    .summary = "cross-entropy of rows of linear attention against softmax attention's",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(AttentionMatchAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_LOSS,
    .reads = READS_IN(Q) | READS_IN(K) | READS_IN(TEACHER_Q) | READS_IN(TEACHER_K) |
             READS_IN(MASK) | READS_IN(ROWS),
    .infer = infer,
    .flops = flops,
};

KERNEL(attention_match) = {
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
