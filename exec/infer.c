/* Checks shared by infer functions: see exec/infer.h. */
#include "exec/infer.h"

#include <stdarg.h>
#include <string.h>

enum { MESSAGE_BYTES = 256 };

Status infer_fail(const Node *node, int operand, Diag *diag, const char *fmt, ...) {
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    const int last = op_operand_count(node->op) - 1; /* if variadic, of all from it on */
    Text found = {0};
    type_print(&found, &node->in[operand]->type);
    const Status status = diag_fail(
        diag, STATUS_MODEL, node->loc, NULL, "%s: operand '%s': expected %s, found %s",
        node->op->name, node->op->operands[operand < last ? operand : last].name, message,
        found.data);
    text_free(&found);
    return status;
}

Status infer_fail_attr(const Node *node, const char *attribute, Diag *diag,
                       const char *fmt, ...) {
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return diag_fail(diag, STATUS_MODEL, node->loc, NULL, "%s: %s: expected %s",
                     node->op->name, attribute, message);
}

Status infer_rank(const Node *node, int operand, int least, int most, Diag *diag) {
    const int rank = node->in[operand]->type.rank;
    if (rank >= least && rank <= most) return STATUS_OK;
    if (least == most) return infer_fail(node, operand, diag, "rank %d", least);
    return infer_fail(node, operand, diag, "a rank of %d to %d", least, most);
}

Status infer_known(const Node *node, int operand, int axis, Diag *diag) {
    if (node->in[operand]->type.dim[axis] > 0) return STATUS_OK;
    return infer_fail(node, operand, diag, "a number above 0 as dimension %d", axis);
}

Status infer_dim(const Node *node, int operand, int axis, int64_t dim, const char *why,
                 Diag *diag) {
    if (node->in[operand]->type.dim[axis] == dim) return STATUS_OK;
    char text[DIM_TEXT_BYTES];
    return infer_fail(node, operand, diag, "%s (%s) as dimension %d", dim_text(text, dim),
                      why, axis);
}

Status infer_shape(const Node *node, int operand, int rank, const int64_t *dim,
                   Diag *diag) {
    Type want = real_type(rank, dim);
    want.dtype = node->in[operand]->type.dtype;
    if (type_equal(&want, &node->in[operand]->type)) return STATUS_OK;
    Text text = {0};
    type_print(&text, &want);
    const Status status = infer_fail(node, operand, diag, "%s", text.data);
    text_free(&text);
    return status;
}

Status infer_apart(const Node *node, int64_t dim, Diag *diag) {
    if (!dim_power(dim, DIM_N)) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                     "%s: expected samples to stay apart, found it along their dimension",
                     node->op->name);
}

Status infer_samples(const Node *node, const Type *type, Diag *diag) {
    int times = 0;
    for (int d = 0; d < type->rank; d++) times += dim_power(type->dim[d], DIM_N);
    if (times <= 1) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                     "%s: expected samples to stay apart, found each with the others",
                     node->op->name);
}

Status infer_broadcast(const Node *node, int count, Type *out, Diag *diag) {
    char text[DIM_TEXT_BYTES];
    *out = (Type){.dtype = DTYPE_F32};
    for (int i = 0; i < count; i++)
        if (node_has(node, i) && node->in[i]->type.rank > out->rank)
            out->rank = node->in[i]->type.rank;
    for (int d = 0; d < out->rank; d++) out->dim[d] = 1;
    for (int i = 0; i < count; i++) {
        if (!node_has(node, i)) continue;
        const Type *type = &node->in[i]->type;
        for (int d = 0; d < type->rank; d++) {
            int64_t *dim = &out->dim[d + out->rank - type->rank];
            if (*dim == 1) *dim = type->dim[d];
            if (type->dim[d] != *dim && type->dim[d] != 1)
                return infer_fail(node, i, diag,
                                  "%s (as in the operands before) or 1 as dimension %d",
                                  dim_text(text, *dim), d);
        }
    }
    return infer_samples(node, out, diag);
}

Status infer_spelled(const Node *node, const char *name, const char *text, Type *out,
                     Diag *diag) {
    *out = (Type){.dtype = DTYPE_F32};
    bool good = dims_parse(text ? text : "", &out->rank, out->dim);
    for (int d = 0; good && d < out->rank; d++) good = out->dim[d] != 0;
    if (good) return STATUS_OK;
    return infer_fail_attr(node, name, diag,
                           "at most %d dimensions above 0, numbers, N, T, S, M and "
                           "products like 8*N, separated by commas, found \"%.60s\"",
                           RANK_MAX, text);
}

Status infer_axis(const Node *node, const char *name, int64_t axis, Diag *diag) {
    const int rank = node->in[0]->type.rank;
    if (axis >= 0 && axis < rank) return STATUS_OK;
    return infer_fail_attr(node, name, diag, "a dimension of x, which has %d, found %lld",
                           rank, (long long)axis);
}

Type real_type(int rank, const int64_t *dim) {
    Type type = {.dtype = DTYPE_F32, .rank = rank};
    memcpy(type.dim, dim, (size_t)rank * sizeof *dim);
    return type;
}

bool dim_multiply(int64_t a, int64_t b, int64_t *out) {
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out);
}
