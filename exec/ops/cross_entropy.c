/* cross_entropy: mean over rows of -sum_c y_c log softmax(z)_c, where the target y is
 * (1 - e) t + e / C for label smoothing e, and t is the label's one-hot row or, for a row
 * that is mixed of two, (1 - s) one-hot(label) + s one-hot(other) with s its share. Rows
 * with label INDEX_SKIP are left out.
 *
 * Per row: log-sum-exp - (1 - e) sum_c t_c z_c - e mean(z); the gradient is
 * (softmax(z) - y) / rows (Call.rows). */
#include "exec/ops/kernel_math.h"
#include "exec/ops/rows.h"
#include "exec/ops/tiles.h"

enum { LOGITS, LABELS, OTHER, SHARE };

static const Operand OPERANDS[] = {
    {"logits", OPERAND_REQUIRED, "[N..., C]"},
    {"labels", OPERAND_REQUIRED | OPERAND_INTEGER | OPERAND_SKIP,
     "[N...], from 0 to C - 1, or -100: left out"},
    {"other", OPERAND_OPTIONAL | OPERAND_INTEGER,
     "[N...], from 0 to C - 1: label of what a row is mixed with"},
    {"share", OPERAND_OPTIONAL | OPERAND_CONSTANT,
     "[N...]: the other label's share of the target; beside other"},
    {NULL},
};

static const Field FIELDS[] = {
    F_REAL(CrossEntropyAttrs, smoothing, 0, 1, "label smoothing"),
    F_END,
};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const double smoothing = ((const CrossEntropyAttrs *)node->attrs)->smoothing;
    TRY(infer_rank(node, 0, 2, RANK_MAX, diag));
    const Type *logits = &node->in[0]->type;
    TRY(infer_known(node, 0, logits->rank - 1, diag));
    TRY(infer_shape(node, LABELS, logits->rank - 1, logits->dim, diag));
    if (!node->in[OTHER] != !node->in[SHARE])
        return infer_fail(node, node->in[OTHER] ? OTHER : SHARE, diag,
                          "operands other and share together");
    for (int i = OTHER; i <= SHARE && node->in[i]; i++)
        TRY(infer_shape(node, i, logits->rank - 1, logits->dim, diag));
    if (!(smoothing >= 0 && smoothing <= 1))
        return infer_fail_attr(node, "smoothing", diag, "a number from 0 to 1, found %g",
                               smoothing);
    *out = real_type(0, logits->dim);
    return STATUS_OK;
}

static int64_t index_limit(const Call *call, int operand) {
    return operand == LABELS || operand == OTHER ? view_last(&call->in[LOGITS]) : 0;
}

/* The log-sum-exp of every row. */
static size_t aux_bytes(const Call *call) {
    return (size_t)view_rows(&call->in[0]) * sizeof(REAL);
}

/* Rows that are not left out. */
static double count_rows(const Call *call) {
    const int32_t *labels = call->in[LABELS].data;
    int64_t kept = 0;
    for (int64_t i = 0; i < call->in[LABELS].count; i++) kept += labels[i] != INDEX_SKIP;
    return (double)kept;
}

/* The other label's share of row i; 0 when no row is mixed. */
static double share_of(const Call *call, int64_t i) {
    const REAL *share = call->in[SHARE].data;
    return share ? (double)share[i] : 0;
}

static void forward(const Call *call) {
    const int64_t rows = view_rows(&call->in[0]), classes = view_last(&call->in[0]);
    const double smoothing = ((const CrossEntropyAttrs *)call->attrs)->smoothing;
    const int32_t *labels = call->in[LABELS].data, *other = call->in[OTHER].data;
    REAL *log_sum = call->aux;
    double total = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (labels[i] == INDEX_SKIP) continue;
        const REAL *z = (const REAL *)call->in[0].data + i * classes;
        const REAL sum = log_sum_exp(z, classes);
        if (log_sum) log_sum[i] = sum;
        const double share = share_of(call, i), own = (double)z[labels[i]];
        const double target = /* sum_c t_c z_c */
            share == 0 ? own : (1 - share) * own + share * (double)z[other[i]];
        total += (double)sum - (1 - smoothing) * target;
        if (smoothing > 0)
            total -= smoothing * (double)row_sum(z, classes) / (double)classes;
    }
    *(REAL *)call->out.data = rows_mean(call, total);
}

/* dz (+)= factor (softmax(z) - y). */
static void gradient_row(const REAL *restrict z, int64_t classes, REAL log_sum,
                         REAL factor, REAL even, bool accumulate, REAL *restrict dz) {
    if (accumulate)
        for (int64_t c = 0; c < classes; c++)
            dz[c] += factor * (exp_real(z[c] - log_sum) - even);
    else
        for (int64_t c = 0; c < classes; c++)
            dz[c] = factor * (exp_real(z[c] - log_sum) - even);
}

static void backward(const Call *call) {
    if (!call->d_in[0].data) return;
    const int64_t rows = view_rows(&call->in[0]), classes = view_last(&call->in[0]);
    const double smoothing = ((const CrossEntropyAttrs *)call->attrs)->smoothing;
    const int32_t *labels = call->in[LABELS].data, *other = call->in[OTHER].data;
    const REAL *log_sum = call->aux;
    const bool accumulate = call->d_in[0].accumulate;
    const REAL factor = rows_gradient(call);
    const REAL even = (REAL)(smoothing / (double)classes);
    const Range part = call_range(call, rows, 1);
    for (int64_t i = part.first; i < part.end; i++) {
        REAL *dz = (REAL *)call->d_in[0].data + i * classes;
        if (labels[i] == INDEX_SKIP) {
            rows_clear(dz, classes, accumulate);
            continue;
        }
        gradient_row((const REAL *)call->in[0].data + i * classes, classes, log_sum[i],
                     factor, even, accumulate, dz);
        const REAL target = factor * (REAL)(1 - smoothing);
        const REAL share = (REAL)share_of(call, i);
        dz[labels[i]] -= target * (1 - share);
        if (other) dz[other[i]] -= target * share;
    }
}

static int64_t backward_tiles(const Call *call) {
    return tiles_for(call->in[LOGITS].count, TILE_ELEMENTS);
}

OP_RECORD(cross_entropy) = {
    OP_ID(cross_entropy),
    .summary = "mean of -log softmax(logits)[label], with label smoothing and mixed "
               "labels",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(CrossEntropyAttrs),
    .traits = OP_LOSS,
    .reads = READS_IN(LOGITS) | READS_IN(LABELS) | READS_IN(OTHER) | READS_IN(SHARE),
    .infer = infer,
    .index_limit = index_limit,
    .count_rows = count_rows,
};

KERNEL(cross_entropy) = {
    .aux_bytes = aux_bytes,
    .forward = forward,
    .backward = backward,
    .backward_tiles = backward_tiles,
};
