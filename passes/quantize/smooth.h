/* Smoothing: activations with a few large columns round badly to 8 bits. A norm's output
 * is divided by factors s, column by column, in its gain and bias, and the columns of
 * the linear layers that read it are multiplied by them (Xiao et al., SmoothQuant,
 * 2023): the function is unchanged. */
#ifndef COMPRESS_PASSES_QUANTIZE_SMOOTH_H
#define COMPRESS_PASSES_QUANTIZE_SMOOTH_H

#include "passes/oneshot/calibration.h"

typedef struct SmoothReport {
    int64_t norms; /* whose outputs were smoothed */
} SmoothReport;

/* s_j = max|x_j|^part / max|W_j|^(1 - part), the first over the calibration data, the
 * second over all rows of the layers, for every layer_norm or rms_norm that has weights
 * of its own and is read only by linear layers with a weight among `leaves`. Fails with
 * STATUS_MODEL at the option "smooth" if there is none. */
Status smooth_activations(SmoothReport *report, PassContext *ctx, Graph *graph,
                          Calibration *calibration, Node *const *leaves, int count,
                          double part, Diag *diag);

#endif
