/* Snapshots: copies of the model that later steps of the recipe can use. */
#ifndef COMPRESS_PASSES_PIPELINE_SNAPSHOT_H
#define COMPRESS_PASSES_PIPELINE_SNAPSHOT_H

#include "passes/pass.h"

/* Options of the pass that makes one. */
typedef struct SnapshotOptions {
    const char *name;
} SnapshotOptions;

/* The pass, as in the table of passes. */
extern const Pass pass_snapshot;

#endif
