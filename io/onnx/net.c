/* Net: see net.h. */
#include "io/onnx/net.h"

#include "io/files/file.h"
#include "ir/name_map.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A file's mapping: the model's own first, then those of external data. */
typedef struct NetFile {
    const char *location;
    Buf *map;
} NetFile;

/* Where a tensor with external data has its bytes. */
typedef struct NetPlace {
    const OnnxTensor *tensor;
    int file;
    size_t offset;
} NetPlace;

typedef struct NetFiles {
    OnnxFile parsed;
    NetFile *files;
    int count, capacity;
    NetPlace *places; /* sorted by tensor once all are there */
    int place_count, place_capacity;
} NetFiles;

typedef struct NetReader {
    Net *net;
    NameMap names; /* to NetValue */
    Diag *diag;
} NetReader;

/* ---- shapes and data ---- */

static const int64_t ELEMENTS_MAX = (int64_t)1 << 40;

bool net_shape_count(const int64_t *dim, size_t rank, int64_t *count) {
    int64_t all = 1;
    if (rank > NET_RANK_MAX) return false;
    for (size_t i = 0; i < rank; i++) {
        if (dim[i] < 0 || dim[i] > ELEMENTS_MAX) return false;
        if (dim[i] > 0 && all > ELEMENTS_MAX / dim[i]) return false;
        all *= dim[i];
    }
    if (count) *count = all;
    return true;
}

size_t net_element_bytes(int32_t type) {
    static const unsigned char BYTES[] = {0, 4, 1, 1, 2, 2, 4, 8, 0,
                                          1, 2, 8, 4, 8, 0, 0, 2};
    return type >= 0 && type < (int32_t)sizeof BYTES ? BYTES[type] : 0;
}

size_t net_list_length(const OnnxTensor *tensor) {
    switch (tensor->data_type) {
    case ONNX_F32: return tensor->n_float_data;
    case ONNX_F64: return tensor->n_double_data;
    case ONNX_I64: return tensor->n_int64_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT32:
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT64: return tensor->n_uint64_data;
    default: return tensor->n_int32_data;
    }
}

static int place_order(const void *a, const void *b) {
    const OnnxTensor *x = ((const NetPlace *)a)->tensor,
                     *y = ((const NetPlace *)b)->tensor;
    return x < y ? -1 : x > y;
}

