/* Objective: see objective.h. */
#include "passes/training/objective.h"

#include "exec/train/prior.h"
#include "ir/rewrite.h"

#include <stdlib.h>
#include <string.h>

Status objective_begin(Objective *o, PassContext *ctx, Model *model, Diag *diag) {
    *o = (Objective){.ctx = ctx, .model = model};
    TRY(objective_check_task(ctx, model->graph, diag));
    o->arena = arena_create();
    o->graph = graph_copy(o->arena, model->graph);
    if (graph_output(o->graph, OUTPUT_LOGITS)) return STATUS_OK;
    Status status = edit_fail(ctx, diag, "the model has no output \"logits\" to train");
    diag_hint(diag, "load a model with a classification head");
    objective_end(o);
    return status;
}

Status objective_add_part(Objective *o, const char *name, Node *part, double weight,
                          Diag *diag) {
    if (o->part_count == OBJECTIVE_PARTS)
        return diag_fail(diag, STATUS_INTERNAL, o->ctx->source.at, o->ctx->source.key,
                         "more than %d parts of an objective", OBJECTIVE_PARTS);
    o->part[o->part_count] = part;
    o->weight[o->part_count] = weight;
    o->part_name[o->part_count++] = name;
    return STATUS_OK;
}

/* What priors add, and the weights that have none. */
static void record_prior(const Objective *o, const TrainReport *report) {
    PassContext *ctx = o->ctx;
    tree_put_real(ctx->arena, ctx->record, "first_prior", report->first_prior);
    tree_put_real(ctx->arena, ctx->record, "last_prior", report->last_prior);
    tree_put_int(ctx->arena, ctx->record, "with_prior", report->prior_storages);
    if (report->priorless.count == 0) return;
    Tree *list = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < report->priorless.count; i++) {
        Tree *name = tree_new(ctx->arena, TREE_STRING, LOC_NONE);
        name->string = report->priorless.items[i];
        tree_append(ctx->arena, list, NULL, LOC_NONE, name);
    }
    tree_append(ctx->arena, ctx->record, "without_prior", LOC_NONE, list);
}

/* Loss curve and final parts into the step's record. */
static void record_training(const Objective *o, const TrainReport *report, bool prior) {
    PassContext *ctx = o->ctx;
    tree_put_int(ctx->arena, ctx->record, "steps", report->steps);
    tree_put_real(ctx->arena, ctx->record, "first_loss", report->first_loss);
    tree_put_real(ctx->arena, ctx->record, "last_loss", report->last_loss);
    tree_put_real(ctx->arena, ctx->record, "largest_gradient_norm", report->largest_norm);
    for (int i = 0; i < o->part_count; i++)
        tree_put_real(ctx->arena, ctx->record,
                      arena_printf(ctx->arena, "loss_%s", o->part_name[i]),
                      report->part_loss[i]);
    if (prior) record_prior(o, report);
    Tree *curve = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < report->curve_count; i++) {
        Tree *row = tree_new(ctx->arena, TREE_MAP, LOC_NONE);
        tree_put_int(ctx->arena, row, "step", report->curve_step[i]);
        tree_put_real(ctx->arena, row, "loss", report->curve_loss[i]);
        if (prior) tree_put_real(ctx->arena, row, "prior", report->curve_prior[i]);
        tree_append(ctx->arena, curve, NULL, LOC_NONE, row);
    }
    tree_append(ctx->arena, ctx->record, "curve", LOC_NONE, curve);
}

/* What training does to weights: those that are trained become float32. */
static Status plan_types(Graph *graph, const TrainOptions *options, Diag *diag) {
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        if (storage->frozen || train_freezes(options, storage->name)) continue;
        if (dtype_is_real(storage_tensor(storage)->dtype))
            TRY(storage_to_f32(storage, diag));
    }
    return STATUS_OK;
}

/* Gives the model what training made of its weights, and what variational inference
 * knows of them. */
static void take_weights(const Objective *o, const TrainOptions *options) {
    graph_take_weights(o->model->graph, o->graph);
    if (options->objective == OBJECTIVE_VARIATIONAL)
        graph_take_gaussians(o->model->graph, o->graph);
}

/* Faults of priors are found by code that does not know the recipe. */
static Status place_prior(const Objective *o, const TrainOptions *options, Status status,
                          Diag *diag) {
    if (status == STATUS_MODEL && options->objective != OBJECTIVE_LIKELIHOOD)
        diag_place(diag, o->ctx->source.at, o->ctx->source.key);
    return status;
}

static Status plan_training(Objective *o, Node *loss, const TrainOptions *options,
                            Diag *diag) {
    size_t asking;
    TRY(place_prior(
        o, options,
        train_bytes(o->graph, loss, options, o->ctx->threads, &o->ctx->train_bytes, diag),
        diag));
    TRY(objective_ask_bytes(&asking, o, diag));
    if (o->ctx->train_bytes < asking) o->ctx->train_bytes = asking;
    TRY(plan_types(o->graph, options, diag));
    prior_plan(o->graph, options);
    take_weights(o, options);
    return STATUS_OK;
}

static Status fail_option(const char *option, const char *needs, const StepSource *source,
                          Diag *diag) {
    return option_fail(source, option, STATUS_RECIPE, diag, "needs %s", needs);
}

