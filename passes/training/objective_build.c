/* Objective: what it is made of (teacher, exits, tokens), then training it. See
 * objective.h; labels are in objective_labels.c. */
#include "passes/training/objective.h"

#include "exec/linalg/bf16.h"
#include "exec/run/lanes.h"
#include "exec/train/prior.h"
#include "ir/rewrite.h"
#include "passes/evaluate/development.h"
#include "passes/measure.h"

#include <stdlib.h>
#include <string.h>

/* ---- what models can be trained ---- */

Status objective_check_task(PassContext *ctx, const Graph *graph, Diag *diag) {
    const Task task = graph_task(graph);
    if (task == TASK_NONE || label_loss_known(task)) return STATUS_OK;
    return step_fail(ctx, diag,
                     "expected a model of a task that has a loss against labels, found "
                     "task %s",
                     task_name(task));
}

void objective_hint_labels(const Objective *o, const Batches *data, Diag *diag) {
    static const char *const WANTED[TASK_COUNT] = {
        [TASK_CLASSIFY] = "one class a sample (targets: class)",
        [TASK_MULTI_LABEL] = "0 or 1 for each label (targets: labels)",
        [TASK_REGRESS] = "real numbers (targets: values)",
        [TASK_LABEL_TOKENS] = "a class for each word (format: tokens)"};
    const Task task = graph_task(o->graph);
    const Node *input = graph_find_input(o->graph, DATA_LABELS);
    const int column = batches_column(data, DATA_LABELS);
    if (column < 0 || !input || !WANTED[task]) return;
    const Type *found = &data->columns[column].type;
    if (found->dtype != input->type.dtype || found->rank + 1 != input->type.rank)
        diag_hint(diag, "a model of task %s wants labels that are %s", task_name(task),
                  WANTED[task]);
}

Node *objective_embedding(const Graph *graph) {
    return graph_output(graph, OUTPUT_LOGITS) ? NULL
                                              : graph_output(graph, OUTPUT_EMBEDDING);
}

/* ---- teacher ---- */

Status objective_add_teacher(Objective *o, Model *teacher, Diag *diag) {
    TRY(objective_check_task(o->ctx, teacher->graph, diag));
    o->teacher_graph = teacher->graph;
    const int count = graph_number(teacher->graph);
    o->teacher = ARENA_ARRAY(o->arena, Node *, (size_t)count);
    const int before = o->graph->storage_count;
    TRY(graph_import(o->graph, teacher->graph, "teacher.", o->teacher, diag));
    for (int i = before; i < o->graph->storage_count; i++)
        o->graph->storages[i]->frozen = true;
    /* It runs as in inference: what draws in training (dropout) is passed by. */
    for (const Node *node = o->teacher_graph->first; node; node = node->next) {
        if (!node_has_trait(node, OP_PASS_VALUE)) continue;
        Node *copy = o->teacher[node->id];
        graph_replace_uses(o->graph, copy, copy->in[0]);
        o->teacher[node->id] = copy->in[0];
    }
    return STATUS_OK;
}

Node *objective_teacher_node(const Objective *o, const Node *node) {
    return o->teacher[node->id];
}

/* ---- asked once ---- */

/* Most numbers of a sample, 1 KiB of memory, and of one whose embedding is read; and
 * samples of a batch when they are asked for. */
enum { REMEMBERED_NUMBERS = 256, REMEMBERED_EMBEDDING = 4096, REMEMBERED_BATCH = 32 };

/* What the parts read of the teacher: its nodes with a user that is not the teacher's.
 * Both arrays get them, as copies in the training graph and as the teacher's own. */
static int find_read(const Objective *o, Node **copies, Node **own) {
    const int count = graph_number(o->graph);
    Node **of = memory_alloc((size_t)count, sizeof *of); /* by copy; leaves left out */
    bool *needed = memory_alloc((size_t)count, sizeof *needed);
    int found = 0;
    for (Node *node = o->teacher_graph->first; node; node = node->next)
        if (o->teacher[node->id]->in_count > 0) of[o->teacher[node->id]->id] = node;
    for (int i = 0; i < o->part_count; i++) needed[o->part[i]->id] = true;
    for (Node *node = o->graph->last; node; node = node->prev) {
        if (!needed[node->id]) continue;
        if (of[node->id]) {
            copies[found] = node;
            own[found++] = of[node->id];
            continue;
        }
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i]) needed[node->in[i]->id] = true;
    }
    free(needed);
    free(of);
    return found;
}

