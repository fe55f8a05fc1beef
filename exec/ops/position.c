/* add_position(x[N, T, D], table[P, D], ids[N, T]?) -> y: y[n, t] = x[n, t] + table[r],
 * r = offset + t, or with ids, of which offset - 1 stands for padding: offset - 1 for
 * padding, for the others offset + the number of others before them (Liu et al.,
 * RoBERTa, 2019).
 *
 * dx = dy; dtable[r] = sum of dy[n, t] over all that have this r, other rows 0. */
#include "exec/generate/step.h"
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"

static const Operand OPERANDS[] = {
    {"x", OPERAND_REQUIRED, "tokens [N, T, D]"},
    {"table", OPERAND_REQUIRED, "one row for each position [P, D], P >= offset + T"},
    {"ids", OPERAND_OPTIONAL | OPERAND_INTEGER,
     "[N, T]: padding, offset - 1, takes row offset - 1 and is not counted"},
    {NULL},
};

static const Field FIELDS[] = {
    F_INT(AddPositionAttrs, offset, 0, 1 << 20, "position of the first token"),
    F_END,
};

enum { X, TABLE, IDS };

static int64_t offset_of(const Node *node) {
    return ((const AddPositionAttrs *)node->attrs)->offset;
}

/* The table, of which offset is known to be part, has rows for all tokens. */
static Status check_tokens(const Node *node, int64_t tokens, int64_t rows, Diag *diag) {
    const int64_t offset = offset_of(node);
    if (tokens <= rows - offset) return STATUS_OK;
    Status status = diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                              "sequence of %lld tokens, the position table has %lld",
                              (long long)tokens, (long long)(rows - offset));
    diag_hint(diag,
              "cut sequences to %lld tokens, text with `max_length: %lld` of the data",
              (long long)(rows - offset), (long long)(rows - offset));
    return status;
}

static Status infer(const Node *node, Type *out, Diag *diag) {
    const Type *x = &node->in[0]->type, *table = &node->in[1]->type;
    TRY(infer_rank(node, 0, 3, 3, diag));
    TRY(infer_rank(node, 1, 2, 2, diag));
    TRY(infer_known(node, 1, 0, diag));
    TRY(infer_dim(node, 1, 1, x->dim[2], "the width of x", diag));
    if (offset_of(node) < 0 || offset_of(node) >= table->dim[0])
        return infer_fail_attr(node, "offset", diag, "one of %lld positions, found %lld",
                               (long long)table->dim[0], (long long)offset_of(node));
    TRY(check_tokens(node, x->dim[1], table->dim[0], diag)); /* symbols are below 0 */
    if (node_has(node, IDS)) {
        TRY(infer_shape(node, IDS, 2, x->dim, diag));
        if (offset_of(node) == 0)
            return infer_fail_attr(node, "offset", diag,
                                   "at least 1 beside ids, padding being offset - 1");
    }
    *out = *x;
    return STATUS_OK;
}

static Status check(const Call *call, Diag *diag) {
    return check_tokens(call->node, call->in[0].dim[1], call->in[1].dim[0], diag);
}

/* Where the next token that counts stands: row `next` of the table. */
static int64_t take_row(const int32_t *id, int64_t offset, int64_t *next) {
    return id && *id == offset - 1 ? offset - 1 : (*next)++;
}

static void forward(const Call *call) {
    const int64_t T = call->out.dim[1], D = call->out.dim[2];
    const int64_t offset = offset_of(call->node);
    const int32_t *ids = call_data(call, IDS);
    const REAL *table = call->in[TABLE].data;
    for (int64_t n = 0; n < call->out.dim[0]; n++) {
        int64_t next = offset;
        for (int64_t at = n * T; at < (n + 1) * T; at++) {
            const REAL *restrict row =
                table + take_row(ids ? ids + at : NULL, offset, &next) * D;
            const REAL *restrict x = (const REAL *)call->in[X].data + at * D;
            REAL *restrict y = (REAL *)call->out.data + at * D;
            for (int64_t j = 0; j < D; j++) y[j] = x[j] + row[j];
        }
    }
}

static void backward(const Call *call) {
    const View *dx = &call->d_in[X], *dy = &call->d_out;
    if (dx->data && dx->data != dy->data)
        put_row(dx->data, dy->data, dy->count, dx->accumulate);
    REAL *gradient = gradient_to_add(call, TABLE);
    if (!gradient) return;
    const int64_t T = dy->dim[1], D = dy->dim[2], offset = offset_of(call->node);
    const int32_t *ids = call_data(call, IDS);
    for (int64_t n = 0; n < dy->dim[0]; n++) {
        int64_t next = offset;
        for (int64_t at = n * T; at < (n + 1) * T; at++)
            put_row(gradient + take_row(ids ? ids + at : NULL, offset, &next) * D,
                    (const REAL *)dy->data + at * D, D, true);
    }
}

OP_RECORD(add_position) = {
    OP_ID(add_position),
    .summary = "x + table[offset + t], padding not counted where ids are given",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(AddPositionAttrs),
    .traits = OP_PASS_GRADIENT | OP_ROWWISE,
    .reads = READS_IN(IDS),
    .infer = infer,
    .check = check,
};

KERNEL(add_position) = {
    .step = STEP(add_position),
    .forward = forward,
    .backward = backward,
};
