/* Prior: what the weights of a model start from after structure was removed from it.
 *
 * Bayesian distillation ("Bayesian distillation of transformer models", theorems 2 to 5):
 * given a posterior of the teacher's weights (estimate_posterior), the student's prior
 * is the posterior conditioned on the weights whose values make the removed structure
 * the identity; see passes/posterior/condition.h. The choices of `prior`:
 *
 *     copy      the weights that stay, as they are; Gaussians stay too (a marginal)
 *     gaussian  the prior's mean becomes the weights, mean and covariance stay with them
 *     random    new weights by their initial distributions, without Gaussians
 *
 * A pass gathers the entries that are set (v2) and those that go (v1) before it edits the
 * graph. */
#ifndef COMPRESS_PASSES_POSTERIOR_PRIOR_H
#define COMPRESS_PASSES_POSTERIOR_PRIOR_H

#include "passes/posterior/condition.h"

#define PRIOR_NAMES "copy|gaussian|random"
typedef enum PriorKind { PRIOR_COPY, PRIOR_GAUSSIAN, PRIOR_RANDOM } PriorKind;

/* Row of a pass's option `prior`. */
#define F_PRIOR(S)                                                                       \
    F_CHOICE(S, prior, PRIOR_NAMES,                                                      \
             "weights that stay: as they are; the mean of their posterior (see "         \
             "estimate_posterior) given that what goes is zero, with its variances; or " \
             "new ones")

/* Slices, gathered one by one; in an arena. */
typedef struct SliceList {
    ConditionSlice *items;
    int count, capacity;
} SliceList;

/* Appends a slice. */
void slices_add(Arena *arena, SliceList *list, ConditionSlice slice);

/* Conditions the Gaussians of a graph on `given` and records it as "conditioning". Call
 * before the entries of `removed` go, condition_set_weights after it. Fails with
 * STATUS_MODEL when no weights have a posterior, with a hint, or as condition_gaussians
 * does. */
Status prior_condition(PassContext *ctx, Graph *graph, const SliceList *given,
                       const SliceList *removed, Diag *diag);

/* Draws all weights anew, seeded by the step, and drops their Gaussians. */
Status prior_redraw(PassContext *ctx, Model *model, Diag *diag);

/* Fails with STATUS_MODEL and a hint when no weight of the graph has a posterior, which
 * `option` needs. */
Status prior_require(PassContext *ctx, const Graph *graph, const char *option,
                     Diag *diag);

#endif