const void *net_bytes(const Net *net, const OnnxTensor *tensor, Buf **map) {
    const NetFiles *files = net->files;
    *map = files->files[0].map;
    if (tensor->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return tensor->has_raw_data ? (const void *)tensor->raw_data.data : NULL;
    const NetPlace wanted = {.tensor = tensor};
    const NetPlace *place = bsearch(&wanted, files->places, (size_t)files->place_count,
                                    sizeof wanted, place_order);
    *map = files->files[place->file].map;
    return (const char *)buf_data(*map) + place->offset;
}

static void *grown(void *items, int count, int *capacity, size_t size) {
    if (count < *capacity) return items;
    *capacity = *capacity ? 2 * *capacity : 16;
    return memory_grow(items, (size_t)*capacity, size);
}

/* Maps a file beside the model, once; the model's folder is all that it may lie in. */
static Status map_external(NetReader *reader, const char *location, int *out) {
    Net *net = reader->net;
    NetFiles *files = net->files;
    for (int i = 1; i < files->count; i++)
        if (strcmp(files->files[i].location, location) == 0) return *out = i, STATUS_OK;
    const char *folder = path_folder(net->arena, net->path);
    if (!*location || *location == '/' || strstr(location, ".."))
        return diag_fail(reader->diag, STATUS_FORMAT, LOC_FILE(net->path), location,
                         "expected external data in the model's folder");
    const char *path = path_join(net->arena, folder, location);
    TRY(path_check_inside(folder, path, reader->diag));
    files->files = grown(files->files, files->count, &files->capacity, sizeof(NetFile));
    NetFile *file = &files->files[files->count];
    TRY(file_map(&file->map, path, reader->diag));
    file->location = location;
    *out = files->count++;
    return STATUS_OK;
}

/* A decimal number of external data; false when it is none, or too large. */
static bool read_size(const char *text, size_t *out) {
    char *end;
    if (!text || *text < '0' || *text > '9') return false;
    const unsigned long long value = strtoull(text, &end, 10);
    *out = (size_t)value;
    return *end == '\0' && value <= (unsigned long long)ELEMENTS_MAX * 8;
}

static Status place_external(NetReader *reader, const OnnxTensor *tensor, size_t bytes) {
    const Loc at = LOC_FILE(reader->net->path);
    const char *location = NULL;
    size_t offset = 0, length = bytes;
    bool good = true;
    for (size_t i = 0; i < tensor->n_external_data; i++) {
        const OnnxEntry *entry = tensor->external_data[i];
        const char *key = entry->key ? entry->key : "";
        if (strcmp(key, "location") == 0) location = entry->value;
        if (strcmp(key, "offset") == 0) good &= read_size(entry->value, &offset);
        if (strcmp(key, "length") == 0) good &= read_size(entry->value, &length);
    }
    if (!location || !good || length != bytes)
        return diag_fail(reader->diag, STATUS_FORMAT, at, tensor->name,
                         "expected external data with a location, an offset and a length "
                         "of %zu bytes",
                         bytes);
    NetPlace place = {.tensor = tensor, .offset = offset};
    TRY(map_external(reader, location, &place.file));
    NetFiles *files = reader->net->files;
    const size_t end = buf_bytes(files->files[place.file].map);
    if (offset > end || bytes > end - offset)
        return diag_fail(reader->diag, STATUS_FORMAT, at, tensor->name,
                         "expected %zu bytes from byte %zu of '%s', which has %zu", bytes,
                         offset, location, end);
    files->places =
        grown(files->places, files->place_count, &files->place_capacity, sizeof place);
    files->places[files->place_count++] = place;
    return STATUS_OK;
}

/* Checks that a stored tensor is what it says. */
static Status check_tensor(NetReader *reader, const OnnxTensor *tensor) {
    const Loc at = LOC_FILE(reader->net->path);
    const size_t each = net_element_bytes(tensor->data_type);
    int64_t count;
    if (!net_shape_count(tensor->dims, tensor->n_dims, &count))
        return diag_fail(reader->diag, STATUS_FORMAT, at, tensor->name,
                         "expected at most %d dimensions of at least 0 whose product "
                         "fits, found %zu dimensions",
                         NET_RANK_MAX, tensor->n_dims);
    if (!each)
        return diag_fail(reader->diag, STATUS_FORMAT, at, tensor->name,
                         "expected a tensor of numbers, found data type %d",
                         (int)tensor->data_type);
    if (tensor->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return place_external(reader, tensor, (size_t)count * each);
    const size_t bytes =
        tensor->has_raw_data ? tensor->raw_data.len : net_list_length(tensor) * each;
    if (bytes != (size_t)count * each)
        return diag_fail(reader->diag, STATUS_FORMAT, at, tensor->name,
                         "its shape asks for %zu bytes, found %zu", (size_t)count * each,
                         bytes);
    return STATUS_OK;
}

/* ---- names ---- */

static Status fail_name(NetReader *reader, const char *name, const char *what) {
    return diag_fail(reader->diag, STATUS_FORMAT, LOC_FILE(reader->net->path), name, "%s",
                     what);
}

static Status add_value(NetReader *reader, const char *name, NetValue **out) {
    Net *net = reader->net;
    if (!name || !*name) return fail_name(reader, NULL, "a value without a name");
    NetValue *value = ARENA_NEW(net->arena, NetValue);
    value->name = name;
    if (!name_map_add(&reader->names, name, value))
        return fail_name(reader, name, "two values have this name");
    net->values[net->value_count++] = value;
    *out = value;
    return STATUS_OK;
}

/* Initialisers, and the inputs that are not stored: before version 4 of the format every
 * initialiser was an input, too. */
static Status add_leaves(NetReader *reader, const OnnxGraph *graph) {
    Net *net = reader->net;
    NetValue *value;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        TRY(check_tensor(reader, graph->initializer[i]));
        TRY(add_value(reader, graph->initializer[i]->name, &value));
        value->stored = graph->initializer[i];
    }
    if (graph->n_sparse_initializer > 0)
        return fail_name(reader, NULL, "expected dense initialisers, found sparse ones");
    net->inputs = ARENA_ARRAY(net->arena, NetValue *, graph->n_input);
    for (size_t i = 0; i < graph->n_input; i++) {
        const OnnxValue *input = graph->input[i];
        if (input->name && name_map_get(&reader->names, input->name)) {
            value = name_map_get(&reader->names, input->name);
            if (value->input) return fail_name(reader, input->name, "given twice");
            continue;
        }
        TRY(add_value(reader, input->name, &value));
        value->input = input;
        value->position = net->input_count;
        net->inputs[net->input_count++] = value;
    }
    return STATUS_OK;
}

/* A constant with a tensor is a stored value, not a node. */
static const OnnxTensor *constant_tensor(const OnnxNode *proto) {
    if (!proto->op_type || strcmp(proto->op_type, "Constant") != 0) return NULL;
    for (size_t i = 0; i < proto->n_attribute; i++)
        if (proto->attribute[i]->t) return proto->attribute[i]->t;
    return NULL;
}

static Status add_node(NetReader *reader, const OnnxNode *proto) {
    Net *net = reader->net;
    const OnnxTensor *constant = constant_tensor(proto);
    NetValue *value;
    if (constant && proto->n_output == 1) {
        TRY(check_tensor(reader, constant));
        TRY(add_value(reader, proto->output[0], &value));
        value->stored = constant;
        return STATUS_OK;
    }
    NetNode *node = ARENA_NEW(net->arena, NetNode);
    node->op = proto->op_type ? proto->op_type : "";
    /* The standard domain has two names; those of others are put in front. */
    if (proto->domain && *proto->domain && strcmp(proto->domain, "ai.onnx") != 0)
        node->op = arena_printf(net->arena, "%s.%s", proto->domain, node->op);
    node->proto = proto;
    node->out_count = (int)proto->n_output;
    node->out = ARENA_ARRAY(net->arena, NetValue *, proto->n_output);
    node->name = proto->name && *proto->name ? proto->name
                 : proto->n_output > 0       ? proto->output[0]
                                             : node->op;
    for (int i = 0; i < node->out_count; i++) {
        if (!*proto->output[i]) continue;
        TRY(add_value(reader, proto->output[i], &node->out[i]));
        node->out[i]->producer = node;
        node->out[i]->slot = i;
    }
    net->nodes[net->node_count++] = node;
    return STATUS_OK;
}

static Status link_node(NetReader *reader, NetNode *node) {
    const OnnxNode *proto = node->proto;
    node->in_count = (int)proto->n_input;
    node->in = ARENA_ARRAY(reader->net->arena, NetValue *, proto->n_input);
    for (int i = 0; i < node->in_count; i++) {
        if (!*proto->input[i]) continue;
        node->in[i] = name_map_get(&reader->names, proto->input[i]);
        if (!node->in[i])
            return net_fail(reader->net, node, STATUS_FORMAT, reader->diag,
                            "no node, input or initialiser gives its operand '%.200s'",
                            proto->input[i]);
        node->in[i]->user_count++;
    }
    return STATUS_OK;
}

static void note_users(Net *net) {
    for (int i = 0; i < net->value_count; i++) {
        NetValue *value = net->values[i];
        value->users = ARENA_ARRAY(net->arena, NetNode *, (size_t)value->user_count);
        value->user_count = 0;
    }
    for (int i = 0; i < net->node_count; i++)
        for (int j = 0; j < net->nodes[i]->in_count; j++) {
            NetValue *value = net->nodes[i]->in[j];
            if (value) value->users[value->user_count++] = net->nodes[i];
        }
}

/* ---- order ---- */

/* Puts the nodes into topological order (Kahn, 1962); what is left has a cycle. */
static Status sort_nodes(NetReader *reader) {
    Net *net = reader->net;
    const size_t count = (size_t)net->node_count;
    int *waits = ARENA_ARRAY(net->arena, int, count);
    NetNode **sorted = ARENA_ARRAY(net->arena, NetNode *, count);
    int done = 0;
    for (int i = 0; i < net->node_count; i++) {
        NetNode *node = net->nodes[i];
        node->order = i;
        for (int j = 0; j < node->in_count; j++)
            waits[i] += node->in[j] && node->in[j]->producer;
        if (waits[i] == 0) sorted[done++] = node;
    }
    for (int i = 0; i < done; i++)
        for (int j = 0; j < sorted[i]->out_count; j++) {
            const NetValue *value = sorted[i]->out[j];
            for (int k = 0; value && k < value->user_count; k++)
                if (--waits[value->users[k]->order] == 0)
                    sorted[done++] = value->users[k];
        }
    for (int i = 0; i < net->node_count; i++)
        if (waits[net->nodes[i]->order] > 0)
            return net_fail(net, net->nodes[i], STATUS_FORMAT, reader->diag,
                            "it depends on itself");
    net->nodes = sorted;
    for (int i = 0; i < done; i++) sorted[i]->order = i;
    return STATUS_OK;
}

static Status add_outputs(NetReader *reader, const OnnxGraph *graph) {
    Net *net = reader->net;
    net->outputs = ARENA_ARRAY(net->arena, NetValue *, graph->n_output);
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *name = graph->output[i]->name;
        NetValue *value = name ? name_map_get(&reader->names, name) : NULL;
        if (!value) return fail_name(reader, name, "no node gives this output");
        if (value->is_output)
            return fail_name(reader, name, "two outputs have this name");
        value->is_output = true;
        net->outputs[net->output_count++] = value;
    }
    return STATUS_OK;
}

