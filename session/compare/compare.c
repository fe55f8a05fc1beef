/* Comparing two models: all parts together, and the configuration. */
#include "session/compare/compare.h"

#include "io/formats/model_config.h"

#include <string.h>

/* ---- configuration ---- */

static const char *json_text(Arena *arena, const Tree *value) {
    Text text = {0};
    if (!value) return NULL;
    tree_print_json(&text, value, 0);
    const char *copy = arena_strdup(arena, text.data);
    text_free(&text);
    return copy;
}

/* Adds the keys of two maps that are not the same, those of maps within them as well. */
static void compare_maps(DifferenceList *out, Arena *arena, const char *prefix,
                         const Tree *a, const Tree *b) {
    for (int side = 0; side < 2; side++) {
        const Tree *own = side ? b : a, *other = side ? a : b;
        for (const Tree *x = own ? own->first : NULL; x; x = x->next) {
            const Tree *y = tree_get(other, x->key);
            const char *key = arena_printf(arena, "%s%s", prefix, x->key);
            if (y && side == 1) continue;
            if (y && x->kind == TREE_MAP && y->kind == TREE_MAP) {
                compare_maps(out, arena, arena_printf(arena, "%s.", key), x, y);
                continue;
            }
            const char *one = json_text(arena, side ? y : x);
            const char *two = json_text(arena, side ? x : y);
            if (!one || !two || strcmp(one, two) != 0)
                difference_add(arena, out, key, one, two);
        }
    }
}

/* Keys that tell of the program that wrote a file, and of the type of its weights, which
 * are compared themselves. */
static bool is_writers(const char *key) {
    static const char *const KEYS[] = {"torch_dtype", "dtype", "transformers_version"};
    bool found = false;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        found |= strcmp(key, KEYS[i]) == 0;
    return found;
}

/* The configuration with what every writer tells of labels, without what is a writer's.
 */
static const Tree *config_to_compare(Arena *arena, const Model *model) {
    const Tree *now = model_config_now(arena, model);
    Tree *config = tree_new(arena, TREE_MAP, LOC_NONE);
    for (const Tree *own = now->first; own; own = own->next)
        if (!is_writers(own->key))
            tree_append(arena, config, own->key, own->loc, tree_copy(arena, own));
    config_put_task(arena, config, model->graph);
    return config;
}

/* ---- all parts ---- */

static bool has_weights(const Model *model) {
    for (int i = 0; i < model->graph->storage_count; i++)
        if (!tensor_data(&model->graph->storages[i]->tensor)) return false;
    return true;
}

Status compare_models(Comparison *out, Arena *arena, Model *const models[2],
                      const char *const paths[2], const CompareOptions *options,
                      Diag *diag) {
    const Model *a = models[0], *b = models[1];
    const bool stored = !options->structure && has_weights(a) && has_weights(b);
    *out = (Comparison){.path = {paths[0], paths[1]},
                        .file_bytes = {a->file_bytes, b->file_bytes},
                        .has_storages = !options->structure,
                        .has_outputs = stored && !options->no_outputs};
    for (int side = 0; side < 2; side++)
        TRY(model_measure(&out->measure[side], models[side], diag));
    compare_nodes(&out->nodes, arena, a, b);
    if (out->has_storages)
        TRY(compare_storages(&out->storages, arena, &out->nodes, a, b, options->tolerance,
                             diag));
    if (out->has_outputs)
        TRY(compare_outputs(&out->outputs, arena, &options->inputs,
                            (const Model *const[]){a, b}, paths, options->tolerance,
                            options->threads, options->watch, diag));
    out->has_config = a->config->count > 0 && b->config->count > 0;
    if (out->has_config)
        compare_maps(&out->config, arena, "", config_to_compare(arena, a),
                     config_to_compare(arena, b));
    const NodeComparison *nodes = &out->nodes;
    const int *counts = out->storages.counts;
    out->structure_differs =
        nodes->changed + nodes->removed + nodes->added + nodes->ends.count > 0;
    out->storages_differ =
        out->storages.count > counts[STORAGE_EQUAL] + counts[STORAGE_CLOSE] ||
        out->storages.reshared > 0;
    out->outputs_differ = out->outputs.differing > 0;
    out->config_differs = out->config.count > 0;
    out->differs = out->structure_differs || out->storages_differ ||
                   out->outputs_differ || out->config_differs;
    return STATUS_OK;
}

