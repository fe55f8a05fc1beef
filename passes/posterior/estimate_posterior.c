/* estimate_posterior: a Gaussian posterior of the weights from samples that training
 * gives: the last iterates of one run, or the ends of several. See posterior.h. */
#include "ir/random.h"
#include "passes/posterior/posterior.h"
#include "passes/training/objective.h"

typedef struct EstimateOptions {
    TrainOptions train; /* first: see TRAIN_FIELDS */
    const char *data;
    int from;      /* FROM_ */
    int start;     /* START_ */
    int64_t every; /* steps */
    double label_smoothing;
    int covariance; /* GaussianForm */
    int mean;       /* POSTERIOR_MEAN_ */
    int64_t samples;
    double jitter, prior_scale, prior_floor;
} EstimateOptions;

enum { FROM_ITERATES, FROM_RUNS };
enum { START_WEIGHTS, START_DRAWN };

#define E EstimateOptions
static const Field fields[] = {
    {.name = "data",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(E, data, const char *),
     .required = true,
     .help = "data set to train on"},
    F_CHOICE(E, from, "iterates|runs",
             "samples of the weights: the last iterates of one training run, which the "
             "model takes over, or the ends of several runs, which leave it as it is"),
    F_INT(E, samples, 2, GAUSSIAN_SAMPLES_MAX, "iterates or runs"),
    F_INT(E, every, 1, 1000000000, "from: iterates: steps between them"),
    F_CHOICE(E, start, "weights|drawn",
             "from: runs: each starts from the model's weights or from new ones"),
    F_CHOICE(E, covariance, GAUSSIAN_FORM_NAMES,
             "form of the covariance: variances alone, the samples' with a diagonal, or "
             "of rows and columns of each matrix"),
    F_CHOICE(E, mean, "weights|samples",
             "mean: the model's weights after this pass, or the mean of the samples"),
    F_REAL(E, jitter, 0, 1e6,
           "added to all variances, as a share of their mean over all weights"),
    F_REAL(E, prior_scale, 1e-30, 1e30, "factor of the covariance"),
    F_REAL(E, prior_floor, 0, 1e30, "smallest variance; smaller ones are raised to it"),
    F_REAL(E, label_smoothing, 0, 0.99, "share of each target spread over all classes"),
    TRAIN_FIELDS,
    TRAIN_MEMORY_FIELDS,
    F_END,
};

static const EstimateOptions defaults = {.train = TRAIN_DEFAULTS,
                                         .every = 1,
                                         .covariance = GAUSSIAN_LOW_RANK,
                                         .samples = 20,
                                         .jitter = 0.1,
                                         .prior_scale = 1};

/* One run of the pass. */
typedef struct Estimate {
    PassContext *ctx;
    const EstimateOptions *options;
    Posterior posterior;
    const Graph *trained; /* the graph that is being trained */
} Estimate;

/* Trains a model on the labels, as the step's training number `serial`; `hook` may be
 * NULL. */
static Status train_model(Estimate *e, PassContext *ctx, Model *model, int64_t serial,
                          const TrainHook *hook, Diag *diag) {
    Objective o;
    TrainOptions train = e->options->train;
    train.hook = hook;
    train.serial = (int)serial;
    train.more = e->options->from == FROM_RUNS && serial + 1 < e->options->samples;
    TRY(objective_begin(&o, ctx, model, diag));
    e->trained = o.graph;
    Status status = STATUS_OK;
    if (objective_predicts_tokens(o.graph)) status = objective_mask_tokens(&o, diag);
    if (status == STATUS_OK)
        status =
            objective_add_labels(&o, EXITS_ALL, 1.0, e->options->label_smoothing, diag);
    if (status == STATUS_OK) status = objective_balance(&o, EXITS_ALL, diag);
    if (status == STATUS_OK) status = objective_train(&o, e->options->data, &train, diag);
    objective_end(&o);
    return status;
}

/* ---- iterates ---- */

/* Takes steps total - (K - 1) every, ..., total - every, total. */
static Status take_iterate(void *self, int64_t step, int64_t total, Diag *diag) {
    Estimate *e = self;
    const int64_t samples = e->options->samples, every = e->options->every;
    const int64_t left = total - step;
    if (step == 1 && (total - 1) / every < samples - 1)
        return step_fail_option(
            e->ctx, "steps|epochs|samples|every", diag,
            "expected at least %lld steps for %lld iterates %lld apart, "
            "found %lld",
            (long long)((samples - 1) * every + 1), (long long)samples, (long long)every,
            (long long)total);
    if (left % every != 0 || left / every >= samples) return STATUS_OK;
    return posterior_take(&e->posterior, e->trained, diag);
}

static void save_iterates(const void *self, TrainState *state) {
    const Estimate *e = self;
    posterior_save(&e->posterior, state);
}

/* Those that take_iterate takes up to a step. */
static Status load_iterates(void *self, TrainState *state, int64_t step, int64_t total,
                            Diag *diag) {
    Estimate *e = self;
    const int64_t every = e->options->every;
    const int64_t missing = (total - step + every - 1) / every;
    const int64_t taken = e->options->samples - missing;
    return posterior_load(&e->posterior, state, taken > 0 ? taken : 0, diag);
}

