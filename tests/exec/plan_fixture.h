/* A small graph with everything that matters to plans, and a naive run of it: kernels in
 * double precision, memory of its own for every value, all gradients accumulated. */
#ifndef COMPRESS_TESTS_EXEC_PLAN_FIXTURE_H
#define COMPRESS_TESTS_EXEC_PLAN_FIXTURE_H

#include "exec/plan/plan_build.h"
#include "exec/run/run.h"
#include "ir/random.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

enum { N = 3, T = 5, D = 8, CLASSES = 4 };

typedef struct Fixture {
    Arena *arena;
    Diag *diag;
    Graph *graph;
    Node *loss, *hidden, *logits;
    Storage *shared;
} Fixture;

static Node *make(Fixture *f, const char *op, Node *const *in, int count,
                  const char *attrs) {
    Node *node = graph_insert(f->graph, NULL, op_find(f->graph->ops, op), in, count);
    if (attrs) assert_ok(node_set(f->graph, node, f->diag, "%s", attrs), f->diag);
    assert_ok(node_infer(node, f->diag), f->diag);
    return node;
}

static Node *weight(Fixture *f, const char *name, int rank, int64_t a, int64_t b) {
    const int64_t dim[] = {a, b};
    const Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    Storage *storage = NULL;
    assert_ok(graph_add_storage(&storage, f->graph, name, &shape, f->diag), f->diag);
    assert_ok(tensor_create(&storage->tensor, DTYPE_F32, rank, dim, f->diag), f->diag);
    void *data = NULL;
    assert_ok(tensor_writable(&storage->tensor, &data, f->diag), f->diag);
    const uint64_t key = random_key_name(7, name);
    for (int64_t i = 0; i < tensor_count(&shape); i++)
        ((float *)data)[i] = (float)(0.3 * random_normal(key, (uint64_t)i));
    return graph_param(f->graph, storage);
}

static Node *linear(Fixture *f, Node *x, Node *w, Node *b) {
    return make(f, "linear", (Node *[]){x, w, b}, 3, NULL);
}

/* One layer with attention and an MLP; both layers share the MLP's weights. */
static Node *layer(Fixture *f, Node *x, int index, Node *const mlp[2]) {
    char name[4][32];
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "layer%d.%d", index, i);
    Node *norm = make(
        f, "layer_norm",
        (Node *[]){x, weight(f, name[0], 1, D, 0), weight(f, name[1], 1, D, 0)}, 3, NULL);
    Node *q = linear(f, norm, weight(f, name[2], 2, D, D), NULL);
    Node *attention = make(f, "attention", (Node *[]){q, norm, norm}, 3, "heads=2");
    Node *out = linear(f, attention, weight(f, name[3], 2, D, D), NULL);
    Node *first = make(f, "add", (Node *[]){x, out}, 2, NULL);
    Node *wide =
        make(f, "activation", (Node *[]){linear(f, first, mlp[0], NULL)}, 1, NULL);
    Node *dropped =
        make(f, "dropout", (Node *[]){linear(f, wide, mlp[1], NULL)}, 1, NULL);
    return make(f, "add", (Node *[]){first, dropped}, 2, NULL);
}

/* Two layers, a doubled value, a head, and two losses of which one compares the hidden
 * values with those of a frozen branch. */
static inline void fixture_open(Fixture *f) {
    *f = (Fixture){.arena = arena_create(), .diag = diag_create()};
    f->graph = graph_create(f->arena, ops_table());
    const Type pixels = {.dtype = DTYPE_F32, .rank = 3, .dim = {DIM_N, T, D}};
    const Type classes = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    Node *x = graph_input(f->graph, "x", &pixels);
    Node *labels = graph_input(f->graph, "labels", &classes);
    Node *mlp[2] = {weight(f, "mlp.in", 2, 2 * D, D), weight(f, "mlp.out", 2, D, 2 * D)};
    f->shared = mlp[0]->storage;
    Node *frozen = weight(f, "frozen", 2, D, D);
    frozen->storage->frozen = true;
    Node *teacher = linear(f, x, frozen, NULL);
    Node *start = linear(f, x, weight(f, "start", 2, D, D), NULL);
    f->hidden = layer(f, layer(f, start, 0, mlp), 1, mlp);
    Node *twice = make(f, "add", (Node *[]){f->hidden, f->hidden}, 2, NULL);
    Node *mean = make(f, "mean_tokens", (Node *[]){twice}, 1, NULL);
    f->logits = linear(f, mean, weight(f, "head", 2, CLASSES, D),
                       weight(f, "head.bias", 1, CLASSES, 0));
    Node *label = make(f, "cross_entropy", (Node *[]){f->logits, labels}, 2, NULL);
    Node *relation = make(f, "relation_cross_entropy",
                          (Node *[]){f->hidden, f->hidden, teacher, teacher}, 4, NULL);
    f->loss = make(f, "weighted_sum", (Node *[]){label, relation}, 2, "weights=[1, 0.5]");
}