/* A sample's share of a value; false when it has none of a known size. */
static bool sample_type(Type *out, const Type *type, int64_t most) {
    if (type->rank < 1 || type->dim[0] != DIM_N || !dtype_is_real(type->dtype))
        return false;
    *out = (Type){.dtype = DTYPE_F32, .rank = type->rank - 1};
    for (int i = 0; i < out->rank; i++) {
        out->dim[i] = type->dim[i + 1];
        if (out->dim[i] < 1 || out->dim[i] > most) return false;
    }
    return true;
}

/* Columns for values; numbers of a sample, 0 when they are too many. */
static int64_t count_numbers(Arena *arena, Column *columns, Node *const *values,
                             int count, int64_t most) {
    int64_t numbers = 0;
    for (int i = 0; i < count; i++) {
        columns[i].name = arena_printf(arena, "teacher.%d", i);
        if (!sample_type(&columns[i].type, &values[i]->type, most)) return 0;
        numbers += type_count(&columns[i].type);
        if (numbers > most) return 0;
    }
    return numbers;
}

void objective_remember(Objective *o, const Batches *data, const TrainOptions *options) {
    const bool again = options->steps == 0 && options->epochs > 1;
    const bool alike = !options->augment && !(data && data->masked);
    if (!o->teacher || !again || !alike) return;
    const size_t most = (size_t)o->graph->node_count;
    Node **copies = ARENA_ARRAY(o->arena, Node *, most);
    o->remembered = ARENA_ARRAY(o->arena, Node *, most);
    o->remembered_column = ARENA_ARRAY(o->arena, Column, most);
    const int count = find_read(o, copies, o->remembered);
    const int64_t room =
        objective_embedding(o->teacher_graph) ? REMEMBERED_EMBEDDING : REMEMBERED_NUMBERS;
    const int64_t numbers =
        count_numbers(o->arena, o->remembered_column, copies, count, room);
    if (numbers == 0) return;
    o->remembered_count = count;
    tree_put_int(o->ctx->arena, o->ctx->record, "remembered", numbers);
    for (int i = 0; i < count; i++)
        graph_replace_uses(
            o->graph, copies[i],
            graph_input(o->graph, o->remembered_column[i].name, &copies[i]->type));
}

Status objective_ask_bytes(size_t *bytes, const Objective *o, Diag *diag) {
    Plan *plan = NULL;
    PlanOptions options = {.precision = PRECISION_F32,
                           .results = o->remembered,
                           .result_count = o->remembered_count};
    *bytes = 0;
    if (o->remembered_count == 0) return STATUS_OK;
    memcpy(options.sizes, measure_sizes, sizeof options.sizes);
    options.sizes[DIM_INDEX(DIM_N)] = REMEMBERED_BATCH;
    plan_fit_sizes(o->teacher_graph, options.results, options.result_count,
                   options.sizes);
    TRY(plan_create(&plan, o->teacher_graph, &options, diag));
    *bytes = plan_workspace_bytes(plan) * (size_t)o->ctx->threads;
    plan_destroy(plan);
    return STATUS_OK;
}

static float *remembered_value(const Objective *o, int column) {
    return (float *)(uintptr_t)buf_data(o->remembered_value[column]);
}

/* ForwardSink: puts the results of some samples in their places. */
static Status keep_values(void *self, const Fetch *what, const float *const *values,
                          const void *const *columns, Diag *diag) {
    (void)columns;
    (void)diag;
    const Objective *o = self;
    for (int c = 0; c < o->remembered_count; c++) {
        const int64_t size = type_count(&o->remembered_column[c].type);
        for (int64_t i = 0; i < what->n; i++)
            memcpy(remembered_value(o, c) + what->index[i] * size, values[c] + i * size,
                   (size_t)size * sizeof(float));
    }
    return STATUS_OK;
}

