/* What tests of the library share: a context with a model, and what a call said. */
#ifndef COMPRESS_TESTS_SESSION_LIBRARY_FIXTURE_H
#define COMPRESS_TESTS_SESSION_LIBRARY_FIXTURE_H

#include "session/library.h"
#include "tests/support/check.h"
#include "tests/support/thread_sanitized.h"

#include <float.h>
#include <stdbool.h>
#include <string.h>

#define BERT "tests/data/reference/bert"

/* A language model, and its vocabulary as an option. */
#define LLAMA "recipes/models/llama_shakespeare.h5"
#define WORDS "tokenizer: recipes/data/shakespeare/tokenizer.json"

/* A context and a model. */
typedef struct Use {
    CompressContext *context;
    CompressModel *model;
} Use;

static inline void use_open(Use *use) {
    assert_int_equal(compress_open(&use->context, 2), COMPRESS_OK);
    assert_int_equal(compress_load(use->context, BERT, &use->model), COMPRESS_OK);
    assert_string_equal(compress_messages(use->context), "");
}

static inline void use_close(Use *use) {
    compress_free_model(use->model);
    compress_close(use->context);
}

/* Makes what a layer's feed-forward network gives overflow, and so the logits. */
static inline void overflow_layer(CompressModel *model, const char *stack, int layer) {
    Diag *diag = diag_create();
    Node *linear = graph_find(model->model->graph, stack, layer, ROLE_FFN_OUT);
    void *data;
    assert_non_null(linear);
    Tensor *tensor = &linear->in[1]->storage->tensor;
    assert_ok(tensor_writable(tensor, &data, diag), diag);
    for (int64_t i = 0; i < tensor_count(tensor); i++) ((float *)data)[i] = FLT_MAX;
    diag_destroy(diag);
}

static inline int64_t value_count(const CompressTensor *tensor) {
    int64_t count = 1;
    for (int d = 0; d < tensor->rank; d++) count *= tensor->dim[d];
    return count;
}

static inline void assert_said(const Use *use, const char *words) {
    if (!strstr(compress_messages(use->context), words))
        fail_msg("expected \"%s\" in: %s", words, compress_messages(use->context));
}

/* The model's description, to be freed. */
static inline char *described(const Use *use) {
    char *json;
    assert_int_equal(compress_inspect(use->context, use->model, &json), COMPRESS_OK);
    return json;
}

#endif
