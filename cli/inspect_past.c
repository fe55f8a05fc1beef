/* What a model tells of its past: layers and units of the original that are left, and the
 * steps that made it. But for the lineages all comes from the provenance, which may hold
 * anything. */
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

/* What pruning left at a place: the lineages seen, each told at the first role that has
 * it: keys, values and the output projection keep what the queries keep. */
typedef struct PlaceLineages {
    Text text;
    const Lineage **seen;
    int count;
} PlaceLineages;

/* Appends " q=[0-15, 48-63]"; of many ranges the first ones and how many there are. */
static void add_weight(PlaceLineages *place, const Node *node, const Storage *storage) {
    for (int axis = 0; axis < storage->tensor.rank; axis++) {
        const Lineage *kept = &storage->kept[axis];
        bool known = kept->count == 0;
        for (int i = 0; i < place->count && !known; i++)
            known = same_lineage(place->seen[i], kept);
        if (known) continue;
        place->seen[place->count++] = kept;
        Text *text = &place->text;
        Lineage shown = *kept;
        if (shown.count > RANGES_SHOWN) shown.count = RANGES_SHOWN;
        text_add(text, " %s=", node->role ? role_name(node->role) : node->op->name);
        lineage_print(text, &shown);
        if (shown.count == kept->count) continue;
        text->data[--text->length] = 0; /* the bracket */
        text_add(text, ", ...: %lld in %d ranges]", (long long)lineage_size(kept),
                 kept->count);
    }
}

static void print_place_lineages(const Inspection *it, PlaceLineages *place,
                                 const char *stack, int layer, bool *titled) {
    place->count = 0;
    for (const Node *node = it->model->graph->first; node; node = node->next) {
        if (!node->stack || node->layer != layer || strcmp(node->stack, stack) != 0)
            continue;
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] && node->in[i]->storage)
                add_weight(place, node, node->in[i]->storage);
    }
    if (!place->text.data) return;
    if (!*titled) printf("\nkept by pruning (indices of the original model)\n");
    *titled = true;
    if (layer >= 0)
        printf("  %s.%d%s\n", stack, layer, place->text.data);
    else
        printf("  %s%s\n", stack, place->text.data);
    text_free(&place->text);
}

void print_lineages(const Inspection *it) {
    PlaceLineages place = {0};
    bool titled = false;
    place.seen = ARENA_ARRAY(it->arena, const Lineage *,
                             RANK_MAX *((size_t)it->storage_count + 1));
    for (int s = 0; s < it->stack_count; s++) {
        const int layers = graph_layer_count(it->model->graph, it->stacks[s]);
        for (int layer = -1; layer < layers; layer++)
            print_place_lineages(it, &place, it->stacks[s], layer, &titled);
    }
}

/* ---- steps ---- */

static void print_step(Arena *arena, int index, const Tree *step) {
    const Tree *label = tree_get(step, "label");
    const Tree *count = tree_get(step, "parameters");
    const Tree *record = tree_get(step, "record");
    static const char *const METRICS[] = {"accuracy", "f1_micro", "mse", "exact_match"};
    double share;
    printf("  %d %s", index, safe_string(arena, tree_get(step, "pass")));
    if (tree_get(step, "plugin"))
        printf(" of plug-in %s", safe_string(arena, tree_get(step, "plugin")));
    if (label) printf(" (%s)", safe_string(arena, label));
    if (count && count->kind == TREE_INT)
        printf(": %s parameters", text_grouped(arena, count->integer));
    for (size_t i = 0; i < sizeof METRICS / sizeof *METRICS; i++) {
        const Tree *metric = tree_get(record, METRICS[i]);
        if (metric && metric->kind == TREE_FLOAT)
            printf(", %s %.4f", METRICS[i], metric->real);
    }
    if (tree_number(tree_get(record, "flops_share"), &share))
        printf(", %.4f of the FLOPs", share);
    printf("\n");
}

void print_history(const Inspection *it) {
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
