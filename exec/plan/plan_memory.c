/* Memory of a plan: see exec/plan/plan_memory.h.
 *
 * Lifetimes follow from who reads what: a value lives from its call to its last reader's,
 * which in training may be a backward call; a gradient from its first writer to the
 * backward call of its node; statistics from forward to backward; scratch for one call.
 * What is computed again has buffers of its own for that, which its layer's backward
 * calls read, and the first ones live for the forward run alone.
 *
 * Places are greedy best fit over lifetimes: buffers are placed one after the other, each
 * into the smallest gap between those that are alive at the same time. No order is the
 * best for all graphs, so two are tried, the largest first and the earliest first, and
 * the smaller workspace wins. */
#include "exec/plan/plan_memory.h"

#include "exec/plan/recompute.h"

#include <stdlib.h>
#include <string.h>

/* ---- buffers ---- */

/* At most two values, two aux, a gradient and three scratch areas for a node. */
enum { NODE_BUFFERS = 8 };

static int add_buffer(Plan *plan, BufferKind kind, int owner, size_t bytes, int first) {
    int id = plan->buffer_count++;
    size_t rounded = (bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
    plan->buffers[id] = (PlanBuffer){kind, owner, first, first, rounded, 0};
    return id;
}

static void extend(Plan *plan, int buffer, int time) {
    if (buffer >= 0 && plan->buffers[buffer].last < time)
        plan->buffers[buffer].last = time;
}

static size_t value_bytes(const Plan *plan, const PlanNode *node) {
    return (size_t)node->count * plan_element_bytes(plan, node);
}

/* Lengthens the lives of what a node's calls read and write. */
static void extend_values(Plan *plan, const PlanNode *node) {
    if (node->backward >= 0 && (node->op->reads & READS_OUT))
        extend(plan, plan_late_value(node), node->backward);
    for (int j = 0; j < node->in_count; j++) {
        if (node->in[j].node < 0) continue;
        const PlanNode *operand = &plan->nodes[node->in[j].node];
        extend(plan, operand->value, node->forward);
        extend(plan, plan_late_value(operand), node->again);
        if (node->backward >= 0 && plan_reads_operand(node->op, j))
            extend(plan, plan_late_value(operand), node->backward);
    }
}

static void add_values(Plan *plan) {
    for (int i = 0; i < plan->node_count; i++) {
        PlanNode *node = &plan->nodes[i];
        if (plan_is_param(node)) continue;
        const bool input = node->forward < 0;
        node->value = add_buffer(plan, BUFFER_VALUE, i, value_bytes(plan, node),
                                 input ? 0 : node->forward);
        if (input) extend(plan, node->value, plan->end);
        if (node->again >= 0)
            node->value_again =
                add_buffer(plan, BUFFER_VALUE, i, value_bytes(plan, node), node->again);
        extend_values(plan, node);
    }
}

/* Saved statistics and scratch: their sizes come from the op. */
static void add_work_areas(Plan *plan) {
    for (int i = 0; i < plan->node_count; i++) {
        PlanNode *node = &plan->nodes[i];
        if (node->forward < 0) continue;
        Call call;
        View *in = ARENA_ARRAY(plan->arena, View, (size_t)node->in_count);
        plan_call(&call, in, plan, node);
        call.training = plan->loss >= 0;
        const Kernel *kernel = node->kernel;
        size_t aux = kernel->aux_bytes ? kernel->aux_bytes(&call) : 0;
        size_t scratch = kernel->scratch_bytes ? kernel->scratch_bytes(&call) : 0;
        if (aux > 0) node->aux = add_buffer(plan, BUFFER_AUX, i, aux, node->forward);
        if (aux > 0 && node->again >= 0)
            node->aux_again = add_buffer(plan, BUFFER_AUX, i, aux, node->again);
        extend(plan, plan_late_aux(node), node->backward);
        if (node->again >= 0 && node->op->flops)
            plan->flops_again += node->op->flops(&call);
        if (scratch == 0) continue;
        if (node->again >= 0)
            node->scratch_again =
                add_buffer(plan, BUFFER_SCRATCH, i, scratch, node->again);
        node->forward_scratch =
            add_buffer(plan, BUFFER_SCRATCH, i, scratch, node->forward);
        if (node->backward >= 0)
            node->backward_scratch =
                add_buffer(plan, BUFFER_SCRATCH, i, scratch, node->backward);
    }
}

/* Gives the operands of a backward call their gradient buffers. */
static void add_operand_gradients(Plan *plan, const PlanNode *user) {
    for (int j = 0; j < user->in_count; j++) {
        GradientWrite write = user->in[j].write;
        if (write == GRADIENT_NONE || write == GRADIENT_ADD) continue;
        int in = user->in[j].node;
        PlanNode *operand = &plan->nodes[in];
        if (operand->gradient >= 0) continue; /* the same node as an earlier operand */
        if (write == GRADIENT_SHARE)
            operand->gradient = user->gradient;
        else
            operand->gradient = add_buffer(plan, BUFFER_GRADIENT, in,
                                           value_bytes(plan, operand), user->backward);
    }
}

/* In order of backward calls: a gradient lives from its first writer to the backward call
 * of its node; those of inputs to the end. */
static void add_gradients(Plan *plan) {
    PlanNode *loss = &plan->nodes[plan->loss];
    if (loss->backward < 0) return;
    loss->gradient = add_buffer(plan, BUFFER_GRADIENT, plan->loss,
                                value_bytes(plan, loss), plan->calls);
    for (int i = plan->node_count - 1; i >= 0; i--) {
        PlanNode *node = &plan->nodes[i];
        if (node->gradient < 0) continue;
        extend(plan, node->gradient, node->forward < 0 ? plan->end : node->backward);
        if (node->backward >= 0) add_operand_gradients(plan, node);
    }
}

static Status add_buffers(Plan *plan, Node *const *results, int count, Diag *diag) {
    plan->buffers =
        ARENA_ARRAY(plan->arena, PlanBuffer, (size_t)plan->node_count * NODE_BUFFERS);
    add_values(plan);
    for (int i = 0; i < count; i++) /* results live to the end, and the loss is one */
        extend(plan, plan->nodes[plan_find(plan, results[i])].value, plan->end);
    if (plan->loss >= 0) extend(plan, plan->nodes[plan->loss].value, plan->end);
    add_work_areas(plan);
    if (plan->loss >= 0) add_gradients(plan);
    for (int i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].bytes > PTRDIFF_MAX / 2)
            return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                             "op %s needs more memory than there can be",
                             plan->nodes[plan->buffers[i].owner].op->name);
    return STATUS_OK;
}

