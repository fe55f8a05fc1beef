/* Matching two graphs: layers first, then nodes by place and role.
 *
 *     layers   lineage -> number -> weights
 *     nodes    key (stack, layer of A, role or op, how manyth)
 *     pairs    in A's order, and what differs in each */
#include "session/compare/compare_nodes.h"

#include "ir/name_map.h"
#include "ir/node_names.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements of a weight that tell how similar two layers are. */
#define SIMILARITY_ELEMENTS 4096

/* Most pairs of layers that are compared by their weights. */
#define SIMILARITY_PAIRS 20000

void difference_add(Arena *arena, DifferenceList *list, const char *what, const char *a,
                    const char *b) {
    if (list->count == list->capacity) {
        const int capacity = list->capacity ? 2 * list->capacity : 4;
        Difference *items = ARENA_ARRAY(arena, Difference, (size_t)capacity);
        if (list->count > 0)
            memcpy(items, list->items, (size_t)list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = (Difference){what, a, b};
}

/* ---- layers ---- */

/* Whether the provenance tells the original number of each of `count` layers: increasing,
 * from 0. Records may hold anything. */
static bool noted_layers(const Model *model, const char *stack, int count, int *out) {
    const Tree *list = tree_get(tree_get(model->provenance, "layers"), stack);
    int i = 0;
    if (!list || list->kind != TREE_LIST || list->count != count) return false;
    for (const Tree *layer = list->first; layer; layer = layer->next, i++) {
        if (layer->kind != TREE_INT || layer->integer > INT_MAX ||
            layer->integer < (i > 0 ? out[i - 1] + 1 : 0))
            return false;
        out[i] = (int)layer->integer;
    }
    return true;
}

/* By the original numbers; a model without such a note has them all. */
static bool match_lineage(StackPair *pair, Arena *arena, const Model *a, const Model *b) {
    const int count_a = pair->layers[0], count_b = pair->layers[1];
    int *from_a = ARENA_ARRAY(arena, int, (size_t)count_a + 1);
    int *from_b = ARENA_ARRAY(arena, int, (size_t)count_b + 1);
    const bool noted_a = noted_layers(a, pair->stack, count_a, from_a);
    const bool noted_b = noted_layers(b, pair->stack, count_b, from_b);
    if (!noted_a && !noted_b) return false;
    for (int i = 0; i < count_a && !noted_a; i++) from_a[i] = i;
    for (int i = 0; i < count_b && !noted_b; i++) from_b[i] = i;
    /* who lost layers of a deeper model has none that is not there */
    if (!noted_a && count_b > 0 && from_b[count_b - 1] >= count_a) return false;
    if (!noted_b && count_a > 0 && from_a[count_a - 1] >= count_b) return false;
    for (int i = 0, j = 0; i < count_a && j < count_b;) {
        if (from_a[i] == from_b[j]) pair->of_b[j] = i;
        const bool next_a = from_a[i] <= from_b[j], next_b = from_b[j] <= from_a[i];
        i += next_a;
        j += next_b;
    }
    pair->match = LAYERS_BY_LINEAGE;
    return true;
}

static const Tensor *weight_of(const Graph *graph, const char *stack, int layer,
                               Role role) {
    const Node *node = graph_find(graph, stack, layer, role);
    const int i = node ? op_operand_index(node->op, "weight") : -1;
    if (i < 0 || !node_has(node, i) || !node->in[i]->storage) return NULL;
    const Tensor *tensor = &node->in[i]->storage->tensor;
    return tensor_data(tensor) && tensor->rank >= 2 ? tensor : NULL;
}

/* Cosine of the first elements of two tensors of one shape. */
static double cosine(const Tensor *a, const Tensor *b) {
    double x[SIMILARITY_ELEMENTS], y[SIMILARITY_ELEMENTS];
    int64_t n = tensor_count(a);
    double dot = 0, xx = 0, yy = 0;
    if (n > SIMILARITY_ELEMENTS) n = SIMILARITY_ELEMENTS;
    tensor_read_f64(a, 0, n, x);
    tensor_read_f64(b, 0, n, y);
    for (int64_t i = 0; i < n; i++) {
        dot += x[i] * y[i];
        xx += x[i] * x[i];
        yy += y[i] * y[i];
    }
    return xx > 0 && yy > 0 ? dot / sqrt(xx * yy) : xx == yy;
}

/* Mean cosine of the weights of two layers, 0 where none can be compared. */
static double similarity(const Graph *a, int i, const Graph *b, int j,
                         const char *stack) {
    double sum = 0;
    int count = 0;
    for (Role role = ROLE_NONE + 1; role < ROLE_COUNT; role++) {
        const Tensor *x = weight_of(a, stack, i, role);
        const Tensor *y = x ? weight_of(b, stack, j, role) : NULL;
        if (!y || !tensor_same_shape(x, y)) continue;
        sum += cosine(x, y);
        count++;
    }
    return count > 0 ? sum / count : 0;
}

/* The match that keeps the order, leaves no layer of the shallower model alone, and whose
 * layers are the most similar: best[i][j] is that of the first i and j layers. False
 * where nothing tells layers apart. */
static bool match_weights(StackPair *pair, Arena *arena, const Graph *a, const Graph *b) {
    const int rows = pair->layers[0], columns = pair->layers[1], stride = columns + 1;
    const size_t room = (size_t)(rows + 1) * (size_t)stride;
    if (room > SIMILARITY_PAIRS) return false;
    double *alike = ARENA_ARRAY(arena, double, room);
    double *best = ARENA_ARRAY(arena, double, room);
    bool told = false;
    for (int i = 1; i <= rows; i++)
        for (int j = 1; j <= columns; j++) {
            alike[i * stride + j] = similarity(a, i - 1, b, j - 1, pair->stack);
            told |= alike[i * stride + j] != 0;
        }
    if (!told) return false;
    for (int i = 1; i <= rows; i++)
        for (int j = 1; j <= columns; j++) {
            /* 2: a pair is worth more than none, however unlike its layers */
            const double both =
                best[(i - 1) * stride + j - 1] + 2 + alike[i * stride + j];
            const double left =
                fmax(best[(i - 1) * stride + j], best[i * stride + j - 1]);
            best[i * stride + j] = fmax(both, left);
        }
    for (int i = rows, j = columns; i > 0 && j > 0;) {
        if (best[i * stride + j] == best[(i - 1) * stride + j]) {
            i--;
        } else if (best[i * stride + j] == best[i * stride + j - 1]) {
            j--;
        } else {
            pair->of_b[--j] = --i;
        }
    }
    pair->match = LAYERS_BY_WEIGHTS;
    return true;
}

static void match_layers(StackPair *pair, Arena *arena, const Model *a, const Model *b) {
    const int count_b = pair->layers[1];
    pair->of_b = ARENA_ARRAY(arena, int, (size_t)count_b + 1);
    for (int j = 0; j < count_b; j++) pair->of_b[j] = -1;
    if (match_lineage(pair, arena, a, b)) return;
    if (pair->layers[0] != count_b && match_weights(pair, arena, a->graph, b->graph))
        return;
    for (int j = 0; j < count_b && j < pair->layers[0]; j++) pair->of_b[j] = j;
    pair->match = LAYERS_BY_NUMBER;
}

/* All stacks with layers; `by_name` finds them. */
static void match_stacks(NodeComparison *out, NameMap *by_name, Arena *arena,
                         const Model *a, const Model *b) {
    const Graph *graphs[] = {a->graph, b->graph};
    const size_t most = (size_t)(a->graph->node_count + b->graph->node_count);
    out->stacks = ARENA_ARRAY(arena, StackPair, most + 1);
    for (int side = 0; side < 2; side++)
        for (const Node *node = graphs[side]->first; node; node = node->next) {
            if (!node->stack || node->layer < 0) continue;
            StackPair *pair = name_map_get(by_name, node->stack);
            if (!pair) {
                pair = &out->stacks[out->stack_count++];
                pair->stack = node->stack;
                name_map_add(by_name, node->stack, pair);
            }
            if (node->layer >= pair->layers[side]) pair->layers[side] = node->layer + 1;
        }
    for (int i = 0; i < out->stack_count; i++) match_layers(&out->stacks[i], arena, a, b);
}

/* ---- nodes ---- */

/* What is known while nodes are matched. */
typedef struct Matching {
    Arena *arena;
    NodeComparison *out;
    NameMap stacks; /* StackPair by name */
    const Model *models[2];
    const char **names[2]; /* by Node.id */
    const Node **other[2]; /* by Node.id: the one that it is matched with */
} Matching;

/* Number of a name so far, from 1. */
static int count_name(NameMap *counts, Arena *arena, const char *name) {
    int *count = name_map_get(counts, name);
    if (!count) {
        count = ARENA_NEW(arena, int);
        name_map_add(counts, name, count);
    }
    return ++*count;
}

/* What a node is matched by. */
static const char *node_key(const Matching *m, NameMap *counts, const Node *node,
                            int side) {
    const char *what = node->role != ROLE_NONE ? role_name(node->role) : node->op->name;
    const char *key;
    int layer = node->layer;
    bool own = false; /* a layer of B that A has not */
    if (side == 1 && node->stack && layer >= 0) {
        const StackPair *stack = name_map_get(&m->stacks, node->stack);
        layer = stack->of_b[layer];
        own = layer < 0;
        if (own) layer = node->layer;
    }
    key = arena_printf(m->arena, "%s\n%s%d\n%s%s", node->stack ? node->stack : "",
                       own ? "+" : "", layer, node->role != ROLE_NONE ? "" : ":", what);
    return arena_printf(m->arena, "%s\n%d", key, count_name(counts, m->arena, key));
}

static void match_nodes(Matching *m) {
    NameMap of_a = {.arena = m->arena};
    for (int side = 0; side < 2; side++) {
        NameMap counts = {.arena = m->arena};
        for (Node *node = m->models[side]->graph->first; node; node = node->next) {
            if (node_is_leaf(node)) continue;
            const char *key = node_key(m, &counts, node, side);
            const Node *match = side ? name_map_get(&of_a, key) : NULL;
            if (side == 0) name_map_add(&of_a, key, node);
            m->other[side][node->id] = match;
            if (match) m->other[0][match->id] = node;
        }
    }
}

/* ---- what differs ---- */

static const char *kept_text(Arena *arena, Text *text) {
    const char *copy = arena_strdup(arena, text->data ? text->data : "");
    text_free(text);
    return copy;
}

static const char *type_text(Arena *arena, const Type *type) {
    Text text = {0};
    type_print(&text, type);
    return kept_text(arena, &text);
}

static const char *field_text(Arena *arena, const Field *field, const Node *node) {
    Text text = {0};
    field_print_value(&text, field, node->attrs);
    return kept_text(arena, &text);
}

static void compare_attributes(Matching *m, NodePair *pair) {
    for (const Field *field = pair->a->op->fields; field && field->name; field++) {
        const char *a = field_text(m->arena, field, pair->a);
        const char *b = field_text(m->arena, field, pair->b);
        if (strcmp(a, b) != 0)
            difference_add(m->arena, &pair->differences, field->name, a, b);
    }
}

/* Whether two operands are the same value; of weights only that both are some. */
static bool same_operand(const Matching *m, const Node *a, const Node *b) {
    if (!a || !b || node_is_leaf(a) != node_is_leaf(b)) return a == b;
    if (!node_is_leaf(a)) return m->other[0][a->id] == b;
    if (a->storage || b->storage) return a->storage && b->storage;
    return strcmp(a->name, b->name) == 0;
}

static const char *operand_text(const Matching *m, int side, const Node *in) {
    if (!in) return NULL;
    return arena_printf(m->arena, "%s%s",
                        !node_is_leaf(in) ? ""
                        : in->storage     ? "@"
                                          : "$",
                        m->names[side][in->id]);
}

static void compare_operands(Matching *m, NodePair *pair) {
    const Node *a = pair->a, *b = pair->b;
    const int declared = op_operand_count(a->op);
    const int count = a->in_count > b->in_count ? a->in_count : b->in_count;
    for (int i = 0; i < count; i++) {
        const Node *x = node_has(a, i) ? a->in[i] : NULL;
        const Node *y = node_has(b, i) ? b->in[i] : NULL;
        if (same_operand(m, x, y)) continue;
        const char *name = a->op->operands[i < declared ? i : declared - 1].name;
        difference_add(m->arena, &pair->differences, name, operand_text(m, 0, x),
                       operand_text(m, 1, y));
    }
}

static void compare_pair(Matching *m, NodePair *pair) {
    const Node *a = pair->a, *b = pair->b;
    if (a->op != b->op)
        difference_add(m->arena, &pair->differences, "op", a->op->name, b->op->name);
    if (!type_equal(&a->type, &b->type))
        difference_add(m->arena, &pair->differences, "type",
                       type_text(m->arena, &a->type), type_text(m->arena, &b->type));
    if (a->op != b->op) return;
    compare_attributes(m, pair);
    compare_operands(m, pair);
}

static void add_pair(Matching *m, const Node *a, const Node *b) {
    NodeComparison *out = m->out;
    NodePair *pair = &out->pairs[out->count++];
    *pair = (NodePair){.a = a, .b = b};
    pair->name = a ? m->names[0][a->id] : m->names[1][b->id];
    if (a && b) compare_pair(m, pair);
    out->changed += pair->differences.count > 0;
    out->removed += !b;
    out->added += !a;
}

/* Pairs in the order of A; what B has alone stands before the node of B that follows. */
static void list_pairs(Matching *m) {
    const Node *next = m->models[1]->graph->first;
    const size_t most = (size_t)(m->models[0]->graph->node_count) +
                        (size_t)m->models[1]->graph->node_count;
    m->out->pairs = ARENA_ARRAY(m->arena, NodePair, most + 1);
    for (const Node *a = m->models[0]->graph->first; a; a = a->next) {
        if (node_is_leaf(a)) continue;
        const Node *b = m->other[0][a->id];
        for (; b && next && next->id <= b->id; next = next->next)
            if (!node_is_leaf(next) && !m->other[1][next->id]) add_pair(m, NULL, next);
        add_pair(m, a, b);
    }
    for (; next; next = next->next)
        if (!node_is_leaf(next) && !m->other[1][next->id]) add_pair(m, NULL, next);
}

bool pair_in_own_layer(const NodeComparison *nodes, const NodePair *pair) {
    const Node *node = pair->a ? pair->a : pair->b;
    if ((pair->a && pair->b) || !node->stack || node->layer < 0) return false;
    for (int i = 0; i < nodes->stack_count; i++) {
        const StackPair *stack = &nodes->stacks[i];
        if (strcmp(stack->stack, node->stack) != 0) continue;
        if (pair->b) return stack->of_b[node->layer] < 0;
        for (int j = 0; j < stack->layers[1]; j++)
            if (stack->of_b[j] == node->layer) return false;
        return true;
    }
    return false;
}

/* ---- task, inputs, outputs ---- */

static void compare_inputs(Matching *m, int side) {
    const Graph *graph = m->models[side]->graph, *others = m->models[!side]->graph;
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node_is_input(node)) continue;
        const Node *match = graph_find_input(others, node->name);
        if (match && (side == 1 || type_equal(&node->type, &match->type))) continue;
        const char *what = arena_printf(m->arena, "input %s", node->name);
        const char *own = type_text(m->arena, &node->type);
        const char *other = match ? type_text(m->arena, &match->type) : NULL;
        difference_add(m->arena, &m->out->ends, what, side ? other : own,
                       side ? own : other);
    }
}

