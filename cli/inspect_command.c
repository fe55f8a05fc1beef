/* compress inspect: structure, storages, totals and past of a model, for people. */
#include "cli/command.h"
#include "cli/inspect.h"
#include "cli/text_table.h"
#include "exec/ops.h"
#include "io/formats/load.h"
#include "ir/irtext.h"

#include <string.h>

/* ---- exits ---- */

/* Appends "1.016", or "1.1 to 1.3" where exits have thresholds of their own. */
static bool add_thresholds(Text *text, const Tree *thresholds) {
    double least = 0, most = 0, value;
    if (!thresholds || thresholds->kind != TREE_MAP || !thresholds->first) return false;
    for (const Tree *t = thresholds->first; t; t = t->next) {
        if (!tree_number(t, &value)) return false;
        if (t == thresholds->first || value < least) least = value;
        if (t == thresholds->first || value > most) most = value;
    }
    text_add(text, "%.4g", least);
    if (most > least) text_add(text, " to %.4g, exit by exit", most);
    return true;
}

/* Appends what the stored rule says. */
static void add_rule(Text *text, const Tree *rule) {
    const Tree *criterion = tree_get(rule, "criterion");
    const char *name =
        criterion && criterion->kind == TREE_STRING ? criterion->string : "";
    double patience;
    if (!rule) {
        text_add(text, "no rule is stored: samples run to the end");
    } else if (strcmp(name, "entropy") == 0) {
        text_add(text, "a sample leaves where the entropy in nats is below ");
        if (!add_thresholds(text, tree_get(rule, "thresholds"))) text_add(text, "?");
    } else if (strcmp(name, "patience") == 0 &&
               tree_number(tree_get(rule, "patience"), &patience)) {
        text_add(text,
                 "patience %.0f: a sample leaves after so many exits in a row that agree "
                 "with the one before",
                 patience);
    } else {
        text_add(text, "the stored rule is not understood");
    }
}

static void print_exits(const Inspection *it) {
    const Graph *graph = it->model->graph;
    int count = 0;
    for (int i = 0; i < graph->output_count; i++)
        count += strncmp(graph->outputs[i].name, "exit.", 5) == 0;
    if (count == 0) return;
    Text text = {0};
    add_rule(&text, tree_get_nonnull(it->model->provenance, "exits"));
    printf("%-12s %d; %s\n", "early exits", count, text.data);
    text_free(&text);
}

/* ---- posterior ---- */

/* Appends ", 12 low_rank" for a form that occurs. */
static void add_form(Text *text, const Inspection *it, GaussianForm form) {
    int count = 0;
    int64_t samples = 0;
    for (int i = 0; i < it->storage_count; i++) {
        const Gaussian *g = it->storages[i].storage->gaussian;
        if (!g || g->form != form) continue;
        count++;
        samples = gaussian_samples(g);
    }
    if (count == 0) return;
    text_add(text, "%s%d %s", text->length ? ", " : "", count, gaussian_form_name(form));
    if (samples > 0) text_add(text, " of %lld samples", (long long)samples);
}

/* What is known of the weights' posterior; nothing where there is none. */
static void print_posterior(const Inspection *it) {
    const Gaussian *first = NULL;
    int64_t elements = 0, bytes = 0;
    Text text = {0};
    for (int i = 0; i < it->storage_count; i++) {
        const Gaussian *g = it->storages[i].storage->gaussian;
        if (!g) continue;
        if (!first) first = g;
        elements += tensor_count(&g->mean);
        bytes += (int64_t)gaussian_bytes(g);
    }
    if (!first) return;
    for (int form = 0; form < GAUSSIAN_FORM_COUNT; form++)
        add_form(&text, it, (GaussianForm)form);
    printf("%-12s %s of the parameters: %s; %s bytes; of model %s\n", "posterior",
           text_grouped(it->arena, elements), text.data, text_grouped(it->arena, bytes),
           first->origin);
    text_free(&text);
}

