/* Optimizer: AdamW and SGD over the flat array of weights.
 *
 * Work is done in blocks of fixed size, each by one thread, so results do not depend on
 * the number of threads. With several ranks, each updates the elements that it owns
 * (exec/train/rank_parts.h), holds only their moments, and sends the weights to the
 * others.
 *
 * Moments are floats or, on request, numbers of bfloat16 that are rounded at random
 * (exec/loops/loops.h) by the step's key and the element's number, so that bytes depend
 * neither on threads nor on ranks. */
#ifndef COMPRESS_EXEC_TRAIN_OPTIMIZER_H
#define COMPRESS_EXEC_TRAIN_OPTIMIZER_H

#include "exec/run/run.h"
#include "exec/train/train_options.h"
#include "exec/train/train_state.h"

typedef struct Optimizer Optimizer;

/* Sets up state for the storages of `graph` that `plan` computes gradients for, or that
 * are trained under a prior; others are not touched. `samples` is the data set's number
 * of samples. Fails with STATUS_MEMORY, STATUS_MODEL when there are none, and as
 * prior_create does. Everything given must outlive it. */
Status optimizer_create(Optimizer **out, Graph *graph, const Plan *plan, Params *params,
                        const TrainOptions *options, int64_t samples, Diag *diag);
void optimizer_destroy(Optimizer *optimizer);

/* Fails with STATUS_MODEL, as optimizer_create does, if a plan computes no gradient for
 * any weight that is not frozen. */
Status optimizer_check_plan(const Graph *graph, const Plan *plan, Diag *diag);

/* Bytes of state for the graph, in this rank: moments, averaged and best weights, priors.
 */
size_t optimizer_bytes(const Graph *graph, const TrainOptions *options);

/* Elements that gradients[0] must have room for: one for each weight, followed by one
 * for each trained log variance. */
int64_t optimizer_count(const Optimizer *optimizer);

/* Puts the weights of the step with random key `key` in place: drawn ones in variational
 * inference; otherwise they are in place already. */
void optimizer_draw(Optimizer *optimizer, uint64_t key, int threads);

/* Collective. Adds the gradients of all shards that are not NULL to gradients[0] by
 * exec/train/gradient_tree.h, and what the priors add; *norm is the norm of the whole.
 * With several ranks, each does so for its own elements of the single gradient. */
Status optimizer_sum(Optimizer *optimizer, float *const *gradients, int64_t shards,
                     int threads, double *norm, Diag *diag);

/* Collective. Step `step` (from 0), whose random key is `key`, with `scale` times the
 * gradient of optimizer_sum, at learning rate `rate`. */
Status optimizer_step(Optimizer *optimizer, const float *gradient, double scale,
                      double rate, int64_t step, uint64_t key, int threads, Diag *diag);

/* What the priors added to the objective in the last optimizer_sum; 0 without them. */
double optimizer_prior(const Optimizer *optimizer);

/* Storages that are trained: *with is the number of those under a prior, *without are the
 * names of the others (in the arena; none when the objective is the likelihood). */
void optimizer_describe(const Optimizer *optimizer, Arena *arena, int *with,
                        StringList *without);

/* Shows the weights that would be delivered now: puts averaged weights, if any, in place
 * of the trained ones, and restores means. Hiding them puts everything back. */
void optimizer_show(Optimizer *optimizer);
void optimizer_hide(Optimizer *optimizer);

/* Keeps the shown weights as the best so far, which optimizer_finish puts in place of
 * the last ones. Only with keep: best. */
void optimizer_keep_best(Optimizer *optimizer);

/* Collective. Puts everything trained, moments, averages and the best weights (if there
 * are any yet) into a state, as views, by storage. With several ranks, rank 0 receives
 * the moments of all; the states of the others have none. Fails with STATUS_MEMORY if
 * rank 0 has no room for them. */
Status optimizer_save(const Optimizer *optimizer, TrainState *state, Diag *diag);

/* Takes it back; `best` says whether there are best weights. Call after everything else
 * has been read from the state. Fails with STATUS_MODEL, with nothing taken over, if
 * something is missing or left over. */
Status optimizer_load(Optimizer *optimizer, TrainState *state, bool best, Diag *diag);

/* Puts means in place of drawn weights: call whenever others look at them between steps,
 * and after the last step whatever its outcome. */
void optimizer_restore_means(Optimizer *optimizer);

/* Puts the best weights, or else the averaged ones, if any, in place of the trained
 * ones, and restores means. The Gaussians become what prior_finish says. Fails with
 * STATUS_MEMORY. */
Status optimizer_finish(Optimizer *optimizer, Diag *diag);

#endif
