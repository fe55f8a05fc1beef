/* Factoring the word embedding: errors against the tail of a spectrum that is known in
 * closed form, the function it leaves, ties, gradients, ranks and refusals. */
#include "exec/train.h"
#include "io/hf.h"
#include "io/yaml.h"
#include "ir/irtext.h"
#include "ir/rewrite.h"
#include "passes/edit.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"

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

static Model *classifier(void) {
    return configured_model(
        "{model_type: bert, architectures: [BertForSequenceClassification],\n" SHAPE
        "}\n",
        3);
}

static Model *masked(bool tied) {
    return configured_model(
        tied ? "{model_type: bert, architectures: [BertForMaskedLM],\n" SHAPE "}\n"
             : "{model_type: bert, architectures: [BertForMaskedLM],\n" SHAPE
               ", tie_word_embeddings: false}\n",
        3);
}

static Storage *storage(const Model *model, const char *name) {
    Storage *found = graph_storage(model->graph, name);
    if (!found) fail_msg("no storage %s", name);
    return found;
}

/* All elements in double; to be freed. */
static double *elements(const Model *model, const char *name) {
    const Tensor *tensor = &storage(model, name)->tensor;
    const int64_t count = tensor_count(tensor);
    double *out = memory_alloc((size_t)count, sizeof *out);
    tensor_read_f64(tensor, 0, count, out);
    return out;
}

/* Entry i of basis vector k of the orthonormal cosines in `n` dimensions. */
static double cosine(int64_t n, int64_t k, int64_t i) {
    const double scale = sqrt((k == 0 ? 1.0 : 2.0) / (double)n);
    return scale * cos(M_PI * ((double)i + 0.5) * (double)k / (double)n);
}

/* Gives the table the singular values sigma[WIDTH]. */
static void set_spectrum(Model *model, const double *sigma) {
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
static double tail(const double *sigma, int64_t first) {
    double sum = 0;
    for (int64_t k = first; k < WIDTH; k++) sum += sigma[k] * sigma[k];
    return sum;
}

static void factor(Model *model, const char *options) {
    Diag *diag = diag_create();
    assert_ok(test_run_pass(model, "factor_embedding", options, false, diag), diag);
    diag_destroy(diag);
}

static void factor_to(Model *model, int rank) {
    char options[64];
    snprintf(options, sizeof options, "{rank: %d, allow_growth: true}", rank);
    factor(model, options);
}

static const Tree *last_record(const Model *model) {
    return tree_get(tree_get(model->provenance, "steps")->last, "record");
}

static double recorded(const Model *model, const char *name) {
    const Tree *value = tree_get(last_record(model), name);
    assert_non_null(value);
    return value->kind == TREE_INT ? (double)value->integer : value->real;
}

/* W1 W2 by a plain loop; to be freed. */
static double *product(const Model *model) {
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

static double distance(const double *a, const double *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(sum);
}

static void assert_near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance))
        fail_msg("got %.17g, want %.17g to %g", got, want, tolerance);
}

static void assert_rank(const Model *model, int64_t rank) {
    const Tensor *left = &storage(model, TABLE)->tensor;
    const Tensor *right = &storage(model, PROJECTION)->tensor;
    assert_int_equal(left->dim[0], WORDS);
    assert_int_equal(left->dim[1], rank);
    assert_int_equal(right->dim[0], WIDTH);
    assert_int_equal(right->dim[1], rank);
    assert_int_equal(left->dtype, DTYPE_F32);
    assert_int_equal(right->dtype, DTYPE_F32);
}

/* ---- error and shape ---- */

