/* finetune: trains the model on labels, of its exits or of masked tokens too. */
#include "passes/evaluate/metric.h"
#include "passes/training/objective.h"

typedef struct FinetuneOptions {
    TrainOptions train; /* first: see TRAIN_FIELDS */
    const char *data;
    double label_smoothing, teacher_forcing, scale;
    bool symmetric;
    RealList positive_weights;
    int exits;    /* ObjectiveExits */
    int gradient; /* GRADIENT_ */
    int part;     /* PART_ */
} FinetuneOptions;

enum { GRADIENT_EQUILIBRIUM, GRADIENT_SUM };
enum { PART_ALL, PART_EXITS };

static const Field fields[] = {
    {.name = "data",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(FinetuneOptions, data, const char *),
     .required = true,
     .help = "data set to train on"},
    F_REAL(FinetuneOptions, label_smoothing, 0, 0.99,
           "share of each target spread over all classes"),
    F_REALS(FinetuneOptions, positive_weights, 0, 1e6,
            "several labels: what a label that is there counts, one number for all or "
            "one for each; none: 1"),
    F_REAL(FinetuneOptions, teacher_forcing, 0, 1,
           "share of the target's tokens that a recurrent decoder reads; in place of the "
           "others it reads the words that it predicts"),
    F_REAL(FinetuneOptions, scale, 0.001, 1000,
           "models that embed: factor of the cosines between texts, 1 / temperature"),
    F_BOOL(FinetuneOptions, symmetric,
           "models that embed: second texts look for their first ones as well"),
    F_CHOICE(FinetuneOptions, exits, OBJECTIVE_EXITS,
             "exits whose losses are added up: all, the last one, or all before it"),
    F_CHOICE(FinetuneOptions, gradient, "equilibrium|sum",
             "with several exits, a layer receives the mean or the sum of the gradients "
             "of the exits behind it"),
    {.name = "train",
     .kind = FIELD_CHOICE,
     .offset = FIELD_AT(FinetuneOptions, part, int),
     .choices = "all|exits",
     .help = "weights to train: all, or those of the early exits alone"},
    DEV_FIELDS(METRIC_NAMES),
    PRIOR_FIELDS,
    TRAIN_FIELDS,
    TRAIN_PRECISION_FIELD,
    TRAIN_MEMORY_FIELDS,
    LOW_RANK_FIELDS,
    F_END,
};

static const FinetuneOptions defaults = {
    .train = TRAIN_DEFAULTS, .teacher_forcing = 1, .scale = CONTRASTIVE_SCALE};

/* The losses, and what the options say of gradients and frozen weights. */
static Status build(Objective *o, const FinetuneOptions *options, Diag *diag) {
    if (objective_predicts_tokens(o->graph)) TRY(objective_mask_tokens(o, diag));
    const ObjectiveExits exits = (ObjectiveExits)options->exits;
    TRY(objective_find_mixed(o, options->data, &options->train, diag));
    TRY(objective_find_pairs(o, options->data, options->scale, options->symmetric, diag));
    o->labels.positive = &options->positive_weights;
    TRY(objective_add_labels(o, exits, 1.0, options->label_smoothing, diag));
    if (options->teacher_forcing < 1)
        TRY(objective_feed_back(o, options->teacher_forcing, diag));
    if (options->gradient == GRADIENT_EQUILIBRIUM) TRY(objective_balance(o, exits, diag));
    return options->part == PART_EXITS ? objective_freeze_trunk(o, diag) : STATUS_OK;
}

static Status finetune_run(PassContext *ctx, Model *model, const void *opaque,
                           Diag *diag) {
    const FinetuneOptions *options = opaque;
    Objective objective;
    TRY(objective_begin(&objective, ctx, model, diag));
    Status status = build(&objective, options, diag);
    if (status == STATUS_OK)
        status = objective_train(&objective, options->data, &options->train, diag);
    objective_end(&objective);
    return status;
}

static Status finetune_check(const void *opaque, const StepSource *source, Diag *diag) {
    const FinetuneOptions *options = opaque;
    TRY(objective_check(&options->train, source, diag));
    if (options->part == PART_EXITS && options->train.low_rank > 0)
        return option_fail(source, "train", STATUS_RECIPE, diag,
                           "expected train or low_rank, found both");
    if (options->part != PART_EXITS || options->exits != EXITS_LAST) return STATUS_OK;
    return option_fail(source, "train", STATUS_RECIPE, diag,
                       "exits has nothing to train with exits: last");
}

const Pass pass_finetune = {
    .name = "finetune",
    .summary = "train the model on the labels of a data set",
    .fields = fields,
    .options_size = sizeof(FinetuneOptions),
    .defaults = &defaults,
    .data_options = "data|dev",
    .flags = PASS_TRAINS,
    .exactness = PASS_LOSSY,
    .check = finetune_check,
    .run = finetune_run,
};
