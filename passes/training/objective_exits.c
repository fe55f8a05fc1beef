/* Objectives over exits, masked tokens and next tokens: see objective.h. */
#include "passes/training/objective.h"

#include "ir/rewrite.h"

#include <string.h>

/* ---- exits ---- */

Status objective_exits(Exits *out, Objective *o, ObjectiveExits which, Diag *diag) {
    TRY(exits_find(out, o->arena, o->ctx, o->graph, diag));
    if (which == EXITS_LAST)
        *out = (Exits){.items = &out->items[out->count - 1], .count = 1};
    if (which == EXITS_EARLY) out->count--;
    if (out->count > 0) return STATUS_OK;
    Status status =
        edit_fail_option(o->ctx, "exits", diag, "the model has no early exits");
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

static bool is_of_exit(const Node *node) {
    return node->stack && strcmp(node->stack, "exits") == 0;
}

Status objective_freeze_trunk(Objective *o, Diag *diag) {
    Exits exits;
    TRY(objective_exits(&exits, o, EXITS_EARLY, diag));
    for (int i = 0; i < o->graph->storage_count; i++)
        o->graph->storages[i]->frozen = true;
    for (Node *node = o->graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count && is_of_exit(node); i++)
            if (node->in[i] && node->in[i]->storage) node->in[i]->storage->frozen = false;
    return STATUS_OK;
}

/* ---- labels ---- */

Status objective_find_mixed(Objective *o, const char *name, const TrainOptions *options,
                            Diag *diag) {
    PassContext *ctx = o->ctx;
    Batches *data = NULL;
    if (!options->augment) return STATUS_OK;
    TRY(step_data(ctx, name, NULL, &data, diag));
    o->mixed = data && batches_column(data, DATA_MIX_LABELS) >= 0;
    return STATUS_OK;
}

Status objective_add_labels(Objective *o, ObjectiveExits which, double weight,
                            double smoothing, Diag *diag) {
    Exits exits;
    Node *loss = NULL;
    TRY(objective_exits(&exits, o, which, diag));
    exits.mixed = o->mixed;
    TRY(exits_label_loss(&loss, o->graph, &exits, smoothing, diag));
    return objective_add_part(o, "label", loss, weight, diag);
}

/* ---- tokens ---- */

bool objective_predicts_tokens(const Graph *graph) {
    return task_predicts_tokens(graph_task(graph));
}

bool objective_predicts_next(const Graph *graph) {
    return task_predicts_next(graph_task(graph));
}

Status objective_check_task(PassContext *ctx, const Graph *graph, Diag *diag) {
    if (graph_task(graph) != TASK_LABEL_TOKENS) return STATUS_OK;
    return edit_fail(ctx, diag,
                     "expected a model that classifies samples or predicts tokens, found "
                     "a token classifier (task label_tokens), which is not trained or "
                     "evaluated yet");
}

/* Whether a node stands in the head of the student ("head") or teacher. */
static bool is_in_head(const Node *node, const char *stack) {
    return node->stack && strcmp(node->stack, stack) == 0;
}

/* Whether operand i of a node of the head is tokens that come from outside. */
static bool reads_tokens(const Node *node, int i, const char *stack) {
    const Node *in = node->in[i];
    return in && !in->storage && !is_in_head(in, stack) && in->type.rank == 3 &&
           in->type.dtype == DTYPE_F32;
}

/* Lets the head read the tokens at `positions` in place of all tokens: the head has one
 * input, so there is one gather for all of its readers. */
static Status gather_head(PassContext *ctx, Graph *graph, const char *stack,
                          Node *positions, Diag *diag) {
    Node *from = NULL, *gathered = NULL;
    for (Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count && is_in_head(node, stack); i++) {
            if (!reads_tokens(node, i, stack)) continue;
            if (from && node->in[i] != from)
                return edit_fail(ctx, diag,
                                 "expected a head that reads one value of the trunk");
            from = node->in[i];
            if (!gathered)
                TRY(edit_node(&gathered, graph, node, &op_gather_tokens,
                              (Node *[]){from, positions}, 2, diag, NULL));
            node->in[i] = gathered;
        }
    if (gathered) return STATUS_OK;
    return edit_fail(ctx, diag, "expected a head (stack \"%s\") that reads the tokens",
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
