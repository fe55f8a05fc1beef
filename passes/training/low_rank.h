/* Low rank: matrices that stay unchanged while a small update is trained.
 *
 * Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022, section 4.1:
 * y = W x + b becomes W x + b + s B A x, with A [r, inputs] and B [outputs, r] trained, s
 * = alpha / r, and all else frozen. A is drawn, B is 0, so that training starts from the
 * model itself. Afterwards s B A is added to W: the model has its old graph again. */
#ifndef COMPRESS_PASSES_TRAINING_LOW_RANK_H
#define COMPRESS_PASSES_TRAINING_LOW_RANK_H

#include "exec/train/train_options.h"
#include "passes/context.h"

/* A matrix with an update; all readers of the matrix share it. */
typedef struct LowRankSite {
    Node *leaf;  /* the matrix, in the training graph */
    Node *down;  /* A: leaf [r, inputs] */
    Node *up;    /* B: leaf [outputs, r] */
    bool turned; /* the matrix is stored [inputs, outputs] */
} LowRankSite;

typedef struct LowRank {
    LowRankSite *sites; /* in the arena of the training graph */
    int count;
    double scale; /* s */
} LowRank;

/* Checks options that low_rank excludes, or that need it. Fails with STATUS_RECIPE. */
Status low_rank_check(const TrainOptions *options, const StepSource *source, Diag *diag);

/* Adds updates to the linears of a training graph whose matrices are weights of `model`
 * named by options->only; if that is empty, to the projections of attention (roles q, k,
 * v, out, and those of cross-attention). Never to matrices that options->freeze or
 * options->low_rank_whole name, or that are frozen. All storages except the updates' and
 * those that low_rank_whole names are frozen. All readers of a linear, losses included,
 * read the sum instead. Writes what was done into the step's record.
 *
 * Fails with STATUS_MODEL if nothing is left to update, or a matrix is quantised,
 * multiplied with rounded inputs, or read by anything but linears of one orientation. */
Status low_rank_add(LowRank *out, PassContext *ctx, Graph *graph, const Graph *model,
                    const TrainOptions *options, Diag *diag);

/* Gives the storages of the same names in `into` the values W + s B A as float32, summed
 * in double and rounded once; when planning, only the dtype. Fails with STATUS_MEMORY.
 */
Status low_rank_merge(const LowRank *low_rank, Graph *into, Diag *diag);

#endif
