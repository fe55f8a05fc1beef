/* Train: the loop over steps and epochs, and its report. See exec/train/train.h. */
#include "exec/train/train.h"

#include "exec/plan/weight_layout.h"
#include "exec/run/feed.h"
#include "exec/run/ranks.h"
#include "exec/train/history.h"
#include "exec/train/optimizer.h"
#include "exec/train/prior.h"
#include "exec/train/shards.h"
#include "ir/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A run of training. */
typedef struct Trainer {
    const TrainOptions *options;
    ShardsOptions job; /* what is differentiated over what */
    Params *params;
    Shards *shards;
    Optimizer *optimizer;
    History *history;
    int64_t epoch, total; /* steps of an epoch and of the run */
    int64_t done;         /* steps */
    int64_t kept;         /* of them when the state was kept; -1 = never */
    bool whole;           /* the hook has had the last step */
    int64_t measured;     /* steps at the last measurement */
    int64_t best_step;    /* at the best one; 0 = none */
    int64_t worse;        /* measurements since */
    double best_value;
    MiniBatch batch; /* of the current step */
    double *losses;  /* of the step: the loss, then the parts; means */
    double prior;    /* of the step: what priors add to the loss */
} Trainer;

/* ---- the loop ---- */

static Status fail_loss(const Trainer *trainer, int64_t step, Diag *diag) {
    const char *const *names = trainer->options->part_names;
    for (int i = 1; i <= trainer->job.part_count; i++)
        if (!isfinite(trainer->losses[i]))
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                             "step %lld: part %d of the loss (%s) is %g",
                             (long long)step + 1, i,
                             names ? names[i - 1] : trainer->job.parts[i - 1]->op->name,
                             trainer->losses[i]);
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL, "step %lld: the loss is %g",
                     (long long)step + 1, trainer->losses[0]);
}

static Status check_step(const Trainer *trainer, int64_t step, double norm, Diag *diag) {
    Status status = STATUS_OK;
    bool finite = true;
    for (int i = 0; i <= trainer->job.part_count; i++)
        finite = finite && isfinite(trainer->losses[i]);
    if (!finite)
        status = fail_loss(trainer, step, diag);
    else if (!isfinite(trainer->prior))
        status = diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                           "step %lld: what the prior adds to the loss is %g",
                           (long long)step + 1, trainer->prior);
    else if (!isfinite(norm))
        status = diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                           "step %lld: the gradient's norm is %g, at a loss of %g",
                           (long long)step + 1, norm, trainer->losses[0]);
    if (status != STATUS_OK)
        diag_hint(diag, "try a smaller learning rate, a longer warm-up or clipping");
    return status;
}

/* Takes step `step`: gradient, checks, update. */
static Status train_step(Trainer *trainer, int64_t step, Diag *diag) {
    const TrainOptions *options = trainer->options;
    const int threads = trainer->job.threads;
    /* Weights are drawn before any shard runs: all of them see the same ones. */
    optimizer_draw(trainer->optimizer, trainer->batch.key, threads);
    TRY(shards_run(trainer->shards, &trainer->batch, trainer->losses, diag));
    int64_t count;
    float *const *gradients = shards_gradients(trainer->shards, &count);
    double norm;
    TRY(optimizer_sum(trainer->optimizer, gradients, count, threads, &norm, diag));
    trainer->prior = optimizer_prior(trainer->optimizer);
    TRY(check_step(trainer, step, norm, diag));
    const double scale =
        options->clip > 0 && norm > options->clip ? options->clip / norm : 1;
    const double rate = options->lr * schedule_factor(options, step, trainer->total);
    TRY(optimizer_step(trainer->optimizer, gradients[0], scale, rate, step,
                       trainer->batch.key, threads, diag));
    history_add(trainer->history, &(HistoryStep){.step = step,
                                                 .samples = trainer->batch.count,
                                                 .losses = trainer->losses,
                                                 .prior = trainer->prior,
                                                 .norm = norm,
                                                 .rate = rate});
    return STATUS_OK;
}

/* What the pass does after a step. */
static Status run_hook(Trainer *trainer, Diag *diag) {
    const TrainHook *hook = trainer->options->hook;
    optimizer_restore_means(trainer->optimizer);
    return hook->step(hook->self, trainer->done, trainer->total, diag);
}

/* ---- the development set ---- */

