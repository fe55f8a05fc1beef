/* gram_mse: similarity of tokens, student against teacher; similarity_mse: the same of
 * the samples of a mini-batch (similarity-preserving distillation, Tung and Mori, ICCV
 * 2019, with cosines).
 *
 * Rows of x and of the teacher are divided by their L2 norm (rows of zeros stay zero);
 * G = u u^T of the unit rows of a sample, H likewise from the teacher; the loss is
 * weight * mean over samples and the K*K entries of tokens that count of (G - H)^2, 0 for
 * a sample without any. With F = 4 weight (G - H) / (N K K): du = F u, dx = (du - u (u .
 * du)) / norm. The teacher gets no gradient. Windows are to all of this what samples are;
 * of rows [N, D] there is one sample, of which they are the tokens. */
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/relation_window.h"
#include "exec/ops/unit_rows.h"

#include <string.h>

enum { X, TEACHER, MASK };

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "student's [N, T, D]"},
    {"teacher", OPERAND_CONSTANT, "teacher's [N, T, E]; no gradient"},
    {"mask", OPERAND_OPTIONAL | OPERAND_INTEGER, "[N, T]: 0 = token is left out"},
    {NULL},
};

static const Field FIELDS[] = {
    F_REAL(GramMseAttrs, weight, -1e30, 1e30, "factor of the loss"),
    RELATION_WINDOW_FIELD(GramMseAttrs),
    F_END,
};

static const GramMseAttrs DEFAULTS = {.weight = 1};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const double weight = ((const GramMseAttrs *)node->attrs)->weight;
    for (int i = X; i <= TEACHER; i++) {
        TRY(infer_rank(node, i, 3, 3, diag));
        TRY(infer_known(node, i, 2, diag));
    }
    const int64_t *dim = node->in[X]->type.dim;
    TRY(infer_dim(node, TEACHER, 0, dim[0], "the samples of x", diag));
    TRY(infer_dim(node, TEACHER, 1, dim[1], "the tokens of x", diag));
    if (!isfinite(weight))
        return infer_fail_attr(node, "weight", diag, "a finite number, found %g", weight);
    TRY(relation_check_window(node, ((const GramMseAttrs *)node->attrs)->window, diag));
    if (node->in[MASK]) TRY(infer_shape(node, MASK, 2, dim, diag));
    *out = real_type(0, node->in[0]->type.dim);
    return STATUS_OK;
}

/* Tokens that are compared among themselves. */
static int64_t compared_tokens(const Call *call) {
    const View *x = &call->in[X];
    const int64_t window = x->rank == 3 ? ((const GramMseAttrs *)call->attrs)->window : 0;
    return window ? window : x->dim[x->rank - 2];
}

/* Samples, or windows of all samples. */
static int64_t compared_groups(const Call *call) {
    return view_rows(&call->in[X]) / compared_tokens(call);
}

static double flops(const Call *call) {
    const View *x = &call->in[X], *teacher = &call->in[TEACHER];
    const double entries = (double)view_rows(x) * (double)compared_tokens(call);
    return 2 * entries * ((double)view_last(x) + (double)view_last(teacher));
}

/* One sample's work: unit rows of both, G - H, gradient of the unit rows, norms. */
typedef struct Gram {
    int64_t tokens, width, teacher_width;
    REAL *unit, *teacher, *difference, *d_unit, *inverse;
    size_t bytes;
} Gram;

static Gram gram_open(const Call *call) {
    const int64_t t = compared_tokens(call), d = view_last(&call->in[X]);
    const int64_t e = view_last(&call->in[TEACHER]);
    Gram g = {t, d, e, call->scratch};
    g.bytes = (size_t)(t * (2 * d + e + t + 1)) * sizeof(REAL);
    if (!g.unit) return g;
    g.teacher = g.unit + t * d;
    g.difference = g.teacher + t * e;
    g.d_unit = g.difference + t * t;
    g.inverse = g.d_unit + t * d;
    return g;
}

static size_t scratch_bytes(const Call *call) {
    return gram_open(call).bytes;
}

/* The mask of a group's tokens, NULL when all count. */
static const int32_t *group_mask(const Call *call, int64_t n) {
    const int32_t *mask = call->in[X].rank == 3 ? call->in[MASK].data : NULL;
    return mask ? mask + n * compared_tokens(call) : NULL;
}

