/* snapshot: keeps a copy of the model as it is now, for later steps. */
#include "passes/pipeline/snapshot.h"

#include <ctype.h>
#include <string.h>

#define NAME_MAX_LENGTH 64

static const Field fields[] = {
    {.name = "name",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(SnapshotOptions, name, const char *),
     .required = true,
     .help = "name of the copy; later steps write snapshot:NAME for it"},
    F_END,
};

static const SnapshotOptions defaults = {0};

static Status snapshot_check(const void *opaque, const StepSource *source, Diag *diag) {
    const SnapshotOptions *options = opaque;
    const char *c = options->name;
    while (isalnum((unsigned char)*c) || (*c && strchr("_-.", *c))) c++;
    if (!*c && c > options->name && c <= options->name + NAME_MAX_LENGTH)
        return STATUS_OK;
    return option_fail(source, "name", STATUS_RECIPE, diag,
                       "expected a name of 1 to %d letters, digits, '_', '-' and '.', "
                       "found \"%.100s\"",
                       NAME_MAX_LENGTH, options->name);
}

static Status snapshot_run(PassContext *ctx, Model *model, const void *opaque,
                           Diag *diag) {
    const SnapshotOptions *options = opaque;
    (void)diag;
    step_snapshot(ctx, options->name, model);
    return STATUS_OK;
}

const Pass pass_snapshot = {
    .name = "snapshot",
    .summary = "keep a copy of the model as it is, for later steps (a teacher)",
    .fields = fields,
    .options_size = sizeof(SnapshotOptions),
    .defaults = &defaults,
    .flags = PASS_MEASURES,
    .exactness = PASS_EXACT,
    .check = snapshot_check,
    .run = snapshot_run,
};