/* Whether `value` is better than the best so far. */
static bool is_better(const Trainer *trainer, double value) {
    if (!isfinite(value)) return false;
    if (trainer->best_step == 0) return true;
    return trainer->options->measure->less ? value < trainer->best_value
                                           : value > trainer->best_value;
}

/* Measures where it is time, and keeps the weights if they are the best. */
static Status measure(Trainer *trainer, Diag *diag) {
    const TrainOptions *options = trainer->options;
    const int64_t every = options->dev_every > 0 ? options->dev_every : trainer->epoch;
    const bool due = trainer->done % every == 0 || trainer->done == trainer->total;
    double value;
    if (!options->measure || !due || trainer->measured == trainer->done) return STATUS_OK;
    optimizer_show(trainer->optimizer);
    const Status status = options->measure->measure(options->measure->self, &value, diag);
    if (status == STATUS_OK) {
        trainer->measured = trainer->done;
        trainer->worse++;
        if (is_better(trainer, value)) {
            if (options->keep == KEEP_BEST) optimizer_keep_best(trainer->optimizer);
            trainer->best_step = trainer->done;
            trainer->best_value = value;
            trainer->worse = 0;
        }
        history_measured(trainer->history, trainer->done, value);
    }
    optimizer_hide(trainer->optimizer);
    return status;
}

/* Whether there are no more steps to take. */
static bool is_over(const Trainer *trainer) {
    const int64_t patience = trainer->options->measure ? trainer->options->patience : 0;
    return trainer->done == trainer->total ||
           (patience > 0 && trainer->worse >= patience);
}

static void save_measurements(const Trainer *trainer, TrainState *state) {
    tree_put_int(state->arena, state->numbers, "measured", trainer->measured);
    tree_put_int(state->arena, state->numbers, "worse", trainer->worse);
    tree_put_int(state->arena, state->numbers, "best_step", trainer->best_step);
    tree_put_real(state->arena, state->numbers, "best_value", trainer->best_value);
}

static Status load_measurements(Trainer *trainer, TrainState *state, int64_t step,
                                Diag *diag) {
    TRY(train_state_int(&trainer->measured, state, "measured", 0, step, diag));
    TRY(train_state_int(&trainer->worse, state, "worse", 0, step, diag));
    TRY(train_state_int(&trainer->best_step, state, "best_step", 0, trainer->measured,
                        diag));
    return train_state_real(&trainer->best_value, state, "best_value", diag);
}

/* ---- the state ---- */

/* Hands the state to the keeper, of several ranks rank 0's. */
static Status save_state(Trainer *trainer, Diag *diag) {
    const TrainOptions *options = trainer->options;
    TrainState *state = train_state_create();
    tree_put_int(state->arena, state->numbers, "serial", options->serial);
    tree_put_int(state->arena, state->numbers, "precision", options->precision);
    tree_put_int(state->arena, state->numbers, "step", trainer->done);
    tree_put_int(state->arena, state->numbers, "total", trainer->total);
    history_save(trainer->history, state);
    if (options->measure) save_measurements(trainer, state);
    if (options->hook && options->hook->save)
        options->hook->save(options->hook->self, state);
    Status status = optimizer_save(trainer->optimizer, state, diag);
    if (status == STATUS_OK && ranks_number() == 0)
        status = options->keeper->save(options->keeper->self, state, diag);
    train_state_destroy(state);
    if (status == STATUS_OK) trainer->kept = trainer->done;
    return status;
}

/* After a step: keeps the state where it is time. */
static Status keep_state(Trainer *trainer, Diag *diag) {
    const TrainKeeper *keeper = trainer->options->keeper;
    if (!keeper || !keeper->save || trainer->kept == trainer->done) return STATUS_OK;
    const bool end = trainer->options->more && is_over(trainer);
    bool due = false;
    if (keeper->due && ranks_number() == 0)
        due = keeper->due(keeper->self, trainer->done, trainer->total);
    if (keeper->due) TRY(ranks_broadcast(&due, sizeof due, 0, diag));
    return end || due ? save_state(trainer, diag) : STATUS_OK;
}

/* Keeps what an interrupted run has done. */
static void keep_interrupted(Trainer *trainer, Diag *diag) {
    const TrainKeeper *keeper = trainer->options->keeper;
    if (!keeper || !keeper->save || !trainer->whole || trainer->kept == trainer->done)
        return;
    Diag *aside = diag_create();
    if (save_state(trainer, aside) != STATUS_OK)
        diag_note(diag, "the state of the training could not be kept");
    diag_destroy(aside);
}

