/* evaluate: models that predict classes, at their exits. */
#include "passes/evaluate/evaluation.h"

#include "exec/plan/plan_cache.h"
#include "exec/run/feed.h"

#include <string.h>

/* ---- cost ---- */

/* FLOPs of what one result takes, alone, for the samples seen. */
typedef struct ExitCost {
    Node *result;
    PlanCache *plans; /* at one sample */
    double flops;
} ExitCost;

static Status cost_open(ExitCost *cost, const Evaluation *e, Node *result, Diag *diag) {
    *cost = (ExitCost){.result = result};
    PlanOptions options = {
        .precision = PRECISION_F32, .results = &cost->result, .result_count = 1};
    TRY(feed_check(e->model->graph, &cost->result, 1, e->data, options.sizes, diag));
    cost->plans = plan_cache_create(e->model->graph, e->data, &options, PLAN_CACHE_BYTES);
    return STATUS_OK;
}

static Status cost_add(ExitCost *cost, const Fetch *what, Diag *diag) {
    Plan *plan = NULL;
    TRY(plan_cache_get(cost->plans, 1, what, &plan, diag));
    cost->flops += plan_flops(plan) * (double)what->n;
    plan_destroy(plan);
    return STATUS_OK;
}

static void cost_close(ExitCost *cost) {
    plan_cache_destroy(cost->plans);
}

/* ---- the last exit, or a rule ---- */

typedef struct ExitRun {
    Evaluation *e;
    ExitCost full;  /* of the model without early exits */
    int64_t *taken; /* samples by exit */
    DynamicReport report;
} ExitRun;

static Status add_samples(void *self, const Fetch *what, const int *exit,
                          const float *logits, const void *const *columns, Diag *diag) {
    ExitRun *d = self;
    const int32_t *labels = columns[d->e->labels];
    for (int64_t i = 0; i < what->n; i++) {
        TRY(evaluation_add(d->e, &d->e->total, what->index[i], logits + i * d->e->classes,
                           labels[i], diag));
        d->taken[exit[i]]++;
    }
    return d->e->mode == EVALUATE_RULE ? cost_add(&d->full, what, diag) : STATUS_OK;
}

/* {exit, layer} of one exit. */
Tree *evaluation_exit_row(Arena *arena, Tree *list, const Exit *exit) {
    Tree *row = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, row, "exit", exit->output);
    tree_put_int(arena, row, "layer", exit->layer);
    tree_append(arena, list, NULL, LOC_NONE, row);
    return row;
}

static void record_rule(const Evaluation *e, Tree *record) {
    Arena *arena = e->ctx->arena;
    const ExitRule *rule = &e->rule;
    const bool entropy = rule->criterion == EXIT_ENTROPY;
    if (e->stale) tree_put_bool(arena, record, "stale_rule", true);
    tree_put_string(arena, record, "criterion", entropy ? "entropy" : "patience");
    if (!entropy) {
        tree_put_int(arena, record, "patience", rule->patience);
        return;
    }
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i + 1 < e->exits.count; i++)
        tree_add_real(arena, list, rule->threshold[i]);
    tree_append(arena, record, "thresholds", LOC_NONE, list);
}

/* Who left where, and what it took. */
static void record_leaving(const ExitRun *d) {
    const Evaluation *e = d->e;
    Arena *arena = e->ctx->arena;
    Tree *record = e->ctx->record, *list = tree_new(arena, TREE_LIST, LOC_NONE);
    const double samples = (double)d->report.samples;
    double depth = 0;
    record_rule(e, record);
    for (int i = 0; i < e->exits.count; i++) {
        const double share = (double)d->taken[i] / samples;
        tree_put_real(arena, evaluation_exit_row(arena, list, &e->exits.items[i]),
                      "share", share);
        depth += share * e->exits.items[i].layer;
    }
    tree_append(arena, record, "exits", LOC_NONE, list);
    tree_put_real(arena, record, "mean_depth", depth);
    tree_put_real(arena, record, "flops", d->report.flops / samples);
    tree_put_real(arena, record, "full_flops", d->full.flops / samples);
    tree_put_real(arena, record, "flops_share", d->report.flops / d->full.flops);
}

