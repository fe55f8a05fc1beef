/* Candidates: see session/search/candidates.h. */
#include "session/search/candidates.h"

#include "io/files/path.h"
#include "ir/random.h"
#include "session/output_files.h"
#include "session/search/training_share.h"
#include "session/search/trial_recipes.h"

#include <math.h>

enum {
    USUAL_RUNGS = 3,
    USUAL_GENERATIONS = 8, /* with the one that is drawn */
    DRAWS_EACH = 20        /* recipes drawn for each candidate that is wanted, at most */
};

/* Plans one recipe on shapes; `data`: its data sets are opened and checked, too. */
static Status plan_recipe(const Search *search, Session *session, const char *recipe,
                          bool data, Diag *diag) {
    const SessionOptions options = {.recipe = recipe,
                                    .sets = search_sets(search),
                                    .env = search->options.env,
                                    .without_data = !data};
    TRY(session_open(session, &options, diag));
    TRY(session_load(session, false, diag));
    return session_plan(session, diag);
}

/* What a run may leave of what its plan guesses, at the least: the bounds are asked again
 * when it has run. */
#define GUESS_MARGIN 0.8

bool search_within(const SearchOptions *options, double flops, double parameters) {
    return (options->max_flops == 0 || flops <= options->max_flops) &&
           (options->max_parameters == 0 || parameters <= options->max_parameters);
}

/* Whether a share of the planned sizes is within the budgets. */
static bool is_within(const Search *search, const Candidate *candidate, double share) {
    return search_within(&search->options, share * candidate->flops,
                         share * candidate->parameters);
}

/* Takes the sizes of a plan. */
static void take_sizes(CandidatePlanner *planner, Candidate *candidate,
                       const RunReport *plan) {
    const Measure *start = &plan->start;
    const Measure *end =
        plan->count > 0 ? &plan->steps[plan->count - 1].result.measure : start;
    candidate->flops = end->flops / start->flops;
    candidate->parameters = (double)end->parameters / (double)start->parameters;
    candidate->guessed = plan->count > 0 && plan->steps[plan->count - 1].result.guessed;
    planner->lightest = fmin(planner->lightest, candidate->flops);
}

Status candidate_plan(CandidatePlanner *planner, Candidate *candidate, bool *fits,
                      Diag *diag) {
    Search *search = planner->search;
    Session session = {0};
    Diag *aside = diag_create();
    *fits = false;
    Status status = plan_recipe(search, &session, candidate->recipe, false, aside);
    if (status == STATUS_OK) {
        take_sizes(planner, candidate, &session.planned);
        *fits = is_within(search, candidate, 1);
    }
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

Status candidate_name(const Search *search, Candidate *candidate, Diag *diag) {
    Arena *arena = search->arena;
    const char *folder = arena_printf(arena, "trials/%04d", search->count + 1);
    candidate->number = search->count + 1;
    candidate->folder = path_join(arena, search->options.folder, folder);
    candidate->recipe = path_join(arena, candidate->folder, "recipe.yaml");
    TRY(folder_check("--folder", candidate->folder, diag));
    return search_recipe_write(search, candidate->recipe, "A candidate of a search.",
                               candidate->passes, true, diag);
}

/* Why nothing was found to run. */
static Status fail_none(const CandidatePlanner *planner, const Search *search,
                        Diag *diag) {
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

Candidate candidate_of(const Search *search, uint64_t index, int generation) {
    Candidate candidate = {.index = index, .generation = generation, .drop = NAN};
    candidate.passes =
        search_space_recipe(&search->space, search->arena, index, &candidate.choices);
    return candidate;
}

/* Keeps a candidate that its run may find within the budgets. */
static void keep_maybe(CandidatePlanner *planner, const Candidate *candidate) {
    int at = planner->maybe_count++;
    for (; at > 0 && planner->maybe[at - 1].flops > candidate->flops; at--)
        planner->maybe[at] = planner->maybe[at - 1];
    planner->maybe[at] = *candidate;
}

/* Takes those that were kept, up to `wanted`. */
static Status take_maybes(CandidatePlanner *planner, int64_t wanted, Diag *diag) {
    Search *search = planner->search;
    for (int i = 0; i < planner->maybe_count && search->count < wanted; i++) {
        Candidate *candidate = &search->candidates[search->count];
        *candidate = planner->maybe[i];
        TRY(candidate_name(search, candidate, diag));
        search->count++;
    }
    return STATUS_OK;
}

/* Names and plans recipe `index`, and adds it to the candidates if it fits. */
static Status try_recipe(CandidatePlanner *planner, uint64_t index, Diag *diag) {
    Search *search = planner->search;
    Candidate *candidate = &search->candidates[search->count];
    bool fits = false;
    *candidate = candidate_of(search, index, 1);
    search->drawn++;
    TRY(candidate_name(search, candidate, diag));
    TRY(candidate_plan(planner, candidate, &fits, diag));
    search->count += fits;
    if (!fits && candidate->guessed && is_within(search, candidate, GUESS_MARGIN))
        keep_maybe(planner, candidate);
    return STATUS_OK;
}

static int choose_generations(const SearchOptions *options) {
    if (options->generations > 0) return (int)options->generations;
    return options->rungs == 1 ? 1 : USUAL_GENERATIONS;
}

Status candidates_draw(Search *search, int64_t wanted, Diag *diag) {
    CandidatePlanner planner = {.search = search, .lightest = INFINITY};
    const uint64_t key =
        random_key_name((uint64_t)search->options.seed, "search candidates");
    uint64_t *indices = ARENA_ARRAY(search->arena, uint64_t, DRAWS_EACH * (size_t)wanted);
    const int64_t draws =
        search_space_draw(&search->space, key, indices, DRAWS_EACH * wanted);
    planner.maybe = ARENA_ARRAY(search->arena, Candidate, DRAWS_EACH * (size_t)wanted);
    search->generations = choose_generations(&search->options);
    search->candidates = ARENA_ARRAY(search->arena, Candidate,
                                     (size_t)search->generations * (size_t)wanted + 1);
    Status status = STATUS_OK;
    for (int64_t i = 0; i < draws && search->count < wanted && status == STATUS_OK; i++)
        status = try_recipe(&planner, indices[i], diag);
    if (status == STATUS_OK && search->count == 0)
        status = take_maybes(&planner, wanted, diag);
    if (status == STATUS_OK && search->count == 0)
        status = fail_none(&planner, search, diag);
    diag_destroy(planner.refusal);
    return status == STATUS_OK ? size_training(search, &search->candidates[0], diag)
                               : status;
}
