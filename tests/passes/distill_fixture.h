/* For tests of distillation: small text models, six sentences, one step through the
 * pipeline, and the values of a model's nodes to compute losses from by plain loops. */
#ifndef COMPRESS_TESTS_PASSES_DISTILL_FIXTURE_H
#define COMPRESS_TESTS_PASSES_DISTILL_FIXTURE_H

#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 6, TOKENS = 5, MASKED = 2, WORDS = 12, CLASSES = 3, WIDTH = 8 };

/* ---- models ---- */

typedef struct Toy {
    const char *architecture; /* "BertForMaskedLM" */
    int layers, width, heads;
    double dropout;
} Toy;

static inline Model *toy_bert(Toy toy, uint64_t seed) {
    char yaml[600];
    snprintf(yaml, sizeof yaml,
             "{model_type: bert, architectures: [%s], hidden_size: %d,\n"
             " num_hidden_layers: %d, num_attention_heads: %d, intermediate_size: 16,\n"
             " hidden_act: gelu, vocab_size: 12, max_position_embeddings: 6,\n"
             " type_vocab_size: 2, num_labels: 3, initializer_range: 0.3,\n"
             " hidden_dropout_prob: %g, attention_probs_dropout_prob: 0}\n",
             toy.architecture, toy.width, toy.layers, toy.heads, toy.dropout);
    return configured_model(yaml, seed);
}

static inline Model *classifier(int layers, uint64_t seed) {
    return toy_bert((Toy){"BertForSequenceClassification", layers, WIDTH, 2, 0}, seed);
}

static inline Model *masked_lm(int layers, uint64_t seed) {
    return toy_bert((Toy){"BertForMaskedLM", layers, WIDTH, 2, 0}, seed);
}

/* ---- data ---- */

/* Tokens of a sample that are not padding, and its masked positions: 2 or 1. */
static inline int sentence_length(int64_t i) {
    return 3 + (int)(i % 3);
}

static inline int masked_position(int64_t i, int m) {
    return m == 0 ? 1 + (int)(i % 2) : (i % 2 ? 0 : sentence_length(i) - 1);
}

/* Value `k` of column `name` of sample `i`. */
static inline int32_t sentence_value(const char *name, int64_t i, int k) {
    const bool real = k < sentence_length(i);
    if (strcmp(name, "input_ids") == 0) return real ? (int32_t)((i * 5 + k * 7) % 12) : 0;
    if (strcmp(name, "attention_mask") == 0) return real;
    if (strcmp(name, "token_type_ids") == 0) return real && k >= 2;
    if (strcmp(name, "masked_positions") == 0) return masked_position(i, k);
    if (strcmp(name, "masked_labels") == 0)
        return masked_position(i, k) ? (int32_t)((i * 3 + k) % 12) : INDEX_SKIP;
    return (int32_t)(i % CLASSES);
}

#define ROW(n)                                                                           \
    {                                                                                    \
        .dtype = DTYPE_I32, .rank = 1, .dim = { n }                                      \
    }
static const Column SENTENCE_COLUMNS[] = {
    {"input_ids", ROW(TOKENS)},      {"attention_mask", ROW(TOKENS)},
    {"token_type_ids", ROW(TOKENS)}, {"masked_positions", ROW(MASKED)},
    {"masked_labels", ROW(MASKED)},  {"labels", {.dtype = DTYPE_I32}}};
#undef ROW

static inline Status sentence_fetch(const Batches *self, const Fetch *what,
                                    void *const *dst, Diag *diag) {
    (void)diag;
    for (int c = 0; c < self->column_count; c++) {
        const Column *column = &self->columns[c];
        const int each = column->type.rank ? (int)column->type.dim[0] : 1;
        for (int64_t i = 0; i < what->n * each; i++)
            ((int32_t *)dst[c])[i] =
                sentence_value(column->name, what->index[i / each], (int)(i % each));
    }
    return STATUS_OK;
}

static inline Batches sentences(void) {
    return (Batches){.name = "sentences",
                     .count = SAMPLES,
                     .columns = SENTENCE_COLUMNS,
                     .column_count = 6,
                     .classes = CLASSES,
                     .fetch = sentence_fetch};
}

/* ---- values of a model ---- */

/* Terms of a recorded loss: the longest chains of a student and of a teacher, up to
 * LOSS_TERMS / 3 each as value_of sees to, and those of the loss over their rows. */
enum { LOSS_TERMS = 2700 };

