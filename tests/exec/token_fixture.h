/* Sentences with labels of some tokens and with masked positions, and a model of both,
 * for tests of training. */
#ifndef COMPRESS_TESTS_EXEC_TOKEN_FIXTURE_H
#define COMPRESS_TESTS_EXEC_TOKEN_FIXTURE_H

#include "exec/ops/kernel.h"
#include "tests/exec/train_fixture.h"

#include <stdatomic.h>

/* ---- data: sentences of 1 to 20 tokens, some of whose tokens have labels ---- */

enum { SENTENCES = 13, LONGEST = 20, VOCAB = 7, UNLABELLED = 4, UNMASKED = 5 };
enum { IDS, FEATURES, LABELS, MASKED_IDS, MASKED_LABELS, COLUMNS };

typedef struct Tokens {
    Batches batches;
    Column columns[COLUMNS];
    bool no_labels;                /* no token has one */
    int64_t bad;                   /* sample with a label out of range; -1 = none */
    atomic_int fetches, sentences; /* calls of fetch, and samples with features */
} Tokens;

static int64_t token_length(const Batches *self, int64_t s) {
    (void)self;
    return 1 + s * 7 % LONGEST;
}

static int64_t token_masked(const Batches *self, int64_t tokens) {
    (void)self;
    return 1 + tokens / 4;
}

static int32_t token_id(int64_t s, int64_t t) {
    return t < token_length(NULL, s) ? (int32_t)((3 * s + 2 * t) % VOCAB) : 0;
}

static float token_feature(int64_t s, int64_t t, int64_t d) {
    const int64_t place = (s * LONGEST + t) * WIDTH + d;
    return t < token_length(NULL, s) ? (float)random_normal(5, (uint64_t)place) : 7;
}

/* Of about every third token; of none of some samples. */
static int32_t token_label(const Tokens *data, int64_t s, int64_t t) {
    const bool known = t < token_length(NULL, s) && (s + t) % 3 == 0 &&
                       s % UNLABELLED != 0 && !data->no_labels;
    if (s == data->bad && t == 0) return CLASSES + 6;
    return known ? (int32_t)((s + t) % CLASSES) : INDEX_SKIP;
}

static int32_t masked_id(int64_t s, int64_t m) {
    return (int32_t)((s + 5 * m) % VOCAB);
}

static int32_t masked_label(int64_t s, int64_t m) {
    const bool known = m < token_masked(NULL, token_length(NULL, s)) && s != UNMASKED;
    return known ? (int32_t)((s + 2 * m) % CLASSES) : INDEX_SKIP;
}

static void fill_tokens(const Tokens *data, int64_t s, int64_t row, int64_t tokens,
                        void *const *dst) {
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t at = row * tokens + t;
        if (dst[IDS]) ((int32_t *)dst[IDS])[at] = token_id(s, t);
        if (dst[LABELS]) ((int32_t *)dst[LABELS])[at] = token_label(data, s, t);
        for (int64_t d = 0; dst[FEATURES] && d < WIDTH; d++)
            ((float *)dst[FEATURES])[at * WIDTH + d] = token_feature(s, t, d);
    }
}

static Status token_fetch(const Batches *self, const Fetch *what, void *const *dst,
                          Diag *diag) {
    Tokens *data = (Tokens *)(uintptr_t)self;
    const int64_t masked = token_masked(self, what->tokens);
    (void)diag;
    atomic_fetch_add(&data->fetches, 1);
    if (dst[FEATURES]) atomic_fetch_add(&data->sentences, (int)what->n);
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t s = what->index[i];
        fill_tokens(data, s, i, what->tokens, dst);
        for (int64_t m = 0; m < masked; m++) {
            const int64_t at = i * masked + m;
            if (dst[MASKED_IDS]) ((int32_t *)dst[MASKED_IDS])[at] = masked_id(s, m);
            if (dst[MASKED_LABELS])
                ((int32_t *)dst[MASKED_LABELS])[at] = masked_label(s, m);
        }
    }
    return STATUS_OK;
}

