/* What steps ask for: see context.h. */
#include "passes/context.h"

#include "exec/run/feed.h"
#include "passes/pass.h"
#include "passes/run_memory.h"

#include <stdlib.h>
#include <string.h>

/* Notes what a step asks for: under `kind`, a name, or true where there is none. */
static void note_use(PassContext *ctx, const char *kind, const char *name) {
    if (!ctx->uses) return;
    Tree *use = tree_add_map(ctx->arena, ctx->uses);
    if (name)
        tree_put_string(ctx->arena, use, kind, name);
    else
        tree_put_bool(ctx->arena, use, kind, true);
}

void step_uses_record(PassContext *ctx, int index) {
    if (ctx->uses)
        tree_put_int(ctx->arena, tree_add_map(ctx->arena, ctx->uses), "step", index);
}

void step_uses_clock(PassContext *ctx) {
    note_use(ctx, "clock", NULL);
}

/* ---- data sets ---- */

/* The ranges of one data set, by column. */
struct DataRanges {
    const Batches *data;
    ColumnRange *columns;
    DataRanges *next;
};

static ColumnRange *find_ranges(PassContext *ctx, const Batches *data) {
    Resources *resources = ctx->resources;
    for (DataRanges *ranges = resources->ranges; ranges; ranges = ranges->next)
        if (ranges->data == data) return ranges->columns;
    Arena *arena = resources->arena ? resources->arena : ctx->arena;
    ColumnRange *columns =
        ARENA_ARRAY(arena, ColumnRange, (size_t)data->column_count + 1);
    if (resources->arena) {
        DataRanges *ranges = ARENA_NEW(arena, DataRanges);
        *ranges = (DataRanges){data, columns, resources->ranges};
        resources->ranges = ranges;
    }
    return columns;
}

Status step_data(PassContext *ctx, const char *name, const DataUse *use, Batches **out,
                 Diag *diag) {
    const char *named_by = use && use->option ? use->option : "data";
    const Loc at = option_loc(&ctx->source, named_by);
    Resources *resources = ctx->resources;
    note_use(ctx, "data", name);
    TRY(resources->data(resources, name, ctx->model, at, out, diag));
    if (!use || !*out) return STATUS_OK;
    const Batches *data = *out;
    ColumnRange *ranges = find_ranges(ctx, data);
    const int labels = use->labels ? batches_column(data, use->labels) : -1;
    Status status =
        feed_check_samples(use->graph, use->roots, use->root_count, data, ranges, diag);
    if (status == STATUS_OK && labels >= 0 &&
        data->columns[labels].type.dtype == DTYPE_I32)
        status = feed_check_labels(data, labels, use->classes, ranges, diag);
    if (status == STATUS_OK && ctx->plan && use->batch > 0)
        status = step_plan_run(ctx,
                               &(DataRun){.graph = use->graph,
                                          .roots = use->roots,
                                          .root_count = use->root_count,
                                          .data = data,
                                          .batch = use->batch,
                                          .gradient = use->gradient,
                                          .mean = use->mean},
                               0, diag);
    if (status == STATUS_OK) return STATUS_OK;
    const Tree *option = tree_get(ctx->source.options, named_by);
    diag_place(diag, at, option ? tree_path(ctx->arena, option) : ctx->source.key);
    diag_note(diag, "data set \"%s\"", name);
    return status;
}

/* ---- models ---- */

/* A copy of the model; it shares the weights that neither has changed since. */
struct Snapshot {
    Model *model;
    Snapshot *next;
    char name[];
};

static Snapshot *find_snapshot(const Resources *resources, const char *name) {
    Snapshot *snapshot = resources->snapshots;
    while (snapshot && strcmp(snapshot->name, name) != 0) snapshot = snapshot->next;
    return snapshot;
}

void step_snapshot(PassContext *ctx, const char *name, const Model *model) {
    Resources *resources = ctx->resources;
    Snapshot *snapshot = find_snapshot(resources, name);
    if (!snapshot) {
        snapshot = memory_alloc(1, sizeof *snapshot + strlen(name) + 1);
        strcpy(snapshot->name, name);
        snapshot->next = resources->snapshots;
        resources->snapshots = snapshot;
    }
    model_destroy(snapshot->model);
    snapshot->model = model_copy(model);
}

const char *snapshot_name(const char *model) {
    const size_t length = strlen(SNAPSHOT_PREFIX);
    if (!model || strncmp(model, SNAPSHOT_PREFIX, length) != 0) return NULL;
    return model + length;
}

Status step_teacher(PassContext *ctx, const char *path, Model **out, Diag *diag) {
    Resources *resources = ctx->resources;
    const Loc at = option_loc(&ctx->source, "teacher");
    const char *name = snapshot_name(path);
    note_use(ctx, name ? "snapshot" : path ? "model" : "input", name ? name : path);
    if (!name) return resources->model(resources, path, ctx->plan, at, out, diag);
    const Snapshot *snapshot = find_snapshot(resources, name);
    if (!snapshot)
        return diag_fail(diag, STATUS_RECIPE, at, NULL,
                         "expected a snapshot that an earlier step makes, found \"%s\"",
                         path);
    *out = snapshot->model;
    return STATUS_OK;
}

Status step_check_teacher(PassContext *ctx, const char *path, const Model *teacher,
                          const char *data, bool predictions, Diag *diag) {
    Resources *resources = ctx->resources;
    const TeacherUse use = {.data = data,
                            .path = path,
                            .model = ctx->model,
                            .teacher = teacher,
                            .predictions = predictions,
                            .trains = ctx->pass->flags & PASS_TRAINS};
    if (!resources->teacher) return STATUS_OK;
    return resources->teacher(resources, &use, option_loc(&ctx->source, "teacher"), diag);
}

void resources_drop_snapshots(Resources *resources) {
    for (Snapshot *next, *snapshot = resources->snapshots; snapshot; snapshot = next) {
        next = snapshot->next;
        model_destroy(snapshot->model);
        free(snapshot);
    }
    resources->snapshots = NULL;
}