/* A node's value for all sentences, in double; free it. */
static inline double *value_of(Model *model, const Node *node) {
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = SAMPLES,
                                        [DIM_INDEX(DIM_T)] = TOKENS};
    Node *result = (Node *)(uintptr_t)node;
    Runner r;
    assert_non_null(node);
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F64, NULL, &result, 1);
    for (const Node *in = model->graph->first; in; in = in->next) {
        int32_t *data = in->name ? workspace_input(r.workspace, in->name) : NULL;
        for (int i = 0; data && i < SAMPLES * TOKENS; i++)
            data[i] = sentence_value(in->name, i / TOKENS, i % TOKENS);
    }
    runner_run(&r);
    assert_true(runner_terms(&r, result) <= LOSS_TERMS / 3);
    Type bound;
    assert_true(type_bind(&node->type, sizes, &bound));
    const size_t count = (size_t)type_count(&bound);
    double *value = malloc(count * sizeof *value);
    memcpy(value, workspace_value(r.workspace, node), count * sizeof *value);
    runner_close(&r);
    return value;
}

static inline double *output_of(Model *model, const char *name) {
    return value_of(model, graph_output(model->graph, name));
}

/* Output of a layer; of layer -1: what layer 0 reads, the embeddings' norm. */
static inline double *state_of(Model *model, int layer) {
    const Graph *graph = model->graph;
    return value_of(model, layer < 0 ? graph_find(graph, NULL, -1, ROLE_NORM0)
                                     : graph_layer_output(graph, "encoder", layer));
}

/* ---- one step ---- */

/* Runs one distill step with the given further options on a data set. */
static inline Status distill_on(Batches data, Model *student, Model *teacher,
                                const char *options, Diag *diag) {
    Arena *arena = arena_create();
    RecipeInputs inputs = {&data, teacher};
    const char *yaml =
        arena_printf(arena,
                     "version: 1\nseed: 1\ndata: {text: {format: text}}\npasses:\n"
                     "  - distill: {data: text, %s}\n    allow_unchanged: true\n",
                     options);
    const Status status = run_with_inputs(&inputs, student, yaml, false, 1, diag);
    arena_destroy(arena);
    return status;
}

static inline Status distill(Model *student, Model *teacher, const char *options,
                             Diag *diag) {
    return distill_on(sentences(), student, teacher, options, diag);
}

/* One step over all sentences at rate 0: the losses that are recorded are those of the
 * student as it is. */
#define STILL "steps: 1, lr: 0, batch_size: 6, shards: 3, micro_batch: 1, "

static inline void distill_ok(Model *student, Model *teacher, const char *options) {
    Diag *diag = diag_create();
    assert_ok(distill(student, teacher, options, diag), diag);
    assert_int_equal(diag_errors(diag), 0);
    diag_destroy(diag);
}

/* What is said when one step over all sentences at rate 0 fails with `status`; free it.
 */
static inline char *fault_of(Model *student, Model *teacher, const char *options,
                             Status status) {
    char all[300];
    Diag *diag = diag_create();
    snprintf(all, sizeof all, STILL "%s", options);
    assert_int_equal(distill(student, teacher, all, diag), status);
    char *text = diag_text(diag);
    diag_destroy(diag);
    return text;
}

/* The matched places, as the last record lists them. */
static inline void expect_matched_places(const Model *student, const char *want) {
    char *got = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&got, &length);
    const Tree *list = tree_get(last_record(student), "matched");
    for (const Tree *item = list ? list->first : NULL; item; item = item->next)
        fprintf(out, "%s%s", item == list->first ? "" : " ", item->string);
    fclose(out);
    assert_string_equal(got, want);
    free(got);
}

/* A number of the last record, NAN when there is none. */
static inline double recorded(const Model *student, const char *key) {
    const Tree *record = last_record(student);
    return tree_get(record, key) ? number(record, key) : (double)NAN;
}

/* Losses that are run in float, against loops over values in double. */
static inline void expect_near(double got, double want) {
    assert_within(got, want,
                  rounding_tolerance(PRECISION_F32, LOSS_TERMS, fmax(1, fabs(want))));
}

/* What PyTorch's CosineEmbeddingLoss adds to squares of norms. */
#define TORCH_EPSILON 1e-12

/* Plain loops in double, against PyTorch's. */
static inline void expect_close(double got, double want) {
    assert_within(got, want, TORCH_EPSILON);
}

/* ---- losses by plain loops ---- */

/* T^2 times the mean over rows that count of -sum q log p, with `kl` of sum q log(q / p).
 */
