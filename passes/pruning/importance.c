/* importance: scores of attention heads and feed-forward units, for prune_heads and
 * prune_ffn. See passes/pruning/prune.h. */
#include "passes/pruning/importance_taylor.h"

#include "passes/layers.h"

#include <stdlib.h>
#include <string.h>

#define I ImportanceOptions
static const Field fields[] = {
    F_STRING(
        I, data,
        "data set with labels, of models that embed texts or pairs of texts; needed for "
        "score: taylor",
        .nullable = true),
    F_INT(I, limit, 0, 1000000000000, "first samples only; 0 = all"),
    F_INT(I, batch_size, 1, 1000000, "samples per run"),
    F_CHOICE(I, score, SCORE_NAMES,
             "first-order Taylor importance, or as baselines the magnitude of weights or "
             "random numbers"),
    F_CHOICE(I, abs, "element|block",
             "taylor: absolute value of every weight times its gradient, or of their sum "
             "over a unit"),
    F_CHOICE(I, accumulate, "abs_then_sum|sum_then_abs",
             "taylor: absolute value batch by batch, or of the gradient over all of the "
             "data"),
    F_STRINGS(I, outputs,
              "outputs whose label losses are added up; empty: all exits of the model"),
    F_STRING(I, stack, "only this stack of layers", .nullable = true),
    F_END,
};

static const I defaults = {.limit = 1000, .batch_size = 32};

#define PROFILE 32 /* numbers of a block's profile */

static int fall(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* A block's scores from the largest to the smallest; of many the means of equal parts. */
static Tree *profile_tree(const PruneBlock *block, Arena *arena) {
    const int64_t units = block->parts.units, count = units < PROFILE ? units : PROFILE;
    double *sorted = ARENA_ARRAY(arena, double, (size_t)units);
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int64_t u = 0; u < units; u++) sorted[u] = block->scores[u];
    qsort(sorted, (size_t)units, sizeof *sorted, fall);
    for (int64_t part = 0; part < count; part++) {
        const int64_t first = units * part / count, end = units * (part + 1) / count;
        Tree *mean = tree_new(arena, TREE_FLOAT, LOC_NONE);
        for (int64_t u = first; u < end; u++) mean->real += sorted[u];
        mean->real /= (double)(end - first);
        tree_append(arena, list, NULL, LOC_NONE, mean);
    }
    return list;
}

/* One row per block: how its scores are spread. */
static Tree *summary_tree(const Prune *p, Arena *arena) {
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        double sum = 0, least = block->scores[0], largest = least;
        for (int64_t u = 0; u < block->parts.units; u++) {
            sum += block->scores[u];
            if (block->scores[u] < least) least = block->scores[u];
            if (block->scores[u] > largest) largest = block->scores[u];
        }
        Tree *row = tree_new(arena, TREE_MAP, LOC_NONE);
        tree_put_string(arena, row, "block", block->place);
        tree_put_int(arena, row, "units", block->parts.units);
        tree_put_real(arena, row, "least", least);
        tree_put_real(arena, row, "mean", sum / (double)block->parts.units);
        tree_put_real(arena, row, "largest", largest);
        tree_put(arena, row, "profile", profile_tree(block, arena));
        tree_append(arena, list, NULL, LOC_NONE, row);
    }
    return list;
}

/* The step's record: heads in full, a summary of the feed-forward units. */
static void record(PassContext *ctx, const Prune *heads, const Prune *ffn,
                   int64_t samples) {
    Arena *arena = ctx->arena;
    if (samples) tree_put_int(arena, ctx->record, "samples", samples);
    tree_append(arena, ctx->record, "heads", LOC_NONE, prune_scores_tree(heads, arena));
    tree_append(arena, ctx->record, "ffn", LOC_NONE, summary_tree(ffn, arena));
}

/* All scores into the model's provenance, where pruning passes read them. */
static Status store(Model *model, const I *options, const Prune *heads, const Prune *ffn,
                    Diag *diag) {
    static const char *const scores[] = {"taylor", "magnitude", "random"};
    Arena *arena = model->arena;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, map, "score", scores[options->score]);
    tree_append(arena, map, "heads", LOC_NONE, prune_scores_tree(heads, arena));
    tree_append(arena, map, "ffn", LOC_NONE, prune_scores_tree(ffn, arena));
    return tree_set(arena, model->provenance, "importance", map, diag);
}

static Status importance_run(PassContext *ctx, Model *model, const void *opaque,
                             Diag *diag) {
    const I *options = opaque;
    const PruneScore score = SCORE_TAYLOR + options->score;
    Prune heads, ffn;
    TRY(prune_find(&heads, ctx, model->graph, PRUNE_HEADS, UNIT_HEAD, options->stack,
                   diag));
    TRY(prune_find(&ffn, ctx, model->graph, PRUNE_FFN, UNIT_HEAD, options->stack, diag));
    if (options->stack) TRY(stack_check(ctx, model->graph, options->stack, diag));
    if (heads.block_count + ffn.block_count == 0)
        return step_fail(ctx, diag,
                         "the model has no layers with heads or feed-forward "
                         "units to score");
    int64_t samples = 0;
    if (score != SCORE_TAYLOR) {
        prune_score(&heads, score);
        prune_score(&ffn, score);
    } else {
        TRY(importance_taylor(&heads, &ffn, model, options, &samples, diag));
    }
    if (!ctx->plan) record(ctx, &heads, &ffn, samples);
    return store(model, options, &heads, &ffn, diag);
}

static Status importance_check(const void *opaque, const StepSource *source, Diag *diag) {
    const I *options = opaque;
    if (SCORE_TAYLOR + options->score != SCORE_TAYLOR) return STATUS_OK;
    if (options->data) return STATUS_OK;
    return option_fail(source, NULL, STATUS_RECIPE, diag,
                       "expected `data`, a data set with labels, for score: taylor");
}

const Pass pass_importance = {
    .name = "importance",
    .summary = "score attention heads and feed-forward units for pruning",
    .paper = "COST-EFF (EMNLP 2022), section 3.2; Pruning Convolutional Neural Networks "
             "for Resource Efficient Inference (ICLR 2017)",
    .fields = fields,
    .options_size = sizeof(I),
    .defaults = &defaults,
    .data_options = "data",
    .flags = PASS_MEASURES,
    .exactness = PASS_EXACT,
    .effects = {.gives = MODEL_IMPORTANCE},
    .check = importance_check,
    .run = importance_run,
};