Status objective_ask_teacher(Batches **out, Objective *o, const Batches *data,
                             Diag *diag) {
    const int count = o->remembered_count;
    *out = NULL;
    if (count == 0) return STATUS_OK;
    o->remembered_value = ARENA_ARRAY(o->arena, Buf *, (size_t)count);
    const float **values = ARENA_ARRAY(o->arena, const float *, (size_t)count);
    for (int i = 0; i < count; i++) {
        const int64_t size = type_count(&o->remembered_column[i].type);
        TRY(buf_create(&o->remembered_value[i],
                       (size_t)data->count * (size_t)size * sizeof(float), diag));
        values[i] = remembered_value(o, i);
    }
    TRY(forward_batches(o->teacher_graph, o->remembered, count, data, 0, REMEMBERED_BATCH,
                        o->ctx->threads, o->ctx->watch, keep_values, o, diag));
    *out = batches_extend(data, o->remembered_column, values, count);
    return STATUS_OK;
}

/* ---- exits ---- */

Status objective_exits(Exits *out, Objective *o, ObjectiveExits which, Diag *diag) {
    Node *embedding = objective_embedding(o->graph);
    if (embedding) {
        *out = (Exits){.items = ARENA_NEW(o->arena, Exit), .count = 1};
        out->items[0] = (Exit){.output = OUTPUT_EMBEDDING, .logits = embedding};
    } else {
        TRY(exits_find(out, o->arena, o->ctx, o->graph, diag));
    }
    if (which == EXITS_LAST)
        *out = (Exits){.items = &out->items[out->count - 1], .count = 1};
    if (which == EXITS_EARLY) out->count--;
    if (out->count > 0) return STATUS_OK;
    Status status =
        step_fail_option(o->ctx, "exits", diag, "the model has no early exits");
    diag_hint(diag, "add_exits gives a classifier exits");
    return status;
}

Status objective_balance(Objective *o, ObjectiveExits which, Diag *diag) {
    Exits exits;
    TRY(objective_exits(&exits, o, which, diag));
    return exits_equilibrium(o->ctx, o->graph, &exits, diag);
}

Status objective_equilibrium(Objective *o, Diag *diag) {
    return objective_balance(o, EXITS_ALL, diag);
}

Status objective_freeze_trunk(Objective *o, Diag *diag) {
    Exits exits;
    TRY(objective_exits(&exits, o, EXITS_EARLY, diag));
    for (int i = 0; i < o->graph->storage_count; i++)
        o->graph->storages[i]->frozen = true;
    for (Node *node = o->graph->first; node; node = node->next) {
        if (!node_is_in(node, STACK_EXITS, -1)) continue;
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && node->in[i]->storage) node->in[i]->storage->frozen = false;
    }
    return STATUS_OK;
}

/* ---- tokens ---- */

bool objective_predicts_tokens(const Graph *graph) {
    return task_predicts_tokens(graph_task(graph));
}

bool objective_predicts_next(const Graph *graph) {
    return task_predicts_next(graph_task(graph));
}

/* Lets the head read the tokens at `positions` in place of all tokens: the head has one
 * input, so there is one gather for all of its readers. */
static Status gather_head(PassContext *ctx, Graph *graph, const char *stack,
                          Node *positions, Diag *diag) {
    Node *from = NULL, *gathered = NULL;
    for (Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count && node_is_in(node, stack, -1); i++) {
            Node *value = node->in[i]; /* tokens that come from outside, or not */
            if (!value || value->storage || node_is_in(value, stack, -1) ||
                value->type.rank != 3 || value->type.dtype != DTYPE_F32)
                continue;
            if (from && value != from)
                return step_fail(ctx, diag,
                                 "expected a head that reads one value of the trunk");
            from = value;
            if (!gathered)
                TRY(node_add(&gathered, graph, node, &op_gather_tokens,
                             (Node *[]){from, positions}, 2, diag, NULL));
            node->in[i] = gathered;
        }
    if (gathered) return STATUS_OK;
    return step_fail(ctx, diag, "expected a head (stack \"%s\") that reads the tokens",
                     stack);
}

/* The input that says which positions are masked. */
static Node *masked_positions(Graph *graph) {
    const Type type = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_M}};
    Node *positions = graph_find_input(graph, "masked_positions");
    return positions ? positions : graph_input(graph, "masked_positions", &type);
}

Status objective_mask_tokens(Objective *o, Diag *diag) {
    if (objective_predicts_next(o->graph)) return STATUS_OK;
    Node *positions = masked_positions(o->graph);
    TRY(gather_head(o->ctx, o->graph, STACK_HEAD, positions, diag));
    if (o->teacher) TRY(gather_head(o->ctx, o->graph, "teacher.head", positions, diag));
    return graph_infer(o->graph, diag);
}