/* What an entry of a group weighs: all of them by those that count, 1 without a mask. */
static double entry_weight(const Call *call, int64_t n) {
    const int32_t *mask = group_mask(call, n);
    const int64_t tokens = compared_tokens(call);
    int64_t kept = mask ? 0 : tokens;
    for (int64_t i = 0; mask && i < tokens; i++) kept += mask[i] != 0;
    const double share = kept ? (double)tokens / (double)kept : 0;
    return share * share;
}

/* Unit rows and G - H of sample n, 0 where a token is left out; the student's norms stay
 * in g->inverse. */
static void compare(const Call *call, const Gram *g, int64_t n) {
    const int64_t t = g->tokens, d = g->width, e = g->teacher_width;
    const REAL *x = (const REAL *)call->in[X].data + n * t * d;
    const REAL *teacher = (const REAL *)call->in[TEACHER].data + n * t * e;
    unit_rows(t, e, teacher, g->teacher, g->inverse);
    unit_rows(t, d, x, g->unit, g->inverse);
    const int32_t *mask = group_mask(call, n);
    for (int64_t i = 0; mask && i < t; i++) {
        if (mask[i]) continue;
        memset(g->unit + i * d, 0, (size_t)d * sizeof(REAL));
        memset(g->teacher + i * e, 0, (size_t)e * sizeof(REAL));
    }
    gemm(false, true, t, t, d, 1, g->unit, d, g->unit, d, 0, g->difference, t);
    gemm(false, true, t, t, e, -1, g->teacher, e, g->teacher, e, 1, g->difference, t);
}

/* weight / (N T T). */
static double mean_factor(const Call *call) {
    const double t = (double)compared_tokens(call);
    const double weight =
        call->in[X].rank == 3 ? ((const GramMseAttrs *)call->attrs)->weight : 1;
    return weight / ((double)compared_groups(call) * t * t);
}

static void forward(const Call *call) {
    const Gram g = gram_open(call);
    double total = 0;
    for (int64_t n = 0; n < compared_groups(call); n++) {
        const double weight = entry_weight(call, n);
        compare(call, &g, n);
        for (int64_t i = 0; i < g.tokens; i++) {
            const REAL *row = g.difference + i * g.tokens;
            total += weight * (double)row_dot(row, row, g.tokens);
        }
    }
    *(REAL *)call->out.data = (REAL)(mean_factor(call) * total);
}

static void backward(const Call *call) {
    const Gram g = gram_open(call);
    const int64_t t = g.tokens, d = g.width;
    const REAL d_out = *(const REAL *)call->d_out.data;
    const bool accumulate = call->d_in[X].accumulate;
    const REAL factor = (REAL)(4 * mean_factor(call)) * d_out;
    if (!call->d_in[X].data) return;
    for (int64_t n = 0; n < compared_groups(call); n++) {
        compare(call, &g, n);
        gemm(false, false, t, d, t, (REAL)entry_weight(call, n) * factor, g.difference, t,
             g.unit, d, 0, g.d_unit, d);
        unit_gradient(t, d, g.unit, g.inverse, g.d_unit);
        put_row((REAL *)call->d_in[X].data + n * t * d, g.d_unit, t * d, accumulate);
    }
}

OP_RECORD(gram_mse) = {
    OP_ID(gram_mse),
    .summary = "weight * mean squared difference of the Gram matrices of unit rows",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(GramMseAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_LOSS,
    .reads = READS_IN(X) | READS_IN(TEACHER) | READS_IN(MASK),
    .infer = infer,
    .flops = flops,
};

KERNEL(gram_mse) = {
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};

/* similarity_mse(x[N, D], teacher[N, E]) */

static const Operand SIMILARITY[] = {
    {"x", OPERAND_REQUIRED, "student's [N, D]"},
    {"teacher", OPERAND_CONSTANT, "teacher's [N, E]; no gradient"},
    {NULL},
};

static Status similarity_infer(const Node *node, Type *out, Diag *diag) {
    for (int i = X; i <= TEACHER; i++) {
        TRY(infer_rank(node, i, 2, 2, diag));
        TRY(infer_known(node, i, 1, diag));
    }
    TRY(infer_dim(node, TEACHER, 0, node->in[X]->type.dim[0], "the rows of x", diag));
    *out = real_type(0, node->in[0]->type.dim);
    return STATUS_OK;
}

OP_RECORD(similarity_mse) = {
    OP_ID(similarity_mse),
    .summary = "mean squared difference of the cosines between all rows",
    .operands = SIMILARITY,
    .traits = OP_LOSS,
    .reads = READS_IN(X) | READS_IN(TEACHER),
    .couples = true,
    .infer = similarity_infer,
    .flops = flops,
};

KERNEL(similarity_mse) = {
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
