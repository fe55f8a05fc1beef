/* Lifting the nodes that stand for several: LayerNormalization and onnxruntime's fusions
 * (https://github.com/microsoft/onnxruntime, docs/ContribOperators.md). See lift_fused.h.
 */
#include "io/onnx/lift/lift_fused.h"

#include "io/onnx/lift/lift_grouped.h"
#include "io/onnx/lift/lift_rows.h"
#include "io/onnx/lift/lift_weights.h"
#include "io/onnx/net/probe.h"

#include <math.h>
#include <string.h>

/* A vector of weights among the operands, NULL when it is none. */
static NetValue *vector_operand(const NetNode *node, int i) {
    NetValue *value = net_operand(node, i) ? value_behind(net_operand(node, i)) : NULL;
    return value && value_is_constant(value) && value->probe[0] ? value : NULL;
}

/* A value plus a bias that stands apart: one projection where the value is a product. */
static Node *lift_biased(Lift *lift, const NetNode *node, NetValue *x, NetValue *bias) {
    Projection projection;
    if (!bias) return lift_value(lift, x);
    if (match_projection(lift, value_behind(x), &projection) && !projection.bias) {
        projection.bias = bias;
        return lift_projection(lift, &projection, NULL, 0);
    }
    Node *in[2] = {lift_value(lift, x)};
    if (!in[0]) return NULL;
    const int64_t width = bias->probe[0]->count;
    int64_t dim[RANK_MAX];
    for (int d = 0; d < in[0]->type.rank; d++)
        dim[d] = d == in[0]->type.rank - 1 ? width : 1;
    in[1] = lift_stored(lift, bias, in[0]->type.rank, dim);
    return in[1] ? lift_op(lift, node, "add", in, 2, NULL) : NULL;
}

/* ---- norms ---- */

static Node *fused_norm(Lift *lift, NetNode *node, bool mean) {
    NetValue *x = net_operand(node, 0), *weight = vector_operand(node, 1),
             *bias = vector_operand(node, 2);
    if (!x || !weight) return NULL;
    const Array *shape = x->probe[0];
    const int64_t axis = net_int(node, "axis", -1);
    if (axis != -1 && axis != shape->rank - 1)
        return lift_stop(lift, node, "expected a norm over the last dimension");
    const int64_t width = shape->dim[shape->rank - 1];
    if (weight->probe[0]->count != width || (net_operand(node, 2) && (!mean || !bias)))
        return lift_stop(lift, node,
                         mean ? "expected a weight, and a bias that is stored or none"
                              : "expected a weight and no bias");
    return lift_norm(lift, node, mean, lift_value(lift, x), weight, bias,
                     net_real(node, "epsilon", mean ? 1e-5 : 1e-6));
}

/* Norm of x (plus a bias) + skip; the last result is the sum. */
static Node *fused_skip_norm(Lift *lift, NetNode *node, NetValue *value, bool mean) {
    NetValue *weight = vector_operand(node, 2),
             *beta = mean ? vector_operand(node, 3) : NULL,
             *bias = vector_operand(node, mean ? 4 : 3);
    NetValue *sum = node->out_count > 1 ? node->out[node->out_count - 1] : NULL;
    if (!net_operand(node, 0) || !net_operand(node, 1) || !weight) return NULL;
    if (mean && net_operand(node, 3) && !beta) return NULL;
    Node *x = sum ? sum->lifted : NULL;
    if (!x) {
        Node *in[2] = {bias ? lift_value(lift, node->in[1]) : NULL};
        if (in[0]) in[1] = lift_biased(lift, node, node->in[0], bias);
        x = !bias   ? lift_sum(lift, node, node->in[1], node->in[0])
            : in[1] ? lift_op(lift, node, "add", in, 2, NULL)
                    : NULL;
        if (sum) sum->lifted = x;
    }
    if (value->slot != 0) return x;
    return x ? lift_norm(lift, node, mean, x, weight, beta,
                         net_real(node, "epsilon", 1e-12))
             : NULL;
}

/* Word, position and token-type embeddings and their norm. */
static Node *fused_embedding(Lift *lift, NetNode *node, NetValue *value) {
    NetValue *table[3], *weight = vector_operand(node, 5),
                        *bias = vector_operand(node, 6);
    NetValue *ids[2] = {net_operand(node, 0), net_operand(node, 1)};
    for (int i = 0; i < 3; i++) table[i] = vector_operand(node, 2 + i);
    if (value->slot != 0 || !ids[0] || !table[0] || !table[1] || !weight || !bias)
        return NULL;
    if (net_operand(node, 8) && !value_is_known(net_operand(node, 8)))
        return lift_stop(lift, node, "expected positions that are counted from 0");
    Node *in[2] = {lift_value(lift, ids[0]), lift_stored(lift, table[0], -1, NULL)};
    Node *x = in[0] && in[1] ? lift_op(lift, node, "embedding", in, 2, NULL) : NULL;
    if (x && ids[1] && table[2]) {
        Node *type[2] = {lift_value(lift, ids[1]), lift_stored(lift, table[2], -1, NULL)};
        Node *both[2] = {x, NULL};
        if (type[0] && type[1]) both[1] = lift_op(lift, node, "embedding", type, 2, NULL);
        x = both[1] ? lift_op(lift, node, "add", both, 2, NULL) : NULL;
    }
    if (!x) return NULL;
    Node *position[2] = {x, lift_stored(lift, table[1], -1, NULL)};
    x = position[1] ? lift_op(lift, node, "add_position", position, 2, NULL) : NULL;
    return x ? lift_norm(lift, node, true, x, weight, bias,
                         net_real(node, "epsilon", 1e-12))
             : NULL;
}

