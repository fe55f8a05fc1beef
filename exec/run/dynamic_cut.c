/* Cut: see exec/run/dynamic_cut.h.
 *
 *   copy_graph      what no exit needs goes
 *   find_stages     stage of every node, and the last stage that reads it
 *   check_chain     each exit builds on what the one before it has computed
 *   carry_values    later readers get inputs of their own
 *   fill_stage      what each stage takes over and gives */
#include "exec/run/dynamic_cut.h"

#include "exec/plan/plan_build.h"
#include "ir/rewrite.h"

#include <string.h>

/* What is known of a node of the copy, by Node.id as it was before inputs were added. */
typedef struct Crossing {
    Node *node;
    Node *carry;     /* that stands for it in later stages; itself for an input */
    int stage, last; /* that computes it, and that reads it last */
    bool varies;     /* depends on an input */
} Crossing;

typedef struct Cutter {
    Cut *cut;
    Node **exits; /* in the copy */
    Crossing *items;
    int count;
    int carries; /* named so far */
} Cutter;

static Status fail_exit(int exit, const Node *node, Diag *diag, const char *expected) {
    Text type = {0};
    type_print(&type, &node->type);
    const Status status =
        diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL, "exit %d: expected %s, found %s",
                  exit + 1, expected, type.data);
    text_free(&type);
    return status;
}

static Status check_logits(const Cutter *c, Diag *diag) {
    for (int e = 0; e < c->cut->count; e++) {
        const Type *type = &c->exits[e]->type;
        if (type->rank != 2 || type->dim[0] != DIM_N || type->dim[1] < 1)
            return fail_exit(e, c->exits[e], diag, "logits [N, classes]");
        if (type->dim[1] != c->exits[0]->type.dim[1])
            return fail_exit(e, c->exits[e], diag, "as many classes as exit 1 has");
    }
    c->cut->classes = c->exits[0]->type.dim[1];
    return STATUS_OK;
}

/* Copies the graph with the exits as its only outputs. */
static void copy_graph(Cutter *c, Graph *graph, Node *const *exits) {
    Cut *cut = c->cut;
    Graph *copy = cut->graph = graph_copy(cut->arena, graph);
    const int count = graph_number(graph);
    Node **twins = ARENA_ARRAY(cut->arena, Node *, (size_t)count);
    for (Node *node = copy->first; node; node = node->next) twins[node->id] = node;
    while (copy->output_count > 0) graph_remove_output(copy, copy->outputs[0].name);
    for (int e = 0; e < cut->count; e++) {
        c->exits[e] = twins[exits[e]->id];
        graph_set_output(copy, arena_printf(cut->arena, "exit.%d", e + 1), c->exits[e]);
    }
    graph_remove_dead(copy);
}

/* Stages from the end: users come after their operands. */
static void find_stages(Cutter *c) {
    Graph *graph = c->cut->graph;
    c->count = graph_number(graph);
    c->items = ARENA_ARRAY(c->cut->arena, Crossing, (size_t)c->count);
    for (Node *node = graph->first; node; node = node->next) {
        Crossing *item = &c->items[node->id];
        *item = (Crossing){.node = node, .stage = c->cut->count, .last = -1};
        item->varies = node_is_input(node);
        for (int i = 0; i < node->in_count; i++)
            item->varies |= node->in[i] && c->items[node->in[i]->id].varies;
    }
    for (int e = c->cut->count - 1; e >= 0; e--) c->items[c->exits[e]->id].stage = e;
    for (const Node *node = graph->last; node; node = node->prev) {
        const int stage = c->items[node->id].stage;
        for (int i = 0; i < node->in_count; i++) {
            if (!node->in[i]) continue;
            Crossing *in = &c->items[node->in[i]->id];
            if (in->stage > stage) in->stage = stage;
            if (in->last < stage && stage < c->cut->count) in->last = stage;
        }
    }
}

/* Whether what exit e shares with the last exit is something, and part of what the next
 * exit shares with it. `marks` are three arrays: of exit e, of the next, of the last. */
static bool lies_behind(const Cutter *c, int e, bool *const marks[3]) {
    bool shares = false;
    for (int k = 0; k < 3; k++) {
        const int exit = k < 2 ? e + k : c->cut->count - 1;
        memset(marks[k], 0, (size_t)c->count * sizeof(bool));
        marks[k][c->exits[exit]->id] = true;
        plan_mark(c->cut->graph, marks[k]);
    }
    for (int i = 0; i < c->count; i++) {
        if (!marks[0][i] || !marks[2][i]) continue;
        if (node_is_leaf(c->items[i].node) || !c->items[i].varies) continue;
        if (!marks[1][i]) return false;
        shares = true;
    }
    return shares;
}