/* ---- structure, storages, totals ---- */

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
    printf("%-7s %s\n", "task", task_name(graph_task(graph)));
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
    if (heads < 0 && matrix && node->type.rank > 0 && !node_has_trait(node, OP_TENSOR))
        text_add(text, " %s=%lld", node->role ? role_name(node->role) : node->op->name,
                 (long long)node->type.dim[node->type.rank - 1]);
    if (shared && (matrix || heads >= 0)) text_add(text, "*");
}

/* One line for a place: its nodes with matrices, those between stages left out. */
static void print_place(const Inspection *it, const char *stack, int layer) {
    Text text = {0};
    int plain = 0; /* ops on tensors: see io/onnx/lift/lift_plain.h */
    for (const Node *node = it->model->graph->first; node; node = node->next) {
        if (!node->stack || node->layer != layer || strcmp(node->stack, stack) != 0 ||
            node->role == ROLE_MERGE_OUT)
            continue;
        describe_node(it, &text, node);
        plain += node_has_trait(node, OP_TENSOR);
    }
    if (plain) text_add(&text, " plain=%d", plain);
    if (text.data && layer >= 0 && strcmp(stack, STACK_EXITS) == 0)
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

/* Whether there is an exit behind a layer. */
static bool has_exit(const Inspection *it, int layer) {
    for (const Node *node = it->model->graph->first; node; node = node->next)
        if (node_is_in(node, STACK_EXITS, layer)) return true;
    return false;
}

/* "encoder (6 layers; 0, 2 of the original)", or "exits (3)". */
static void print_stack_head(const Inspection *it, const char *stack, int layers) {
    int exits = 0;
    for (int layer = 0; layer < layers; layer++) exits += has_exit(it, layer);
    printf("\n%s", stack);
    if (strcmp(stack, STACK_EXITS) == 0)
        printf(" (%d)", exits);
    else if (layers > 0)
        printf(" (%d layer%s%s)", layers, layers > 1 ? "s" : "",
               original_layers(it, stack));
    printf("\n");
}

static void print_stacks(const Inspection *it) {
    bool shared = false;
    for (int i = 0; i < it->storage_count; i++) shared |= it->storages[i].layers > 1;
    for (int s = 0; s < it->stack_count; s++) {
        int layers = graph_layer_count(it->model->graph, it->stacks[s]);
        print_stack_head(it, it->stacks[s], layers);
        print_place(it, it->stacks[s], -1);
        /* Layers in order, and between them what leads to the next stage. */
        for (int layer = 0, stage = 0; layer <= layers; layer++) {
            const int end = graph_layer_stage(it->model->graph, it->stacks[s], layer);
            while (stage < end) print_stage(it, it->stacks[s], ++stage);
            if (layer < layers) print_place(it, it->stacks[s], layer);
        }
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
        char shape[SHAPE_TEXT_BYTES], form[FORM_TEXT_BYTES];
        table_add(&table, "%s", use->storage->name);
        table_add(&table, "%s", tensor_form_text(form, tensor));
        table_add(&table, "%s", shape_text(shape, tensor->rank, tensor->dim));
        table_add(&table, "%s",
                  text_grouped(it->arena, (int64_t)tensor_stored_bytes(tensor)));
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
    print_exits(it);
    print_posterior(it);
}

Status command_inspect(const Cli *cli, Diag *diag) {
    Model *model = NULL;
    Inspection it;
    TRY(model_load(&model, cli->args[0], ops_table(), false, diag));
    Status status = inspection_make(&it, cli->arena, cli->args[0], model, diag);
    if (status == STATUS_OK && cli->flags.json) {
        Text text = {0};
        tree_print_json(&text, inspection_tree(&it), 2);
        puts(text.data);
        text_free(&text);
    } else if (status == STATUS_OK) {
        print_head(&it);
        print_stacks(&it);
        print_lineages(&it);
        print_storages(&it);
        print_totals(&it);
        print_history(&it);
    }
    model_destroy(model);
    return status;
}
