/* Attention blocks that keep no head: see prune.h.
 *
 * Without heads the output projection gives its bias b for every token, so the block and
 * its residual sum x + (W 0 + b) become x + b, with b as a parameter of rank 3. */
#include "passes/pruning/prune.h"

#include "ir/rewrite.h"

/* The residual sum that a block's value goes to, over dropout and windows; `value`
 * becomes the operand that comes from the block. */
static Node *find_sum(const Graph *graph, Node **value) {
    Node *node = graph_only_reader(graph, *value);
    /* Values of which every token is one of operand 0: b is the same everywhere. */
    while (node && node_has_trait(node, OP_PASS_VALUE | OP_PICKS_TOKENS)) {
        *value = node;
        node = graph_only_reader(graph, node);
    }
    if (!node_is(node, &op_add)) return NULL;
    const Node *other = node->in[node->in[0] == *value];
    return type_equal(&other->type, &(*value)->type) ? node : NULL;
}

/* Makes the bias [D] of an output projection [1, ..., 1, D], as an operand of a sum. The
 * first block of a group does so for all, which lose their heads together. */
static Status raise_bias(const Prune *p, const PruneBlock *block, Node *bias, int rank,
                         Diag *diag) {
    if (bias->type.rank != 1) return STATUS_OK;
    Node **outputs = ARENA_ARRAY(p->ctx->arena, Node *, (size_t)p->block_count);
    StorageUsers users = {outputs, 0};
    for (int i = 0; i < p->block_count; i++)
        if (p->blocks[i].group == block->group) outputs[users.count++] = p->blocks[i].out;
    if (!bias->storage || !storage_used_by(p->graph, bias, users))
        return step_fail(p->ctx, diag,
                         "%s keeps no head, but the bias of its output projection is "
                         "used elsewhere",
                         block->place);
    return storage_raise_rank(p->graph, bias, users, rank, diag);
}

Status prune_empty(Prune *p, PruneBlock *block, Diag *diag) {
    Graph *graph = p->graph;
    Node *value = block->out;
    Node *sum = find_sum(graph, &value), *bias = node_operand(block->out, "bias");
    if (!sum)
        return step_fail(p->ctx, diag,
                         "%s keeps no head, but its result does not end in a residual "
                         "sum that could go on without it",
                         block->place);
    Node *other = sum->in[sum->in[0] == value];
    if (!bias) {
        graph_replace_uses(graph, sum, other);
        return STATUS_OK;
    }
    TRY(raise_bias(p, block, bias, sum->type.rank, diag));
    node_set_operand(graph, block->out, "bias", NULL);
    node_set_operand(graph, sum, "a", other);
    node_set_operand(graph, sum, "b", bias);
    return STATUS_OK;
}