/* ---- as a tree ---- */

static void add_text(Arena *arena, Tree *list, const char *value) {
    if (value)
        tree_add_string(arena, list, value);
    else
        tree_append(arena, list, NULL, LOC_NONE, tree_new(arena, TREE_NULL, LOC_NONE));
}

static void put_ints(Arena *arena, Tree *map, const char *key, int64_t a, int64_t b) {
    Tree *list = tree_put_list(arena, map, key);
    tree_add_int(arena, list, a);
    tree_add_int(arena, list, b);
}

static void put_texts(Arena *arena, Tree *map, const char *key, const char *a,
                      const char *b) {
    Tree *list = tree_put_list(arena, map, key);
    add_text(arena, list, a);
    add_text(arena, list, b);
}

static void put_differences(Arena *arena, Tree *map, const char *key,
                            const DifferenceList *differences) {
    Tree *list = tree_put_list(arena, map, key);
    for (int i = 0; i < differences->count; i++) {
        const Difference *item = &differences->items[i];
        Tree *row = tree_add_map(arena, list);
        tree_put_string(arena, row, "what", item->what);
        put_texts(arena, row, "values", item->a, item->b);
    }
}

static void put_sizes(Arena *arena, Tree *map, const Comparison *it) {
    const Measure *a = &it->measure[0], *b = &it->measure[1];
    Tree *sizes = tree_put_map(arena, map, "sizes");
    put_ints(arena, sizes, "parameters", a->parameters, b->parameters);
    put_ints(arena, sizes, "bytes", a->bytes, b->bytes);
    Tree *flops = tree_put_list(arena, sizes, "flops");
    tree_add_real(arena, flops, a->flops);
    tree_add_real(arena, flops, b->flops);
    put_ints(arena, sizes, "peak_bytes", a->peak_bytes, b->peak_bytes);
    put_ints(arena, sizes, "file_bytes", it->file_bytes[0], it->file_bytes[1]);
}

/* Layers of A for each of B; null where A has none. */
static void put_layers(Arena *arena, Tree *map, const NodeComparison *nodes) {
    static const char *const NAMES[] = {[LAYERS_BY_NUMBER] = "number",
                                        [LAYERS_BY_LINEAGE] = "lineage",
                                        [LAYERS_BY_WEIGHTS] = "weights"};
    Tree *list = tree_put_list(arena, map, "layers");
    for (int i = 0; i < nodes->stack_count; i++) {
        const StackPair *stack = &nodes->stacks[i];
        Tree *row = tree_add_map(arena, list);
        tree_put_string(arena, row, "stack", stack->stack);
        put_ints(arena, row, "count", stack->layers[0], stack->layers[1]);
        tree_put_string(arena, row, "matched_by", NAMES[stack->match]);
        Tree *of_b = tree_put_list(arena, row, "of_second");
        for (int j = 0; j < stack->layers[1]; j++) {
            if (stack->of_b[j] >= 0)
                tree_add_int(arena, of_b, stack->of_b[j]);
            else
                add_text(arena, of_b, NULL);
        }
    }
}

static void put_structure(Arena *arena, Tree *map, const NodeComparison *nodes) {
    Tree *structure = tree_put_map(arena, map, "structure");
    put_layers(arena, structure, nodes);
    put_differences(arena, structure, "ends", &nodes->ends);
    tree_put_int(arena, structure, "nodes", nodes->count);
    Tree *list = tree_put_list(arena, structure, "differences");
    for (int i = 0; i < nodes->count; i++) {
        const NodePair *pair = &nodes->pairs[i];
        if (pair->a && pair->b && pair->differences.count == 0) continue;
        Tree *row = tree_add_map(arena, list);
        tree_put_string(arena, row, "node", pair->name);
        tree_put_string(arena, row, "change",
                        !pair->b   ? "removed"
                        : !pair->a ? "added"
                                   : "changed");
        if (pair->a && pair->b)
            put_differences(arena, row, "differences", &pair->differences);
        else
            tree_put_string(arena, row, "op", (pair->a ? pair->a : pair->b)->op->name);
    }
}

static void put_lineage(Arena *arena, Tree *map, const char *key,
                        const Lineage *lineage) {
    Text text = {0};
    lineage_print(&text, lineage);
    tree_put_string(arena, map, key, text.data);
    text_free(&text);
}

