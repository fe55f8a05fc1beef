/* Builder: node construction that remembers the first failure. */
#include "io/families/build.h"

#include <stdarg.h>
#include <string.h>

/* Keeps a failure; true when it is one. */
static bool builder_failed(Builder *b, Status status) {
    if (b->status == STATUS_OK) b->status = status;
    return b->status != STATUS_OK;
}

/* What calls return after a failure: a node without meaning, but never NULL. */
static Node *dummy(const Builder *b) {
    return ARENA_NEW(b->model->arena, Node);
}

Node *build_input(Builder *b, const char *name, DType dtype, int rank,
                  const int64_t *dim) {
    if (b->status != STATUS_OK) return dummy(b);
    Type type = {.dtype = dtype, .rank = rank};
    memcpy(type.dim, dim, sizeof *dim * (size_t)rank);
    return graph_input(b->model->graph, name, &type);
}

Node *build_param(Builder *b, const char *name, InitKind init, int rank,
                  const int64_t *dim) {
    if (b->status != STATUS_OK) return dummy(b);
    const char *full = arena_printf(b->model->arena, "%s%s", b->prefix, name);
    if (!shape_size(DTYPE_F32, rank, dim, NULL, NULL)) {
        b->status = diag_fail(b->diag, STATUS_MODEL, b->model->config->loc, full,
                              "the configuration asks for a tensor that is too large");
        return dummy(b);
    }
    Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    Storage *storage = graph_storage(b->model->graph, full);
    if (storage && storage->tensor.rank == rank &&
        memcmp(storage->tensor.dim, dim, sizeof *dim * (size_t)rank) == 0)
        return graph_param(b->model->graph, storage);
    Status status = graph_add_storage(&storage, b->model->graph, full, &shape, b->diag);
    if (builder_failed(b, status)) return dummy(b);
    bool drawn = init == INIT_NORMAL || init == INIT_TRUNC_NORMAL;
    storage->init = (Init){init, drawn ? b->std : 0};
    return graph_param(b->model->graph, storage);
}

static int operand_count(Node *const in[4]) {
    int count = 0;
    while (count < 4 && in[count]) count++;
    return count;
}

static Status set_attrs(Builder *b, Node *node, const char *attrs, va_list args) {
    if (!attrs) return STATUS_OK;
    char text[256];
    vsnprintf(text, sizeof text, attrs, args);
    return node_set(b->model->graph, node, b->diag, "%s", text);
}

/* A node of an op, not placed yet; NULL when there is no such op. */
static Node *insert(Builder *b, const char *name, Node *const *in, int count) {
    Graph *graph = b->model->graph;
    const Op *op = op_find(graph->ops, name);
    if (op) return graph_insert(graph, NULL, op, in, count);
    b->status = diag_fail(b->diag, STATUS_INTERNAL, LOC_NONE, NULL,
                          "the op table has no op '%s'", name);
    return NULL;
}

static Node *finish(Builder *b, Node *node, Role role) {
    if (builder_failed(b, node_infer(node, b->diag))) return dummy(b);
    return node_place(b->model->graph, node, b->stack, b->layer, role);
}

Node *build_op(Builder *b, const char *name, Role role, Node *const in[4],
               const char *attrs, ...) {
    if (b->status != STATUS_OK) return dummy(b);
    Node *node = insert(b, name, in, operand_count(in));
    if (!node) return dummy(b);
    va_list args;
    va_start(args, attrs);
    Status status = set_attrs(b, node, attrs, args);
    va_end(args);
    return builder_failed(b, status) ? dummy(b) : finish(b, node, role);
}

Node *build_op_list(Builder *b, const char *name, Role role, Node *const *in, int count) {
    if (b->status != STATUS_OK) return dummy(b);
    Node *node = insert(b, name, in, count);
    return node ? finish(b, node, role) : dummy(b);
}

void build_operand(Builder *b, Node *node, const char *name, Node *value) {
    if (b->status != STATUS_OK) return;
    node_set_operand(b->model->graph, node, name, value);
    builder_failed(b, node_infer(node, b->diag));
}

Node *build_linear(Builder *b, Role role, const char *name, Node *x, int64_t out,
                   bool bias) {
    if (b->status != STATUS_OK) return dummy(b);
    Arena *arena = b->model->arena;
    int64_t dim[] = {out, x->type.dim[x->type.rank - 1]};
    Node *in[4] = {x};
    in[1] =
        build_param(b, arena_printf(arena, "%s.weight", name), INIT_TRUNC_NORMAL, 2, dim);
    if (bias)
        in[2] = build_param(b, arena_printf(arena, "%s.bias", name), INIT_ZEROS, 1, dim);
    return build_op(b, "linear", role, in, NULL);
}

Node *build_layer_norm(Builder *b, Role role, const char *name, Node *x, double eps) {
    if (b->status != STATUS_OK) return dummy(b);
    Arena *arena = b->model->arena;
    const int64_t *dim = &x->type.dim[x->type.rank - 1];
    Node *weight =
        build_param(b, arena_printf(arena, "%s.weight", name), INIT_ONES, 1, dim);
    Node *bias = build_param(b, arena_printf(arena, "%s.bias", name), INIT_ZEROS, 1, dim);
    Node *const in[4] = {x, weight, bias};
    return build_op(b, "layer_norm", role, in, "eps=%.17g", eps);
}

Node *build_add(Builder *b, Role role, Node *x, Node *y) {
    Node *const in[4] = {x, y};
    return build_op(b, "add", role, in, NULL);
}

Node *build_dropout(Builder *b, double rate, Node *x) {
    Node *const in[4] = {x};
    if (rate <= 0) return x;
    return build_op(b, "dropout", ROLE_NONE, in, "rate=%.17g", rate);
}

void build_output(Builder *b, const char *name, Node *x) {
    if (b->status == STATUS_OK) graph_set_output(b->model->graph, name, x);
}

void build_logits(Builder *b, Task task, Node *x) {
    build_output(b, OUTPUT_LOGITS, x);
    b->model->graph->task = task;
}
