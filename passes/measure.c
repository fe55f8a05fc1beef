/* Measure: parameters, bytes, FLOPs and peak memory of a model at one sample. */
#include "passes/measure.h"

#include "exec/run/params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const int64_t measure_sizes[DIM_SYMBOLS] = {
    [DIM_INDEX(DIM_N)] = 1,
    [DIM_INDEX(DIM_T)] = 128,
    [DIM_INDEX(DIM_S)] = 128,
    [DIM_INDEX(DIM_M)] = 20,
};

/* "pixel_values [1, 1, 28, 28], labels [1]", cut off when it is too long. */
static void describe_inputs(Measure *out, const Graph *graph,
                            const int64_t sizes[DIM_SYMBOLS]) {
    size_t length = 0;
    out->input[0] = 0;
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->name || length >= sizeof out->input) continue;
        Type bound;
        char shape[SHAPE_TEXT_BYTES];
        if (!type_bind(&node->type, sizes, &bound)) continue;
        shape_text(shape, bound.rank, bound.dim);
        int added = snprintf(out->input + length, sizeof out->input - length, "%s%s %s",
                             length ? ", " : "", node->name, shape);
        length += added > 0 ? (size_t)added : 0;
    }
}

Status model_measure(Measure *out, Model *model, Diag *diag) {
    Graph *graph = model->graph;
    *out = (Measure){.parameters = graph_parameter_count(graph),
                     .bytes = (int64_t)graph_parameter_bytes(graph)};
    if (graph->output_count == 0)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected a model with at least one output, found none");
    PlanOptions options = {.precision = PRECISION_F32};
    memcpy(options.sizes, measure_sizes, sizeof options.sizes);
    Node **results = memory_alloc((size_t)graph->output_count, sizeof *results);
    for (int i = 0; i < graph->output_count; i++) results[i] = graph->outputs[i].node;
    plan_fit_sizes(graph, results, graph->output_count, options.sizes);
    describe_inputs(out, graph, options.sizes);
    options.results = results;
    options.result_count = graph->output_count;

    Plan *plan = NULL;
    Status status = plan_create(&plan, graph, &options, diag);
    if (status == STATUS_OK) {
        out->flops = plan_flops(plan);
        out->work = plan_work(plan);
        out->tokens = options.sizes[DIM_INDEX(DIM_T)];
        out->peak_bytes =
            (int64_t)plan_workspace_bytes(plan) + params_packed_bytes(graph);
    }
    plan_destroy(plan);
    free(results);
    return status;
}

double measure_get(const Measure *measure, MeasureKind kind) {
    switch (kind) {
    case MEASURE_PARAMETERS: return (double)measure->parameters;
    case MEASURE_BYTES: return (double)measure->bytes;
    case MEASURE_FLOPS: return measure->flops;
    default: return (double)measure->peak_bytes;
    }
}

const char *measure_name(MeasureKind kind) {
    static const char *const NAMES[MEASURE_KINDS] = {"parameters", "bytes", "flops",
                                                     "peak_bytes"};
    return NAMES[kind];
}

bool measure_is_share(double bound) {
    return bound <= 1;
}

double measure_bound(double bound, double whole) {
    const double rounding = 1e-12; /* 0.29 * 100 is 29 */
    return measure_is_share(bound) ? floor(bound * whole * (1 + rounding)) : bound;
}