static const char *storage_shape(Arena *arena, const Storage *storage) {
    char text[SHAPE_TEXT_BYTES];
    if (!storage) return NULL;
    return arena_strdup(arena,
                        shape_text(text, storage->tensor.rank, storage->tensor.dim));
}

static const char *storage_form(Arena *arena, const Storage *storage) {
    char text[FORM_TEXT_BYTES];
    return storage ? arena_strdup(arena, tensor_form_text(text, &storage->tensor)) : NULL;
}

static void put_pair(Arena *arena, Tree *list, const StoragePair *pair) {
    const Storage *a = pair->a, *b = pair->b;
    Tree *row = tree_add_map(arena, list);
    if (pair->where) tree_put_string(arena, row, "where", pair->where);
    tree_put_string(arena, row, "change", storage_change_name(pair->change));
    put_texts(arena, row, "names", a ? a->name : NULL, b ? b->name : NULL);
    put_texts(arena, row, "dtypes", storage_form(arena, a), storage_form(arena, b));
    put_texts(arena, row, "shapes", storage_shape(arena, a), storage_shape(arena, b));
    if (pair->measured) {
        tree_put_real(arena, row, "relative_error", pair->relative);
        tree_put_real(arena, row, "largest_difference", pair->largest);
    }
    if (pair->merged > 1) tree_put_int(arena, row, "merged", pair->merged);
    if (pair->split > 1) tree_put_int(arena, row, "split", pair->split);
    if (pair->change != STORAGE_CUT) return;
    Tree *kept = tree_put_map(arena, row, "kept");
    for (int axis = 0; axis < b->tensor.rank; axis++)
        if (pair->kept[axis].count > 0)
            put_lineage(arena, kept, arena_printf(arena, "%d", axis), &pair->kept[axis]);
    tree_put_string(arena, row, "kept_by", pair->by_values ? "values" : "lineage");
    if (pair->heads > 0) put_lineage(arena, row, "kept_heads", &pair->kept_heads);
}

static void put_storages(Arena *arena, Tree *map, const StorageComparison *storages) {
    Tree *part = tree_put_map(arena, map, "storages");
    for (int i = 0; i < STORAGE_CHANGE_COUNT; i++)
        tree_put_int(arena, part, storage_change_name((StorageChange)i),
                     storages->counts[i]);
    Tree *list = tree_put_list(arena, part, "differences");
    for (int i = 0; i < storages->count; i++)
        if (storages->pairs[i].change != STORAGE_EQUAL || storages->pairs[i].merged > 1 ||
            storages->pairs[i].split > 1)
            put_pair(arena, list, &storages->pairs[i]);
}

static void put_outputs(Arena *arena, Tree *map, const OutputComparison *outputs) {
    Tree *part = tree_put_map(arena, map, "outputs");
    tree_put_string(arena, part, "inputs", outputs->inputs);
    Tree *list = tree_put_list(arena, part, "outputs");
    for (int i = 0; i < outputs->count; i++) {
        const OutputPair *pair = &outputs->pairs[i];
        Tree *row = tree_add_map(arena, list);
        tree_put_string(arena, row, "name", pair->name);
        tree_put_bool(arena, row, "equal", !pair->differs);
        if (pair->reason) {
            tree_put_string(arena, row, "not_compared", pair->reason);
            continue;
        }
        tree_put_real(arena, row, "relative_error", pair->relative);
        tree_put_real(arena, row, "largest_difference", pair->largest);
        if (pair->agreement >= 0)
            tree_put_real(arena, row, "same_largest", pair->agreement);
    }
}

Tree *comparison_tree(Arena *arena, const Comparison *it) {
    const struct {
        const char *name;
        bool differs;
    } parts[] = {{"structure", it->structure_differs},
                 {"storages", it->storages_differ},
                 {"outputs", it->outputs_differ},
                 {"config", it->config_differs}};
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    put_texts(arena, map, "models", it->path[0], it->path[1]);
    tree_put_bool(arena, map, "equal", !it->differs);
    Tree *different = tree_put_list(arena, map, "different");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].differs) tree_add_string(arena, different, parts[i].name);
    put_sizes(arena, map, it);
    put_structure(arena, map, &it->nodes);
    if (it->has_storages) put_storages(arena, map, &it->storages);
    if (it->has_outputs) put_outputs(arena, map, &it->outputs);
    if (it->has_config) put_differences(arena, map, "config", &it->config);
    return map;
}