static Status take_state(Trainer *trainer, TrainState *state, Diag *diag) {
    const TrainOptions *options = trainer->options;
    const int64_t precision = options->precision;
    int64_t serial, total, step, same;
    TRY(train_state_int(&serial, state, "serial", options->serial, options->serial,
                        diag));
    TRY(train_state_int(&same, state, "precision", precision, precision, diag));
    TRY(train_state_int(&total, state, "total", trainer->total, trainer->total, diag));
    TRY(train_state_int(&step, state, "step", 1, trainer->total, diag));
    TRY(history_load(trainer->history, state, step, diag));
    if (options->measure) TRY(load_measurements(trainer, state, step, diag));
    if (options->hook && options->hook->load)
        TRY(options->hook->load(options->hook->self, state, step, trainer->total, diag));
    const bool best = options->keep == KEEP_BEST && trainer->best_step > 0;
    TRY(optimizer_load(trainer->optimizer, state, best, diag));
    trainer->done = trainer->kept = step;
    trainer->whole = true;
    return STATUS_OK;
}

/* Goes on from the state that an earlier run left, if there is one. */
static Status load_state(Trainer *trainer, Diag *diag) {
    const TrainKeeper *keeper = trainer->options->keeper;
    TrainState *state = NULL;
    if (!keeper || !keeper->load) return STATUS_OK;
    TRY(keeper->load(keeper->self, trainer->options->serial, &state, diag));
    const Status status = state ? take_state(trainer, state, diag) : STATUS_OK;
    train_state_destroy(state);
    return status;
}

/* ---- epochs ---- */

/* Sorts a window of the permutation of groups by length and shuffles its batches, so that
 * samples of a batch are about equally long and the order of lengths stays random. */
static void sort_window(const Trainer *trainer, uint64_t key, int64_t *order,
                        int64_t count) {
    const int64_t batch = trainer->job.batch / batches_group(trainer->job.data);
    const int64_t whole = count / batch;
    int64_t *sorted = memory_alloc((size_t)count, sizeof *sorted);
    int64_t *places = memory_alloc((size_t)whole + 1, sizeof *places);
    memcpy(sorted, order, (size_t)count * sizeof *sorted);
    batches_sort(trainer->job.data, sorted, count);
    random_permutation(key, places, whole);
    for (int64_t i = 0; i < count; i++) {
        const int64_t from =
            i / batch < whole ? places[i / batch] * batch + i % batch : i;
        order[i] = sorted[from];
    }
    free(places);
    free(sorted);
}

/* Batches of which a window of an epoch is made when samples have lengths. */
enum { WINDOW_BATCHES = 50 };

/* Puts the other samples of its group behind each of order[0..groups), the groups'
 * first ones. */
static void spread_groups(int64_t *order, int64_t groups, int64_t group) {
    for (int64_t i = groups - 1; i >= 0; i--)
        for (int64_t k = group - 1; k >= 0; k--) order[i * group + k] = order[i] + k;
}

/* The order of an epoch's samples, or groups of them: random; by length (a group's is
 * that of its first sample) within windows of it. */
static void epoch_order(const Trainer *trainer, uint64_t key, int64_t *order) {
    const int64_t group = batches_group(trainer->job.data);
    const int64_t groups = trainer->job.samples / group;
    random_permutation(key, order, groups);
    for (int64_t i = 0; i < groups; i++) order[i] *= group;
    const int64_t window = WINDOW_BATCHES * (trainer->job.batch / group);
    for (int64_t first = 0; trainer->job.data->length && first < groups;
         first += window) {
        const int64_t left = groups - first;
        sort_window(trainer, random_key(key, (uint64_t)first + 1), order + first,
                    left < window ? left : window);
    }
    spread_groups(order, groups, group);
}

/* What follows a step. Ranks agree on what came of it before they keep the state, which
 * they do together, also after an interruption that only one of them has seen. */
static Status finish_step(Trainer *trainer, Diag *diag) {
    trainer->whole = false;
    if (trainer->options->hook) TRY(ranks_agree(run_hook(trainer, diag), diag));
    trainer->whole = true;
    if (trainer->options->measure) TRY(ranks_agree(measure(trainer, diag), diag));
    return keep_state(trainer, diag);
}

