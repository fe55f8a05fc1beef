/* Objective: what it is made of: models that can be trained, exits, tokens, words of the
 * decoder's own. See objective.h; the teacher is in objective_teacher.c, labels in
 * objective_labels.c, training in objective_train.c. */
#include "passes/training/objective.h"

#include "ir/rewrite.h"

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
    return exits_equilibrium(o->graph, &exits, diag);
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
