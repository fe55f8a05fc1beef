/* Exits: finding them, keeping them up to date, gradient equilibrium. See exits.h. */
#include "passes/exits/exits.h"

#include "ir/rewrite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "exit."

/* ---- names ---- */

static bool is_exit_name(const char *name) {
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

/* The number in "exit.3"; 0 when it is none from 1 on, or starts with a zero. */
static int name_layer(const char *name) {
    const char *digits = name + strlen(PREFIX);
    char *end = NULL;
    if (*digits < '1' || *digits > '9') return 0;
    const long layer = strtol(digits, &end, 10);
    return *end || layer > 1 << 20 ? 0 : (int)layer;
}

/* ---- finding ---- */

/* The one value that an exit's nodes read beside themselves, inputs (a mask) and
 * parameters; NULL when there are several or none. */
static Node *exit_input(const Graph *graph, int layer) {
    Node *found = NULL;
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node_is_in(node, STACK_EXITS, layer)) continue;
        for (int i = 0; i < node->in_count; i++) {
            Node *in = node->in[i];
            if (!in || in == found || node_is_leaf(in) ||
                node_is_in(in, STACK_EXITS, layer))
                continue;
            if (found) return NULL;
            found = in;
        }
    }
    return found;
}

/* A bridge, or the first product of one that is factored. */
static bool is_bridge(const Node *value) {
    return (value->role == ROLE_BRIDGE || value->role == ROLE_FACTOR) && value->layer < 0;
}

/* Whether an exit's value is its layer's output, or a bridge behind that: what stands for
 * the blocks that ended the layer (passes/removal/bridge.h). */
static bool is_output(const Graph *graph, const Node *value, int layer) {
    while (value && is_bridge(value)) value = value->in[0];
    return value && value == graph_layer_output(graph, graph_main_stack(graph), layer);
}

static Status fail_exit(PassContext *ctx, const char *name, const char *expected,
                        Diag *diag) {
    return step_fail(ctx, diag, "output \"%s\" is no exit: expected %s", name, expected);
}

/* Checks what is known of an exit of layer `layer`, from 1. */
static Status check_exit(PassContext *ctx, const Graph *graph, const Exit *exit,
                         const Node *last, Diag *diag) {
    const char *stack = graph_main_stack(graph);
    if (exit->layer < 1 || exit->layer >= graph_layer_count(graph, stack))
        return fail_exit(ctx, exit->output,
                         arena_printf(ctx->arena,
                                      "the number of a layer of stack \"%s\" before the "
                                      "last one",
                                      stack),
                         diag);
    if (!node_is_in(exit->logits, STACK_EXITS, exit->layer - 1) ||
        exit->logits->role != ROLE_HEAD)
        return fail_exit(ctx, exit->output,
                         "a classifier (role head) in stack \"exits\" at this layer",
                         diag);
    if (exit->logits->type.rank != 2 || !type_equal(&exit->logits->type, &last->type))
        return fail_exit(ctx, exit->output, "the shape of \"logits\", [N, classes]",
                         diag);
    if (!is_output(graph, exit_input(graph, exit->layer - 1), exit->layer - 1))
        return fail_exit(ctx, exit->output, "it to read its layer's output alone", diag);
    return STATUS_OK;
}

static int compare_layers(const void *a, const void *b) {
    return ((const Exit *)a)->layer - ((const Exit *)b)->layer;
}

Status exits_find(Exits *out, Arena *arena, PassContext *ctx, const Graph *graph,
                  Diag *diag) {
    Node *logits = graph_output(graph, OUTPUT_LOGITS);
    if (!logits) return step_fail(ctx, diag, "the model has no output \"logits\"");
    *out = (Exits){.items = ARENA_ARRAY(arena, Exit, (size_t)graph->output_count)};
    for (int i = 0; i < graph->output_count; i++) {
        const Output *output = &graph->outputs[i];
        if (!is_exit_name(output->name)) continue;
        const Exit exit = {output->name, output->node, name_layer(output->name)};
        TRY(check_exit(ctx, graph, &exit, logits, diag));
        out->items[out->count++] = exit;
    }
    qsort(out->items, (size_t)out->count, sizeof *out->items, compare_layers);
    out->items[out->count++] =
        (Exit){OUTPUT_LOGITS, logits, graph_layer_count(graph, graph_main_stack(graph))};
    return STATUS_OK;
}

/* ---- loss ---- */

Status exits_label_loss(Node **out, Graph *graph, const Exits *exits,
                        const LabelLossOptions *options, Diag *diag) {
    Node **losses = ARENA_ARRAY(graph->arena, Node *, (size_t)exits->count);
    double *ones = ARENA_ARRAY(graph->arena, double, (size_t)exits->count);
    for (int i = 0; i < exits->count; i++) {
        TRY(label_loss_add(&losses[i], graph, exits->items[i].logits, options, diag));
        ones[i] = 1;
    }
    *out = losses[0];
    if (exits->count == 1) return STATUS_OK;
    return node_add_sum(out, graph, losses, ones, exits->count, diag);
}