/* ---- activations ---- */

static Node *fused_activation(Lift *lift, NetNode *node, const char *name) {
    NetValue *bias = net_operand(node, 1) ? vector_operand(node, 1) : NULL;
    if (!net_operand(node, 0) || (net_operand(node, 1) && !bias)) return NULL;
    Node *x = lift_biased(lift, node, node->in[0], bias);
    return x ? lift_op(lift, node, "activation", &x, 1, "fn=%s", name) : NULL;
}

/* Gemm with an activation behind it. */
static Node *fused_gemm(Lift *lift, NetNode *node) {
    static const char *const NAMES[][2] = {
        {"Tanh", "tanh"}, {"Relu", "relu"}, {"Sigmoid", "sigmoid"}};
    Projection projection;
    if (!match_matrix_product(node, true, &projection)) return NULL;
    Node *x = lift_projection(lift, &projection, NULL, 0);
    for (size_t i = 0; x && i < sizeof NAMES / sizeof *NAMES; i++)
        if (net_string_is(node, "activation", NAMES[i][0], ""))
            return lift_op(lift, node, "activation", &x, 1, "fn=%s", NAMES[i][1]);
    return lift_stop(lift, node, "expected the activation Tanh, Relu or Sigmoid");
}

/* ---- attention ---- */

/* Whether an operand is the mask of padding: 1 and 0 token by token, 0 and far below it,
 * or the number of tokens of each sample. */
static bool is_padding(const NetValue *mask) {
    if (!value_is_known(mask)) return false;
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *array = mask->probe[p];
        const int64_t samples = probe_samples(p), tokens = probe_tokens(p);
        if (array->rank == 1 && array->count == samples) {
            for (int64_t n = 0; n < samples; n++)
                if (probe_mask(tokens, n, (int64_t)array->data[n]) ||
                    !probe_mask(tokens, n, (int64_t)array->data[n] - 1))
                    return false;
            continue;
        }
        const int64_t each = samples > 0 ? array->count / samples : 0;
        if (array->count % samples != 0 || each % tokens != 0) return false;
        for (int64_t i = 0; i < array->count; i++) {
            const bool counts = probe_mask(tokens, i / each, i % tokens);
            const double x = array->data[i];
            const bool one_zero = x == (counts ? 1 : 0) && array_is_integer(array);
            const bool added = counts ? x == 0 : x <= -50;
            if (!one_zero && !(added && !array_is_integer(array))) return false;
        }
    }
    return true;
}

/* Whether what is added to scores [.., heads, T, T] forbids later keys, those of padding,
 * both or nothing, and is 0 elsewhere. */
static bool forbids(const NetValue *bias, bool later, bool padding) {
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *array = bias->probe[p];
        const int64_t tokens = probe_tokens(p);
        if (array->rank != 4 || array->dim[2] != tokens || array->dim[3] != tokens ||
            (padding && array->dim[0] != probe_samples(p)))
            return false;
        for (int64_t i = 0; i < array->count; i++) {
            const int64_t key = i % tokens, query = i / tokens % tokens;
            const int64_t sample = i / (tokens * tokens * array->dim[1]);
            const bool seen =
                (!later || key <= query) && (!padding || probe_mask(tokens, sample, key));
            if (seen ? array->data[i] != 0 : !(array->data[i] <= -50)) return false;
        }
    }
    return true;
}

/* The attention node of lifted queries, keys and values; `bias`, which may be NULL, is
 * added to the scores. */
static Node *attend(Lift *lift, NetNode *node, Node *const in[3], NetValue *mask,
                    const NetValue *bias) {
    const int64_t heads = net_int(node, "num_heads", 0);
    bool causal = net_int(node, "unidirectional", 0) != 0, padded = mask != NULL;
    const double scale = net_real(node, "scale", 0);
    Node *all[4] = {in[0], in[1], in[2], NULL};
    if (!in[0] || !in[1] || !in[2]) return NULL;
    if (mask && !is_padding(mask))
        return lift_stop(lift, node, "its mask is not one of padding");
    if (bias && (forbids(bias, true, false) || forbids(bias, true, true)))
        causal = true;
    else if (bias && forbids(bias, false, true))
        padded = true;
    else if (bias && !forbids(bias, false, false))
        return lift_stop(lift, node, "its attention_bias is no mask that is known");
    if (padded && !causal) all[3] = lift_input(lift, INPUT_MASK, NULL);
    const double width = heads > 0 ? (double)in[0]->type.dim[2] / (double)heads : 1;
    const bool usual = scale == 0 || fabs(scale * sqrt(width) - 1) < 1e-5;
    lift->decoder |= causal;
    return lift_op(lift, node, "attention", all, all[3] ? 4 : 3,
                   "heads=%lld causal=%s scale=%.9g", (long long)heads,
                   causal ? "true" : "false", usual ? 0 : scale);
}

