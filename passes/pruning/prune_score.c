/* Scores of units, and the ones that importance stored: see prune.h.
 *
 * They lie in the model's provenance:
 *     importance: {score: taylor, ..., heads: [{stack, layer, units, scores}], ffn:
 * [...]} While planning the entries of Taylor scores have no `scores` yet. */
#include "passes/pruning/prune.h"

#include "ir/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *new_scores(const Prune *p, const PruneBlock *block) {
    return ARENA_ARRAY(p->ctx->arena, double, (size_t)prune_part_count(&block->parts));
}

void prune_sum(const PruneSlot *slot, const float *gradient, bool absolute,
               double *sums) {
    const Tensor *tensor = storage_tensor(slot->leaf->storage);
    const int64_t rows = tensor->dim[0], columns = tensor->dim[1];
    double *w = memory_alloc((size_t)columns, sizeof *w);
    for (int64_t row = 0; row < rows; row++) {
        tensor_read_f64(tensor, row * columns, columns, w);
        const float *g = gradient ? gradient + row * columns : NULL;
        for (int64_t c = 0; c < columns; c++) {
            const double product = g ? w[c] * (double)g[c] : w[c];
            sums[(slot->axis == 0 ? row : c) / slot->width] +=
                absolute ? fabs(product) : product;
        }
    }
    free(w);
}

void prune_score(Prune *p, PruneScore score) {
    const uint64_t key = random_key_name(p->ctx->seed, prune_units(p->kind));
    for (int i = 0; i < p->block_count; i++) {
        PruneBlock *block = &p->blocks[i];
        const uint64_t own = random_key(key, (uint64_t)i);
        if (p->ctx->plan && score != SCORE_RANDOM) continue; /* weights are not known */
        block->scores = new_scores(p, block);
        const int64_t parts = prune_part_count(&block->parts);
        for (int64_t u = 0; u < parts && score == SCORE_RANDOM; u++)
            block->scores[u] = random_uniform(own, (uint64_t)u);
        if (score == SCORE_RANDOM) continue;
        prune_sum(&block->slots[SLOT_OUT], NULL, true, block->scores);
        if (p->kind == PRUNE_FFN)
            prune_sum(&block->slots[SLOT_FFN_IN], NULL, true, block->scores);
    }
}

/* ---- stored scores ---- */

static const char *list_name(PruneKind kind) {
    return kind == PRUNE_HEADS ? "heads" : "ffn";
}

static bool is_int(const Tree *tree, int64_t value) {
    return tree && tree->kind == TREE_INT && tree->integer == value;
}

/* Heads, or feed-forward units, of a block: what is scored one by one. */
static int64_t heads_of(const PruneParts *parts) {
    return parts->units * parts->size;
}

/* The stored entry that comes next from `entry` on among those of the pruned stacks. */
static const Tree *next_entry(const Prune *p, const Tree *entry) {
    while (entry && p->stack && !tree_is_string(tree_get(entry, "stack"), p->stack))
        entry = entry->next;
    return entry;
}

static const Tree *stored_list(const Prune *p, const Model *model) {
    const Tree *notes = tree_get(model->provenance, "importance");
    const Tree *list = tree_get(notes, list_name(p->kind));
    return list && list->kind == TREE_LIST ? list : NULL;
}

/* Whether the stored entries of the pruned stacks are those of the blocks, in order. */
static bool fits_model(const Prune *p, const Tree *list) {
    const Tree *entry = next_entry(p, list->first);
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        if (!entry || !tree_is_string(tree_get(entry, "stack"), block->stack) ||
            !is_int(tree_get(entry, "layer"), block->layer) ||
            !is_int(tree_get(entry, "units"), heads_of(&block->parts)))
            return false;
        entry = next_entry(p, entry->next);
    }
    return !entry;
}

/* The scores of an entry; false unless there is one finite number for each unit. */
static bool read_entry(const Tree *entry, int64_t units, double *scores) {
    const Tree *list = tree_get(entry, "scores");
    if (!list || list->kind != TREE_LIST || list->count != units) return false;
    for (const Tree *item = list->first; item; item = item->next)
        if (!tree_number(item, scores) || !isfinite(*scores++)) return false;
    return true;
}