static void tokens_open(Tokens *data) {
    *data = (Tokens){.bad = -1};
    const Column columns[COLUMNS] = {
        {"ids", {DTYPE_I32, 1, {DIM_T}}},
        {"features", {DTYPE_F32, 2, {DIM_T, WIDTH}}},
        {"labels", {DTYPE_I32, 1, {DIM_T}}},
        {"masked_ids", {DTYPE_I32, 1, {DIM_M}}},
        {"masked_labels", {DTYPE_I32, 1, {DIM_M}}},
    };
    memcpy(data->columns, columns, sizeof columns);
    data->batches = (Batches){.name = "tokens",
                              .count = SENTENCES,
                              .columns = data->columns,
                              .column_count = COLUMNS,
                              .classes = CLASSES,
                              .length = token_length,
                              .max_tokens = LONGEST,
                              .masked = token_masked,
                              .partial = true,
                              .fetch = token_fetch,
                              .destroy = toy_destroy};
}

/* ---- model ---- */

/* A copy of integers that the graph makes: what depends on it cannot be counted ahead. */
static Status copy_infer(const Node *node, Type *out, Diag *diag) {
    (void)diag;
    *out = node->in[0]->type;
    return STATUS_OK;
}

static void copy_forward(const Call *call) {
    memcpy(call->out.data, call->in[0].data, (size_t)call->out.count * sizeof(int32_t));
}

static const Operand COPY_OPERANDS[] = {{"x", OPERAND_INTEGER, "integers"}, {NULL}};
static const Kernel COPY_KERNEL = {.forward = copy_forward};
static const Op COPY = {.name = "copy_integers",
                        .summary = "x",
                        .operands = COPY_OPERANDS,
                        .infer = copy_infer,
                        .kernel = &COPY_KERNEL};

static const OpTable *extended_table(Arena *arena) {
    const OpTable *usual = ops_table();
    const Op **ops = ARENA_ARRAY(arena, const Op *, (size_t)usual->count + 1);
    OpTable *table = ARENA_NEW(arena, OpTable);
    for (int i = 0; i < usual->count; i++) ops[i] = usual->ops[i];
    ops[usual->count] = &COPY;
    *table = (OpTable){ops, usual->count + 1};
    return table;
}

static Node *integers(const Fixture *f, const char *name, int64_t dim) {
    const Type type = {DTYPE_I32, 2, {DIM_N, dim}};
    return graph_input(f->graph, name, &type);
}

typedef struct Model {
    Fixture f;
    Tokens data;
    Node *hidden, *token_logits, *masked_logits;
} Model;

/* Tokens and masked positions share the classifier; `copied` labels come from the graph.
 */
static void tokens_model(Model *m, bool copied) {
    Fixture *f = &m->f;
    *f = (Fixture){.arena = arena_create(), .diag = diag_create()};
    f->graph = graph_create(f->arena, extended_table(f->arena));
    tokens_open(&m->data);
    const Type features = {DTYPE_F32, 3, {DIM_N, DIM_T, WIDTH}};
    Node *ids = integers(f, "ids", DIM_T), *masked_ids = integers(f, "masked_ids", DIM_M);
    Node *x = graph_input(f->graph, "features", &features);
    Node *labels = integers(f, "labels", DIM_T);
    Node *masked = integers(f, "masked_labels", DIM_M);
    Node *table = weight(f, "table", 2, VOCAB, WIDTH);
    Node *w = weight(f, "out.weight", 2, CLASSES, WIDTH);
    Node *b = weight(f, "out.bias", 1, CLASSES, 0);
    if (copied) labels = make(f, "copy_integers", &labels, 1, NULL);
    m->hidden = make(f, "embedding", (Node *[]){ids, table}, 2, NULL);
    m->hidden = make(f, "add", (Node *[]){m->hidden, x}, 2, NULL);
    m->token_logits = make(f, "linear", (Node *[]){m->hidden, w, b}, 3, NULL);
    Node *other = make(f, "embedding", (Node *[]){masked_ids, table}, 2, NULL);
    m->masked_logits = make(f, "linear", (Node *[]){other, w, b}, 3, NULL);
    f->parts[0] = make(f, "cross_entropy", (Node *[]){m->token_logits, labels}, 2, NULL);
    f->parts[1] = make(f, "cross_entropy", (Node *[]){m->masked_logits, masked}, 2,
                       "smoothing=0.1");
    f->loss = make(f, "weighted_sum", f->parts, 2, "weights=[0.75, 0.5]");
}

#endif
