/* Gathering what is told of a model, and the same as a tree. */
#include "session/inspection.h"

#include "io/formats/model_config.h"
#include "session/report/report.h"

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
    out->stacks = ARENA_ARRAY(arena, const char *, STACKS_MAX);
    for (const Node *node = graph->first; node; node = node->next) {
        bool known = !node->stack || out->stack_count == STACKS_MAX;
        for (int i = 0; i < out->stack_count && !known; i++)
            known = strcmp(out->stacks[i], node->stack) == 0;
        if (!known) out->stacks[out->stack_count++] = node->stack;
    }
    return STATUS_OK;
}

/* ---- as a tree ---- */

static void put_type(Arena *arena, Tree *map, const Type *type) {
    Text text = {0};
    type_print(&text, type);
    tree_put_string(arena, map, "type", text.data);
    text_free(&text);
}

static Tree *new_map(Arena *arena) {
    return tree_new(arena, TREE_MAP, LOC_NONE);
}

/* Appends a new list under `key` and returns it. */
static Tree *put_list(Arena *arena, Tree *map, const char *key) {
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    tree_append(arena, map, key, LOC_NONE, list);
    return list;
}

static void put_ends(Arena *arena, Tree *map, const Graph *graph) {
    Tree *inputs = put_list(arena, map, "inputs");
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node->name) continue;
        Tree *input = new_map(arena);
        tree_put_string(arena, input, "name", node->name);
        put_type(arena, input, &node->type);
        tree_append(arena, inputs, NULL, LOC_NONE, input);
    }
    Tree *outputs = put_list(arena, map, "outputs");
    for (int i = 0; i < graph->output_count; i++) {
        Tree *output = new_map(arena);
        tree_put_string(arena, output, "name", graph->outputs[i].name);
        put_type(arena, output, &graph->outputs[i].node->type);
        tree_append(arena, outputs, NULL, LOC_NONE, output);
    }
}

static Tree *node_tree(Arena *arena, const Node *node) {
    Tree *map = new_map(arena);
    tree_put_string(arena, map, "op", node->op->name);
    if (node->role != ROLE_NONE)
        tree_put_string(arena, map, "role", role_name(node->role));
    put_type(arena, map, &node->type);
    if (node->op->fields)
        tree_append(arena, map, "attributes", LOC_NONE,
                    fields_to_tree(arena, node->op->fields, node->attrs));
    Tree *storages = new_map(arena);
    for (int i = 0; i < node->in_count; i++) {
        const char *name = operand_name(node->op, i);
        if (node->in[i] && node->in[i]->storage && !tree_get(storages, name))
            tree_put_string(arena, storages, name, node->in[i]->storage->name);
    }
    tree_append(arena, map, "storages", LOC_NONE, storages);
    return map;
}

/* The nodes of one place as a list. */
static Tree *place_tree(Arena *arena, const Graph *graph, const char *stack, int layer) {
    Tree *nodes = tree_new(arena, TREE_LIST, LOC_NONE);
    for (const Node *node = graph->first; node; node = node->next)
        if (node->stack && node->layer == layer && strcmp(node->stack, stack) == 0)
            tree_append(arena, nodes, NULL, LOC_NONE, node_tree(arena, node));
    return nodes;
}

static void put_stacks(const Inspection *it, Tree *map) {
    Arena *arena = it->arena;
    const Graph *graph = it->model->graph;
    Tree *stacks = put_list(arena, map, "stacks");
    for (int s = 0; s < it->stack_count; s++) {
        Tree *stack = new_map(arena);
        tree_put_string(arena, stack, "name", it->stacks[s]);
        Tree *layers = put_list(arena, stack, "layers");
        int count = graph_layer_count(graph, it->stacks[s]);
        for (int layer = 0; layer < count; layer++)
            tree_append(arena, layers, NULL, LOC_NONE,
                        place_tree(arena, graph, it->stacks[s], layer));
        tree_append(arena, stack, "nodes", LOC_NONE,
                    place_tree(arena, graph, it->stacks[s], -1));
        tree_append(arena, stacks, NULL, LOC_NONE, stack);
    }
}

