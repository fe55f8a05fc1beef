/* Text models to factor, a spectrum that is known in closed form, and what a factored
 * model holds, for the tests of factor_embedding. */
#ifndef COMPRESS_TESTS_PASSES_FACTOR_FIXTURE_H
#define COMPRESS_TESTS_PASSES_FACTOR_FIXTURE_H

#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 60, WIDTH = 8, HIDDEN = 8, VALUES = 4096 };

#define TABLE      "bert.embeddings.word_embeddings.weight"
#define PROJECTION "bert.embeddings.word_embeddings_projection.weight"
#define SHAPE                                                                            \
    " hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2,\n"                   \
    " intermediate_size: 16, hidden_act: gelu, vocab_size: 60,\n"                        \
    " max_position_embeddings: 16, type_vocab_size: 2, num_labels: 3,\n"                 \
    " hidden_dropout_prob: 0, attention_probs_dropout_prob: 0, initializer_range: 0.3"

static inline Model *classifier(void) {
    return configured_model(
        "{model_type: bert, architectures: [BertForSequenceClassification],\n" SHAPE
        "}\n",
        3);
}

static inline Model *masked(bool tied) {
    return configured_model(
        tied ? "{model_type: bert, architectures: [BertForMaskedLM],\n" SHAPE "}\n"
             : "{model_type: bert, architectures: [BertForMaskedLM],\n" SHAPE
               ", tie_word_embeddings: false}\n",
        3);
}

static inline Storage *storage(const Model *model, const char *name) {
    Storage *found = graph_storage(model->graph, name);
    if (!found) fail_msg("no storage %s", name);
    return found;
}

/* All elements in double; to be freed. */
static inline double *elements(const Model *model, const char *name) {
    const Tensor *tensor = &storage(model, name)->tensor;
    const int64_t count = tensor_count(tensor);
    double *out = memory_alloc((size_t)count, sizeof *out);
    tensor_read_f64(tensor, 0, count, out);
    return out;
}

/* Entry i of basis vector k of the orthonormal cosines in `n` dimensions. */
static inline double cosine(int64_t n, int64_t k, int64_t i) {
    const double scale = sqrt((k == 0 ? 1.0 : 2.0) / (double)n);
    return scale * cos(M_PI * ((double)i + 0.5) * (double)k / (double)n);
}

/* Gives the table the singular values sigma[WIDTH]. */
static inline void set_spectrum(Model *model, const double *sigma) {
    Diag *diag = diag_create();
    void *data = NULL;
    assert_ok(tensor_writable(&storage(model, TABLE)->tensor, &data, diag), diag);
    for (int64_t v = 0; v < WORDS; v++)
        for (int64_t h = 0; h < WIDTH; h++) {
            double sum = 0;
            for (int64_t k = 0; k < WIDTH; k++)
                sum += sigma[k] * cosine(WORDS, k, v) * cosine(WIDTH, k, h);
            ((float *)data)[v * WIDTH + h] = (float)sum;
        }
    diag_destroy(diag);
}

static const double SIGMA[WIDTH] = {16, 9, 5, 3, 2, 1, 0.5, 0.25};

/* Sum of the squares of the singular values from `first` on. */
static inline double tail(const double *sigma, int64_t first) {
    double sum = 0;
    for (int64_t k = first; k < WIDTH; k++) sum += sigma[k] * sigma[k];
    return sum;
}

static inline void factor(Model *model, const char *options) {
    run_pass(model, "factor_embedding", options);
}

static inline void factor_to(Model *model, int rank) {
    char options[64];
    snprintf(options, sizeof options, "{rank: %d, allow_growth: true}", rank);
    factor(model, options);
}

static inline double recorded(const Model *model, const char *name) {
    return number(last_record(model), name);
}

/* W1 W2 by a plain loop; to be freed. */
static inline double *product(const Model *model) {
    double *left = elements(model, TABLE), *right = elements(model, PROJECTION);
    const int64_t rank = storage(model, TABLE)->tensor.dim[1];
    double *out = memory_alloc(WORDS * WIDTH, sizeof *out);
    for (int64_t v = 0; v < WORDS; v++)
        for (int64_t h = 0; h < WIDTH; h++)
            for (int64_t r = 0; r < rank; r++)
                out[v * WIDTH + h] += left[v * rank + r] * right[h * rank + r];
    free(left), free(right);
    return out;
}

static inline double distance(const double *a, const double *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(sum);
}

/* What rounding factors to float leaves of their product, per norm: exec/linalg/tsvd.h.
 */
#define FACTORS 5e-7

/* Two models' logits: but for the rounding of double, or of float where weights were
 * rounded to it in between. */
static inline void expect_logits(Model *model, const double *got, const double *want,
                                 int64_t count, Precision precision) {
    rounding_compare("logits", got, want, count, precision,
                     configured_terms(model, "logits"), 0);
}

static inline void assert_rank(const Model *model, int64_t rank) {
    const Tensor *left = &storage(model, TABLE)->tensor;
    const Tensor *right = &storage(model, PROJECTION)->tensor;
    assert_int_equal(left->dim[0], WORDS);
    assert_int_equal(left->dim[1], rank);
    assert_int_equal(right->dim[0], WIDTH);
    assert_int_equal(right->dim[1], rank);
    assert_int_equal(left->dtype, DTYPE_F32);
    assert_int_equal(right->dtype, DTYPE_F32);
}

#endif