/* Options of a prior that no objective reads. */
static Status check_prior(const TrainOptions *options, const StepSource *source,
                          Diag *diag) {
    const bool variational = options->objective == OBJECTIVE_VARIATIONAL;
    const bool prior = options->objective != OBJECTIVE_LIKELIHOOD;
    const char *either = "objective: map or variational";
    const char *second = "objective: variational";
    if (!prior && options->prior_weight != train_defaults.prior_weight)
        return fail_option("prior_weight", either, source, diag);
    if (!prior && options->prior_scale != train_defaults.prior_scale)
        return fail_option("prior_scale", either, source, diag);
    if (!variational && options->init_variance != train_defaults.init_variance)
        return fail_option("init_variance", second, source, diag);
    if (!variational && options->variance_lr != train_defaults.variance_lr)
        return fail_option("variance_lr", second, source, diag);
    return STATUS_OK;
}

/* Options that the other optimiser reads. */
static Status check_optimizer(const TrainOptions *options, const StepSource *source,
                              Diag *diag) {
    const bool adamw = options->optimizer == OPTIMIZER_ADAMW;
    if (adamw && options->momentum != train_defaults.momentum)
        return fail_option("momentum", "optimizer: sgd", source, diag);
    if (!adamw && options->beta1 != train_defaults.beta1)
        return fail_option("beta1", "optimizer: adamw", source, diag);
    if (!adamw && options->beta2 != train_defaults.beta2)
        return fail_option("beta2", "optimizer: adamw", source, diag);
    if (!adamw && options->eps != train_defaults.eps)
        return fail_option("eps", "optimizer: adamw", source, diag);
    return STATUS_OK;
}

Status objective_check(const TrainOptions *options, const StepSource *source,
                       Diag *diag) {
    TRY(check_prior(options, source, diag));
    return check_optimizer(options, source, diag);
}

/* The rates of this training alone: the model keeps its own. */
static Status set_dropout(Objective *o, double rate, Diag *diag) {
    for (Node *node = o->graph->first; node && rate >= 0; node = node->next)
        if (node_is(node, &op_dropout))
            TRY(node_set(o->graph, node, diag, "rate=%.17g", rate));
    return STATUS_OK;
}

/* Says which patterns match no weights. */
static void warn_unmatched(const Objective *o, const char *option,
                           const StringList *patterns, Diag *diag) {
    const Graph *graph = o->model->graph;
    for (int p = 0; p < patterns->count; p++) {
        bool found = false;
        for (int i = 0; i < graph->storage_count; i++)
            found |= name_matches(patterns->items[p], graph->storages[i]->name);
        if (!found)
            option_warn(&o->ctx->source, option, diag, "no weights are called \"%s\"",
                        patterns->items[p]);
    }
}

/* Says what the options ask for in vain. */
static void warn_options(const Objective *o, const char *data_name, const Batches *data,
                         const TrainOptions *options, Diag *diag) {
    warn_unmatched(o, "freeze", &options->freeze, diag);
    warn_unmatched(o, "only", &options->only, diag);
    warn_unmatched(o, "no_decay", &options->no_decay, diag);
    if (options->augment && !data->augments)
        option_warn(&o->ctx->source, "augment", diag, "data set \"%s\" augments nothing",
                    data_name);
}

/* The data set, checked against the loss and all parts, the teacher included. */
static Status find_data(Objective *o, const char *name, Node *loss, Batches **data,
                        Diag *diag) {
    Node *roots[OBJECTIVE_PARTS + 1] = {loss};
    for (int i = 0; i < o->part_count; i++) roots[1 + i] = o->part[i];
    const DataUse use = {
        .graph = o->graph, .roots = roots, .root_count = 1 + o->part_count};
    return step_data(o->ctx, name, &use, data, diag);
}

Status objective_train(Objective *o, const char *data_name, const TrainOptions *options,
                       Diag *diag) {
    PassContext *ctx = o->ctx;
    Node *loss = NULL;
    Batches *data = NULL, *more = NULL;
    TRY(edit_sum(&loss, o->graph, o->part, o->weight, o->part_count, diag));
    TRY(find_data(o, data_name, loss, &data, diag));
    TRY(set_dropout(o, options->dropout, diag));
    objective_remember(o, data, options);
    if (ctx->plan) return plan_training(o, loss, options, diag);
    warn_options(o, data_name, data, options, diag);
    TRY(objective_ask_teacher(&more, o, data, diag));
    TrainOptions named = *options;
    named.part_names = o->part_name;
    TrainReport report = {0};
    Status status =
        train(o->graph, loss, o->part, o->part_count, more ? more : data, &named,
              ctx->seed, ctx->threads, ctx->watch, ctx->arena, &report, diag);
    batches_destroy(more);
    TRY(place_prior(o, options, status, diag));
    take_weights(o, options);
    record_training(o, &report, options->objective != OBJECTIVE_LIKELIHOOD);
    return STATUS_OK;
}

void objective_end(Objective *o) {
    if (!o->arena) return;
    for (int i = 0; o->remembered_value && i < o->remembered_count; i++)
        buf_release(o->remembered_value[i]);
    graph_release(o->graph);
    arena_destroy(o->arena);
    o->arena = NULL;
}
