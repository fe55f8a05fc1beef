/* Net: see net.h. */
#include "io/onnx/net/net.h"

#include "io/onnx/net/net_files.h"
#include "io/onnx/net/net_quantised.h"
#include "ir/model_parts.h"
#include "ir/name_map.h"

#include <string.h>

typedef struct NetReader {
    Net *net;
    const char *path;       /* of the file that is read */
    NameMap names;          /* in that file, to NetValue */
    NetValue *states;       /* what the encoder's file gave, NULL before */
    NetValue *source_mask;  /* and its mask, NULL = it has none */
    const OnnxModel *model; /* of the file that is read */
    Diag *diag;
} NetReader;

/* ---- names ---- */

static Status fail_name(NetReader *reader, const char *name, const char *what) {
    return diag_fail(reader->diag, STATUS_FORMAT, LOC_FILE(reader->path), name, "%s",
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

/* The name of an input among those of the whole model. */
static const char *input_name(const NetReader *reader, const char *name) {
    static const char *const NAMES[][2] = {{INPUT_IDS, INPUT_TARGET_IDS},
                                           {INPUT_MASK, INPUT_TARGET_MASK},
                                           {"encoder_attention_mask", INPUT_MASK}};
    for (size_t i = 0; reader->states && i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(name, NAMES[i][0]) == 0) return NAMES[i][1];
    return name;
}

/* What an input of a decoder's file is in the encoder's; NULL = one of its own. */
static NetValue *source_input(const NetReader *reader, const char *name) {
    if (strcmp(name, "encoder_hidden_states") == 0) return reader->states;
    return strcmp(name, "encoder_attention_mask") == 0 ? reader->source_mask : NULL;
}

static Status add_input(NetReader *reader, const OnnxValue *input) {
    Net *net = reader->net;
    NetValue *value = input->name ? name_map_get(&reader->names, input->name) : NULL;
    if (value)
        return value->input ? fail_name(reader, input->name, "given twice") : STATUS_OK;
    NetValue *source = input->name ? source_input(reader, input->name) : NULL;
    if (source) return name_map_add(&reader->names, input->name, source), STATUS_OK;
    TRY(add_value(reader, input->name, &value));
    value->name = input_name(reader, input->name);
    value->input = input;
    value->position = net->input_count;
    net->inputs[net->input_count++] = value;
    net->translates |= strcmp(value->name, INPUT_TARGET_IDS) == 0;
    if (strcmp(value->name, INPUT_MASK) == 0) reader->source_mask = value;
    return STATUS_OK;
}

/* Initialisers, and the inputs that are not stored: before version 4 of the format every
 * initialiser was an input, too. */
static Status add_leaves(NetReader *reader, const OnnxGraph *graph) {
    NetValue *value = NULL;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        TRY(net_files_check(reader->net, graph->initializer[i], LOC_FILE(reader->path),
                            reader->diag));
        TRY(add_value(reader, graph->initializer[i]->name, &value));
        value->stored = graph->initializer[i];
    }
    if (graph->n_sparse_initializer > 0)
        return fail_name(reader, NULL, "expected dense initialisers, found sparse ones");
    for (size_t i = 0; i < graph->n_input; i++) TRY(add_input(reader, graph->input[i]));
    return STATUS_OK;
}

/* A constant with a tensor is a stored value, not a node. */
static const OnnxTensor *constant_tensor(const OnnxNode *proto) {
    if (!proto->op_type || strcmp(proto->op_type, "Constant") != 0) return NULL;
    for (size_t i = 0; i < proto->n_attribute; i++)
        if (proto->attribute[i]->t) return proto->attribute[i]->t;
    return NULL;
}

static Status add_choice(NetReader *reader, const OnnxNode *proto);

static Status add_node(NetReader *reader, const OnnxNode *proto) {
    Net *net = reader->net;
    const OnnxTensor *constant = constant_tensor(proto);
    NetValue *value;
    if (proto->op_type && strcmp(proto->op_type, "If") == 0)
        return add_choice(reader, proto);
    if (constant && proto->n_output == 1) {
        TRY(net_files_check(net, constant, LOC_FILE(reader->path), reader->diag));
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

/* ---- branches ---- */

enum { CONDITION_STEPS_MAX = 16 };

/* Whether an If is taken when there are no earlier tokens; false when its condition is
 * neither use_cache_branch nor a constant, through nodes that leave it as it is. */
static bool find_condition(const NetReader *reader, const char *name, bool *taken) {
    static const char *const SAME[] = {"Identity", "Cast",   "Squeeze", "Unsqueeze",
                                       "Reshape",  "Gather", "Not"};
    bool negative = false;
    for (int step = 0; step < CONDITION_STEPS_MAX; step++) {
        const NetValue *value = name_map_get(&reader->names, name);
        if (!value) return false;
        if (value->input) {
            *taken = negative;
            return strcmp(value->name, "use_cache_branch") == 0;
        }
        if (value->stored) {
            Buf *map;
            const OnnxTensor *tensor = value->stored;
            if (tensor->data_type != ONNX_BOOL || net_is_external(tensor)) return false;
            const uint8_t *bytes = net_bytes(reader->net, tensor, &map);
            if (!bytes && tensor->n_int32_data != 1) return false;
            if (bytes && tensor->raw_data.len != 1) return false;
            *taken = (bytes ? *bytes != 0 : tensor->int32_data[0] != 0) != negative;
            return true;
        }
        bool same = false;
        for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++)
            same = same || net_is(value->producer, SAME[i]);
        if (!same || value->producer->proto->n_input < 1) return false;
        negative ^= net_is(value->producer, "Not");
        name = value->producer->proto->input[0];
    }
    return false;
}

/* An If whose branch is known: the branch's nodes, whose results get the If's names. */
static Status add_choice(NetReader *reader, const OnnxNode *proto) {
    Arena *arena = reader->net->arena;
    const NetNode node = {.op = "If",
                          .name = proto->name && *proto->name ? proto->name : "If",
                          .proto = proto};
    bool taken = false;
    if (proto->n_input != 1 || !find_condition(reader, proto->input[0], &taken))
        return net_fail(reader->net, &node, STATUS_MODEL, reader->diag,
                        "expected a choice by use_cache_branch or by a constant");
    const OnnxAttribute *branch =
        net_attribute(&node, taken ? "then_branch" : "else_branch");
    const OnnxGraph *graph = branch ? branch->g : NULL;
    if (!graph || graph->n_output != proto->n_output || graph->n_input > 0)
        return net_fail(reader->net, &node, STATUS_FORMAT, reader->diag,
                        "expected branches with %zu results", proto->n_output);
    TRY(add_leaves(reader, graph));
    for (size_t i = 0; i < graph->n_node; i++) TRY(add_node(reader, graph->node[i]));
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *result = graph->output[i]->name;
        if (!result || !*result)
            return fail_name(reader, NULL, "a branch's result without a name");
        if (strcmp(result, proto->output[i]) == 0) continue;
        OnnxNode *same = ARENA_NEW(arena, OnnxNode);
        *same = (OnnxNode)ONNX__NODE_PROTO__INIT;
        same->op_type = arena_strdup(arena, "Identity");
        same->n_input = same->n_output = 1;
        same->input = &graph->output[i]->name;
        same->output = &proto->output[i];
        TRY(add_node(reader, same));
    }
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
    }
    return STATUS_OK;
}

