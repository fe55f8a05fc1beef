/* What pruning keeps: see prune.h. */
#include "passes/guess.h"
#include "passes/layers.h"
#include "passes/pruning/prune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool prune_is_global(const PruneOptions *options) {
    return options->ranking == RANKING_GLOBAL ||
           (options->ranking == RANKING_AUTO && budget_count(&options->budget) > 0);
}

/* ---- parts and units ---- */

void prune_mask(bool *kept, const PruneGroup *group) {
    const int64_t parts = prune_part_count(&group->parts);
    for (int64_t i = 0; i < parts; i++) {
        kept[i] = false;
        for (int64_t k = 0; k < group->keep_count && !kept[i]; k++)
            kept[i] = group->keep[k] == group->unit[i];
    }
}

int64_t *prune_kept(Arena *arena, const PruneGroup *group, int64_t *count) {
    const int64_t parts = prune_part_count(&group->parts);
    const int64_t heads = group->parts.size / group->parts.sets; /* of a part */
    int64_t *list = ARENA_ARRAY(arena, int64_t, (size_t)(parts * heads));
    bool *kept = ARENA_ARRAY(arena, bool, (size_t)parts);
    prune_mask(kept, group);
    *count = 0;
    for (int64_t i = 0; i < parts * heads; i++)
        if (kept[i / heads]) list[(*count)++] = i;
    return list;
}

void prune_rank_parts(PruneGroup *group, const double *part_scores) {
    const int64_t units = group->parts.units;
    for (int64_t u = 0; u < units; u++) group->scores[u] = 0;
    for (int64_t i = 0; i < prune_part_count(&group->parts); i++) {
        const int64_t first = i / units * units; /* of the set */
        int64_t better = 0;
        for (int64_t j = first; j < first + units && group->parts.sets > 1; j++)
            better += part_scores[j] > part_scores[i] ||
                      (part_scores[j] == part_scores[i] && j < i);
        group->unit[i] = group->parts.sets > 1 ? better : i;
        group->scores[group->unit[i]] += part_scores[i];
    }
}

/* Adds the blocks' scores up; a group whose scores are not known stays without. */
static Status sum_groups(Prune *p, Diag *diag) {
    for (int g = 0; g < p->group_count; g++) {
        PruneGroup *group = &p->groups[g];
        const int64_t parts = prune_part_count(&group->parts);
        double *sums = ARENA_ARRAY(p->ctx->arena, double, (size_t)parts);
        bool known = false;
        for (int i = 0; i < p->block_count; i++) {
            const PruneBlock *block = &p->blocks[i];
            if (block->group != g || !block->scores) continue;
            known = true;
            for (int64_t u = 0; u < parts; u++) {
                sums[u] += block->scores[u];
                if (!isfinite(sums[u]))
                    return step_fail(
                        p->ctx, diag, "%s: the score of %s %lld is not finite",
                        block->place,
                        p->kind == PRUNE_HEADS ? "head" : "feed-forward unit",
                        (long long)u);
            }
        }
        group->scores = ARENA_ARRAY(p->ctx->arena, double, (size_t)group->parts.units);
        if (known)
            prune_rank_parts(group, sums);
        else
            group->scores = NULL;
    }
    return STATUS_OK;
}

Status prune_sum_scores(Prune *p, Diag *diag) {
    TRY(sum_groups(p, diag));
    for (int g = 0; g < p->group_count; g++) {
        PruneGroup *group = &p->groups[g];
        group->keep = ARENA_ARRAY(p->ctx->arena, int64_t, (size_t)group->parts.units);
        group->keep_count = 0;
        p->guessed = p->guessed || !group->scores;
    }
    return STATUS_OK;
}

/* ---- ranking ---- */

typedef struct Candidate {
    double score;
    int group;
    int64_t unit;
} Candidate;

/* Larger scores first; ties go to the earlier unit. */
static int compare_candidates(const void *left, const void *right) {
    const Candidate *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    return a->unit < b->unit ? -1 : a->unit > b->unit;
}

/* All units of groups [first, first + count), best first; to be freed. */
static Candidate *rank_units(const Prune *p, int first, int count, int64_t *total) {
    *total = 0;
    for (int g = first; g < first + count; g++) *total += p->groups[g].parts.units;
    Candidate *units = memory_alloc((size_t)*total, sizeof *units);
    int64_t n = 0;
    for (int g = first; g < first + count; g++)
        for (int64_t u = 0; u < p->groups[g].parts.units; u++)
            units[n++] = (Candidate){p->groups[g].scores[u], g, u};
    qsort(units, (size_t)*total, sizeof *units, compare_candidates);
    return units;
}

/* Keeps the best units of groups [first, first + count) together, `keep` heads of them
 * all, at least `least` units of each. */
static void keep_best(Prune *p, int first, int count, int64_t keep, int64_t least) {
    int64_t total = 0;
    Candidate *units = rank_units(p, first, count, &total);
    for (int round = 0; round < 2; round++)
        for (int64_t i = 0; i < total && keep > 0; i++) {
            Candidate *unit = &units[i];
            PruneGroup *group = &p->groups[unit->group];
            if (unit->unit < 0 || (round == 0 && group->keep_count >= least)) continue;
            if (group->parts.size > keep) continue;
            group->keep[group->keep_count++] = unit->unit;
            unit->unit = -1;
            keep -= group->parts.size;
        }
    for (int g = first; g < first + count; g++)
        sort_numbers(p->groups[g].keep, p->groups[g].keep_count);
    free(units);
}

