/* Probes: see probe.h. */
#include "io/onnx/net/probe.h"

#include "io/onnx/net/eval.h"
#include "io/onnx/net/reopen.h"

#include <string.h>

/* ---- inputs ---- */

/* How many samples and tokens there are. */
typedef struct Counts {
    int64_t at[COUNTED];
    bool opens; /* sizes that the file fixes do not count */
} Counts;

static Counts probe_counts(int probe) {
    return (Counts){
        {probe_samples(probe), probe_tokens(probe), probe_source_tokens(probe)}, true};
}

static Counts file_counts(const Net *net) {
    Counts counts = {.opens = false};
    for (int i = 0; i < COUNTED; i++) counts.at[i] = reopen_file_count(net, i);
    return counts;
}

/* Size of a dimension of an input that the file leaves open; -1 = not known. */
static int64_t open_size(InputKind kind, int rank, int dim, const Counts *counts,
                         const ProbeSizes *sizes) {
    const int64_t image[4] = {0, sizes->channels, sizes->height, sizes->width};
    if (dim == 0) return counts->at[COUNTED_SAMPLES];
    if (kind == INPUT_PAST) return 0;
    if (kind == INPUT_IMAGE || (kind == INPUT_OTHER && rank == 4))
        return dim < 4 && image[dim] > 0 ? image[dim] : -1;
    return dim == 1 ? counts->at[COUNTED_TOKENS] : -1;
}

/* Whether an input has tokens before samples, by the names of its dimensions. */
static bool is_turned_input(const OnnxShape *shape) {
    const OnnxDim *second = shape->n_dim >= 2 ? shape->dim[1] : NULL;
    return second &&
           second->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
           second->dim_param && strstr(second->dim_param, "batch");
}

static Status input_shape(const Net *net, const NetValue *input, const Counts *counts,
                          const ProbeSizes *sizes, Array *shape, Diag *diag) {
    const OnnxTensorType *tensor = probe_input_type(input);
    const Loc at = LOC_FILE(net->path);
    if (!tensor || !tensor->shape || !net_element_bytes(tensor->elem_type) ||
        tensor->shape->n_dim > NET_RANK_MAX)
        return diag_fail(diag, STATUS_MODEL, at, input->name,
                         "expected an input that is a tensor with a shape");
    const InputKind kind = probe_input_kind(input);
    shape->type = tensor->elem_type;
    shape->rank = (int)tensor->shape->n_dim;
    const bool turned = is_turned_input(tensor->shape);
    for (int d = 0; d < shape->rank; d++) {
        const OnnxDim *dim = tensor->shape->dim[d];
        const int counted = reopen_counted(net, input, d);
        const bool opens = counts->opens && counted >= 0 && net->fixed[counted] > 0 &&
                           reopen_fixed(input, d) == net->fixed[counted];
        const bool fixed =
            !opens && dim->dim_value > 0 &&
            dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        shape->dim[d] = fixed ? dim->dim_value
                              : open_size(kind, shape->rank, turned && d < 2 ? 1 - d : d,
                                          counts, sizes);
        if (!fixed && d == 1 && probe_is_source(net, input->name))
            shape->dim[d] = counts->at[COUNTED_SOURCE];
        if (shape->dim[d] >= 0) continue;
        diag_fail(diag, STATUS_MODEL, at, input->name,
                  "dimension %d has no fixed size, and nothing says how large it is", d);
        if (kind == INPUT_IMAGE)
            diag_hint(diag, "a config.json beside the file with image_size and "
                            "num_channels says it");
        return STATUS_MODEL;
    }
    return STATUS_OK;
}

/* The numbers of an input that are given. */
static void fill_input(Array *array, InputKind kind) {
    const int64_t columns = array->rank > 0 ? array->dim[array->rank - 1] : 1;
    for (int64_t i = 0; i < array->count; i++)
        if (kind == INPUT_PADDING)
            array->data[i] = probe_mask(columns, i / columns, i % columns);
        else if (kind == INPUT_POSITIONS)
            array->data[i] = (double)(i % columns);
    array->depends = kind == INPUT_PADDING     ? DEPENDS_MASK
                     : kind == INPUT_POSITIONS ? DEPENDS_POSITION
                                               : DEPENDS_CACHE;
}

static Status probe_input(Net *net, ArrayPool *pool, const NetValue *input,
                          const Counts *counts, const ProbeSizes *sizes, Array **out,
                          Diag *diag) {
    Array shape;
    const InputKind kind = probe_input_kind(input);
    TRY(input_shape(net, input, counts, sizes, &shape, diag));
    const bool given = kind == INPUT_PADDING || kind == INPUT_POSITIONS ||
                       kind == INPUT_PAST || kind == INPUT_SWITCH;
    Array *array = array_create(pool, shape.type, shape.rank, shape.dim, given);
    if (!array)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(net->path), input->name,
                         "its shape is impossible");
    if (array->data) fill_input(array, kind);
    *out = array;
    return STATUS_OK;
}

/* ---- nodes ---- */

/* What a value is in a probe, or (-1) with the sizes that the file fixes. */
static Array **value_in(NetValue *value, int probe) {
    return probe < 0 ? &value->fixed : &value->probe[probe];
}

static Status probe_node(Net *net, ArrayPool *pool, NetNode *node, int probe,
                         Diag *diag) {
    Array **in = ARENA_ARRAY(pool->arena, Array *, (size_t)node->in_count);
    Array **out = ARENA_ARRAY(pool->arena, Array *, (size_t)node->out_count);
    for (int i = 0; i < node->in_count; i++)
        in[i] = node->in[i] ? *value_in(node->in[i], probe) : NULL;
    TRY(eval_node(net, pool, node, in, out, diag));
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i]) *value_in(node->out[i], probe) = out[i];
    return STATUS_OK;
}

