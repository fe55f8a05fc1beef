/* Taking layers out of a stack: see layers.h. */
#include "passes/layers.h"

#include "ir/rewrite.h"
#include "passes/exits/exits.h"

#include <stdlib.h>
#include <string.h>

/* The first two different values that were seen. */
typedef struct Seen {
    const Node *first, *second;
} Seen;

static void see(Seen *seen, const Node *value) {
    if (!seen->first)
        seen->first = value;
    else if (!seen->second && value != seen->first)
        seen->second = value;
}

/* What a node is, for messages: an input's name, a parameter's, or op and role. */
static const char *describe(const PassContext *ctx, const Node *node) {
    if (node->storage) return node->storage->name;
    if (node->name) return node->name;
    if (node->role == ROLE_NONE) return arena_printf(ctx->arena, "a %s", node->op->name);
    return arena_printf(ctx->arena, "%s (%s)", role_name(node->role), node->op->name);
}

const char *stack_named(const Graph *graph, const char *name) {
    return name && strcmp(name, "main") == 0 ? graph_main_stack(graph) : name;
}

/* ---- which layers there are ---- */

/* The stack with the most layers, those of exits aside; NULL when there is none. */
static const char *deepest_stack(const Graph *graph) {
    const char *stack = NULL;
    int depth = 0;
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->stack || node->layer < depth || node_is_in(node, STACK_EXITS, -1))
            continue;
        stack = node->stack;
        depth = node->layer + 1;
    }
    return stack;
}

Status stack_check(PassContext *ctx, const Graph *graph, const char *stack, Diag *diag) {
    if (graph_layer_count(graph, stack) > 0) return STATUS_OK;
    const char *deepest = deepest_stack(graph);
    step_fail_option(ctx, "stack", diag, "the model has no layers in stack \"%s\"",
                     stack);
    if (deepest)
        diag_hint(diag, "stack \"%s\" has %d", deepest,
                  graph_layer_count(graph, deepest));
    return STATUS_MODEL;
}

Status layers_check(PassContext *ctx, const Graph *graph, const char *stack,
                    const char *option, IntList list, Diag *diag) {
    if (list.count == 0) return STATUS_OK;
    if (!stack) stack = deepest_stack(graph);
    if (!stack) return step_fail_option(ctx, option, diag, "the model has no layers");
    TRY(stack_check(ctx, graph, stack, diag));
    const int depth = graph_layer_count(graph, stack);
    for (int i = 0; i < list.count; i++)
        if (list.items[i] >= depth)
            return step_fail_option(ctx, option, diag,
                                    "expected layers from 0 to %d (stack \"%s\" has %d), "
                                    "found %lld",
                                    depth - 1, stack, depth, (long long)list.items[i]);
    return STATUS_OK;
}

/* ---- ends of a layer ---- */

/* Whether operand `i` may be the stream of values that runs through the layers. */
static bool is_stream(const Node *node, int i) {
    const Node *value = node->in[i];
    return !value->storage && value->type.dtype == DTYPE_F32 &&
           op_operand_index(node->op, "mask") != i;
}

/* Values of the layer that are used outside. */
static void find_outputs(Seen *out, const Graph *graph, const char *stack, int layer) {
    for (const Node *node = graph->first; node; node = node->next) {
        if (node_is_in(node, stack, layer)) continue;
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && node_is_in(node->in[i], stack, layer))
                see(out, node->in[i]);
    }
    for (int i = 0; i < graph->output_count; i++) {
        const Node *value = graph->outputs[i].node;
        if (node_is_in(value, stack, layer)) see(out, value);
    }
}

/* Values from outside that may be the stream; of `type` alone unless that is NULL. */
static void find_inputs(Seen *in, const Graph *graph, const char *stack, int layer,
                        const Type *type) {
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node_is_in(node, stack, layer)) continue;
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && !node_is_in(node->in[i], stack, layer) &&
                is_stream(node, i) && (!type || type_equal(&node->in[i]->type, type)))
                see(in, node->in[i]);
    }
}

static Status check_one(PassContext *ctx, const Seen *seen, const char *stack, int layer,
                        const char *what, Diag *diag) {
    if (seen->first && !seen->second) return STATUS_OK;
    if (!seen->first)
        return step_fail(ctx, diag,
                         "layer %d of stack \"%s\" cannot be removed: it has no %s",
                         layer, stack, what);
    Status status = step_fail(
        ctx, diag,
        "layer %d of stack \"%s\" cannot be removed: expected one %s, found %s and %s",
        layer, stack, what, describe(ctx, seen->first), describe(ctx, seen->second));
    diag_hint(diag, "a layer is removed by letting its one input take the place of its "
                    "one output");
    return status;
}