static Status check_opset(NetReader *reader) {
    Net *net = reader->net;
    const OnnxModel *model = net->model;
    net->opset = 1;
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *domain = model->opset_import[i]->domain;
        if (!domain || !*domain || strcmp(domain, "ai.onnx") == 0)
            net->opset = model->opset_import[i]->version;
    }
    if (net->opset < 7 || net->opset > 25)
        return diag_fail(reader->diag, STATUS_FORMAT, LOC_FILE(net->path), "opset_import",
                         "expected a version of the operators from 7 to 25, found %lld",
                         (long long)net->opset);
    return STATUS_OK;
}

static Status read_graph(NetReader *reader) {
    Net *net = reader->net;
    const OnnxGraph *graph = net->model->graph;
    size_t values = graph->n_initializer + graph->n_input;
    for (size_t i = 0; i < graph->n_node; i++) values += graph->node[i]->n_output;
    net->values = ARENA_ARRAY(net->arena, NetValue *, values);
    net->nodes = ARENA_ARRAY(net->arena, NetNode *, graph->n_node);
    TRY(check_opset(reader));
    TRY(add_leaves(reader, graph));
    for (size_t i = 0; i < graph->n_node; i++) TRY(add_node(reader, graph->node[i]));
    for (int i = 0; i < net->node_count; i++) TRY(link_node(reader, net->nodes[i]));
    note_users(net);
    TRY(sort_nodes(reader));
    NetFiles *files = net->files;
    if (files->place_count > 0)
        qsort(files->places, (size_t)files->place_count, sizeof(NetPlace), place_order);
    return add_outputs(reader, graph);
}

