/* Search: candidates drawn and planned, rungs of trials, children of the best, and the
 * front of what came out. */
#include "session/search/search.h"

#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "ir/random.h"
#include "session/output_files.h"
#include "session/page/runs.h"
#include "session/recipe_document.h"
#include "session/search/forecast.h"
#include "session/search/pareto.h"
#include "session/search/training_share.h"
#include "session/session.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    USUAL_RUNGS = 3,
    SHRINK = 3,            /* a rung has this part of the trials of the one before */
    USUAL_CANDIDATES = 18, /* 18, 6 and 2 trials */
    FEWEST = 2,            /* trials of a rung, where there are so many */
    DRAWS_EACH = 20,       /* recipes drawn for each candidate that is wanted, at most */
    USUAL_GENERATIONS = 8, /* with the one that is drawn */
    PARENTS = 3,           /* recipes that have children, for each child that runs */
    BROOD = 10,            /* children that are planned for each that runs */
    BROOD_DRAWS = 60       /* children that are made for it, at most */
};

#define STATE_BYTES_MAX ((size_t)1 << 20)

/* Share of the training in a rung. */
static double rung_share(const Search *search, int rung) {
    return pow(SHRINK, rung - search->rungs + 1);
}

/* ---- recipes of trials ---- */

/* Options of evaluate that end a run: short training is not held against them. */
static bool is_gate(const char *option) {
    static const char *const GATES[] = {"min", "max", "max_drop", "against", NULL};
    for (int i = 0; GATES[i]; i++)
        if (strcmp(option, GATES[i]) == 0) return true;
    return false;
}

/* A copy of an evaluate step, or of anything else, without gates. */
static Tree *without_gates(Arena *arena, const Tree *step) {
    Tree *copy = tree_copy(arena, step);
    const Tree *options = tree_get(step, "evaluate");
    if (!options || options->kind != TREE_MAP) return copy;
    Tree *kept = tree_put_map(arena, copy, "evaluate");
    for (const Tree *option = options->first; option; option = option->next)
        if (!is_gate(option->key))
            tree_put(arena, kept, option->key, tree_copy(arena, option));
    return copy;
}

/* Writes a recipe that is the searched one with other passes; a trial's has no output. */
static Status write_recipe(const Search *search, const char *path, const char *comment,
                           const Tree *passes, bool trial, Diag *diag) {
    Arena *arena = search->arena;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    Text text = {0};
    char *found = realpath(search->options.recipe, NULL);
    const char *whole = arena_strdup(arena, found ? found : search->options.recipe);
    free(found);
    tree_put_string(arena, map, "extends", whole);
    Tree *steps = tree_copy(arena, passes);
    recipe_steps_move(arena, steps, path_folder(arena, whole));
    tree_append(arena, map, "passes", LOC_NONE, steps);
    if (trial)
        tree_append(arena, map, "output", LOC_NONE, tree_new(arena, TREE_NULL, LOC_NONE));
    text_add(&text, "# %s\n", comment);
    recipe_document_print(&text, map);
    const Status status = file_write(path, text.data, text.length, diag);
    text_free(&text);
    return status;
}

/* A candidate's recipe for a rung: all of it in the last one. */
static Status write_rung(const Search *search, const Trial *trial,
                         const Candidate *candidate, int rung, Diag *diag) {
    Arena *arena = search->arena;
    const char *comment = "A candidate of a search.";
    if (rung == search->rungs - 1)
        return write_recipe(search, trial->recipe, comment, candidate->passes, true,
                            diag);
    Tree *passes = tree_new(arena, TREE_LIST, candidate->passes->loc);
    for (const Tree *step = candidate->passes->first; step; step = step->next)
        tree_append(arena, passes, NULL, LOC_NONE, without_gates(arena, step));
    training_shorten(&search->sized, arena, passes, rung_share(search, rung));
    comment = "A candidate of a search, with a share of its training.";
    return write_recipe(search, trial->recipe, comment, passes, true, diag);
}

