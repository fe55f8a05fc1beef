/* Prior: Gaussian priors of weights while they are trained (TrainOptions.objective).
 *
 * The prior of a storage is its Gaussian: mean and marginal variances, the latter times
 * prior_scale; correlations are ignored. With the loss L, a mean over the n samples of
 * the data set, and lambda = prior_weight, the objective is
 *
 *     map          L(w) - (lambda / n) log p(w)
 *     variational  E_q L(w) + (lambda / n) KL(q || p)
 *
 * over weights w, or over means and log variances of q. For variational inference, one w
 * is drawn for each step, shared by all its shards and micro-batches. The random number
 * for an element depends on the seed, the step, the storage's name and the element's
 * index in it, so it is the same for any cut into micro-batches and any number of
 * threads.
 *
 * Storages without a Gaussian are trained only on L, and are not drawn. */
#ifndef COMPRESS_EXEC_TRAIN_PRIOR_H
#define COMPRESS_EXEC_TRAIN_PRIOR_H

#include "exec/run/run.h"
#include "exec/train/train_options.h"

typedef struct Prior Prior;

/* A storage's range: elements [first, first + count) of the flat array of weights
 * (params_flat), [at, at + count) of the prior's own arrays. */
typedef struct PriorPart {
    Storage *storage;
    int64_t first, at, count;
} PriorPart;

/* Fails with STATUS_MODEL when the objective needs priors and no storage that is trained
 * has one. Shapes are enough. */
Status prior_check(const Graph *graph, const TrainOptions *options, Diag *diag);

/* Number of log variances that will be trained: 0 except for variational inference. */
int64_t prior_room(const Graph *graph, const TrainOptions *options);

/* Bytes that prior_create takes, including its share of the gradient. */
size_t prior_bytes(const Graph *graph, const TrainOptions *options);

/* Reads the priors of the storages in `params`; `samples` is n. *out is NULL when the
 * objective is the likelihood. Fails with STATUS_MODEL when a variance is not positive or
 * a number not finite, naming storage and element, and with STATUS_MEMORY. Everything
 * given must outlive it. */
Status prior_create(Prior **out, Graph *graph, Params *params,
                    const TrainOptions *options, int64_t samples, Diag *diag);
void prior_destroy(Prior *prior);

/* The storage's part; NULL when it has none, or `prior` is NULL. */
const PriorPart *prior_part(const Prior *prior, const Storage *storage);

/* What is trained instead of the weights in variational inference: the means of q in the
 * layout of the flat array, then log variances, those of a part from prior_log_variances
 * on. NULL for map, where the weights themselves are trained. */
float *prior_values(Prior *prior);

/* Number of log variances: 0 for map, or when `prior` is NULL. */
int64_t prior_deviations(const Prior *prior);
int64_t prior_log_variances(const Prior *prior, const PriorPart *part);

/* Draws the weights of a step; does nothing for map. */
void prior_draw(Prior *prior, uint64_t key, int threads);

/* Completes the gradient of elements [first, first + n) of the flat array, which lie in
 * `part`; gradients of log variances are written at their place in prior_values. Returns
 * what the prior adds to the objective. */
double prior_add(const Prior *prior, const PriorPart *part, float *gradient,
                 int64_t first, int64_t n);

/* Puts the means of q in place of the weights; does nothing for map. */
void prior_restore_means(Prior *prior);

/* After prior_restore_means: the Gaussian of every part becomes q, diagonal and F32, of
 * the same origin; for map it stays the prior. Fails with STATUS_MEMORY, the Gaussians
 * unchanged.
 */
Status prior_finish(Prior *prior, Diag *diag);

/* The same when planning, for storages that the options do not freeze: shapes only. */
void prior_plan(Graph *graph, const TrainOptions *options);

#endif
