/* Recompute: see exec/plan/recompute.h. */
#include "exec/plan/recompute.h"

#include <string.h>

/* What is found out about a node, by index into Plan.nodes. */
typedef struct Span {
    int layer;   /* the first node of the same layer; NO_LAYER, or UNKNOWN */
    bool keep;   /* its value is read from outside of the layer, or after a run */
    bool needed; /* by a backward call of its layer */
    bool begun;  /* the layer's calls are in the order: by the first node of a layer */
} Span;

enum { NO_LAYER = -1, UNKNOWN = -2 };

bool plan_reads_operand(const Op *op, int i) {
    if (i < 31) return (op->reads >> i) & 1;
    return (op->reads & READS_ALL_IN) == READS_ALL_IN; /* variadic: all, or none */
}

/* ---- layers ---- */

static bool same_layer(const Node *a, const Node *b) {
    return a->layer == b->layer && a->stack && b->stack &&
           strcmp(a->stack, b->stack) == 0;
}

/* The layers that nodes name; UNKNOWN for the others that are computed. */
static void name_layers(const Plan *plan, Span *spans) {
    int *first = ARENA_ARRAY(plan->arena, int, (size_t)plan->node_count), count = 0;
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *node = &plan->nodes[i];
        spans[i].layer = node->forward < 0 ? NO_LAYER : UNKNOWN;
        if (node->forward < 0 || !node->node->stack || node->node->layer < 0) continue;
        int k = count - 1; /* the latest layer is the likeliest */
        while (k >= 0 && !same_layer(plan->nodes[first[k]].node, node->node)) k--;
        if (k < 0) first[k = count++] = i;
        spans[i].layer = first[k];
    }
}

/* Readers come later: going backwards, those of a node have theirs. */
static void find_layers(const Plan *plan, Span *spans) {
    name_layers(plan, spans);
    int *of = ARENA_ARRAY(plan->arena, int, (size_t)plan->node_count);
    for (int i = 0; i < plan->node_count; i++) of[i] = UNKNOWN; /* that of all readers */
    for (int i = plan->node_count - 1; i >= 0; i--) {
        const PlanNode *node = &plan->nodes[i];
        if (spans[i].layer == UNKNOWN)
            spans[i].layer = of[i] == UNKNOWN ? NO_LAYER : of[i];
        for (int j = 0; j < node->in_count; j++) {
            const int in = node->in[j].node;
            if (in < 0) continue;
            of[in] =
                of[in] == UNKNOWN || of[in] == spans[i].layer ? spans[i].layer : NO_LAYER;
        }
    }
}

/* ---- what is computed again ---- */

static bool keeps_statistics(const Plan *plan, const PlanNode *node) {
    Call call;
    View *in = ARENA_ARRAY(plan->arena, View, (size_t)node->in_count);
    if (!node->kernel->aux_bytes) return false;
    plan_call(&call, in, plan, node);
    call.training = true;
    return node->kernel->aux_bytes(&call) > 0;
}

/* What a call and its backward call say of an operand. */
static void note_operands(const Plan *plan, Span *spans, int i, bool again) {
    const PlanNode *node = &plan->nodes[i];
    for (int j = 0; j < node->in_count; j++) {
        const int in = node->in[j].node;
        if (in < 0) continue;
        const bool backward = node->backward >= 0 && plan_reads_operand(node->op, j);
        if (!again && !backward) continue;
        if (spans[in].layer == spans[i].layer)
            spans[in].needed = true;
        else
            spans[in].keep = true;
    }
}

/* The layer whose backward calls come first: what it computed is still there. */
static int last_layer(const Plan *plan, const Span *spans) {
    int i = plan->node_count - 1;
    while (i >= 0 && (plan->nodes[i].backward < 0 || spans[i].layer < 0)) i--;
    return i < 0 ? NO_LAYER : spans[i].layer;
}

/* Marks by PlanNode.again, as long as times are not known, with 0. */
static void choose_nodes(Plan *plan, Span *spans) {
    const int last = last_layer(plan, spans);
    for (int i = plan->node_count - 1; i >= 0; i--) {
        PlanNode *node = &plan->nodes[i];
        Span *span = &spans[i];
        if (node->forward < 0) continue;
        if (node->backward >= 0 && !span->needed)
            span->needed = (node->op->reads & READS_OUT) || keeps_statistics(plan, node);
        const bool again =
            span->layer >= 0 && span->layer != last && span->needed && !span->keep;
        if (again) node->again = 0;
        note_operands(plan, spans, i, again);
    }
}

/* ---- the order ---- */

static void number_layer(Plan *plan, const Span *spans, int layer, int *time) {
    for (int i = 0; i < plan->node_count; i++)
        if (spans[i].layer == layer && plan->nodes[i].again >= 0)
            plan->nodes[i].again = (*time)++;
}

static void number_calls(Plan *plan, Span *spans) {
    int time = plan->calls;
    for (int i = plan->node_count - 1; i >= 0; i--) {
        PlanNode *node = &plan->nodes[i];
        const int layer = spans[i].layer;
        if (node->backward < 0) continue;
        if (layer >= 0 && !spans[layer].begun) {
            spans[layer].begun = true;
            number_layer(plan, spans, layer, &time);
        }
        node->backward = time++;
    }
    plan->end = time;
}

void plan_recompute(Plan *plan, Node *const *results, int count) {
    if (plan->loss < 0) return;
    Span *spans = ARENA_ARRAY(plan->arena, Span, (size_t)plan->node_count);
    find_layers(plan, spans);
    spans[plan->loss].keep = true;
    for (int i = 0; i < count; i++) spans[plan_find(plan, results[i])].keep = true;
    choose_nodes(plan, spans);
    number_calls(plan, spans);
}
