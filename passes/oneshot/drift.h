/* Drift: how far a value of a model that is being compressed has moved away from what it
 * was before, and what the inputs of a layer know of it, over a calibration set. */
#ifndef COMPRESS_PASSES_ONESHOT_DRIFT_H
#define COMPRESS_PASSES_ONESHOT_DRIFT_H

#include "passes/oneshot/calibration.h"

typedef struct Drift {
    int64_t outputs, inputs; /* M, K */
    double *cross;           /* sum of t x^T, t = value before - value now: [M, K] */
    double *mean;            /* of t: [M] */
} Drift;

/* The value of a layer's outputs to be followed, with rows that belong to those of its
 * inputs: the residual sum that a projection's result goes to, or where it goes
 * elsewhere or to other rows the result itself. */
Node *drift_value(const Graph *graph, Node *projection);

/* Gathers the drift of `value` of graph `now` from `value_before` of graph `before`, of
 * equal types, by inputs x of `now`; and the Gram matrix of x, finished. Both
 * calibrations must have been opened alike. Fails as calibration_gram does. */
Status drift_gather(Drift *drift, Gram *gram, Calibration *now, Node *x, Node *value,
                    Calibration *before, Node *value_before, Diag *diag);

/* Frees the sums. */
void drift_free(Drift *drift);

#endif
