/* Optimizer: AdamW and SGD over the flat array of weights.
 *
 * Work goes by blocks of fixed size, each by one thread, so that results do not depend on
 * the number of threads. */
#ifndef COMPRESS_EXEC_OPTIMIZER_H
#define COMPRESS_EXEC_OPTIMIZER_H

#include "exec/train.h"

typedef struct Optimizer Optimizer;

/* Checks the options that fields cannot: STATUS_RECIPE for a malformed lr_groups entry.
 */
Status optimizer_check(const TrainOptions *options, Diag *diag);

/* Sets up state for the storages of `graph` that `plan` computes gradients for; others
 * are left alone. Fails with STATUS_MEMORY, and STATUS_MODEL when there are none.
 * Everything given must outlive it. */
Status optimizer_create(Optimizer **out, const Graph *graph, const Plan *plan,
                        Params *params, const TrainOptions *options, Diag *diag);
void optimizer_destroy(Optimizer *optimizer);

/* Bytes of state for `count` weights: moments and averaged weights. */
size_t optimizer_bytes(const TrainOptions *options, int64_t count);

/* Adds gradients[1 .. shards) to gradients[0], in that order, and returns the norm. */
double optimizer_sum(Optimizer *optimizer, float *const *gradients, int64_t shards,
                     int threads);

/* Step `step` (from 0) with `scale` times the gradient, at learning rate `rate`. */
void optimizer_step(Optimizer *optimizer, const float *gradient, double scale,
                    double rate, int64_t step, int threads);

/* Puts the averaged weights, if any, in the place of the trained ones. */
void optimizer_finish(Optimizer *optimizer);

/* Whether a storage's name matches a pattern: equal, with * for any text ("head.*",
 * "*.feature_map.*"). */
bool name_matches(const char *pattern, const char *name);
bool name_matches_any(const StringList *patterns, const char *name);

#endif