/* The error is the tail of the spectrum, and the factors are the known vectors. */
static void check_rank(int rank) {
    Model *model = classifier();
    set_spectrum(model, SIGMA);
    const int64_t before = graph_parameter_count(model->graph);
    double *table = elements(model, TABLE);
    factor_to(model, rank);
    assert_rank(model, rank);
    double *both = product(model), *left = elements(model, TABLE);
    const double error = sqrt(tail(SIGMA, rank)), norm = sqrt(tail(SIGMA, 0));
    assert_near(distance(table, both, WORDS * WIDTH), error, 1e-5);
    assert_near(recorded(model, "error"), distance(table, both, WORDS * WIDTH), 1e-12);
    assert_near(recorded(model, "relative_error"), error / norm, 1e-6);
    assert_near(recorded(model, "energy"), 1 - tail(SIGMA, rank) / (norm * norm), 1e-6);
    for (int64_t v = 0; v < WORDS; v++)
        for (int64_t k = 0; k < rank; k++)
            assert_near(fabs(left[v * rank + k]), fabs(SIGMA[k] * cosine(WORDS, k, v)),
                        1e-4);
    assert_int_equal(graph_parameter_count(model->graph),
                     before - WORDS * WIDTH + (WORDS + WIDTH) * rank);
    assert_near(recorded(model, "parameters_before"), WORDS * WIDTH, 0);
    assert_near(recorded(model, "parameters_after"), (WORDS + WIDTH) * rank, 0);
    assert_near(recorded(model, "break_even"), 60.0 * 8 / 68, 1e-12);
    free(table), free(both), free(left);
    model_destroy(model);
}

static void test_tail_of_spectrum(void **state) {
    (void)state;
    for (int rank = 1; rank <= WIDTH; rank++) check_rank(rank);
}

static void test_structure(void **state) {
    (void)state;
    Model *model = classifier();
    const Node *sum = graph_find(model->graph, NULL, -1, ROLE_TOKEN_TYPE);
    factor_to(model, 3);
    const Node *lookup = graph_find(model->graph, "embeddings", -1, ROLE_EMBED);
    const Node *wide = graph_find(model->graph, "embeddings", -1, ROLE_EMBED_PROJECTION);
    assert_non_null(wide);
    assert_string_equal(wide->op->name, "linear");
    assert_ptr_equal(wide->in[0], lookup);
    assert_ptr_equal(sum->in[0], wide);
    assert_null(node_operand(wide, "bias"));
    assert_int_equal(lookup->type.dim[2], 3);
    assert_int_equal(wide->type.dim[2], WIDTH);
    model_destroy(model);
}

/* What the classifier computes is what it computes with the product as its table. */
static void test_function(void **state) {
    (void)state;
    Model *factored = classifier(), *plain = classifier();
    Diag *diag = diag_create();
    double got[VALUES], want[VALUES];
    void *data = NULL;
    factor_to(factored, 3);
    double *both = product(factored);
    assert_ok(tensor_writable(&storage(plain, TABLE)->tensor, &data, diag), diag);
    for (int i = 0; i < WORDS * WIDTH; i++) ((float *)data)[i] = (float)both[i];
    const int64_t count = configured_run(factored, "logits", 1, got, VALUES);
    assert_int_equal(configured_run(plain, "logits", 1, want, VALUES), count);
    for (int64_t i = 0; i < count; i++) assert_near(got[i], want[i], 1e-6);
    free(both);
    model_destroy(factored);
    model_destroy(plain);
    diag_destroy(diag);
}

