/* Generations: rungs of trials, children of the best, and the front of what came out. See
 * session/search/generations.h. */
#include "session/search/generations.h"

#include "io/files/path.h"
#include "ir/random.h"
#include "session/search/candidates.h"
#include "session/search/forecast.h"
#include "session/search/pareto.h"
#include "session/search/trial_recipes.h"

#include <math.h>
#include <unistd.h>

enum {
    PARENTS = 3,     /* recipes that have children, for each child that runs */
    BROOD = 10,      /* children that are planned for each that runs */
    BROOD_DRAWS = 60 /* children that are made for it, at most */
};

/* ---- rungs ---- */

/* Whether a recipe whose plan guessed came out above the budgets. */
static bool is_over(const Search *search, const Candidate *candidate) {
    const TrialResult *result = &candidate->result, *input = &search->baseline;
    if (!candidate->guessed || result->status != TRIAL_DONE) return false;
    return !search_within(&search->options, result->flops / input->flops,
                          (double)result->parameters / (double)input->parameters);
}

Status search_run_rung(Search *search, const int *chosen, int count, int rung,
                       int generation, Diag *diag) {
    Arena *arena = search->arena;
    const SearchOptions *options = &search->options;
    const TrialRunner runner = search_runner(search);
    const bool last = rung == search->rungs - 1;
    Trial *trials = ARENA_ARRAY(arena, Trial, (size_t)count + 1);
    const SearchRound round = {.number = last ? rung + generation - 1 : rung,
                               .of = search->rungs + search->generations - 1,
                               .generation = generation,
                               .share = search_rung_share(search, rung),
                               .trials = count};
    if (options->round_begin) options->round_begin(options->self, &round);
    for (int i = 0; i < count; i++) {
        Candidate *candidate = &search->candidates[chosen[i]];
        const char *name = last ? "recipe" : arena_printf(arena, "rung%d", rung + 1);
        trials[i] = search_trial(search, candidate->folder, name, last);
        TRY(search_rung_write(search, &trials[i], candidate, rung, diag));
    }
    TRY(trials_run(&runner, trials, count, diag));
    for (int i = 0; i < count; i++) {
        Candidate *candidate = &search->candidates[chosen[i]];
        candidate->rung = rung;
        candidate->result = trials[i].result;
        candidate->over = is_over(search, candidate);
        candidate->output = trials[i].output;
        candidate->log = trials[i].log;
    }
    return STATUS_OK;
}

/* How a finished candidate compares: what it costs and what it is worth. */
static ParetoPoint point_of(const Search *search, const Candidate *candidate) {
    const double value = candidate->result.value;
    return (ParetoPoint){.cost = candidate->result.flops / search->baseline.flops,
                         .worth = search->falls ? -value : value};
}

/* Candidates of the last rung run that ended with a metric, within the budgets: their
 * indices and points. */
static int gather(const Search *search, const int *chosen, int count, int *kept,
                  ParetoPoint *points) {
    int found = 0;
    for (int i = 0; i < count; i++) {
        const Candidate *candidate = &search->candidates[chosen[i]];
        if (candidate->result.status != TRIAL_DONE || candidate->over ||
            !isfinite(candidate->result.value))
            continue;
        points[found] = point_of(search, candidate);
        kept[found++] = chosen[i];
    }
    return found;
}

/* Trials of the rung after one of `count`. */
static int next_count(int count) {
    const int part = (count + SEARCH_SHRINK - 1) / SEARCH_SHRINK;
    return part > SEARCH_FEWEST ? part : count < SEARCH_FEWEST ? count : SEARCH_FEWEST;
}

/* Keeps the `keep` best of the candidates and returns how many there are. */
static int best_of(const Search *search, int *chosen, int count, int keep) {
    int *kept = ARENA_ARRAY(search->arena, int, (size_t)count + 1);
    int *order = ARENA_ARRAY(search->arena, int, (size_t)count + 1);
    ParetoPoint *points = ARENA_ARRAY(search->arena, ParetoPoint, (size_t)count + 1);
    const int found = gather(search, chosen, count, kept, points);
    const int stay = pareto_select(points, found, keep, order);
    for (int i = 0; i < stay; i++) chosen[i] = kept[order[i]];
    return stay;
}

