/* Gathering what `compress inspect` prints. */
#include "cli/inspect.h"

#include <string.h>

#define STACKS_MAX 64

const char *operand_name(const Op *op, int index) {
    int count = op_operand_count(op);
    if (count == 0) return "";
    return op->operands[index < count ? index : count - 1].name;
}

const StorageUse *inspection_use(const Inspection *it, const Node *leaf) {
    return &it->storages[it->use_of[leaf->id]];
}

static void gather_stacks(Inspection *it) {
    it->stacks = ARENA_ARRAY(it->arena, const char *, STACKS_MAX);
    for (const Node *node = it->model->graph->first; node; node = node->next) {
        bool known = !node->stack || it->stack_count == STACKS_MAX;
        for (int i = 0; i < it->stack_count && !known; i++)
            known = strcmp(it->stacks[i], node->stack) == 0;
        if (!known) it->stacks[it->stack_count++] = node->stack;
    }
}

static bool same_place(const Node *a, const Node *b) {
    if (a->layer != b->layer || !a->stack != !b->stack) return false;
    return a->stack == b->stack || strcmp(a->stack, b->stack) == 0;
}

/* Counts the uses of all leaves in one walk; last[i] is the latest user of storage i.
 * Nodes of one place follow each other, so a change of place is a further layer. */
static void count_uses(Inspection *it, const Node **last) {
    const Graph *graph = it->model->graph;
    for (const Node *node = graph->first; node; node = node->next) {
        for (int i = 0; i < node->in_count; i++) {
            if (!node->in[i] || !node->in[i]->storage) continue;
            int index = it->use_of[node->in[i]->id];
            StorageUse *use = &it->storages[index];
            use->users++;
            use->layers += !last[index] || !same_place(last[index], node);
            last[index] = node;
        }
    }
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i].node->storage)
            it->storages[it->use_of[graph->outputs[i].node->id]].users++;
}

Status inspection_make(Inspection *out, Arena *arena, const char *path, Model *model,
                       Diag *diag) {
    Graph *graph = model->graph;
    size_t count = (size_t)graph_number(graph) + 1;
    *out = (Inspection){.arena = arena, .path = path, .model = model};
    TRY(model_measure(&out->measure, model, diag));
    out->storages = ARENA_ARRAY(arena, StorageUse, count);
    out->use_of = ARENA_ARRAY(arena, int, count);
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->storage) continue;
        out->use_of[node->id] = out->storage_count;
        out->storages[out->storage_count++].storage = node->storage;
    }
    count_uses(out, ARENA_ARRAY(arena, const Node *, count));
    gather_stacks(out);
    return STATUS_OK;
}
