/* matmul(a[..., M, K], b[..., K, L]) -> [..., M, L]: a product of matrices for each index
 * before the last two; da = dy b^T, db = a^T dy, summed over what was repeated. */
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/strides.h"

static const Operand OPERANDS[] = {{"a", OPERAND_REQUIRED, "[..., M, K]"},
                                   {"b", OPERAND_REQUIRED, "[..., K, L]"},
                                   {NULL, 0, NULL}};

static Status infer(const Node *node, Type *out, Diag *diag) {
    for (int i = 0; i < 2; i++) TRY(infer_rank(node, i, 2, RANK_MAX, diag));
    const Type *a = &node->in[0]->type, *b = &node->in[1]->type;
    const int64_t K = a->dim[a->rank - 1];
    char text[DIM_TEXT_BYTES];
    TRY(infer_dim(node, 1, b->rank - 2, K, "the last dimension of a", diag));
    TRY(infer_apart(node, K, diag));
    *out = real_type(a->rank > b->rank ? a->rank : b->rank, a->dim);
    for (int d = 0; d < out->rank - 2; d++) {
        const int i = d - (out->rank - a->rank), j = d - (out->rank - b->rank);
        const int64_t x = i < 0 ? 1 : a->dim[i], y = j < 0 ? 1 : b->dim[j];
        if (x != y && x != 1 && y != 1)
            return infer_fail(node, 1, diag, "%s (as in a) or 1 as dimension %d",
                              dim_text(text, x), j);
        out->dim[d] = x == 1 ? y : x;
    }
    out->dim[out->rank - 2] = a->dim[a->rank - 2];
    out->dim[out->rank - 1] = b->dim[b->rank - 1];
    return infer_samples(node, out, diag);
}

static double flops(const Call *call) {
    return 2 * (double)call->out.count * (double)view_last(&call->in[0]);
}

/* What stands before the matrices, as a shape; steps by it count matrices. */
static View before_matrices(const View *x) {
    View outer = *x;
    outer.rank -= 2;
    outer.count = 1;
    for (int d = 0; d < outer.rank; d++) outer.count *= outer.dim[d];
    return outer;
}

/* The walk over the products: values 0 and 1 are the matrices of a and b. */
static Strides products(const Call *call, const View *out) {
    const View shape = before_matrices(out), a = before_matrices(&call->in[0]),
               b = before_matrices(&call->in[1]);
    Strides s = strides_over(&shape);
    strides_repeat(&s, &a);
    strides_repeat(&s, &b);
    strides_ready(&s);
    return s;
}

static void forward(const Call *call) {
    Strides s = products(call, &call->out);
    const int64_t L = view_last(&call->out), K = view_last(&call->in[0]),
                  M = call->out.dim[call->out.rank - 2];
    REAL *y = call->out.data;
    do
        for (int64_t j = 0; j < s.dim[0]; j++, y += M * L) {
            const REAL *a =
                (const REAL *)call->in[0].data + (s.at[0] + j * s.step[0][0]) * M * K;
            const REAL *b =
                (const REAL *)call->in[1].data + (s.at[1] + j * s.step[1][0]) * K * L;
            gemm(false, false, M, L, K, 1, a, K, b, L, 0, y, L);
        }
    while (strides_next(&s));
}

static void backward(const Call *call) {
    Strides s = products(call, &call->d_out);
    const int64_t L = view_last(&call->d_out), K = view_last(&call->in[0]),
                  M = call->d_out.dim[call->d_out.rank - 2];
    REAL *da = gradient_to_add(call, 0), *db = gradient_to_add(call, 1);
    const REAL *a = call->in[0].data, *b = call->in[1].data, *dy = call->d_out.data;
    do
        for (int64_t j = 0; j < s.dim[0]; j++, dy += M * L) {
            const int64_t at = (s.at[0] + j * s.step[0][0]) * M * K,
                          bt = (s.at[1] + j * s.step[1][0]) * K * L;
            if (da) gemm(false, true, M, K, L, 1, dy, L, b + bt, L, 1, da + at, K);
            if (db) gemm(true, false, K, L, M, 1, a + at, K, dy, L, 1, db + bt, L);
        }
    while (strides_next(&s));
}

OP_RECORD(matmul) = {
    OP_ID(matmul),
    .summary = "products of the matrices in the last two dimensions",
    .operands = OPERANDS,
    .traits = OP_TENSOR,
    .reads = READS_IN(0) | READS_IN(1),
    .infer = infer,
    .flops = flops,
};

KERNEL(matmul) = {
    .forward = forward,
    .backward = backward,
};
