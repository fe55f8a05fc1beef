/* Gradients: of a loss over the samples of a data set, without training.
 *
 * Batches are run one after another, by all threads together, because a gradient is as
 * large as the weights. If the job has several ranks (exec/run/ranks.h), each runs its
 * share of the batches. The bytes are the same for any number of threads and ranks. */
#ifndef COMPRESS_EXEC_RUN_GRADIENTS_H
#define COMPRESS_EXEC_RUN_GRADIENTS_H

#include "exec/run/run.h"
#include "exec/run/ticker.h"

/* What is differentiated, all of it borrowed: `loss`, over the first `limit` samples (0 =
 * all), in batches. */
typedef struct GradientRun {
    Graph *graph;
    Node *loss;
    const Params *params;
    const Batches *data;
    int64_t limit, batch_size;
    int threads;
    const Watch *watch; /* may be NULL */
} GradientRun;

/* Number of parts of the batches, of equal size, whose gradients are each added up batch
 * by batch, and then in the order of the gradient tree (exec/train/gradient_tree.h):
 * this many ranks can share a mean gradient. */
enum { GRADIENT_PARTS = 8 };

/* Gradients held at once in one rank, including the result: those of the tree that wait
 * for others. */
int mean_gradient_buffers(int64_t samples, int64_t batch_size);

/* Collective. Gradient of the mean of the loss: gradient[params_gradient_count(params)]
 * must be zeroed. Fails as a run does, and with STATUS_INTERRUPTED when the watch says
 * so. */
Status mean_gradient(const GradientRun *run, float *gradient, Diag *diag);

/* Computes a few numbers from the gradient of the mean of the loss over one batch.
 * Called in the rank that ran the batch. */
typedef void GradientReduce(void *self, const float *gradient, double *numbers);

/* Collective. As mean_gradient, but adds up numbers[count] for the gradient of every
 * batch, weighted by its share of the samples, in the order of the batches; sums[count]
 * must be zeroed. */
Status batch_gradients(const GradientRun *run, GradientReduce *reduce, void *self,
                       double *sums, int64_t count, Diag *diag);

#endif
