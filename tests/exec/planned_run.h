/* A plan of any model with what it needs to run, on made-up inputs of its precision. */
#ifndef COMPRESS_TESTS_EXEC_PLANNED_RUN_H
#define COMPRESS_TESTS_EXEC_PLANNED_RUN_H

#include "exec/plan/plan_build.h"
#include "exec/run/run.h"
#include "ir/random.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

typedef struct Run {
    Plan *plan;
    Params *params;
    Workspace *workspace;
    void *gradients; /* float or double [count], zeros */
    int64_t count;
} Run;

/* `trained`: as params_create's `train`. */
static inline Run run_open(Graph *graph, const PlanOptions *options, bool trained,
                           Diag *diag) {
    Run run = {0};
    assert_ok(plan_create(&run.plan, graph, options, diag), diag);
    assert_ok(params_create(&run.params, graph, options->precision, trained, diag), diag);
    if (options->bf16) assert_ok(params_open_rounded(run.params, run.plan, diag), diag);
    assert_ok(workspace_create(&run.workspace, diag), diag);
    assert_ok(workspace_bind(run.workspace, run.plan, run.params, diag), diag);
    run.count = params_gradient_count(run.params);
    run.gradients = memory_alloc((size_t)run.count, plan_real_bytes(run.plan));
    return run;
}

static inline void run_close(Run *run) {
    workspace_destroy(run->workspace);
    params_destroy(run->params);
    plan_destroy(run->plan);
    free(run->gradients);
}

/* Each sample's mask leaves out one token more at the end. */
static inline void run_fill_integers(const Run *run, const PlanNode *input,
                                     int32_t *out) {
    const int64_t limit = plan_index_limit(run->plan, input->node);
    const int64_t row = input->type.rank > 0 ? input->type.dim[input->type.rank - 1] : 1;
    for (int64_t i = 0; i < input->count; i++) {
        out[i] = (int32_t)((i * 7 + 3) % (limit > 0 ? limit : 2));
        if (strstr(input->node->name, "attention_mask"))
            out[i] = i % row < row - 1 - i / row;
    }
}

static inline void run_fill_reals(const Run *run, const PlanNode *input, void *data) {
    for (int64_t i = 0; i < input->count; i++) {
        const double value = random_normal(9, (uint64_t)i);
        if (run->plan->precision == PRECISION_F64)
            ((double *)data)[i] = value;
        else
            ((float *)data)[i] = (float)value;
    }
}

/* Fills all inputs of the plan. */
static inline void run_fill(const Run *run) {
    for (int i = 0; i < run->plan->node_count; i++) {
        const PlanNode *input = &run->plan->nodes[i];
        if (input->forward >= 0 || !input->node->name) continue;
        void *data = workspace_input(run->workspace, input->node->name);
        if (input->type.dtype == DTYPE_I32)
            run_fill_integers(run, input, data);
        else
            run_fill_reals(run, input, data);
    }
}

#endif
