/* Train: epochs and steps over a data set.
 *
 * Determinism: the gradient of a mini-batch is that of exec/train/shards.h, its shards
 * added by one tree (exec/train/gradient_tree.h), so the bytes depend on seed, shards
 * and micro_batch, never on the number of threads.
 *
 * Losses are means over the samples of a mini-batch, or over those of its rows that
 * count (Op.count_rows, for example labels of tokens), however it is cut. */
#ifndef COMPRESS_EXEC_TRAIN_TRAIN_H
#define COMPRESS_EXEC_TRAIN_TRAIN_H

#include "exec/plan/plan_work.h"
#include "exec/run/forward.h"
#include "exec/train/train_options.h"

/* A row of the curve: means over the steps since the row before. */
typedef struct TrainRow {
    int64_t step; /* the last one, from 1 */
    double loss, prior;
    const double *parts;  /* by part of the loss */
    double gradient_norm; /* before clipping */
    double learning_rate; /* of the last step, for storages without their own factor */
    bool measured;        /* the row ends with a measurement on a development set */
    double value;         /* what it found */
} TrainRow;

/* The outcome of a training run. */
typedef struct TrainReport {
    int64_t steps;                /* that were done... */
    int64_t total;                /* ...out of this many: fewer if patience ended it */
    int64_t shards;               /* of a full mini-batch: see TrainNeeds */
    double first_loss, last_loss; /* means over the first and the last epoch (or tenth);
                                   * if training ended early, last_loss and part_loss are
                                   * over the steps between the last two measurements
                                   */
    TrainRow *rows;               /* the curve; arena */
    int row_count;
    double *part_loss;   /* arena; mean over the last epoch of each of `parts` */
    double largest_norm; /* of the gradient before clipping */

    /* With a development set. */
    int64_t best_step; /* of the best measurement; 0 = none was finite */
    double best_value;

    /* Objectives with a prior: what it adds, over the same steps; for map, without the
     * constant of its density. Zeros for the likelihood. */
    double first_prior, last_prior;
    int prior_storages;   /* trained under a prior */
    StringList priorless; /* those trained without one; arena */
} TrainReport;

/* Trains the storages of `graph` that are not frozen to lower `loss` (a scalar node).
 * Inputs are fed from the data set's columns of the same name; an input without a column
 * is an error. `parts` are further scalars whose means are reported. Weights change in
 * place. On failure or cancellation the weights are what they were at that moment.
 * For objectives with a prior see exec/train/prior.h: storages under a prior have no
 * weight decay, and are trained even where the loss does not depend on them; variational
 * inference leaves the means as weights and q as the storages' Gaussians.
 * A non-finite loss stops with STATUS_MODEL naming step and part.
 * With options->measure, the weights are measured every dev_every steps and after the
 * last one; `keep` decides which are chosen and `patience` when training ends. With
 * options->keeper, the run continues from the state that an earlier one left, and leaves
 * its own: see exec/train/train_state.h. A state that does not fit is refused with
 * STATUS_MODEL, the weights unchanged. */
Status train(Graph *graph, Node *loss, Node *const *parts, int part_count,
             const Batches *data, const TrainOptions *options, uint64_t seed, int threads,
             const Watch *watch, Arena *arena, TrainReport *report, Diag *diag);

/* What an optimiser step does, for sequences of `tokens` tokens; samples 0 = nothing is
 * trained. */
typedef struct TrainWork {
    PlanWork work; /* of all samples of a mini-batch, forward and backward */
    int64_t samples, tokens;
    int64_t weights; /* that are trained */
} TrainWork;

/* What training takes. */
typedef struct TrainNeeds {
    size_t bytes; /* in addition to the model's weights: workspaces of all shards that run
                     at once, gradients, optimiser state, averaged weights, priors */
    int64_t shards; /* of a full mini-batch: see shards_threads */
    TrainWork step;
} TrainNeeds;

/* Fails with STATUS_RECIPE if a mini-batch, or a part of one, would cut a group of
 * samples that belong together (batches_group). */
Status train_check_groups(const Batches *data, const TrainOptions *options, Diag *diag);

/* Fails with STATUS_MODEL if the objective needs a prior and there is none. */
Status train_plan(Graph *graph, Node *loss, const TrainOptions *options, int threads,
                  TrainNeeds *needs, Diag *diag);

#endif