/* Changes of the recipe that trials are given as they are; those of its passes are in the
 * trials' own. */
static StringList other_sets(const Search *search) {
    const StringList *sets = &search->options.sets;
    const char **items =
        ARENA_ARRAY(search->arena, const char *, (size_t)sets->count + 1);
    int count = 0;
    for (int i = 0; i < sets->count; i++)
        if (strncmp(sets->items[i], "passes", 6) != 0) items[count++] = sets->items[i];
    return (StringList){items, count};
}

static void add_flags(StringList *flags, const char *name, const StringList *values) {
    for (int i = 0; i < values->count; i++) {
        flags->items[flags->count++] = name;
        flags->items[flags->count++] = values->items[i];
    }
}

/* Flags of every trial. */
static StringList trial_flags(const Search *search) {
    const StringList sets = other_sets(search), *env = &search->options.env;
    const size_t count = 2 * (size_t)(sets.count + env->count);
    StringList flags = {ARENA_ARRAY(search->arena, const char *, count + 1), 0};
    add_flags(&flags, "--set", &sets);
    add_flags(&flags, "--env", env);
    return flags;
}

static TrialRunner runner_of(const Search *search) {
    const SearchOptions *options = &search->options;
    const int jobs = options->jobs > 0 ? (int)options->jobs : 1;
    const int threads = threads_choose(options->threads) / jobs;
    return (TrialRunner){.program = options->program,
                         .cache = path_join(search->arena, options->folder, "cache"),
                         .flags = trial_flags(search),
                         .jobs = jobs,
                         .threads = threads > 0 ? threads : 1,
                         .metric = search->metric,
                         .arena = search->arena,
                         .watch = options->watch};
}

/* The files of a trial in `folder`, called after `name`. */
static Trial trial_of(const Search *search, const char *folder, const char *name,
                      bool writes_model) {
    Arena *arena = search->arena;
    const char *base = path_join(arena, folder, name);
    return (Trial){.recipe = arena_printf(arena, "%s.yaml", base),
                   .report = arena_printf(arena, "%s.json", base),
                   .log = arena_printf(arena, "%s.log", base),
                   .output = writes_model ? arena_printf(arena, "%s.h5", base) : NULL};
}

/* ---- planning candidates ---- */

/* What goes on while candidates are planned. */
typedef struct Planner {
    Search *search;
    Diag *refusal;   /* of the first candidate that the model does not fit */
    double lightest; /* share of the FLOPs of the lightest that was planned */
} Planner;

/* Plans one recipe on shapes; `data`: its data sets are opened and checked, too. */
static Status plan_recipe(const Search *search, Session *session, const char *recipe,
                          bool data, Diag *diag) {
    const SessionOptions options = {.recipe = recipe,
                                    .sets = other_sets(search),
                                    .env = search->options.env,
                                    .without_data = !data};
    TRY(session_open(session, &options, diag));
    TRY(session_load(session, false, diag));
    return session_plan(session, diag);
}

/* Takes the sizes of a plan: whether they are within the budgets. */
static bool within_budget(Planner *planner, Candidate *candidate, const RunReport *plan) {
    const SearchOptions *options = &planner->search->options;
    const Measure *start = &plan->start;
    const Measure *end =
        plan->count > 0 ? &plan->steps[plan->count - 1].result.measure : start;
    candidate->flops = end->flops / start->flops;
    candidate->parameters = (double)end->parameters / (double)start->parameters;
    planner->lightest = fmin(planner->lightest, candidate->flops);
    return (options->max_flops == 0 || candidate->flops <= options->max_flops) &&
           (options->max_parameters == 0 ||
            candidate->parameters <= options->max_parameters);
}

