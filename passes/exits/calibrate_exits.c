/* calibrate_exits: chooses from data when samples leave at exits, for a target of FLOPs
 * or accuracy, and stores the rule in the model. */
#include "passes/exits/calibration.h"

#include "passes/exits/exits.h"

#include <math.h>

/* Targets that are not given are below 0. */
typedef struct CalibrateOptions {
    const char *data;
    int criterion;
    double flops, accuracy, drop;
    int64_t candidates, limit, batch_size;
} CalibrateOptions;

#define C CalibrateOptions
static const Field fields[] = {
    {.name = "data",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(C, data, const char *),
     .required = true,
     .help = "data set with labels"},
    F_CHOICE(C, criterion, "entropy|patience",
             "leave when the entropy of the prediction is below a threshold, or when so "
             "many exits in a row agreed"),
    F_REAL(C, flops, 0, 1,
           "target: the best accuracy with at most this share of the FLOPs to the last "
           "exit"),
    F_REAL(C, accuracy, 0, 100,
           "target: the fewest FLOPs with at least this accuracy in percent"),
    F_REAL(C, drop, 0, 100,
           "target: the fewest FLOPs with at most so many points less than the last "
           "exit"),
    F_INT(C, candidates, 2, 100000, "entropy: thresholds tried, quantiles of the data's"),
    F_INT(C, limit, 0, 1000000000000, "first samples only; 0 = all"),
    F_INT(C, batch_size, 1, 1000000, "samples per run"),
    F_END,
};

static const C defaults = {
    .flops = -1, .accuracy = -1, .drop = -1, .candidates = 200, .batch_size = 32};

/* FLOPs up to each exit of samples of so many tokens. */
typedef struct TokenCost {
    int64_t tokens;
    double *flops;
    struct TokenCost *next;
} TokenCost;

typedef struct Calibrate {
    PassContext *ctx;
    const C *options;
    Graph *graph;
    Arena *arena;
    Exits exits;
    Node **logits;
    const Batches *data;
    int label_column;
    int64_t classes;
    TokenCost *costs;
    Calibration known;
} Calibrate;

/* ---- one run over the data ---- */

static Status cost_of(Calibrate *c, int64_t sample, const double **flops, Diag *diag) {
    const Batches *data = c->data;
    const int64_t tokens = data->length ? data->length(data, sample) : 0;
    TokenCost *cost = c->costs;
    while (cost && cost->tokens != tokens) cost = cost->next;
    if (!cost) {
        cost = ARENA_NEW(c->arena, TokenCost);
        cost->tokens = tokens;
        cost->flops = ARENA_ARRAY(c->arena, double, (size_t)c->exits.count);
        TRY(dynamic_flops(c->graph, c->logits, c->exits.count, tokens, cost->flops,
                          diag));
        cost->next = c->costs;
        c->costs = cost;
    }
    *flops = cost->flops;
    return STATUS_OK;
}

static Status check_sample(const Calibrate *c, int64_t sample, int64_t row,
                           const float *const *values, int32_t label, Diag *diag) {
    if (label < 0 || label >= c->classes)
        return step_fail_label(c->ctx, diag, c->data, sample, c->classes, label);
    for (int e = 0; e < c->exits.count; e++)
        for (int64_t k = 0; k < c->classes; k++)
            if (!isfinite(values[e][row * c->classes + k]))
                return step_fail(c->ctx, diag,
                                 "sample %lld: expected finite logits at \"%s\"",
                                 (long long)sample, c->exits.items[e].output);
    return STATUS_OK;
}

/* What the rule would look at, and whether each exit is right, for row `row` of a batch.
 */
static void know_sample(Calibrate *c, int64_t sample, int64_t row,
                        const float *const *values, int32_t label) {
    Calibration *known = &c->known;
    const ExitRule patience = {.criterion = EXIT_PATIENCE, .patience = INT64_MAX};
    ExitState state = {0};
    for (int e = 0; e < known->exits; e++) {
        const float *logits = values[e] + row * c->classes;
        int64_t best = 0;
        for (int64_t k = 1; k < c->classes; k++)
            if (logits[k] > logits[best]) best = k;
        known->correct[sample * known->exits + e] = best == label;
        if (e == known->exits - 1) break;
        double *score = &known->score[sample * (known->exits - 1) + e];
        exit_leaves(&patience, &state, e, logits, c->classes);
        *score = known->criterion == EXIT_PATIENCE ? (double)state.agree
                                                   : exit_entropy(logits, c->classes);
    }
}

