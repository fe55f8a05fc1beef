/* Snapshots: copies of the model that later steps of the recipe may ask for. */
#ifndef COMPRESS_PASSES_PIPELINE_SNAPSHOT_H
#define COMPRESS_PASSES_PIPELINE_SNAPSHOT_H

#include "passes/pass.h"

/* What stands before the name of a snapshot where a model is named. */
#define SNAPSHOT_PREFIX "snapshot:"

/* Options of the pass that makes one. */
typedef struct SnapshotOptions {
    const char *name;
} SnapshotOptions;

/* The pass, as in the table of passes. */
extern const Pass pass_snapshot;

/* The name in "snapshot:NAME", NULL when `model` (may be NULL) is something else. */
const char *snapshot_name(const char *model);

#endif
