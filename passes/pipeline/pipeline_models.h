/* What the steps of a run may ask for: the caller's data sets and models, and the
 * snapshots that the run itself keeps. Private to the pipeline. */
#ifndef COMPRESS_PASSES_PIPELINE_PIPELINE_MODELS_H
#define COMPRESS_PASSES_PIPELINE_PIPELINE_MODELS_H

#include "passes/pipeline/pipeline.h"

typedef struct Snapshot Snapshot;

/* Of one run; zero but for `options`. */
typedef struct Surroundings {
    const PipelineOptions *options;
    Snapshot *snapshots;
} Surroundings;

/* Gives a context its self, data, model and snapshot. */
void surroundings_connect(Surroundings *surroundings, PassContext *ctx);

/* Frees the snapshots. */
void surroundings_close(Surroundings *surroundings);

#endif
