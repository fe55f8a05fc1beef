/* prune: attention heads and feed-forward units leave the model together, the ones that
 * are worth least for what they cost. See passes/pruning/prune.h. */
#include "passes/pruning/prune.h"

static const Field fields[] = {
    PRUNE_FIELD_SCORE,
    F_BUDGET(PruneOptions, budget, "budget"),
    PRUNE_FIELD_RANKING("heads, and units,"),
    F_INT(PruneOptions, least_heads, 1, 100000000,
          "heads that every layer keeps, 1 when not given"),
    F_INT(PruneOptions, least_units, 1, 100000000,
          "feed-forward units that every layer keeps, 1 when not given"),
    F_BOOL(PruneOptions, allow_empty,
           "ranking: global: layers may end without any head, and then only add a bias"),
    F_PRIOR(PruneOptions),
    PRUNE_FIELD_RECONSTRUCT,
    PRUNE_FIELD_ZERO,
    PRUNE_FIELD_UNIT,
    PRUNE_FIELD_STACK,
    F_END,
};

static const PruneOptions defaults = {PRUNE_DEFAULTS};

static Status prune_both_check(const void *opaque, const StepSource *source, Diag *diag) {
    const PruneOptions *options = opaque;
    const int budgets = budget_count(&options->budget);
    if (budgets == 1) return prune_check(options, source, diag);
    return option_fail(source, BUDGET_NAMES, STATUS_RECIPE, diag,
                       "expected one of flops, parameters and bytes, found %s",
                       budgets ? "several" : "none");
}

static Status prune_both_run(PassContext *ctx, Model *model, const void *options,
                             Diag *diag) {
    return prune_run(ctx, model, PRUNE_HEADS, PRUNE_FFN, options, diag);
}

const Pass pass_prune = {
    .name = "prune",
    .summary = "remove heads and feed-forward units until the model fits a budget",
    .paper = "COST-EFF (EMNLP 2022), section 3.2",
    .fields = fields,
    .options_size = sizeof(PruneOptions),
    .defaults = &defaults,
    .data_options = "data",
    .exactness = PASS_LOSSY,
    .check = prune_both_check,
    .run = prune_both_run,
};
