/* What can be seen of a model: see properties.h. */
#include "passes/properties.h"

#include "exec/ops.h"
#include "ir/model_parts.h"
#include "ir/storage.h"

#include <string.h>

bool node_is_mergeable(const Node *node) {
    return node_is(node, &op_feature_map) &&
           (node_operand(node, "weight") ||
            ((const FeatureMapAttrs *)node->attrs)->scale != 1);
}

static bool is_lookup(const Node *node) {
    return node_is(node, &op_embedding) && node->role == ROLE_EMBED;
}

/* Whether nodes of different layers of a stack read the same leaf. */
static bool shares_layers(const Graph *graph) {
    for (const Node *leaf = graph->first; leaf; leaf = leaf->next) {
        const Node *user = NULL;
        for (const Node *node = graph->first; leaf->storage && node; node = node->next)
            for (int i = 0; i < node->in_count; i++) {
                if (node->in[i] != leaf || !node->stack || node->layer < 0) continue;
                if (user && user->layer != node->layer &&
                    strcmp(user->stack, node->stack) == 0)
                    return true;
                user = node;
            }
    }
    return false;
}

/* Whether each layer of the main stack has attention and a feed-forward block, or none
 * has either, and, if `widths`, queries as wide as values. */
static bool has_whole_layers(const Graph *graph, bool widths) {
    const char *stack = graph_main_stack(graph);
    const int depth = stack ? graph_layer_count(graph, stack) : 0;
    bool any = false;
    for (int layer = 0; layer < depth; layer++)
        any |= graph_find(graph, stack, layer, ROLE_ATTENTION) ||
               graph_find(graph, stack, layer, ROLE_FFN_IN);
    if (!any) return depth > 0;
    for (int layer = 0; layer < depth; layer++) {
        const Node *attention = graph_find(graph, stack, layer, ROLE_ATTENTION);
        const Node *q = graph_find(graph, stack, layer, ROLE_Q);
        const Node *v = graph_find(graph, stack, layer, ROLE_V);
        if (!node_has_trait(attention, OP_ATTENTION) || !q || !v ||
            !graph_find(graph, stack, layer, ROLE_FFN_IN) ||
            (widths && !type_equal(&q->type, &v->type)))
            return false;
    }
    return true;
}

static bool has_stored(const Model *model, const char *key) {
    return tree_get_nonnull(model->provenance, key) != NULL;
}

unsigned model_properties(const Model *model) {
    const Graph *graph = model->graph;
    const Node *logits = graph_output(graph, OUTPUT_LOGITS);
    unsigned found = 0;
    if (logits && logits->type.rank == 2) found |= MODEL_CLASSIFIER;
    for (int i = 0; i < graph->output_count; i++)
        if (strncmp(graph->outputs[i].name, "exit.", 5) == 0) found |= MODEL_EXITS;
    if (has_stored(model, "exits")) found |= MODEL_EXIT_RULE;
    if (has_stored(model, "importance")) found |= MODEL_IMPORTANCE;
    if (shares_layers(graph)) found |= MODEL_SHARED_LAYERS;
    if (has_whole_layers(graph, false)) found |= MODEL_WHOLE_LAYERS;
    if (has_whole_layers(graph, true)) found |= MODEL_EQUAL_WIDTHS;
    for (int i = 0; i < graph->storage_count; i++)
        if (dtype_is_quantised(storage_tensor(graph->storages[i])->dtype))
            found |= MODEL_QUANTISED;
    for (const Node *node = graph->first; node; node = node->next) {
        if (node_is(node, &op_attention)) {
            found |= MODEL_SOFTMAX_ATTENTION;
            if (node_operand(node, "mix_before") || node_operand(node, "mix_after"))
                found |= MODEL_MIXED_HEADS;
        }
        if (node_is(node, &op_linear_attention)) found |= MODEL_LINEAR_ATTENTION;
        if (node_is(node, &op_attention_lstm) && node_operand(node, "align_score"))
            found |= MODEL_ADDITIVE_ATTENTION;
        if (node_is_mergeable(node)) found |= MODEL_FEATURE_MAPS;
        if (is_lookup(node)) found |= MODEL_WORD_EMBEDDING;
        if (node_is(node, &op_linear) && is_lookup(node->in[0]))
            found |= MODEL_FACTORED_EMBEDDING;
        if (node->role == ROLE_FACTOR) found |= MODEL_FACTORED_LINEARS;
        if (node->role == ROLE_TOKEN_TYPE) found |= MODEL_TOKEN_TYPES;
    }
    return found;
}

const char *property_name(ModelProperty property) {
    static const char *const names[] = {"a classifier",
                                        "early exits",
                                        "a rule for leaving at exits",
                                        "softmax attention",
                                        "linear attention",
                                        "additive attention",
                                        "feature maps to merge",
                                        "mixing of heads",
                                        "weights shared by layers",
                                        "whole layers",
                                        "queries as wide as values",
                                        "a word embedding",
                                        "a factored embedding",
                                        "token types",
                                        "stored importance",
                                        "factored projections",
                                        "quantised weights"};
    _Static_assert(sizeof names / sizeof *names == MODEL_PROPERTIES,
                   "a name for each property");
    for (int i = 0; i < MODEL_PROPERTIES; i++)
        if (property == 1u << i) return names[i];
    return "?";
}

void properties_print(Text *text, unsigned properties) {
    if (!properties) text_add(text, "-");
    for (int i = 0; i < MODEL_PROPERTIES; i++) {
        const unsigned property = properties & 1u << i;
        if (!property) continue;
        const bool first = (properties & ((1u << i) - 1)) == 0;
        text_add(text, "%s%s", first ? "" : ", ", property_name((ModelProperty)property));
    }
}
