/* What pruning keeps under a budget: see prune.h.
 *
 * What a group of blocks costs depends on how many of its units stay and on no other
 * group. So the cost of each count is measured once, by model_measure on copies of the
 * model's shapes that are cut so, and a choice of units is a sum of such costs. Units go
 * into the budget by score over cost, the best first; one that does not fit is left out
 * and smaller ones behind it may still come in. The model that comes of it is measured as
 * a whole before anything is cut. */
#include "passes/pruning/prune.h"

#include "ir/rewrite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A group of blocks and what it costs. */
typedef struct Share {
    Prune *prune;
    PruneGroup *group;
    int64_t least; /* units that stay in any case */
    int64_t count; /* units that are chosen so far */
    double *cost;  /* by number of units: what the model costs less than with all */
    bool mixes;    /* the cost of one more unit depends on how many there are */
} Share;

typedef struct Choice {
    PassContext *ctx;
    const Model *model;
    const PruneOptions *options;
    Budget budget;
    double full; /* cost of the model with all units */
    Prune *const *prunes;
    int prune_count;
    Share *shares;
    int share_count;
} Choice;

/* ---- measuring ---- */

/* Cuts the first units of each group of a kind, as many as the shares' counts say, and
 * gives what is reconstructed behind them its type. */
static Status cut_counts(const Choice *b, const Prune *prune, Model *copy, Arena *arena,
                         Diag *diag) {
    PassContext ctx = *prune->ctx;
    ctx.arena = arena;
    ctx.plan = true;
    ctx.model = copy;
    Prune scratch;
    TRY(prune_find(&scratch, &ctx, copy->graph, prune->kind, prune->unit, prune->stack,
                   diag));
    for (int i = 0; i < b->share_count; i++) {
        const Share *share = &b->shares[i];
        if (share->prune != prune) continue;
        PruneGroup *group = &scratch.groups[share->group - prune->groups];
        group->keep = ARENA_ARRAY(arena, int64_t, (size_t)group->parts.units);
        prune_keep_first(group, share->count);
    }
    TRY(prune_reconstruct(&scratch, 1, NULL, b->options, diag));
    return prune_cut(&scratch, diag);
}

/* Measures the model with as many units as the shares' counts say. */
static Status measure_counts(double *cost, const Choice *b, Diag *diag) {
    Arena *arena = arena_create();
    Model *copy = model_copy(b->model);
    Measure measure = {0};
    Status status = STATUS_OK;
    model_strip(copy);
    for (int i = 0; i < b->prune_count && status == STATUS_OK; i++)
        status = cut_counts(b, b->prunes[i], copy, arena, diag);
    if (status == STATUS_OK) status = model_measure(&measure, copy, diag);
    *cost = measure_get(&measure, b->budget.kind);
    model_destroy(copy);
    arena_destroy(arena);
    return status;
}

/* The same with `count` units in one group and all in the others, less the whole. */
static Status measure_share(const Choice *b, Share *share, int64_t count, Diag *diag) {
    for (int i = 0; i < b->share_count; i++)
        b->shares[i].count = b->shares[i].group->parts.units;
    share->count = count;
    TRY(measure_counts(&share->cost[count], b, diag));
    share->cost[count] -= b->full;
    return STATUS_OK;
}

/* Fills the table of costs. Where all units cost the same, the ends are measured: the
 * group without any, with one, and with all but one, as the first that goes may change
 * the type of what stays. */
static Status fill_costs(const Choice *b, Share *share, Diag *diag) {
    const int64_t units = share->group->parts.units, last = units - 1;
    double *cost = share->cost = ARENA_ARRAY(b->ctx->arena, double, (size_t)units + 1);
    for (int64_t count = share->least > 0; count <= last; count++)
        if (share->mixes || count < 2 || count == last)
            TRY(measure_share(b, share, count, diag));
    for (int64_t count = 2; !share->mixes && count < last; count++)
        cost[count] =
            cost[1] + (cost[last] - cost[1]) * (double)(count - 1) / (double)(last - 1);
    share->group->cost = units > share->least
                             ? -share->cost[share->least] / (double)(units - share->least)
                             : 0;
    return STATUS_OK;
}