/* Whether `a` is the better answer to what was asked: with a largest drop the lighter,
 * else the one that is worth more. */
static bool better(const Search *search, const Candidate *a, const Candidate *b) {
    const ParetoPoint x = point_of(search, a), y = point_of(search, b);
    const bool cheapest = !isnan(search->options.max_drop);
    if (cheapest && x.cost != y.cost) return x.cost < y.cost;
    if (x.worth != y.worth) return x.worth > y.worth;
    return x.cost < y.cost;
}

/* Front, drops, and the best that fits, of the candidates that ran whole. */
static void judge(Search *search, const int *chosen, int count) {
    int *kept = ARENA_ARRAY(search->arena, int, (size_t)count + 1);
    int *ranks = ARENA_ARRAY(search->arena, int, (size_t)count + 1);
    ParetoPoint *points = ARENA_ARRAY(search->arena, ParetoPoint, (size_t)count + 1);
    const double base = search->baseline.value;
    const int found = gather(search, chosen, count, kept, points);
    pareto_ranks(points, found, ranks);
    for (int i = 0; i < found; i++) {
        Candidate *candidate = &search->candidates[kept[i]];
        const double max_drop = search->options.max_drop;
        candidate->drop = search->falls ? candidate->result.value - base
                                        : base - candidate->result.value;
        candidate->front = ranks[i] == 0;
        candidate->fits = isnan(max_drop) || candidate->drop <= max_drop;
        if (candidate->fits && (!search->best || better(search, candidate, search->best)))
            search->best = candidate;
    }
}

/* ---- generations ---- */

/* Candidates that ran whole, or were to. */
static int whole_runs(const Search *search, int *chosen) {
    int count = 0;
    for (int i = 0; i < search->count; i++)
        if (search->candidates[i].rung == search->rungs - 1) chosen[count++] = i;
    return count;
}

/* The candidate that is recipe `index`, -1 = there is none. */
static int find_candidate(const Search *search, uint64_t index) {
    for (int i = 0; i < search->count; i++)
        if (search->candidates[i].index == index) return i;
    return -1;
}

/* Children of the best that ran, planned: some of them are to run. */
typedef struct Brood {
    Candidate *items;
    int count;
    uint64_t *seen; /* recipes that were planned, those that do not fit too */
    int seen_count;
} Brood;

/* Whether a recipe was planned for the brood, or ran whole. */
static bool is_known(const Search *search, const Brood *brood, uint64_t index) {
    const int before = find_candidate(search, index);
    bool known = before >= 0 && search->candidates[before].rung == search->rungs - 1;
    for (int i = 0; i < brood->seen_count && !known; i++) known = brood->seen[i] == index;
    return known;
}

/* Makes up to `wanted` children of the parents that did not run whole and fit. */
static Status make_brood(Search *search, Brood *brood, const int *parents, int count,
                         int generation, int wanted, Diag *diag) {
    const char *recipe = path_join(search->arena, search->options.folder, "child.yaml");
    const uint64_t key =
        random_key(random_key_name((uint64_t)search->options.seed, "search children"),
                   (uint64_t)generation);
    const uint64_t draws = (uint64_t)wanted * BROOD_DRAWS / BROOD;
    CandidatePlanner planner = {.search = search, .lightest = INFINITY};
    Status status = STATUS_OK;
    brood->items = ARENA_ARRAY(search->arena, Candidate, (size_t)wanted + 1);
    brood->seen = ARENA_ARRAY(search->arena, uint64_t, (size_t)draws + 1);
    for (uint64_t i = 0; i < draws && brood->count < wanted && status == STATUS_OK; i++) {
        const uint64_t own = random_key(key, i);
        const int mother = parents[random_u64(own, 0) % (uint64_t)count];
        const int father = parents[random_u64(own, 1) % (uint64_t)count];
        const uint64_t index = search_space_child(&search->space, random_key(own, 2),
                                                  search->candidates[mother].index,
                                                  search->candidates[father].index);
        Candidate *child = &brood->items[brood->count];
        bool fits = false;
        if (is_known(search, brood, index)) continue;
        brood->seen[brood->seen_count++] = index;
        *child = candidate_of(search, index, generation);
        child->recipe = recipe;
        status = search_recipe_write(search, recipe, "A child that is planned.",
                                     child->passes, true, diag);
        if (status == STATUS_OK) status = candidate_plan(&planner, child, &fits, diag);
        search->drawn++;
        brood->count += fits;
    }
    unlink(recipe);
    diag_destroy(planner.refusal);
    return status;
}