/* A table stored in half precision gives factors in f32. */
static void test_half_table(void **state) {
    (void)state;
    Model *model = classifier();
    Diag *diag = diag_create();
    Tensor half, *tensor = &storage(model, TABLE)->tensor;
    void *data = NULL;
    assert_ok(tensor_create(&half, DTYPE_F16, 2, tensor->dim, diag), diag);
    assert_ok(tensor_writable(&half, &data, diag), diag);
    for (int i = 0; i < WORDS * WIDTH; i++)
        ((uint16_t *)data)[i] = (uint16_t)(0x3000 + 37 * (i % 61));
    tensor_release(tensor);
    *tensor = half;
    double *table = elements(model, TABLE);
    factor_to(model, WIDTH);
    double *both = product(model);
    assert_rank(model, WIDTH);
    assert_near(distance(table, both, WORDS * WIDTH), 0, 1e-5);
    free(table), free(both);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- energy ---- */

/* The share asked for gives this rank, and the bytes of `rank`. */
static void check_energy(double energy, int rank) {
    Model *model = classifier(), *same = classifier();
    char options[64], a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    set_spectrum(model, SIGMA);
    set_spectrum(same, SIGMA);
    snprintf(options, sizeof options, "{energy: %.17g, allow_growth: true}", energy);
    factor(model, options);
    factor_to(same, rank);
    assert_rank(model, rank);
    model_hash(model, a);
    model_hash(same, b);
    assert_string_equal(a, b);
    model_destroy(model);
    model_destroy(same);
}

static void test_energy(void **state) {
    (void)state;
    for (int rank = 1; rank < WIDTH; rank++) {
        const double kept = 1 - tail(SIGMA, rank) / tail(SIGMA, 0);
        check_energy(kept - 1e-5, rank);
        check_energy(kept + 1e-5, rank + 1);
    }
    check_energy(1e-9, 1);
    check_energy(1, WIDTH);
}

/* All of the energy of a table of lower rank: that rank, and the same function, which the
 * pipeline checks as the pass claims it. */
static void test_energy_of_low_rank(void **state) {
    (void)state;
    const double sigma[WIDTH] = {7, 5, 2, 1.5, 1};
    Model *model = classifier();
    double before[VALUES], after[VALUES];
    set_spectrum(model, sigma);
    const int64_t count = configured_run(model, "logits", 0, before, VALUES);
    factor(model, "{energy: 1}");
    assert_rank(model, 5);
    configured_run(model, "logits", 0, after, VALUES);
    for (int64_t i = 0; i < count; i++) assert_near(after[i], before[i], 1e-5);
    model_destroy(model);
}

/* Runs the pass without the pipeline; whether it claims to preserve the function. */
static bool claims_exact(int64_t rank) {
    const Pass *pass = pass_find("factor_embedding");
    Model *model = classifier();
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    PassContext ctx = {
        .arena = arena, .threads = 1, .record = tree_new(arena, TREE_MAP, LOC_NONE)};
    void *options = memory_alloc(1, pass->options_size);
    const Tree value = {.kind = TREE_INT, .integer = rank};
    const Tree grow = {.kind = TREE_BOOL, .boolean = true};
    assert_ok(field_set(field_find(pass->fields, "rank"), &value, options, arena,
                        STATUS_RECIPE, diag),
              diag);
    assert_ok(field_set(field_find(pass->fields, "allow_growth"), &grow, options, arena,
                        STATUS_RECIPE, diag),
              diag);
    assert_ok(pass->run(&ctx, model, options, diag), diag);
    free(options);
    arena_destroy(arena);
    diag_destroy(diag);
    model_destroy(model);
    return ctx.exact;
}

static void test_exactness(void **state) {
    (void)state;
    assert_true(claims_exact(WIDTH));
    assert_false(claims_exact(WIDTH - 1));
}

/* ---- twice ---- */

static void check_same(const Model *a, const Model *b) {
    Text x = {0}, y = {0};
    graph_print(&x, a->graph);
    graph_print(&y, b->graph);
    assert_string_equal(x.data, y.data);
    text_free(&x), text_free(&y);
    double *p = product(a), *q = product(b);
    assert_near(distance(p, q, WORDS * WIDTH), 0, 1e-5);
    free(p), free(q);
}

/* Truncating twice is truncating once; the tied head included. */
static void test_twice(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        Model *twice = tied ? masked(true) : classifier();
        Model *once = tied ? masked(true) : classifier();
        set_spectrum(twice, SIGMA);
        set_spectrum(once, SIGMA);
        factor(twice, "{rank: 6}");
        factor(twice, "{rank: 3}");
        factor(once, "{rank: 3}");
        check_same(twice, once);
        assert_near(recorded(twice, "parameters_before"), 6 * (WORDS + WIDTH), 0);
        const double norm = sqrt(tail(SIGMA, 0) - tail(SIGMA, 6));
        const double error = sqrt(tail(SIGMA, 3) - tail(SIGMA, 6));
        assert_near(recorded(twice, "relative_error"), error / norm, 1e-6);
        model_destroy(twice);
        model_destroy(once);
    }
}

