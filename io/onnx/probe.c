/* Probes: see probe.h. */
#include "io/onnx/probe.h"

#include "io/onnx/eval.h"
#include "ir/model_parts.h"

#include <string.h>

/* Few tokens: tables of positions may be short. */
static const int64_t SAMPLES[NET_PROBES] = {2, 3}, TOKENS[NET_PROBES] = {3, 5},
                     SOURCE_TOKENS[NET_PROBES] = {4, 7};

int64_t probe_samples(int probe) {
    return SAMPLES[probe];
}

int64_t probe_tokens(int probe) {
    return TOKENS[probe];
}

int64_t probe_source_tokens(int probe) {
    return SOURCE_TOKENS[probe];
}

/* Filled up at the end, as tokenizers do, by other lengths in every sample. */
bool probe_mask(int64_t tokens, int64_t n, int64_t t) {
    return t < tokens - 2 * n;
}

bool probe_is_source(const Net *net, const NetValue *input) {
    return net->translates &&
           (strcmp(input->name, INPUT_IDS) == 0 || strcmp(input->name, INPUT_MASK) == 0);
}

InputKind probe_input_kind(const NetValue *input) {
    static const struct {
        const char *name;
        InputKind kind;
    } NAMES[] = {{INPUT_IDS, INPUT_TOKENS},
                 {"input", INPUT_TOKENS},
                 {"ids", INPUT_TOKENS},
                 {"tokens", INPUT_TOKENS},
                 {INPUT_TARGET_IDS, INPUT_TOKENS},
                 {INPUT_TYPES, INPUT_TYPE_IDS},
                 {"segment_ids", INPUT_TYPE_IDS},
                 {INPUT_MASK, INPUT_PADDING},
                 {INPUT_TARGET_MASK, INPUT_PADDING},
                 {"input_mask", INPUT_PADDING},
                 {"mask", INPUT_PADDING},
                 {"position_ids", INPUT_POSITIONS},
                 {INPUT_PIXELS, INPUT_IMAGE},
                 {"use_cache_branch", INPUT_SWITCH}};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(input->name, NAMES[i].name) == 0) return NAMES[i].kind;
    return strncmp(input->name, "past_", 5) == 0 ? INPUT_PAST : INPUT_OTHER;
}

/* ---- inputs ---- */

/* Size of a dimension of an input that the file leaves open; -1 = not known. */
static int64_t open_size(InputKind kind, int rank, int dim, int probe,
                         const ProbeSizes *sizes) {
    const int64_t image[4] = {SAMPLES[probe], sizes->channels, sizes->height,
                              sizes->width};
    if (dim == 0) return SAMPLES[probe];
    if (kind == INPUT_PAST) return 0;
    if (kind == INPUT_IMAGE || (kind == INPUT_OTHER && rank == 4))
        return dim < 4 && image[dim] > 0 ? image[dim] : -1;
    return dim == 1 ? TOKENS[probe] : -1;
}

static Status input_shape(const Net *net, const NetValue *input, int probe,
                          const ProbeSizes *sizes, Array *shape, Diag *diag) {
    const OnnxType *type = input->input->type;
    const OnnxTensorType *tensor = type ? type->tensor_type : NULL;
    const Loc at = LOC_FILE(net->path);
    if (!tensor || !tensor->shape || !net_element_bytes(tensor->elem_type) ||
        tensor->shape->n_dim > NET_RANK_MAX)
        return diag_fail(diag, STATUS_MODEL, at, input->name,
                         "expected an input that is a tensor with a shape");
    const InputKind kind = probe_input_kind(input);
    shape->type = tensor->elem_type;
    shape->rank = (int)tensor->shape->n_dim;
    for (int d = 0; d < shape->rank; d++) {
        const OnnxDim *dim = tensor->shape->dim[d];
        const bool fixed =
            dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        shape->dim[d] = fixed && dim->dim_value > 0
                            ? dim->dim_value
                            : open_size(kind, shape->rank, d, probe, sizes);
        if (!fixed && d == 1 && probe_is_source(net, input))
            shape->dim[d] = SOURCE_TOKENS[probe];
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

static Status probe_input(Net *net, ArrayPool *pool, NetValue *input, int probe,
                          const ProbeSizes *sizes, Diag *diag) {
    Array shape;
    const InputKind kind = probe_input_kind(input);
    TRY(input_shape(net, input, probe, sizes, &shape, diag));
    const bool given = kind == INPUT_PADDING || kind == INPUT_POSITIONS ||
                       kind == INPUT_PAST || kind == INPUT_SWITCH;
    Array *array = array_create(pool, shape.type, shape.rank, shape.dim, given);
    if (!array)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(net->path), input->name,
                         "its shape is impossible");
    if (array->data) fill_input(array, kind);
    input->probe[probe] = array;
    return STATUS_OK;
}

/* ---- nodes ---- */

static Status probe_node(Net *net, ArrayPool *pool, NetNode *node, int probe,
                         Diag *diag) {
    Array **in = ARENA_ARRAY(pool->arena, Array *, (size_t)node->in_count);
    Array **out = ARENA_ARRAY(pool->arena, Array *, (size_t)node->out_count);
    for (int i = 0; i < node->in_count; i++)
        in[i] = node->in[i] ? node->in[i]->probe[probe] : NULL;
    TRY(eval_node(net, pool, node, in, out, diag));
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i]) node->out[i]->probe[probe] = out[i];
    return STATUS_OK;
}

Status probe_run(Net *net, ArrayPool *pool, const ProbeSizes *sizes, Diag *diag) {
    for (int i = 0; i < net->value_count; i++) {
        NetValue *value = net->values[i];
        if (!value->stored) continue;
        /* a stored tensor's numbers do not depend on the probe */
        Array *array = array_stored(pool, net, value->stored);
        for (int p = 0; p < NET_PROBES; p++) value->probe[p] = array;
    }
    for (int p = 0; p < NET_PROBES; p++) {
        for (int i = 0; i < net->input_count; i++)
            TRY(probe_input(net, pool, net->inputs[i], p, sizes, diag));
        for (int i = 0; i < net->node_count; i++)
            TRY(probe_node(net, pool, net->nodes[i], p, diag));
    }
    return STATUS_OK;
}