/* Leaves out the nodes that no output needs. */
static void drop_unneeded(Net *net) {
    NetNode **open = ARENA_ARRAY(net->arena, NetNode *, (size_t)net->node_count);
    int count = 0, kept = 0;
    for (int i = 0; i < net->node_count; i++) net->nodes[i]->order = -1;
    for (int i = 0; i < net->output_count; i++) {
        NetNode *node = net->outputs[i]->producer;
        if (node && node->order < 0) open[count++] = node, node->order = 0;
    }
    while (count > 0) {
        const NetNode *node = open[--count];
        for (int j = 0; j < node->in_count; j++) {
            NetNode *before = node->in[j] ? node->in[j]->producer : NULL;
            if (before && before->order < 0) open[count++] = before, before->order = 0;
        }
    }
    for (int i = 0; i < net->node_count; i++)
        if (net->nodes[i]->order == 0) net->nodes[kept++] = net->nodes[i];
    net->node_count = kept;
}

static void note_users(Net *net) {
    for (int i = 0; i < net->node_count; i++)
        for (int j = 0; j < net->nodes[i]->in_count; j++)
            if (net->nodes[i]->in[j]) net->nodes[i]->in[j]->user_count++;
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
static Status sort_nodes(Net *net, Diag *diag) {
    const size_t count = (size_t)net->node_count;
    int *waits = ARENA_ARRAY(net->arena, int, count);
    NetNode **sorted = ARENA_ARRAY(net->arena, NetNode *, count);
    int done = 0;
    bool in_order = true;
    for (int i = 0; i < net->node_count; i++) net->nodes[i]->order = i;
    for (int i = 0; i < net->node_count; i++) {
        const NetNode *node = net->nodes[i];
        for (int j = 0; j < node->in_count; j++) {
            const NetNode *before = node->in[j] ? node->in[j]->producer : NULL;
            waits[i] += before != NULL;
            in_order = in_order && !(before && before->order >= i);
        }
        if (waits[i] == 0) sorted[done++] = net->nodes[i];
    }
    if (in_order) return STATUS_OK;
    for (int i = 0; i < done; i++)
        for (int j = 0; j < sorted[i]->out_count; j++) {
            const NetValue *value = sorted[i]->out[j];
            for (int k = 0; value && k < value->user_count; k++)
                if (--waits[value->users[k]->order] == 0)
                    sorted[done++] = value->users[k];
        }
    for (int i = 0; i < net->node_count; i++)
        if (waits[net->nodes[i]->order] > 0)
            return net_fail(net, net->nodes[i], STATUS_FORMAT, diag,
                            "it depends on itself");
    net->nodes = sorted;
    for (int i = 0; i < done; i++) sorted[i]->order = i;
    return STATUS_OK;
}

static Status add_outputs(NetReader *reader, const OnnxGraph *graph) {
    Net *net = reader->net;
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *name = graph->output[i]->name;
        NetValue *value = name ? name_map_get(&reader->names, name) : NULL;
        if (!value) return fail_name(reader, name, "no node gives this output");
        if (reader->states && value == reader->states) continue;
        if (value->is_output)
            return fail_name(reader, name, "two outputs have this name");
        value->is_output = true;
        net->outputs[net->output_count++] = value;
    }
    return STATUS_OK;
}