/* Measuring may have told of the interruption already. */
static void tell_interrupted(Trainer *trainer, Diag *diag) {
    const long long done = trainer->done, total = trainer->total;
    if (diag_errors(diag) > 0)
        diag_note(diag, "training stopped after %lld of %lld steps", done, total);
    else
        diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                  "training stopped after %lld of %lld steps", done, total);
    keep_interrupted(trainer, diag);
}

static Status train_loop(Trainer *trainer, uint64_t seed, Diag *diag) {
    const int64_t samples = trainer->job.samples, batch = trainer->job.batch;
    int64_t *order = memory_alloc((size_t)samples, sizeof *order);
    const uint64_t augment = random_key_name(seed, "augment");
    const uint64_t draws = random_key_name(seed, "step");
    int64_t ordered = -1; /* the epoch of `order` */
    Status status = STATUS_OK;
    if (trainer->done > 0) status = ranks_agree(measure(trainer, diag), diag);
    while (status == STATUS_OK && !is_over(trainer)) {
        const int64_t step = trainer->done, epoch = step / trainer->epoch;
        const int64_t first = step % trainer->epoch * batch;
        if (epoch != ordered)
            epoch_order(trainer, random_key(seed, (uint64_t)(ordered = epoch)), order);
        trainer->batch =
            (MiniBatch){.samples = order + first,
                        .count = samples - first < batch ? samples - first : batch,
                        .key = random_key(draws, (uint64_t)step)};
        if (trainer->options->augment)
            trainer->batch.augment = random_key(augment, (uint64_t)epoch) | 1;
        status = train_step(trainer, step, diag);
        if (status != STATUS_OK) break;
        trainer->done++;
        status = finish_step(trainer, diag);
        shards_progress(trainer->shards, trainer->done, trainer->total,
                        trainer->losses[0]);
    }
    free(order);
    if (status == STATUS_INTERRUPTED) tell_interrupted(trainer, diag);
    return status;
}

/* Sizes, plans, weights, optimiser state and gradients, in this order: each is made from
 * those before it. */
static Status trainer_open(Trainer *trainer, Diag *diag) {
    ShardsOptions *job = &trainer->job;
    for (int i = 0; i < job->part_count; i++) {
        const Type *type = &job->parts[i]->type;
        if (type->rank != 0 || !dtype_is_real(type->dtype))
            return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                             "part %d of the loss (%s) is not a scalar", i + 1,
                             job->parts[i]->op->name);
    }
    TRY(feed_check(job->graph, &job->loss, 1, job->data, job->sizes, diag));
    TRY(feed_check(job->graph, job->parts, job->part_count, job->data, job->sizes, diag));
    TRY(shards_create(&trainer->shards, job, diag));
    TRY(params_create(&trainer->params, job->graph, PRECISION_F32, true, diag));
    TRY(optimizer_create(&trainer->optimizer, job->graph, shards_plan(trainer->shards),
                         trainer->params, trainer->options, job->samples, diag));
    trainer->losses = memory_alloc((size_t)job->part_count + 1, sizeof *trainer->losses);
    trainer->history = history_create(trainer->total, trainer->epoch,
                                      trainer->options->log_every, job->part_count);
    TRY(shards_open(trainer->shards, trainer->params, optimizer_count(trainer->optimizer),
                    diag));
    return load_state(trainer, diag);
}

static void trainer_close(Trainer *trainer) {
    shards_destroy(trainer->shards);
    optimizer_destroy(trainer->optimizer);
    params_destroy(trainer->params);
    history_destroy(trainer->history);
    free(trainer->losses);
}

static Status trainer_run(Trainer *trainer, uint64_t seed, Arena *arena,
                          TrainReport *report, Diag *diag) {
    TRY(trainer_open(trainer, diag));
    Status status = train_loop(trainer, seed, diag);
    if (status != STATUS_OK) {
        optimizer_restore_means(trainer->optimizer);
        return status;
    }
    TRY(optimizer_finish(trainer->optimizer, diag));
    history_report(trainer->history, trainer->done, arena, report);
    report->total = trainer->total;
    report->shards = shards_count(trainer->shards);
    report->best_step = trainer->best_step;
    report->best_value = trainer->best_value;
    optimizer_describe(trainer->optimizer, arena, &report->prior_storages,
                       &report->priorless);
    return STATUS_OK;
}