/* ---- tokens before samples ---- */

/* Whether a value has rows by tokens, then samples: [T, N, D], or ids [T, N]. Images have
 * as many tokens whatever the probe. */
static bool has_tokens_first(const Net *net, const NetValue *value) {
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *shape = value->probe[p];
        if (!shape || shape->rank < 2 || shape->rank > 3 ||
            shape->dim[1] != probe_samples(p) || shape->dim[0] == probe_samples(p))
            return false;
        if (shape->rank == 2 && shape->dim[0] != probe_tokens(p) &&
            !(net->translates && shape->dim[0] == probe_source_tokens(p)))
            return false;
    }
    return true;
}

/* Whether a value's rows may be samples and tokens in one dimension: [T N, D]. */
static bool has_joined_rows(const NetValue *value) {
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *shape = value->probe[p];
        if (!shape || shape->rank != 2 || shape->dim[0] <= probe_samples(p) ||
            shape->dim[0] % probe_samples(p) != 0)
            return false;
    }
    return true;
}

/* Whether two values have rows of the same tokens where a node keeps rows. */
static bool keeps_rows(const NetNode *node, const NetValue *x, const NetValue *y) {
    const Array *from = x->probe[0], *to = y->probe[0];
    const EvalRow *row = eval_find(node->op);
    if (!row || !from || !to || from->rank < 2 || to->rank < 2) return false;
    const int64_t in = from->dim[from->rank - 1], out = to->dim[to->rank - 1];
    if (net_is(node, "Transpose") || in < 1 || out < 1) return false;
    if (row->kind == EVAL_MOVES && !(from->count == to->count && in == out)) return false;
    return from->count / in == to->count / out;
}

/* Lets joined rows be in the order of what they come from, or of what they become. */
static void share_order(NetNode *node) {
    NetValue *y = node->out_count > 0 ? node->out[0] : NULL;
    for (int i = 0; y && i < node->in_count; i++) {
        NetValue *x = node->in[i];
        if (!x || x->stored || !keeps_rows(node, x, y)) continue;
        if (x->tokens_first && has_joined_rows(y)) y->tokens_first = true;
        if (y->tokens_first && has_joined_rows(x)) x->tokens_first = true;
    }
}

static void mark_tokens_first(Net *net) {
    bool any = false;
    for (int i = 0; i < net->value_count; i++) {
        NetValue *value = net->values[i];
        value->tokens_first = !value->stored && has_tokens_first(net, value);
        any |= value->tokens_first;
    }
    for (int i = 0; any && i < net->node_count; i++) share_order(net->nodes[i]);
    for (int i = net->node_count - 1; any && i >= 0; i--) share_order(net->nodes[i]);
}

/* ---- all ---- */

/* The stored tensors, whose numbers do not depend on sizes. */
static void probe_stored(Net *net, ArrayPool *pool) {
    for (int i = 0; i < net->value_count; i++) {
        NetValue *value = net->values[i];
        if (!value->stored) continue;
        value->fixed = array_stored(pool, net, value->stored);
        for (int p = 0; p < NET_PROBES; p++) value->probe[p] = value->fixed;
    }
}

/* Everything as the file has it, with the sizes that it fixes. */
static Status run_file(Net *net, ArrayPool *pool, const ProbeSizes *sizes, Diag *diag) {
    const Counts counts = file_counts(net);
    for (int i = 0; i < net->input_count; i++)
        TRY(probe_input(net, pool, net->inputs[i], &counts, sizes, &net->inputs[i]->fixed,
                        diag));
    for (int i = 0; i < net->node_count; i++)
        TRY(probe_node(net, pool, net->nodes[i], -1, diag));
    return STATUS_OK;
}

/* Node by node in both probes, each without the sizes that the file fixes. */
static Status run_reopened(Net *net, ArrayPool *pool, Diag *diag) {
    Reopen reopen = {.net = net, .pool = pool};
    Status status = STATUS_OK;
    for (int i = 0; status == STATUS_OK && i < net->node_count; i++) {
        NetNode *node = net->nodes[i];
        status = reopen_node(&reopen, node, diag);
        for (int p = 0; p < NET_PROBES && status == STATUS_OK; p++)
            status = probe_node(net, pool, node, p, diag);
        for (int k = 0; k < node->out_count; k++) /* to know the rows of what follows */
            if (node->out[k])
                node->out[k]->tokens_first |= has_tokens_first(net, node->out[k]);
        share_order(node);
    }
    reopen_end(&reopen);
    return status;
}

Status probe_run(Net *net, ArrayPool *pool, const ProbeSizes *sizes, Diag *diag) {
    reopen_find(net);
    probe_stored(net, pool);
    if (reopen_any(net)) TRY(run_file(net, pool, sizes, diag));
    for (int p = 0; p < NET_PROBES; p++) {
        const Counts counts = probe_counts(p);
        for (int i = 0; i < net->input_count; i++)
            TRY(probe_input(net, pool, net->inputs[i], &counts, sizes,
                            &net->inputs[i]->probe[p], diag));
    }
    if (reopen_any(net)) TRY(run_reopened(net, pool, diag));
    for (int p = 0; p < NET_PROBES && !reopen_any(net); p++)
        for (int i = 0; i < net->node_count; i++)
            TRY(probe_node(net, pool, net->nodes[i], p, diag));
    mark_tokens_first(net);
    return STATUS_OK;
}
