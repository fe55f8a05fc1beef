/* Model configuration: see model_config.h. */
#include "io/formats/model_config.h"

#include "io/families/family.h"
#include "io/formats/hf.h"
#include "ir/class_name.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- values --- */

static Tree *new_number(Arena *arena, double value) {
    const bool whole = value == floor(value);
    Tree *tree = tree_new(arena, whole ? TREE_INT : TREE_FLOAT, LOC_NONE);
    if (whole)
        tree->integer = (int64_t)value;
    else
        tree->real = value;
    return tree;
}

/* One number where all are the same, else all of them. */
static Tree *new_value(Arena *arena, const double *values, int count) {
    bool same = true;
    for (int i = 1; i < count; i++) same = same && values[i] == values[0];
    if (same) return new_number(arena, count ? values[0] : 0);
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < count; i++)
        tree_append(arena, list, NULL, LOC_NONE, new_number(arena, values[i]));
    return list;
}

/* --- measures --- */

/* Of one layer; 0 where the block is gone. */
static double measure_layer(const Graph *graph, const SizeKey *size, int layer) {
    if (size->kind == SIZE_FFN || size->kind == SIZE_FFN_RATIO) {
        const Node *in = graph_find(graph, size->stack, layer, ROLE_FFN_IN);
        if (!in) return 0;
        const double width = size->kind == SIZE_FFN ? 1 : (double)node_width(in->in[0]);
        return width > 0 ? (double)node_width(in) / width : 0;
    }
    const Node *node = graph_find(graph, size->stack, layer, ROLE_ATTENTION);
    if (!node || node_heads(node) < 1) return 0;
    if (size->kind == SIZE_KV_HEADS) return (double)node_key_heads(node);
    if (size->kind == SIZE_HEADS) return (double)node_heads(node);
    return (double)node_head_width(node);
}

/* Of the table of tokens, or of token types, of a stack; 0 without one. */
static double measure_table(const Graph *graph, const SizeKey *size) {
    const Node *words = graph_find(graph, size->stack, -1, ROLE_EMBED), *node = words;
    if (size->kind == SIZE_TYPES) {
        /* the lookup is an operand of the sum that adds its rows */
        const Node *sum = graph_find(graph, size->stack, -1, ROLE_TOKEN_TYPE);
        node = NULL;
        for (int i = 0; sum && words && i < sum->in_count && !node; i++)
            if (sum->in[i] != words && sum->in[i]->op == words->op) node = sum->in[i];
    }
    if (!node || node->in_count < 2 || !node->in[1] || !node->in[1]->storage) return 0;
    const Type *table = &node->in[1]->type;
    return table->rank == 2 ? (double)table->dim[size->kind == SIZE_EMBEDDING] : 0;
}

/* Which layers see near keys alone, as transformers calls them. */
static Tree *measure_reach(Arena *arena, const Graph *graph, const SizeKey *size) {
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < graph_layer_count(graph, size->stack); i++) {
        const Node *node = graph_find(graph, size->stack, i, ROLE_ATTENTION);
        const bool near = node && node_integer(node, "reach") > 0;
        tree_add_string(arena, list, near ? "sliding_attention" : "full_attention");
    }
    return list;
}

/* What a key should say of a graph. */
static Tree *measure(Arena *arena, const Graph *graph, const SizeKey *size) {
    const int layers = graph_layer_count(graph, size->stack);
    if (size->kind == SIZE_REACH) return measure_reach(arena, graph, size);
    double *values = ARENA_ARRAY(arena, double, (size_t)layers + 1);
    if (size->kind >= SIZE_VOCABULARY) {
        values[0] = measure_table(graph, size);
        return new_value(arena, values, 1);
    }
    if (size->kind == SIZE_LAYERS && !size->staged) {
        values[0] = layers;
        return new_value(arena, values, 1);
    }
    for (int i = 0; i < layers && size->kind != SIZE_LAYERS; i++)
        values[i] = measure_layer(graph, size, i);
    if (!size->staged) return new_value(arena, values, layers);
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    const int stages = graph_layer_stage(graph, size->stack, layers) + 1;
    for (int stage = 0, first = 0; stage < stages; stage++) {
        int end = first;
        while (end < layers && graph_layer_stage(graph, size->stack, end) == stage) end++;
        const double depth = end - first;
        tree_append(arena, list, NULL, LOC_NONE,
                    size->kind == SIZE_LAYERS
                        ? new_value(arena, &depth, 1)
                        : new_value(arena, values + first, end - first));
        first = end;
    }
    return list;
}