/* What pruning left of the original's indices: ranges [first, last] by axis. */
static void put_kept(Arena *arena, Tree *entry, const Storage *storage) {
    Tree *map = new_map(arena);
    for (int axis = 0; axis < storage->tensor.rank; axis++) {
        const Lineage *kept = &storage->kept[axis];
        if (kept->count == 0) continue;
        Tree *ranges = put_list(arena, map, arena_printf(arena, "%d", axis));
        for (int i = 0; i < kept->count; i++) {
            Tree *range = tree_new(arena, TREE_LIST, LOC_NONE);
            tree_add_int(arena, range, kept->ranges[i].first);
            tree_add_int(arena, range, kept->ranges[i].last);
            tree_append(arena, ranges, NULL, LOC_NONE, range);
        }
    }
    if (map->first) tree_append(arena, entry, "kept", LOC_NONE, map);
}

/* What is known of a storage's posterior; nothing where there is none. */
static void put_posterior(Arena *arena, Tree *entry, const Storage *storage) {
    const Gaussian *g = storage->gaussian;
    if (!g) return;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, map, "form", gaussian_form_name(g->form));
    if (gaussian_samples(g) > 0) tree_put_int(arena, map, "samples", gaussian_samples(g));
    tree_put_string(arena, map, "dtype", dtype_name(g->mean.dtype));
    tree_put_int(arena, map, "bytes", (int64_t)gaussian_bytes(g));
    tree_put_string(arena, map, "model", g->origin);
    tree_append(arena, entry, "posterior", LOC_NONE, map);
}

static void put_storages(const Inspection *it, Tree *map) {
    Arena *arena = it->arena;
    Tree *list = put_list(arena, map, "storages");
    for (int i = 0; i < it->storage_count; i++) {
        const StorageUse *use = &it->storages[i];
        const Tensor *tensor = &use->storage->tensor;
        Tree *entry = new_map(arena);
        tree_put_string(arena, entry, "name", use->storage->name);
        char form[FORM_TEXT_BYTES];
        tree_put_string(arena, entry, "dtype", tensor_form_text(form, tensor));
        Tree *shape = put_list(arena, entry, "shape");
        for (int d = 0; d < tensor->rank; d++) tree_add_int(arena, shape, tensor->dim[d]);
        tree_put_int(arena, entry, "parameters", tensor_count(tensor));
        tree_put_int(arena, entry, "bytes", (int64_t)tensor_stored_bytes(tensor));
        tree_put_int(arena, entry, "users", use->users);
        put_kept(arena, entry, use->storage);
        put_posterior(arena, entry, use->storage);
        tree_append(arena, list, NULL, LOC_NONE, entry);
    }
}

Tree *inspection_tree(const Inspection *it) {
    Arena *arena = it->arena;
    Tree *map = new_map(arena);
    const Tree *type = tree_get(it->model->config, "model_type");
    if (it->path) tree_put_string(arena, map, "path", it->path);
    if (type && type->kind == TREE_STRING)
        tree_put_string(arena, map, "model_type", type->string);
    tree_put_string(arena, map, "task", task_name(graph_task(it->model->graph)));
    put_ends(arena, map, it->model->graph);
    put_stacks(it, map);
    put_storages(it, map);
    Tree *totals = new_map(arena);
    tree_put_string(arena, totals, "sample", it->measure.input);
    measure_put(arena, totals, &it->measure);
    tree_append(arena, map, "totals", LOC_NONE, totals);
    const Tree *config = model_config_now(arena, it->model);
    tree_append(arena, map, "config", LOC_NONE, tree_copy(arena, config));
    if (config != it->model->config)
        tree_append(arena, map, "config_original", LOC_NONE,
                    tree_copy(arena, it->model->config));
    tree_append(arena, map, "provenance", LOC_NONE,
                tree_copy(arena, it->model->provenance));
    return map;
}
