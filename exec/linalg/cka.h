/* Measures on activations and gradients, for diagnosis. */
#ifndef COMPRESS_EXEC_LINALG_CKA_H
#define COMPRESS_EXEC_LINALG_CKA_H

#include "exec/train/train.h"

/* Linear centred kernel alignment of x[samples, x_width] and y[samples, y_width]:
 * ||Yc^T Xc||_F^2 / (||Xc^T Xc||_F ||Yc^T Yc||_F) with columns centred, in [0, 1]
 * (Kornblith et al., ICML 2019, eq. 5). NaN when a side is constant. */
double linear_cka(const float *x, int64_t x_width, const float *y, int64_t y_width,
                  int64_t samples);

/* Gradient of the mean of `loss` over the first `limit` samples (0 = all), in batches, on
 * the calling thread: gradient[params_gradient_count(params)] must be zeroed. */
Status mean_gradient(Graph *graph, Node *loss, const Params *params, const Batches *data,
                     int64_t limit, int64_t batch_size, const Watch *watch,
                     float *gradient, Diag *diag);

/* Receives the gradient of the mean of the loss over one batch, n of total samples. */
typedef void (*GradientSink)(void *self, int64_t n, int64_t total, const float *gradient);

/* As mean_gradient, but hands the gradient of every batch to `sink` and starts from zero
 * again for the next one. */
Status batch_gradients(Graph *graph, Node *loss, const Params *params,
                       const Batches *data, int64_t limit, int64_t batch_size,
                       const Watch *watch, float *gradient, GradientSink sink, void *self,
                       Diag *diag);

#endif