/* What children are likely worth, by what the recipes that ran whole are. */
static void foretell(const Search *search, const Brood *brood, ParetoPoint *points) {
    Arena *arena = search->arena;
    const size_t most = (size_t)(search->count + brood->count) + 1;
    int *runs = ARENA_ARRAY(arena, int, most);
    ParetoPoint *ran = ARENA_ARRAY(arena, ParetoPoint, most);
    uint64_t *known = ARENA_ARRAY(arena, uint64_t, most);
    uint64_t *asked = ARENA_ARRAY(arena, uint64_t, most);
    double *worth = ARENA_ARRAY(arena, double, most);
    double *foretold = ARENA_ARRAY(arena, double, most);
    const int count = gather(search, runs, whole_runs(search, runs), runs, ran);
    for (int i = 0; i < count; i++) {
        known[i] = search->candidates[runs[i]].index;
        worth[i] = ran[i].worth;
    }
    for (int i = 0; i < brood->count; i++) asked[i] = brood->items[i].index;
    forecast(&search->space, known, worth, count, asked, foretold, brood->count);
    for (int i = 0; i < brood->count; i++)
        points[i] = (ParetoPoint){brood->items[i].flops, foretold[i]};
}

/* Makes a child a candidate: itself where it left early before. Stores its place. */
static Status adopt(Search *search, const Candidate *child, int *place, Diag *diag) {
    *place = find_candidate(search, child->index);
    if (*place < 0) {
        Candidate *candidate = &search->candidates[ *place = search->count];
        *candidate = *child;
        TRY(candidate_name(search, candidate, diag));
        search->count++;
    }
    return STATUS_OK;
}

/* Runs `wanted` children of the best that ran whole so far: of many that are planned
 * those that nothing beats in FLOPs and in what they are likely worth. Stores how many
 * there are. */
static Status run_children(Search *search, int generation, int wanted, int *found,
                           Diag *diag) {
    Arena *arena = search->arena;
    Brood brood = {0};
    int *parents = ARENA_ARRAY(arena, int, (size_t)search->count + 1);
    int *chosen = ARENA_ARRAY(arena, int, (size_t)wanted + 1);
    const int count =
        best_of(search, parents, whole_runs(search, parents), PARENTS * wanted);
    *found = 0;
    if (count == 0) return STATUS_OK;
    TRY(make_brood(search, &brood, parents, count, generation, BROOD * wanted, diag));
    ParetoPoint *points = ARENA_ARRAY(arena, ParetoPoint, (size_t)brood.count + 1);
    foretell(search, &brood, points);
    *found = pareto_select(points, brood.count, wanted, chosen);
    for (int i = 0; i < *found; i++)
        TRY(adopt(search, &brood.items[chosen[i]], &chosen[i], diag));
    return *found > 0 ? search_run_rung(search, chosen, *found, search->rungs - 1,
                                        generation, diag)
                      : STATUS_OK;
}

Status search_run(Search *search, Diag *diag) {
    int count = search->count, whole = 0, found = 1;
    int *chosen =
        ARENA_ARRAY(search->arena, int, (size_t)search->generations *(size_t)count + 1);
    for (int i = 0; i < count; i++) chosen[i] = i;
    for (int rung = 0; rung < search->rungs && count > 0; rung++) {
        if (rung > 0) count = best_of(search, chosen, count, next_count(count));
        TRY(search_run_rung(search, chosen, count, rung, 1, diag));
    }
    for (int i = 2; i <= search->generations && found > 0; i++)
        TRY(run_children(search, i, count, &found, diag));
    whole = whole_runs(search, chosen);
    judge(search, chosen, whole);
    return STATUS_OK;
}
