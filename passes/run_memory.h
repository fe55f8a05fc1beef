/* Run memory: what a run over a data set takes, predicted from shapes. */
#ifndef COMPRESS_PASSES_RUN_MEMORY_H
#define COMPRESS_PASSES_RUN_MEMORY_H

#include "passes/context.h"

/* A graph run over a data set, all of it borrowed. */
typedef struct DataRun {
    Graph *graph;
    Node *const *roots; /* the results wanted; with `gradient`, only the loss */
    int root_count;
    const Batches *data;
    int64_t batch; /* samples at a time */
    bool gradient; /* backward as well, in one lane (exec/run/gradients.h) */
    bool mean;     /* for mean_gradient */
    bool by_layer; /* a block at a time: passes/oneshot/calibration.h */
} DataRun;

/* Planning: raises ctx->run_bytes to at least what such a run takes in addition to the
 * model's weights, for the longest samples: workspaces of all threads, samples, weights
 * as products read them, gradients, and `more` bytes of the pass's own. Fails as
 * feed_check and plan_create do. */
Status step_plan_run(PassContext *ctx, const DataRun *run, size_t more, Diag *diag);

#endif
