/* A small classifier and data for it, for tests of training. */
#ifndef COMPRESS_TESTS_EXEC_TRAIN_FIXTURE_H
#define COMPRESS_TESTS_EXEC_TRAIN_FIXTURE_H

#include "exec/ops.h"
#include "exec/train/train.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 100, WIDTH = 8, HIDDEN = 16, CLASSES = 3 };

/* ---- data ---- */

typedef struct Toy {
    Batches batches;
    Column columns[2];
    int64_t bad_label; /* sample with a label out of range; -1 = none */
    bool infinite;     /* features are infinite */
} Toy;

static inline float toy_feature(int64_t sample, int64_t i) {
    return (float)random_normal(5, (uint64_t)(sample * WIDTH + i));
}

static inline int32_t toy_label(int64_t sample) {
    int best = 0;
    for (int c = 1; c < CLASSES; c++)
        if (toy_feature(sample, c) > toy_feature(sample, best)) best = c;
    return best;
}

static inline Status toy_fetch(const Batches *self, const Fetch *what, void *const *dst,
                               Diag *diag) {
    const int64_t *index = what->index;
    const int64_t n = what->n;
    const Toy *toy = (const Toy *)self;
    (void)diag;
    for (int64_t s = 0; s < n; s++) {
        for (int64_t i = 0; i < WIDTH; i++)
            ((float *)dst[0])[s * WIDTH + i] =
                toy->infinite ? INFINITY
                              : toy_feature(index[s], i) + (what->key ? 0.125f : 0);
        ((int32_t *)dst[1])[s] =
            index[s] == toy->bad_label ? CLASSES + 6 : toy_label(index[s]);
    }
    return STATUS_OK;
}

static inline void toy_destroy(Batches *self) {
    (void)self;
}

static inline void toy_open(Toy *toy) {
    *toy = (Toy){.bad_label = -1};
    toy->columns[0] = (Column){"x", {.dtype = DTYPE_F32, .rank = 1, .dim = {WIDTH}}};
    toy->columns[1] = (Column){"labels", {.dtype = DTYPE_I32}};
    toy->batches = (Batches){.name = "toy",
                             .count = SAMPLES,
                             .columns = toy->columns,
                             .column_count = 2,
                             .classes = CLASSES,
                             .fetch = toy_fetch,
                             .destroy = toy_destroy};
}

/* ---- model ---- */

typedef struct Fixture {
    Arena *arena;
    Diag *diag;
    Graph *graph;
    Node *loss, *logits, *parts[2];
    Toy toy;
} Fixture;

static inline Node *make(Fixture *f, const char *op, Node *const *in, int count,
                         const char *attrs) {
    Node *node = graph_insert(f->graph, NULL, op_find(f->graph->ops, op), in, count);
    if (attrs) assert_ok(node_set(f->graph, node, f->diag, "%s", attrs), f->diag);
    assert_ok(node_infer(node, f->diag), f->diag);
    return node;
}

static inline Node *weight(Fixture *f, const char *name, int rank, int64_t a, int64_t b) {
    const int64_t dim[] = {a, b};
    const Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    Storage *storage = NULL;
    assert_ok(graph_add_storage(&storage, f->graph, name, &shape, f->diag), f->diag);
    assert_ok(tensor_create(&storage->tensor, DTYPE_F32, rank, dim, f->diag), f->diag);
    void *data = NULL;
    assert_ok(tensor_writable(&storage->tensor, &data, f->diag), f->diag);
    const uint64_t key = random_key_name(1, name);
    for (int64_t i = 0; i < tensor_count(&shape); i++)
        ((float *)data)[i] = (float)(0.4 * random_normal(key, (uint64_t)i));
    return graph_param(f->graph, storage);
}

static inline Node *linear(Fixture *f, Node *x, const char *w, const char *b, int64_t to,
                           int64_t from) {
    Node *in[] = {x, weight(f, w, 2, to, from), weight(f, b, 1, to, 0)};
    return make(f, "linear", in, 3, NULL);
}

static inline void model_open(Fixture *f, double dropout) {
    *f = (Fixture){.arena = arena_create(), .diag = diag_create()};
    f->graph = graph_create(f->arena, ops_table());
    toy_open(&f->toy);
    const Type features = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, WIDTH}};
    const Type classes = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    Node *x = graph_input(f->graph, "x", &features);
    Node *labels = graph_input(f->graph, "labels", &classes);
    Node *h = linear(f, x, "in.weight", "in.bias", HIDDEN, WIDTH);
    h = make(f, "activation", &h, 1, "fn=tanh");
    char rate[32];
    snprintf(rate, sizeof rate, "rate=%g", dropout);
    h = make(f, "dropout", &h, 1, rate);
    f->logits = linear(f, h, "out.weight", "out.bias", CLASSES, HIDDEN);
    f->parts[0] = make(f, "cross_entropy", (Node *[]){f->logits, labels}, 2, NULL);
    f->parts[1] =
        make(f, "cross_entropy", (Node *[]){f->logits, labels}, 2, "smoothing=0.1");
    f->loss = make(f, "weighted_sum", f->parts, 2, "weights=[0.75, 0.25]");
    weight(f, "unused", 2, 3, 3);
}

static inline void model_close(Fixture *f) {
    graph_release(f->graph);
    arena_destroy(f->arena);
    diag_destroy(f->diag);
}

static inline Status run_training(Fixture *f, const TrainOptions *options, uint64_t seed,
                                  int threads, TrainReport *report) {
    return train(f->graph, f->loss, f->parts, 2, &f->toy.batches, options, seed, threads,
                 NULL, f->arena, report, f->diag);
}

/* Bytes that training takes. */
static inline Status bytes_of_training(Graph *graph, Node *loss,
                                       const TrainOptions *options, int threads,
                                       size_t *bytes, Diag *diag) {
    TrainNeeds needs = {0};
    const Status status = train_plan(graph, loss, options, threads, &needs, diag);
    *bytes = needs.bytes;
    return status;
}

/* How far weights may be apart that were trained for so many steps in other cuts or in
 * double, by gradients of a size. `slope` as in training_tolerance. */
static inline double weight_tolerance(const Fixture *f, const TrainOptions *options,
                                      double steps, double slope, double gradient) {
    const int64_t sizes[DIM_SYMBOLS] = {
        options->batch_size < SAMPLES ? options->batch_size : SAMPLES};
    const double terms = rounding_gradient_terms(f->graph, f->loss, NULL, sizes);
    return training_tolerance(steps, options->lr, slope,
                              rounding_tolerance(PRECISION_F32, terms, gradient), 1);
}

/* All weights one after the other. */
enum { WEIGHTS = HIDDEN * WIDTH + HIDDEN + CLASSES * HIDDEN + CLASSES + 9 };

static inline void copy_weights(const Graph *graph, float *out) {
    for (int i = 0; i < graph->storage_count; i++) {
        const Tensor *tensor = &graph->storages[i]->tensor;
        memcpy(out, tensor_data(tensor), tensor_bytes(tensor));
        out += tensor_count(tensor);
    }
}

#endif
