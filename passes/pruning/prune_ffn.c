/* prune_ffn: hidden units of the feed-forward blocks leave the model. See
 * passes/pruning/prune.h. */
#include "passes/pruning/prune.h"

static const Field fields[] = {
    PRUNE_FIELDS("feed-forward units", least_units),
    F_END,
};

static const PruneOptions defaults = {PRUNE_DEFAULTS};

static Status prune_ffn_run(PassContext *ctx, Model *model, const void *options,
                            Diag *diag) {
    return prune_run(ctx, model, PRUNE_FFN, PRUNE_FFN, options, diag);
}

const Pass pass_prune_ffn = {
    .name = "prune_ffn",
    .summary = "remove the least important hidden units of the feed-forward blocks",
    .paper = "COST-EFF (EMNLP 2022), section 3.2",
    .fields = fields,
    .options_size = sizeof(PruneOptions),
    .defaults = &defaults,
    .data_options = "data",
    .exactness = PASS_LOSSY,
    .check = prune_check,
    .run = prune_ffn_run,
};
