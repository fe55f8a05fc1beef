/* Operators that a model's own values go through: their results' shapes, and numbers for
 * small products, of which tables of angles are made. See eval.h. */
#include "io/onnx/net/eval.h"

#include <string.h>

/* Result `i` of operand 0's shape. */
static bool same_shape(EvalCall *call, int i) {
    const Array *x = call->in[0];
    return eval_result(call, i, x->type, x->rank, x->dim, false) != NULL;
}

static bool run_same(EvalCall *call) {
    return eval_has(call, 1) && same_shape(call, 0);
}

/* Layer norm and its kin: the statistics, where they are asked for, are not told. */
static bool run_norm(EvalCall *call) {
    if (!eval_has(call, 2)) return false;
    return same_shape(call, 0);
}

/* The sum of x and skip is a further result: the last one. */
static bool run_skip_norm(EvalCall *call) {
    if (!eval_has(call, 3)) return false;
    const int last = call->node->out_count - 1;
    return same_shape(call, 0) && (last < 1 || same_shape(call, last));
}

/* ---- products ---- */

/* Rows and columns of one matrix product, as steps through the operands. */
typedef struct Product {
    int64_t rows, inner, columns;
    int64_t a_row, a_inner, b_inner, b_column;
} Product;

static void multiply(const Product *p, const double *a, const double *b, double *y) {
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            double sum = 0;
            for (int64_t k = 0; k < p->inner; k++)
                sum += a[i * p->a_row + k * p->a_inner] *
                       b[k * p->b_inner + j * p->b_column];
            y[i * p->columns + j] = sum;
        }
}

/* A vector is a matrix of one row, or one column. */
static Array matrix_of(const Array *x, bool left) {
    Array matrix = *x;
    if (x->rank == 1) {
        matrix.rank = 2;
        matrix.dim[0] = left ? 1 : x->dim[0];
        matrix.dim[1] = left ? x->dim[0] : 1;
    }
    return matrix;
}

enum { PRODUCT_MAX = 1 << 24 };

/* Shape of the product of stacks of matrices, whose stacks are broadcast. */
static bool product_shape(EvalCall *call, const Array *a, const Array *b, int64_t *dim) {
    const int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int d = rank - 3, i = a->rank - 3, j = b->rank - 3; d >= 0; d--, i--, j--) {
        const int64_t x = i >= 0 ? a->dim[i] : 1, y = j >= 0 ? b->dim[j] : 1;
        if (x != y && x != 1 && y != 1)
            return eval_fault(call, "its operands' shapes do not go together");
        dim[d] = x == 1 ? y : x;
    }
    return true;
}

static bool run_matmul(EvalCall *call) {
    int64_t dim[NET_RANK_MAX], step_a[NET_RANK_MAX], step_b[NET_RANK_MAX];
    int64_t index[NET_RANK_MAX] = {0};
    if (!eval_has(call, 2) || !call->in[0]->rank || !call->in[1]->rank) return false;
    Array a = matrix_of(call->in[0], true), b = matrix_of(call->in[1], false);
    const bool flip_a = net_int(call->node, "transA", 0), /* of FusedMatMul */
        flip_b = net_int(call->node, "transB", 0);
    const int rank = a.rank > b.rank ? a.rank : b.rank, ar = a.rank, br = b.rank;
    Product p = {a.dim[ar - 2 + flip_a],     a.dim[ar - 1 - flip_a],
                 b.dim[br - 1 - flip_b],     flip_a ? 1 : a.dim[ar - 1],
                 flip_a ? a.dim[ar - 1] : 1, flip_b ? 1 : b.dim[br - 1],
                 flip_b ? b.dim[br - 1] : 1};
    if (b.dim[br - 2 + flip_b] != p.inner)
        return eval_fault(call, "rows and columns do not go together");
    if (!product_shape(call, &a, &b, dim)) return false;
    dim[rank - 2] = p.rows;
    dim[rank - 1] = p.columns;
    int shown = rank;
    if (call->in[1]->rank == 1) shown--;
    if (call->in[0]->rank == 1) dim[shown - 2] = dim[shown - 1], shown--;
    int64_t count;
    const bool small = net_shape_count(dim, (size_t)shown, &count) &&
                       count < PRODUCT_MAX && count * p.inner < PRODUCT_MAX;
    Array *y =
        eval_result(call, 0, call->in[0]->type, shown, dim, small && eval_knows(call));
    if (!y || !y->data || y->count == 0) return y != NULL;
    dim[rank - 2] = p.rows, dim[rank - 1] = p.columns;
    array_broadcast(&a, rank, step_a);
    array_broadcast(&b, rank, step_b);
    double *to = y->data;
    do {
        int64_t from_a = 0, from_b = 0;
        for (int d = 0; d < rank - 2; d++) {
            from_a += index[d] * step_a[d];
            from_b += index[d] * step_b[d];
        }
        multiply(&p, a.data + from_a, b.data + from_b, to);
        to += p.rows * p.columns;
    } while (array_next(rank - 2, dim, index));
    return true;
}

