/* Run memory: what walking a data set takes, foretold from shapes. */
#ifndef COMPRESS_PASSES_RUN_MEMORY_H
#define COMPRESS_PASSES_RUN_MEMORY_H

#include "passes/context.h"

/* A graph run over a data set, all of it borrowed. */
typedef struct DataRun {
    Graph *graph;
    Node *const *roots; /* that are wanted; with `gradient` the loss alone */
    int root_count;
    const Batches *data;
    int64_t batch; /* samples at a time */
    bool gradient; /* backward as well, in one lane (exec/run/gradients.h) */
    bool mean;     /* for mean_gradient */
    bool by_layer; /* a block at a time: passes/oneshot/calibration.h */
} DataRun;

/* Planning: lets ctx->run_bytes be at least what such a run takes beside the model's
 * weights, at the longest samples there are: workspaces of all threads, samples, weights
 * as products read them, gradients, and `more` bytes of the pass's own. Fails as
 * feed_check and plan_create do. */
Status step_plan_run(PassContext *ctx, const DataRun *run, size_t more, Diag *diag);

#endif
