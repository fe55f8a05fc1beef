/* Graphs of ONNX operators: see onnx_build.h. */
#include "io/onnx/write/onnx_build.h"

#include "io/onnx/onnx_form.h"
#include "io/onnx/write/onnx_few_bits.h"
#include "ir/half.h"
#include "ir/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists and messages ---- */

static void list_add(Arena *arena, OnnxList *list, void *item) {
    if (list->count == list->capacity) {
        const int capacity = list->capacity ? 2 * list->capacity : 8;
        void **items = ARENA_ARRAY(arena, void *, (size_t)capacity);
        if (list->count) memcpy(items, list->items, (size_t)list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
}

/* Room for one more of a message's `*count` pointers. Messages have few. */
static void *grown(Arena *arena, void *items, size_t *count) {
    void **more = ARENA_ARRAY(arena, void *, *count + 1);
    if (*count) memcpy(more, items, *count * sizeof *more);
    ++*count;
    return more;
}

#define NEW_MESSAGE(arena, T, NAME)                                                      \
    (T *)memcpy(ARENA_NEW(arena, T), &(const T)ONNX__##NAME##__INIT, sizeof(T))

OnnxBuild *onnx_build_create(Arena *arena, int32_t real) {
    OnnxBuild *b = ARENA_NEW(arena, OnnxBuild);
    b->arena = arena;
    b->scope = "";
    b->real = real;
    return b;
}

OnnxBuild *onnx_build_inside(OnnxBuild *outer) {
    OnnxBuild *b = onnx_build_create(outer->arena, outer->real);
    b->outer = outer;
    b->scope = outer->scope;
    return b;
}

OnnxBuild *onnx_build_root(OnnxBuild *b) {
    while (b->outer) b = b->outer;
    return b;
}

/* ---- nodes ---- */

static OnnxNode *last_node(OnnxBuild *b) {
    return b->nodes.items[b->nodes.count - 1];
}

const char *onnx_more(OnnxBuild *b) {
    OnnxNode *node = last_node(b);
    node->output = grown(b->arena, node->output, &node->n_output);
    char *name = node->n_output == 1
                     ? node->name
                     : arena_printf(b->arena, "%s.%zu", node->name, node->n_output);
    return node->output[node->n_output - 1] = name;
}

const char *onnx_node(OnnxBuild *b, const char *op, const char *const *in, int count) {
    static const char MICROSOFT[] = "com.microsoft";
    const size_t domain = sizeof MICROSOFT - 1;
    OnnxNode *node = NEW_MESSAGE(b->arena, OnnxNode, NODE_PROTO);
    if (strncmp(op, MICROSOFT, domain) == 0) {
        onnx_build_root(b)->microsoft = true;
        node->domain = arena_strdup(b->arena, MICROSOFT);
        op += domain + 1;
    }
    node->op_type = arena_strdup(b->arena, op);
    node->name =
        arena_printf(b->arena, "%s/%s_%d", b->scope, op, onnx_build_root(b)->numbered++);
    node->n_input = (size_t)count;
    node->input = ARENA_ARRAY(b->arena, char *, (size_t)count);
    for (int i = 0; i < count; i++) node->input[i] = arena_strdup(b->arena, in[i]);
    list_add(b->arena, &b->nodes, node);
    return onnx_more(b);
}

static OnnxAttribute *add_attribute(OnnxBuild *b, const char *name, int type) {
    OnnxNode *node = last_node(b);
    OnnxAttribute *attribute = NEW_MESSAGE(b->arena, OnnxAttribute, ATTRIBUTE_PROTO);
    attribute->name = arena_strdup(b->arena, name);
    attribute->has_type = true;
    attribute->type = (Onnx__AttributeProto__AttributeType)type;
    node->attribute = grown(b->arena, node->attribute, &node->n_attribute);
    return node->attribute[node->n_attribute - 1] = attribute;
}

void onnx_set_int(OnnxBuild *b, const char *name, int64_t value) {
    OnnxAttribute *attribute = add_attribute(b, name, ONNX_ATTRIBUTE_INT);
    attribute->has_i = true;
    attribute->i = value;
}

void onnx_set_ints(OnnxBuild *b, const char *name, const int64_t *values, int count) {
    OnnxAttribute *attribute = add_attribute(b, name, ONNX_ATTRIBUTE_INTS);
    attribute->n_ints = (size_t)count;
    attribute->ints = ARENA_ARRAY(b->arena, int64_t, (size_t)count);
    for (int i = 0; i < count; i++) attribute->ints[i] = values[i];
}

void onnx_set_real(OnnxBuild *b, const char *name, double value) {
    OnnxAttribute *attribute = add_attribute(b, name, ONNX_ATTRIBUTE_FLOAT);
    attribute->has_f = true;
    attribute->f = (float)value;
}

/* Strings of ops are lists of one string where ONNX wants a list: RNN's activations. */
void onnx_set_text(OnnxBuild *b, const char *name, const char *value) {
    OnnxAttribute *attribute = add_attribute(b, name, ONNX_ATTRIBUTE_STRINGS);
    attribute->n_strings = 1;
    attribute->strings = ARENA_NEW(b->arena, ProtobufCBinaryData);
    attribute->strings[0].len = strlen(value);
    attribute->strings[0].data = (uint8_t *)arena_strdup(b->arena, value);
}

void onnx_set_body(OnnxBuild *b, const char *name, OnnxBuild *body) {
    OnnxAttribute *attribute = add_attribute(b, name, ONNX_ATTRIBUTE_GRAPH);
    attribute->g = onnx_build_graph(body, name);
}

const char *onnx_rename(OnnxBuild *b, const char *name, const char *to) {
    OnnxNode *node = b->nodes.count ? last_node(b) : NULL;
    for (size_t i = 0; node && i < node->n_output; i++)
        if (strcmp(node->output[i], name) == 0)
            return node->output[i] = arena_strdup(b->arena, to);
    return name;
}

/* ---- operators ---- */

const char *onnx_reshape(OnnxBuild *b, const char *x, const int64_t *shape, int rank) {
    return ONNX_NODE(b, "Reshape", x, onnx_i64s(b, shape, rank));
}

const char *onnx_transpose(OnnxBuild *b, const char *x, const int64_t *order, int rank) {
    x = ONNX_NODE(b, "Transpose", x);
    onnx_set_ints(b, "perm", order, rank);
    return x;
}

const char *onnx_unsqueeze(OnnxBuild *b, const char *x, int64_t axis) {
    return ONNX_NODE(b, "Unsqueeze", x, ONNX_VECTOR(b, axis));
}

const char *onnx_squeeze(OnnxBuild *b, const char *x, int64_t axis) {
    return ONNX_NODE(b, "Squeeze", x, ONNX_VECTOR(b, axis));
}

const char *onnx_gather(OnnxBuild *b, const char *x, const char *at, int64_t axis) {
    x = ONNX_NODE(b, "Gather", x, at);
    onnx_set_int(b, "axis", axis);
    return x;
}

const char *onnx_concat(OnnxBuild *b, int64_t axis, const char *x, const char *y) {
    x = ONNX_NODE(b, "Concat", x, y);
    onnx_set_int(b, "axis", axis);
    return x;
}

const char *onnx_cast(OnnxBuild *b, const char *x, int32_t to) {
    x = ONNX_NODE(b, "Cast", x);
    onnx_set_int(b, "to", to);
    return x;
}

const char *onnx_softmax(OnnxBuild *b, const char *x, int64_t axis) {
    x = ONNX_NODE(b, "Softmax", x);
    onnx_set_int(b, "axis", axis);
    return x;
}

const char *onnx_slice(OnnxBuild *b, const char *x, const char *from, const char *to,
                       int64_t axis) {
    return ONNX_NODE(b, "Slice", x, from, to, ONNX_VECTOR(b, axis));
}

const char *onnx_dim(OnnxBuild *b, const char *x, int64_t axis) {
    x = ONNX_NODE(b, "Shape", x);
    onnx_set_int(b, "start", axis);
    onnx_set_int(b, "end", axis + 1);
    return x;
}

const char *onnx_range(OnnxBuild *b, const char *from, const char *to) {
    return ONNX_NODE(b, "Range", onnx_squeeze(b, from, 0), onnx_squeeze(b, to, 0),
                     onnx_i64(b, 1));
}

/* ---- constants ---- */

/* A name by content, so that it does not depend on the order in which a compiler has
 * arguments computed: "constant.1x0x64" of a vector, "constant.<hash>" of what is long or
 * has real numbers. */
static char *constant_name(Arena *arena, int32_t type, const int64_t *dim, int rank,
                           const void *bytes, size_t length) {
    Text text = {0};
    char hash[HASH_TEXT_BYTES];
    const int64_t *values = bytes;
    text_add(&text, type == ONNX_I64 && rank == 0 ? "scalar" : "constant");
    if (type == ONNX_I64 && rank <= 1 && length <= RANK_MAX * sizeof *values) {
        for (size_t i = 0; i < length / sizeof *values; i++)
            text_add(&text, "%c%lld", i ? 'x' : '.', (long long)values[i]);
    } else {
        bytes_hash(bytes, length, hash);
        text_add(&text, ".%d.%s", (int)type, hash);
        for (int i = 0; i < rank; i++)
            text_add(&text, "%c%lld", i ? 'x' : '.', (long long)dim[i]);
    }
    char *name = arena_strdup(arena, text.data);
    text_free(&text);
    return name;
}

/* The constant of this type, shape and bytes: an existing one, or a new one. */
static const char *constant(OnnxBuild *b, int32_t type, const int64_t *dim, int rank,
                            const void *bytes, size_t length) {
    OnnxBuild *root = onnx_build_root(b);
    for (int i = 0; i < root->constants.count; i++) {
        const OnnxTensor *tensor = root->constants.items[i];
        if (tensor->data_type == type && tensor->n_dims == (size_t)rank &&
            tensor->raw_data.len == length &&
            (rank == 0 || memcmp(tensor->dims, dim, (size_t)rank * sizeof *dim) == 0) &&
            memcmp(tensor->raw_data.data, bytes, length) == 0)
            return tensor->name;
    }
    OnnxTensor *tensor = NEW_MESSAGE(b->arena, OnnxTensor, TENSOR_PROTO);
    tensor->name = constant_name(b->arena, type, dim, rank, bytes, length);
    tensor->has_data_type = tensor->has_raw_data = true;
    tensor->data_type = type;
    tensor->n_dims = (size_t)rank;
    tensor->dims = ARENA_ARRAY(b->arena, int64_t, (size_t)rank);
    for (int i = 0; i < rank; i++) tensor->dims[i] = dim[i];
    tensor->raw_data.len = length;
    tensor->raw_data.data = arena_alloc(b->arena, length);
    if (length) memcpy(tensor->raw_data.data, bytes, length);
    list_add(b->arena, &root->constants, tensor);
    return tensor->name;
}

static int64_t count_of(const int64_t *dim, int rank) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dim[i];
    return count;
}

const char *onnx_indices(OnnxBuild *b, const int64_t *values, const int64_t *dim,
                         int rank) {
    return constant(b, ONNX_I64, dim, rank, values,
                    (size_t)count_of(dim, rank) * sizeof *values);
}

const char *onnx_i64(OnnxBuild *b, int64_t value) {
    return onnx_indices(b, &value, NULL, 0);
}

const char *onnx_i32(OnnxBuild *b, int32_t value) {
    return constant(b, ONNX_I32, NULL, 0, &value, sizeof value);
}

const char *onnx_u8(OnnxBuild *b, uint8_t value) {
    return constant(b, ONNX_U8, NULL, 0, &value, sizeof value);
}

const char *onnx_i64s(OnnxBuild *b, const int64_t *values, int count) {
    const int64_t dim = count;
    return onnx_indices(b, values, &dim, 1);
}

const char *onnx_f32s(OnnxBuild *b, const float *values, const int64_t *dim, int rank) {
    const int64_t count = count_of(dim, rank);
    if (b->real == ONNX_F32)
        return constant(b, ONNX_F32, dim, rank, values, (size_t)count * sizeof *values);
    uint16_t *halves = memory_alloc((size_t)count, sizeof *halves);
    for (int64_t i = 0; i < count; i++) halves[i] = f16_from_float(values[i]);
    const char *name =
        constant(b, ONNX_F16, dim, rank, halves, (size_t)count * sizeof *halves);
    free(halves);
    return name;
}

const char *onnx_real(OnnxBuild *b, double value) {
    const float single = (float)value;
    return onnx_f32s(b, &single, NULL, 0);
}

/* ---- weights ---- */

static bool shape_is(const OnnxTensor *tensor, const int64_t *dim, int rank) {
    if (tensor->n_dims != (size_t)rank) return false;
    for (int i = 0; i < rank; i++)
        if (tensor->dims[i] != dim[i]) return false;
    return true;
}

const char *onnx_stored(OnnxBuild *b, const Storage *storage, OnnxForm form,
                        const int64_t *dim, int rank) {
    static const char *const SUFFIX[ONNX_FORMS] = {"",        ".transposed", ".gates",
                                                   ".blocks", ".scales",     ".zeros"};
    OnnxBuild *root = onnx_build_root(b);
    int64_t own[RANK_MAX];
    const int own_rank = onnx_form_shape(&storage->tensor, form, own);
    OnnxWeight *weight = NULL;
    for (int i = 0; !weight && i < root->weights.count; i++) {
        OnnxWeight *other = root->weights.items[i];
        if (other->storage == storage && other->form == form) weight = other;
    }
    if (!weight) {
        weight = ARENA_NEW(b->arena, OnnxWeight);
        OnnxTensor *tensor = NEW_MESSAGE(b->arena, OnnxTensor, TENSOR_PROTO);
        tensor->name = arena_printf(b->arena, "%s%s", storage->name, SUFFIX[form]);
        tensor->has_data_type = tensor->has_raw_data = true;
        tensor->data_type = onnx_form_type(&storage->tensor, form);
        tensor->n_dims = (size_t)(dim ? rank : own_rank);
        tensor->dims = ARENA_ARRAY(b->arena, int64_t, RANK_MAX + 1);
        for (size_t i = 0; i < tensor->n_dims; i++)
            tensor->dims[i] = (dim ? dim : own)[i];
        *weight = (OnnxWeight){storage, form, tensor};
        list_add(b->arena, &root->weights, weight);
    }
    if (shape_is(weight->tensor, dim ? dim : own, dim ? rank : own_rank))
        return weight->tensor->name;
    return onnx_reshape(b, weight->tensor->name, dim ? dim : own, dim ? rank : own_rank);
}

const char *onnx_weight(OnnxBuild *b, const Storage *storage, OnnxForm form,
                        const int64_t *dim, int rank) {
    if (dtype_is_quantised(storage->tensor.dtype))
        return onnx_few_bits_weight(b, storage, dim, rank);
    const char *name = onnx_stored(b, storage, form, dim, rank);
    if (onnx_data_type(storage->tensor.dtype) == b->real) return name;
    const char *key = arena_printf(b->arena, "cast %s", name), *kept = onnx_kept(b, key);
    return kept ? kept : onnx_keep(b, key, onnx_cast(b, name, b->real));
}

/* ---- kept values ---- */

typedef struct Kept {
    const char *key, *value;
} Kept;

const char *onnx_kept(OnnxBuild *b, const char *key) {
    for (; b; b = b->outer)
        for (int i = b->kept.count - 1; i >= 0; i--) {
            const Kept *kept = b->kept.items[i];
            if (strcmp(kept->key, key) == 0) return kept->value;
        }
    return NULL;
}

const char *onnx_keep(OnnxBuild *b, const char *key, const char *value) {
    Kept *kept = ARENA_NEW(b->arena, Kept);
    *kept = (Kept){arena_strdup(b->arena, key), value};
    list_add(b->arena, &b->kept, kept);
    return value;
}

/* ---- graphs ---- */

static OnnxValue *declare(OnnxBuild *b, const char *name, int32_t type,
                          const int64_t *dim, const char *const *names, int rank) {
    OnnxValue *value = NEW_MESSAGE(b->arena, OnnxValue, VALUE_INFO_PROTO);
    OnnxType *of = NEW_MESSAGE(b->arena, OnnxType, TYPE_PROTO);
    OnnxTensorType *tensor = NEW_MESSAGE(b->arena, OnnxTensorType, TYPE_PROTO__TENSOR);
    value->name = arena_strdup(b->arena, name);
    value->type = of;
    of->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    of->tensor_type = tensor;
    tensor->has_elem_type = true;
    tensor->elem_type = type;
    if (rank < 0) return value;
    OnnxShape *shape = NEW_MESSAGE(b->arena, OnnxShape, TENSOR_SHAPE_PROTO);
    tensor->shape = shape;
    shape->n_dim = (size_t)rank;
    shape->dim = ARENA_ARRAY(b->arena, OnnxDim *, (size_t)rank);
    for (int i = 0; i < rank; i++) {
        OnnxDim *to = NEW_MESSAGE(b->arena, OnnxDim, TENSOR_SHAPE_PROTO__DIMENSION);
        const bool named = names && names[i];
        to->value_case = named ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                               : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        if (named)
            to->dim_param = arena_strdup(b->arena, names[i]);
        else
            to->dim_value = dim[i];
        shape->dim[i] = to;
    }
    return value;
}

void onnx_input(OnnxBuild *b, const char *name, int32_t type, const int64_t *dim,
                const char *const *names, int rank) {
    list_add(b->arena, &b->inputs, declare(b, name, type, dim, names, rank));
}

void onnx_output(OnnxBuild *b, const char *name, int32_t type, const int64_t *dim,
                 const char *const *names, int rank) {
    list_add(b->arena, &b->outputs, declare(b, name, type, dim, names, rank));
}

static int by_name(const void *a, const void *b) {
    const OnnxTensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

OnnxGraph *onnx_build_graph(OnnxBuild *b, const char *name) {
    OnnxGraph *graph = NEW_MESSAGE(b->arena, OnnxGraph, GRAPH_PROTO);
    OnnxList initializers = {0};
    for (int i = 0; i < b->constants.count; i++)
        list_add(b->arena, &initializers, b->constants.items[i]);
    for (int i = 0; i < b->weights.count; i++)
        list_add(b->arena, &initializers, ((OnnxWeight *)b->weights.items[i])->tensor);
    if (initializers.count)
        qsort(initializers.items, (size_t)initializers.count, sizeof(void *), by_name);
    graph->name = arena_strdup(b->arena, name);
    graph->n_node = (size_t)b->nodes.count;
    graph->node = (OnnxNode **)b->nodes.items;
    graph->n_input = (size_t)b->inputs.count;
    graph->input = (OnnxValue **)b->inputs.items;
    graph->n_output = (size_t)b->outputs.count;
    graph->output = (OnnxValue **)b->outputs.items;
    graph->n_initializer = (size_t)initializers.count;
    graph->initializer = (OnnxTensor **)initializers.items;
    return graph;
}
