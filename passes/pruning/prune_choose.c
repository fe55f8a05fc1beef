/* What pruning keeps: see prune.h. */
#include "passes/layers.h"
#include "passes/pruning/prune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool prune_is_global(const PruneOptions *options) {
    return options->ranking == RANKING_GLOBAL ||
           (options->ranking == RANKING_AUTO && budget_count(&options->budget) > 0);
}

/* Adds the blocks' scores up; a group whose scores are not known stays without. */
static Status sum_groups(Prune *p, Diag *diag) {
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        PruneGroup *group = &p->groups[block->group];
        if (!block->scores) continue;
        if (!group->scores)
            group->scores = ARENA_ARRAY(p->ctx->arena, double, (size_t)group->units);
        for (int64_t u = 0; u < group->units; u++) {
            group->scores[u] += block->scores[u];
            if (!isfinite(group->scores[u]))
                return step_fail(
                    p->ctx, diag, "%s: the score of %s %lld is not finite", block->place,
                    p->kind == PRUNE_HEADS ? "head" : "feed-forward unit", (long long)u);
        }
    }
    return STATUS_OK;
}

Status prune_sum_scores(Prune *p, Diag *diag) {
    TRY(sum_groups(p, diag));
    for (int g = 0; g < p->group_count; g++) {
        PruneGroup *group = &p->groups[g];
        group->keep = ARENA_ARRAY(p->ctx->arena, int64_t, (size_t)group->units);
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
    for (int g = first; g < first + count; g++) *total += p->groups[g].units;
    Candidate *units = memory_alloc((size_t)*total, sizeof *units);
    int64_t n = 0;
    for (int g = first; g < first + count; g++)
        for (int64_t u = 0; u < p->groups[g].units; u++)
            units[n++] = (Candidate){p->groups[g].scores[u], g, u};
    qsort(units, (size_t)*total, sizeof *units, compare_candidates);
    return units;
}

/* Keeps the best `keep` units of groups [first, first + count) together, at least `least`
 * of each. */
static void keep_best(Prune *p, int first, int count, int64_t keep, int64_t least) {
    int64_t total = 0;
    Candidate *units = rank_units(p, first, count, &total);
    for (int round = 0; round < 2; round++)
        for (int64_t i = 0; i < total && keep > 0; i++) {
            Candidate *unit = &units[i];
            PruneGroup *group = &p->groups[unit->group];
            if (unit->unit < 0 || (round == 0 && group->keep_count >= least)) continue;
            group->keep[group->keep_count++] = unit->unit;
            unit->unit = -1;
            keep--;
        }
    for (int g = first; g < first + count; g++)
        sort_numbers(p->groups[g].keep, p->groups[g].keep_count);
    free(units);
}

/* ---- without scores: the first units, as many as a run would keep ---- */

static int64_t sum_capped(const Prune *p, int64_t level) {
    int64_t sum = 0;
    for (int g = 0; g < p->group_count; g++)
        sum += p->groups[g].units < level ? p->groups[g].units : level;
    return sum;
}

void prune_keep_first(PruneGroup *group, int64_t count) {
    for (int64_t u = 0; u < count; u++) group->keep[u] = u;
    group->keep_count = count;
}

/* Spreads `keep` units as evenly as the groups' sizes allow. */
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
        const bool more = rest > 0 && group->units > level;
        prune_keep_first(group, group->units < level ? group->units : level + more);
        rest -= more;
    }
}

void prune_keep_best(Prune *p, PruneGroup *group, int64_t count) {
    if (p->guessed)
        prune_keep_first(group, count);
    else
        keep_best(p, (int)(group - p->groups), 1, count, 0);
}

/* ---- counts ---- */

static int64_t by_ratio(double ratio, int64_t units) {
    const int64_t count = llround(ratio * (double)units);
    return count < 1 ? 1 : count > units ? units : count;
}

static Status choose_per_layer(Prune *p, const PruneOptions *options, Diag *diag) {
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        if (options->keep <= block->units) continue;
        return step_fail_option(p->ctx, "keep", diag, "%s has %lld %s, cannot keep %lld",
                                block->place, (long long)block->units,
                                prune_units(p->kind), (long long)options->keep);
    }
    for (int g = 0; g < p->group_count; g++) {
        PruneGroup *group = &p->groups[g];
        const int64_t count =
            options->keep ? options->keep : by_ratio(options->keep_ratio, group->units);
        if (group->scores)
            keep_best(p, g, 1, count, 0);
        else
            prune_keep_first(group, count);
    }
    return STATUS_OK;
}

static Status choose_global(Prune *p, const PruneOptions *options, Diag *diag) {
    int64_t total = 0;
    bool known = true;
    for (int g = 0; g < p->group_count; g++) {
        total += p->groups[g].units;
        known = known && p->groups[g].scores;
    }
    const int64_t least = options->allow_empty ? 0 : 1;
    int64_t keep = options->keep_total;
    if (keep == 0) {
        keep = by_ratio(options->keep_ratio, total);
        if (keep < least * p->group_count) keep = least * p->group_count;
    }
    if (keep > total || keep < least * p->group_count) {
        step_fail_option(p->ctx, "keep_total|keep_ratio", diag,
                         "expected %lld to %lld %s for %d blocks, found %lld",
                         (long long)(options->allow_empty ? 1 : p->group_count),
                         (long long)total, prune_units(p->kind), p->group_count,
                         (long long)keep);
        if (p->kind == PRUNE_HEADS && keep < p->group_count)
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