/* ---- places ---- */

/* A buffer to place; `key` orders the work, larger first. */
typedef struct Placement {
    size_t key;
    int buffer;
} Placement;

static int compare_items(const void *a, const void *b) {
    const Placement *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->buffer - y->buffer;
}

/* Offset of the smallest gap that holds `buffer`, else the end of what is in its way.
 * `placed` is sorted by offset. */
static size_t find_gap(const PlanBuffer *buffers, const PlanBuffer *buffer,
                       const int *placed, int count) {
    size_t end = 0, best = 0, best_gap = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        const PlanBuffer *other = &buffers[placed[i]];
        if (buffer->first > other->last || other->first > buffer->last) continue;
        if (other->offset > end) {
            size_t gap = other->offset - end;
            if (gap >= buffer->bytes && gap < best_gap) best = end, best_gap = gap;
        }
        if (other->offset + other->bytes > end) end = other->offset + other->bytes;
    }
    return best_gap < SIZE_MAX ? best : end;
}

/* Places all items in order; false when the total does not fit into an address. */
static bool place_items(PlanBuffer *buffers, Placement *items, int count, int *placed,
                        size_t *total) {
    qsort(items, (size_t)count, sizeof *items, compare_items);
    *total = 0;
    for (int i = 0; i < count; i++) {
        PlanBuffer *buffer = &buffers[items[i].buffer];
        buffer->offset = find_gap(buffers, buffer, placed, i);
        size_t end = buffer->offset + buffer->bytes;
        if (end > PTRDIFF_MAX / 2) return false;
        if (end > *total) *total = end;
        int at = i; /* `placed` stays sorted by offset */
        for (; at > 0 && buffers[placed[at - 1]].offset > buffer->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = items[i].buffer;
    }
    return true;
}

static Status place_buffers(Plan *plan, Diag *diag) {
    size_t count = (size_t)plan->buffer_count, by_size, by_start;
    Placement *items = ARENA_ARRAY(plan->arena, Placement, count);
    int *placed = ARENA_ARRAY(plan->arena, int, count);
    PlanBuffer *other = ARENA_ARRAY(plan->arena, PlanBuffer, count);
    if (count > 0) memcpy(other, plan->buffers, count * sizeof *other);
    for (size_t i = 0; i < count; i++)
        items[i] = (Placement){plan->buffers[i].bytes, (int)i};
    bool fits = place_items(plan->buffers, items, (int)count, placed, &by_size);
    for (size_t i = 0; i < count; i++)
        items[i] = (Placement){(size_t)(plan->end - other[i].first), (int)i};
    fits = place_items(other, items, (int)count, placed, &by_start) && fits;
    if (!fits)
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "the plan for %lld samples needs more memory than there can be",
                         (long long)plan->samples);
    if (by_start < by_size) plan->buffers = other;
    plan->bytes = by_start < by_size ? by_start : by_size;
    return STATUS_OK;
}

Status plan_memory(Plan *plan, Node *const *results, int count, Diag *diag) {
    TRY(add_buffers(plan, results, count, diag));
    return place_buffers(plan, diag);
}