/* ---- without scores: the first units, as many as a run would keep ---- */

/* Heads of all groups, where each has no more than so many units. */
static int64_t sum_capped(const Prune *p, int64_t level) {
    int64_t sum = 0;
    for (int g = 0; g < p->group_count; g++) {
        const PruneParts *parts = &p->groups[g].parts;
        sum += (parts->units < level ? parts->units : level) * parts->size;
    }
    return sum;
}

void prune_keep_first(PruneGroup *group, int64_t count) {
    for (int64_t u = 0; u < count; u++) group->keep[u] = u;
    group->keep_count = count;
}

/* Spreads `keep` heads as evenly as the groups' sizes allow. */
static void keep_evenly(Prune *p, int64_t keep) {
    int64_t level = 0, high = keep;
    while (level < high) {
        const int64_t middle = level + (high - level + 1) / 2;
        if (sum_capped(p, middle) <= keep)
            level = middle;
        else
            high = middle - 1;
    }
    int64_t rest = keep - sum_capped(p, level);
    for (int g = 0; g < p->group_count; g++) {
        PruneGroup *group = &p->groups[g];
        const int64_t units = group->parts.units, size = group->parts.size;
        const bool more = rest >= size && units > level;
        prune_keep_first(group, units < level ? units : level + more);
        rest -= more ? size : 0;
    }
}

void prune_keep_best(Prune *p, PruneGroup *group, int64_t count) {
    if (p->guessed)
        prune_keep_first(group, count);
    else
        keep_best(p, (int)(group - p->groups), 1, count * group->parts.size, 0);
}

/* ---- counts ---- */

static int64_t by_ratio(double ratio, int64_t units) {
    const int64_t count = llround(ratio * (double)units);
    return count < 1 ? 1 : count > units ? units : count;
}

/* Whether every layer has so many heads, or units, in whole units. */
static Status check_keep(const Prune *p, int64_t keep, Diag *diag) {
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        const PruneParts *parts = &block->parts;
        if (keep > parts->units * parts->size)
            return step_fail_option(p->ctx, "keep", diag,
                                    "%s has %lld %s, cannot keep %lld", block->place,
                                    (long long)(parts->units * parts->size),
                                    prune_units(p->kind), (long long)keep);
        if (keep % parts->size == 0) continue;
        step_fail_option(p->ctx, "keep", diag,
                         "%s: expected a multiple of %lld heads, which share keys and "
                         "values, found %lld",
                         block->place, (long long)parts->size, (long long)keep);
        diag_hint(diag,
                  "`unit: group` takes heads that share keys and values together, "
                  "`unit: query` one of all that have keys and values of their own");
        return STATUS_MODEL;
    }
    return STATUS_OK;
}

/* What a plan does not know: whether layers still have so many then. */
static void warn_keep(const Prune *p, int64_t keep, Diag *diag) {
    bool guessed = false;
    for (int i = 0; keep > 0 && i < p->block_count; i++)
        guessed |= guess_has(p->ctx, p->blocks[i].slots[SLOT_OUT].leaf->storage);
    if (guessed)
        option_warn(&p->ctx->source, "keep", diag,
                    "how many %s each layer has by then is guessed: the run is refused "
                    "where one has fewer than %lld",
                    prune_units(p->kind), (long long)keep);
}

static Status choose_per_layer(Prune *p, const PruneOptions *options, Diag *diag) {
    TRY(check_keep(p, options->keep, diag));
    warn_keep(p, options->keep, diag);
    for (int g = 0; g < p->group_count; g++) {
        PruneGroup *group = &p->groups[g];
        const int64_t count = options->keep
                                  ? options->keep / group->parts.size
                                  : by_ratio(options->keep_ratio, group->parts.units);
        if (group->scores)
            keep_best(p, g, 1, count * group->parts.size, 0);
        else
            prune_keep_first(group, count);
    }
    return STATUS_OK;
}

static Status choose_global(Prune *p, const PruneOptions *options, Diag *diag) {
    const int64_t least = options->allow_empty ? 0 : 1;
    int64_t total = 0, fewest = 0;
    bool known = true;
    for (int g = 0; g < p->group_count; g++) {
        const PruneParts *parts = &p->groups[g].parts;
        total += parts->units * parts->size;
        fewest += least * parts->size;
        known = known && p->groups[g].scores;
    }
    int64_t keep = options->keep_total;
    if (keep == 0) {
        keep = by_ratio(options->keep_ratio, total);
        if (keep < fewest) keep = fewest;
    }
    if (keep > total || keep < fewest) {
        step_fail_option(p->ctx, "keep_total|keep_ratio", diag,
                         "expected %lld to %lld %s for %d blocks, found %lld",
                         (long long)(options->allow_empty ? 1 : fewest), (long long)total,
                         prune_units(p->kind), p->group_count, (long long)keep);
        if (p->kind == PRUNE_HEADS && keep < fewest)
            diag_hint(diag, "`allow_empty: true` lets layers end without a head");
        return STATUS_MODEL;
    }
    if (known)
        keep_best(p, 0, p->group_count, keep, least);
    else
        keep_evenly(p, keep);
    return STATUS_OK;
}

Status prune_choose(Prune *p, const PruneOptions *options, Diag *diag) {
    return prune_is_global(options) ? choose_global(p, options, diag)
                                    : choose_per_layer(p, options, diag);
}
