/* Support for tests against reference tensors: see reference.h. */
#include "tests/support/reference.h"

#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void reference_bind(Graph *graph, const Checkpoint *weights) {
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        const Tensor *tensor = checkpoint_find(weights, storage->name);
        if (!tensor) fail_msg("no weights for %s", storage->name);
        assert_int_equal(tensor_count(tensor), tensor_count(&storage->tensor));
        tensor_release(&storage->tensor);
        storage->tensor = tensor_retain(tensor);
    }
}

void reference_feed(Workspace *workspace, const Checkpoint *reference, const char *name,
                    const char *input) {
    const Tensor *tensor = checkpoint_find(reference, name);
    assert_non_null(tensor);
    void *into = workspace_input(workspace, input);
    if (!into) return;
    const int64_t count = tensor_count(tensor);
    if (tensor->dtype == DTYPE_I64) {
        const int64_t *from = tensor_data(tensor);
        for (int64_t i = 0; i < count; i++) ((int32_t *)into)[i] = (int32_t)from[i];
    } else {
        tensor_read_f32(tensor, 0, count, into);
    }
}

void reference_compare(const Checkpoint *reference, const char *name, const void *got,
                       Precision precision, double terms, double least) {
    const Tensor *want = checkpoint_find(reference, name);
    if (!want) fail_msg("the reference has no %s", name);
    const int64_t count = tensor_count(want);
    double *values = memory_alloc((size_t)count, sizeof(double));
    tensor_read_f64(want, 0, count, values);
    const double largest = fmax(least, largest_value(values, count));
    const double tolerance =
        rounding_tolerance(precision, terms, largest) + ldexp(largest, -24);
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        const double have = precision == PRECISION_F64 ? ((const double *)got)[i]
                                                       : (double)((const float *)got)[i];
        worst = isfinite(have) ? fmax(worst, fabs(have - values[i])) : INFINITY;
    }
    free(values);
    if (!(worst <= tolerance))
        fail_msg("%s: off by %.3g, largest %.3g, tolerance %.3g", name, worst, largest,
                 tolerance);
}

double reference_largest(const Checkpoint *reference) {
    double largest = 0;
    for (int t = 0; t < reference->count; t++) {
        const Tensor *tensor = &reference->tensors[t].tensor;
        for (int64_t i = 0; i < tensor_count(tensor); i++) {
            double value;
            tensor_read_f64(tensor, i, 1, &value);
            largest = fmax(largest, fabs(value));
        }
    }
    return largest;
}

Node *reference_loss(Graph *graph) {
    Diag *diag = diag_create();
    Node *logits = graph_output(graph, "logits");
    Type type = logits->type;
    type.dtype = DTYPE_I32;
    type.rank--;
    Node *const in[] = {logits, graph_input(graph, "labels", &type)};
    Node *loss = graph_insert(graph, NULL, op_find(graph->ops, "cross_entropy"), in, 2);
    assert_ok(node_infer(loss, diag), diag);
    diag_destroy(diag);
    return loss;
}

void runner_open(Runner *runner, Graph *graph, int64_t n, Precision precision, Node *loss,
                 Node *const *results, int count) {
    const int64_t sizes[DIM_SYMBOLS] = {n};
    runner_open_sizes(runner, graph, sizes, precision, loss, results, count);
}

void runner_open_sizes(Runner *runner, Graph *graph, const int64_t sizes[DIM_SYMBOLS],
                       Precision precision, Node *loss, Node *const *results, int count) {
    Diag *diag = diag_create();
    *runner = (Runner){.graph = graph, .loss = loss, .precision = precision};
    memcpy(runner->sizes, sizes, sizeof runner->sizes);
    PlanOptions options = {
        .precision = precision, .loss = loss, .results = results, .result_count = count};
    memcpy(options.sizes, sizes, sizeof options.sizes);
    assert_ok(params_create(&runner->params, graph, precision, false, diag), diag);
    assert_ok(plan_create(&runner->plan, graph, &options, diag), diag);
    assert_ok(workspace_create(&runner->workspace, diag), diag);
    assert_ok(workspace_bind(runner->workspace, runner->plan, runner->params, diag),
              diag);
    if (loss)
        runner->gradients = memory_alloc((size_t)params_gradient_count(runner->params),
                                         precision == PRECISION_F64 ? 8 : 4);
    diag_destroy(diag);
}

void runner_run(Runner *runner) {
    run_forward(runner->workspace, (RunMode){0});
    if (runner->gradients)
        run_backward(runner->workspace, (RunMode){0}, 1.0, runner->gradients);
}

void runner_close(Runner *runner) {
    workspace_destroy(runner->workspace);
    plan_destroy(runner->plan);
    params_destroy(runner->params);
    free(runner->gradients);
}

double runner_terms(const Runner *runner, const Node *node) {
    return rounding_terms(runner->graph, node, runner->sizes);
}

void runner_compare(const Runner *runner, const Checkpoint *reference, const char *name,
                    const Node *node) {
    reference_compare(reference, name, workspace_value(runner->workspace, node),
                      runner->precision, runner_terms(runner, node), 0);
}

void runner_compare_gradients(const Runner *runner, const Checkpoint *gradients,
                              const char *prefix) {
    const Graph *graph = runner->graph;
    const double largest = reference_largest(gradients);
    const size_t bytes = runner->precision == PRECISION_F64 ? 8 : 4;
    int compared = 0;
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        char name[512];
        snprintf(name, sizeof name, "%s%s", prefix, storage->name);
        const Tensor *want = checkpoint_find(gradients, name);
        const int64_t offset = params_offset(runner->params, storage);
        if (!want || offset < 0) continue;
        double peak = 0;
        for (int64_t k = 0; k < tensor_count(want); k++) {
            double value;
            tensor_read_f64(want, k, 1, &value);
            peak = fmax(peak, fabs(value));
        }
        /* Gradients that are zero but for rounding are compared on the file's scale. */
        const double scale = peak < 1e-9 * largest ? largest : 0;
        const double terms =
            rounding_gradient_terms(runner->graph, runner->loss,
                                    graph_param(runner->graph, storage), runner->sizes);
        reference_compare(gradients, name,
                          (const char *)runner->gradients + (size_t)offset * bytes,
                          runner->precision, terms, scale);
        compared++;
    }
    assert_int_not_equal(compared, 0);
}

void reference_image_gradients(Graph *graph, const Checkpoint *reference,
                               const char *gradients) {
    Diag *diag = diag_create();
    Checkpoint *want = NULL;
    Runner r;
    assert_ok(safetensors_read(&want, gradients, diag), diag);
    Node *loss = reference_loss(graph);
    runner_open(&r, graph, checkpoint_find(reference, "labels")->dim[0], PRECISION_F32,
                loss, NULL, 0);
    reference_feed(r.workspace, reference, "pixel_values", "pixel_values");
    reference_feed(r.workspace, reference, "labels", "labels");
    runner_run(&r);
    runner_compare(&r, reference, "loss", loss);
    runner_compare_gradients(&r, want, "grad.");
    runner_close(&r);
    checkpoint_destroy(want);
    diag_destroy(diag);
}
