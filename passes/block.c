/* Residual blocks of a layer: see block.h. */
#include "passes/block.h"

#include "ir/rewrite.h"

#include <string.h>

typedef struct Walk {
    PassContext *ctx;
    const Graph *graph;
    const char *stack;
    int layer;
} Walk;

const char *block_name(BlockKind kind) {
    static const char *const names[] = {"attention", "cross_attention", "ffn",
                                        "transform", "plain"};
    return names[kind];
}

/* ---- kinds ---- */

/* Goes back over what changes values one by one, or token by token within heads. */
static const Node *skip_back(const Node *node) {
    while (node_maps_elements(node) ||
           (node_has_trait(node, OP_ROWWISE) && node_heads(node) > 0))
        node = node->in[0];
    return node;
}

/* What a projection reads, through the first of its two factors. */
static const Node *read_by(const Node *linear) {
    const Node *value = linear->in[0];
    return node_is(value, &op_linear) && value->role == ROLE_FACTOR ? value->in[0]
                                                                    : value;
}

/* What a projection that attention reads is made of. */
static const Node *source(const Node *attention, const char *operand) {
    const Node *value = skip_back(node_operand(attention, operand));
    return node_is(value, &op_linear) ? read_by(value) : value;
}

static BlockKind kind_of(const Node *last) {
    if (last->storage) return BLOCK_ATTENTION;
    if (node_has_trait(last, OP_TENSOR)) return BLOCK_PLAIN;
    if (!node_is(last, &op_linear)) return BLOCK_OTHER;
    const Node *core = skip_back(read_by(last));
    if (node_has_trait(core, OP_TENSOR)) return BLOCK_PLAIN;
    if (!node_has_trait(core, OP_ATTENTION)) return BLOCK_FFN;
    return source(core, "q") == source(core, "k") ? BLOCK_ATTENTION
                                                  : BLOCK_CROSS_ATTENTION;
}

/* ---- one block ---- */

/* Whether a value is another one times a vector of weights (LayerScale, Touvron et al.,
 * 2021). */
static bool is_scaled(const Node *value) {
    return node_is(value, &op_binary) && node_chooses(value, "fn", "multiply") &&
           node_has(value, 1) && value->in[1]->storage;
}

/* Whether a value is 0 where what it reads is: that times constants or weights, or its
 * tokens in another order. */
static bool keeps_zero(const Node *value) {
    return node_has_trait(value, OP_PROPORTIONAL) || node_is(value, &op_window_reverse);
}

/* Follows an operand of a sum back to what the branch ends in; false when it is no
 * branch: it leaves the layer, or is read elsewhere. */
static bool find_last(const Walk *w, Block *block, Node *value) {
    block->branch_norm = NULL;
    for (;; value = value->in[0]) {
        if (value->storage) break;
        if (!node_is_in(value, w->stack, w->layer) ||
            graph_use_count(w->graph, value) != 1)
            return false;
        if (is_scaled(value)) continue;
        if (node_has_trait(value, OP_PROJECTION | OP_TENSOR)) break;
        if (node_has_trait(value, OP_NORM) && !block->branch_norm)
            block->branch_norm = value;
        else if (!keeps_zero(value))
            return false;
    }
    block->last = value;
    return true;
}

/* The block that ends in a sum: one operand is its branch, the other its input. */
static bool read_sum(const Walk *w, Block *block, const Node *sum) {
    for (int i = 1; i >= 0; i--) {
        Node *input = sum->in[!i];
        if (!type_equal(&input->type, &sum->type) || !find_last(w, block, sum->in[i]))
            continue;
        block->input = input;
        block->kind = kind_of(block->last);
        return true;
    }
    return false;
}

/* The block that hands on `output`. */
static Status read_block(const Walk *w, Block *block, Node *output, Diag *diag) {
    *block = (Block){.kind = BLOCK_OTHER, .output = output};
    Node *sum = output;
    if (node_is_in(output, w->stack, w->layer) && node_has_trait(output, OP_NORM)) {
        block->norm = output;
        block->input = sum = output->in[0];
        if (output->role == ROLE_LOCAL_NORM) return STATUS_OK;
    }
    if (node_is_in(sum, w->stack, w->layer) && node_is(sum, &op_add) &&
        read_sum(w, block, sum))
        return STATUS_OK;
    return step_fail(w->ctx, diag,
                     "%s.%d: expected a chain of blocks x + f(x), with norms before or "
                     "after the sum; found %s (%s)",
                     w->stack, w->layer, role_name(sum->role), sum->op->name);
}

/* ---- the layer ---- */

Status layer_blocks(LayerBlocks *out, PassContext *ctx, const Graph *graph,
                    const char *stack, int layer, Diag *diag) {
    const Walk w = {ctx, graph, stack, layer};
    LayerEnds ends;
    TRY(layer_ends(&ends, ctx, graph, stack, layer, diag));
    out->count = 0;
    for (Node *value = ends.output; value != ends.input;) {
        if (out->count == LAYER_BLOCKS)
            return step_fail(ctx, diag, "%s.%d: expected at most %d blocks", stack, layer,
                             LAYER_BLOCKS);
        Block *block = &out->items[out->count++];
        TRY(read_block(&w, block, value, diag));
        value = block->input;
    }
    for (int i = 0, j = out->count - 1; i < j; i++, j--) { /* the first block first */
        const Block block = out->items[i];
        out->items[i] = out->items[j];
        out->items[j] = block;
    }
    return STATUS_OK;
}

bool block_is_part(const Block *block, int part) {
    return part == BLOCK_ALL || (int)block->kind == part ||
           (part == BLOCK_FFN && block->kind == BLOCK_OTHER);
}

int layer_count_part(const LayerBlocks *blocks, int part) {
    int count = 0;
    for (int i = 0; i < blocks->count; i++)
        count += block_is_part(&blocks->items[i], part);
    return count;
}

/* ---- the identity ---- */

static int add_zero(BlockZero *out, int count, Node *leaf, double value) {
    if (!leaf || !leaf->storage) return count;
    out[count] = (BlockZero){leaf, value};
    return count + 1;
}

static Node *shift_of(const Node *norm) {
    return op_operand_index(norm->op, "bias") < 0 ? NULL : node_operand(norm, "bias");
}

int block_zeros(const Block *block, BlockZero out[BLOCK_ZEROS]) {
    int count = 0;
    const Node *last = block->last;
    if (last && last->storage) {
        count = add_zero(out, count, block->last, 0);
    } else if (last) {
        count = add_zero(out, count, node_operand(last, "weight"), 0);
        count = add_zero(out, count, node_operand(last, "bias"), 0);
    }
    if (block->branch_norm) count = add_zero(out, count, shift_of(block->branch_norm), 0);
    if (!block->norm) return count;
    count = add_zero(out, count, node_operand(block->norm, "weight"), 1);
    return add_zero(out, count, shift_of(block->norm), 0);
}

void block_bypass(Graph *graph, const Block *block) {
    graph_replace_uses(graph, block->output, block->input);
}