static Status map_model(Net *net, Diag *diag) {
    NetFiles *files = net->files;
    files->files = grown(NULL, 0, &files->capacity, sizeof(NetFile));
    files->files[0] = (NetFile){.location = ""};
    TRY(file_map(&files->files[0].map, net->path, diag));
    files->count = 1;
    Buf *map = files->files[0].map;
    TRY(onnx_parse(&files->parsed, buf_data(map), buf_bytes(map), LOC_FILE(net->path),
                   diag));
    net->model = files->parsed.model;
    return STATUS_OK;
}

Status net_read(Net **out, const char *path, Diag *diag) {
    Arena *arena = arena_create();
    Net *net = ARENA_NEW(arena, Net);
    net->arena = arena;
    net->path = arena_strdup(arena, path);
    net->files = ARENA_NEW(arena, NetFiles);
    NetReader reader = {.net = net, .diag = diag};
    Status status = map_model(net, diag);
    if (status == STATUS_OK) status = read_graph(&reader);
    name_map_free(&reader.names);
    if (status == STATUS_OK)
        *out = net;
    else
        net_destroy(net);
    return status;
}

void net_destroy(Net *net) {
    if (!net) return;
    NetFiles *files = net->files;
    if (net->model) onnx_release(&files->parsed);
    for (int i = 0; i < files->count; i++) buf_release(files->files[i].map);
    free(files->files);
    free(files->places);
    arena_destroy(net->arena);
}

/* ---- attributes ---- */

const OnnxAttribute *net_attribute(const NetNode *node, const char *name) {
    for (size_t i = 0; i < node->proto->n_attribute; i++) {
        const OnnxAttribute *attribute = node->proto->attribute[i];
        if (attribute->name && strcmp(attribute->name, name) == 0) return attribute;
    }
    return NULL;
}

int64_t net_int(const NetNode *node, const char *name, int64_t fallback) {
    const OnnxAttribute *attribute = net_attribute(node, name);
    return attribute ? attribute->i : fallback;
}

double net_real(const NetNode *node, const char *name, double fallback) {
    const OnnxAttribute *attribute = net_attribute(node, name);
    return attribute ? (double)attribute->f : fallback;
}

const char *net_string(const NetNode *node, const char *name, size_t *length) {
    const OnnxAttribute *attribute = net_attribute(node, name);
    if (!attribute || !attribute->s.data) return NULL;
    *length = attribute->s.len;
    return (const char *)attribute->s.data;
}

bool net_string_is(const NetNode *node, const char *name, const char *value,
                   const char *fallback) {
    size_t length = strlen(fallback);
    const char *text = net_string(node, name, &length);
    if (!text) text = fallback;
    return length == strlen(value) && memcmp(text, value, length) == 0;
}

const int64_t *net_ints(const NetNode *node, const char *name, int *count) {
    static const int64_t NONE[1] = {0};
    const OnnxAttribute *attribute = net_attribute(node, name);
    if (!attribute) return NULL;
    *count = (int)attribute->n_ints;
    return attribute->n_ints > 0 ? attribute->ints : NONE;
}

bool net_is(const NetNode *node, const char *op) {
    return node && strcmp(node->op, op) == 0;
}

Status net_fail(const Net *net, const NetNode *node, Status status, Diag *diag,
                const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return diag_fail(diag, status, LOC_FILE(net->path), NULL,
                     "node '%.200s' (%.100s): %s", node->name, node->op, text);
}