static Status check_opset(NetReader *reader) {
    Net *net = reader->net;
    const OnnxModel *model = reader->model;
    int64_t opset = 1;
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *domain = model->opset_import[i]->domain;
        if (!domain || !*domain || strcmp(domain, "ai.onnx") == 0)
            opset = model->opset_import[i]->version;
    }
    if (opset < 7 || opset > 25 || (net->opset && net->opset != opset))
        return diag_fail(reader->diag, STATUS_FORMAT, LOC_FILE(reader->path),
                         "opset_import",
                         "expected a version of the operators from 7 to 25%s, found %lld",
                         net->opset ? ", the encoder's" : "", (long long)opset);
    net->opset = opset;
    return STATUS_OK;
}

/* Counts what a graph may add, with all its branches. */
static void count_parts(const OnnxGraph *graph, size_t *values, size_t *nodes) {
    *values += graph->n_initializer + graph->n_input;
    for (size_t i = 0; i < graph->n_node; i++) {
        const OnnxNode *node = graph->node[i];
        *values += node->n_output;
        *nodes += 1 + node->n_output;
        for (size_t k = 0; k < node->n_attribute; k++)
            if (node->attribute[k]->g) count_parts(node->attribute[k]->g, values, nodes);
    }
}

/* Adds the graph of a file. */
static Status read_part(NetReader *reader, const OnnxModel *model, const char *path) {
    Net *net = reader->net;
    const OnnxGraph *graph = model->graph;
    const int first = net->node_count;
    reader->model = model;
    reader->path = path;
    TRY(check_opset(reader));
    TRY(add_leaves(reader, graph));
    for (size_t i = 0; i < graph->n_node; i++) TRY(add_node(reader, graph->node[i]));
    for (int i = first; i < net->node_count; i++) TRY(link_node(reader, net->nodes[i]));
    return add_outputs(reader, graph);
}

