/* contrastive: which of the mini-batch's texts belongs to which (InfoNCE, van den Oord et
 * al., "Representation Learning with Contrastive Predictive Coding", 2018; with in-batch
 * negatives as Henderson et al., "Efficient Natural Language Response Suggestion for
 * Smart Reply", 2017).
 *
 * Rows of x come in G groups of `group`: an anchor, what belongs to it, and further rows
 * that do not. u = rows over their L2 norm (rows of zeros stay zero); the candidates of
 * every anchor are all rows but the anchors, C = G (group - 1); S[i, c] = scale u_i . u_c
 * and the loss is the mean over anchors of cross-entropy(S[i], its own row). `symmetric`:
 * the mean of that and of the same with the second rows of all groups as anchors and the
 * first ones as candidates. Rows behind the last whole group are left out.
 *
 * With P = softmax over rows of S, Q = softmax over columns of its square part, Y the
 * pairs: dS = scale / G (P - Y), or scale / (2 G) (P - Y + Q - Y); du_i = dS u_c, du_c =
 * dS^T u_i; dx = (du - u (u . du)) / |x|. */
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/unit_rows.h"

#include <string.h>

static const Operand OPERANDS[] = {{"x", OPERAND_REQUIRED, "[N, D], groups in order"},
                                   {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_INT(ContrastiveAttrs, group, 2, 64, "consecutive rows of a group"),
    F_REAL(ContrastiveAttrs, scale, 0, 1e6, "factor of cosines: 1 / temperature"),
    F_BOOL(ContrastiveAttrs, symmetric, "second rows look for their first ones as well"),
    F_END,
};

static const ContrastiveAttrs DEFAULTS = {.group = 2, .scale = 20};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const ContrastiveAttrs *attrs = node->attrs;
    TRY(infer_rank(node, 0, 2, 2, diag));
    TRY(infer_known(node, 0, 1, diag));
    if (attrs->group < 2)
        return infer_fail_attr(node, "group", diag, "a number of at least 2");
    if (!isfinite(attrs->scale))
        return infer_fail_attr(node, "scale", diag, "a finite number");
    *out = real_type(0, node->in[0]->type.dim);
    return STATUS_OK;
}

/* Anchors u[G, D], candidates v[C, D], the second rows of the groups first; S or dS
 * [G, C]; and the gradients of u and v. */
typedef struct Contrast {
    const ContrastiveAttrs *attrs;
    int64_t groups, candidates, width;
    REAL *u, *v, *inverse, *scores, *du, *dv;
    REAL *column, *shift, *rest; /* [G] */
    size_t bytes;
} Contrast;

static Contrast contrast_open(const Call *call) {
    const ContrastiveAttrs *attrs = call->attrs;
    const int64_t D = call->in[0].dim[1], G = call->in[0].dim[0] / attrs->group;
    const int64_t rows = G * attrs->group, C = rows - G;
    Contrast c = {attrs, G, C, D, call->scratch};
    c.bytes = (size_t)(2 * rows * D + rows + G * C + 3 * G) * sizeof(REAL);
    if (!c.u) return c;
    c.v = c.u + G * D;
    c.du = c.v + C * D;
    c.dv = c.du + G * D;
    c.inverse = c.dv + C * D;
    c.scores = c.inverse + rows;
    c.column = c.scores + G * C;
    c.shift = c.column + G;
    c.rest = c.shift + G;
    return c;
}

static size_t scratch_bytes(const Call *call) {
    return contrast_open(call).bytes;
}

static double flops(const Call *call) {
    const Contrast c = contrast_open(call);
    return 2 * (double)c.groups * (double)c.candidates * (double)c.width;
}

/* Row of x behind anchor or candidate number `i`, anchors first. */
static int64_t row_of(const Contrast *c, int64_t i) {
    if (i < c->groups) return i * c->attrs->group;
    return (i - c->groups) % c->groups * c->attrs->group + i / c->groups;
}

/* Unit rows and scores. */
static void compare(const Call *call, const Contrast *c) {
    const int64_t D = c->width, G = c->groups, C = c->candidates;
    const REAL *x = call->in[0].data;
    for (int64_t i = 0; i < G + C; i++)
        unit_rows(1, D, x + row_of(c, i) * D, c->u + i * D, c->inverse + i);
    gemm(false, true, G, C, D, (REAL)c->attrs->scale, c->u, D, c->v, D, 0, c->scores, C);
}