static Status know_batch(void *self, const Fetch *what, const float *const *values,
                         const void *const *columns, Diag *diag) {
    Calibrate *c = self;
    const int32_t *labels = columns[c->label_column];
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t sample = what->index[i];
        TRY(check_sample(c, sample, i, values, labels[i], diag));
        TRY(cost_of(c, sample, &c->known.flops[sample], diag));
        know_sample(c, sample, i, values, labels[i]);
    }
    return STATUS_OK;
}

static Status open_data(Calibrate *c, Diag *diag) {
    const C *options = c->options;
    Batches *data = NULL;
    const DataUse use = {.graph = c->graph,
                         .roots = c->logits,
                         .root_count = c->exits.count,
                         .labels = DATA_LABELS,
                         .classes = c->classes,
                         .batch = options->batch_size};
    TRY(step_data(c->ctx, options->data, &use, &data, diag));
    c->data = data;
    if (!data) return STATUS_OK;
    c->label_column = batches_column(data, "labels");
    if (c->label_column < 0)
        return step_fail(c->ctx, diag, "data set \"%s\" has no labels", options->data);
    if (data->count == 0)
        return step_fail(c->ctx, diag, "data set \"%s\" has no samples", options->data);
    return STATUS_OK;
}

static Status run_data(Calibrate *c, Diag *diag) {
    const int64_t limit = c->options->limit, all = c->data->count;
    const int64_t samples = limit > 0 && limit < all ? limit : all;
    const int count = c->exits.count;
    int *layer = ARENA_ARRAY(c->arena, int, (size_t)count);
    for (int e = 0; e < count; e++) layer[e] = c->exits.items[e].layer;
    const size_t values = (size_t)samples * (size_t)count;
    c->known =
        (Calibration){.criterion = EXIT_ENTROPY + c->options->criterion,
                      .exits = count,
                      .layer = layer,
                      .samples = samples,
                      .score = ARENA_ARRAY(c->arena, double, values),
                      .correct = ARENA_ARRAY(c->arena, bool, values),
                      .flops = ARENA_ARRAY(c->arena, const double *, (size_t)samples)};
    return forward_batches(c->graph, c->logits, count, c->data, samples,
                           c->options->batch_size, c->ctx->threads, c->ctx->watch,
                           know_batch, c, diag);
}

/* ---- choice ---- */

static Status fail_target(Calibrate *c, const CalibrationPoint *points, int count,
                          double accuracy, Diag *diag) {
    const CalibrationPoint *fast = calibration_above(points, count, 0);
    const CalibrationPoint *right = calibration_within(points, count, 2);
    if (c->options->flops >= 0)
        return step_fail_option(c->ctx, "flops", diag,
                                "no rule takes at most %g of the FLOPs; the least is "
                                "%.4f, with accuracy %.2f",
                                c->options->flops, fast->flops, fast->accuracy);
    return step_fail_option(
        c->ctx, "accuracy|drop", diag,
        "no rule reaches accuracy %.2f; the best is %.2f, with %.4f of the "
        "FLOPs",
        accuracy, right->accuracy, right->flops);
}

static Status choose(CalibrationPoint *out, Calibrate *c, const CalibrationPoint *points,
                     int count, const CalibrationPoint *full, Diag *diag) {
    const C *options = c->options;
    const double accuracy =
        options->drop >= 0 ? full->accuracy - options->drop : options->accuracy;
    const CalibrationPoint *found =
        options->flops >= 0 ? calibration_within(points, count, options->flops)
                            : calibration_above(points, count, accuracy);
    if (!found) return fail_target(c, points, count, accuracy, diag);
    *out = *found;
    return STATUS_OK;
}

/* ---- record and rule ---- */

static void put_point(const Calibrate *c, Arena *arena, Tree *map,
                      const CalibrationPoint *point) {
    if (c->known.criterion == EXIT_PATIENCE)
        tree_put_int(arena, map, "patience", (int64_t)point->threshold);
    else
        tree_put_real(arena, map, "threshold", point->threshold);
    tree_put_real(arena, map, "accuracy", point->accuracy);
    tree_put_real(arena, map, "depth", point->depth);
    tree_put_real(arena, map, "flops", point->flops);
}