/* Factors that training moved apart are decomposed as their product. */
static void test_trained_factors(void **state) {
    (void)state;
    Model *model = classifier();
    Diag *diag = diag_create();
    void *data = NULL;
    double before[VALUES], after[VALUES];
    factor(model, "{rank: 5}");
    assert_ok(tensor_writable(&storage(model, PROJECTION)->tensor, &data, diag), diag);
    for (int i = 0; i < 5 * WIDTH; i++) ((float *)data)[i] += (float)sin(3 * i);
    double *changed = product(model);
    const int64_t count = configured_run(model, "logits", 0, before, VALUES);
    factor(model, "{rank: 5}");
    double *again = product(model);
    assert_near(distance(changed, again, WORDS * WIDTH), 0, 1e-4);
    configured_run(model, "logits", 0, after, VALUES);
    for (int64_t i = 0; i < count; i++) assert_near(after[i], before[i], 1e-5);
    free(changed), free(again);
    model_destroy(model);
    diag_destroy(diag);
}

/* A projection that has a bias keeps it. */
static void test_projection_with_bias(void **state) {
    (void)state;
    Model *model = classifier();
    Diag *diag = diag_create();
    Storage *bias = NULL;
    double before[VALUES], after[VALUES];
    factor(model, "{rank: 5}");
    Node *wide = graph_find(model->graph, NULL, -1, ROLE_EMBED_PROJECTION);
    const Tensor shape = tensor_shape(DTYPE_F32, 1, (int64_t[]){WIDTH});
    assert_ok(graph_add_storage(&bias, model->graph, "b", &shape, diag), diag);
    bias->init = (Init){INIT_NORMAL, 1};
    node_set_operand(model->graph, wide, "bias", graph_param(model->graph, bias));
    wide->role = ROLE_NONE; /* as in a model that came with a projection */
    assert_ok(model_init_weights(model, 1, diag), diag);
    const int64_t count = configured_run(model, "logits", 0, before, VALUES);
    factor(model, "{rank: 5}");
    configured_run(model, "logits", 0, after, VALUES);
    for (int64_t i = 0; i < count; i++) assert_near(after[i], before[i], 1e-5);
    factor(model, "{rank: 2}");
    assert_rank(model, 2);
    assert_non_null(node_operand(wide, "bias"));
    assert_null(graph_find(model->graph, NULL, -1, ROLE_EMBED_PROJECTION));
    model_destroy(model);
    diag_destroy(diag);
}

/* ALBERT has a norm between table and projection: the narrow table is factored. */
static void test_albert(void **state) {
    (void)state;
    Model *model = configured_model(
        "{model_type: albert, architectures: [AlbertForMaskedLM], embedding_size: 6,\n" SHAPE
        "}\n",
        3);
    factor(model, "{rank: 2}");
    const Tensor *table =
        &storage(model, "albert.embeddings.word_embeddings.weight")->tensor;
    const Tensor *inner =
        &storage(model, "albert.embeddings.word_embeddings_projection.weight")->tensor;
    const Tensor *outer =
        &storage(model, "albert.encoder.embedding_hidden_mapping_in.weight")->tensor;
    assert_int_equal(table->dim[1], 2);
    assert_int_equal(inner->dim[0], 6);
    assert_int_equal(outer->dim[1], 6);
    assert_near(recorded(model, "tied_heads"), 1, 0);
    double out[VALUES];
    assert_int_equal(configured_run(model, "logits", 0, out, VALUES), 2 * 5 * WORDS);
    model_destroy(model);
}

/* ---- tied heads ---- */

/* Logits as (h W2^T) W1^T + b by plain loops, h being the value "h" of the model. */
static void naive_logits(Model *model, double *out) {
    double h[VALUES];
    double *left = elements(model, TABLE), *right = elements(model, PROJECTION);
    double *bias = elements(model, "cls.predictions.bias");
    const int64_t rank = storage(model, TABLE)->tensor.dim[1];
    const int64_t rows = configured_run(model, "h", 0, h, VALUES) / HIDDEN;
    for (int64_t n = 0; n < rows; n++)
        for (int64_t v = 0; v < WORDS; v++) {
            double sum = bias[v];
            for (int64_t r = 0; r < rank; r++) {
                double low = 0;
                for (int64_t i = 0; i < HIDDEN; i++)
                    low += h[n * HIDDEN + i] * right[i * rank + r];
                sum += low * left[v * rank + r];
            }
            out[n * WORDS + v] = sum;
        }
    free(left), free(right), free(bias);
}

