/* Which matrices a step is about: see linears.h. */
#include "passes/linears.h"

#include "exec/train/train_options.h"
#include "passes/layers.h"

#include <string.h>

Status linears_check(const LinearChoice *choice, const StepSource *source, Diag *diag) {
    const char *names[ROLE_COUNT];
    for (int r = 0; r < ROLE_COUNT; r++) names[r] = role_name((Role)r);
    for (int i = 0; i < choice->roles.count; i++) {
        const char *role = choice->roles.items[i];
        if (role_parse(role) != ROLE_COUNT) continue;
        const char *near = name_nearest(role, names, ROLE_COUNT);
        option_fail(source, "roles", STATUS_RECIPE, diag,
                    "expected roles of projections, such as q and ffn_in; found \"%s\"",
                    role);
        if (near) diag_hint(diag, "did you mean '%s'?", near);
        return STATUS_RECIPE;
    }
    return STATUS_OK;
}

/* Whether any node stands in a stack: those of heads and embeddings have no layers. */
static bool has_stack(const Graph *graph, const char *stack) {
    for (const Node *node = graph->first; node; node = node->next)
        if (node_is_in(node, stack, -1)) return true;
    return false;
}

Status linears_check_places(const LinearChoice *choice, PassContext *ctx,
                            const Graph *graph, Diag *diag) {
    const char *stack = stack_named(graph, choice->stack);
    if (stack && !has_stack(graph, stack)) TRY(stack_check(ctx, graph, stack, diag));
    return layers_check(ctx, graph, stack, "layers", choice->layers, diag);
}

static bool has_role(const StringList *roles, Role role) {
    for (int i = 0; i < roles->count; i++)
        if (role_parse(roles->items[i]) == role) return true;
    return false;
}

static bool has_layer(IntList layers, int layer) {
    for (int i = 0; i < layers.count; i++)
        if (layers.items[i] == layer) return true;
    return false;
}

bool linears_choose(const LinearChoice *choice, const Graph *graph, const Node *node) {
    if (!node_is(node, &op_linear) || node->role == ROLE_FACTOR) return false;
    const Node *weight = node->in[1];
    if (!weight->storage || weight->type.rank != 2) return false;
    const bool named = choice->roles.count > 0 || choice->only.count > 0;
    const bool exits = choice->stack && strcmp(choice->stack, STACK_EXITS) == 0;
    if (!named && (!node->stack || node->layer < 0)) return false;
    if (!named && !exits && node_is_in(node, STACK_EXITS, -1)) return false;
    if (!node_is_in(node, stack_named(graph, choice->stack), -1)) return false;
    if (choice->layers.count && !has_layer(choice->layers, node->layer)) return false;
    if (choice->roles.count && !has_role(&choice->roles, node->role)) return false;
    if (choice->only.count && !name_matches_any(&choice->only, weight->storage->name))
        return false;
    return !name_matches_any(&choice->skip, weight->storage->name);
}

Node *linear_first_factor(const Graph *graph, const Node *linear) {
    Node *first = linear->in[0];
    const bool is_factor = node_is(first, &op_linear) && first->role == ROLE_FACTOR &&
                           linear_is_turned(first) == linear_is_turned(linear) &&
                           first->in[1]->storage && first->in[1]->type.rank == 2 &&
                           !node_operand(first, "bias");
    return is_factor && graph_use_count(graph, first) == 1 ? first : NULL;
}
