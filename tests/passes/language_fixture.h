/* For tests of language models: a small GPT-2, token sequences with labels, one step
 * through the pipeline, and what the model predicts, in double. */
#ifndef COMPRESS_TESTS_PASSES_LANGUAGE_FIXTURE_H
#define COMPRESS_TESTS_PASSES_LANGUAGE_FIXTURE_H

#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 7, TOKENS = 5, WORDS = 11, LOGITS = SAMPLES * TOKENS * WORDS };

static inline Model *toy_gpt2(int layers, int width, uint64_t seed) {
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: %d,\n"
             " n_layer: %d, n_head: 2, vocab_size: %d, n_positions: 8,\n"
             " initializer_range: 0.4, resid_pdrop: 0, embd_pdrop: 0, attn_pdrop: 0}\n",
             width, layers, WORDS);
    return configured_model(yaml, seed);
}

/* ---- data ---- */

static inline int32_t sequence_id(int64_t i, int t) {
    return (int32_t)((i * 5 + t * t + 3 * t) % WORDS);
}

/* The next token; none after some. */
static inline int32_t sequence_label(int64_t i, int t) {
    return (i + t) % 4 == 3 ? INDEX_SKIP : sequence_id(i, t + 1);
}

/* Columns "input_ids" and, where there is one, "labels": of each token, or of the first.
 */
static inline Status sequence_fetch(const Batches *self, const Fetch *what,
                                    void *const *dst, Diag *diag) {
    (void)diag;
    for (int c = 0; c < self->column_count; c++) {
        const Type *type = &self->columns[c].type;
        const int tokens = type->rank ? (int)type->dim[0] : 1;
        for (int64_t k = 0; k < what->n * tokens; k++) {
            const int64_t i = what->index[k / tokens];
            const int t = (int)(k % tokens);
            ((int32_t *)dst[c])[k] = c == 0 ? sequence_id(i, t) : sequence_label(i, t);
        }
    }
    return STATUS_OK;
}

static const Column SEQUENCE_COLUMNS[] = {{"input_ids", {DTYPE_I32, 1, {TOKENS}}},
                                          {"labels", {DTYPE_I32, 1, {TOKENS}}}};

static inline Batches sequences(void) {
    return (Batches){.name = "sequences",
                     .count = SAMPLES,
                     .columns = SEQUENCE_COLUMNS,
                     .column_count = 2,
                     .classes = WORDS,
                     .label_characters = 2.5,
                     .fetch = sequence_fetch};
}

/* ---- values of a model ---- */

/* A node's value for all sequences, in double; free it. */
static inline double *value_of(Model *model, Node *node) {
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = SAMPLES,
                                        [DIM_INDEX(DIM_T)] = TOKENS};
    Runner r;
    Type bound;
    assert_non_null(node);
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F64, NULL, &node, 1);
    int32_t *ids = workspace_input(r.workspace, "input_ids");
    for (int k = 0; k < SAMPLES * TOKENS; k++)
        ids[k] = sequence_id(k / TOKENS, k % TOKENS);
    runner_run(&r);
    assert_true(type_bind(&node->type, sizes, &bound));
    const size_t count = (size_t)type_count(&bound);
    double *value = malloc(count * sizeof *value);
    memcpy(value, workspace_value(r.workspace, node), count * sizeof *value);
    runner_close(&r);
    return value;
}

static inline double *logits_of(Model *model) {
    return value_of(model, graph_output(model->graph, "logits"));
}

/* log softmax(z / t)[c] of a row. */
static inline double log_probability(const double *z, int c, double t) {
    double sum = 0;
    for (int k = 0; k < WORDS; k++) sum += exp((z[k] - z[c]) / t);
    return -log(sum);
}

/* What evaluation should find, by plain loops. */
typedef struct Naive {
    int rows, correct;
    double loss;
} Naive;

static inline Naive naive_scores(Model *model) {
    Naive naive = {0};
    double *logits = logits_of(model);
    for (int k = 0; k < SAMPLES * TOKENS; k++) {
        const double *z = logits + (ptrdiff_t)k * WORDS;
        const int label = sequence_label(k / TOKENS, k % TOKENS);
        int best = 0;
        if (label == INDEX_SKIP) continue;
        for (int c = 1; c < WORDS; c++)
            if (z[c] > z[best]) best = c;
        naive.loss -= log_probability(z, label, 1);
        naive.correct += best == label;
        naive.rows++;
    }
    naive.loss /= naive.rows;
    free(logits);
    return naive;
}

/* ---- runs ---- */

/* Runs steps (lines of YAML, each with its indent) with so many threads; *record is the
 * last one's and lies in the model's provenance. */
static inline Status run_steps(Model *model, RecipeInputs *inputs, const char *steps,
                               int threads, const Tree **record, Diag *diag) {
    Arena *arena = arena_create();
    const char *yaml = arena_printf(arena,
                                    "version: 1\n"
                                    "data: {some: {format: toy}}\n"
                                    "passes:\n%s",
                                    steps);
    const Status status = run_with_inputs(inputs, model, yaml, false, threads, diag);
    const Tree *done = tree_get(model->provenance, "steps");
    if (record) *record = done ? tree_get(done->last, "record") : NULL;
    arena_destroy(arena);
    return status;
}

/* A loss of a model, and of a teacher where there is one, that was run in float. */
static inline void expect_loss(Model *model, Model *teacher, double found,
                               double expected) {
    double tolerance = loss_tolerance(model->graph, expected);
    if (teacher) tolerance += loss_tolerance(teacher->graph, expected);
    assert_within(found, expected, tolerance);
}

/* A few operations in double on numbers that are recorded. */
static inline void assert_close(double found, double expected) {
    assert_within(found, expected,
                  rounding_tolerance(PRECISION_F64, 4 * FUNCTION_TERMS, expected));
}

/* Expects the steps to fail with a message that holds `part`. */
static inline void expect_refusal(Model *model, RecipeInputs *inputs, const char *steps,
                                  Status wanted, const char *part) {
    Diag *diag = diag_create();
    const Status status = run_steps(model, inputs, steps, 1, NULL, diag);
    char *text = diag_text(diag);
    if (status != wanted || !strstr(text, part))
        fail_msg("%s: expected status %d and '%s', got %d: %s", steps, wanted, part,
                 status, text);
    free(text);
    diag_destroy(diag);
    model_destroy(model);
}

#endif
