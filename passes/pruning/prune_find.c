/* Blocks and groups of a model: see prune.h. */
#include "passes/pruning/prune.h"

#include "passes/linears.h"

#include <string.h>

const char *prune_units(PruneKind kind) {
    return kind == PRUNE_HEADS ? "heads" : "feed-forward units";
}

static bool is_cross(const Node *attention) {
    return attention->role == ROLE_CROSS_ATTENTION;
}

/* Goes back from a value over functions of single elements to the node of an op; NULL
 * when there is something else or a value on the way has another reader. */
static Node *trace(const Graph *graph, Node *value, const Op *op) {
    while (graph_use_count(graph, value) == 1) {
        if (node_is(value, op)) return value;
        if (!node_maps_elements(value)) return NULL;
        value = value->in[0];
    }
    return NULL;
}

/* ---- slots ---- */

/* Adds the slices of an operand, when it is there. `reads`: see PruneSlot. */
static Status add_slot(const Prune *p, PruneBlock *block, Node *owner,
                       const char *operand, int axis, bool reads, Diag *diag) {
    Node *leaf = node_operand(owner, operand);
    if (!leaf) return STATUS_OK;
    const char *role = role_name(owner->role);
    if (!leaf->storage)
        return step_fail(p->ctx, diag, "%s: the %s of %s is computed, not stored",
                         block->place, operand, role);
    const int64_t size = axis < leaf->type.rank ? leaf->type.dim[axis] : 0;
    const int64_t parts = prune_part_count(&block->parts);
    if (size < 1 || size % parts)
        return step_fail(p->ctx, diag,
                         "%s: expected a multiple of %lld as dimension %d of the %s of "
                         "%s, found %lld",
                         block->place, (long long)parts, axis, operand, role,
                         (long long)size);
    block->slots[block->slot_count++] = (PruneSlot){
        leaf,         owner, axis,
        size / parts, reads, owner->role == ROLE_V || owner->role == ROLE_CROSS_V};
    return STATUS_OK;
}

/* The side of a projection that belongs to the units, what it reads or what it gives:
 * that of the weight and, for what it gives, the bias. */
static Status add_projection(const Prune *p, PruneBlock *block, Node *linear, bool reads,
                             Diag *diag) {
    const bool transposed = ((const LinearAttrs *)linear->attrs)->transposed;
    const Node *weight = node_operand(linear, "weight");
    if (weight->type.rank != 2)
        return step_fail(p->ctx, diag, "%s: expected a matrix as weight of %s",
                         block->place, role_name(linear->role));
    TRY(add_slot(p, block, linear, "weight", reads != transposed, reads, diag));
    return reads ? STATUS_OK : add_slot(p, block, linear, "bias", 0, false, diag);
}

static Status fail_path(const Prune *p, const PruneBlock *block, Role role,
                        const char *what, Diag *diag) {
    return step_fail(p->ctx, diag, "%s: expected \"%s\" to be %s that nothing else reads",
                     block->place, role_name(role), what);
}

/* Whether a value is a gated one: the core's times that of projection ffn_gate, which is
 * then noted. */
static bool is_gated(const Prune *p, PruneBlock *block, Node *value) {
    value = trace(p->graph, value, &op_multiply);
    if (!value) return false;
    Node *sides[2] = {trace(p->graph, value->in[0], &op_linear),
                      trace(p->graph, value->in[1], &op_linear)};
    block->gate = sides[sides[0] == block->core];
    return (sides[0] == block->core || sides[1] == block->core) && block->gate &&
           block->gate->role == ROLE_FFN_GATE;
}

/* The projection that ends the block, whose columns belong to the units. */
static Status add_out(const Prune *p, PruneBlock *block, Role role, Diag *diag) {
    Node *out = graph_find_next(p->graph, block->core, block->stack, block->layer, role);
    /* of two factors the first one reads the units */
    Node *first = node_is(out, &op_linear) ? linear_first_factor(p->graph, out) : NULL;
    Node *reader = first ? first : out;
    if (!node_is(out, &op_linear) ||
        (trace(p->graph, reader->in[0], block->core->op) != block->core &&
         !is_gated(p, block, reader->in[0])))
        return fail_path(p, block, role,
                         p->kind == PRUNE_HEADS ? "a projection of attention's result"
                                                : "a projection of ffn_in's result",
                         diag);
    block->out = out;
    return add_projection(p, block, reader, true, diag);
}

/* Whether nothing but the way from a projection to attention reads a value: one node, and
 * attention's own window beside it. */
static bool is_way(const Prune *p, const PruneBlock *block, const Node *value) {
    const bool near = value == node_operand(block->core, "near_q") ||
                      value == node_operand(block->core, "near_k");
    return graph_use_count(p->graph, value) == 1 + near;
}

/* Whether a feature map has fewer maps than its block has parts: one for all queries of a
 * group, which stays when single ones go. */