/* ---- after layers were taken out ---- */

/* Place of `layer` (from 0) among those that remain; -1 when its exit goes. */
static int place_kept(IntList kept, int layer) {
    for (int i = 0; i < kept.count - 1; i++)
        if (kept.items[i] == layer) return i;
    return -1;
}

/* Gives the exits that are left their new numbers, outputs and places. */
static void renumber(Graph *graph, IntList kept) {
    for (int i = 0; i < graph->output_count; i++) {
        Output *output = &graph->outputs[i];
        if (!is_exit_name(output->name)) continue;
        const int at = place_kept(kept, name_layer(output->name) - 1);
        output->name = arena_printf(graph->arena, PREFIX "%d", at + 1);
    }
    for (Node *node = graph->first; node; node = node->next)
        if (node->layer >= 0 && node_is_in(node, STACK_EXITS, node->layer))
            node->layer = place_kept(kept, node->layer);
}

bool exits_any(const Graph *graph) {
    for (int i = 0; i < graph->output_count; i++)
        if (is_exit_name(graph->outputs[i].name)) return true;
    return false;
}

Status exits_keep(PassContext *ctx, Model *model, IntList kept, Diag *diag) {
    Graph *graph = model->graph;
    Exits exits;
    if (!exits_any(graph)) return STATUS_OK;
    TRY(exits_find(&exits, ctx->arena, ctx, graph, diag));
    for (int i = 0; i < exits.count - 1; i++)
        if (place_kept(kept, exits.items[i].layer - 1) < 0)
            graph_remove_output(graph, exits.items[i].output);
    graph_remove_dead(graph);
    renumber(graph, kept);
    if (!tree_get_nonnull(model->provenance, "exits")) return STATUS_OK;
    diag_warn(diag, ctx->source.at, ctx->source.key,
              "the rule for leaving at exits does not fit the new depth and is dropped: "
              "calibrate again");
    return tree_set(model->arena, model->provenance, "exits",
                    tree_new(model->arena, TREE_NULL, LOC_NONE), diag);
}

/* ---- gradient equilibrium ---- */

/* New node x whose gradient is scaled, placed with what reads it. */
static Status add_scale(Node **out, Graph *graph, Node *value, double by,
                        const char *stack, int layer, Diag *diag) {
    TRY(node_add(out, graph, value->next, &op_scale_gradient, &value, 1, diag, "by=%.17g",
                 by));
    node_place(graph, *out, stack, layer, ROLE_NONE);
    return STATUS_OK;
}

/* Lets an exit's nodes, or the trunk, read `scaled` in place of `value`. Ids tell the
 * nodes that were there before from those that are added. */
static void redirect(Graph *graph, const Node *value, Node *scaled, const bool *trunk,
                     int count, int exit_layer) {
    for (Node *node = graph->first; node; node = node->next) {
        const bool old = node != scaled && node->id >= 0 && node->id < count;
        const bool exit = node_is_in(node, STACK_EXITS, exit_layer);
        if (!old || (trunk ? !trunk[node->id] : !exit)) continue;
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] == value) node->in[i] = scaled;
    }
}

/* Scales what comes back from one exit, and through the trunk from those behind it. */
static Status balance(Graph *graph, const Exits *exits, int at, const bool *trunk,
                      int count, Diag *diag) {
    const int layer = exits->items[at].layer - 1, behind = exits->count - at - 1;
    const char *stack = graph_main_stack(graph);
    if (behind == 0) return STATUS_OK;
    Node *value = exit_input(graph, layer), *scaled = NULL;
    TRY(add_scale(&scaled, graph, value, 1.0 / (behind + 1), STACK_EXITS, layer, diag));
    scaled->id = -1;
    redirect(graph, value, scaled, NULL, count, layer);
    TRY(add_scale(&scaled, graph, value, (double)behind / (behind + 1), stack, layer + 1,
                  diag));
    scaled->id = -1;
    redirect(graph, value, scaled, trunk, count, layer);
    return STATUS_OK;
}

Status exits_equilibrium(Graph *graph, const Exits *exits, Diag *diag) {
    const int count = graph_number(graph);
    /* by Node.id: what the last exit depends on */
    bool *trunk = memory_alloc((size_t)count, sizeof *trunk);
    trunk[exits->items[exits->count - 1].logits->id] = true;
    for (const Node *node = graph->last; node; node = node->prev)
        for (int i = 0; i < node->in_count && trunk[node->id]; i++)
            if (node->in[i]) trunk[node->in[i]->id] = true;
    Status status = STATUS_OK;
    for (int i = 0; i < exits->count && status == STATUS_OK; i++)
        status = balance(graph, exits, i, trunk, count, diag);
    free(trunk);
    return status;
}

