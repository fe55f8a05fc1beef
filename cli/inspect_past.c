/* What `compress inspect` tells of a model's past: the layers and indices of the original
 * that are left, the stored rule for leaving at exits, the steps. All of it but the
 * lineages comes from the provenance, which may hold anything. */
#include "cli/inspect.h"
#include "cli/text_table.h"

#include <string.h>

#define RANGES_SHOWN 8

const char *safe_string(Arena *arena, const Tree *tree) {
    if (!tree || tree->kind != TREE_STRING) return "?";
    return text_clean(arena_strdup(arena, tree->string));
}

/* ---- layers ---- */

const char *original_layers(const Inspection *it, const char *stack) {
    const Tree *layers = tree_get(tree_get(it->model->provenance, "layers"), stack);
    if (!layers || layers->kind != TREE_LIST || layers->count == 0) return "";
    Text text = {0};
    for (const Tree *layer = layers->first; layer; layer = layer->next) {
        if (layer->kind != TREE_INT) break;
        text_add(&text, "%s%lld", layer == layers->first ? "" : ", ",
                 (long long)layer->integer);
    }
    const char *copy =
        text.data ? arena_printf(it->arena, "; %s of the original", text.data) : "";
    text_free(&text);
    return copy;
}

/* ---- lineages ---- */

static bool same_lineage(const Lineage *a, const Lineage *b) {
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (a->ranges[i].first != b->ranges[i].first ||
            a->ranges[i].last != b->ranges[i].last)
            return false;
    return true;
}

/* Appends " q=[0-15, 48-63]"; of many ranges the first ones and how many there are. */
static void add_lineage(Text *text, const Node *node, const Lineage *kept) {
    Lineage shown = *kept;
    if (shown.count > RANGES_SHOWN) shown.count = RANGES_SHOWN;
    text_add(text, " %s=", node->role ? role_name(node->role) : node->op->name);
    lineage_print(text, &shown);
    if (shown.count == kept->count) return;
    text->data[--text->length] = 0; /* the bracket */
    text_add(text, ", ...: %lld in %d ranges]", (long long)lineage_size(kept),
             kept->count);
}

/* The lineages of a place, each at the first role that has it: keys, values and the
 * output projection keep what the queries keep. */
typedef struct Kept {
    Text text;
    const Lineage **seen;
    int count;
} Kept;

static void add_weight(Kept *place, const Node *node, const Storage *storage) {
    for (int axis = 0; axis < storage->tensor.rank; axis++) {
        const Lineage *kept = &storage->kept[axis];
        bool known = kept->count == 0;
        for (int i = 0; i < place->count && !known; i++)
            known = same_lineage(place->seen[i], kept);
        if (known) continue;
        place->seen[place->count++] = kept;
        add_lineage(&place->text, node, kept);
    }
}

static void add_place(Kept *place, const Inspection *it, const char *stack, int layer) {
    place->count = 0;
    for (const Node *node = it->model->graph->first; node; node = node->next) {
        if (!node->stack || node->layer != layer || strcmp(node->stack, stack) != 0)
            continue;
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && node->in[i]->storage)
                add_weight(place, node, node->in[i]->storage);
    }
}

static void print_kept(const Inspection *it, Kept *place, const char *stack, int layer,
                       bool *titled) {
    add_place(place, it, stack, layer);
    if (place->text.data) {
        if (!*titled) printf("\nkept by pruning (indices of the original model)\n");
        *titled = true;
        if (layer >= 0)
            printf("  %s.%d%s\n", stack, layer, place->text.data);
        else
            printf("  %s%s\n", stack, place->text.data);
    }
    text_free(&place->text);
}

void inspect_print_kept(const Inspection *it) {
    Kept place = {0};
    bool titled = false;
    place.seen = ARENA_ARRAY(it->arena, const Lineage *,
                             RANK_MAX *((size_t)it->storage_count + 1));
    for (int s = 0; s < it->stack_count; s++) {
        const int layers = graph_layer_count(it->model->graph, it->stacks[s]);
        for (int layer = -1; layer < layers; layer++)
            print_kept(it, &place, it->stacks[s], layer, &titled);
    }
}

/* ---- exits ---- */

static bool read_number(const Tree *value, double *number) {
    if (!value || (value->kind != TREE_INT && value->kind != TREE_FLOAT)) return false;
    *number = value->kind == TREE_INT ? (double)value->integer : value->real;
    return true;
}

/* Appends "1.016", or "1.1 to 1.3" where exits have thresholds of their own. */
static bool add_thresholds(Text *text, const Tree *thresholds) {
    double least = 0, most = 0, value;
    if (!thresholds || thresholds->kind != TREE_MAP || !thresholds->first) return false;
    for (const Tree *t = thresholds->first; t; t = t->next) {
        if (!read_number(t, &value)) return false;
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
               read_number(tree_get(rule, "patience"), &patience)) {
        text_add(text,
                 "patience %.0f: a sample leaves after so many exits in a row that agree "
                 "with the one before",
                 patience);
    } else {
        text_add(text, "the stored rule is not understood");
    }
}

void inspect_print_exits(const Inspection *it) {
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

/* ---- steps ---- */

static void print_step(Arena *arena, int index, const Tree *step) {
    const Tree *label = tree_get(step, "label");
    const Tree *count = tree_get(step, "parameters");
    const Tree *record = tree_get(step, "record");
    const Tree *accuracy = tree_get(record, "accuracy");
    double share;
    printf("  %d %s", index, safe_string(arena, tree_get(step, "pass")));
    if (label) printf(" (%s)", safe_string(arena, label));
    if (count && count->kind == TREE_INT)
        printf(": %s parameters", text_grouped(arena, count->integer));
    if (accuracy && accuracy->kind == TREE_FLOAT)
        printf(", accuracy %.4f", accuracy->real);
    if (read_number(tree_get(record, "flops_share"), &share))
        printf(", %.4f of the FLOPs", share);
    printf("\n");
}

void inspect_print_history(const Inspection *it) {
    const Tree *steps = tree_get(it->model->provenance, "steps");
    const Tree *input = tree_get(it->model->provenance, "input_hash");
    if (!steps || steps->kind != TREE_LIST || !steps->first) return;
    printf("\nmade by");
    if (input) printf(" (input %s)", safe_string(it->arena, input));
    printf("\n");
    int index = 0;
    for (const Tree *step = steps->first; step; step = step->next)
        print_step(it->arena, ++index, step);
}
