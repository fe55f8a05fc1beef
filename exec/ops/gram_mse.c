/* gram_mse: similarity of tokens, student against teacher.
 *
 * Rows of x and of the teacher are divided by their L2 norm (rows of zeros stay zero);
 * G = u u^T of the unit rows of a sample, H likewise from the teacher; the loss is
 * weight * mean over samples and T*T entries of (G - H)^2. With F = 4 weight (G - H) /
 * (N T T): du = F u, dx = (du - u (u . du)) / norm. The teacher gets no gradient. Windows
 * are to all of this what samples are. */
#include "exec/infer.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/relation_window.h"

enum { X, TEACHER };

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "student's [N, T, D]"},
    {"teacher", OPERAND_CONSTANT, "teacher's [N, T, E]; no gradient"},
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
    *out = real_type(0, node->in[0]->type.dim);
    return STATUS_OK;
}

/* Tokens that are compared among themselves. */
static int64_t compared_tokens(const Call *call) {
    const GramMseAttrs *attrs = call->attrs;
    return attrs->window ? attrs->window : call->in[X].dim[1];
}

/* Samples, or windows of all samples. */
static int64_t compared_groups(const Call *call) {
    return call->in[X].dim[0] * (call->in[X].dim[1] / compared_tokens(call));
}

static double flops(const Call *call) {
    const int64_t *x = call->in[X].dim;
    const double entries = (double)x[0] * (double)x[1] * (double)compared_tokens(call);
    return 2 * entries * ((double)x[2] + (double)call->in[TEACHER].dim[2]);
}

/* One sample's work: unit rows of both, G - H, gradient of the unit rows, norms. */
typedef struct Gram {
    int64_t tokens, width, teacher_width;
    REAL *unit, *teacher, *difference, *d_unit, *inverse;
    size_t bytes;
} Gram;

static Gram gram_open(const Call *call) {
    const int64_t t = compared_tokens(call), d = call->in[X].dim[2];
    const int64_t e = call->in[TEACHER].dim[2];
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

/* unit = rows of x over their norm; inverse[i] = 1 / norm, 0 for a row of zeros. */
static void unit_rows(int64_t rows, int64_t width, const REAL *x, REAL *unit,
                      REAL *inverse) {
    for (int64_t i = 0; i < rows; i++, x += width, unit += width) {
        const REAL norm = (REAL)sqrt((double)row_dot(x, x, width));
        inverse[i] = norm == 0 ? 0 : 1 / norm;
        for (int64_t c = 0; c < width; c++) unit[c] = x[c] * inverse[i];
    }
}

/* Unit rows and G - H of sample n; the student's norms stay in g->inverse. */
static void compare(const Call *call, const Gram *g, int64_t n) {
    const int64_t t = g->tokens, d = g->width, e = g->teacher_width;
    const REAL *x = (const REAL *)call->in[X].data + n * t * d;
    const REAL *teacher = (const REAL *)call->in[TEACHER].data + n * t * e;
    unit_rows(t, e, teacher, g->teacher, g->inverse);
    unit_rows(t, d, x, g->unit, g->inverse);
    gemm(false, true, t, t, d, 1, g->unit, d, g->unit, d, 0, g->difference, t);
    gemm(false, true, t, t, e, -1, g->teacher, e, g->teacher, e, 1, g->difference, t);
}

/* weight / (N T T). */
static double mean_factor(const Call *call) {
    const double t = (double)compared_tokens(call);
    return ((const GramMseAttrs *)call->attrs)->weight /
           ((double)compared_groups(call) * t * t);
}

static void forward(const Call *call) {
    const Gram g = gram_open(call);
    double total = 0;
    for (int64_t n = 0; n < compared_groups(call); n++) {
        compare(call, &g, n);
        for (int64_t i = 0; i < g.tokens; i++) {
            const REAL *row = g.difference + i * g.tokens;
            total += (double)row_dot(row, row, g.tokens);
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
        gemm(false, false, t, d, t, factor, g.difference, t, g.unit, d, 0, g.d_unit, d);
        for (int64_t i = 0; i < t; i++) {
            const REAL *restrict unit = g.unit + i * d;
            REAL *restrict d_unit = g.d_unit + i * d;
            const REAL along = row_dot(unit, d_unit, d), inverse = g.inverse[i];
            for (int64_t c = 0; c < d; c++)
                d_unit[c] = (d_unit[c] - unit[c] * along) * inverse;
        }
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
    .reads = READS_IN(X) | READS_IN(TEACHER),
    .infer = infer,
    .flops = flops,
};

KERNEL(gram_mse) = {
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