/* ---- the rule ---- */

static const char *const criteria[] = {
    [EXIT_NEVER] = "never", [EXIT_ENTROPY] = "entropy", [EXIT_PATIENCE] = "patience"};

static Status fail_rule(PassContext *ctx, const char *what, Diag *diag) {
    Status status =
        step_fail(ctx, diag, "the model's provenance does not fit it: %s", what);
    diag_hint(diag, "calibrate_exits stores the rule for leaving anew");
    return status;
}

static Status read_criterion(int *out, PassContext *ctx, const Tree *rule, Diag *diag) {
    const Tree *name = tree_get(rule, "criterion");
    const int count = sizeof criteria / sizeof *criteria;
    for (int i = 0; name && name->kind == TREE_STRING && i < count; i++)
        if (strcmp(name->string, criteria[i]) == 0) {
            *out = i;
            return STATUS_OK;
        }
    return fail_rule(
        ctx, "expected the criterion of \"exits\" to be one of " EXIT_CRITERION_NAMES,
        diag);
}

static Status read_threshold(double *out, PassContext *ctx, const Tree *thresholds,
                             const char *output, Diag *diag) {
    const Tree *value = tree_get(thresholds, output);
    if (value && value->kind == TREE_INT)
        *out = (double)value->integer;
    else if (value && value->kind == TREE_FLOAT)
        *out = value->real;
    else
        *out = NAN;
    if (isfinite(*out) && *out >= 0) return STATUS_OK;
    return fail_rule(
        ctx,
        arena_printf(ctx->arena, "expected a threshold of at least 0 for \"%s\"", output),
        diag);
}

Status exits_read_rule(ExitRule *rule, Arena *arena, PassContext *ctx, const Model *model,
                       const Exits *exits, Diag *diag) {
    const Tree *stored = tree_get_nonnull(model->provenance, "exits");
    *rule = (ExitRule){.criterion = EXIT_NEVER};
    if (!stored) return STATUS_OK;
    TRY(read_criterion(&rule->criterion, ctx, stored, diag));
    if (rule->criterion == EXIT_ENTROPY) {
        const Tree *thresholds = tree_get(stored, "thresholds");
        double *threshold = ARENA_ARRAY(arena, double, (size_t)exits->count);
        for (int i = 0; i < exits->count - 1; i++)
            TRY(read_threshold(&threshold[i], ctx, thresholds, exits->items[i].output,
                               diag));
        if (thresholds && thresholds->count != exits->count - 1)
            return fail_rule(ctx, "expected one threshold for each early exit", diag);
        rule->threshold = threshold;
        return STATUS_OK;
    }
    if (rule->criterion == EXIT_NEVER) return STATUS_OK;
    const Tree *patience = tree_get(stored, "patience");
    if (!patience || patience->kind != TREE_INT || patience->integer < 1)
        return fail_rule(ctx, "expected the patience of \"exits\" to be at least 1",
                         diag);
    rule->patience = patience->integer;
    return STATUS_OK;
}

/* Whether the stored rule was chosen for other weights, or another graph, than the model
 * has now: what was measured then need not hold. */
static bool rule_is_stale(Model *model) {
    const Tree *of = tree_get(tree_get(model->provenance, "exits"), "model");
    char hash[HASH_TEXT_BYTES];
    if (!of || of->kind != TREE_STRING) return false;
    model_content_hash(model, hash);
    return strcmp(of->string, hash) != 0;
}

bool exits_warn_stale(PassContext *ctx, Model *model, Diag *diag) {
    const bool stale = rule_is_stale(model);
    if (stale)
        diag_warn(diag, ctx->source.at, ctx->source.key,
                  "the stored rule for leaving at exits was calibrated before the "
                  "model's last change: calibrate again");
    return stale;
}

Status exits_store_rule(const ExitRule *rule, Model *model, const Exits *exits,
                        Diag *diag) {
    Arena *arena = model->arena;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, map, "criterion", criteria[rule->criterion]);
    if (rule->criterion == EXIT_ENTROPY) {
        Tree *thresholds = tree_new(arena, TREE_MAP, LOC_NONE);
        for (int i = 0; i < exits->count - 1; i++)
            tree_put_real(arena, thresholds, exits->items[i].output, rule->threshold[i]);
        tree_append(arena, map, "thresholds", LOC_NONE, thresholds);
    }
    if (rule->criterion == EXIT_PATIENCE)
        tree_put_int(arena, map, "patience", rule->patience);
    char hash[HASH_TEXT_BYTES];
    model_content_hash(model, hash);
    tree_put_string(arena, map, "model", hash);
    return tree_set(arena, model->provenance, "exits", map, diag);
}