/* Whether the units of a group read each other: mixing matrices grow with the square of
 * their number. */
static bool group_mixes(const Prune *p, const PruneGroup *group) {
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        for (int j = 0; &p->groups[block->group] == group && j < block->slot_count; j++)
            if (block->slots[j].reads && j != SLOT_OUT) return true;
    }
    return false;
}

static void list_shares(Choice *b) {
    int most = 0;
    for (int i = 0; i < b->prune_count; i++) most += b->prunes[i]->group_count;
    b->shares = ARENA_ARRAY(b->ctx->arena, Share, (size_t)most);
    for (int i = 0; i < b->prune_count; i++)
        for (int g = 0; g < b->prunes[i]->group_count; g++) {
            Prune *prune = b->prunes[i];
            PruneGroup *group = &prune->groups[g];
            const bool heads = prune->kind == PRUNE_HEADS;
            const int64_t wanted =
                heads ? b->options->least_heads : b->options->least_units;
            const int64_t none = heads && b->options->allow_empty ? 0 : 1;
            const int64_t size = group->parts.size;
            const int64_t least = wanted > 0 ? (wanted + size - 1) / size : none;
            b->shares[b->share_count++] =
                (Share){.prune = prune,
                        .group = group,
                        .least = least < group->parts.units ? least : group->parts.units,
                        .mixes = group_mixes(prune, group)};
        }
}

/* ---- choosing ---- */

static double predict(const Choice *b) {
    double sum = b->full;
    for (int i = 0; i < b->share_count; i++) sum += b->shares[i].cost[b->shares[i].count];
    return sum;
}

/* Takes one more unit into a group where the bound allows it. */
static bool take_one(Share *share, double *used, double bound) {
    if (share->count == share->group->parts.units) return false;
    const double more = share->cost[share->count + 1] - share->cost[share->count];
    if (*used + more > bound) return false;
    share->count++;
    *used += more;
    return true;
}

static void set_level(const Choice *b, double level) {
    for (int i = 0; i < b->share_count; i++) {
        Share *share = &b->shares[i];
        const double free_units = (double)(share->group->parts.units - share->least);
        share->count = share->least + (int64_t)(level * free_units);
    }
}

/* Takes one more unit into each group of a kind, where the bound allows all of them. */
static bool take_row(const Choice *b, const Prune *prune, double *used, double bound) {
    double more = 0;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < b->share_count; i++) {
            Share *share = &b->shares[i];
            if (share->prune != prune || share->count == share->group->parts.units)
                continue;
            if (round == 0)
                more += share->cost[share->count + 1] - share->cost[share->count];
            else
                share->count++;
            if (round == 0 && *used + more > bound) return false;
        }
    *used += more;
    return more > 0;
}

/* The same part of every group, then more as long as it fits: single units where a
 * ranking over all is guessed, else one of every layer. */
static void choose_evenly(const Choice *b, double bound) {
    double low = 0, high = 1;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        set_level(b, middle);
        if (predict(b) <= bound)
            low = middle;
        else
            high = middle;
    }
    set_level(b, low);
    double used = predict(b);
    const bool single = prune_is_global(b->options);
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; single && i < b->share_count; i++)
            more |= take_one(&b->shares[i], &used, bound);
        for (int i = 0; !single && i < b->prune_count; i++)
            more |= take_row(b, b->prunes[i], &used, bound);
    }
}

/* A unit that may come into the budget. */
typedef struct Candidate {
    double worth; /* score over cost */
    int share;
    int64_t rank; /* in its group, 0 = the best */
} Candidate;

static int compare_candidates(const void *left, const void *right) {
    const Candidate *a = left, *b = right;
    if (a->worth != b->worth) return a->worth > b->worth ? -1 : 1;
    if (a->share != b->share) return a->share < b->share ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int compare_scores(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a < b) - (a > b);
}