static inline double plain_soft(const double *z, const double *y, int rows, int classes,
                                double t, bool kl, const int *keep) {
    double total = 0;
    int kept = 0;
    for (int r = 0; r < rows; r++, z += classes, y += classes) {
        double zs = 0, ys = 0;
        if (keep && !keep[r]) continue;
        for (int c = 0; c < classes; c++) zs += exp(z[c] / t);
        for (int c = 0; c < classes; c++) ys += exp(y[c] / t);
        for (int c = 0; c < classes; c++) {
            const double q = exp(y[c] / t) / ys;
            total += q * ((kl ? log(q) : 0) - log(exp(z[c] / t) / zs));
        }
        kept++;
    }
    return t * t * total / kept;
}

static inline double plain_squares(const double *x, const double *y, int rows, int width,
                                   const int *keep) {
    double total = 0;
    int kept = 0;
    for (int r = 0; r < rows; r++) {
        if (keep && !keep[r]) continue;
        for (int c = r * width; c < (r + 1) * width; c++)
            total += (x[c] - y[c]) * (x[c] - y[c]);
        kept += width;
    }
    return total / kept;
}

static inline double plain_cosine(const double *x, const double *y, int rows, int width,
                                  const int *keep) {
    double total = 0;
    int kept = 0;
    for (int r = 0; r < rows; r++) {
        double xx = 0, yy = 0, xy = 0;
        if (keep && !keep[r]) continue;
        for (int c = r * width; c < (r + 1) * width; c++) {
            xx += x[c] * x[c];
            yy += y[c] * y[c];
            xy += x[c] * y[c];
        }
        total += 1 - xy / sqrt(xx * yy);
        kept++;
    }
    return total / kept;
}

/* softmax over the tokens of x_i y_j / sqrt(width). */
static inline void plain_row(const double *x, const double *y, int i, int tokens,
                             int width, double *row) {
    double sum = 0;
    for (int j = 0; j < tokens; j++) {
        double score = 0;
        for (int c = 0; c < width; c++) score += x[i * width + c] * y[j * width + c];
        sum += row[j] = exp(score / sqrt(width));
    }
    for (int j = 0; j < tokens; j++) row[j] /= sum;
}

/* Groups of so many tokens that are related within each: samples, or windows; of each the
 * first `length` count, NULL = all. */
typedef struct Groups {
    int count, tokens;
    int (*length)(int64_t group);
} Groups;

/* Mean cross-entropy of the relation of x and y (width s) against that of u and v (width
 * t). */
static inline double plain_relation(const double *x, const double *y, int s,
                                    const double *u, const double *v, int t, Groups of) {
    double total = 0, ours[16], theirs[16];
    assert_true(of.tokens <= 16);
    for (int n = 0; n < of.count; n++) {
        const ptrdiff_t at = (ptrdiff_t)n * of.tokens;
        const int length = of.length ? of.length(n) : of.tokens;
        for (int i = 0; i < length; i++) {
            plain_row(x + at * s, y + at * s, i, length, s, ours);
            plain_row(u + at * t, v + at * t, i, length, t, theirs);
            for (int j = 0; j < length; j++) total -= theirs[j] * log(ours[j]) / length;
        }
    }
    return total / of.count;
}

/* Mean over the nine relations of queries, keys and values, which it frees. */
static inline double plain_relations(double *const ours[3], int s,
                                     double *const theirs[3], int t, Groups of) {
    double total = 0;
    for (int i = 0; i < 9; i++)
        total += plain_relation(ours[i / 3], ours[i % 3], s, theirs[i / 3], theirs[i % 3],
                                t, of);
    for (int i = 0; i < 3; i++) {
        free(ours[i]);
        free(theirs[i]);
    }
    return total / 9;
}

/* Rows of tokens that are not padding. */
static inline const int *real_tokens(void) {
    static int keep[SAMPLES * TOKENS];
    for (int i = 0; i < SAMPLES * TOKENS; i++)
        keep[i] = i % TOKENS < sentence_length(i / TOKENS);
    return keep;
}

/* Mean squared difference of states of two layers, padding left out. */
static inline double state_loss(Model *student, int s, Model *teacher, int t) {
    double *x = state_of(student, s), *y = state_of(teacher, t);
    const double loss = plain_squares(x, y, SAMPLES * TOKENS, WIDTH, real_tokens());
    free(x);
    free(y);
    return loss;
}

/* Soft cross-entropy of one output each, classes. */
static inline double exit_loss(Model *student, const char *s, Model *teacher,
                               const char *t, double temperature) {
    double *z = output_of(student, s), *y = output_of(teacher, t);
    const double loss = plain_soft(z, y, SAMPLES, CLASSES, temperature, false, NULL);
    free(z);
    free(y);
    return loss;
}

#endif
