/* Search: candidates drawn and planned, rungs of trials, the front of what came out. */
#include "session/search/search.h"

#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "ir/random.h"
#include "session/output_files.h"
#include "session/page/runs.h"
#include "session/recipe_document.h"
#include "session/search/pareto.h"
#include "session/search/training_share.h"
#include "session/session.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    USUAL_RUNGS = 3,
    SHRINK = 3,            /* a rung has this part of the trials of the one before */
    USUAL_CANDIDATES = 27, /* 27, 9 and 3 trials */
    FEWEST = 3,            /* trials of a rung, where there are so many */
    DRAWS_EACH = 20        /* recipes drawn for each candidate that is wanted, at most */
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

/* Fills in where everything of candidate `number` stands. */
static Status name_candidate(Search *search, Candidate *candidate, int number,
                             Diag *diag) {
    Arena *arena = search->arena;
    const char *folder = arena_printf(arena, "trials/%04d", number + 1);
    candidate->number = number + 1;
    candidate->folder = path_join(arena, search->options.folder, folder);
    candidate->recipe = path_join(arena, candidate->folder, "recipe.yaml");
    candidate->drop = NAN;
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

/* Draws recipes and keeps those that fit, up to `wanted`. */
static Status draw_candidates(Search *search, int64_t wanted, Diag *diag) {
    Planner planner = {.search = search, .lightest = INFINITY};
    const uint64_t key =
        random_key_name((uint64_t)search->options.seed, "search candidates");
    uint64_t *indices = ARENA_ARRAY(search->arena, uint64_t, DRAWS_EACH * (size_t)wanted);
    const int64_t draws =
        search_space_draw(&search->space, key, indices, DRAWS_EACH * wanted);
    search->candidates = ARENA_ARRAY(search->arena, Candidate, (size_t)wanted + 1);
    Status status = STATUS_OK;
    for (int64_t i = 0; i < draws && search->count < wanted && status == STATUS_OK; i++) {
        Candidate *candidate = &search->candidates[search->count];
        bool fits = false;
        *candidate = (Candidate){.index = indices[i]};
        candidate->passes = search_space_recipe(&search->space, search->arena, indices[i],
                                                &candidate->choices);
        status = name_candidate(search, candidate, search->count, diag);
        if (status == STATUS_OK)
            status = plan_candidate(&planner, candidate, &fits, diag);
        search->drawn++;
        search->count += fits;
    }
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
                       Diag *diag) {
    Arena *arena = search->arena;
    const SearchOptions *options = &search->options;
    const TrialRunner runner = runner_of(search);
    const bool last = rung == search->rungs - 1;
    Trial *trials = ARENA_ARRAY(arena, Trial, (size_t)count + 1);
    if (options->rung_begin)
        options->rung_begin(options->self, rung, search->rungs, rung_share(search, rung),
                            count);
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

/* Keeps the best of the candidates that a rung has run for the next one. */
static int survivors(const Search *search, int *chosen, int count) {
    int *kept = ARENA_ARRAY(search->arena, int, (size_t)count + 1);
    int *order = ARENA_ARRAY(search->arena, int, (size_t)count + 1);
    ParetoPoint *points = ARENA_ARRAY(search->arena, ParetoPoint, (size_t)count + 1);
    const int found = gather(search, chosen, count, kept, points);
    const int stay = pareto_select(points, found, next_count(count), order);
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

Status search_run(Search *search, Diag *diag) {
    int count = search->count;
    int *chosen = ARENA_ARRAY(search->arena, int, (size_t)count + 1);
    for (int i = 0; i < count; i++) chosen[i] = i;
    for (int rung = 0; rung < search->rungs && count > 0; rung++) {
        TRY(run_rung(search, chosen, count, rung, diag));
        if (rung + 1 < search->rungs) count = survivors(search, chosen, count);
    }
    judge(search, chosen, count);
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
    tree_put_real(search->arena, map, "max_flops", options->max_flops);
    tree_put_real(search->arena, map, "max_parameters", options->max_parameters);
    return map;
}

static bool same_tree(const Tree *a, const Tree *b) {
    Text x = {0}, y = {0};
    tree_print_json(&x, a, 0);
    tree_print_json(&y, b, 0);
    const bool same = strcmp(x.data, y.data) == 0;
    text_free(&x);
    text_free(&y);
    return same;
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
        !same_tree(search_of, identity(search))) {
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
 * with the least training: rungs take about the same each. */
static Status count_by_time(Search *search, int64_t *candidates, Diag *diag) {
    const TrialRunner runner = runner_of(search);
    const int first = 0;
    TRY(run_rung(search, &first, 1, 0, diag));
    const double each = fmax(search->candidates[0].result.seconds, 0.01);
    const double most =
        60 * search->options.minutes * runner.jobs / (each * search->rungs);
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
