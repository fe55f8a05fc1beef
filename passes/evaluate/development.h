/* Development: what a model is worth on a development set while it is trained, as
 * `evaluate` measures it, at the last exit. */
#ifndef COMPRESS_PASSES_EVALUATE_DEVELOPMENT_H
#define COMPRESS_PASSES_EVALUATE_DEVELOPMENT_H

#include "passes/evaluate/evaluation.h"

typedef struct Development {
    PassContext *ctx;
    Model *model;
    const Graph *trained; /* holds the weights that are measured */
    EvaluateOptions options;
    const char *metric; /* its name; in the context's arena */
    TrainMeasure measure;
} Development;

/* Checks that the model can be measured on the set that train->dev names by
 * train->dev_metric, as planning an `evaluate` step would; messages point at these
 * options. `trained` is a graph whose storages have the names of the model's. All that is
 * given must outlive it; nothing is to be freed. Fails with STATUS_MODEL, and as
 * step_data does. */
Status development_open(Development *development, PassContext *ctx, Model *model,
                        const Graph *trained, const TrainOptions *train, Diag *diag);

#endif
