/* factor_linear: projections become two matrices of low rank.
 *
 *     y = W x + b   ->   y = B (A x) + b,   W[M, K] ~ B[M, r] A[r, K]
 *
 * by truncated singular value decompositions (exec/linalg/lowrank.h). Ranks are given, or
 * chosen for each matrix by its energy, or for all together under a budget. */
#include "passes/factoring/factoring.h"

#include "exec/linalg/blas.h"
#include "ir/storage.h"
#include "passes/fault.h"

#include <math.h>

typedef struct LinearOptions {
    int64_t rank;
    double energy;
    double share;
    BudgetOptions budget;
    int ranking; /* RANKING_ */
    LinearChoice choice;
    CalibrationOptions calibration;
} LinearOptions;

enum { RANKING_GLOBAL, RANKING_EACH };

#define O LinearOptions
static const Field fields[] = {
    F_INT(O, rank, 1, 100000000, "the rank of every matrix"),
    F_REAL(O, energy, 1e-9, 1,
           "instead of rank: of each matrix the least rank that keeps this share of the "
           "squared singular values"),
    F_REAL(O, share, 1e-9, 1,
           "instead of rank: the share that stays of the parameters of all chosen "
           "matrices"),
    F_BUDGET(O, budget, "instead of rank: budget for all chosen matrices together"),
    F_CHOICE(O, ranking, "global|each",
             "share or a budget: compare the singular values of all matrices, which then "
             "have different ranks, or leave of each the same share"),
    F_LINEARS(O, choice),
    F_CALIBRATION(O, calibration),
    F_END,
};

static const O defaults = {.calibration = CALIBRATION_DEFAULTS};

/* Options that give the ranks. */
#define WAYS "rank|energy|share|" BUDGET_NAMES

/* Squared error of a factoring that counts as exact, over the square of the matrix. */
#define EXACT_SQUARE 1e-12

/* What is being done. */
typedef struct Run {
    PassContext *ctx;
    Model *model;
    const O *options;
    Factoring f;
    Budget budget;
    double parameters;        /* of the chosen matrices, before */
    bool known;               /* weights have values */
    Calibration *calibration; /* NULL = inputs are not known */
    Tree *factored, *left;
} Run;

/* ---- ranks ---- */

/* Why a matrix stays as it is, where its ranks do not say so. */
static void leave(Run *r, FactorSite *site, int64_t rank) {
    site->rank = 0;
    site->left =
        rank > site->most
            ? arena_printf(r->ctx->arena, "it has rank %lld", (long long)site->most)
            : arena_printf(r->ctx->arena,
                           "factors of rank %lld have %.0f parameters, it has %.0f",
                           (long long)rank, (double)rank * site->unit, site->whole);
}

static void choose_given(Run *r, int64_t rank) {
    for (int i = 0; i < r->f.count; i++) {
        FactorSite *site = &r->f.sites[i];
        if (site->left) continue;
        site->rank = rank;
        if (rank > factor_even(site)) leave(r, site, rank);
    }
}

/* Sizes after this step are guesses of a plan. */
static void note_guess(Run *r) {
    tree_put_bool(r->ctx->arena, r->ctx->record, "approximate", true);
    r->ctx->guessed = true;
}

/* Energy needs the weights: a plan takes the largest rank that could come of it. */
static void guess_ranks(Run *r, Diag *diag) {
    for (int i = 0; i < r->f.count; i++)
        if (!r->f.sites[i].left) r->f.sites[i].rank = factor_even(&r->f.sites[i]);
    option_warn(&r->ctx->source, "energy", diag,
                "planned without weights, with the largest ranks that can come of it; "
                "parameters and bytes after this step are upper bounds");
    note_guess(r);
}

/* A ranking over all matrices needs them: a plan spreads the ranks. */
static void warn_spread(Run *r, Diag *diag) {
    option_warn(&r->ctx->source, r->options->share > 0 ? "share" : NULL, diag,
                "planned without weights, as if all matrices kept the same share; a run "
                "keeps the bound as well, but sizes after this step are approximate");
    note_guess(r);
}

/* Decomposes; `phases`: how many more times that happens, this time included. */
static Status decompose(Run *r, FactorJob *jobs, int count, int phases, Diag *diag) {
    if (!r->calibration) return factor_do(&r->f, jobs, count, diag);
    calibration_restart(r->calibration);
    calibration_expect(r->calibration, phases * factor_calls(&r->f, jobs, count), false);
    return factor_do_calibrated(&r->f, r->calibration, r->options->calibration.damp, jobs,
                                count, !jobs->squares, diag);
}

/* The squared singular values of all matrices that may be factored. */
static Status find_squares(Run *r, Diag *diag) {
    FactorJob *jobs = ARENA_ARRAY(r->ctx->arena, FactorJob, (size_t)r->f.count);
    int count = 0;
    for (int i = 0; i < r->f.count; i++)
        if (!r->f.sites[i].left && factor_even(&r->f.sites[i]) >= 1)
            jobs[count++] = (FactorJob){.site = &r->f.sites[i], .squares = true};
    return decompose(r, jobs, count, 2, diag);
}

