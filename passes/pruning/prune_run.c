/* The course of a pruning pass: see prune.h. */
#include "passes/pruning/prune.h"

#include "passes/guess.h"
#include "passes/layers.h"

#include <stdlib.h>

/* Options that a way to choose has no use for. */
static Status check_unused(const PruneOptions *options, const StepSource *source,
                           bool budget, Diag *diag) {
    const bool global = prune_is_global(options);
    if (global && options->keep)
        return option_fail(source, "keep", STATUS_RECIPE, diag,
                           "expected keep_total or keep_ratio with ranking: global");
    if (!global && options->keep_total)
        return option_fail(source, "keep_total", STATUS_RECIPE, diag,
                           "expected ranking: global with it");
    if (!global && options->allow_empty)
        return option_fail(source, "allow_empty", STATUS_RECIPE, diag,
                           "expected ranking: global with it");
    if (!budget && (options->least_heads || options->least_units))
        return option_fail(source, "least", STATUS_RECIPE, diag,
                           "expected a budget with it");
    return STATUS_OK;
}

/* Calibration data, and what they are for. */
static Status check_calibration(const PruneOptions *options, const StepSource *source,
                                Diag *diag) {
    const char *data = options->calibration.data;
    const bool needed = prune_calibrates(options);
    if (needed && !data)
        return option_fail(source, options->reconstruct ? "reconstruct" : "score",
                           STATUS_RECIPE, diag,
                           "expected `data`, a data set to calibrate with");
    for (const char *const *name = (const char *const[]){"data", "samples", "damp", NULL};
         !needed && *name; name++)
        if (tree_get(source->options, *name))
            return option_fail(source, *name, STATUS_RECIPE, diag,
                               "expected reconstruct: true or score: reconstruction with "
                               "it");
    if (options->follow && !options->reconstruct)
        return option_fail(source, "follow", STATUS_RECIPE, diag,
                           "expected reconstruct: true with it");
    if (options->reconstruct && options->prior != PRIOR_COPY)
        return option_fail(source, "prior", STATUS_RECIPE, diag,
                           "expected prior: copy with reconstruct: true, which gives the "
                           "weights to go on from");
    return STATUS_OK;
}

Status prune_check(const void *opaque, const StepSource *source, Diag *diag) {
    const PruneOptions *options = opaque;
    const int budgets = budget_count(&options->budget);
    const int ways = (options->keep > 0) + (options->keep_total > 0) +
                     (options->keep_ratio > 0) + budgets;
    if (ways != 1)
        return option_fail(source, "keep|keep_total|keep_ratio|" BUDGET_NAMES,
                           STATUS_RECIPE, diag,
                           "expected one of keep, keep_total, keep_ratio, flops, "
                           "parameters and bytes, found %s",
                           ways ? "several" : "none");
    TRY(check_unused(options, source, budgets > 0, diag));
    TRY(budget_check(&options->budget, source, diag));
    TRY(check_calibration(options, source, diag));
    if (options->zero != ZERO_OUTPUT && options->prior != PRIOR_GAUSSIAN &&
        options->score != SCORE_RELEVANCE)
        return option_fail(source, "zero", STATUS_RECIPE, diag,
                           "expected prior: gaussian or score: relevance with it");
    return STATUS_OK;
}

/* ---- exactness ---- */

/* Whether a matrix reads nothing of removed units; what it gives to removed ones does not
 * matter (`gives`: what it gives belongs to units as well). */
static bool reads_nothing(const PruneSlot *slot, const bool *removed, bool gives) {
    const Tensor *tensor = storage_tensor(slot->leaf->storage);
    const int64_t columns = tensor->dim[1];
    double *w = memory_alloc((size_t)columns, sizeof *w);
    bool zero = true;
    for (int64_t row = 0; row < tensor->dim[0] && zero; row++) {
        tensor_read_f64(tensor, row * columns, columns, w);
        for (int64_t c = 0; c < columns && zero; c++) {
            const int64_t unit = slot->axis == 1 ? c : row;
            const int64_t other = slot->axis == 1 ? row : c;
            zero = !removed[unit / slot->width] || w[c] == 0 || (gives && removed[other]);
        }
    }
    free(w);
    return zero;
}

/* Whether nothing reads what the removed units of a block compute: neither the output
 * projection nor another head by mixing. */
static bool block_is_exact(const PruneBlock *block, const PruneGroup *group) {
    const int64_t parts = prune_part_count(&group->parts);
    bool *removed = memory_alloc((size_t)parts, sizeof *removed), exact = true;
    prune_mask(removed, group);
    for (int64_t i = 0; i < parts; i++) removed[i] = !removed[i];
    for (int i = 0; i < block->slot_count && exact; i++) {
        const PruneSlot *slot = &block->slots[i];
        if (slot->reads) exact = reads_nothing(slot, removed, i != SLOT_OUT);
    }
    free(removed);
    return exact;
}

/* ---- record ---- */