/* All units beyond those that stay in any case, the best first; to be freed. */
static Candidate *list_candidates(const Choice *b, int64_t *count) {
    int64_t total = 0;
    for (int i = 0; i < b->share_count; i++) total += b->shares[i].group->parts.units;
    Candidate *list = memory_alloc((size_t)total + 1, sizeof *list);
    double *scores = memory_alloc((size_t)total + 1, sizeof *scores);
    *count = 0;
    for (int i = 0; i < b->share_count; i++) {
        const PruneGroup *group = b->shares[i].group;
        memcpy(scores, group->scores, (size_t)group->parts.units * sizeof *scores);
        qsort(scores, (size_t)group->parts.units, sizeof *scores, compare_scores);
        for (int64_t rank = b->shares[i].least; rank < group->parts.units; rank++) {
            const bool as_it_is = b->options->score == SCORE_RANDOM || group->cost <= 0;
            const double worth = as_it_is ? scores[rank] : scores[rank] / group->cost;
            list[(*count)++] = (Candidate){worth, i, rank};
        }
    }
    free(scores);
    qsort(list, (size_t)*count, sizeof *list, compare_candidates);
    return list;
}

/* Groups keep their best units, so that how many of each stay says which. */
static void choose_by_worth(const Choice *b, double bound) {
    int64_t count;
    Candidate *list = list_candidates(b, &count);
    set_level(b, 0);
    double used = predict(b);
    for (int64_t i = 0; i < count; i++) take_one(&b->shares[list[i].share], &used, bound);
    free(list);
}

static Status fail_least(const Choice *b, double least, Diag *diag) {
    const bool heads = b->prunes[0]->kind == PRUNE_HEADS && !b->options->allow_empty;
    budget_fail(&b->budget, b->ctx, least, "the fewest units", diag);
    diag_hint(diag, "%s, or let more of the model go by other steps",
              heads ? "give more, let layers end without heads (`allow_empty: true`)"
                    : "give more");
    return STATUS_MODEL;
}

/* Counts that keep the budget, checked against the model that comes of them: where it
 * costs more than the sum of its groups says, the rest of the choice gets that less. */
static Status choose_counts(Choice *b, bool known, double *cost, Diag *diag) {
    set_level(b, 0);
    const double least = predict(b);
    if (least > b->budget.bound) return fail_least(b, least, diag);
    for (double bound = b->budget.bound; bound >= least;
         bound -= *cost - b->budget.bound) {
        if (known)
            choose_by_worth(b, bound);
        else
            choose_evenly(b, bound);
        TRY(measure_counts(cost, b, diag));
        if (*cost <= b->budget.bound) return STATUS_OK;
    }
    set_level(b, 0);
    TRY(measure_counts(cost, b, diag));
    return *cost <= b->budget.bound ? STATUS_OK : fail_least(b, *cost, diag);
}

/* ---- the whole ---- */

Status prune_choose_budget(Prune *const *prunes, int count, const Model *model,
                           const PruneOptions *options, Diag *diag) {
    Choice b = {.ctx = prunes[0]->ctx,
                .model = model,
                .options = options,
                .prunes = prunes,
                .prune_count = count};
    bool guessed = false;
    double cost = 0;
    TRY(budget_open(&b.budget, b.ctx, model, &options->budget, diag));
    list_shares(&b);
    set_level(&b, 1);
    TRY(measure_counts(&b.full, &b, diag));
    for (int i = 0; i < b.share_count; i++) TRY(fill_costs(&b, &b.shares[i], diag));
    for (int i = 0; i < count; i++) guessed = guessed || prunes[i]->guessed;
    for (int i = 0; i < count; i++) prunes[i]->guessed = guessed;
    TRY(choose_counts(&b, !guessed && prune_is_global(options), &cost, diag));
    for (int i = 0; i < b.share_count; i++)
        prune_keep_best(b.shares[i].prune, b.shares[i].group, b.shares[i].count);
    budget_record(&b.budget, b.ctx, cost);
    return STATUS_OK;
}