/* What all matrices may cost together: a share of what they do, or the budget less what
 * the rest of the model takes. */
static Status find_bound(Run *r, double *bound, Diag *diag) {
    Measure measure;
    const bool share = r->options->share > 0;
    if (!share) TRY(budget_open(&r->budget, r->ctx, r->model, &r->options->budget, diag));
    const MeasureKind kind = share ? MEASURE_PARAMETERS : r->budget.kind;
    factor_costs(&r->f, kind);
    double whole = 0;
    for (int i = 0; i < r->f.count; i++) whole += r->f.sites[i].whole;
    *bound = measure_bound(r->options->share, whole);
    if (share) return STATUS_OK;
    TRY(model_measure(&measure, r->model, diag));
    *bound = r->budget.bound - (measure_get(&measure, kind) - whole);
    return STATUS_OK;
}

static Status choose_together(Run *r, Diag *diag) {
    const bool each = r->options->ranking == RANKING_EACH;
    double bound = 0;
    TRY(find_bound(r, &bound, diag));
    if (!each && r->known) TRY(find_squares(r, diag));
    if (!each && !r->known) warn_spread(r, diag);
    const double least = factor_choose(&r->f, bound, each);
    if (least <= bound) return STATUS_OK;
    if (r->options->share <= 0)
        return budget_fail(&r->budget, r->ctx, r->budget.bound - bound + least,
                           "rank 1 everywhere", diag);
    return step_fail_option(
        r->ctx, "share", diag,
        "expected room for rank 1, which takes %.0f parameters, found "
        "room for %.0f",
        least, bound);
}

static Status choose_ranks(Run *r, Diag *diag) {
    const O *options = r->options;
    factor_costs(&r->f, MEASURE_PARAMETERS);
    for (int i = 0; i < r->f.count; i++) {
        FactorSite *site = &r->f.sites[i];
        const int64_t side = site->rows < site->columns ? site->rows : site->columns;
        if (side > SYMMETRIC_WIDTH_MAX) site->left = "it is too large";
        r->parameters += site->whole;
    }
    if (options->rank > 0) {
        choose_given(r, options->rank);
    } else if (options->energy <= 0) {
        TRY(choose_together(r, diag));
        factor_costs(&r->f, MEASURE_PARAMETERS);
    } else if (!r->known) {
        guess_ranks(r, diag);
    }
    return STATUS_OK;
}

/* ---- factors ---- */

static void record_left(Run *r, const FactorSite *site) {
    if (!site->left) return;
    Tree *map = tree_add_map(r->ctx->arena, r->left);
    tree_put_string(r->ctx->arena, map, "weight", site->leaf->storage->name);
    tree_put_string(r->ctx->arena, map, "why", site->left);
}

/* Records a site and what became of it; `job` NULL: no numbers are known. */
static void record_site(Run *r, const FactorSite *site, const FactorJob *job) {
    Arena *arena = r->ctx->arena;
    Tree *map = tree_add_map(arena, r->factored);
    tree_put_string(arena, map, "weight", site->leaf->storage->name);
    tree_put_int(arena, map, "rows", site->rows);
    tree_put_int(arena, map, "columns", site->columns);
    tree_put_int(arena, map, "rank", site->rank);
    if (!job) return;
    const double error = job->norm > 0 ? sqrt(job->error / job->norm) : 0;
    tree_put_real(arena, map, "relative_error", error);
    r->ctx->exact = r->ctx->exact && job->error <= EXACT_SQUARE * job->norm;
}

/* Decomposes and puts in place; sites of which a rank is chosen, or with energy all. */
static Status factor_sites(Run *r, Diag *diag) {
    FactorJob *jobs = ARENA_ARRAY(r->ctx->arena, FactorJob, (size_t)r->f.count);
    int count = 0;
    const double energy = r->options->energy;
    for (int i = 0; i < r->f.count; i++) {
        FactorSite *site = &r->f.sites[i];
        const bool may =
            energy > 0 ? !site->left && factor_even(site) >= 1 : site->rank > 0;
        if (may) jobs[count++] = (FactorJob){.site = site, .energy = energy};
    }
    if (r->known && count > 0) TRY(decompose(r, jobs, count, 1, diag));
    Status status = STATUS_OK;
    r->ctx->exact = r->known && !r->calibration;
    for (int i = 0; i < count; i++) {
        FactorJob *job = &jobs[i];
        if (job->site->rank == 0) continue;
        record_site(r, job->site, r->known ? job : NULL);
        if (r->calibration) continue; /* it is in place */
        if (status == STATUS_OK)
            status = factor_put(&r->f, job->site, r->known ? &job->second : NULL,
                                &job->first, diag);
        else
            tensor_release(&job->second), tensor_release(&job->first);
    }
    return status;
}

