/* Bridges: a linear map in place of what is removed, which reproduces its output on
 * calibration data as closely as a linear map can. */
#ifndef COMPRESS_PASSES_REMOVAL_BRIDGE_H
#define COMPRESS_PASSES_REMOVAL_BRIDGE_H

#include "passes/oneshot/calibration.h"

/* What lies between two values x and y of one type, and what is reported about it. */
typedef struct BridgeSpan {
    Node *x, *y;
    const char *stack;
    int layer;     /* place of the bridge, -1 = outside of layers */
    int64_t first; /* number in its name */
    double error;  /* ||y - W x - b|| / ||y - mean y|| over the rows, a result */
} BridgeSpan;

/* Adds linear(y, W, b), with role `bridge`, after y, for all readers of y: once x has
 * taken the place of y, it is the bridge. W = I + C (H + damp mean(diag H) I)^-1 with
 * the covariances H of x and C of y - x and x, b = mean y - W mean x: least squares for
 * y, with W drawn to the identity. `calibration` NULL (planning): shapes only. Fails as
 * calibration_rows does, and with STATUS_MODEL at `damp` if rows depend on each other.
 */
Status bridge_add(PassContext *ctx, Graph *graph, Calibration *calibration, double damp,
                  BridgeSpan *span, Diag *diag);

#endif