static Status run_dynamic(ExitRun *d, Diag *diag) {
    const Evaluation *e = d->e;
    const EvaluateOptions *o = e->options;
    const bool ruled = e->mode == EVALUATE_RULE;
    const int count = ruled ? e->exits.count : 1;
    const Exit *first = &e->exits.items[e->exits.count - count];
    Node **exits = ARENA_ARRAY(e->ctx->arena, Node *, (size_t)count);
    for (int i = 0; i < count; i++) exits[i] = first[i].logits;
    d->taken = ARENA_ARRAY(e->ctx->arena, int64_t, (size_t)count);
    const ExitRule never = {.criterion = EXIT_NEVER};
    return dynamic_batches(e->model->graph, exits, count, ruled ? &e->rule : &never,
                           e->data, o->limit, o->batch_size, e->ctx->threads,
                           e->ctx->watch, add_samples, d, &d->report, diag);
}

Status evaluate_dynamic(Evaluation *e, Diag *diag) {
    ExitRun d = {.e = e};
    Node *last = e->exits.items[e->exits.count - 1].logits;
    TRY(cost_open(&d.full, e, last, diag));
    Status status = run_dynamic(&d, diag);
    if (status == STATUS_OK) {
        tree_put_int(e->ctx->arena, e->ctx->record, "samples", d.report.samples);
        tally_record(&e->total, e->ctx->arena, e->ctx->record);
        if (e->mode == EVALUATE_RULE) record_leaving(&d);
        evaluation_time(e, d.report.samples, d.report.seconds);
    }
    cost_close(&d.full);
    return status;
}

/* ---- every exit ---- */

typedef struct Curve {
    Evaluation *e;
    Tally *tallies;  /* by exit */
    ExitCost *costs; /* of the model cut off behind the exit */
} Curve;

static Status add_exits(void *self, const Fetch *what, const float *const *values,
                        const void *const *columns, Diag *diag) {
    Curve *c = self;
    const int32_t *labels = columns[c->e->labels];
    for (int k = 0; k < c->e->exits.count; k++) {
        for (int64_t i = 0; i < what->n; i++)
            TRY(evaluation_add(c->e, &c->tallies[k], what->index[i],
                               values[k] + i * c->e->classes, labels[i], diag));
        TRY(cost_add(&c->costs[k], what, diag));
    }
    return STATUS_OK;
}

static void record_curve(const Curve *c) {
    const Evaluation *e = c->e;
    Arena *arena = e->ctx->arena;
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int k = 0; k < e->exits.count; k++) {
        Tree *row = evaluation_exit_row(arena, list, &e->exits.items[k]);
        tally_record(&c->tallies[k], arena, row);
        tree_put_real(arena, row, "flops",
                      c->costs[k].flops / (double)c->tallies[k].rows);
    }
    tree_append(arena, e->ctx->record, "exits", LOC_NONE, list);
}

static Status run_each(Curve *c, Diag *diag) {
    const Evaluation *e = c->e;
    const EvaluateOptions *o = e->options;
    Node **results = ARENA_ARRAY(e->ctx->arena, Node *, (size_t)e->exits.count);
    for (int k = 0; k < e->exits.count; k++) {
        results[k] = e->exits.items[k].logits;
        tally_open(&c->tallies[k], e->ctx->arena, e->classes, false);
        TRY(cost_open(&c->costs[k], e, results[k], diag));
    }
    return forward_batches(e->model->graph, results, e->exits.count, e->data, o->limit,
                           o->batch_size, e->ctx->threads, e->ctx->watch, add_exits, c,
                           diag);
}

Status evaluate_each(Evaluation *e, Diag *diag) {
    const size_t count = (size_t)e->exits.count;
    Curve c = {.e = e,
               .tallies = ARENA_ARRAY(e->ctx->arena, Tally, count),
               .costs = ARENA_ARRAY(e->ctx->arena, ExitCost, count)};
    Status status = run_each(&c, diag);
    if (status == STATUS_OK) {
        e->total = c.tallies[count - 1];
        tree_put_int(e->ctx->arena, e->ctx->record, "samples", e->total.rows);
        tally_record(&e->total, e->ctx->arena, e->ctx->record);
        record_curve(&c);
        evaluation_time(e, e->total.rows, 0);
    }
    for (size_t k = 0; k < count; k++) cost_close(&c.costs[k]);
    return status;
}