static void check_tied(int rank, bool same) {
    Model *model = masked(true);
    double before[VALUES], after[VALUES], naive[VALUES], largest = 0;
    const Node *head = graph_find(model->graph, "head", -1, ROLE_HEAD);
    graph_set_output(model->graph, "h", head->in[0]);
    const int64_t count = configured_run(model, "logits", 0, before, VALUES);
    factor_to(model, rank);
    assert_near(recorded(model, "tied_heads"), 1, 0);
    assert_ptr_equal(head->in[1], graph_find(model->graph, NULL, -1, ROLE_EMBED)->in[1]);
    assert_ptr_equal(head->in[0]->in[1],
                     graph_find(model->graph, NULL, -1, ROLE_EMBED_PROJECTION)->in[1]);
    configured_run(model, "logits", 0, after, VALUES);
    naive_logits(model, naive);
    for (int64_t i = 0; i < count; i++) {
        assert_near(after[i], naive[i], 1e-12);
        largest = fmax(largest, fabs(after[i] - before[i]));
    }
    assert_true(same ? largest < 1e-5 : largest > 1e-3);
    model_destroy(model);
}

static void test_tied_head(void **state) {
    (void)state;
    check_tied(WIDTH, true);
    check_tied(3, false);
}

static void test_untied_head(void **state) {
    (void)state;
    Model *model = masked(false);
    const Node *head = graph_find(model->graph, "head", -1, ROLE_HEAD);
    const Node *x = head->in[0], *decoder = head->in[1];
    factor(model, "{rank: 3}");
    assert_ptr_equal(head->in[0], x);
    assert_ptr_equal(head->in[1], decoder);
    assert_int_equal(decoder->storage->tensor.dim[1], HIDDEN);
    assert_near(recorded(model, "tied_heads"), 0, 0);
    model_destroy(model);
}

/* ---- gradients ---- */

enum { SAMPLES = 2, TOKENS = 5 };

static int32_t word(int64_t i) {
    return (int32_t)((i * 7 + 3) % WORDS);
}

/* Adds the loss of every token against made-up labels. */
static Node *add_loss(Model *model) {
    Graph *graph = model->graph;
    Diag *diag = diag_create();
    const Type type = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_T}};
    Node *loss = NULL, *labels = graph_input(graph, "labels", &type);
    assert_ok(edit_node(&loss, graph, NULL, "cross_entropy",
                        (Node *[]){graph_output(graph, "logits"), labels}, 2, diag, NULL),
              diag);
    diag_destroy(diag);
    return loss;
}

static void fill_ids(const char *name, int64_t count, int32_t *out) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = word(i);
        if (strcmp(name, "labels") == 0) out[i] = word(i + 2);
        if (strcmp(name, "attention_mask") == 0) out[i] = 1;
        if (strcmp(name, "token_type_ids") == 0) out[i] = 0;
    }
}

static void runner_start(Runner *r, Model *model, Node *loss, bool train) {
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = SAMPLES,
                                        [DIM_INDEX(DIM_T)] = TOKENS};
    runner_open_sizes(r, model->graph, sizes, PRECISION_F64, train ? loss : NULL, &loss,
                      1);
    for (const Node *n = model->graph->first; n; n = n->next)
        if (n->name)
            fill_ids(n->name, SAMPLES * TOKENS, workspace_input(r->workspace, n->name));
    runner_run(r);
}

/* The loss when element `at` of a storage, kept as f64, is `by` larger. */
static double moved_loss(Model *model, Node *loss, const char *name, int64_t at,
                         double by) {
    Runner r;
    Diag *diag = diag_create();
    void *data = NULL;
    assert_ok(tensor_writable(&storage(model, name)->tensor, &data, diag), diag);
    const double old = ((double *)data)[at];
    ((double *)data)[at] = old + by;
    runner_start(&r, model, loss, false);
    const double value = *(const double *)workspace_value(r.workspace, loss);
    runner_close(&r);
    ((double *)data)[at] = old;
    diag_destroy(diag);
    return value;
}

