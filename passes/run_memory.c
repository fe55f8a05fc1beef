/* Run memory: see run_memory.h. */
#include "passes/run_memory.h"

#include "exec/plan/plan_build.h"
#include "exec/plan/weight_layout.h"
#include "exec/run/feed.h"
#include "exec/run/gradients.h"
#include "exec/run/lanes.h"
#include "exec/run/params.h"

#include <string.h>

/* Bytes of `samples` samples as the data set gives them. */
static size_t sample_bytes(const Batches *data, int64_t sizes[DIM_SYMBOLS]) {
    size_t bytes = 0;
    Type bound;
    for (int i = 0; i < data->column_count; i++)
        if (type_bind(&data->columns[i].type, sizes, &bound))
            bytes += (size_t)type_count(&bound) * sizeof(float);
    return bytes * (size_t)sizes[DIM_INDEX(DIM_N)];
}

/* Gradients of all weights, as many as there are at once. */
static size_t gradient_bytes(const DataRun *run) {
    const size_t gradient = (size_t)params_layout(run->graph, NULL) * sizeof(float);
    const int gradients =
        run->mean ? mean_gradient_buffers(run->data->count, run->batch) : 1;
    return gradient * (size_t)gradients;
}

/* Scratch of the threads that share calls with those of the lanes. */
static size_t sharing_bytes(const PassContext *ctx, const Plan *plan, int64_t lanes) {
    const int64_t others =
        ctx->threads > lanes ? lanes_used(ctx->threads, lanes) - lanes : 0;
    return workspace_share_bytes(plan) * (size_t)others;
}

static bool same_layer(const Node *a, const Node *b) {
    const bool stacks =
        a->stack && b->stack ? strcmp(a->stack, b->stack) == 0 : a->stack == b->stack;
    return stacks && a->layer == b->layer;
}

/* Floats that two blocks read, which a call goes through at most: the largest layer's,
 * twice; what stands in no layer counts as one. */
static size_t layer_bytes(const Graph *graph) {
    size_t most = 0, bytes = 0;
    const Node *last = NULL; /* that reads weights */
    for (const Node *node = graph->first; node; node = node->next) {
        for (int i = 0; i < node->in_count; i++) {
            if (!node->in[i] || !node->in[i]->storage) continue;
            if (last && !same_layer(last, node)) bytes = 0;
            last = node;
            bytes += params_stored_bytes(graph, node->in[i]->storage);
            if (bytes > most) most = bytes;
        }
    }
    return 2 * most;
}

Status step_plan_run(PassContext *ctx, const DataRun *run, size_t more, Diag *diag) {
    const Batches *data = run->data;
    if (data->count == 0) return STATUS_OK;
    PlanOptions options = {.precision = PRECISION_F32,
                           .loss = run->gradient ? run->roots[0] : NULL,
                           .results = run->roots,
                           .result_count = run->gradient ? 0 : run->root_count};
    const int64_t batch = run->batch < data->count ? run->batch : data->count;
    TRY(feed_check(run->graph, run->roots, run->root_count, data, options.sizes, diag));
    options.sizes[DIM_INDEX(DIM_N)] = batch;
    Plan *plan = NULL;
    TRY(plan_create(&plan, run->graph, &options, diag));
    const int64_t chunks = lanes_chunks(data->count, batch);
    const int64_t lanes = run->gradient || ctx->threads < 1 ? 1
                          : chunks < ctx->threads           ? chunks
                                                            : ctx->threads;
    const size_t bytes =
        (plan_workspace_bytes(plan) + sample_bytes(data, options.sizes)) * (size_t)lanes;
    const size_t all =
        bytes + sharing_bytes(ctx, plan, lanes) +
        (run->gradient ? gradient_bytes(run) : 0) +
        (run->by_layer ? layer_bytes(run->graph) : params_copied_bytes(run->graph)) +
        more;
    if (all > ctx->run_bytes) ctx->run_bytes = all;
    plan_destroy(plan);
    return STATUS_OK;
}
