/* Making and finding nodes: see nodes.h. */
#include "passes/nodes.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

Status node_add(Node **out, Graph *graph, Node *anchor, const Op *op, Node *const *in,
                int count, Diag *diag, const char *attrs, ...) {
    Node *node = graph_insert(graph, anchor, op, in, count);
    if (attrs) {
        va_list args;
        va_start(args, attrs);
        char *text = NULL;
        int length = vasprintf(&text, attrs, args);
        va_end(args);
        if (length < 0)
            return diag_fail(diag, STATUS_MEMORY, LOC_NONE, op->name, "out of memory");
        Status status = node_set(graph, node, diag, "%s", text);
        free(text);
        if (status != STATUS_OK) return status;
    }
    TRY(node_infer(node, diag));
    *out = node;
    return STATUS_OK;
}

Status node_add_sum(Node **out, Graph *graph, Node *const *terms, const double *weights,
                    int count, Diag *diag) {
    Text attrs = {0};
    text_add(&attrs, "weights=[");
    for (int i = 0; i < count; i++) {
        if (i) text_add(&attrs, ", ");
        text_real(&attrs, weights ? weights[i] : 1.0 / count);
    }
    text_add(&attrs, "]");
    Status status = node_add(out, graph, NULL, &op_weighted_sum, terms, count, diag, "%s",
                             attrs.data);
    text_free(&attrs);
    return status;
}

Node *node_find(const Graph *graph, const char *stack, int layer, Role role,
                const Op *op) {
    Node *node = graph_find(graph, stack, layer, role);
    return node_is(node, op) ? node : NULL;
}

int64_t graph_positions(const Graph *graph) {
    int64_t least = 0;
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node_is(node, &op_add_position)) continue;
        const AddPositionAttrs *attrs = node->attrs;
        const int64_t rows = node->in[1]->type.dim[0] - attrs->offset;
        if (least == 0 || rows < least) least = rows;
    }
    return least;
}

Node *node_tokens_mask(const Graph *graph, const Node *x) {
    static const char *const NAMES[] = {INPUT_MASK, INPUT_TARGET_MASK};
    for (int i = 0; i < 2; i++) {
        Node *mask = graph_find_input(graph, NAMES[i]);
        if (!mask || mask->type.dtype != DTYPE_I32 || mask->type.rank != 2) continue;
        if (x->type.rank == 3 && mask->type.dim[0] == x->type.dim[0] &&
            mask->type.dim[1] == x->type.dim[1])
            return mask;
    }
    return NULL;
}

const char *weight_name_with(Arena *arena, const char *name, const char *more) {
    static const char end[] = ".weight";
    const size_t length = strlen(name), last = sizeof end - 1;
    const bool has_end = length > last && strcmp(name + length - last, end) == 0;
    return arena_printf(arena, "%.*s%s%s", (int)(has_end ? length - last : length), name,
                        more, end);
}