/* What the options say of the job; there are `samples` of them. */
static Trainer trainer_of(Graph *graph, Node *loss, const TrainOptions *options,
                          int64_t samples, int threads) {
    const int64_t batch = options->batch_size < samples ? options->batch_size : samples;
    const int64_t epoch = (samples + batch - 1) / batch;
    return (Trainer){.options = options,
                     .epoch = epoch,
                     .total =
                         options->steps > 0 ? options->steps : options->epochs * epoch,
                     .kept = -1,
                     .job = {.graph = graph,
                             .loss = loss,
                             .samples = samples,
                             .batch = batch,
                             .shards = options->shards,
                             .micro_batch = options->micro_batch,
                             .threads = threads > 1 ? threads : 1,
                             .bf16 = options->precision == TRAIN_BF16,
                             .recompute = options->recompute == RECOMPUTE_LAYERS}};
}

Status train_check_groups(const Batches *data, const TrainOptions *options, Diag *diag) {
    const int64_t group = batches_group(data);
    const bool micro = options->batch_size % group == 0;
    if (micro && options->micro_batch % group == 0) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, LOC_NONE, micro ? "micro_batch" : "batch_size",
                     "expected a multiple of %lld, the samples of \"%s\" that belong "
                     "together, found %lld",
                     (long long)group, data->name,
                     (long long)(micro ? options->micro_batch : options->batch_size));
}

Status train(Graph *graph, Node *loss, Node *const *parts, int part_count,
             const Batches *data, const TrainOptions *options, uint64_t seed, int threads,
             const Watch *watch, Arena *arena, TrainReport *report, Diag *diag) {
    TRY(train_check_options(options, diag));
    if (data->count < 1)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, data->name,
                         "expected samples to train on, found none");
    TRY(train_check_groups(data, options, diag));
    Trainer trainer = trainer_of(graph, loss, options, data->count, threads);
    trainer.job.parts = parts;
    trainer.job.part_count = part_count;
    trainer.job.data = data;
    trainer.job.watch = watch;
    bool *was = memory_alloc((size_t)graph->storage_count + 1, sizeof *was);
    train_freeze(graph, options, was);
    Status status =
        trainer_run(&trainer, seed + (uint64_t)options->seed, arena, report, diag);
    trainer_close(&trainer);
    train_unfreeze(graph, was);
    free(was);
    return status;
}

/* The work of a step: that of the largest plan for each of its samples. */
static TrainWork work_of_step(const Trainer *trainer, const Graph *graph) {
    const int64_t samples = trainer->job.batch;
    const Plan *plan = shards_plan(trainer->shards);
    const double runs = (double)samples / (double)plan_samples(plan);
    return (TrainWork){.work = plan_work_times(plan_work(plan), runs),
                       .samples = samples,
                       .tokens = trainer->job.sizes[DIM_INDEX(DIM_T)],
                       .weights = params_layout(graph, NULL)};
}

Status train_plan(Graph *graph, Node *loss, const TrainOptions *options, int threads,
                  TrainNeeds *needs, Diag *diag) {
    TRY(train_check_options(options, diag));
    Trainer trainer = trainer_of(graph, loss, options, options->batch_size, threads);
    /* The lengths of text are known with the data only; these are usual. */
    trainer.job.sizes[DIM_INDEX(DIM_T)] = trainer.job.sizes[DIM_INDEX(DIM_S)] = 128;
    trainer.job.sizes[DIM_INDEX(DIM_M)] = 20;
    plan_fit_sizes(graph, &loss, 1, trainer.job.sizes);
    bool *was = memory_alloc((size_t)graph->storage_count + 1, sizeof *was);
    train_freeze(graph, options, was);
    Status status = prior_check(graph, options, diag);
    if (status == STATUS_OK) status = shards_create(&trainer.shards, &trainer.job, diag);
    if (status == STATUS_OK && options->objective == OBJECTIVE_LIKELIHOOD)
        status = optimizer_check_plan(graph, shards_plan(trainer.shards), diag);
    if (status == STATUS_OK)
        *needs = (TrainNeeds){
            .bytes = optimizer_bytes(graph, options) +
                     shards_bytes(trainer.shards, params_layout(graph, NULL)),
            .shards = shards_count(trainer.shards),
            .step = work_of_step(&trainer, graph)};
    trainer_close(&trainer);
    train_unfreeze(graph, was);
    free(was);
    return status;
}
