/* Objective: its training, from the first gradient to the record. See objective.h. */
#include "passes/training/objective.h"

#include "exec/linalg/bf16.h"
#include "exec/run/ranks.h"
#include "exec/train/prior.h"
#include "exec/train/shards.h"
#include "ir/rewrite.h"
#include "passes/evaluate/development.h"

#include <string.h>

Status objective_begin(Objective *o, PassContext *ctx, Model *model, Diag *diag) {
    *o = (Objective){.ctx = ctx, .model = model};
    TRY(objective_check_task(ctx, model->graph, diag));
    o->arena = arena_create();
    o->graph = graph_copy(o->arena, model->graph);
    if (graph_output(o->graph, OUTPUT_LOGITS) || objective_embedding(o->graph))
        return STATUS_OK;
    Status status = step_fail(ctx, diag, "the model has no output \"logits\" to train");
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

void objective_tell(Objective *o, const char *name, const char *const *places,
                    Node **terms, int count) {
    o->detail_of = name;
    o->detail_place = places;
    o->detail = terms;
    o->detail_count = count;
}

/* What a part is made of: "layers": [{place: decoder.0, attention: 0.1}, ...]. */
static void record_details(const Objective *o, const TrainReport *report) {
    PassContext *ctx = o->ctx;
    if (o->detail_count == 0) return;
    Tree *list = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < o->detail_count; i++) {
        Tree *map = tree_add_map(ctx->arena, list);
        tree_put_string(ctx->arena, map, "place",
                        arena_strdup(ctx->arena, o->detail_place[i]));
        tree_put_real(ctx->arena, map, o->detail_of,
                      report->part_loss[o->part_count + i]);
    }
    tree_append(ctx->arena, ctx->record, "layers", LOC_NONE, list);
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

/* A row of the curve. */
static void record_row(const Objective *o, const TrainRow *row, bool prior, Tree *map) {
    Arena *arena = o->ctx->arena;
    tree_put_int(arena, map, "step", row->step);
    tree_put_real(arena, map, "loss", row->loss);
    tree_put_real(arena, map, "learning_rate", row->learning_rate);
    tree_put_real(arena, map, "gradient_norm", row->gradient_norm);
    if (prior) tree_put_real(arena, map, "prior", row->prior);
    Tree *parts = tree_put_map(arena, map, "parts");
    for (int i = 0; i < o->part_count; i++)
        tree_put_real(arena, parts, o->part_name[i], row->parts[i]);
    if (row->measured)
        tree_put_real(arena, tree_put_map(arena, map, "dev"), o->dev_metric, row->value);
}

/* What the development set said. */
static void record_development(const Objective *o, const TrainReport *report) {
    Arena *arena = o->ctx->arena;
    Tree *best = tree_put_map(arena, o->ctx->record, "best");
    tree_put_string(arena, best, "metric", o->dev_metric);
    if (report->best_step > 0) {
        tree_put_int(arena, best, "step", report->best_step);
        tree_put_real(arena, best, "value", report->best_value);
    }
    if (report->steps == report->total) return;
    Tree *ended = tree_put_map(arena, o->ctx->record, "ended_early");
    tree_put_int(arena, ended, "after", report->steps);
    tree_put_int(arena, ended, "of", report->total);
}

/* Loss curve and final parts into the step's record. */
static void record_training(const Objective *o, const TrainOptions *options,
                            const TrainReport *report) {
    const bool prior = options->objective != OBJECTIVE_LIKELIHOOD;
    PassContext *ctx = o->ctx;
    tree_put_int(ctx->arena, ctx->record, "steps", report->steps);
    if (options->precision == TRAIN_BF16) {
        tree_put_string(ctx->arena, ctx->record, "precision", "bf16");
        tree_put_string(ctx->arena, ctx->record, "products", bf16_products());
    }
    if (options->moments == MOMENTS_BF16)
        tree_put_string(ctx->arena, ctx->record, "moments", "bf16");
    tree_put_real(ctx->arena, ctx->record, "first_loss", report->first_loss);
    tree_put_real(ctx->arena, ctx->record, "last_loss", report->last_loss);
    tree_put_real(ctx->arena, ctx->record, "largest_gradient_norm", report->largest_norm);
    for (int i = 0; i < o->part_count; i++)
        tree_put_real(ctx->arena, ctx->record,
                      arena_printf(ctx->arena, "loss_%s", o->part_name[i]),
                      report->part_loss[i]);
    record_details(o, report);
    if (prior) record_prior(o, report);
    if (o->dev_metric) record_development(o, report);
    Tree *curve = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < report->row_count; i++)
        record_row(o, &report->rows[i], prior, tree_add_map(ctx->arena, curve));
    tree_append(ctx->arena, ctx->record, "curve", LOC_NONE, curve);
    if (!ctx->times) return;
    /* not in the record: a model must not tell the threads it was made with */
    tree_put_int(ctx->arena, ctx->times, "threads", ctx->threads);
    tree_put_int(ctx->arena, ctx->times, "threads_used",
                 shards_threads(ctx->threads, report->shards, ranks_number()));
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
 * knows of them. A prior that is not to stay is gone as asked, which is no loss to warn
 * of. */
static Status take_weights(const Objective *o, const TrainOptions *options, Diag *diag) {
    Graph *graph = o->model->graph;
    const char *first;
    graph_take_weights(graph, o->graph);
    TRY(low_rank_merge(&o->low_rank, graph, diag));
    if (options->objective == OBJECTIVE_VARIATIONAL)
        graph_take_gaussians(graph, o->graph);
    if (options->keep_prior) return STATUS_OK;
    graph_drop_gaussians(graph);
    graph_take_dropped(graph, &first);
    return STATUS_OK;
}

/* DevelopmentWeights.take: what would go out. */
static Status show_weights(const void *self, Graph *graph, Diag *diag) {
    const Objective *o = self;
    graph_take_weights(graph, o->graph);
    return low_rank_merge(&o->low_rank, graph, diag);
}

/* Faults of priors are found by code that does not know the recipe. */
static Status place_prior(const Objective *o, const TrainOptions *options, Status status,
                          Diag *diag) {
    if (status == STATUS_MODEL && options->objective != OBJECTIVE_LIKELIHOOD)
        diag_place(diag, o->ctx->source.at, o->ctx->source.key);
    return status;
}

/* Groups of samples are found whole before the first step of the recipe. */
static Status check_groups(const Objective *o, const Batches *set,
                           const TrainOptions *options, Diag *diag) {
    const Status status = set ? train_check_groups(set, options, diag) : STATUS_OK;
    if (status != STATUS_OK) diag_place(diag, o->ctx->source.at, NULL);
    return status;
}

static Status plan_training(Objective *o, Node *loss, const TrainOptions *options,
                            Diag *diag) {
    size_t asking;
    TrainNeeds needs;
    TRY(place_prior(o, options,
                    train_plan(o->graph, loss, options, o->ctx->threads, &needs, diag),
                    diag));
    o->ctx->train_bytes = needs.bytes;
    o->ctx->train_shards = needs.shards;
    o->ctx->train_work = needs.step;
    TRY(objective_ask_bytes(&asking, o, diag));
    if (o->ctx->train_bytes < asking) o->ctx->train_bytes = asking;
    TRY(plan_types(o->graph, options, diag));
    prior_plan(o->graph, options);
    return take_weights(o, options, diag);
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
    if (!adamw && options->momentum == 0 && options->moments != MOMENTS_F32)
        return fail_option("moments", "momentum, or optimizer: adamw", source, diag);
    return STATUS_OK;
}

/* Options that are about a development set. */
static Status check_dev(const TrainOptions *options, const StepSource *source,
                        Diag *diag) {
    const char *needs = "dev, a data set to measure on";
    if (options->dev) return STATUS_OK;
    if (options->dev_every != 0) return fail_option("dev_every", needs, source, diag);
    if (options->dev_metric != 0) return fail_option("dev_metric", needs, source, diag);
    if (options->keep != KEEP_LAST) return fail_option("keep", needs, source, diag);
    if (options->patience != 0) return fail_option("patience", needs, source, diag);
    return STATUS_OK;
}

Status objective_check(const TrainOptions *options, const StepSource *source,
                       Diag *diag) {
    TRY(check_dev(options, source, diag));
    TRY(check_prior(options, source, diag));
    if (options->fake_quant != FAKE_QUANT_NONE && options->precision != TRAIN_F32)
        return fail_option("fake_quant", "precision: f32", source, diag);
    TRY(low_rank_check(options, source, diag));
    return check_optimizer(options, source, diag);
}

/* The names of "name=factor"; where a factor is missing, train() says so. */
static StringList group_names(Arena *arena, const StringList *groups) {
    StringList names = {ARENA_ARRAY(arena, const char *, (size_t)groups->count + 1),
                        groups->count};
    for (int i = 0; i < groups->count; i++) {
        const char *group = groups->items[i], *equals = strrchr(group, '=');
        names.items[i] =
            equals ? arena_strndup(arena, group, (size_t)(equals - group)) : group;
    }
    return names;
}

/* Says what the options ask for in vain. */
static void warn_options(const Objective *o, const char *data_name, const Batches *data,
                         const TrainOptions *options, Diag *diag) {
    const Graph *graph = o->model->graph;
    step_warn_unmatched(o->ctx, graph, "freeze", &options->freeze, diag);
    step_warn_unmatched(o->ctx, graph, "only", &options->only, diag);
    step_warn_unmatched(o->ctx, graph, "no_decay", &options->no_decay, diag);
    const StringList groups = group_names(o->ctx->arena, &options->lr_groups);
    step_warn_unmatched(o->ctx, o->graph, "lr_groups", &groups, diag);
    step_warn_unmatched(o->ctx, graph, "low_rank_whole", &options->low_rank_whole, diag);
    if (options->precision == TRAIN_BF16 && !bf16_native())
        option_warn(&o->ctx->source, "precision", diag,
                    "bfloat16 is multiplied as float, which is no faster: the processor, "
                    "or the level that is fixed, has no instructions for it");
    if (options->augment && !data->augments)
        option_warn(&o->ctx->source, "augment", diag, "data set \"%s\" augments nothing",
                    data_name);
}

/* Whether a value was laid over the recipe that has another one: it comes from elsewhere,
 * and what is added stands behind what was there. */
static bool was_laid_over(const Tree *value, const Tree *other) {
    const Tree *next = other->next;
    while (next && next != value) next = next->next;
    return next && value->loc.file && other->loc.file &&
           strcmp(value->loc.file, other->loc.file) != 0;
}

/* Says that `epochs` is not used where `steps` is given as well, unless that was laid
 * over it. */
static void warn_length(const PassContext *ctx, const TrainOptions *options, Diag *diag) {
    const Tree *steps = tree_get(ctx->source.options, "steps");
    const Tree *epochs = tree_get(ctx->source.options, "epochs");
    if (!steps || !epochs || options->steps == 0 || options->epochs == 0) return;
    if (epochs->loc.line == 0) return; /* of a past run, whose recipe was laid together */
    if (!was_laid_over(steps, epochs))
        option_warn(&ctx->source, "epochs", diag,
                    "not used: `steps` says how long the training is");
}

/* Whether `quantize` with embeddings: float would round a linear layer: weights of the
 * model's own that nobody looks rows up in. */
static bool is_fake_quantised(const Objective *o, const Node *node) {
    const Storage *storage = node_is(node, &op_linear) ? node->in[1]->storage : NULL;
    if (!storage || !graph_storage(o->model->graph, storage->name)) return false;
    for (const Node *user = o->graph->first; user; user = user->next)
        if (node_is(user, &op_embedding) && user->in[1] == node->in[1]) return false;
    return true;
}

/* Linear layers round their weights, and with int8_int8 what they read, as `quantize`
 * would have them: in this graph alone, the model's stays. */
static Status fake_quantise(Objective *o, int kind, Diag *diag) {
    static const char *const ROUND[] = {"none", "q8", "q8", "q4_32", "q4_64", "q4_128"};
    for (Node *node = o->graph->first; node && kind != FAKE_QUANT_NONE;
         node = node->next) {
        if (!is_fake_quantised(o, node)) continue;
        TRY(node_set(o->graph, node, diag, "round=%s", ROUND[kind]));
        if (kind == FAKE_QUANT_INT8_INT8 &&
            !((const LinearAttrs *)node->attrs)->transposed)
            TRY(node_set(o->graph, node, diag, "act=i8"));
    }
    return STATUS_OK;
}

/* Lets updates of low rank be trained in place of matrices: what is trained is marked in
 * the graph, so that names say nothing any more. */
static Status add_low_rank(Objective *o, TrainOptions *options, Diag *diag) {
    if (options->low_rank == 0) return STATUS_OK;
    TRY(low_rank_add(&o->low_rank, o->ctx, o->graph, o->model->graph, options, diag));
    options->only = options->freeze = (StringList){0};
    return STATUS_OK;
}

/* What training computes: the loss, then `count` scalars whose means are reported, with
 * their names: the parts, and what one of them is made of. */
typedef struct Scalars {
    Node **nodes;
    const char **names; /* without the loss */
    int count;
} Scalars;

static Scalars scalars_of(const Objective *o, Node *loss) {
    const size_t most = (size_t)o->part_count + (size_t)o->detail_count + 1;
    Scalars s = {ARENA_ARRAY(o->arena, Node *, most),
                 ARENA_ARRAY(o->arena, const char *, most), 0};
    s.nodes[0] = loss;
    for (int i = 0; i < o->part_count; i++) {
        s.names[s.count] = o->part_name[i];
        s.nodes[++s.count] = o->part[i];
    }
    for (int i = 0; i < o->detail_count; i++) {
        s.names[s.count] = o->detail_place[i];
        s.nodes[++s.count] = o->detail[i];
    }
    return s;
}

/* The data set, which must have what the scalars are computed from. */
static Status find_set(Batches **set, Objective *o, const char *data,
                       const Scalars *scalars, Diag *diag) {
    const DataUse use = {
        .graph = o->graph, .roots = scalars->nodes, .root_count = 1 + scalars->count};
    const Status status = step_data(o->ctx, data, &use, set, diag);
    if (status == STATUS_MODEL && *set) objective_hint_labels(o, *set, diag);
    return status;
}

/* A rate of this training alone, where there is one: the model keeps its own. */
static Status set_dropout(Objective *o, double rate, Diag *diag) {
    for (Node *node = o->graph->first; node && rate >= 0; node = node->next)
        if (node_is(node, &op_dropout))
            TRY(node_set(o->graph, node, diag, "rate=%.17g", rate));
    return STATUS_OK;
}

static Status open_development(Development *dev, Objective *o,
                               const TrainOptions *options, Diag *diag) {
    const DevelopmentWeights weights = {o, show_weights, o->graph};
    if (!options->dev) return STATUS_OK;
    TRY(development_open(dev, o->ctx, o->model, &weights, options, diag));
    o->dev_metric = dev->metric;
    return STATUS_OK;
}

Status objective_train(Objective *o, const char *data, const TrainOptions *given,
                       Diag *diag) {
    PassContext *ctx = o->ctx;
    TrainOptions own = *given, *const options = &own;
    Node *loss = NULL;
    Batches *set = NULL, *more = NULL;
    warn_length(ctx, given, diag);
    TRY(add_low_rank(o, options, diag));
    TRY(node_add_sum(&loss, o->graph, o->part, o->weight, o->part_count, diag));
    Scalars scalars = scalars_of(o, loss);
    TRY(find_set(&set, o, data, &scalars, diag));
    TRY(fake_quantise(o, options->fake_quant, diag));
    TRY(set_dropout(o, options->dropout, diag));
    Development dev;
    TRY(open_development(&dev, o, options, diag));
    objective_remember(o, set, options);
    TRY(check_groups(o, set, options, diag));
    if (ctx->plan) return plan_training(o, loss, options, diag);
    warn_options(o, data, set, given, diag);
    TRY(objective_ask_teacher(&more, o, set, diag));
    options->part_names = scalars.names;
    options->keeper = ctx->keeper;
    options->measure = options->dev ? &dev.measure : NULL;
    TrainReport report = {0};
    Status status =
        train(o->graph, loss, scalars.nodes + 1, scalars.count, more ? more : set,
              options, ctx->seed, ctx->threads, ctx->watch, ctx->arena, &report, diag);
    batches_destroy(more);
    TRY(place_prior(o, options, status, diag));
    TRY(take_weights(o, options, diag));
    record_training(o, options, &report);
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
