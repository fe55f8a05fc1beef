/* finetune: trains the model on labels. */
#include "passes/objective.h"

typedef struct FinetuneOptions {
    TrainOptions train; /* first: see TRAIN_FIELDS */
    const char *data;
    double label_smoothing;
} FinetuneOptions;

static const Field fields[] = {
    {.name = "data",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(FinetuneOptions, data, const char *),
     .required = true,
     .help = "data set to train on"},
    F_REAL(FinetuneOptions, label_smoothing, 0, 0.99,
           "share of each target spread over all classes"),
    TRAIN_FIELDS,
    F_END,
};

static const FinetuneOptions defaults = {.train = TRAIN_DEFAULTS};

static Status finetune_run(PassContext *ctx, Model *model, const void *opaque,
                           Diag *diag) {
    const FinetuneOptions *options = opaque;
    Objective objective;
    TRY(objective_begin(&objective, ctx, model, diag));
    Status status =
        objective_add_labels(&objective, EXITS_LAST, 1.0, options->label_smoothing, diag);
    if (status == STATUS_OK)
        status = objective_train(&objective, options->data, &options->train, diag);
    objective_end(&objective);
    return status;
}

const Pass pass_finetune = {
    .name = "finetune",
    .summary = "train the model on the labels of a data set",
    .fields = fields,
    .options_size = sizeof(FinetuneOptions),
    .defaults = &defaults,
    .data_options = "data",
    .flags = PASS_TRAINS,
    .exactness = PASS_LOSSY,
    .run = finetune_run,
};