static bool is_shared(const PruneBlock *block, const Node *map) {
    const Node *weight = node_operand(map, "weight");
    return weight &&
           block->parts.units * block->parts.sets > node_key_heads(block->core) &&
           weight->type.dim[0] <= node_key_heads(block->core);
}

/* Adds what lies between attention and a projection that it reads of so many heads, and
 * the projection: rotary positions and feature maps have heads too. */
static Status add_side(const Prune *p, PruneBlock *block, Node *value, Role role,
                       int64_t heads, Diag *diag) {
    for (; is_way(p, block, value); value = value->in[0]) {
        if (node_is(value, &op_linear) && value->role == role)
            return add_projection(p, block, value, false, diag);
        if (node_maps_elements(value)) continue;
        /* What works token by token on so many heads apart from each other, and on
         * weights only if they are known to be cut by heads. */
        const bool headed = node_has_trait(value, OP_ROWWISE) &&
                            node_heads(value) == heads &&
                            (value->in_count == 1 || node_is(value, &op_feature_map) ||
                             node_is(value, &op_rms_norm)); /* one weight for all */
        if (!headed) break;
        if (block->headed_count == PRUNE_HEADED)
            return step_fail(
                p->ctx, diag,
                "%s: expected at most %d nodes that work head by head between "
                "the projections and attention, found more",
                block->place, PRUNE_HEADED - 1);
        block->headed[block->headed_count++] = value;
        if (!node_is(value, &op_feature_map) || is_shared(block, value)) continue;
        TRY(add_slot(p, block, value, "weight", 0, false, diag));
        TRY(add_slot(p, block, value, "bias", 0, false, diag));
    }
    return fail_path(p, block, role, "a projection read by attention", diag);
}

/* What attention has beside q, k and v: weights with a number, or more, for each head. */
static Status add_extras(const Prune *p, PruneBlock *block, Diag *diag) {
    Node *attention = block->core;
    TRY(add_slot(p, block, attention, "gate", 0, false, diag));
    TRY(add_slot(p, block, attention, "slope", 0, false, diag));
    if (!node_is(attention, &op_attention)) return STATUS_OK;
    TRY(add_slot(p, block, attention, "bias", 0, false, diag));
    TRY(add_slot(p, block, attention, "rel_bias", 1, false, diag));
    TRY(add_slot(p, block, attention, "mix_before_bias", 0, false, diag));
    TRY(add_slot(p, block, attention, "mix_after_bias", 0, false, diag));
    for (int axis = 0; axis < 2; axis++) {
        TRY(add_slot(p, block, attention, "mix_before", axis, axis == 1, diag));
        TRY(add_slot(p, block, attention, "mix_after", axis, axis == 1, diag));
    }
    return STATUS_OK;
}

static Status add_heads(const Prune *p, PruneBlock *block, Diag *diag) {
    static const char *const inputs[] = {"q", "k", "v"};
    static const Role self[] = {ROLE_Q, ROLE_K, ROLE_V};
    static const Role cross[] = {ROLE_CROSS_Q, ROLE_CROSS_K, ROLE_CROSS_V};
    Node *attention = block->core;
    const Role *roles = is_cross(attention) ? cross : self;
    const int64_t heads = node_heads(attention), groups = node_key_heads(attention);
    const int sides = p->unit == UNIT_GROUP || groups == heads ? 3 : 1;
    block->headed[block->headed_count++] = attention;
    for (int i = 0; i < sides; i++)
        TRY(add_side(p, block, node_operand(attention, inputs[i]), roles[i],
                     i == 0 ? heads : groups, diag));
    return add_extras(p, block, diag);
}

/* What heads of attention come and go together. */
static PruneParts parts_of_heads(PruneUnit unit, const Node *attention) {
    const int64_t heads = node_heads(attention), groups = node_key_heads(attention);
    if (unit == UNIT_GROUP) return (PruneParts){groups, 1, heads / groups};
    if (unit == UNIT_HEAD || groups == heads) return (PruneParts){heads, 1, 1};
    return (PruneParts){heads / groups, groups, groups};
}

static Status add_block(Prune *p, Node *core, Diag *diag) {
    PruneBlock *block = &p->blocks[p->block_count];
    *block = (PruneBlock){.stack = core->stack,
                          .layer = core->layer,
                          .core = core,
                          .group = p->block_count++};
    block->place = arena_printf(p->ctx->arena, "%s.%d%s", core->stack, core->layer,
                                is_cross(core) ? " (cross-attention)" : "");
    if (p->kind == PRUNE_HEADS) {
        block->parts = parts_of_heads(p->unit, core);
        TRY(add_out(p, block, is_cross(core) ? ROLE_CROSS_OUT : ROLE_OUT, diag));
        return add_heads(p, block, diag);
    }
    block->parts = (PruneParts){core->type.dim[core->type.rank - 1], 1, 1};
    TRY(add_out(p, block, ROLE_FFN_OUT, diag));
    TRY(add_projection(p, block, core, false, diag));
    return block->gate ? add_projection(p, block, block->gate, false, diag) : STATUS_OK;
}

