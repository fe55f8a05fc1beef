/* prune_heads: whole attention heads leave the model. See passes/pruning/prune.h. */
#include "passes/pruning/prune.h"

static const Field fields[] = {
    PRUNE_FIELDS("heads", least_heads),
    F_BOOL(PruneOptions, allow_empty,
           "ranking: global: layers may end without any head, and then only add a bias"),
    PRUNE_FIELD_ZERO,
    PRUNE_FIELD_UNIT,
    F_END,
};

static const PruneOptions defaults = {PRUNE_DEFAULTS};

static Status prune_heads_run(PassContext *ctx, Model *model, const void *options,
                              Diag *diag) {
    return prune_run(ctx, model, PRUNE_HEADS, PRUNE_HEADS, options, diag);
}

const Pass pass_prune_heads = {
    .name = "prune_heads",
    .summary = "remove the least important attention heads",
    .paper = "COST-EFF (EMNLP 2022), section 3.2; Are Sixteen Heads Really Better than "
             "One? (NeurIPS 2019); Bayesian distillation of transformer models (2023)",
    .fields = fields,
    .options_size = sizeof(PruneOptions),
    .defaults = &defaults,
    .data_options = "data",
    .exactness = PASS_LOSSY,
    .check = prune_check,
    .run = prune_heads_run,
};
