/* Search: what is searched, the input model that all is compared with, and the folder. */
#include "session/search/search.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "session/output_files.h"
#include "session/page/runs.h"
#include "session/search/candidates.h"
#include "session/search/generations.h"
#include "session/search/trial_recipes.h"

#include <inttypes.h>
#include <math.h>

enum {
    USUAL_CANDIDATES = 18 /* 18, 6 and 2 trials */
};

#define STATE_BYTES_MAX ((size_t)1 << 20)

/* ---- the input model ---- */

/* The last evaluate step of a recipe alone, without gates. NULL = there is none. */
static Tree *last_evaluate(const Search *search, const Tree *passes) {
    Tree *list = tree_new(search->arena, TREE_LIST, passes->loc);
    const Tree *last = NULL;
    for (const Tree *step = passes->first; step; step = step->next)
        if (tree_get(step, "evaluate")) last = step;
    if (!last) return NULL;
    tree_append(search->arena, list, NULL, LOC_NONE,
                search_without_gates(search->arena, last));
    return list;
}

/* Evaluates the model that all candidates start from. */
static Status run_baseline(Search *search, Diag *diag) {
    const char *folder = path_join(search->arena, search->options.folder, "baseline");
    Trial trial = search_trial(search, folder, "recipe", false);
    const TrialRunner runner = search_runner(search);
    const Tree *evaluate = last_evaluate(search, search->candidates[0].passes);
    if (!evaluate) {
        diag_fail(diag, STATUS_RECIPE, search->space.passes->loc, "passes",
                  "expected an evaluate step, by which a search knows what is best");
        return STATUS_RECIPE;
    }
    TRY(folder_check("--folder", folder, diag));
    TRY(search_recipe_write(search, trial.recipe, "The input model of a search.",
                            evaluate, true, diag));
    TRY(trials_run(&runner, &trial, 1, diag));
    search->baseline = trial.result;
    search->metric = trial.result.metric;
    const RunMetricKind *kind = run_metric_kind(search->metric);
    search->falls = kind && kind->lower;
    if (trial.result.status == TRIAL_DONE && isfinite(trial.result.value))
        return STATUS_OK;
    if (trial.result.status == TRIAL_DONE && search->options.metric) {
        diag_fail(diag, STATUS_USAGE, LOC_NONE, "--metric",
                  "expected a finite number of the last evaluate step, found \"%s\"",
                  search->options.metric);
        diag_hint(diag, "%s has them", trial.report);
        return STATUS_USAGE;
    }
    diag_fail(diag, STATUS_MODEL, LOC_FILE(trial.recipe), NULL,
              "the input model could not be evaluated: %s",
              trial.result.message ? trial.result.message : "no metric was told");
    diag_hint(diag, "%s has what was said", trial.log);
    return STATUS_MODEL;
}

Status search_write_recipe(const Search *search, const Candidate *candidate,
                           const char *path, const char *comment, Diag *diag) {
    return search_recipe_write(search, path, comment, candidate->passes, false, diag);
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
    const int64_t wanted = search->options.candidates;
    if (wanted == 0 || wanted == *candidates) return STATUS_OK;
    diag_fail(diag, STATUS_USAGE, LOC_FILE(path), "--candidates",
              "expected %" PRId64 ", with which this search began, found %" PRId64,
              *candidates, wanted);
    diag_hint(diag, "give another folder for another number, or none to go on");
    return STATUS_USAGE;
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
    const TrialRunner runner = search_runner(search);
    const int first = 0;
    TRY(search_run_rung(search, &first, 1, 0, 1, diag));
    const double each = fmax(search->candidates[0].result.seconds, 0.01);
    const int rounds = search->rungs + search->generations - 1;
    const double most = 60 * search->options.minutes * runner.jobs / (each * rounds);
    *candidates = (int64_t)fmin(fmax(most, SEARCH_FEWEST), CANDIDATES_MAX);
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
    TRY(candidates_draw(search, !known && by_time ? 1 : wanted, diag));
    TRY(run_baseline(search, diag));
    if (!known && by_time) {
        TRY(count_by_time(search, &wanted, diag));
        session_close(&search->sized);
        search->count = 0;
        search->drawn = 0;
        TRY(candidates_draw(search, wanted, diag));
    }
    return known ? STATUS_OK : write_state(search, path, wanted, diag);
}

/* The recipe as a document, and the ranges in its passes. */
static Status read_space(Search *search, Diag *diag) {
    const SearchOptions *options = &search->options;
    if (file_descriptor(options->recipe) >= 0)
        return diag_fail(diag, STATUS_USAGE, LOC_NONE, "--recipe",
                         "expected a file, which the recipes of the search extend, found "
                         "what is open already");
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
    session_close(&search->sized);
    arena_destroy(search->arena);
}