static Status record_sizes(Run *r, Diag *diag) {
    PassContext *ctx = r->ctx;
    double after = 0;
    int count = 0;
    for (int i = 0; i < r->f.count; i++) {
        FactorSite *site = &r->f.sites[i];
        if (r->options->energy > 0 && !site->left && site->rank == 0)
            site->left = "the rank that keeps the energy would cost more than it";
        after += factor_cost(site);
        count += site->rank > 0;
        record_left(r, site);
    }
    if (count == 0 && r->f.count > 0 && r->f.sites[0].left)
        option_warn(&ctx->source, WAYS, diag, "no matrix is factored; of \"%s\": %s",
                    r->f.sites[0].leaf->storage->name, r->f.sites[0].left);
    tree_put_int(ctx->arena, ctx->record, "factored", count);
    tree_put_int(ctx->arena, ctx->record, "parameters_before", (int64_t)r->parameters);
    tree_put_int(ctx->arena, ctx->record, "parameters_after", (int64_t)after);
    tree_put_real(ctx->arena, ctx->record, "parameters_share",
                  r->parameters > 0 ? after / r->parameters : 1);
    if (!budget_count(&r->options->budget)) return STATUS_OK;
    Measure measure;
    TRY(model_measure(&measure, r->model, diag));
    const double reached = measure_get(&measure, r->budget.kind);
    budget_record(&r->budget, ctx, reached);
    return reached <= r->budget.bound ? STATUS_OK
                                      : budget_fail(&r->budget, ctx, reached,
                                                    "the ranks that were chosen", diag);
}

/* ---- the pass ---- */

static bool have_values(const Factoring *f) {
    for (int i = 0; i < f->count; i++) {
        const FactorSite *site = &f->sites[i];
        if (!storage_has_data(site->leaf->storage)) return false;
        if (site->outer && !storage_has_data(site->outer->storage)) return false;
    }
    return true;
}

/* The calibration set, where the options name one, for the inputs of all sites. */
static Status open_calibration(Run *r, Diag *diag) {
    int count = 0;
    if (!r->options->calibration.data) return STATUS_OK;
    for (int i = 0; i < r->f.count; i++) count += r->f.sites[i].reader_count;
    Node **values = ARENA_ARRAY(r->ctx->arena, Node *, (size_t)count);
    count = 0;
    for (int i = 0; i < r->f.count; i++)
        for (int k = 0; k < r->f.sites[i].reader_count; k++)
            values[count++] = factor_input(&r->f.sites[i], k);
    TRY(calibration_open(&r->calibration, r->ctx, r->f.graph, values, count,
                         &r->options->calibration, diag));
    if (r->calibration) calibration_record(r->calibration, r->ctx->record);
    return STATUS_OK;
}

static Status factor_all(Run *r, Diag *diag) {
    TRY(choose_ranks(r, diag));
    TRY(factor_sites(r, diag));
    return record_sizes(r, diag);
}

static Status linear_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    Run r = {.ctx = ctx, .model = model, .options = opaque};
    TRY(factor_find(&r.f, ctx, model->graph, &r.options->choice, diag));
    r.known = have_values(&r.f);
    r.factored = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    r.left = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    TRY(open_calibration(&r, diag));
    r.f.quiet = r.calibration != NULL;
    const Status status = factor_all(&r, diag);
    calibration_close(r.calibration);
    tree_append(ctx->arena, ctx->record, "linears", LOC_NONE, r.factored);
    tree_append(ctx->arena, ctx->record, "left", LOC_NONE, r.left);
    return status;
}

static Status linear_check(const void *opaque, const StepSource *source, Diag *diag) {
    const O *options = opaque;
    const int budgets = budget_count(&options->budget) + (options->share > 0);
    const int ways = (options->rank > 0) + (options->energy > 0) + budgets;
    if (ways != 1)
        return option_fail(source, WAYS, STATUS_RECIPE, diag,
                           "expected one of rank, energy, share, flops, parameters and "
                           "bytes, found %s",
                           ways ? "several" : "none");
    if (options->ranking != RANKING_GLOBAL && !budgets)
        return option_fail(source, "ranking", STATUS_RECIPE, diag,
                           "expected share or a budget with it");
    const CalibrationOptions *calibration = &options->calibration;
    if (!calibration->data && calibration->samples != defaults.calibration.samples)
        return option_fail(source, "samples", STATUS_RECIPE, diag, "needs data");
    if (!calibration->data && calibration->damp != defaults.calibration.damp)
        return option_fail(source, "damp", STATUS_RECIPE, diag, "needs data");
    TRY(budget_check(&options->budget, source, diag));
    return linears_check(&options->choice, source, diag);
}

const Pass pass_factor_linear = {
    .name = "factor_linear",
    .summary = "factor projections into two matrices of low rank each",
    .paper =
        "The approximation of one matrix by another of lower rank (Eckart and Young, "
        "1936)",
    .fields = fields,
    .options_size = sizeof(O),
    .defaults = &defaults,
    .data_options = "data",
    .exactness = PASS_LOSSY,
    .effects = {.gives = MODEL_FACTORED_LINEARS},
    .check = linear_check,
    .run = linear_run,
};
