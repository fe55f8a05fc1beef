/* Posterior: Gaussians of a model's weights from samples of them, taken one at a time.
 *
 * Of K samples w_1..w_K of all weights together, with w their mean, the covariance is
 *
 *     s (1 / (K - 1) sum_k (w_k - w)(w_k - w)^T + l I)
 *
 * in one of the forms of ir/gaussian.h, with l = jitter times the mean variance of all
 * weights and s = prior_scale; then variances below prior_floor are raised to it. Memory:
 * diagonal two doubles an element, low_rank the K samples themselves, kron two doubles an
 * element and the covariances. kron: with D_k = W_k - W of a matrix [n, m],
 * U = sum_k D_k D_k^T / ((K - 1) m), V = sum_k D_k^T D_k / ((K - 1) tr(U) m / n): the
 * estimate by moments, whose variances have the samples' sums over rows and columns; U
 * and V get `jitter` times their own mean variance. Weights that are not matrices, and
 * matrices with a side above POSTERIOR_KRON_MOST, become diagonal. */
#ifndef COMPRESS_PASSES_POSTERIOR_POSTERIOR_H
#define COMPRESS_PASSES_POSTERIOR_POSTERIOR_H

#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/nodes.h"

#define POSTERIOR_KRON_MOST 4096

enum { POSTERIOR_MEAN_WEIGHTS, POSTERIOR_MEAN_SAMPLES };

typedef struct PosteriorOptions {
    int covariance;  /* GaussianForm */
    int64_t samples; /* K, at least 2 */
    int mean;        /* POSTERIOR_MEAN_ */
    double jitter, scale, floor;
} PosteriorOptions;

/* What is gathered of one storage. */
typedef struct PosteriorPart {
    Storage *storage; /* of the model */
    Gaussian *normal; /* given to the storage by posterior_finish; of form low_rank its
                           factor holds the samples */
    Tensor mean;   /* diagonal, kron: F64, of the samples so far (kron: from `first`) */
    Tensor square; /* diagonal: F64, sums of squares of deviations */
    Tensor first;  /* kron: F32, the first sample */
    Tensor row, column; /* kron: F64, sums of products of deviations from `first` */
} PosteriorPart;

typedef struct Posterior {
    PassContext *ctx;
    const PosteriorOptions *options;
    Model *model;
    PosteriorPart *parts; /* in the context's arena */
    int part_count;
    int64_t taken;    /* samples */
    int64_t elements; /* of all parts */
    int wide;         /* kron: matrices that are diagonal for their size */
} Posterior;

/* Starts for the storages of a model that `train` trains (real, neither frozen nor left
 * out), dropping the Gaussians that the model has. When planning, nothing is allocated
 * and the storages get shapes at once. Call posterior_close in any case. Fails with
 * STATUS_MODEL when there are none, STATUS_MEMORY. */
Status posterior_open(Posterior *posterior, PassContext *ctx, Model *model,
                      const PosteriorOptions *options, const TrainOptions *train,
                      Diag *diag);

/* Bytes that gathering and the Gaussians take. */
size_t posterior_bytes(const Posterior *posterior);

/* Takes the weights of a graph as the next sample: storages are found by name and hold
 * numbers of the same shapes. At most K samples. Fails with STATUS_MEMORY, or
 * STATUS_MODEL when a weight is not finite. */
Status posterior_take(Posterior *posterior, const Graph *graph, Diag *diag);

/* Puts what was gathered into the state of a training run, as views, and takes it back:
 * `taken` samples. Loading fails with STATUS_MODEL if the state does not match. */
void posterior_save(const Posterior *posterior, TrainState *state);
Status posterior_load(Posterior *posterior, TrainState *state, int64_t taken, Diag *diag);

/* Gives the model's storages their Gaussians and records what they are like. All K
 * samples must have been taken. Fails with STATUS_MODEL when the samples do not differ
 * (and no prior_floor is given), STATUS_MEMORY. */
Status posterior_finish(Posterior *posterior, Diag *diag);

/* Frees what gathering took. */
void posterior_close(Posterior *posterior);

#endif
