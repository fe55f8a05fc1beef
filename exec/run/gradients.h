/* Gradients: of a loss over the samples of a data set, without training. */
#ifndef COMPRESS_EXEC_RUN_GRADIENTS_H
#define COMPRESS_EXEC_RUN_GRADIENTS_H

#include "exec/run/run.h"
#include "exec/run/ticker.h"

/* Gradient of the mean of `loss` over the first `limit` samples (0 = all), in batches, on
 * the calling thread: gradient[params_gradient_count(params)] must be zeroed. Fails as
 * running does, and with STATUS_INTERRUPTED when the watch says so. */
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