/* Plans a candidate, the first that fits with its data sets, and says whether it fits. */
static Status plan_candidate(Planner *planner, Candidate *candidate, bool *fits,
                             Diag *diag) {
    Search *search = planner->search;
    Session session = {0};
    Diag *aside = diag_create();
    *fits = false;
    Status status = plan_recipe(search, &session, candidate->recipe, false, aside);
    if (status == STATUS_OK) *fits = within_budget(planner, candidate, &session.planned);
    session_close(&session);
    const bool of_recipe = status == STATUS_RECIPE || status == STATUS_MODEL;
    if (status != STATUS_OK && !of_recipe)
        status = diag_take(diag, aside);
    else if (of_recipe && !planner->refusal)
        planner->refusal = aside;
    if (aside != planner->refusal) diag_destroy(aside);
    return of_recipe ? STATUS_OK : status;
}

/* Reads how long the training of the recipe is, with its data sets, which are checked. */
static Status size_training(Search *search, const Candidate *candidate, Diag *diag) {
    TRY(plan_recipe(search, &search->sized, candidate->recipe, true, diag));
    const int rungs =
        search->options.rungs > 0 ? (int)search->options.rungs : USUAL_RUNGS;
    search->rungs = training_steps(&search->sized) > 0 ? rungs : 1;
    return STATUS_OK;
}

/* Gives the candidate behind the last one its number and the folder of its files, with
 * its recipe. */
static Status name_candidate(const Search *search, Candidate *candidate, Diag *diag) {
    Arena *arena = search->arena;
    const char *folder = arena_printf(arena, "trials/%04d", search->count + 1);
    candidate->number = search->count + 1;
    candidate->folder = path_join(arena, search->options.folder, folder);
    candidate->recipe = path_join(arena, candidate->folder, "recipe.yaml");
    TRY(folder_check("--folder", candidate->folder, diag));
    return write_recipe(search, candidate->recipe, "A candidate of a search.",
                        candidate->passes, true, diag);
}

/* Why nothing was found to run. */
static Status fail_none(const Planner *planner, const Search *search, Diag *diag) {
    const SearchOptions *options = &search->options;
    if (planner->lightest == INFINITY) {
        diag_take(diag, planner->refusal);
        diag_note(diag, "in the first of %lld recipes of the search, none of which fits",
                  (long long)search->drawn);
        return STATUS_RECIPE;
    }
    diag_fail(diag, STATUS_RECIPE, search->space.passes->loc, "passes",
              "expected recipes within the budget, found none among %lld: the lightest "
              "keeps %.3g of the FLOPs",
              (long long)search->drawn, planner->lightest);
    if (options->max_flops > 0 || options->max_parameters > 0)
        diag_hint(diag, "widen the ranges, or allow more by --max-flops and "
                        "--max-parameters");
    return STATUS_RECIPE;
}

/* Recipe `index` of the space as a candidate that has no number yet. */
static Candidate candidate_of(const Search *search, uint64_t index, int generation) {
    Candidate candidate = {.index = index, .generation = generation, .drop = NAN};
    candidate.passes =
        search_space_recipe(&search->space, search->arena, index, &candidate.choices);
    return candidate;
}

/* Names and plans recipe `index`, and adds it to the candidates if it fits. */
static Status try_recipe(Planner *planner, uint64_t index, Diag *diag) {
    Search *search = planner->search;
    Candidate *candidate = &search->candidates[search->count];
    bool fits = false;
    *candidate = candidate_of(search, index, 1);
    search->drawn++;
    TRY(name_candidate(search, candidate, diag));
    TRY(plan_candidate(planner, candidate, &fits, diag));
    search->count += fits;
    return STATUS_OK;
}

static int choose_generations(const SearchOptions *options) {
    if (options->generations > 0) return (int)options->generations;
    return options->rungs == 1 ? 1 : USUAL_GENERATIONS;
}

/* Draws recipes and keeps those that fit, up to `wanted`. There is room for as many
 * children in each further generation. */
