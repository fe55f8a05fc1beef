/* Low rank: matrices that stay as they are while an update of few numbers is trained.
 *
 * Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022, section 4.1:
 * y = W x + b becomes W x + b + s B A x, with A [r, inputs] and B [outputs, r] trained, s
 * = alpha / r, and all else frozen. A is drawn, B is 0, so that training starts from what
 * the model is. Afterwards s B A is added to W: the model has its old graph. */
#ifndef COMPRESS_PASSES_TRAINING_LOW_RANK_H
#define COMPRESS_PASSES_TRAINING_LOW_RANK_H

#include "exec/train/train_options.h"
#include "passes/context.h"

/* A matrix with an update; whoever reads the matrix shares it. */
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

/* Checks options that low_rank does not go with, or that need it. Fails with
 * STATUS_RECIPE. */
Status low_rank_check(const TrainOptions *options, const StepSource *source, Diag *diag);

/* Puts updates beside the linears of a training graph whose matrices are weights of
 * `model` and called by options->only; where that is empty, beside the projections of
 * attention (roles q, k, v, out, and those of cross-attention). Never of such that
 * options->freeze or options->low_rank_whole call, or that are frozen. All storages but
 * the updates' and those that low_rank_whole calls are frozen. Whoever read a linear, the
 * losses too, reads the sum. Writes what was done into the step's record.
 *
 * Fails with STATUS_MODEL where nothing is left to update, where a matrix is quantised or
 * multiplied with rounded inputs, and where something else than linears of one
 * orientation reads it. */
Status low_rank_add(LowRank *out, PassContext *ctx, Graph *graph, const Graph *model,
                    const TrainOptions *options, Diag *diag);

/* Gives the storages of the same names in `into` the values W + s B A as float32, summed
 * in double and rounded once; when planning, their dtype alone. Fails with STATUS_MEMORY.
 */
Status low_rank_merge(const LowRank *low_rank, Graph *into, Diag *diag);

#endif