static bool run_gemm(EvalCall *call) {
    if (!eval_has(call, 2) || call->in[0]->rank != 2 || call->in[1]->rank != 2)
        return eval_fault(call, "expected two matrices");
    const Array *a = call->in[0], *b = call->in[1];
    const bool flip_a = net_int(call->node, "transA", 0),
               flip_b = net_int(call->node, "transB", 0);
    if (a->dim[!flip_a] != b->dim[flip_b])
        return eval_fault(call, "rows and columns do not go together");
    const int64_t dim[2] = {a->dim[flip_a], b->dim[!flip_b]};
    return eval_result(call, 0, a->type, 2, dim, false) != NULL;
}

/* ---- images ---- */

static bool run_conv(EvalCall *call) {
    int64_t dim[NET_RANK_MAX];
    int pads = 0, strides = 0, dilations = 0;
    if (!eval_has(call, 2)) return false;
    const Array *x = call->in[0], *w = call->in[1];
    const int64_t *pad = net_ints(call->node, "pads", &pads);
    const int64_t *stride = net_ints(call->node, "strides", &strides);
    const int64_t *dilation = net_ints(call->node, "dilations", &dilations);
    const int spatial = x->rank - 2;
    if (spatial < 1 || w->rank != x->rank || (pad && pads != 2 * spatial) ||
        (stride && strides != spatial) || (dilation && dilations != spatial))
        return eval_fault(call, "expected an image and filters of one rank");
    if (!net_string_is(call->node, "auto_pad", "NOTSET", "NOTSET") &&
        !net_string_is(call->node, "auto_pad", "VALID", "NOTSET"))
        return eval_fault(call, "expected pads, not auto_pad");
    dim[0] = x->dim[0];
    dim[1] = w->dim[0];
    for (int i = 0; i < spatial; i++) {
        const int64_t by = stride ? stride[i] : 1, spread = dilation ? dilation[i] : 1;
        const int64_t zeros = pad ? pad[i] + pad[spatial + i] : 0;
        if (by < 1 || spread < 1 || spread > 1 << 20 || zeros < 0 || zeros > 1 << 20)
            return eval_fault(call, "expected strides of at least 1");
        const int64_t room = x->dim[2 + i] + zeros - spread * (w->dim[2 + i] - 1) - 1;
        dim[2 + i] = room < 0 ? 0 : room / by + 1;
    }
    return eval_result(call, 0, x->type, x->rank, dim, false) != NULL;
}

static bool run_global_pool(EvalCall *call) {
    int64_t dim[NET_RANK_MAX];
    if (!eval_has(call, 1) || call->in[0]->rank < 2) return false;
    const Array *x = call->in[0];
    for (int i = 0; i < x->rank; i++) dim[i] = i < 2 ? x->dim[i] : 1;
    return eval_result(call, 0, x->type, x->rank, dim, false) != NULL;
}

/* ---- onnxruntime's fusions ---- */

/* EmbedLayerNormalization: ids [N, T], then tables, the word's at 2. */
static bool run_embed_norm(EvalCall *call) {
    if (!eval_has(call, 1) || !eval_in(call, 2) || call->in[0]->rank != 2 ||
        call->in[2]->rank != 2)
        return eval_fault(call, "expected ids and tables of two dimensions");
    const int64_t dim[3] = {call->in[0]->dim[0], call->in[0]->dim[1],
                            call->in[2]->dim[1]};
    if (!eval_result(call, 0, ONNX_F32, 3, dim, false)) return false;
    if (call->node->out_count > 1) /* lengths of the masks */
        eval_result(call, 1, ONNX_I32, 1, dim, false);
    return call->node->out_count < 3 || eval_result(call, 2, ONNX_F32, 3, dim, false);
}