static void widen(Model *model, const char *name) {
    Tensor wide, *tensor = &storage(model, name)->tensor;
    Diag *diag = diag_create();
    void *data = NULL;
    assert_ok(tensor_create(&wide, DTYPE_F64, tensor->rank, tensor->dim, diag), diag);
    assert_ok(tensor_writable(&wide, &data, diag), diag);
    tensor_read_f64(tensor, 0, tensor_count(tensor), data);
    tensor_release(tensor);
    *tensor = wide;
    diag_destroy(diag);
}

/* Gradients of both shared factors against central differences. */
static void check_gradient(Model *model, Node *loss, const char *name) {
    Runner r;
    runner_start(&r, model, loss, true);
    const int64_t offset = params_offset(r.params, storage(model, name));
    const int64_t count = tensor_count(&storage(model, name)->tensor);
    double *gradient = memory_alloc((size_t)count, sizeof *gradient), size = 0;
    for (int64_t i = 0; i < count; i++) {
        gradient[i] = ((double *)r.gradients)[offset + i];
        size = fmax(size, fabs(gradient[i]));
    }
    runner_close(&r);
    assert_true(size > 1e-4);
    for (int64_t i = 0; i < count; i += 7) {
        const double h = 1e-5, up = moved_loss(model, loss, name, i, h);
        const double down = moved_loss(model, loss, name, i, -h);
        assert_near(gradient[i], (up - down) / (2 * h), 1e-7 * fmax(size, 1));
    }
    free(gradient);
}

static void test_gradient_through_tie(void **state) {
    (void)state;
    Model *model = masked(true);
    factor(model, "{rank: 3}");
    Node *loss = add_loss(model);
    widen(model, TABLE);
    widen(model, PROJECTION);
    check_gradient(model, loss, TABLE);
    check_gradient(model, loss, PROJECTION);
    model_destroy(model);
}

/* ---- training ---- */

static Status ids_fetch(const Batches *self, const Fetch *what, void *const *dst,
                        Diag *diag) {
    (void)diag;
    for (int c = 0; c < self->column_count; c++)
        fill_ids(self->columns[c].name, what->n * TOKENS, dst[c]);
    return STATUS_OK;
}

/* Trains a few steps; the factors are one storage each for embedding and head, so they
 * stay tied, and the loss falls. */
