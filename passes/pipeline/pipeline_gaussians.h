/* What a step does to the posterior of the model's weights: it follows its storages, or
 * is dropped with a message. Private to the pipeline. */
#ifndef COMPRESS_PASSES_PIPELINE_PIPELINE_GAUSSIANS_H
#define COMPRESS_PASSES_PIPELINE_PIPELINE_GAUSSIANS_H

#include "passes/pass.h"

/* Storages that had a Gaussian before a step. */
typedef struct KnownGaussians {
    Storage **storages;
    int count;
} KnownGaussians;

/* Those of a graph, in an arena. */
KnownGaussians gaussians_known(const Graph *graph, Arena *arena);

/* After the step: drops what does not fit its storage any more, and warns of storages
 * that are still there and lost theirs; their number goes into the record. A step that
 * was asked to drop them has put it there itself, and there is no warning. */
void gaussians_follow(const KnownGaussians *known, PassContext *ctx, Graph *graph,
                      Diag *diag);

#endif
