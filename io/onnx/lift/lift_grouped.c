/* Lifting what onnxruntime's exports of decoders have: see lift_grouped.h. */
#include "io/onnx/lift/lift_grouped.h"

#include "io/onnx/lift/lift_rotary.h"
#include "io/onnx/lift/lift_rows.h"
#include "io/onnx/lift/lift_weights.h"
#include "io/onnx/net/probe.h"

#include <math.h>

/* Operands of GroupQueryAttention. */
enum {
    GQA_QUERY,
    GQA_KEY,
    GQA_VALUE,
    GQA_PAST_KEY,
    GQA_PAST_VALUE,
    GQA_LENGTHS, /* tokens of each sample, less one */
    GQA_TOTAL,   /* tokens */
    GQA_COSINE,
    GQA_SINE,
    GQA_POSITIONS,
    GQA_BIAS,
    GQA_SINK,
    GQA_SCALES
};

/* Whether positions, where they are given, are 0, 1, 2, ... in each sample. */
static bool are_counted(const NetValue *positions) {
    if (!positions) return true;
    if (!value_is_known(positions)) return false;
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *array = positions->probe[p];
        const int64_t tokens = probe_tokens(p);
        if (array->count == 1 && array->rank < 2 && array->data[0] == 0) continue;
        if (array->count % tokens != 0) return false;
        for (int64_t i = 0; i < array->count; i++)
            if (array->data[i] != (double)(i % tokens)) return false;
    }
    return true;
}

/* Whether all tokens are new, and each sample has those that the mask gives it, or all.
 */
static bool are_all_new(const NetValue *lengths, const NetValue *total) {
    if (!lengths || !total || !value_is_known(lengths) || !value_is_known(total))
        return false;
    for (int p = 0; p < NET_PROBES; p++) {
        const int64_t tokens = probe_tokens(p);
        const Array *last = lengths->probe[p], *all = total->probe[p];
        if (all->count != 1 || all->data[0] != (double)tokens ||
            last->count != probe_samples(p))
            return false;
        for (int64_t n = 0; n < last->count; n++) {
            const double at = last->data[n];
            const bool ends = at >= 0 && probe_mask(tokens, n, (int64_t)at) &&
                              !probe_mask(tokens, n, (int64_t)at + 1);
            if (at != (double)(tokens - 1) && !ends) return false;
        }
    }
    return true;
}

/* What stands in the way of an attention of ours; NULL = nothing. */
static const char *find_obstacle(const NetNode *node) {
    NetValue *in[GQA_SCALES];
    for (int i = 0; i < GQA_SCALES; i++) in[i] = net_operand(node, i);
    if (!in[GQA_QUERY]) return "expected queries";
    if (!in[GQA_KEY] != !in[GQA_VALUE]) return "expected keys and values, or neither";
    for (int i = GQA_PAST_KEY; i <= GQA_PAST_VALUE; i++)
        if (in[i] && !value_is_known(in[i])) return "expected no earlier keys";
    if (!are_all_new(in[GQA_LENGTHS], in[GQA_TOTAL]))
        return "seqlens_k and total_sequence_length are not those of the mask's tokens";
    if (!are_counted(in[GQA_POSITIONS])) return "expected positions counted from 0";
    if (in[GQA_BIAS]) return "attention_bias: no attention of decoders has one";
    if (in[GQA_SINK]) return "head_sink: no attention has one";
    for (int i = GQA_SCALES; i < node->in_count; i++)
        if (node->in[i]) return "keys and values in few bits: no op does this";
    if (net_int(node, "smooth_softmax", 0) == 1)
        return "smooth_softmax: no attention has one";
    if (net_int(node, "do_rotary", 0) && net_int(node, "rotary_interleaved", 0))
        return "rotary_interleaved: pairs side by side are not turned here";
    if (net_int(node, "do_rotary", 0) && (!in[GQA_COSINE] || !in[GQA_SINE]))
        return "do_rotary: expected tables of cosines and sines";
    return NULL;
}

/* What a value is in another shape. */
static NetValue *behind_reshapes(const Lift *lift, NetValue *value) {
    Trace trace;
    if (!trace_value(&trace, lift->net, value, false)) return value;
    NetValue *source = trace_is_plain(&trace) ? trace.source : value;
    trace_free(&trace);
    return source;
}

/* Rows of heads that have an RMS norm each (Qwen3), which the file has in a shape of
 * their own; other rows as they are. */
static Node *lift_heads_of(Lift *lift, NetValue *value, int64_t heads) {
    NetValue *source = behind_reshapes(lift, value);
    const NetNode *norm = source->producer;
    const bool known =
        net_is(norm, "SimplifiedLayerNormalization") || net_is(norm, "RMSNormalization");
    NetValue *weight = known ? net_operand(norm, 1) : NULL;
    const int64_t rank = known ? source->probe[0]->rank : 0;
    const int64_t width = rank > 0 ? source->probe[0]->dim[rank - 1] : 0,
                  axis = known ? net_int(norm, "axis", -1) : -1;
    if (!weight || !value_is_constant(weight) || weight->probe[0]->count != width ||
        width * heads != value->probe[0]->dim[2] || (axis != -1 && axis != rank - 1))
        return lift_value(lift, value);
    Node *in[2] = {lift_value(lift, behind_reshapes(lift, norm->in[0])),
                   lift_stored(lift, value_behind(weight), 1, &width)};
    if (!in[0] || !in[1]) return NULL;
    return lift_op(lift, norm, "rms_norm", in, 2, "heads=%lld eps=%s", (long long)heads,
                   short_decimal(lift, net_real(norm, "epsilon", 1e-5)));
}