/* The encoder's file: its first output is what the decoder's asks for. */
static Status read_encoder(NetReader *reader, const char *path) {
    Net *net = reader->net;
    TRY(read_part(reader, net->encoder, path));
    if (net->output_count < 1 || net->translates)
        return diag_fail(reader->diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected an encoder, found %s",
                         net->translates ? "a model with decoder_input_ids"
                                         : "a model without outputs");
    net->output_count = 1;
    reader->states = net->outputs[0];
    reader->states->name = OUTPUT_ENCODER_STATES;
    name_map_free(&reader->names);
    reader->names = (NameMap){0};
    return STATUS_OK;
}

static Status read_graph(NetReader *reader, const char *encoder) {
    Net *net = reader->net;
    size_t values = 0, nodes = 0;
    size_t inputs = net->model->graph->n_input, outputs = net->model->graph->n_output;
    count_parts(net->model->graph, &values, &nodes);
    if (net->encoder) {
        count_parts(net->encoder->graph, &values, &nodes);
        inputs += net->encoder->graph->n_input;
        outputs += net->encoder->graph->n_output;
    }
    net->values = ARENA_ARRAY(net->arena, NetValue *, values + 2 * nodes);
    net->nodes = ARENA_ARRAY(net->arena, NetNode *, nodes);
    net->inputs = ARENA_ARRAY(net->arena, NetValue *, inputs);
    net->outputs = ARENA_ARRAY(net->arena, NetValue *, outputs);
    if (net->encoder) TRY(read_encoder(reader, encoder));
    TRY(read_part(reader, net->model, net->path));
    net_files_sort(net);
    return STATUS_OK;
}

Status net_settle(Net *net, Diag *diag) {
    net_dequantise(net);
    drop_unneeded(net);
    note_users(net);
    return sort_nodes(net, diag);
}

Status net_read(Net **out, const char *path, const char *encoder, Diag *diag) {
    TRY(net_open(out, path, encoder, diag));
    const Status status = net_settle(*out, diag);
    if (status != STATUS_OK) net_destroy(*out);
    return status;
}

Status net_open(Net **out, const char *path, const char *encoder, Diag *diag) {
    Arena *arena = arena_create();
    Net *net = ARENA_NEW(arena, Net);
    net->arena = arena;
    net->path = arena_strdup(arena, path);
    net->files = net_files_create(arena);
    NetReader reader = {.net = net, .diag = diag};
    Status status = net_files_open(net, net->path, &net->model, diag);
    if (status == STATUS_OK && encoder)
        status = net_files_open(net, encoder, &net->encoder, diag);
    if (status == STATUS_OK) status = read_graph(&reader, encoder);
    name_map_free(&reader.names);
    if (status == STATUS_OK)
        *out = net;
    else
        net_destroy(net);
    return status;
}

void net_destroy(Net *net) {
    if (!net) return;
    net_files_close(net->files);
    arena_destroy(net->arena);
}
