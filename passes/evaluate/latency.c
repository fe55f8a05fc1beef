/* Latency: see latency.h. */
#include "passes/evaluate/latency.h"

#include "exec/run/ranks.h"
#include "exec/run/run.h"
#include "ir/random.h"
#include "passes/measure.h"

#include <stdlib.h>
#include <string.h>

/* What one sample is run with. */
typedef struct Trial {
    Plan *plan;
    Params *params;
    Workspace *workspace;
    Node **results;
} Trial;

static Status trial_open(Trial *trial, Graph *graph, Diag *diag) {
    PlanOptions options = {.precision = PRECISION_F32,
                           .result_count = graph->output_count};
    trial->results = memory_alloc((size_t)graph->output_count + 1, sizeof(Node *));
    for (int i = 0; i < graph->output_count; i++)
        trial->results[i] = graph->outputs[i].node;
    options.results = trial->results;
    memcpy(options.sizes, measure_sizes, sizeof options.sizes);
    plan_fit_sizes(graph, trial->results, graph->output_count, options.sizes);
    TRY(plan_create(&trial->plan, graph, &options, diag));
    TRY(params_create_packed(&trial->params, graph, PARAMS_OFTEN, diag));
    TRY(workspace_create(&trial->workspace, diag));
    return workspace_bind(trial->workspace, trial->plan, trial->params, diag);
}

static void trial_close(Trial *trial) {
    workspace_destroy(trial->workspace);
    params_destroy(trial->params);
    plan_destroy(trial->plan);
    free(trial->results);
}

static void fill_input(const Trial *trial, const Node *input) {
    void *data = workspace_input(trial->workspace, input->name);
    if (!data) return;
    const PlanNode *node = workspace_input_node(trial->workspace, input->name);
    const int32_t one = plan_index_limit(trial->plan, input) != 1;
    const uint64_t key = random_key_name(0, input->name);
    for (int64_t i = 0; i < node->count; i++) {
        if (node->type.dtype == DTYPE_I32)
            ((int32_t *)data)[i] = one;
        else
            ((float *)data)[i] = (float)random_normal(key, (uint64_t)i);
    }
}

static int compare_times(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int64_t count) {
    qsort(times, (size_t)count, sizeof *times, compare_times);
    return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

static Status time_runs(const Trial *trial, double *seconds, int64_t runs,
                        const Watch *watch, Diag *diag) {
    Ticker ticker = {.watch = watch};
    run_forward(trial->workspace, (RunMode){0});
    for (int64_t i = 0; i < runs; i++) {
        TRY(ticker_go_on(&ticker, diag));
        const double start = ticker_seconds();
        run_forward(trial->workspace, (RunMode){0});
        seconds[i] = ticker_seconds() - start;
    }
    return STATUS_OK;
}

static Status measure(double *milliseconds, Model *model, int64_t runs,
                      const Watch *watch, Diag *diag) {
    Trial trial = {0};
    double *seconds = memory_alloc((size_t)runs, sizeof *seconds);
    Status status = trial_open(&trial, model->graph, diag);
    for (Node *node = model->graph->first; node && status == STATUS_OK; node = node->next)
        if (node->name) fill_input(&trial, node);
    if (status == STATUS_OK) status = time_runs(&trial, seconds, runs, watch, diag);
    if (status == STATUS_OK) *milliseconds = 1e3 * median(seconds, runs);
    trial_close(&trial);
    free(seconds);
    return status;
}

Status model_latency(double *milliseconds, Model *model, int64_t runs, const Watch *watch,
                     Diag *diag) {
    const Status mine =
        ranks_number() == 0 ? measure(milliseconds, model, runs, watch, diag) : STATUS_OK;
    TRY(ranks_agree(mine, diag));
    return ranks_broadcast(milliseconds, sizeof *milliseconds, 0, diag);
}