Status layer_ends(LayerEnds *ends, PassContext *ctx, const Graph *graph,
                  const char *stack, int layer, Diag *diag) {
    Seen in = {0}, out = {0};
    find_outputs(&out, graph, stack, layer);
    /* Of what comes in, values of the output's type take precedence: a decoder's layer
     * reads the encoder's result as well. */
    if (out.first && !out.second) find_inputs(&in, graph, stack, layer, &out.first->type);
    if (!in.first) find_inputs(&in, graph, stack, layer, NULL);
    TRY(check_one(ctx, &in, stack, layer, "input", diag));
    TRY(check_one(ctx, &out, stack, layer, "output", diag));
    if (!type_equal(&in.first->type, &out.first->type)) {
        char reads[DIMS_TEXT_BYTES], gives[DIMS_TEXT_BYTES];
        dims_text(reads, in.first->type.rank, in.first->type.dim);
        dims_text(gives, out.first->type.rank, out.first->type.dim);
        return step_fail(ctx, diag,
                         "layer %d of stack \"%s\" cannot be removed: expected input and "
                         "output of equal shape, found [%s] and [%s]",
                         layer, stack, reads, gives);
    }
    const Node *after = in.first;
    while (after && after != out.first) after = after->next;
    if (!after)
        return step_fail(ctx, diag,
                         "layer %d of stack \"%s\" cannot be removed: its output %s does "
                         "not depend on its input %s",
                         layer, stack, describe(ctx, out.first), describe(ctx, in.first));
    *ends = (LayerEnds){(Node *)in.first, (Node *)out.first};
    return STATUS_OK;
}

/* ---- lists of layers ---- */

static int compare_numbers(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

void sort_numbers(int64_t *items, int64_t count) {
    qsort(items, (size_t)count, sizeof *items, compare_numbers);
}

/* ---- lineage ---- */

Tree *layers_tree(Arena *arena, IntList list) {
    Tree *tree = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < list.count; i++) {
        Tree *item = tree_new(arena, TREE_INT, LOC_NONE);
        item->integer = list.items[i];
        tree_append(arena, tree, NULL, LOC_NONE, item);
    }
    return tree;
}

/* Whether a tree is a list of `depth` ascending layer numbers. */
static bool lineage_fits(const Tree *tree, int depth) {
    if (tree->kind != TREE_LIST || tree->count != depth) return false;
    int64_t last = -1;
    for (const Tree *item = tree->first; item; item = item->next) {
        if (item->kind != TREE_INT || item->integer <= last) return false;
        last = item->integer;
    }
    return true;
}

Status layers_lineage(IntList *out, Arena *arena, PassContext *ctx, const Model *model,
                      const char *stack, int depth, Diag *diag) {
    const Tree *known = tree_get(tree_get(model->provenance, "layers"), stack);
    if (known && !lineage_fits(known, depth))
        return step_fail(ctx, diag,
                         "the model's provenance does not fit it: expected \"layers\" to "
                         "list the %d layers of stack \"%s\" in ascending order",
                         depth, stack);
    *out = (IntList){ARENA_ARRAY(arena, int64_t, (size_t)depth), depth};
    const Tree *item = known ? known->first : NULL;
    for (int i = 0; i < depth; i++) {
        out->items[i] = item ? item->integer : i;
        if (item) item = item->next;
    }
    return STATUS_OK;
}

/* Puts a stack's lineage into the provenance; the other stacks' stay. Stacks may have any
 * name, so the map is made anew rather than reached by a path. */
static Status put_lineage(Model *model, const char *stack, IntList lineage, Diag *diag) {
    Arena *arena = model->arena;
    const Tree *old = tree_get(model->provenance, "layers");
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    const Tree *first = old && old->kind == TREE_MAP ? old->first : NULL;
    for (const Tree *child = first; child; child = child->next)
        if (strcmp(child->key, stack) != 0)
            tree_append(arena, map, child->key, LOC_NONE, tree_copy(arena, child));
    tree_append(arena, map, stack, LOC_NONE, layers_tree(arena, lineage));
    return tree_set(arena, model->provenance, "layers", map, diag);
}

/* ---- removal ---- */

Status layers_keep(PassContext *ctx, Model *model, const char *stack, IntList keep,
                   Diag *diag) {
    Graph *graph = model->graph;
    const int depth = graph_layer_count(graph, stack);
    int *number = ARENA_ARRAY(ctx->arena, int, (size_t)depth); /* new ones, by layer */
    IntList before;
    TRY(layers_lineage(&before, ctx->arena, ctx, model, stack, depth, diag));
    IntList after = {ARENA_ARRAY(ctx->arena, int64_t, (size_t)keep.count), keep.count};
    for (int i = 0; i < keep.count; i++) after.items[i] = before.items[keep.items[i]];
    TRY(put_lineage(model, stack, after, diag));
    if (strcmp(stack, graph_main_stack(graph)) == 0)
        TRY(exits_keep(ctx, model, keep, diag));
    for (int layer = 0, kept = 0; layer < depth; layer++) {
        number[layer] = kept;
        if (kept < keep.count && keep.items[kept] == layer) {
            kept++;
            continue;
        }
        LayerEnds ends;
        TRY(layer_ends(&ends, ctx, graph, stack, layer, diag));
        graph_replace_uses(graph, ends.output, ends.input);
    }
    graph_remove_dead(graph);
    for (Node *node = graph->first; node; node = node->next)
        if (node->layer >= 0 && node_is_in(node, stack, node->layer))
            node->layer = number[node->layer];
    return graph_infer(graph, diag);
}
