/* Bridges: of a map that is affine, the map itself; of others the least-squares one,
 * whose error is counted by running the model; what stays behind in the graph. */
#include "passes/removal/bridge.h"

#include "exec/ops.h"
#include "ir/rewrite.h"
#include "ir/storage.h"
#include "passes/layers.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { WIDTH = 16, VALUES = 64 };

typedef struct Bench {
    RecipeInputs inputs;
    CalibrationOptions options;
    PassContext ctx;
    Diag *diag;
    Model *model;
} Bench;

static void bench_open(Bench *b) {
    *b = (Bench){.inputs = {.data = toy_batches()},
                 .options = {.data = "toy", .samples = 1000},
                 .diag = diag_create(),
                 .model = toy_vit(1)};
    b->inputs.model = b->model;
    b->ctx = (PassContext){.ops = b->model->graph->ops,
                           .arena = b->model->arena,
                           .threads = 2,
                           .model = b->model,
                           .resources = inputs_resources(&b->inputs)};
}

static void bench_close(Bench *b) {
    model_destroy(b->model);
    batches_destroy(b->inputs.data);
    diag_destroy(b->diag);
}

/* Adds a bridge for a span; returns its node. */
static Node *add(Bench *b, BridgeSpan *span, double damp) {
    Node *values[] = {span->x, span->y};
    Calibration *calibration = NULL;
    assert_ok(calibration_open(&calibration, &b->ctx, b->model->graph, values, 2,
                               &b->options, b->diag),
              b->diag);
    assert_ok(bridge_add(&b->ctx, b->model->graph, calibration, damp, span, b->diag),
              b->diag);
    calibration_close(calibration);
    return graph_find(b->model->graph, NULL, -1, ROLE_BRIDGE);
}

/* Attention's output projection is affine in what attention gives. */
static void test_affine(void **state) {
    (void)state;
    Bench b;
    bench_open(&b);
    Node *out = graph_find(b.model->graph, "encoder", 1, ROLE_OUT);
    BridgeSpan span = {.x = out->in[0], .y = out, .stack = "encoder", .layer = -1};
    Node *bridge = add(&b, &span, 1e-9);
    assert_ptr_equal(bridge->in[0], out);
    /* Of squares summed in float over blocks of 256 rows, the root. */
    assert_within(span.error, 0, sqrt(256 * (double)FLT_EPSILON));
    double w[WIDTH * WIDTH], v[WIDTH * WIDTH];
    tensor_read_f64(storage_tensor(bridge->in[1]->storage), 0, WIDTH * WIDTH, w);
    tensor_read_f64(storage_tensor(out->in[1]->storage), 0, WIDTH * WIDTH, v);
    for (int i = 0; i < WIDTH * WIDTH; i++) assert_within(w[i], v[i], 1e-2);
    tensor_read_f64(storage_tensor(bridge->in[2]->storage), 0, WIDTH, w);
    tensor_read_f64(storage_tensor(out->in[2]->storage), 0, WIDTH, v);
    for (int i = 0; i < WIDTH; i++) assert_within(w[i], v[i], 1e-2);
    bench_close(&b);
}

/* Sums of |y - W x - b|^2 and of |y - mean y|^2. */
typedef struct Errors {
    const double *w, *b;
    double error, square, sum[WIDTH];
    int64_t rows;
} Errors;

static Status add_errors(void *self, const CalibrationRows *rows, Diag *diag) {
    Errors *e = self;
    (void)diag;
    for (int64_t r = 0; r < rows[0].count; r++, e->rows++) {
        const float *x = rows[0].x + r * WIDTH, *y = rows[1].x + r * WIDTH;
        for (int m = 0; m < WIDTH; m++) {
            double rest = (double)y[m] - e->b[m];
            for (int k = 0; k < WIDTH; k++) rest -= e->w[m * WIDTH + k] * (double)x[k];
            e->error += rest * rest;
            e->square += (double)y[m] * (double)y[m];
            e->sum[m] += (double)y[m];
        }
    }
    return STATUS_OK;
}

/* Of a whole layer: the error that is told is that of all rows, less than that of leaving
 * the layer out, and no small change of the map makes it less. */
static void test_layer(void **state) {
    (void)state;
    Bench b;
    bench_open(&b);
    LayerEnds ends;
    assert_ok(layer_ends(&ends, &b.ctx, b.model->graph, "encoder", 2, b.diag), b.diag);
    Node *values[] = {ends.input, ends.output};
    BridgeSpan span = {
        .x = ends.input, .y = ends.output, .stack = "encoder", .layer = -1};
    Node *bridge = add(&b, &span, 1e-9);
    double w[WIDTH * WIDTH], bias[WIDTH], least = 0;
    tensor_read_f64(storage_tensor(bridge->in[1]->storage), 0, WIDTH * WIDTH, w);
    tensor_read_f64(storage_tensor(bridge->in[2]->storage), 0, WIDTH, bias);
    Calibration *calibration = NULL;
    assert_ok(calibration_open(&calibration, &b.ctx, b.model->graph, values, 2,
                               &b.options, b.diag),
              b.diag);
    for (int change = 0; change < 4; change++) {
        Errors e = {.w = w, .b = bias};
        const double was = w[5];
        if (change) w[5] += change == 1 ? 0.01 : -0.01;
        if (change == 3) /* the layer left out */
            for (int i = 0; i < WIDTH * WIDTH; i++) w[i] = i % (WIDTH + 1) == 0;
        if (change == 3)
            for (int i = 0; i < WIDTH; i++) bias[i] = 0;
        assert_ok(calibration_rows(calibration, values, 2, add_errors, &e, b.diag),
                  b.diag);
        double norm = e.square;
        for (int m = 0; m < WIDTH; m++) norm -= e.sum[m] * e.sum[m] / (double)e.rows;
        if (change == 0) least = e.error;
        if (change == 0) assert_within(span.error, sqrt(e.error / norm), 1e-4);
        if (change > 0) assert_true(e.error > least);
        w[5] = was;
    }
    calibration_close(calibration);
    bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_affine),
                                       cmocka_unit_test(test_layer)};
    return cmocka_run_group_tests_name("bridges", tests, NULL, NULL);
}
