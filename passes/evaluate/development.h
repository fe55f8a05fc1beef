/* Development: measures a model on a development set during training, as `evaluate`
 * does, at the last exit. */
#ifndef COMPRESS_PASSES_EVALUATE_DEVELOPMENT_H
#define COMPRESS_PASSES_EVALUATE_DEVELOPMENT_H

#include "passes/evaluate/evaluation.h"

/* The weights that would be the result if training ended now. */
typedef struct DevelopmentWeights {
    const void *self;
    Status (*take)(const void *self, Graph *graph, Diag *diag); /* puts them into a copy
                                                                   of the model's graph */
    const Graph *trained; /* holds what training changes */
} DevelopmentWeights;

typedef struct Development {
    PassContext *ctx;
    Model *model;
    DevelopmentWeights weights;
    EvaluateOptions options;
    const char *metric; /* its name; in the context's arena */
    TrainMeasure measure;
} Development;

/* Checks that the model can be measured on the set that train->dev names by
 * train->dev_metric, as planning an `evaluate` step would; messages point at these
 * options. All arguments must outlive it, and so must everything that `weights` names;
 * nothing is to be freed. Fails with STATUS_MODEL, and as step_data does. */
Status development_open(Development *development, PassContext *ctx, Model *model,
                        const DevelopmentWeights *weights, const TrainOptions *train,
                        Diag *diag);

#endif