static void record_block(const Prune *p, const PruneBlock *block, Tree *list) {
    Arena *arena = p->ctx->arena;
    const PruneGroup *group = &p->groups[block->group];
    Tree *row = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, row, "block", block->place);
    tree_put_int(arena, row, "before", group->parts.units * group->parts.size);
    tree_put_int(arena, row, "after", group->keep_count * group->parts.size);
    if (group->parts.size > 1) {
        const int64_t keys = node_key_heads(block->core);
        const int64_t left = group->keep_count * (keys / group->parts.units);
        tree_put_int(arena, row, "key_heads", group->parts.sets > 1 ? keys : left);
    }
    if (!p->guessed) {
        Text text = {0};
        const Lineage none = {0};
        int64_t count = 0;
        const int64_t *keep = prune_kept(arena, group, &count);
        const Lineage kept = lineage_keep(arena, &none, keep, count);
        lineage_print(&text, &kept);
        tree_put_string(arena, row, "kept", text.data);
        text_free(&text);
    }
    if (block->rows > 0) {
        tree_put_int(arena, row, "rows", block->rows);
        tree_put_real(arena, row, "error_cut", block->errors.cut);
        tree_put_real(arena, row, "error", block->errors.error);
        if (block->few_rows) tree_put_bool(arena, row, "fewer_rows_than_inputs", true);
        if (block->raised) tree_put_bool(arena, row, "damping_raised", true);
    }
    tree_append(arena, list, NULL, LOC_NONE, row);
}

static void record(const Prune *p, Tree *into) {
    Arena *arena = p->ctx->arena;
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    int64_t before = 0, after = 0;
    for (int g = 0; g < p->group_count; g++) {
        before += p->groups[g].parts.units * p->groups[g].parts.size;
        after += p->groups[g].keep_count * p->groups[g].parts.size;
    }
    for (int i = 0; i < p->block_count; i++) record_block(p, &p->blocks[i], list);
    tree_put_int(arena, into, "units_before", before);
    tree_put_int(arena, into, "units_after", after);
    if (p->guessed) tree_put_bool(arena, into, "approximate", true);
    tree_append(arena, into, "blocks", LOC_NONE, list);
}

/* Whether a weight that loses units is of another type then. */
static bool changes_type(const PruneBlock *block, const PruneSlot *slot,
                         const PruneOptions *options) {
    const DType dtype = storage_tensor(slot->leaf->storage)->dtype;
    const bool refitted = options->reconstruct && slot == &block->slots[SLOT_OUT];
    return (dtype == DTYPE_Q4 && slot->axis > 0) ||
           (refitted && dtype_is_quantised(dtype));
}

/* Elements that a unit of a group owns, -1 when that depends on how many stay (mixing
 * matrices have a row and a column for each) or the first that goes takes more along. */
static int64_t unit_elements(const Prune *p, int group, const PruneOptions *options) {
    int64_t elements = 0;
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        for (int j = 0; block->group == group && j < block->slot_count; j++) {
            const PruneSlot *slot = &block->slots[j];
            if (!prune_is_first(p, block, slot)) continue;
            if (slot->reads && j != SLOT_OUT) return -1;
            if (changes_type(block, slot, options)) return -1;
            elements +=
                tensor_count(storage_tensor(slot->leaf->storage)) / block->parts.units;
        }
    }
    return elements;
}

/* Whether units are of one size in all groups, and under a budget of one cost, so that
 * which of them stay changes no number. */
static bool units_are_equal(const Prune *p, const PruneOptions *options) {
    const int64_t elements = unit_elements(p, 0, options);
    for (int g = 0; g < p->group_count; g++)
        if (unit_elements(p, g, options) != elements ||
            p->groups[g].cost != p->groups[0].cost)
            return false;
    return elements > 0;
}

/* A plan that does not know the scores of a ranking over all layers spreads what is kept
 * evenly: that gives the same number of parameters only when units are equal. */
static void warn_guess(const Prune *parts, int count, const PruneOptions *options,
                       Diag *diag) {
    PassContext *ctx = parts->ctx;
    const bool budget = budget_count(&options->budget) > 0;
    if (!parts->guessed || !prune_is_global(options)) return;
    if (count == 1 && !options->allow_empty && units_are_equal(parts, options)) return;
    ctx->guessed = true;
    if (budget)
        diag_warn(diag, ctx->source.at, ctx->source.key,
                  "planned without scores, as if all layers kept the same share; a run "
                  "keeps the budget as well, but sizes after this step are approximate");
    else
        diag_warn(diag, ctx->source.at, ctx->source.key,
                  "planned without scores, as if all layers kept equally many %s; "
                  "parameters and bytes after this step are approximate",
                  prune_units(parts->kind));
}

/* Notes for the steps behind which weights have shapes that only the run knows: those
 * that units of any layer may leave, but not those of which each layer keeps a number
 * that was given. */
static void note_shapes(const Prune *p, const PruneOptions *options) {
    for (int i = 0; i < p->block_count; i++)
        for (int j = 0; j < p->blocks[i].slot_count; j++) {
            const Storage *storage = p->blocks[i].slots[j].leaf->storage;
            if (p->guessed && prune_is_global(options)) guess_note(p->ctx, storage);
            if (options->keep > 0) guess_settle(p->ctx, storage);
        }
}