static void compare_outputs(Matching *m, int side) {
    const Graph *graph = m->models[side]->graph, *others = m->models[!side]->graph;
    for (int i = 0; i < graph->output_count; i++) {
        const Output *output = &graph->outputs[i];
        const Node *match = graph_output(others, output->name);
        if (match && side == 1) continue;
        const char *what = arena_printf(m->arena, "output %s", output->name);
        const char *own = type_text(m->arena, &output->node->type);
        const char *other = match ? type_text(m->arena, &match->type) : NULL;
        if (match && strcmp(own, other) == 0) {
            if (same_operand(m, output->node, match)) continue;
            own = operand_text(m, 0, output->node);
            other = operand_text(m, 1, match);
        }
        difference_add(m->arena, &m->out->ends, what, side ? other : own,
                       side ? own : other);
    }
}

static void compare_ends(Matching *m) {
    const Task a = graph_task(m->models[0]->graph), b = graph_task(m->models[1]->graph);
    if (a != b)
        difference_add(m->arena, &m->out->ends, "task", task_name(a), task_name(b));
    for (int side = 0; side < 2; side++) compare_inputs(m, side);
    for (int side = 0; side < 2; side++) compare_outputs(m, side);
}

void compare_nodes(NodeComparison *out, Arena *arena, const Model *a, const Model *b) {
    *out = (NodeComparison){0};
    Matching m = {.arena = arena, .out = out, .models = {a, b}};
    for (int side = 0; side < 2; side++) {
        Graph *graph = m.models[side]->graph;
        m.names[side] = graph_node_names(arena, graph);
        m.other[side] = ARENA_ARRAY(arena, const Node *, (size_t)graph->node_count + 1);
    }
    m.stacks.arena = arena;
    match_stacks(out, &m.stacks, arena, a, b);
    match_nodes(&m);
    list_pairs(&m);
    compare_ends(&m);
}
