/* Early exits as If in If: see onnx_exits.h. */
#include "io/onnx/write/onnx_exits.h"

#include <stdlib.h>
#include <string.h>

enum { EXITS_MAX = 1000 };

/* Exits by their layers, the model's own logits last. */
typedef struct ExitList {
    const Output *items[EXITS_MAX + 1];
    int count;
} ExitList;

static int layer_of(const Output *output) {
    return strncmp(output->name, "exit.", 5) == 0 ? atoi(output->name + 5) : 0;
}

static int by_layer(const void *a, const void *b) {
    return layer_of(*(const Output *const *)a) - layer_of(*(const Output *const *)b);
}

static void find_exits(ExitList *list, const Graph *graph) {
    list->count = 0;
    for (int i = 0; i < graph->output_count && list->count < EXITS_MAX; i++)
        if (layer_of(&graph->outputs[i]) > 0)
            list->items[list->count++] = &graph->outputs[i];
    qsort(list->items, (size_t)list->count, sizeof *list->items, by_layer);
    for (int i = 0; i < graph->output_count; i++)
        if (strcmp(graph->outputs[i].name, OUTPUT_LOGITS) == 0)
            list->items[list->count++] = &graph->outputs[i];
}

/* The threshold that the rule has for an exit; false when it has none. */
static bool find_threshold(const Model *model, const char *exit, double *out) {
    const Tree *rule = tree_get_nonnull(model->provenance, "exits");
    return tree_number(tree_get(tree_get(rule, "thresholds"), exit), out);
}

Status onnx_exits_check(const Model *model, Diag *diag) {
    const Tree *criterion =
        tree_get(tree_get_nonnull(model->provenance, "exits"), "criterion");
    ExitList exits;
    find_exits(&exits, model->graph);
    if (exits.count < 2 || layer_of(exits.items[exits.count - 1]) > 0)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, "exits",
                         "expected a model with early exits to nest, found none");
    bool fits = criterion && criterion->kind == TREE_STRING &&
                strcmp(criterion->string, "entropy") == 0;
    for (int i = 0; i < exits.count - 1; i++) {
        double threshold;
        fits = fits && find_threshold(model, exits.items[i]->name, &threshold);
    }
    if (fits) return STATUS_OK;
    diag_fail(diag, STATUS_MODEL, LOC_NONE, "exits",
              "expected a rule for leaving by entropy, to nest exits by");
    diag_hint(diag, "calibrate_exits stores one; `exits: outputs` writes every exit");
    return STATUS_MODEL;
}

/* Whether all samples may leave with these logits [N, classes]: a scalar bool. */
static const char *all_leave(OnnxBuild *b, const char *logits, double threshold) {
    if (b->real != ONNX_F32) logits = onnx_cast(b, logits, ONNX_F32);
    const char *p = onnx_softmax(b, logits, -1);
    const char *log = ONNX_NODE(b, "LogSoftmax", logits);
    onnx_set_int(b, "axis", -1);
    const char *entropy =
        ONNX_NODE(b, "ReduceSum", ONNX_NODE(b, "Mul", p, log), ONNX_VECTOR(b, -1));
    onnx_set_int(b, "keepdims", 0);
    entropy = ONNX_NODE(b, "ReduceMax", ONNX_NODE(b, "Neg", entropy));
    onnx_set_int(b, "keepdims", 0);
    const int32_t real = b->real;
    b->real = ONNX_F32;
    const char *limit = onnx_real(b, threshold);
    b->real = real;
    return ONNX_NODE(b, "Less", entropy, limit);
}

/* The logits from exit `i` on. */
static const char *export_from(OnnxExport *x, const Model *model, const ExitList *exits,
                               int i) {
    OnnxBuild *b = x->b;
    const Node *exit = exits->items[i]->node;
    bool *needed = ARENA_ARRAY(b->arena, bool, (size_t)x->graph->node_count + 1);
    double threshold = 0;
    onnx_mark(exit, needed);
    for (const Node *node = x->graph->first; node; node = node->next)
        if (needed[node->id] && !node_is_leaf(node)) onnx_export_node(x, node);
    const char *logits = x->values[exit->id];
    if (i == exits->count - 1) return logits;
    find_threshold(model, exits->items[i]->name, &threshold);
    const char *leave = all_leave(b, logits, threshold);
    OnnxBuild *here = onnx_build_inside(b), *further = onnx_build_inside(b);
    onnx_output(here, ONNX_NODE(here, "Identity", logits), b->real, NULL, NULL, -1);
    x->b = further;
    const char *last = export_from(x, model, exits, i + 1);
    onnx_output(further, ONNX_NODE(further, "Identity", last), b->real, NULL, NULL, -1);
    x->b = b;
    logits = ONNX_NODE(b, "If", leave);
    onnx_set_body(b, "then_branch", here);
    onnx_set_body(b, "else_branch", further);
    return logits;
}

const char *onnx_export_exits(OnnxExport *x, const Model *model) {
    ExitList *exits = ARENA_NEW(x->b->arena, ExitList);
    find_exits(exits, x->graph);
    return export_from(x, model, exits, 0);
}
