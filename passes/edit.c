/* Editing helpers shared by passes: see edit.h. */
#include "passes/edit.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

Status edit_node(Node **out, Graph *graph, Node *anchor, const Op *op, Node *const *in,
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

Status edit_fail(PassContext *ctx, Diag *diag, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    option_fail_list(&ctx->source, NULL, STATUS_MODEL, diag, fmt, args);
    va_end(args);
    return STATUS_MODEL;
}

Status edit_fail_option(PassContext *ctx, const char *options, Diag *diag,
                        const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    option_fail_list(&ctx->source, options, STATUS_MODEL, diag, fmt, args);
    va_end(args);
    return STATUS_MODEL;
}

Status edit_fail_label(PassContext *ctx, Diag *diag, const Batches *data, int64_t sample,
                       int64_t classes, int32_t label) {
    edit_fail(ctx, diag, "%s: sample %lld: expected a label from 0 to %lld, found %d",
              data->name, (long long)sample, (long long)classes - 1, (int)label);
    diag_hint(diag, "classes of the model: %lld", (long long)classes);
    return STATUS_MODEL;
}

Status edit_sum(Node **out, Graph *graph, Node *const *terms, const double *weights,
                int count, Diag *diag) {
    Text attrs = {0};
    text_add(&attrs, "weights=[");
    for (int i = 0; i < count; i++) {
        if (i) text_add(&attrs, ", ");
        text_real(&attrs, weights ? weights[i] : 1.0 / count);
    }
    text_add(&attrs, "]");
    Status status = edit_node(out, graph, NULL, &op_weighted_sum, terms, count, diag,
                              "%s", attrs.data);
    text_free(&attrs);
    return status;
}

Node *edit_find(const Graph *graph, const char *stack, int layer, Role role,
                const Op *op) {
    Node *node = graph_find(graph, stack, layer, role);
    return node_is(node, op) ? node : NULL;
}

static int compare_numbers(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

void edit_sort(int64_t *items, int64_t count) {
    qsort(items, (size_t)count, sizeof *items, compare_numbers);
}

const char *edit_stack(const Graph *graph, const char *name) {
    return name && strcmp(name, "main") == 0 ? graph_main_stack(graph) : name;
}

int edit_extra_tokens(const Graph *graph) {
    int count = 0;
    for (const Node *node = graph->first; node; node = node->next)
        count += node->role == ROLE_TOKEN && !node_is_leaf(node);
    return count;
}

bool edit_grid(const Graph *graph, int64_t *rows, int64_t *columns) {
    const Node *patches = edit_find(graph, NULL, -1, ROLE_PATCHES, &op_patches);
    if (!patches) return false;
    const PatchesAttrs *attrs = patches->attrs;
    *rows = patches->in[0]->type.dim[2] / attrs->size;
    *columns = patches->in[0]->type.dim[3] / attrs->size;
    return true;
}