/* Queries, keys or values [N, T, heads * width] of an operand, or of the columns from
 * `first` on of the projection in which all three stand. */
static Node *lift_part(Lift *lift, NetNode *node, NetValue *value, int64_t first,
                       int64_t count, int64_t heads) {
    Projection projection;
    if (value) return lift_heads_of(lift, value, heads);
    if (!match_projection(lift, value_behind(node->in[GQA_QUERY]), &projection))
        return lift_stop(lift, node, "heads are parts of a value that is no projection");
    int64_t *columns = ARENA_ARRAY(lift->arena, int64_t, (size_t)count);
    for (int64_t i = 0; i < count; i++) columns[i] = first + i;
    return lift_projection(lift, &projection, columns, count);
}

/* Queries, keys and values: all columns of three operands, or parts of those of one. */
static bool lift_parts(Lift *lift, NetNode *node, int64_t heads, int64_t groups,
                       Node *in[3]) {
    const Array *query = node->in[GQA_QUERY]->probe[0];
    const bool packed = !net_operand(node, GQA_KEY);
    const int64_t parts = packed ? heads + 2 * groups : heads;
    if (heads < 1 || groups < 1 || heads > 1 << 16 || heads % groups != 0 || !query ||
        query->rank != 3 || query->dim[2] % parts != 0) {
        lift_stop(lift, node, "num_heads and kv_num_heads do not fit its operands");
        return false;
    }
    for (int i = GQA_KEY; i <= GQA_VALUE && !packed; i++)
        if (!node->in[i]->probe[0] || node->in[i]->probe[0]->rank != 3) {
            lift_stop(lift, node, "expected keys and values of three dimensions");
            return false;
        }
    const int64_t width = query->dim[2] / parts;
    const int64_t first[4] = {0, heads * width, (heads + groups) * width,
                              (heads + 2 * groups) * width};
    for (int i = 0; i < 3; i++) {
        in[i] = lift_part(lift, node, packed ? NULL : node->in[i], first[i],
                          first[i + 1] - first[i], i == 0 ? heads : groups);
        if (!in[i]) return false;
    }
    return true;
}

Node *lift_grouped_attention(Lift *lift, NetNode *node) {
    const int64_t heads = net_int(node, "num_heads", 0),
                  groups = net_int(node, "kv_num_heads", 0),
                  reach = net_int(node, "local_window_size", -1);
    const double scale = net_real(node, "scale", 0), cap = net_real(node, "softcap", 0);
    const char *obstacle = find_obstacle(node), *text = "";
    Node *in[3];
    if (obstacle) return lift_stop(lift, node, obstacle);
    if (!lift_parts(lift, node, heads, groups, in)) return NULL;
    for (int i = 0; i < 2 && net_int(node, "do_rotary", 0); i++) {
        in[i] = lift_turned(lift, node, in[i], i == 0 ? heads : groups,
                            node->in[GQA_COSINE], node->in[GQA_SINE]);
        if (!in[i]) return NULL;
    }
    const double width = (double)in[0]->type.dim[2] / (double)heads;
    if (scale != 0 && fabs(scale * sqrt(width) - 1) >= 1e-5)
        text = arena_printf(lift->arena, " scale=%s", short_factor(lift, scale));
    if (reach > 0)
        text = arena_printf(lift->arena, "%s reach=%lld", text, (long long)reach);
    if (cap > 0)
        text = arena_printf(lift->arena, "%s cap=%s", text, short_decimal(lift, cap));
    if (groups != heads)
        text = arena_printf(lift->arena, "%s kv_heads=%lld", text, (long long)groups);
    lift->decoder = true;
    return lift_op(lift, node, "attention", in, 3, "heads=%lld causal=true%s",
                   (long long)heads, text);
}

Node *lift_rotary_embedding(Lift *lift, NetNode *node) {
    NetValue *x = net_operand(node, 0), *cosine = net_operand(node, 2),
             *sine = net_operand(node, 3);
    if (!x || !net_operand(node, 1) || !cosine || !sine) return NULL;
    if (net_int(node, "interleaved", 0))
        return lift_stop(lift, node,
                         "interleaved: pairs side by side are not turned here");
    if (net_int(node, "is_packed_batching", 0))
        return lift_stop(lift, node, "is_packed_batching: samples are apart here");
    if (net_real(node, "scale", 1) != 1)
        return lift_stop(lift, node, "scale: expected 1");
    if (!are_counted(node->in[1]))
        return lift_stop(lift, node, "expected positions counted from 0");
    if (x->probe[0]->rank != 3)
        return lift_stop(lift, node, "expected rows of heads of three dimensions");
    const Array *table = cosine->probe[0];
    int64_t heads = net_int(node, "num_heads", 0);
    if (heads == 0 && table && table->rank == 2 && table->dim[1] > 0)
        heads = x->probe[0]->dim[2] / (2 * table->dim[1]);
    return lift_turned(lift, node, lift_value(lift, x), heads, cosine, sine);
}