static Status check_chain(const Cutter *c, Diag *diag) {
    bool *marks[3];
    for (int k = 0; k < 3; k++)
        marks[k] = ARENA_ARRAY(c->cut->arena, bool, (size_t)c->count);
    for (int e = 0; e < c->cut->count; e++) {
        const bool first = c->items[c->exits[e]->id].stage == e;
        if (first && (e + 1 == c->cut->count || lies_behind(c, e, marks))) continue;
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "expected exits that lie one behind the other, found exit %d %s",
                         e + 1,
                         first ? "beside the next" : "among what an earlier one needs");
    }
    return STATUS_OK;
}

/* An input for what crosses a cut, which readers in later stages take. */
static Status make_carry(Cutter *c, Crossing *item, Diag *diag) {
    char name[32];
    Graph *graph = c->cut->graph;
    const Type *type = &item->node->type;
    if (type->rank < 1 || type->dim[0] != DIM_N)
        return fail_exit(item->stage, item->node, diag,
                         "values with one row for each sample behind it");
    do snprintf(name, sizeof name, "carry.%d", c->carries++);
    while (graph_find_input(graph, name));
    item->carry = graph_input(graph, name, type);
    for (int i = 0; i < c->count; i++) {
        Node *user = c->items[i].node;
        if (c->items[i].stage <= item->stage) continue;
        for (int j = 0; j < user->in_count; j++)
            if (user->in[j] == item->node) user->in[j] = item->carry;
    }
    return STATUS_OK;
}

static bool crosses(const Crossing *item) {
    return item->varies && item->last > item->stage;
}

static Status carry_values(Cutter *c, Diag *diag) {
    for (int i = 0; i < c->count; i++) {
        Crossing *item = &c->items[i];
        if (item->varies && node_is_input(item->node)) {
            item->carry = item->node;
            item->stage = 0; /* samples are fetched once */
        } else if (crosses(item)) {
            TRY(make_carry(c, item, diag));
        }
    }
    return STATUS_OK;
}

/* What stage k takes over, and its results, which are what the next stage takes over: a
 * plan keeps them, and the inputs among them, to its end. The stages behind it are
 * done. */
static void fill_stage(const Cutter *c, int k) {
    Cut *cut = c->cut;
    Stage *stage = &cut->stages[k];
    stage->carries = ARENA_ARRAY(cut->arena, Carry, (size_t)c->count);
    for (int i = 0; i < c->count; i++) {
        const Crossing *item = &c->items[i];
        if (!crosses(item) || item->stage >= k || item->last < k) continue;
        Node *from = item->stage == k - 1 ? item->node : item->carry;
        stage->carries[stage->carry_count++] = (Carry){from, item->carry};
    }
    const Stage *next = k + 1 < cut->count ? stage + 1 : NULL;
    const int carries = next ? next->carry_count : 0;
    stage->logits = c->exits[k];
    stage->results = ARENA_ARRAY(cut->arena, Node *, (size_t)carries + 1);
    stage->results[0] = stage->logits;
    for (int i = 0; i < carries; i++) stage->results[i + 1] = next->carries[i].from;
    stage->result_count = carries + 1;
}

Status cut_open(Cut *cut, Graph *graph, Node *const *exits, int exit_count, Diag *diag) {
    *cut = (Cut){.arena = arena_create(), .count = exit_count};
    Cutter c = {.cut = cut};
    if (exit_count < 1)
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL, "no exit to run to");
    c.exits = ARENA_ARRAY(cut->arena, Node *, (size_t)exit_count);
    cut->stages = ARENA_ARRAY(cut->arena, Stage, (size_t)exit_count);
    copy_graph(&c, graph, exits);
    TRY(check_logits(&c, diag));
    find_stages(&c);
    TRY(check_chain(&c, diag));
    TRY(carry_values(&c, diag));
    for (int k = exit_count - 1; k >= 0; k--) fill_stage(&c, k);
    return STATUS_OK;
}

/* The stages share what one cache may hold. */
void cut_plan(Cut *cut, const Batches *data, const int64_t sizes[DIM_SYMBOLS]) {
    for (int k = 0; k < cut->count; k++) {
        Stage *stage = &cut->stages[k];
        PlanOptions options = {.precision = PRECISION_F32,
                               .results = stage->results,
                               .result_count = stage->result_count};
        memcpy(options.sizes, sizes, sizeof options.sizes);
        plan_cache_destroy(stage->plans);
        stage->plans = plan_cache_create(cut->graph, data, &options,
                                         PLAN_CACHE_BYTES / (size_t)cut->count);
    }
}

void cut_close(Cut *cut) {
    for (int k = 0; cut->stages && k < cut->count; k++)
        plan_cache_destroy(cut->stages[k].plans);
    if (cut->graph) graph_release(cut->graph);
    arena_destroy(cut->arena);
    *cut = (Cut){0};
}
