/* Verifier: the list first, then each node, then storages and outputs. */
#include "ir/verify.h"

#include "ir/graph_unchecked.h"
#include "ir/mapped.h"
#include "ir/name_map.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Verifier {
    Graph *graph;
    Status status;
    Diag *diag;
    Node **order;    /* nodes by id */
    NameMap inputs;  /* names of the input leaves */
    NameMap listed;  /* storages of the graph by name */
    NameMap named;   /* those that a leaf names */
    NameMap outputs; /* names of the outputs */
    size_t bytes;    /* of the storages that leaves name */
} Verifier;

#define FAIL(v, loc, ...) diag_fail((v)->diag, (v)->status, (loc), NULL, __VA_ARGS__)

#define FAIL_NODE(v, node, fmt, ...)                                                     \
    diag_fail((v)->diag, (v)->status, (node)->loc, NULL, "%s: " fmt,                     \
              node_label((char[NODE_LABEL_BYTES]){0}, (node)), ##__VA_ARGS__)

/* Order of the kinds of nodes in the list. */
static int node_rank(const Node *node) {
    return node_is_input(node) ? 0 : node_is_leaf(node) ? 1 : 2;
}

/* The list. */

/* Checks the links, numbers the nodes and writes them to `order`. */
static Status verify_list(Verifier *v) {
    Graph *graph = v->graph;
    Node *previous = NULL;
    int count = 0;
    for (Node *n = graph->first; n; previous = n, n = n->next) {
        if (count == graph->node_count)
            return FAIL(v, LOC_NONE, "the list has more than the %d nodes it counts",
                        graph->node_count);
        if (n->prev != previous)
            return FAIL(v, n->loc, "node %d is not linked to the one before it", count);
        if (!n->op) return FAIL(v, n->loc, "node %d has no op", count);
        n->id = count;
        v->order[count++] = n;
    }
    if (graph->last != previous)
        return FAIL(v, LOC_NONE, "the list does not end in its last node");
    if (count != graph->node_count)
        return FAIL(v, LOC_NONE, "the list has %d nodes where it counts %d", count,
                    graph->node_count);
    return STATUS_OK;
}

/* Whether a node belongs to the list, before position `limit`. */
static bool stands_before(const Verifier *v, const Node *node, int limit) {
    return node->id >= 0 && node->id < limit && v->order[node->id] == node;
}

/* Nodes. */

static Status verify_type(Verifier *v, const Node *node) {
    const Type *type = &node->type;
    if (type->dtype != DTYPE_F32 && type->dtype != DTYPE_I32)
        return FAIL_NODE(v, node, "a value is f32 or i32, found %s",
                         (unsigned)type->dtype < DTYPE_COUNT ? dtype_name(type->dtype)
                                                             : "no type");
    if (type->rank < 0 || type->rank > RANK_MAX)
        return FAIL_NODE(v, node, "a value has rank 0 to %d, found %d", RANK_MAX,
                         type->rank);
    Type bound;
    if (!type_bind(type, (int64_t[DIM_SYMBOLS]){1, 1, 1, 1}, &bound))
        return FAIL_NODE(v, node, "impossible shape");
    return STATUS_OK;
}

static Status verify_init(Verifier *v, const Node *leaf) {
    const Tensor *tensor = &leaf->storage->tensor;
    const Init *init = &leaf->storage->init;
    bool normal = init->kind == INIT_NORMAL || init->kind == INIT_TRUNC_NORMAL;
    if ((unsigned)init->kind > INIT_IDENTITY)
        return FAIL_NODE(v, leaf, "no initialisation has number %d", (int)init->kind);
    if (normal && !(init->std >= 0 && isfinite(init->std)))
        return FAIL_NODE(v, leaf, "the standard deviation must be at least 0, found %g",
                         init->std);
    if (normal && !dtype_is_real(tensor->dtype))
        return FAIL_NODE(v, leaf, "normal initial values need a real type, found %s",
                         dtype_name(tensor->dtype));
    char text[SHAPE_TEXT_BYTES];
    if (init->kind == INIT_IDENTITY &&
        (tensor->rank != 2 || tensor->dim[0] != tensor->dim[1]))
        return FAIL_NODE(v, leaf, "the identity needs a square matrix, found %s",
                         shape_text(text, tensor->rank, tensor->dim));
    return STATUS_OK;
}

static Status verify_param(Verifier *v, Node *leaf) {
    Storage *storage = leaf->storage;
    if (!(leaf->op->traits & OP_PARAM) || leaf->name)
        return FAIL_NODE(v, leaf, "only params without a name have storages, not %s",
                         leaf->op->name);
    if (name_map_get(&v->listed, storage->name) != storage)
        return FAIL_NODE(v, leaf, "the graph does not list its storage");
    if (!name_map_add(&v->named, storage->name, storage))
        return FAIL_NODE(v, leaf, "two leaves name the same storage");
    Type type = storage_type(storage);
    if (!type_equal(&type, &leaf->type)) {
        char have[SHAPE_TEXT_BYTES], want[SHAPE_TEXT_BYTES];
        return FAIL_NODE(
            v, leaf, "the leaf is %s%s, its storage %s%s", dtype_name(leaf->type.dtype),
            shape_text(have, leaf->type.rank, leaf->type.dim),
            dtype_name(storage->tensor.dtype), shape_text(want, type.rank, type.dim));
    }
    if (__builtin_add_overflow(v->bytes, tensor_bytes(&storage->tensor), &v->bytes) ||
        v->bytes > INT64_MAX)
        return FAIL_NODE(v, leaf, "the storages up to here do not fit 63 bits");
    return verify_init(v, leaf);
}

static Status verify_leaf(Verifier *v, Node *leaf) {
    if (leaf->in_count != 0)
        return FAIL_NODE(v, leaf, "a leaf has no operands, found %d", leaf->in_count);
    if (leaf->stack || leaf->layer != -1 || leaf->role != ROLE_NONE)
        return FAIL_NODE(v, leaf, "a leaf has no place, found role %s",
                         role_name(leaf->role));
    if (leaf->storage) return verify_param(v, leaf);
    if (!(leaf->op->traits & OP_INPUT))
        return FAIL_NODE(v, leaf, "a leaf of op %s has no storage", leaf->op->name);
    for (int i = 0; i < leaf->type.rank; i++)
        if (leaf->type.dim[i] < 0 && !dim_is_symbol(leaf->type.dim[i]))
            return FAIL_NODE(v, leaf, "a dimension of an input is a number or a symbol");
    if (!name_is_valid(leaf->name))
        return FAIL_NODE(v, leaf, "an input's name must have 1 to %d bytes of UTF-8",
                         NAME_LENGTH_MAX);
    if (!name_map_add(&v->inputs, leaf->name, leaf))
        return FAIL_NODE(v, leaf, "another input has the same name");
    return STATUS_OK;
}

static Status verify_place(Verifier *v, const Node *node) {
    enum { LAYER_TEXT = 7 };
    if ((unsigned)node->role >= ROLE_COUNT)
        return FAIL_NODE(v, node, "no role has number %d", (int)node->role);
    if (node->layer < -1 || node->layer > LAYER_MAX)
        return FAIL_NODE(v, node, "a layer is -1 to %d, found %d", LAYER_MAX,
                         node->layer);
    if (!node->stack && node->layer != -1)
        return FAIL_NODE(v, node, "layer %d of no stack", node->layer);
    if (!node->stack) return STATUS_OK;
    if (!name_is_valid(node->stack) || strlen(node->stack) > NAME_LENGTH_MAX - LAYER_TEXT)
        return FAIL_NODE(v, node, "a stack's name must have 1 to %d bytes of UTF-8",
                         NAME_LENGTH_MAX - LAYER_TEXT);
    const char *dot = strrchr(node->stack, '.');
    if (node->layer == -1 && dot && dot[1] &&
        strspn(dot + 1, "0123456789") == strlen(dot + 1))
        return FAIL_NODE(v, node, "stack '%.60s' reads as a layer", node->stack);
    return STATUS_OK;
}

static Status verify_inferred(Verifier *v, const Node *node) {
    if (!node->op->infer) return STATUS_OK;
    Type type = {0};
    if (node->op->infer(node, &type, v->diag) != STATUS_OK) {
        diag_note(v->diag, "in %s", node_label((char[NODE_LABEL_BYTES]){0}, node));
        return v->status;
    }
    if (type_equal(&type, &node->type)) return STATUS_OK;
    Text have = {0}, want = {0};
    type_print(&have, &node->type);
    type_print(&want, &type);
    Status status =
        FAIL_NODE(v, node, "the node is %s, its operands give %s", have.data, want.data);
    text_free(&have);
    text_free(&want);
    return status;
}

static Status verify_node(Verifier *v, Node *node) {
    TRY(verify_type(v, node));
    if (node->prev && node_rank(node->prev) > node_rank(node))
        return FAIL_NODE(v, node, "stands after a %s; inputs come first, then params",
                         node_is_leaf(node->prev) ? "param" : "node");
    if (node_is_leaf(node)) return verify_leaf(v, node);
    if (node->storage || node->name)
        return FAIL_NODE(v, node, "only leaves have a name or storage, not %s",
                         node->op->name);
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i] && !stands_before(v, node->in[i], node->id))
            return FAIL_NODE(v, node, "operand %d is not a node above it", i);
    Status status = node_check_operands(node, v->status, v->diag);
    if (status != STATUS_OK) {
        diag_note(v->diag, "in %s", node_label((char[NODE_LABEL_BYTES]){0}, node));
        return status;
    }
    TRY(attrs_check(node, v->status, v->diag));
    TRY(verify_inferred(v, node));
    return verify_place(v, node);
}