static Status draw_candidates(Search *search, int64_t wanted, Diag *diag) {
    Planner planner = {.search = search, .lightest = INFINITY};
    const uint64_t key =
        random_key_name((uint64_t)search->options.seed, "search candidates");
    uint64_t *indices = ARENA_ARRAY(search->arena, uint64_t, DRAWS_EACH * (size_t)wanted);
    const int64_t draws =
        search_space_draw(&search->space, key, indices, DRAWS_EACH * wanted);
    search->generations = choose_generations(&search->options);
    search->candidates = ARENA_ARRAY(search->arena, Candidate,
                                     (size_t)search->generations * (size_t)wanted + 1);
    Status status = STATUS_OK;
    for (int64_t i = 0; i < draws && search->count < wanted && status == STATUS_OK; i++)
        status = try_recipe(&planner, indices[i], diag);
    if (status == STATUS_OK && search->count == 0)
        status = fail_none(&planner, search, diag);
    diag_destroy(planner.refusal);
    return status == STATUS_OK ? size_training(search, &search->candidates[0], diag)
                               : status;
}

/* ---- the input model ---- */

/* The last evaluate step of a recipe alone, without gates. NULL = there is none. */
static Tree *last_evaluate(const Search *search, const Tree *passes) {
    Tree *list = tree_new(search->arena, TREE_LIST, passes->loc);
    const Tree *last = NULL;
    for (const Tree *step = passes->first; step; step = step->next)
        if (tree_get(step, "evaluate")) last = step;
    if (!last) return NULL;
    tree_append(search->arena, list, NULL, LOC_NONE, without_gates(search->arena, last));
    return list;
}

/* Evaluates the model that all candidates start from. */
static Status run_baseline(Search *search, Diag *diag) {
    const char *folder = path_join(search->arena, search->options.folder, "baseline");
    Trial trial = trial_of(search, folder, "recipe", false);
    const TrialRunner runner = runner_of(search);
    const Tree *evaluate = last_evaluate(search, search->candidates[0].passes);
    if (!evaluate) {
        diag_fail(diag, STATUS_RECIPE, search->space.passes->loc, "passes",
                  "expected an evaluate step, by which a search knows what is best");
        return STATUS_RECIPE;
    }
    TRY(folder_check("--folder", folder, diag));
    TRY(write_recipe(search, trial.recipe, "The input model of a search.", evaluate, true,
                     diag));
    TRY(trials_run(&runner, &trial, 1, diag));
    search->baseline = trial.result;
    search->metric = trial.result.metric;
    const RunMetricKind *kind = run_metric_kind(search->metric);
    search->falls = kind && kind->lower;
    if (trial.result.status == TRIAL_DONE && isfinite(trial.result.value))
        return STATUS_OK;
    diag_fail(diag, STATUS_MODEL, LOC_FILE(trial.recipe), NULL,
              "the input model could not be evaluated: %s",
              trial.result.message ? trial.result.message : "no metric was told");
    diag_hint(diag, "%s has what was said", trial.log);
    return STATUS_MODEL;
}

/* ---- rungs ---- */

