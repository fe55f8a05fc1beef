/* Patches of image models: see patches.h. */
#include "passes/patches.h"

#include "passes/nodes.h"

int patches_extra_tokens(const Graph *graph) {
    int count = 0;
    for (const Node *node = graph->first; node; node = node->next)
        count += node->role == ROLE_TOKEN && !node_is_leaf(node);
    return count;
}

bool patches_grid(const Graph *graph, int64_t *rows, int64_t *columns) {
    const Node *patches = node_find(graph, NULL, -1, ROLE_PATCHES, &op_patches);
    if (!patches) return false;
    const PatchesAttrs *attrs = patches->attrs;
    *rows = patches->in[0]->type.dim[2] / attrs->size;
    *columns = patches->in[0]->type.dim[3] / attrs->size;
    return true;
}
