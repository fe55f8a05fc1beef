/* Models with early exits: see exits.h. */
#include "tests/support/exits.h"

#include "ir/random.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- exits ---- */

typedef struct Builder {
    Graph *graph;
    Diag *diag;
    int layer;
    double std;
} Builder;

static Node *put(Builder *b, const char *op, Node *const *in, int count,
                 const char *attrs, Role role) {
    Node *node = graph_insert(b->graph, NULL, op_find(b->graph->ops, op), in, count);
    if (attrs) assert_ok(node_set(b->graph, node, b->diag, "%s", attrs), b->diag);
    assert_ok(node_infer(node, b->diag), b->diag);
    return node_place(b->graph, node, "exits", b->layer, role);
}

static Node *put_weight(Builder *b, const char *name, int rank, int64_t rows,
                        int64_t columns) {
    char full[64];
    Storage *storage = NULL;
    const int64_t dim[] = {rows, columns};
    const Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    snprintf(full, sizeof full, "exits.%d.%s", b->layer, name);
    assert_ok(graph_add_storage(&storage, b->graph, full, &shape, b->diag), b->diag);
    storage->init = (Init){INIT_NORMAL, b->std};
    return graph_param(b->graph, storage);
}

static Node *put_linear(Builder *b, Node *x, const char *name, int64_t rows, Role role) {
    char bias[32];
    snprintf(bias, sizeof bias, "%s.bias", name);
    Node *in[] = {x, put_weight(b, name, 2, rows, x->type.dim[1]),
                  put_weight(b, bias, 1, rows, 0)};
    return put(b, "linear", in, 3, NULL, role);
}

void exits_add(Model *model, double std, uint64_t seed) {
    Graph *graph = model->graph;
    const int depth = graph_layer_count(graph, "encoder");
    const int64_t classes = graph_output(graph, "logits")->type.dim[1];
    Builder b = {.graph = graph, .diag = diag_create(), .std = std};
    for (b.layer = 0; b.layer < depth - 1; b.layer++) {
        char name[32];
        Node *h = graph_layer_output(graph, "encoder", b.layer);
        Node *token = put(&b, "select_token", &h, 1, NULL, ROLE_POOL);
        Node *dense = put_linear(&b, token, "dense", h->type.dim[2], ROLE_NONE);
        Node *squashed = put(&b, "activation", &dense, 1, "fn=tanh", ROLE_NONE);
        snprintf(name, sizeof name, "exit.%d", b.layer + 1);
        graph_set_output(graph, name,
                         put_linear(&b, squashed, "out", classes, ROLE_HEAD));
    }
    assert_ok(model_init_weights(model, seed, b.diag), b.diag);
    diag_destroy(b.diag);
}

/* ---- data ---- */

enum { WORDS = 12, SENTENCE_CLASSES = 3 };

static uint64_t draw(int64_t sample, int64_t i) {
    return random_u64(11, (uint64_t)(sample * 16 + i));
}

int32_t sentence_label(int64_t sample) {
    return (int32_t)(draw(sample, 15) % SENTENCE_CLASSES);
}

static int64_t sentence_length(const Batches *self, int64_t sample) {
    (void)self;
    return 3 + sample % (SENTENCE_TOKENS - 2);
}

static Status sentence_fetch(const Batches *self, const Fetch *what, void *const *dst,
                             Diag *diag) {
    int32_t *ids = dst[0], *mask = dst[1], *types = dst[2], *labels = dst[3];
    (void)diag;
    for (int64_t s = 0; s < what->n; s++) {
        const int64_t length = sentence_length(self, what->index[s]);
        for (int64_t t = 0; t < what->tokens; t++) {
            const int64_t at = s * what->tokens + t;
            mask[at] = t < length;
            types[at] = t > length / 2;
            ids[at] = t < length ? (int32_t)(draw(what->index[s], t) % WORDS) : 0;
        }
        labels[s] = sentence_label(what->index[s]);
    }
    return STATUS_OK;
}

static void sentence_destroy(Batches *self) {
    free(self);
}

Batches *sentence_batches(void) {
    static const Column COLUMNS[] = {
        {"input_ids", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_T}}},
        {"attention_mask", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_T}}},
        {"token_type_ids", {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_T}}},
        {"labels", {.dtype = DTYPE_I32}}};
    Batches *batches = memory_alloc(1, sizeof *batches);
    *batches = (Batches){.name = "sentences",
                         .count = SENTENCE_SAMPLES,
                         .columns = COLUMNS,
                         .column_count = 4,
                         .classes = SENTENCE_CLASSES,
                         .length = sentence_length,
                         .max_tokens = SENTENCE_TOKENS,
                         .fetch = sentence_fetch,
                         .destroy = sentence_destroy};
    return batches;
}
