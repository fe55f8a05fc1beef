/* Factored embeddings whose head is tied: logits against plain loops, gradients through
 * both users against central differences, training. */
#include "exec/train/train.h"
#include "tests/passes/factor_fixture.h"
#include "tests/support/reference.h"

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
    assert_true(recorded(model, "tied_heads") == 1);
    assert_ptr_equal(head->in[1], graph_find(model->graph, NULL, -1, ROLE_EMBED)->in[1]);
    assert_ptr_equal(head->in[0]->in[1],
                     graph_find(model->graph, NULL, -1, ROLE_EMBED_PROJECTION)->in[1]);
    configured_run(model, "logits", 0, after, VALUES);
    naive_logits(model, naive);
    expect_logits(model, after, naive, count, PRECISION_F64);
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(after[i] - before[i]));
    if (same)
        expect_logits(model, after, before, count, PRECISION_F32); /* of new factors */
    else
        assert_true(largest > 1e-3);
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
    assert_true(recorded(model, "tied_heads") == 0);
    model_destroy(model);
}

/* ---- gradients ---- */

enum { SAMPLES = 2, TOKENS = 5 };

static int32_t word(int64_t i) {
    return (int32_t)((i * 7 + 3) % WORDS);
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
    const double h = 1e-5;
    runner_start(&r, model, loss, true);
    const double terms = runner_terms(&r, loss);
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
        double slope[2], value = 0;
        for (int wide = 0; wide < 2; wide++) {
            const double by = (1 + wide) * h, up = moved_loss(model, loss, name, i, by);
            value = moved_loss(model, loss, name, i, -by);
            slope[wide] = (up - value) / (2 * by);
        }
        assert_within(
            gradient[i], slope[0],
            difference_tolerance(PRECISION_F64, h, slope[0], slope[1], terms, value));
    }
    free(gradient);
}

static void test_gradient_through_tie(void **state) {
    (void)state;
    Model *model = masked(true);
    factor(model, "{rank: 3}");
    Node *loss = reference_loss(model->graph);
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
    Node *loss = reference_loss(model->graph);
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
    expect_logits(model, logits, naive, count, PRECISION_F64);
    free(left), free(right), free(new_left), free(new_right);
    model_destroy(model);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tied_head),
        cmocka_unit_test(test_untied_head),
        cmocka_unit_test(test_gradient_through_tie),
        cmocka_unit_test(test_training),
    };
    return cmocka_run_group_tests_name("factored embeddings with tied heads", tests, NULL,
                                       NULL);
}