/* Column i of the square part of the scores. */
static const REAL *column_of(const Contrast *c, int64_t i) {
    for (int64_t j = 0; j < c->groups; j++)
        c->column[j] = c->scores[j * c->candidates + i];
    return c->column;
}

/* log(sum of exp(x[j])) - x[i], also where it is nearly 0. */
static double choice_loss(const REAL *x, int64_t n, int64_t i) {
    const double most = (double)row_max(x, n);
    double others = 0;
    for (int64_t j = 0; j < n; j++)
        if (j != i) others += exp((double)x[j] - most);
    if ((double)x[i] == most) return log1p(others);
    return log(others + exp((double)x[i] - most)) + most - (double)x[i];
}

static void forward(const Call *call) {
    const Contrast c = contrast_open(call);
    const int64_t G = c.groups, C = c.candidates;
    double total = 0, back = 0;
    compare(call, &c);
    for (int64_t i = 0; i < G; i++) total += choice_loss(c.scores + i * C, C, i);
    for (int64_t i = 0; c.attrs->symmetric && i < G; i++)
        back += choice_loss(column_of(&c, i), G, i);
    if (c.attrs->symmetric) total = (total + back) / 2;
    *(REAL *)call->out.data = G ? (REAL)(total / (double)G) : 0;
}

/* Makes the scores dS / factor. P - Y of a pair is minus the sum of the others, which
 * keeps its digits where P is nearly 1. */
static void differentiate(const Contrast *c) {
    const int64_t G = c->groups, C = c->candidates;
    const bool both = c->attrs->symmetric;
    for (int64_t i = 0; both && i < G; i++) {
        c->shift[i] = log_sum_exp(column_of(c, i), G);
        c->rest[i] = 0;
    }
    for (int64_t i = 0; i < G; i++) {
        REAL *row = c->scores + i * C;
        for (int64_t j = 0; both && j < G; j++) {
            c->column[j] = i == j ? 0 : exp_real(row[j] - c->shift[j]);
            c->rest[j] += c->column[j];
        }
        softmax_row(row, C);
        row[i] = 0;
        row[i] = -row_sum(row, C);
        for (int64_t j = 0; both && j < G; j++) row[j] += c->column[j];
    }
    for (int64_t i = 0; both && i < G; i++) c->scores[i * C + i] -= c->rest[i];
}

static void backward(const Call *call) {
    const Contrast c = contrast_open(call);
    const int64_t D = c.width, G = c.groups, C = c.candidates;
    const View *dx = &call->d_in[0];
    if (!dx->data) return;
    const int64_t whole = (G + C) * D;
    if (!dx->accumulate && whole < dx->count)
        memset((REAL *)dx->data + whole, 0, (size_t)(dx->count - whole) * sizeof(REAL));
    if (G == 0) return;
    const double parts = c.attrs->symmetric ? 2 : 1;
    const REAL factor =
        (REAL)(c.attrs->scale / (parts * (double)G)) * *(const REAL *)call->d_out.data;
    compare(call, &c);
    differentiate(&c);
    gemm(false, false, G, D, C, factor, c.scores, C, c.v, D, 0, c.du, D);
    gemm(true, false, C, D, G, factor, c.scores, C, c.u, D, 0, c.dv, D);
    for (int64_t i = 0; i < G + C; i++) {
        REAL *d_unit = c.du + i * D;
        unit_gradient(1, D, c.u + i * D, c.inverse + i, d_unit);
        put_row((REAL *)dx->data + row_of(&c, i) * D, d_unit, D, dx->accumulate);
    }
}

OP_RECORD(contrastive) = {
    OP_ID(contrastive),
    .summary = "mean cross-entropy of finding the row that belongs to each group's first "
               "one among all groups' by scaled cosines",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(ContrastiveAttrs),
    .defaults = &DEFAULTS,
    .traits = OP_LOSS,
    .reads = READS_IN(0),
    .couples = true,
    .infer = infer,
    .flops = flops,
};

KERNEL(contrastive) = {
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