Status objective_mask_graph(PassContext *ctx, Graph *graph, Diag *diag) {
    TRY(objective_check_task(ctx, graph, diag));
    if (!objective_predicts_tokens(graph) || objective_predicts_next(graph))
        return STATUS_OK;
    TRY(gather_head(ctx, graph, STACK_HEAD, masked_positions(graph), diag));
    return graph_infer(graph, diag);
}

/* ---- words of the decoder's own: objective_feed_back ---- */

/* What dropout is applied to. */
static Node *skip_dropout(Node *node) {
    while (node_has_trait(node, OP_PASS_VALUE)) node = node->in[0];
    return node;
}

/* The table of embeddings by which the decoder's recurrence, below a head that is one
 * matrix, reads tokens, and the recurrence; NULL when there is none. */
static Node *find_table(Node *logits, Node **recurrence) {
    if (!node_is(logits, &op_linear) || node_operand(logits, "bias") ||
        !logits->in[1]->storage || ((const LinearAttrs *)logits->attrs)->transposed)
        return NULL;
    *recurrence = skip_dropout(logits->in[0]);
    Node *x =
        node_is(*recurrence, &op_attention_lstm) ? node_operand(*recurrence, "x") : NULL;
    if (!x) return NULL;
    x = skip_dropout(x);
    return node_is(x, &op_embedding) && x->in[1]->storage ? x->in[1] : NULL;
}

Status objective_feed_back(Objective *o, double teacher_forcing, Diag *diag) {
    Node *logits = graph_output(o->graph, OUTPUT_LOGITS);
    Node *recurrence = NULL, *table = find_table(logits, &recurrence);
    if (!table) {
        Status status =
            step_fail_option(o->ctx, "teacher_forcing", diag,
                             "a share below 1 is for recurrent decoders "
                             "that read the target's tokens, with one matrix as "
                             "head");
        diag_hint(diag, "model_type rnn_attention with decoder_input: token");
        return status;
    }
    node_set_operand(o->graph, recurrence, "embedding", table);
    node_set_operand(o->graph, recurrence, "head", logits->in[1]);
    TRY(node_set(o->graph, recurrence, diag, "teacher_forcing=%.17g", teacher_forcing));
    return node_infer(recurrence, diag);
}

/* ---- training ---- */

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
                 lanes_used(ctx->threads, report->shards));
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

Status objective_train(Objective *o, const char *data_name, const TrainOptions *given,
                       Diag *diag) {
    PassContext *ctx = o->ctx;
    TrainOptions own = *given, *const options = &own;
    Node *loss = NULL;
    Batches *data = NULL, *more = NULL;
    TRY(add_low_rank(o, options, diag));
    TRY(node_add_sum(&loss, o->graph, o->part, o->weight, o->part_count, diag));
    Scalars scalars = scalars_of(o, loss);
    const DataUse use = {
        .graph = o->graph, .roots = scalars.nodes, .root_count = 1 + scalars.count};
    const Status fits = step_data(ctx, data_name, &use, &data, diag);
    if (fits == STATUS_MODEL && data) objective_hint_labels(o, data, diag);
    TRY(fits);
    TRY(fake_quantise(o, options->fake_quant, diag));
    /* A rate of this training alone: the model keeps its own. */
    for (Node *node = o->graph->first; node && options->dropout >= 0; node = node->next)
        if (node_is(node, &op_dropout))
            TRY(node_set(o->graph, node, diag, "rate=%.17g", options->dropout));
    Development dev;
    if (options->dev) {
        const DevelopmentWeights weights = {o, show_weights, o->graph};
        TRY(development_open(&dev, ctx, o->model, &weights, options, diag));
        o->dev_metric = dev.metric;
    }
    objective_remember(o, data, options);
    if (ctx->plan) return plan_training(o, loss, options, diag);
    warn_options(o, data_name, data, given, diag);
    TRY(objective_ask_teacher(&more, o, data, diag));
    options->part_names = scalars.names;
    options->keeper = ctx->keeper;
    options->measure = options->dev ? &dev.measure : NULL;
    TrainReport report = {0};
    Status status =
        train(o->graph, loss, scalars.nodes + 1, scalars.count, more ? more : data,
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