static void record(const Calibrate *c, const CalibrationPoint *chosen,
                   const CalibrationPoint *full, const CalibrationPoint *points,
                   int count) {
    PassContext *ctx = c->ctx;
    Tree *curve = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    tree_put_string(ctx->arena, ctx->record, "data", c->options->data);
    tree_put_int(ctx->arena, ctx->record, "samples", c->known.samples);
    tree_put_real(ctx->arena, ctx->record, "last_accuracy", full->accuracy);
    put_point(c, ctx->arena, ctx->record, chosen);
    for (int i = 0; i < count; i++) {
        Tree *row = tree_new(ctx->arena, TREE_MAP, LOC_NONE);
        put_point(c, ctx->arena, row, &points[i]);
        tree_append(ctx->arena, curve, NULL, LOC_NONE, row);
    }
    tree_append(ctx->arena, ctx->record, "curve", LOC_NONE, curve);
}

static Status store(const Calibrate *c, Model *model, double threshold, Diag *diag) {
    double *thresholds = ARENA_ARRAY(c->arena, double, (size_t)c->exits.count);
    for (int e = 0; e < c->exits.count - 1; e++) thresholds[e] = threshold;
    const ExitRule rule = {.criterion = EXIT_ENTROPY + c->options->criterion,
                           .threshold = thresholds,
                           .patience = (int64_t)threshold};
    return exits_store_rule(&rule, model, &c->exits, diag);
}

/* ---- the pass ---- */

static Status find(Calibrate *c, Diag *diag) {
    const Task task = graph_task(c->graph);
    if (task != TASK_CLASSIFY)
        return step_fail(c->ctx, diag,
                         "expected a model of task classify, found %s: rules for leaving "
                         "are about classes",
                         task_name(task));
    TRY(exits_find(&c->exits, c->arena, c->ctx, c->graph, diag));
    if (c->exits.count < 2) {
        Status status = step_fail(c->ctx, diag, "the model has no early exits");
        diag_hint(diag, "add_exits gives a classifier exits; train them first");
        return status;
    }
    c->logits = ARENA_ARRAY(c->arena, Node *, (size_t)c->exits.count);
    for (int e = 0; e < c->exits.count; e++) c->logits[e] = c->exits.items[e].logits;
    c->classes = c->logits[0]->type.dim[1];
    return STATUS_OK;
}

static Status calibrate(Calibrate *c, Model *model, Diag *diag) {
    double *thresholds = NULL;
    CalibrationPoint chosen = {0};
    TRY(find(c, diag));
    TRY(open_data(c, diag));
    if (c->ctx->plan) return store(c, model, 1, diag);
    TRY(run_data(c, diag));
    const int count = calibration_candidates(&thresholds, c->arena, &c->known,
                                             (int)c->options->candidates, c->classes);
    CalibrationPoint *points = ARENA_ARRAY(c->arena, CalibrationPoint, (size_t)count);
    for (int i = 0; i < count; i++)
        points[i] = calibration_point(&c->known, thresholds[i]);
    const bool ascending = c->known.criterion == EXIT_PATIENCE;
    const CalibrationPoint *full = &points[ascending ? count - 1 : 0];
    TRY(choose(&chosen, c, points, count, full, diag));
    record(c, &chosen, full, points, count);
    return store(c, model, chosen.threshold, diag);
}

static Status calibrate_run(PassContext *ctx, Model *model, const void *opaque,
                            Diag *diag) {
    Calibrate c = {
        .ctx = ctx, .options = opaque, .graph = model->graph, .arena = arena_create()};
    Status status = calibrate(&c, model, diag);
    arena_destroy(c.arena);
    return status;
}

static Status calibrate_check(const void *opaque, const StepSource *source, Diag *diag) {
    const C *options = opaque;
    const int ways =
        (options->flops >= 0) + (options->accuracy >= 0) + (options->drop >= 0);
    if (ways == 1) return STATUS_OK;
    return option_fail(source, "flops|accuracy|drop", STATUS_RECIPE, diag,
                       "expected one of flops, accuracy and drop, found %d of them",
                       ways);
}

const Pass pass_calibrate_exits = {
    .name = "calibrate_exits",
    .summary = "choose from data when samples leave at exits, for a target of FLOPs or "
               "accuracy",
    .paper =
        "DeeBERT (ACL 2020); COST-EFF (EMNLP 2022), section 3.1; BERT Loses Patience "
        "(NeurIPS 2020)",
    .fields = fields,
    .options_size = sizeof(C),
    .defaults = &defaults,
    .data_options = "data",
    .flags = PASS_MEASURES,
    .exactness = PASS_EXACT,
    .effects = {.needs = MODEL_EXITS, .gives = MODEL_EXIT_RULE},
    .check = calibrate_check,
    .run = calibrate_run,
};