static void fixture_close(Fixture *f) {
    graph_release(f->graph);
    arena_destroy(f->arena);
    diag_destroy(f->diag);
}

static PlanOptions options_of(Precision precision, Node *loss, Node *const *results,
                              int count) {
    return (PlanOptions){.sizes = {N},
                         .precision = precision,
                         .loss = loss,
                         .results = results,
                         .result_count = count};
}

/* ---- a naive run ---- */

typedef struct Naive {
    Graph *graph;
    Type *type;
    void **value, **gradient, **aux; /* by Node.id; gradients of doubles */
    Params *params;
} Naive;

static void naive_view(const Naive *n, View *view, const Node *node, void *const *data) {
    *view = (View){0};
    if (!node) return;
    const Type *type = &n->type[node->id];
    *view = (View){.data = data[node->id],
                   .rank = type->rank,
                   .count = type_count(type),
                   .accumulate = true};
    memcpy(view->dim, type->dim, sizeof view->dim);
}

static void naive_call(const Naive *n, const Node *node, bool backward) {
    View in[16], d_in[16];
    assert_in_range(node->in_count, 0, 16);
    Call call = {.node = node,
                 .attrs = node->attrs,
                 .in_count = node->in_count,
                 .in = in,
                 .d_in = d_in,
                 .aux = n->aux[node->id]};
    const Op *op = node->op;
    const Kernel *kernel = kernel_of(kernels_for(PRECISION_F64), op);
    memset(in, 0, sizeof in);
    memset(d_in, 0, sizeof d_in);
    for (int i = 0; i < node->in_count; i++) {
        naive_view(n, &in[i], node->in[i], n->value);
        naive_view(n, &d_in[i], node->in[i], n->gradient);
    }
    naive_view(n, &call.out, node, n->value);
    naive_view(n, &call.d_out, node, n->gradient);
    size_t scratch = kernel->scratch_bytes ? kernel->scratch_bytes(&call) : 0;
    if (kernel->aux_bytes && !call.aux)
        call.aux = n->aux[node->id] = memory_alloc(kernel->aux_bytes(&call), 1);
    call.scratch = aligned_alloc(64, (scratch + 127) / 64 * 64);
    if (op->count_rows) call.rows = op->count_rows(&call);
    if (backward)
        kernel->backward(&call);
    else
        kernel->forward(&call);
    free(call.scratch);
}

/* Whether a node may have a gradient: real, and not a frozen weight. */
static bool wants_gradient(const Node *node) {
    if (node->storage && node->storage->frozen) return false;
    return dtype_is_real(node->type.dtype);
}

static inline void naive_open(Naive *n, Fixture *f) {
    size_t count = (size_t)graph_number(f->graph);
    const int64_t sizes[DIM_SYMBOLS] = {N};
    *n = (Naive){.graph = f->graph};
    n->type = memory_alloc(count, sizeof *n->type);
    n->value = memory_alloc(count, sizeof(void *));
    n->gradient = memory_alloc(count, sizeof(void *));
    n->aux = memory_alloc(count, sizeof(void *));
    assert_ok(params_create(&n->params, f->graph, PRECISION_F64, false, f->diag),
              f->diag);
    for (Node *node = f->graph->first; node; node = node->next) {
        Type *type = &n->type[node->id];
        assert_true(type_bind(&node->type, sizes, type));
        size_t bytes = (size_t)type_count(type) * sizeof(double);
        n->value[node->id] = memory_alloc(bytes, 1);
        if (wants_gradient(node)) n->gradient[node->id] = memory_alloc(bytes, 1);
        if (node->storage)
            memcpy(n->value[node->id], params_data(n->params, node->storage), bytes);
    }
}

static inline void naive_run(const Naive *n, const Node *loss) {
    for (const Node *node = n->graph->first; node; node = node->next)
        if (!node_is_leaf(node)) naive_call(n, node, false);
    *(double *)n->gradient[loss->id] = 1;
    for (const Node *node = n->graph->last; node; node = node->prev)
        if (!node_is_leaf(node)) naive_call(n, node, true);
}

static inline void naive_close(Naive *n) {
    for (int i = 0; i < n->graph->node_count; i++) {
        free(n->value[i]);
        free(n->gradient[i]);
        free(n->aux[i]);
    }
    free(n->type);
    free(n->value);
    free(n->gradient);
    free(n->aux);
    params_destroy(n->params);
}

#endif
