/* Gathering what `compress inspect` prints. */
#include "cli/inspect.h"

#include <string.h>

#define STACKS_MAX 64

int64_t node_integer(const Node *node, const char *name) {
    const Field *field = node->op->fields ? field_find(node->op->fields, name) : NULL;
    if (!field || field->kind != FIELD_INT) return -1;
    return *(const int64_t *)((const char *)node->attrs + field->offset);
}

const char *operand_name(const Op *op, int index) {
    int count = op_operand_count(op);
    if (count == 0) return "";
    return op->operands[index < count ? index : count - 1].name;
}

const StorageUse *inspection_storage(const Inspection *it, const Storage *storage) {
    for (int i = 0; i < it->storage_count; i++)
        if (it->storages[i].storage == storage) return &it->storages[i];
    return NULL;
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

/* Counts the uses of one leaf. Nodes of one place follow each other, so a change of
 * place between uses is a further layer. */
static void count_uses(StorageUse *use, const Graph *graph, const Node *leaf) {
    const Node *previous = NULL;
    for (const Node *node = leaf->next; node; node = node->next) {
        for (int i = 0; i < node->in_count; i++) {
            if (node->in[i] != leaf) continue;
            bool same = previous && previous->layer == node->layer &&
                        (previous->stack == node->stack ||
                         (previous->stack && node->stack &&
                          strcmp(previous->stack, node->stack) == 0));
            use->users++;
            use->layers += !same;
            previous = node;
        }
    }
    for (int i = 0; i < graph->output_count; i++)
        use->users += graph->outputs[i].node == leaf;
}

Status inspection_make(Inspection *out, Arena *arena, const char *path, Model *model,
                       Diag *diag) {
    Graph *graph = model->graph;
    *out = (Inspection){.arena = arena, .path = path, .model = model};
    out->storages = ARENA_ARRAY(arena, StorageUse, (size_t)graph->storage_count + 1);
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->storage || out->storage_count == graph->storage_count) continue;
        StorageUse *use = &out->storages[out->storage_count++];
        use->storage = node->storage;
        count_uses(use, graph, node);
    }
    gather_stacks(out);
    return model_measure(&out->measure, model, diag);
}
