/* Attention blocks that keep no head: see prune.h.
 *
 * Without heads the output projection gives its bias b for every token, so the block and
 * its residual sum x + (W 0 + b) become x + b, with b as a parameter of rank 3. */
#include "passes/pruning/prune.h"

#include "ir/rewrite.h"

/* The only node that reads a value, NULL when there is another reader or an output. */
static Node *only_reader(const Graph *graph, const Node *value) {
    if (graph_use_count(graph, value) != 1) return NULL;
    for (Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] == value) return node;
    return NULL;
}

/* Whether every token of the result is one of operand 0, as far as a token that is the
 * same everywhere goes. */
static bool keeps_tokens(const Node *node) {
    return node_is(node, &op_dropout) || node_is(node, &op_window_reverse);
}

/* The residual sum that a block's value goes to, over dropout and windows; `value`
 * becomes the operand that comes from the block. */
static Node *find_sum(const Graph *graph, Node **value) {
    Node *node = only_reader(graph, *value);
    while (node && keeps_tokens(node)) {
        *value = node;
        node = only_reader(graph, node);
    }
    if (!node_is(node, &op_add)) return NULL;
    const Node *other = node->in[node->in[0] == *value];
    return type_equal(&other->type, &(*value)->type) ? node : NULL;
}

/* Whether all readers of a bias are output projections of its group, which lose their
 * heads together. */
static bool is_group_bias(const Prune *p, const PruneBlock *block, const Node *bias) {
    int uses = 0;
    for (int i = 0; i < p->block_count; i++)
        uses += p->blocks[i].group == block->group &&
                node_operand(p->blocks[i].out, "bias") == bias;
    return uses == graph_use_count(p->graph, bias);
}

/* [D] becomes [1, ..., 1, D]. */
static void raise_rank(Node *leaf, int rank) {
    Storage *storage = leaf->storage;
    Tensor *tensor = &storage->tensor;
    const int64_t width = tensor->dim[0];
    for (int i = 0; i < rank; i++) {
        tensor->dim[i] = leaf->type.dim[i] = i == rank - 1 ? width : 1;
    }
    tensor->rank = leaf->type.rank = rank;
    const Lineage kept = storage->kept[0];
    storage->kept[0] = (Lineage){0};
    storage->kept[rank - 1] = kept;
}

Status prune_empty(Prune *p, PruneBlock *block, Diag *diag) {
    Graph *graph = p->graph;
    Node *value = block->out;
    Node *sum = find_sum(graph, &value), *bias = node_operand(block->out, "bias");
    if (!sum)
        return edit_fail(p->ctx, diag,
                         "%s keeps no head, but its result does not end in a residual "
                         "sum that could go on without it",
                         block->place);
    Node *other = sum->in[sum->in[0] == value];
    if (!bias) {
        graph_replace_uses(graph, sum, other);
        return STATUS_OK;
    }
    if (bias->type.rank == 1 && (!bias->storage || !is_group_bias(p, block, bias)))
        return edit_fail(p->ctx, diag,
                         "%s keeps no head, but the bias of its output projection is "
                         "used elsewhere",
                         block->place);
    node_set_operand(graph, block->out, "bias", NULL);
    if (bias->type.rank == 1) raise_rank(bias, sum->type.rank);
    node_set_operand(graph, sum, "a", other);
    node_set_operand(graph, sum, "b", bias);
    return STATUS_OK;
}
