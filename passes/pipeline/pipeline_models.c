/* Models and data sets of a run: snapshots here, everything else from the caller. */
#include "passes/pipeline/pipeline_models.h"

#include "passes/pipeline/snapshot.h"

#include <stdlib.h>
#include <string.h>

/* A copy of the model; it shares the weights that neither has changed since. */
struct Snapshot {
    Model *model;
    Snapshot *next;
    char name[];
};

static Snapshot *find_snapshot(const Surroundings *surroundings, const char *name) {
    Snapshot *snapshot = surroundings->snapshots;
    while (snapshot && strcmp(snapshot->name, name) != 0) snapshot = snapshot->next;
    return snapshot;
}

/* PassContext.snapshot. Binding the recipe has refused names that two steps give, so one
 * that is there is of the same step in an earlier round. */
static Status keep_snapshot(void *self, const char *name, const Model *model, Loc at,
                            Diag *diag) {
    Surroundings *surroundings = self;
    Snapshot *snapshot = find_snapshot(surroundings, name);
    (void)at, (void)diag;
    if (!snapshot) {
        snapshot = memory_alloc(1, sizeof *snapshot + strlen(name) + 1);
        strcpy(snapshot->name, name);
        snapshot->next = surroundings->snapshots;
        surroundings->snapshots = snapshot;
    }
    model_destroy(snapshot->model);
    snapshot->model = model_copy(model);
    return STATUS_OK;
}

/* PassContext.model. */
static Status find_model(void *self, const char *path, Loc at, Model **out, Diag *diag) {
    const Surroundings *surroundings = self;
    const PipelineOptions *options = surroundings->options;
    const char *name = snapshot_name(path);
    if (!name) return options->model(options->self, path, at, out, diag);
    const Snapshot *snapshot = find_snapshot(surroundings, name);
    if (!snapshot)
        return diag_fail(diag, STATUS_RECIPE, at, NULL,
                         "expected a snapshot that an earlier step makes, found \"%s\"",
                         path);
    *out = snapshot->model;
    return STATUS_OK;
}

/* PassContext.data. */
static Status find_data(void *self, const char *name, Loc at, Batches **out, Diag *diag) {
    const PipelineOptions *options = ((const Surroundings *)self)->options;
    return options->data(options->self, name, at, out, diag);
}

void surroundings_connect(Surroundings *surroundings, PassContext *ctx) {
    ctx->self = surroundings;
    ctx->data = find_data;
    ctx->model = find_model;
    ctx->snapshot = keep_snapshot;
}

void surroundings_close(Surroundings *surroundings) {
    for (Snapshot *next, *snapshot = surroundings->snapshots; snapshot; snapshot = next) {
        next = snapshot->next;
        model_destroy(snapshot->model);
        free(snapshot);
    }
    surroundings->snapshots = NULL;
}