/* Storages and outputs. */

/* The lineage of each axis: increasing, and as many indices as the axis has. */
static Status verify_lineage(Verifier *v, const Storage *storage) {
    for (int axis = 0; axis < RANK_MAX; axis++) {
        const Lineage *kept = &storage->kept[axis];
        const Tensor *t = &storage->tensor;
        if (!lineage_is_told(kept)) continue;
        if (axis >= t->rank)
            return FAIL(v, LOC_NONE, "storage '%.60s' has %d axes, its lineage axis %d",
                        storage->name, t->rank, axis);
        if (!lineage_is_valid(kept))
            return FAIL(v, LOC_NONE,
                        "storage '%.60s': the indices kept of axis %d do not increase",
                        storage->name, axis);
        if (!kept->lost && lineage_size(kept) != t->dim[axis])
            return FAIL(v, LOC_NONE,
                        "storage '%.60s': axis %d has %lld entries, its lineage %lld",
                        storage->name, axis, (long long)t->dim[axis],
                        (long long)lineage_size(kept));
    }
    return STATUS_OK;
}

static Status verify_storages(Verifier *v) {
    for (int i = 0; i < v->graph->storage_count; i++) {
        Storage *storage = v->graph->storages[i];
        const Tensor *t = &storage->tensor;
        size_t bytes;
        if (!name_is_valid(storage->name))
            return FAIL(v, LOC_NONE, "storage %d: its name must have 1 to %d bytes", i,
                        NAME_LENGTH_MAX);
        if (!name_map_add(&v->listed, storage->name, storage))
            return FAIL(v, LOC_NONE, "storage '%.60s' is listed twice", storage->name);
        if (t->rank < 0 || t->rank > RANK_MAX || (unsigned)t->dtype >= DTYPE_COUNT ||
            !tensor_size(t, NULL, &bytes))
            return FAIL(v, LOC_NONE, "storage '%.60s' has an impossible shape",
                        storage->name);
        if (t->buf &&
            (t->offset > buf_bytes(t->buf) || bytes > buf_bytes(t->buf) - t->offset))
            return FAIL(v, LOC_NONE, "storage '%.60s' reaches beyond its buffer",
                        storage->name);
        TRY(verify_lineage(v, storage));
        if (storage->gaussian && !gaussian_fits(storage->gaussian, t))
            return FAIL(v, LOC_NONE, "storage '%.60s' has a Gaussian of another shape",
                        storage->name);
    }
    return STATUS_OK;
}

