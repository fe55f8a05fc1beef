/* Keep: see calibration_keep.h. */
#include "passes/oneshot/calibration_keep.h"

#include "ir/rewrite.h"

#include <stdlib.h>
#include <string.h>

/* Sizes that widths are compared at. */
static const int64_t SIZES[DIM_SYMBOLS] = {1, 64, 64, 8};

void kept_free(Kept *kept) {
    for (int i = 0; i < kept->count && kept->values; i++) {
        for (int64_t c = 0; c < kept->chunks; c++) free(kept->values[i][c]);
        free(kept->values[i]);
    }
    free(kept->values);
    *kept = (Kept){0};
}

bool kept_fits(const Kept *kept, const Graph *graph) {
    int found = 0;
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < kept->count; i++)
            found += kept->nodes[i] == node && type_equal(&kept->types[i], &node->type);
    return found == kept->count;
}

/* ---- where to keep ---- */

/* Numbers that a value has at SIZES; 0 where it cannot be kept. */
static int64_t width_of(const Node *node) {
    Type bound;
    if (node->type.dtype != DTYPE_F32 || !type_bind(&node->type, SIZES, &bound)) return 0;
    return type_count(&bound);
}

/* What is known of the nodes, by id. */
typedef struct Survey {
    bool *varies; /* computed, and depends on an input */
    int *last;    /* the last node that reads it, -1 = none */
} Survey;

static void survey(Survey *s, Arena *arena, const Graph *graph) {
    s->varies = ARENA_ARRAY(arena, bool, (size_t)graph->node_count);
    s->last = ARENA_ARRAY(arena, int, (size_t)graph->node_count);
    for (const Node *node = graph->first; node; node = node->next) {
        s->last[node->id] = -1;
        for (int i = 0; i < node->in_count; i++) {
            if (!node->in[i]) continue;
            const Node *in = node->in[i];
            s->last[in->id] = node->id;
            s->varies[node->id] |= node_is_input(in) || s->varies[in->id];
        }
    }
}

static bool crosses(const Survey *s, const Node *node, int place) {
    return s->varies[node->id] && node->id < place && s->last[node->id] >= place;
}

/* Numbers that cross each place, in front of the node of that id; 0 where nothing does or
 * something cannot be kept. */
static int64_t *widths(const Survey *s, Arena *arena, const Graph *graph) {
    const int count = graph->node_count;
    int64_t *sum = ARENA_ARRAY(arena, int64_t, (size_t)count + 1);
    int64_t *barred = ARENA_ARRAY(arena, int64_t, (size_t)count + 1);
    for (const Node *node = graph->first; node; node = node->next) {
        if (!s->varies[node->id] || s->last[node->id] < 0) continue;
        const int64_t width = width_of(node);
        sum[node->id + 1] += width;
        sum[s->last[node->id] + 1] -= width;
        barred[node->id + 1] += width == 0;
        barred[s->last[node->id] + 1] -= width == 0;
    }
    for (int i = 1; i <= count; i++) {
        sum[i] += sum[i - 1];
        barred[i] += barred[i - 1];
    }
    for (int i = 0; i <= count; i++)
        if (barred[i]) sum[i] = 0;
    return sum;
}

void kept_find(Kept *out, Arena *arena, Graph *graph, const Kept *now,
               Node *const *values, int count, bool behind, int64_t chunks) {
    const int nodes = graph_number(graph);
    int end = behind ? 0 : nodes, first = 0, place = 0;
    Survey s;
    survey(&s, arena, graph);
    const int64_t *width = widths(&s, arena, graph);
    for (int i = 0; i < count; i++) {
        const int id = values[i]->id;
        if (behind ? id + 1 > end : id < end) end = behind ? id + 1 : id;
    }
    for (int i = 0; i < now->count; i++)
        if (now->nodes[i]->id >= first) first = now->nodes[i]->id + 1;
    for (int i = first; i <= end; i++)
        if (width[i] > 0 && (!place || width[i] <= width[place])) place = i;
    *out = (Kept){.chunks = chunks};
    if (!place || place == first) return;
    out->nodes = ARENA_ARRAY(arena, Node *, (size_t)nodes);
    out->types = ARENA_ARRAY(arena, Type, (size_t)nodes);
    for (Node *node = graph->first; node; node = node->next) {
        if (!crosses(&s, node, place)) continue;
        out->types[out->count] = node->type;
        out->nodes[out->count++] = node;
    }
    out->values = memory_alloc((size_t)out->count, sizeof *out->values);
    for (int i = 0; i < out->count; i++)
        out->values[i] = memory_alloc((size_t)chunks, sizeof *out->values[i]);
}

size_t kept_bytes(Node *const *values, int count, const Batches *data, int64_t samples) {
    int64_t most = 0;
    for (int i = 0; i < count; i++)
        if (node_width(values[i]) > most) most = node_width(values[i]);
    const int64_t tokens = data->length ? data->max_tokens : 1;
    const int64_t bytes = 2 * samples * tokens * most * (int64_t)sizeof(float);
    return (size_t)(bytes < 2 * KEPT_BYTES ? bytes : 2 * KEPT_BYTES);
}

/* ---- starting from it ---- */

void kept_graph(KeptGraph *out, Arena *arena, Graph *graph, const Kept *kept,
                Node *const *results, int count) {
    Graph *copy = out->graph = graph_copy(arena, graph);
    Node **twins = ARENA_ARRAY(arena, Node *, (size_t)graph_number(graph));
    graph_number(copy);
    for (Node *node = copy->first; node; node = node->next) twins[node->id] = node;
    while (copy->output_count > 0) graph_remove_output(copy, copy->outputs[0].name);
    out->inputs = ARENA_ARRAY(arena, Node *, (size_t)kept->count + 1);
    for (int i = 0; i < kept->count; i++) {
        Node **twin = &twins[kept->nodes[i]->id];
        char name[32];
        snprintf(name, sizeof name, "kept value %d", i);
        out->inputs[i] = graph_input(copy, name, &(*twin)->type);
        graph_replace_uses(copy, *twin, out->inputs[i]);
        *twin = out->inputs[i];
    }
    out->results = ARENA_ARRAY(arena, Node *, (size_t)count + 1);
    for (int i = 0; i < count; i++) {
        out->results[i] = twins[results[i]->id];
        graph_set_output(copy, arena_printf(arena, "result %d", i), out->results[i]);
    }
    graph_remove_dead(copy);
}