static Status read_scores(Prune *p, const Model *model, const PruneOptions *options,
                          Diag *diag) {
    switch (options->score) {
    case SCORE_STORED:
    case SCORE_TAYLOR:
        return prune_read_scores(p, model, options->score == SCORE_TAYLOR, diag);
    case SCORE_RELEVANCE: return prune_relevance(p, options->zero, diag);
    case SCORE_RECONSTRUCTION: return STATUS_OK; /* see choose */
    default: prune_score(p, (PruneScore)options->score); return STATUS_OK;
    }
}

/* Finds the kinds of units that there are to prune. Of several kinds one may be missing.
 */
static Status find_parts(Prune parts[PRUNE_KINDS], int *count, PassContext *ctx,
                         Model *model, PruneKind first, PruneKind last,
                         const PruneOptions *options, Diag *diag) {
    const char *stack = options->stack;
    *count = 0;
    for (int kind = (int)first; kind <= (int)last; kind++) {
        Prune *p = &parts[*count];
        TRY(prune_find(p, ctx, model->graph, (PruneKind)kind, (PruneUnit)options->unit,
                       stack, diag));
        *count += p->block_count > 0;
        for (int i = 0; i < p->block_count; i++)
            if (p->blocks[i].parts.sets > 1 && options->zero == ZERO_VALUE)
                return step_fail_option(ctx, "zero|unit", diag,
                                        "%s: the values that heads share stay with unit: "
                                        "query, expected zero: output",
                                        p->blocks[i].place);
    }
    if (*count > 0) return STATUS_OK;
    if (stack) TRY(stack_check(ctx, model->graph, stack, diag));
    return step_fail(ctx, diag, "the model has no %s%s to prune%s%s",
                     first < last ? "heads and no " : "", prune_units(last),
                     stack ? " in stack " : "", stack ? stack : "");
}

/* Decides what stays. Where layers are pruned to a number by reconstruction, only the
 * numbers are known yet. */
static Status choose(Prune *parts, int count, const Model *model,
                     Calibration *calibration, const PruneOptions *options, Diag *diag) {
    Prune *list[PRUNE_KINDS] = {parts, parts + 1};
    for (int i = 0; i < count; i++) TRY(read_scores(&parts[i], model, options, diag));
    if (options->score == SCORE_RECONSTRUCTION && calibration && prune_is_global(options))
        TRY(prune_obs_scores(parts, count, calibration, options, diag));
    for (int i = 0; i < count; i++) TRY(prune_sum_scores(&parts[i], diag));
    return budget_count(&options->budget) > 0
               ? prune_choose_budget(list, count, model, options, diag)
               : prune_choose(parts, options, diag);
}

/* All that is decided, and changed before anything is cut. */
static Status decide(Prune *parts, int count, const Model *model,
                     const PruneOptions *options, Diag *diag) {
    Calibration *calibration = NULL;
    if (prune_calibrates(options))
        TRY(prune_calibrate(&calibration, parts, count, options, diag));
    Status status = choose(parts, count, model, calibration, options, diag);
    if (status == STATUS_OK && prune_calibrates(options))
        status = prune_reconstruct(parts, count, calibration, options, diag);
    calibration_close(calibration);
    return status;
}

/* Whether what goes changes nothing. */
static bool is_exact(const Prune *p) {
    for (int i = 0; i < p->block_count; i++)
        if (!block_is_exact(&p->blocks[i], &p->groups[p->blocks[i].group])) return false;
    return true;
}

Status prune_run(PassContext *ctx, Model *model, PruneKind first, PruneKind last,
                 const PruneOptions *options, Diag *diag) {
    static const char *const NAMES[] = {"heads", "ffn"};
    Prune parts[PRUNE_KINDS];
    int count;
    TRY(find_parts(parts, &count, ctx, model, first, last, options, diag));
    TRY(decide(parts, count, model, options, diag));
    warn_guess(parts, count, options, diag);
    ctx->exact = !ctx->plan && options->prior == PRIOR_COPY && !options->reconstruct;
    for (int i = 0; i < count; i++) {
        Tree *into = first < last
                         ? tree_put_map(ctx->arena, ctx->record, NAMES[parts[i].kind])
                         : ctx->record;
        TRY(prune_cut_scores(&parts[i], model, diag));
        ctx->exact = ctx->exact && is_exact(&parts[i]);
        record(&parts[i], into);
    }
    if (options->prior == PRIOR_GAUSSIAN)
        TRY(prune_condition(parts, count, options->zero, diag));
    for (int i = 0; i < count; i++) {
        TRY(prune_cut(&parts[i], diag));
        note_shapes(&parts[i], options);
    }
    if (options->prior == PRIOR_GAUSSIAN)
        return condition_set_weights(model->graph, diag);
    return options->prior == PRIOR_RANDOM ? prior_redraw(ctx, model, diag) : STATUS_OK;
}