/* Attention: x [N, T, D] and one matrix [D, 3 D'] for queries, keys and values, of equal
 * widths unless qkv_hidden_sizes says otherwise. */
static bool run_packed_attention(EvalCall *call) {
    int count = 0;
    if (!eval_has(call, 2) || call->in[0]->rank != 3 || call->in[1]->rank != 2)
        return eval_fault(call, "expected x of three dimensions and a matrix");
    const int64_t *sizes = net_ints(call->node, "qkv_hidden_sizes", &count);
    if (sizes && count != 3) return eval_fault(call, "expected three qkv_hidden_sizes");
    const int64_t dim[3] = {call->in[0]->dim[0], call->in[0]->dim[1],
                            sizes ? sizes[2] : call->in[1]->dim[1] / 3};
    return eval_result(call, 0, call->in[0]->type, 3, dim, false) != NULL;
}

/* MultiHeadAttention: queries, keys and values [N, T, D]. */
static bool run_heads_attention(EvalCall *call) {
    if (!eval_has(call, 3) || call->in[0]->rank != 3 || call->in[2]->rank != 3)
        return eval_fault(call, "expected queries, keys and values of three dimensions");
    const int64_t dim[3] = {call->in[0]->dim[0], call->in[0]->dim[1],
                            call->in[2]->dim[2]};
    return eval_result(call, 0, call->in[0]->type, 3, dim, false) != NULL;
}

/* GroupQueryAttention: queries, keys and values [N, T, D], or the three side by side. */
static bool run_grouped_attention(EvalCall *call) {
    const int64_t heads = net_int(call->node, "num_heads", 0),
                  groups = net_int(call->node, "kv_num_heads", 0);
    if (!eval_has(call, 1) || call->in[0]->rank != 3)
        return eval_fault(call, "expected queries of three dimensions");
    if (heads < 1 || groups < 1 || heads > 1 << 16 || groups > 1 << 16)
        return eval_fault(call, "expected num_heads and kv_num_heads");
    int64_t dim[3] = {call->in[0]->dim[0], call->in[0]->dim[1], call->in[0]->dim[2]};
    if (!eval_in(call, 1)) dim[2] = dim[2] / (heads + 2 * groups) * heads;
    return eval_result(call, 0, call->in[0]->type, 3, dim, false) != NULL;
}

#define LAYER(op, run)                                                                   \
    { op, run, EVAL_SHAPE, NULL, NULL }

const EvalRow eval_layer_rows[] = {
    LAYER("MatMul", run_matmul),
    LAYER("Gemm", run_gemm),
    LAYER("Softmax", run_same),
    LAYER("LogSoftmax", run_same),
    LAYER("LayerNormalization", run_norm),
    LAYER("RMSNormalization", run_norm),
    LAYER("SimplifiedLayerNormalization", run_norm),
    LAYER("Conv", run_conv),
    LAYER("GlobalAveragePool", run_global_pool),
    LAYER("com.microsoft.FusedMatMul", run_matmul),
    LAYER("com.microsoft.FusedGemm", run_gemm),
    LAYER("com.microsoft.FastGelu", run_same),
    LAYER("com.microsoft.BiasGelu", run_same),
    LAYER("com.microsoft.SkipLayerNormalization", run_skip_norm),
    LAYER("com.microsoft.SkipSimplifiedLayerNormalization", run_skip_norm),
    LAYER("com.microsoft.EmbedLayerNormalization", run_embed_norm),
    LAYER("com.microsoft.Attention", run_packed_attention),
    LAYER("com.microsoft.MultiHeadAttention", run_heads_attention),
    LAYER("com.microsoft.GroupQueryAttention", run_grouped_attention),
    LAYER("com.microsoft.RotaryEmbedding", run_same),
    {NULL, NULL, EVAL_SHAPE, NULL, NULL}};
