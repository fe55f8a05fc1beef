/* compress inspect: structure, storages and totals for people. */
#include "cli/commands.h"
#include "cli/inspect.h"
#include "cli/text_table.h"
#include "exec/ops.h"
#include "io/formats/load.h"

#include <string.h>

static void print_type(const char *label, const char *name, const Type *type) {
    Text text = {0};
    type_print(&text, type);
    printf("%-7s %s : %s\n", label, name, text.data);
    text_free(&text);
}

static void print_head(const Inspection *it) {
    const Graph *graph = it->model->graph;
    const Tree *type = tree_get(it->model->config, "model_type");
    printf("%-7s %s\n", "model", it->path);
    if (type && type->kind == TREE_STRING)
        printf("%-7s %s\n", "type", safe_string(it->arena, type));
    for (const Node *node = graph->first; node; node = node->next)
        if (node->name) print_type("input", node->name, &node->type);
    for (int i = 0; i < graph->output_count; i++)
        print_type("output", graph->outputs[i].name, &graph->outputs[i].node->type);
}

/* Appends " q=64", with '*' when a weight is shared with another layer; for attention
 * its heads and the weights that it has. Nodes with vectors alone (norms) are left out.
 */
static void describe_node(const Inspection *it, Text *text, const Node *node) {
    const int64_t heads = node->role == ROLE_ATTENTION ? node_integer(node, "heads") : -1;
    const int64_t kv_heads = node_integer(node, "kv_heads");
    bool matrix = false, shared = false;
    for (int i = 0; i < node->in_count; i++) {
        const Node *in = node->in[i];
        if (!in || !in->storage) continue;
        const StorageUse *use = inspection_use(it, in);
        matrix |= in->storage->tensor.rank >= 2;
        shared |= use->layers > 1;
        if (heads >= 0) text_add(text, " %s", operand_name(node->op, i));
    }
    if (heads >= 0) text_add(text, " heads=%lld", (long long)heads);
    if (heads >= 0 && kv_heads > 0) text_add(text, " kv_heads=%lld", (long long)kv_heads);
    if (heads < 0 && matrix && node->type.rank > 0)
        text_add(text, " %s=%lld", node->role ? role_name(node->role) : node->op->name,
                 (long long)node->type.dim[node->type.rank - 1]);
    if (shared && (matrix || heads >= 0)) text_add(text, "*");
}

/* One line for a place: its nodes with matrices, those between stages left out. */
static void print_place(const Inspection *it, const char *stack, int layer) {
    Text text = {0};
    for (const Node *node = it->model->graph->first; node; node = node->next)
        if (node->stack && node->layer == layer && strcmp(node->stack, stack) == 0 &&
            node->role != ROLE_MERGE_OUT)
            describe_node(it, &text, node);
    if (text.data && layer >= 0 && strcmp(stack, "exits") == 0)
        printf("  exit.%-4d%s\n", layer + 1, text.data);
    else if (text.data && layer >= 0)
        printf("  layer %-3d%s\n", layer, text.data);
    else if (text.data)
        printf("  %9s%s\n", "", text.data);
    text_free(&text);
}

/* One line for what stands before a stage of layers, from 1: the projection of joined
 * tokens. */
static void print_stage(const Inspection *it, const char *stack, int stage) {
    const Graph *graph = it->model->graph;
    const Node *out = graph_find(graph, stack, -1, ROLE_MERGE_OUT);
    for (int i = 1; out && i < stage; i++)
        out = graph_find_next(graph, out, stack, -1, ROLE_MERGE_OUT);
    Text text = {0};
    if (out) describe_node(it, &text, out);
    printf("  stage %-3d%s\n", stage, text.data ? text.data : "");
    text_free(&text);
}

/* Layers in order, and between them what leads to the next stage. */
static void print_layers(const Inspection *it, const char *stack, int layers) {
    for (int layer = 0, stage = 0; layer <= layers; layer++) {
        const int end = graph_layer_stage(it->model->graph, stack, layer);
        while (stage < end) print_stage(it, stack, ++stage);
        if (layer < layers) print_place(it, stack, layer);
    }
}

static void print_stacks(const Inspection *it) {
    bool shared = false;
    for (int i = 0; i < it->storage_count; i++) shared |= it->storages[i].layers > 1;
    for (int s = 0; s < it->stack_count; s++) {
        int layers = graph_layer_count(it->model->graph, it->stacks[s]);
        printf("\n%s", it->stacks[s]);
        if (layers > 0)
            printf(" (%d layer%s%s)", layers, layers > 1 ? "s" : "",
                   original_layers(it, it->stacks[s]));
        printf("\n");
        print_place(it, it->stacks[s], -1);
        print_layers(it, it->stacks[s], layers);
    }
    if (shared) printf("\n* = weights shared with another layer\n");
}

static void print_storages(const Inspection *it) {
    static const char *const heads[] = {"storage", "dtype", "shape", "bytes", "users"};
    TextTable table = table_create(it->arena, "lllrr");
    for (int i = 0; i < 5; i++) table_add(&table, "%s", heads[i]);
    for (int i = 0; i < it->storage_count; i++) {
        const StorageUse *use = &it->storages[i];
        const Tensor *tensor = &use->storage->tensor;
        char shape[SHAPE_TEXT_BYTES];
        table_add(&table, "%s", use->storage->name);
        table_add(&table, "%s", dtype_name(tensor->dtype));
        table_add(&table, "%s", shape_text(shape, tensor->rank, tensor->dim));
        table_add(&table, "%s", text_grouped(it->arena, (int64_t)tensor_bytes(tensor)));
        table_add(&table, "%d", use->users);
    }
    printf("\n");
    table_print(&table, 0, stdout);
}

static void print_totals(const Inspection *it) {
    Arena *arena = it->arena;
    const Measure *measure = &it->measure;
    printf("\n%-12s %d\n", "storages", it->storage_count);
    printf("%-12s %s\n", "parameters", text_grouped(arena, measure->parameters));
    printf("%-12s %s\n", "bytes", text_grouped(arena, measure->bytes));
    printf("%-12s %s for %s\n", "FLOPs", text_flops(arena, measure->flops),
           measure->input);
    printf("%-12s %s\n", "peak memory", text_size(arena, measure->peak_bytes));
    inspect_print_exits(it);
    inspect_print_posterior(it);
}

static void print_json(const Inspection *it) {
    Text text = {0};
    tree_print_json(&text, inspection_tree(it), 2);
    puts(text.data);
    text_free(&text);
}

static void print_people(const Inspection *it) {
    print_head(it);
    print_stacks(it);
    inspect_print_kept(it);
    print_storages(it);
    print_totals(it);
    inspect_print_history(it);
}

Status command_inspect(const Cli *cli, Diag *diag) {
    Model *model = NULL;
    Inspection it;
    TRY(model_load(&model, cli->args[0], ops_table(), false, diag));
    Status status = inspection_make(&it, cli->arena, cli->args[0], model, diag);
    if (status == STATUS_OK && cli->flags.json)
        print_json(&it);
    else if (status == STATUS_OK)
        print_people(&it);
    model_destroy(model);
    return status;
}