/* One matrix [D, 3 D'] and one bias for queries, keys and values. */
static Node *fused_attention(Lift *lift, NetNode *node) {
    NetValue *x = net_operand(node, 0), *weight = net_operand(node, 1),
             *bias = vector_operand(node, 2);
    int count = 0;
    if (!x || !weight || !weight->stored || weight->stored->n_dims != 2) return NULL;
    for (int i = 4; i < node->in_count; i++)
        if (node->in[i] && !value_is_known(node->in[i]))
            return lift_stop(lift, node, "expected neither earlier keys nor a bias");
    const int64_t all = weight->stored->dims[1];
    const int64_t *sizes = net_ints(node, "qkv_hidden_sizes", &count);
    if (!sizes && all % 3 != 0) return NULL;
    if (sizes && (count != 3 || sizes[0] < 1 || sizes[1] != sizes[0] || sizes[2] < 1 ||
                  sizes[0] > all || sizes[2] != all - 2 * sizes[0]))
        return lift_stop(lift, node, "its sizes are not those of its matrix");
    Node *in[3] = {NULL};
    const Projection projection = {node, x, weight, false, bias};
    int64_t first = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t width = sizes ? sizes[i] : all / 3;
        int64_t *columns = ARENA_ARRAY(lift->arena, int64_t, (size_t)width);
        for (int64_t j = 0; j < width; j++) columns[j] = first + j;
        first += width;
        if (!(in[i] = lift_projection(lift, &projection, columns, width))) return NULL;
    }
    return attend(lift, node, in, net_operand(node, 3), net_operand(node, 5));
}

/* Queries, keys and values apart; their biases side by side. */
static Node *fused_heads(Lift *lift, NetNode *node) {
    NetValue *bias = vector_operand(node, 3);
    Node *in[3] = {NULL};
    int64_t first = 0;
    for (int i = 5; i < node->in_count; i++)
        if (node->in[i] && !value_is_known(node->in[i]))
            return lift_stop(lift, node, "expected neither earlier keys nor a bias");
    for (int i = 0; i < 3; i++) {
        NetValue *x = net_operand(node, i), *own = bias;
        if (!x || !x->probe[0] || x->probe[0]->rank != 3) return NULL;
        const int64_t width = x->probe[0]->dim[2];
        if (bias && bias->probe[0]->data && first + width <= bias->probe[0]->count) {
            own = ARENA_NEW(lift->net->arena, NetValue);
            *own = (NetValue){
                .name = arena_printf(lift->arena, "%s.%c", bias->name, "qkv"[i])};
            Array *part = array_create(lift->pool, ONNX_F32, 1, &width, true);
            if (!part || !part->data) return NULL;
            memcpy(part->data, bias->probe[0]->data + first,
                   (size_t)width * sizeof(double));
            own->probe[0] = own->probe[1] = part;
            first += width;
        } else if (bias) {
            return lift_stop(lift, node, "its bias is of another size");
        }
        if (!(in[i] = lift_biased(lift, node, x, own))) return NULL;
    }
    return attend(lift, node, in, net_operand(node, 4), net_operand(node, 5));
}

/* ---- table ---- */

Node *match_fused(Lift *lift, NetNode *node, NetValue *value) {
    if (value->slot != 0 && strstr(node->op, "Skip") == NULL) return NULL;
    if (net_is(node, "LayerNormalization")) return fused_norm(lift, node, true);
    if (net_is(node, "RMSNormalization") || net_is(node, "SimplifiedLayerNormalization"))
        return fused_norm(lift, node, false);
    if (net_is(node, "com.microsoft.SkipLayerNormalization"))
        return fused_skip_norm(lift, node, value, true);
    if (net_is(node, "com.microsoft.SkipSimplifiedLayerNormalization"))
        return fused_skip_norm(lift, node, value, false);
    if (net_is(node, "com.microsoft.EmbedLayerNormalization"))
        return fused_embedding(lift, node, value);
    if (net_is(node, "com.microsoft.FusedGemm")) return fused_gemm(lift, node);
    if (net_is(node, "com.microsoft.BiasGelu"))
        return fused_activation(lift, node, "gelu");
    if (net_is(node, "com.microsoft.FastGelu"))
        return fused_activation(lift, node, "gelu_tanh");
    if (net_is(node, "com.microsoft.Attention")) return fused_attention(lift, node);
    if (net_is(node, "com.microsoft.MultiHeadAttention")) return fused_heads(lift, node);
    if (net_is(node, "com.microsoft.GroupQueryAttention"))
        return lift_grouped_attention(lift, node);
    if (net_is(node, "com.microsoft.RotaryEmbedding"))
        return lift_rotary_embedding(lift, node);
    return NULL;
}