/* ---- runs ----
 *
 * Each leaves its state when it ends, so that a step that goes on takes the runs that
 * were done from there: what is gathered of them need not be kept. */

/* Run `index` on a copy of the model, with random numbers of its own. */
static Status run_once(Estimate *e, const Model *model, int64_t index, Tree *record,
                       Diag *diag) {
    PassContext ctx = *e->ctx;
    ctx.record = record;
    ctx.seed = random_key(e->ctx->seed, (uint64_t)index + 1);
    Model *copy = model_copy(model);
    Status status = STATUS_OK;
    if (e->options->start == START_DRAWN) {
        for (int i = 0; i < copy->graph->storage_count; i++) {
            Storage *storage = copy->graph->storages[i];
            if (!storage->frozen && dtype_is_real(storage_tensor(storage)->dtype))
                storage_redraw(storage);
        }
        if (!ctx.plan) status = model_init_weights(copy, ctx.seed, diag);
    }
    if (status == STATUS_OK) status = train_model(e, &ctx, copy, index, NULL, diag);
    if (status == STATUS_OK && !ctx.plan)
        status = posterior_take(&e->posterior, copy->graph, diag);
    e->ctx->train_bytes = ctx.train_bytes;
    e->ctx->train_shards = ctx.train_shards;
    e->ctx->train_work = ctx.train_work;
    model_destroy(copy);
    return status;
}

static Status from_runs(Estimate *e, const Model *model, Diag *diag) {
    Arena *arena = e->ctx->arena;
    Tree *losses = tree_new(arena, TREE_LIST, LOC_NONE);
    const int64_t runs = e->ctx->plan ? 1 : e->options->samples;
    for (int64_t i = 0; i < runs; i++) {
        Tree *record = tree_new(arena, TREE_MAP, LOC_NONE);
        TRY(run_once(e, model, i, record, diag));
        const Tree *last = tree_get(record, "last_loss");
        Tree *loss = tree_new(arena, TREE_FLOAT, LOC_NONE);
        if (last && last->kind == TREE_FLOAT) loss->real = last->real;
        tree_append(arena, losses, NULL, LOC_NONE, loss);
    }
    if (!e->ctx->plan) tree_append(arena, e->ctx->record, "run_losses", LOC_NONE, losses);
    return STATUS_OK;
}

/* ---- the pass ---- */

static Status estimate(Estimate *e, Model *model, Diag *diag) {
    const TrainHook hook = {
        .self = e, .step = take_iterate, .save = save_iterates, .load = load_iterates};
    TRY(e->options->from == FROM_RUNS ? from_runs(e, model, diag)
                                      : train_model(e, e->ctx, model, 0, &hook, diag));
    e->ctx->train_bytes += posterior_bytes(&e->posterior);
    return e->ctx->plan ? STATUS_OK : posterior_finish(&e->posterior, diag);
}

static Status estimate_run(PassContext *ctx, Model *model, const void *opaque,
                           Diag *diag) {
    const EstimateOptions *options = opaque;
    const PosteriorOptions posterior = {.covariance = options->covariance,
                                        .samples = options->samples,
                                        .mean = options->mean,
                                        .jitter = options->jitter,
                                        .scale = options->prior_scale,
                                        .floor = options->prior_floor};
    Estimate e = {.ctx = ctx, .options = options};
    Status status =
        posterior_open(&e.posterior, ctx, model, &posterior, &options->train, diag);
    if (status == STATUS_OK) status = estimate(&e, model, diag);
    posterior_close(&e.posterior);
    return status;
}

static Status estimate_check(const void *opaque, const StepSource *source, Diag *diag) {
    const EstimateOptions *o = opaque;
    const int64_t needed = (o->samples - 1) * o->every + 1;
    const bool by_epochs = o->train.steps == 0 && o->train.epochs > 0;
    if (o->from == FROM_ITERATES && o->start == START_DRAWN)
        return option_fail(source, "start", STATUS_RECIPE, diag,
                           "drawn is an option of from: runs");
    if (o->from == FROM_RUNS && o->every != defaults.every)
        return option_fail(source, "every", STATUS_RECIPE, diag,
                           "is an option of from: iterates");
    if (o->from != FROM_ITERATES || by_epochs || o->train.steps >= needed)
        return STATUS_OK;
    return option_fail(source, "steps|epochs|samples|every", STATUS_RECIPE, diag,
                       "expected at least %lld steps for %lld iterates %lld apart, found "
                       "%lld",
                       (long long)needed, (long long)o->samples, (long long)o->every,
                       (long long)o->train.steps);
}

const Pass pass_estimate_posterior = {
    .name = "estimate_posterior",
    .summary = "estimate a Gaussian posterior of the weights from training",
    .paper = "Bayesian distillation of transformer models (2023), section 5",
    .fields = fields,
    .options_size = sizeof(EstimateOptions),
    .defaults = &defaults,
    .data_options = "data",
    .flags = PASS_TRAINS,
    .exactness = PASS_LOSSY,
    .check = estimate_check,
    .run = estimate_run,
};