static void test_training(void **state) {
    (void)state;
    Model *model = masked(true);
    Diag *diag = diag_create();
    const Type type = {.dtype = DTYPE_I32, .rank = 1, .dim = {TOKENS}};
    const Column columns[] = {{"input_ids", type},
                              {"attention_mask", type},
                              {"token_type_ids", type},
                              {"labels", type}};
    const Batches data = {.name = "ids",
                          .count = SAMPLES,
                          .columns = columns,
                          .column_count = 4,
                          .classes = WORDS,
                          .fetch = ids_fetch};
    TrainOptions options = train_defaults;
    TrainReport report = {0};
    options.steps = 20, options.batch_size = SAMPLES, options.lr = 0.01;
    const Node *head = graph_find(model->graph, "head", -1, ROLE_HEAD);
    graph_set_output(model->graph, "h", head->in[0]);
    factor(model, "{rank: 3}");
    double *left = elements(model, TABLE), *right = elements(model, PROJECTION);
    Node *loss = add_loss(model);
    assert_ok(train(model->graph, loss, NULL, 0, &data, &options, 1, 1, NULL,
                    model->arena, &report, diag),
              diag);
    double *new_left = elements(model, TABLE), *new_right = elements(model, PROJECTION);
    assert_true(distance(left, new_left, WORDS * 3) > 0.1);
    assert_true(distance(right, new_right, WIDTH * 3) > 0.1);
    assert_true(report.last_loss < 0.9 * report.first_loss);
    double logits[VALUES], naive[VALUES];
    const int64_t count = configured_run(model, "logits", 0, logits, VALUES);
    naive_logits(model, naive);
    for (int64_t i = 0; i < count; i++) assert_near(logits[i], naive[i], 1e-12);
    free(left), free(right), free(new_left), free(new_right);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- ranks ---- */

/* A model of shapes alone with so many words, width 768. */
static Model *shapes(int words) {
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "{model_type: bert, architectures: [BertModel], hidden_size: 768,\n"
             " num_hidden_layers: 1, num_attention_heads: 12, intermediate_size: 3072,\n"
             " vocab_size: %d, max_position_embeddings: 512}\n",
             words);
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *config = NULL;
    Model *model = NULL;
    assert_ok(yaml_parse(&config, arena, "config", yaml, strlen(yaml), diag), diag);
    assert_ok(hf_build(&model, config, ops_table(), diag), diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return model;
}

/* Runs or plans the pass, which gives `want` and says `part`. Frees the model. */
static void expect(Model *model, const char *options, bool plan, Status want,
                   const char *part) {
    Diag *diag = diag_create();
    char *text = NULL;
    size_t length = 0;
    const Status status = test_run_pass(model, "factor_embedding", options, plan, diag);
    FILE *out = open_memstream(&text, &length);
    diag_print(diag, out);
    fclose(out);
    if (status != want || (part ? !strstr(text, part) : length != 0))
        fail_msg("%s: expected \"%s\", found exit code %d and:\n%s", options,
                 part ? part : "", status_exit_code(status), text);
    free(text);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_break_even(void **state) {
    (void)state;
    expect(shapes(30522), "{rank: 749}", true, STATUS_OK, NULL);
    expect(shapes(30522), "{rank: 750}", true, STATUS_MODEL,
           "break-even rank 749.15 of an embedding of 30522 x 768: the factors have "
           "23467500 parameters, the table 23440896");
    expect(shapes(30522), "{rank: 750}", true, STATUS_MODEL,
           "choose a rank of at most 749, or add `allow_growth: true`");
    expect(shapes(30522), "{rank: 768, allow_growth: true}", true, STATUS_OK,
           "warning: passes[0]: rank 768 is above");
    expect(shapes(30522), "{rank: 769, allow_growth: true}", true, STATUS_MODEL,
           "expected at most 768");
    expect(shapes(500), "{rank: 501, allow_growth: true}", true, STATUS_MODEL,
           "expected at most 500");
    expect(shapes(768), "{rank: 384}", true, STATUS_OK, NULL); /* as many parameters */
    expect(shapes(768), "{rank: 385}", true, STATUS_MODEL, "break-even rank 384.00");
    expect(classifier(), "{energy: 1}", false, STATUS_MODEL, "rank 8 is above");
}

static void test_plan(void **state) {
    (void)state;
    Model *model = shapes(30522);
    Diag *diag = diag_create();
    assert_ok(test_run_pass(model, "factor_embedding", "{energy: 0.9}", true, diag),
              diag);
    const char *name = "embeddings.word_embeddings_projection.weight";
    assert_int_equal(storage(model, name)->tensor.dim[1], 749);
    assert_ok(test_run_pass(model, "factor_embedding", "{rank: 128}", true, diag), diag);
    assert_int_equal(storage(model, name)->tensor.dim[1], 128);
    model_destroy(model);
    diag_destroy(diag);
    expect(shapes(30522), "{energy: 0.9}", true, STATUS_OK, "are upper bounds");
    expect(shapes(1), "{energy: 0.9}", true, STATUS_MODEL, "break-even rank 1.00");
}

/* ---- lineage, names ---- */

static void test_lineage(void **state) {
    (void)state;
    static const IndexRange rows[] = {{0, 9}, {20, 69}}, columns[] = {{1, 8}};
    Model *model = classifier();
    Storage *table = storage(model, TABLE);
    table->kept[0] = (Lineage){rows, 2};
    table->kept[1] = (Lineage){columns, 1};
    for (int rank = 6; rank > 2; rank -= 3) {
        factor_to(model, rank);
        assert_int_equal(lineage_index(&table->kept[0], 10), 20);
        assert_int_equal(table->kept[1].count, 0);
        assert_int_equal(storage(model, PROJECTION)->kept[0].ranges[0].first, 1);
        assert_int_equal(storage(model, PROJECTION)->kept[1].count, 0);
    }
    model_destroy(model);
}

static void test_fresh_name(void **state) {
    (void)state;
    Model *model = classifier();
    storage(model, "bert.embeddings.token_type_embeddings.weight")->name = PROJECTION;
    factor(model, "{rank: 3}");
    assert_int_equal(storage(model, PROJECTION ".2")->tensor.dim[1], 3);
    model_destroy(model);
}

/* ---- other passes ---- */

static void test_with_others(void **state) {
    (void)state;
    Model *model = classifier();
    Diag *diag = diag_create();
    double values[VALUES];
    assert_ok(test_run_recipe(model, "test",
                              "version: 1\npasses:\n"
                              "  - factor_embedding: {rank: 5}\n"
                              "  - fold_token_type\n"
                              "  - importance: {score: magnitude}\n"
                              "  - prune_heads: {keep: 1}\n"
                              "  - prune_ffn: {keep: 8}\n"
                              "  - factor_embedding: {rank: 2}\n"
                              "  - remove_layer: {count: 1}\n",
                              false, 1, diag),
              diag);
    assert_rank(model, 2);
    assert_null(graph_find(model->graph, NULL, -1, ROLE_TOKEN_TYPE));
    assert_int_equal(configured_run(model, "logits", 0, values, VALUES), 6);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- refusals ---- */

static void refused(Model *model, const char *part) {
    expect(model, "{rank: 3}", false, STATUS_MODEL, part);
}

static Node *embed(const Model *model) {
    return graph_find(model->graph, NULL, -1, ROLE_EMBED);
}

static void test_other_models(void **state) {
    (void)state;
    Model *model = classifier();
    embed(model)->role = ROLE_NONE;
    refused(model, "expected a model with a word embedding");
    refused(configured_vit(2, 1), "found op linear");
    model = classifier();
    Node *types = graph_find(model->graph, NULL, -1, ROLE_TOKEN_TYPE)->in[1];
    types->role = ROLE_EMBED;
    refused(model, "expected one word embedding, found \"" TABLE "\" and "
                   "\"bert.embeddings.token_type_embeddings.weight\"");
}

static void test_other_users(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = classifier();
    graph_set_output(model->graph, "table", embed(model)->in[1]);
    refused(model, "it is output \"table\"");
    model = classifier();
    Node *sum = NULL, *table = embed(model)->in[1];
    assert_ok(edit_node(&sum, model->graph, NULL, "scale", &table, 1, diag, "by=2"),
              diag);
    node_place(model->graph, sum, "encoder", 1, ROLE_FFN_ACT);
    graph_set_output(model->graph, "twice", sum);
    refused(model, "it is read by op scale (encoder.1, role ffn_act), not only by "
                   "embeddings and tied heads");
    diag_destroy(diag);
}

static void test_ranks_refused(void **state) {
    (void)state;
    Model *model = classifier();
    factor(model, "{rank: 3}");
    expect(model, "{rank: 4}", false, STATUS_MODEL,
           "expected at most 3 for an embedding of 60 x 8 that is factored already");
    model = classifier();
    Diag *diag = diag_create();
    void *data = NULL;
    assert_ok(tensor_writable(&storage(model, TABLE)->tensor, &data, diag), diag);
    ((float *)data)[WIDTH * 7 + 2] = NAN;
    refused(model, "in row 7, column 2 of the matrix");
    diag_destroy(diag);
    expect(classifier(), "{rank: 3, energy: 0.5}", false, STATUS_RECIPE, "found both");
    expect(classifier(), "{}", false, STATUS_RECIPE, "found none");
    expect(classifier(), "{rank: 0}", false, STATUS_RECIPE, "between 1 and");
    expect(classifier(), "{energy: 1.1}", false, STATUS_RECIPE, "energy");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tail_of_spectrum),
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_function),
        cmocka_unit_test(test_half_table),
        cmocka_unit_test(test_energy),
        cmocka_unit_test(test_energy_of_low_rank),
        cmocka_unit_test(test_exactness),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_trained_factors),
        cmocka_unit_test(test_projection_with_bias),
        cmocka_unit_test(test_albert),
        cmocka_unit_test(test_tied_head),
        cmocka_unit_test(test_untied_head),
        cmocka_unit_test(test_gradient_through_tie),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_break_even),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_lineage),
        cmocka_unit_test(test_fresh_name),
        cmocka_unit_test(test_with_others),
        cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_other_users),
        cmocka_unit_test(test_ranks_refused),
    };
    return cmocka_run_group_tests_name("factored embeddings", tests, NULL, NULL);
}