/* Runs the chosen candidates with the training of a rung, and takes their results. */
static Status run_rung(Search *search, const int *chosen, int count, int rung,
                       int generation, Diag *diag) {
    Arena *arena = search->arena;
    const SearchOptions *options = &search->options;
    const TrialRunner runner = runner_of(search);
    const bool last = rung == search->rungs - 1;
    Trial *trials = ARENA_ARRAY(arena, Trial, (size_t)count + 1);
    const SearchRound round = {.number = last ? rung + generation - 1 : rung,
                               .of = search->rungs + search->generations - 1,
                               .generation = generation,
                               .share = rung_share(search, rung),
                               .trials = count};
    if (options->round_begin) options->round_begin(options->self, &round);
    for (int i = 0; i < count; i++) {
        Candidate *candidate = &search->candidates[chosen[i]];
        const char *name = last ? "recipe" : arena_printf(arena, "rung%d", rung + 1);
        trials[i] = trial_of(search, candidate->folder, name, last);
        TRY(write_rung(search, &trials[i], candidate, rung, diag));
    }
    TRY(trials_run(&runner, trials, count, diag));
    for (int i = 0; i < count; i++) {
        Candidate *candidate = &search->candidates[chosen[i]];
        candidate->rung = rung;
        candidate->result = trials[i].result;
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

/* Candidates of the last rung run that ended with a metric: their indices and points. */
static int gather(const Search *search, const int *chosen, int count, int *kept,
                  ParetoPoint *points) {
    int found = 0;
    for (int i = 0; i < count; i++) {
        const Candidate *candidate = &search->candidates[chosen[i]];
        if (candidate->result.status != TRIAL_DONE || !isfinite(candidate->result.value))
            continue;
        points[found] = point_of(search, candidate);
        kept[found++] = chosen[i];
    }
    return found;
}

/* Trials of the rung after one of `count`. */
static int next_count(int count) {
    const int part = (count + SHRINK - 1) / SHRINK;
    return part > FEWEST ? part : count < FEWEST ? count : FEWEST;
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
    Planner planner = {.search = search, .lightest = INFINITY};
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
        status = write_recipe(search, recipe, "A child that is planned.", child->passes,
                              true, diag);
        if (status == STATUS_OK) status = plan_candidate(&planner, child, &fits, diag);
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
        TRY(name_candidate(search, candidate, diag));
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
    return *found > 0
               ? run_rung(search, chosen, *found, search->rungs - 1, generation, diag)
               : STATUS_OK;
}

Status search_run(Search *search, Diag *diag) {
    int count = search->count, whole = 0, found = 1;
    int *chosen =
        ARENA_ARRAY(search->arena, int, (size_t)search->generations *(size_t)count + 1);
    for (int i = 0; i < count; i++) chosen[i] = i;
    for (int rung = 0; rung < search->rungs && count > 0; rung++) {
        if (rung > 0) count = best_of(search, chosen, count, next_count(count));
        TRY(run_rung(search, chosen, count, rung, 1, diag));
    }
    for (int i = 2; i <= search->generations && found > 0; i++)
        TRY(run_children(search, i, count, &found, diag));
    whole = whole_runs(search, chosen);
    judge(search, chosen, whole);
    return STATUS_OK;
}

Status search_write_recipe(const Search *search, const Candidate *candidate,
                           const char *path, const char *comment, Diag *diag) {
    return write_recipe(search, path, comment, candidate->passes, false, diag);
}

/* ---- opening ---- */

/* What must be the same for a folder's trials to be taken over. */
static Tree *identity(const Search *search) {
    const SearchOptions *options = &search->options;
    Tree *map = tree_new(search->arena, TREE_MAP, LOC_NONE);
    Tree *sets = tree_put_list(search->arena, map, "set");
    tree_put(search->arena, map, "recipe", tree_copy(search->arena, search->document));
    for (int i = 0; i < options->sets.count; i++)
        tree_add_string(search->arena, sets, options->sets.items[i]);
    tree_put_int(search->arena, map, "seed", options->seed);
    tree_put_int(search->arena, map, "rungs", options->rungs);
    tree_put_int(search->arena, map, "generations", options->generations);
    tree_put_real(search->arena, map, "max_flops", options->max_flops);
    tree_put_real(search->arena, map, "max_parameters", options->max_parameters);
    return map;
}

/* Reads the number of candidates that an earlier run of this search chose, 0 = there was
 * none. Fails with STATUS_USAGE when the folder holds another search. */
static Status read_state(const Search *search, const char *path, int64_t *candidates,
                         Diag *diag) {
    Tree *state = NULL;
    *candidates = 0;
    if (!path_is_file(path)) return STATUS_OK;
    TRY(json_read(&state, search->arena, path, STATE_BYTES_MAX, diag));
    const Tree *number = tree_get(state, "candidates");
    const Tree *search_of = tree_get(state, "search");
    if (!number || number->kind != TREE_INT || number->integer < 1 ||
        number->integer > CANDIDATES_MAX || !search_of ||
        !tree_equal(search_of, identity(search))) {
        diag_fail(
            diag, STATUS_USAGE, LOC_FILE(path), "--folder",
            "expected a folder of this search, found one of another recipe, seed or "
            "budget");
        diag_hint(diag, "give another folder, or remove this one");
        return STATUS_USAGE;
    }
    *candidates = number->integer;
    return STATUS_OK;
}

static Status write_state(const Search *search, const char *path, int64_t candidates,
                          Diag *diag) {
    Tree *state = tree_new(search->arena, TREE_MAP, LOC_NONE);
    tree_put_int(search->arena, state, "candidates", candidates);
    tree_put(search->arena, state, "search", identity(search));
    return json_write(state, path, diag);
}

/* So many candidates as the wanted minutes allow, by the time that the first one takes
 * with the least training: rungs and generations take about the same each. */
static Status count_by_time(Search *search, int64_t *candidates, Diag *diag) {
    const TrialRunner runner = runner_of(search);
    const int first = 0;
    TRY(run_rung(search, &first, 1, 0, 1, diag));
    const double each = fmax(search->candidates[0].result.seconds, 0.01);
    const int rounds = search->rungs + search->generations - 1;
    const double most = 60 * search->options.minutes * runner.jobs / (each * rounds);
    *candidates = (int64_t)fmin(fmax(most, FEWEST), CANDIDATES_MAX);
    return STATUS_OK;
}

/* Candidates and what they are compared with; their number is chosen once. */
static Status prepare(Search *search, Diag *diag) {
    const SearchOptions *options = &search->options;
    const char *path = path_join(search->arena, options->folder, "search.json");
    const bool by_time = options->candidates == 0 && options->minutes > 0;
    int64_t wanted = 0;
    TRY(read_state(search, path, &wanted, diag));
    const bool known = wanted > 0;
    if (!known) wanted = options->candidates > 0 ? options->candidates : USUAL_CANDIDATES;
    TRY(draw_candidates(search, !known && by_time ? 1 : wanted, diag));
    TRY(run_baseline(search, diag));
    if (!known && by_time) {
        TRY(count_by_time(search, &wanted, diag));
        session_close(&search->sized);
        search->count = 0;
        search->drawn = 0;
        TRY(draw_candidates(search, wanted, diag));
    }
    return known ? STATUS_OK : write_state(search, path, wanted, diag);
}

/* The recipe as a document, and the ranges in its passes. */
static Status read_space(Search *search, Diag *diag) {
    const SearchOptions *options = &search->options;
    const SessionOptions given = {
        .recipe = options->recipe, .sets = options->sets, .env = options->env};
    TRY(session_document(&search->document, search->arena, &given, diag));
    const Tree *passes = tree_get(search->document, "passes");
    if (!passes || passes->kind != TREE_LIST)
        return diag_fail(diag, STATUS_RECIPE, LOC_FILE(options->recipe), "passes",
                         "expected a list of steps");
    TRY(search_space_bind(&search->space, search->arena, passes, diag));
    if (search->space.ranges > 0) return STATUS_OK;
    diag_fail(diag, STATUS_RECIPE, passes->loc, "passes",
              "expected a range to search in, found none");
    diag_hint(diag,
              "{choose: [a, b]} or {between: [a, b]} stands in the place of a value");
    return STATUS_RECIPE;
}

Status search_open(Search *search, const SearchOptions *options, Diag *diag) {
    *search = (Search){.options = *options, .arena = arena_create()};
    search->metric = options->metric;
    TRY(read_space(search, diag));
    TRY(folder_check("--folder", options->folder, diag));
    TRY(folder_check("--folder", path_join(search->arena, options->folder, "trials"),
                     diag));
    return prepare(search, diag);
}

void search_close(Search *search) {
    if (search->sized.arena) session_close(&search->sized);
    arena_destroy(search->arena);
}