/* --- the configuration --- */

/* Puts `values`, a map, in place of the keys that it has or behind them. */
static const Tree *replace_values(Arena *arena, const Tree *config, const Tree *values) {
    Tree *out = tree_new(arena, TREE_MAP, config->loc);
    for (const Tree *own = config->first; own; own = own->next) {
        const Tree *value = tree_get(values, own->key);
        tree_append(arena, out, own->key, own->key_loc,
                    tree_copy(arena, value ? value : own));
    }
    for (const Tree *value = values->first; value; value = value->next)
        if (!tree_get(out, value->key))
            tree_append(arena, out, value->key, LOC_NONE, tree_copy(arena, value));
    return out;
}

/* The sizes that differ from those of the graph that the configuration builds; a head's
 * width goes with the number of heads, which says what it is no longer. */
static Tree *changed_sizes(Arena *arena, const SizeKey *sizes, const Graph *original,
                           const Graph *graph) {
    Tree *changed = tree_new(arena, TREE_MAP, LOC_NONE);
    bool heads = false;
    for (const SizeKey *size = sizes; size->key; size++) {
        Tree *now = measure(arena, graph, size);
        const bool same = tree_equal(now, measure(arena, original, size));
        if (size->kind == SIZE_HEADS) heads = !same;
        if (!same || (heads && size->kind == SIZE_HEAD_WIDTH))
            tree_append(arena, changed, size->key, LOC_NONE, now);
    }
    return changed;
}

const Tree *model_config_now(Arena *arena, const Model *model) {
    const Tree *type = tree_get(model->config, "model_type"), *now = model->config;
    const Family *family =
        type && type->kind == TREE_STRING ? family_find(type->string) : NULL;
    if (!family || !family->sizes) return now;
    Diag *diag = diag_create(); /* warnings of the configuration were given when read */
    /* Twice: a key that is left out may follow another, as T5's layers of the decoder
     * follow those of the encoder. */
    for (int round = 0; round < 2; round++) {
        Model *original = NULL;
        Tree *changed = tree_new(arena, TREE_MAP, LOC_NONE);
        if (hf_build(&original, now, model->graph->ops, diag) == STATUS_OK)
            changed = changed_sizes(arena, family->sizes, original->graph, model->graph);
        model_destroy(original);
        if (changed->count == 0) break;
        now = replace_values(arena, now, changed);
    }
    diag_destroy(diag);
    return now;
}

static void put_labels(Arena *arena, Tree *config, int64_t count) {
    const Tree *names = tree_get_nonnull(config, "id2label");
    if (!names) {
        Tree *made = tree_put_map(arena, config, "id2label");
        for (int64_t i = 0; i < count; i++)
            tree_put_string(arena, made, arena_printf(arena, "%lld", (long long)i),
                            class_name_generic(i, arena));
        names = made;
    }
    if (tree_get_nonnull(config, "label2id") || names->kind != TREE_MAP) return;
    Tree *numbers = tree_put_map(arena, config, "label2id");
    for (const Tree *name = names->first; name; name = name->next)
        if (name->kind == TREE_STRING)
            tree_put_int(arena, numbers, name->string, atoll(name->key));
}

void config_put_task(Arena *arena, Tree *config, const Graph *graph) {
    static const char KEY[] = "problem_type";
    const Node *logits = graph_output(graph, OUTPUT_LOGITS);
    const Task task = graph_task(graph);
    const char *problem = task == TASK_MULTI_LABEL ? "multi_label_classification"
                          : task == TASK_REGRESS   ? "regression"
                                                   : NULL;
    if (!logits || (!problem && task != TASK_CLASSIFY && task != TASK_LABEL_TOKENS))
        return;
    put_labels(arena, config, logits->type.dim[logits->type.rank - 1]);
    if (problem && !tree_get_nonnull(config, KEY))
        tree_put_string(arena, config, KEY, problem);
}