/* ---- groups ---- */

static bool share_leaf(const PruneBlock *a, const PruneBlock *b) {
    for (int i = 0; i < a->slot_count; i++)
        for (int j = 0; j < b->slot_count; j++)
            if (a->slots[i].leaf == b->slots[j].leaf) return true;
    return false;
}

static void open_group(const Prune *p, PruneGroup *group, const PruneParts *parts) {
    const int64_t count = prune_part_count(parts);
    group->parts = *parts;
    group->unit = ARENA_ARRAY(p->ctx->arena, int64_t, (size_t)count);
    for (int64_t i = 0; i < count; i++) group->unit[i] = i % parts->units;
}

/* Merges the groups of blocks that share a leaf, and numbers them by their first block.
 */
static void number_groups(Prune *p) {
    for (int i = 0; i < p->block_count; i++)
        for (int j = 0; j < i; j++) {
            const int from = p->blocks[i].group, into = p->blocks[j].group;
            if (from == into || !share_leaf(&p->blocks[i], &p->blocks[j])) continue;
            for (int k = 0; k < p->block_count; k++)
                if (p->blocks[k].group == from) p->blocks[k].group = into;
        }
    p->groups = ARENA_ARRAY(p->ctx->arena, PruneGroup, (size_t)p->block_count);
    int *number = ARENA_ARRAY(p->ctx->arena, int, (size_t)p->block_count);
    for (int i = 0; i < p->block_count; i++) {
        PruneBlock *block = &p->blocks[i];
        if (number[block->group] == 0) {
            open_group(p, &p->groups[p->group_count], &block->parts);
            number[block->group] = ++p->group_count;
        }
        block->group = number[block->group] - 1;
    }
}

/* All uses of a storage must be slots that cut it in the same way. */
static Status check_uses(const Prune *p, const PruneBlock *block, const PruneSlot *slot,
                         Diag *diag) {
    int uses = 0;
    for (int i = 0; i < p->block_count; i++)
        for (int j = 0; j < p->blocks[i].slot_count; j++) {
            const PruneSlot *other = &p->blocks[i].slots[j];
            uses += other->leaf == slot->leaf && other->axis == slot->axis &&
                    other->width == slot->width;
        }
    if (uses == graph_use_count(p->graph, slot->leaf)) return STATUS_OK;
    return step_fail(
        p->ctx, diag,
        "%s: \"%s\" cannot be cut: it is used outside of the blocks to prune "
        "or in another way",
        block->place, slot->leaf->storage->name);
}

static Status check_groups(const Prune *p, Diag *diag) {
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i], *first = p->blocks;
        while (first->group != block->group) first++;
        if (memcmp(&first->parts, &block->parts, sizeof first->parts) != 0)
            return step_fail(p->ctx, diag,
                             "%s and %s share weights and must have equally many %s, "
                             "found %lld and %lld",
                             first->place, block->place, prune_units(p->kind),
                             (long long)(first->parts.units * first->parts.size),
                             (long long)(block->parts.units * block->parts.size));
    }
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        for (int j = 0; j < block->slot_count; j++)
            TRY(check_uses(p, block, &block->slots[j], diag));
    }
    return STATUS_OK;
}

bool prune_is_first(const Prune *p, const PruneBlock *block, const PruneSlot *slot) {
    for (const PruneBlock *other = p->blocks;; other++)
        for (int j = 0; other->group == block->group && j < other->slot_count; j++) {
            const PruneSlot *candidate = &other->slots[j];
            if (candidate->leaf == slot->leaf && candidate->axis == slot->axis)
                return candidate == slot;
        }
}

/* Whether a node is the core of a block of the kind. */
static bool is_core(const Prune *p, const Node *node) {
    if (!node->stack || node->layer < 0) return false;
    if (!node_is_in(node, p->stack, -1)) return false;
    return p->kind == PRUNE_HEADS
               ? (node->role == ROLE_ATTENTION || is_cross(node)) &&
                     node_has_trait(node, OP_ATTENTION)
               : node->role == ROLE_FFN_IN && node_is(node, &op_linear);
}

Status prune_find(Prune *p, PassContext *ctx, Graph *graph, PruneKind kind,
                  PruneUnit unit, const char *stack, Diag *diag) {
    *p = (Prune){.ctx = ctx, .graph = graph, .kind = kind, .unit = unit, .stack = stack};
    size_t count = 0;
    for (const Node *node = graph->first; node; node = node->next)
        count += is_core(p, node);
    p->blocks = ARENA_ARRAY(ctx->arena, PruneBlock, count);
    for (Node *node = graph->first; node; node = node->next)
        if (is_core(p, node)) TRY(add_block(p, node, diag));
    number_groups(p);
    return check_groups(p, diag);
}
