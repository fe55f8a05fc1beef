/* Drift: how far a value of a model under compression has moved from what it was before,
 * and what a layer's inputs say about that, over a calibration set. */
#ifndef COMPRESS_PASSES_ONESHOT_DRIFT_H
#define COMPRESS_PASSES_ONESHOT_DRIFT_H

#include "passes/oneshot/calibration.h"

/* The model as the step received it, run over the same samples: what the layers of the
 * compressed model should compute. */
typedef struct Before {
    PassContext ctx;
    Watch watch; /* tells no progress */
    Arena *arena;
    Graph *graph;
    Node **twins; /* by Node.id of the graph that is compressed */
    Calibration *calibration;
} Before;

/* Copies the step's graph, which must not have been changed yet, and opens the
 * calibration set again for the copies of `values`. Fails as calibration_open does; to
 * be closed even after failure. */
Status before_open(Before *before, const PassContext *ctx, Graph *graph,
                   Node *const *values, int count, const CalibrationOptions *options,
                   Diag *diag);
void before_close(Before *before);

typedef struct Drift {
    int64_t outputs, inputs; /* M, K */
    double *cross;           /* sum of t x^T, t = value before - value now: [M, K] */
    double *mean;            /* of t: [M] */
} Drift;

/* The value to follow for a layer's outputs, with rows that match those of its inputs:
 * the residual sum that a projection's result goes to, or the result itself if it goes
 * elsewhere or to other rows. */
Node *drift_value(const Graph *graph, Node *projection);

/* Gathers the drift of `value` in graph `now` (which may be x) from its earlier
 * counterpart, by inputs x of `now`; and the finished Gram matrix of x. Fails as
 * calibration_gram does. */
Status drift_gather(Drift *drift, Gram *gram, Calibration *now, Node *x, Node *value,
                    const Before *before, Diag *diag);

/* Frees the sums. */
void drift_free(Drift *drift);

#endif
