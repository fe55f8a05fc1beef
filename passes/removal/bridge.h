/* Bridges: a linear map in place of what is removed, that gives what it gave as nearly as
 * a linear map can, on calibration data. */
#ifndef COMPRESS_PASSES_REMOVAL_BRIDGE_H
#define COMPRESS_PASSES_REMOVAL_BRIDGE_H

#include "passes/oneshot/calibration.h"

/* What lies between two values x and y of one type, and what is told of it. */
typedef struct BridgeSpan {
    Node *x, *y;
    const char *stack;
    int layer;     /* place of the bridge, -1 = outside of layers */
    int64_t first; /* number in its name */
    double error;  /* ||y - W x - b|| / ||y - mean y|| over the rows, a result */
} BridgeSpan;

/* Adds linear(y, W, b), with role `bridge`, behind y, for whoever read y: once x has
 * taken the place of y, it is the bridge. W = I + C (H + damp mean(diag H) I)^-1 with the
 * covariances H of x and C of y - x and x, b = mean y - W mean x: least squares for y,
 * with W drawn to the identity. `calibration` NULL (planning): shapes alone. Fails as
 * calibration_rows does, and with STATUS_MODEL at `damp` where rows depend on each other.
 */
Status bridge_add(PassContext *ctx, Graph *graph, Calibration *calibration, double damp,
                  BridgeSpan *span, Diag *diag);

#endif