static Status fail_stored(const Prune *p, Diag *diag, const char *message) {
    Status status = step_fail(p->ctx, diag, "%s", message);
    diag_hint(diag, "run `importance` before this step, or choose `score: magnitude`");
    return status;
}

Status prune_read_scores(Prune *p, const Model *model, bool taylor, Diag *diag) {
    const Tree *list = stored_list(p, model);
    const Tree *score = tree_get(tree_get(model->provenance, "importance"), "score");
    if (!list) return fail_stored(p, diag, "the model has no stored importance scores");
    if (taylor && !tree_is_string(score, "taylor"))
        return fail_stored(p, diag, "the stored importance scores are no Taylor scores");
    if (!fits_model(p, list))
        return fail_stored(p, diag,
                           "the stored importance scores are those of other layers or "
                           "widths than the model has now");
    const Tree *entry = next_entry(p, list->first);
    for (int i = 0; i < p->block_count; i++) {
        PruneBlock *block = &p->blocks[i];
        if (tree_get(entry, "scores") || !p->ctx->plan) {
            const int64_t heads = heads_of(&block->parts);
            double *scores = ARENA_ARRAY(p->ctx->arena, double, (size_t)heads);
            if (!read_entry(entry, heads, scores))
                return fail_stored(p, diag, "the stored importance scores are damaged");
            block->scores = new_scores(p, block);
            for (int64_t u = 0; u < heads; u++)
                block->scores[u * prune_part_count(&block->parts) / heads] += scores[u];
        }
        entry = next_entry(p, entry->next);
    }
    return STATUS_OK;
}

/* ---- storing ---- */

static Tree *entry_tree(Arena *arena, const char *stack, int64_t layer, int64_t units) {
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, map, "stack", stack);
    tree_put_int(arena, map, "layer", layer);
    tree_put_int(arena, map, "units", units);
    return map;
}

Tree *prune_scores_tree(const Prune *p, Arena *arena) {
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        Tree *map = entry_tree(arena, block->stack, block->layer, block->parts.units);
        tree_append(arena, list, NULL, LOC_NONE, map);
        if (!block->scores) continue;
        Tree *scores = tree_new(arena, TREE_LIST, LOC_NONE);
        for (int64_t u = 0; u < block->parts.units; u++)
            tree_add_real(arena, scores, block->scores[u]);
        tree_append(arena, map, "scores", LOC_NONE, scores);
    }
    return list;
}

/* A block's entry with the kept units only. */
static Tree *cut_entry(const PruneBlock *block, const PruneGroup *group,
                       const Tree *entry, Arena *arena) {
    int64_t count = 0, unit = 0, kept = 0;
    const int64_t *keep = prune_kept(arena, group, &count);
    Tree *map = entry_tree(arena, block->stack, block->layer, count);
    const Tree *old = tree_get(entry, "scores");
    if (!old || old->kind != TREE_LIST) return map;
    Tree *scores = tree_new(arena, TREE_LIST, LOC_NONE);
    for (const Tree *item = old->first; item && kept < count; item = item->next, unit++) {
        if (keep[kept] != unit) continue;
        tree_append(arena, scores, NULL, LOC_NONE, tree_copy(arena, item));
        kept++;
    }
    tree_append(arena, map, "scores", LOC_NONE, scores);
    return map;
}

Status prune_cut_scores(const Prune *p, Model *model, Diag *diag) {
    Arena *arena = model->arena;
    const Tree *old = stored_list(p, model);
    if (!old) return STATUS_OK;
    Tree *list = tree_new(arena, fits_model(p, old) ? TREE_LIST : TREE_NULL, LOC_NONE);
    const Tree *next = next_entry(p, old->first);
    const PruneBlock *block = p->blocks;
    for (const Tree *entry = old->first; list->kind == TREE_LIST && entry;
         entry = entry->next) {
        if (entry != next) {
            tree_append(arena, list, NULL, LOC_NONE, tree_copy(arena, entry));
            continue;
        }
        const PruneGroup *group = &p->groups[block->group];
        if (group->keep_count > 0)
            tree_append(arena, list, NULL, LOC_NONE,
                        cut_entry(block, group, entry, arena));
        next = next_entry(p, entry->next);
        block++;
    }
    const char *path = arena_printf(p->ctx->arena, "importance.%s", list_name(p->kind));
    return tree_set(arena, model->provenance, path, list, diag);
}