static Status verify_outputs(Verifier *v) {
    for (int i = 0; i < v->graph->output_count; i++) {
        const Output *output = &v->graph->outputs[i];
        if (!name_is_valid(output->name))
            return FAIL(v, LOC_NONE, "output %d: its name must have 1 to %d bytes", i,
                        NAME_LENGTH_MAX);
        if (!output->node || !stands_before(v, output->node, v->graph->node_count))
            return FAIL(v, LOC_NONE, "output '%.60s' is not a node of the graph",
                        output->name);
        if (!name_map_add(&v->outputs, output->name, output->node))
            return FAIL(v, LOC_NONE, "two outputs are named '%.60s'", output->name);
    }
    return STATUS_OK;
}

static Status verify_all(Verifier *v) {
    TRY(verify_list(v));
    TRY(verify_storages(v));
    for (Node *n = v->graph->first; n; n = n->next) TRY(verify_node(v, n));
    for (int i = 0; i < v->graph->storage_count; i++) {
        const char *name = v->graph->storages[i]->name;
        if (!name_map_get(&v->named, name))
            return FAIL(v, LOC_NONE, "no leaf names storage '%.60s'", name);
    }
    return verify_outputs(v);
}

Status graph_verify(Graph *graph, Status status, Diag *diag) {
    if (graph->node_count < 0)
        return diag_fail(diag, status, LOC_NONE, NULL, "the list counts %d nodes",
                         graph->node_count);
    Verifier verifier = {.graph = graph, .status = status, .diag = diag};
    verifier.order = memory_alloc((size_t)graph->node_count + 1, sizeof(Node *));
    Status result = verify_all(&verifier);
    free(verifier.order);
    name_map_free(&verifier.inputs);
    name_map_free(&verifier.listed);
    name_map_free(&verifier.named);
    name_map_free(&verifier.outputs);
    return result;
}

Status graph_verify_weights(const Graph *graph, Diag *diag) {
    const size_t count = (size_t)graph->storage_count;
    const Tensor **tensors = memory_alloc(count, sizeof *tensors);
    for (size_t i = 0; i < count; i++) tensors[i] = &graph->storages[i]->tensor;
    tensors_read_mapped(tensors, graph->storage_count);
    free(tensors);
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *storage = graph->storages[i];
        if (!storage->tensor.buf)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                             "storage '%s' has no weights", storage->name);
        const int64_t bad = tensor_check_finite(&storage->tensor);
        if (bad >= 0)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                             "storage '%s' is not finite: element %lld", storage->name,
                             (long long)bad);
    }
    return STATUS_OK;
}
