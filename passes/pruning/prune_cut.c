/* Cutting: what the groups do not keep leaves the graph. */
#include "passes/pruning/prune.h"

#include "ir/rewrite.h"
#include "ir/storage.h"

#include <stdlib.h>

/* The nodes of a group that read a leaf: all of them are cut together. */
static StorageUsers readers_of(const Prune *p, int group, const Node *leaf) {
    const size_t most = (size_t)p->block_count * PRUNE_SLOTS;
    Node **nodes = ARENA_ARRAY(p->ctx->arena, Node *, most);
    int count = 0;
    for (int i = 0; i < p->block_count; i++) {
        const PruneBlock *block = &p->blocks[i];
        for (int j = 0; block->group == group && j < block->slot_count; j++)
            if (block->slots[j].leaf == leaf) nodes[count++] = block->slots[j].owner;
    }
    return (StorageUsers){nodes, count};
}

static Status cut_slot(const Prune *p, const PruneSlot *slot, int index, Diag *diag) {
    const PruneGroup *group = &p->groups[index];
    const int64_t width = slot->width, parts = prune_part_count(&group->parts);
    int64_t *entries = memory_alloc((size_t)(parts * width), sizeof *entries), count = 0;
    bool *kept = memory_alloc((size_t)parts, sizeof *kept);
    prune_mask(kept, group);
    for (int64_t i = 0; i < parts * width; i++)
        if (kept[i / width]) entries[count++] = i;
    Status status = storage_keep(p->graph, slot->leaf, readers_of(p, index, slot->leaf),
                                 slot->axis, entries, count, diag);
    free(entries);
    free(kept);
    return status;
}

/* A node has as many heads for each unit afterwards as it has now, and where they are
 * counted apart, so many of keys and values: as many as its heads is 0. */
static Status set_heads(Graph *graph, Node *node, const PruneGroup *group, Diag *diag) {
    const int64_t units = group->parts.units, keep = group->keep_count;
    const int64_t heads = node_heads(node), keys = node_key_heads(node);
    const int64_t left = heads / units * keep;
    const bool shared = group->parts.sets > 1 || keys < units; /* by units that go */
    const int64_t left_keys = shared ? keys : keys / units * keep;
    if (keys == heads) return node_set(graph, node, diag, "heads=%lld", (long long)left);
    return node_set(graph, node, diag, "heads=%lld kv_heads=%lld", (long long)left,
                    (long long)(left_keys == left ? 0 : left_keys));
}

static Status cut_block(Prune *p, PruneBlock *block, Diag *diag) {
    const PruneGroup *group = &p->groups[block->group];
    if (group->keep_count == group->parts.units) return STATUS_OK;
    if (group->keep_count == 0) return prune_empty(p, block, diag);
    for (int i = 0; i < block->slot_count; i++)
        if (prune_is_first(p, block, &block->slots[i]))
            TRY(cut_slot(p, &block->slots[i], block->group, diag));
    for (int i = 0; i < block->headed_count; i++)
        TRY(set_heads(p->graph, block->headed[i], group, diag));
    return STATUS_OK;
}

Status prune_cut(Prune *p, Diag *diag) {
    for (int i = 0; i < p->block_count; i++) TRY(cut_block(p, &p->blocks[i], diag));
    graph_remove_dead(p->graph);
    return graph_infer(p->graph, diag);
}
