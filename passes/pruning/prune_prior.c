/* What a posterior says about units that go: see prune.h.
 *
 * A unit does nothing when nobody reads it: what the output projection reads of it is
 * zero, and what mixing matrices pass on of it to other heads. A head does nothing either
 * when its values are zero. */
#include "passes/pruning/prune.h"

#include "passes/posterior/relevance.h"

#include <stdlib.h>

/* Entries of a slot that belong to `count` increasing parts; in the step's arena. */
static ConditionSlice slice_of(const Prune *p, const PruneSlot *slot,
                               const int64_t *parts, int64_t count) {
    int64_t *index = ARENA_ARRAY(p->ctx->arena, int64_t, (size_t)(count * slot->width));
    for (int64_t i = 0; i < count * slot->width; i++)
        index[i] = parts[i / slot->width] * slot->width + i % slot->width;
    return (ConditionSlice){.storage = slot->leaf->storage,
                            .axis = slot->axis,
                            .index = index,
                            .count = count * slot->width};
}

/* Slices of parts of a group: those that are zeroed, and all others (unless NULL). */
static void gather(SliceList *given, SliceList *removed, const Prune *p, int group,
                   const int64_t *parts, int64_t count, int zero) {
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        for (int j = 0; block->group == group && j < block->slot_count; j++) {
            const PruneSlot *slot = &block->slots[j];
            if (!prune_is_first(p, block, slot)) continue;
            const bool reads_values = slot->reads && slot != &block->slots[SLOT_OUT];
            const bool zeroed =
                zero == ZERO_VALUE ? slot->value || reads_values : slot->reads;
            SliceList *list = zeroed ? given : removed;
            if (list) slices_add(p->ctx->arena, list, slice_of(p, slot, parts, count));
        }
    }
}

/* ---- conditioning ---- */

/* The parts of a group that go, increasing; in the step's arena. */
static int64_t *removed_parts(const Prune *p, const PruneGroup *group, int64_t *count) {
    const int64_t all = prune_part_count(&group->parts);
    int64_t *parts = ARENA_ARRAY(p->ctx->arena, int64_t, (size_t)all);
    bool *kept = ARENA_ARRAY(p->ctx->arena, bool, (size_t)all);
    prune_mask(kept, group);
    *count = 0;
    for (int64_t i = 0; i < all; i++)
        if (!kept[i]) parts[(*count)++] = i;
    return parts;
}

Status prune_condition(const Prune *prunes, int count, int zero, Diag *diag) {
    SliceList given = {0}, removed = {0};
    for (const Prune *p = prunes; p < prunes + count; p++)
        for (int g = 0; g < p->group_count; g++) {
            int64_t gone = 0;
            const int64_t *parts = removed_parts(p, &p->groups[g], &gone);
            if (gone) gather(&given, &removed, p, g, parts, gone, zero);
        }
    return prior_condition(prunes->ctx, prunes->graph, &given, &removed, diag);
}

/* ---- relevance ---- */

static Status score_group(const Prune *p, int group, int zero, RelevanceCache *cache,
                          Diag *diag) {
    PruneBlock *block = p->blocks;
    while (block->group != group) block++;
    block->scores =
        ARENA_ARRAY(p->ctx->arena, double, (size_t)prune_part_count(&block->parts));
    SliceList given = {0};
    for (int64_t u = 0; u < prune_part_count(&block->parts); u++) {
        given.count = 0;
        gather(&given, NULL, p, group, &u, 1, zero);
        TRY(relevance_of(&block->scores[u], p->ctx, given.items, given.count, cache,
                         diag));
    }
    return STATUS_OK;
}

/* What a plan, which has no numbers, knows of it. */
static Status check_group(const Prune *p, int group, int zero, Diag *diag) {
    SliceList given = {0};
    const int64_t first = 0;
    gather(&given, NULL, p, group, &first, 1, zero);
    return relevance_check(p->ctx, given.items, given.count, diag);
}

Status prune_relevance(Prune *p, int zero, Diag *diag) {
    RelevanceCache cache = {0};
    Status status = prior_require(p->ctx, p->graph, "score: relevance", diag);
    for (int g = 0; g < p->group_count && status == STATUS_OK; g++)
        status = p->ctx->plan ? check_group(p, g, zero, diag)
                              : score_group(p, g, zero, &cache, diag);
    relevance_release(&cache);
    return status;
}
