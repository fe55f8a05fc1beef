/* The buffers of a plan and how long each is needed. */
#include "exec/plan/plan_internal.h"

/* At most value, aux, gradient and two scratch areas for a node. */
enum { NODE_BUFFERS = 5 };

static int add_buffer(Plan *plan, BufferKind kind, int owner, size_t bytes, int first) {
    int id = plan->buffer_count++;
    size_t rounded = (bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
    plan->buffers[id] = (Buffer){kind, owner, first, first, rounded, 0};
    return id;
}

static void extend(Plan *plan, int buffer, int time) {
    if (buffer >= 0 && plan->buffers[buffer].last < time)
        plan->buffers[buffer].last = time;
}

static size_t value_bytes(const Plan *plan, const PlanNode *node) {
    return (size_t)node->count * plan_element_bytes(plan, node);
}

/* Whether the backward kernel reads operand `i`; a variadic op's reads say all or none
 * of the operands past the last bit. */
static bool reads_operand(const Op *op, int i) {
    if (i < 31) return (op->reads >> i) & 1;
    return (op->reads & READS_ALL_IN) == READS_ALL_IN;
}

static void add_values(Plan *plan) {
    for (int i = 0; i < plan->node_count; i++) {
        PlanNode *node = &plan->nodes[i];
        if (plan_is_param(node)) continue;
        const bool input = node->forward < 0;
        node->value = add_buffer(plan, BUFFER_VALUE, i, value_bytes(plan, node),
                                 input ? 0 : node->forward);
        if (input) extend(plan, node->value, plan->end);
        if (node->backward >= 0 && (node->op->reads & READS_OUT))
            extend(plan, node->value, node->backward);
        for (int j = 0; j < node->in_count; j++) {
            if (node->in[j].node < 0) continue;
            int value = plan->nodes[node->in[j].node].value;
            extend(plan, value, node->forward);
            if (node->backward >= 0 && reads_operand(node->op, j))
                extend(plan, value, node->backward);
        }
    }
}

static void keep_results(Plan *plan, const PlanOptions *options) {
    for (int i = 0; i < options->result_count; i++)
        extend(plan, plan->nodes[plan_find(plan, options->results[i])].value, plan->end);
    if (plan->loss >= 0) extend(plan, plan->nodes[plan->loss].value, plan->end);
}

/* Saved statistics and scratch: their sizes come from the op. */
static void add_work_areas(Plan *plan) {
    for (int i = 0; i < plan->node_count; i++) {
        PlanNode *node = &plan->nodes[i];
        if (node->forward < 0) continue;
        Call call;
        View *in = ARENA_ARRAY(plan->arena, View, (size_t)node->in_count);
        plan_call(&call, in, plan, node);
        const Kernel *kernel = node->kernel;
        size_t aux = kernel->aux_bytes ? kernel->aux_bytes(&call) : 0;
        size_t scratch = kernel->scratch_bytes ? kernel->scratch_bytes(&call) : 0;
        if (aux > 0) node->aux = add_buffer(plan, BUFFER_AUX, i, aux, node->forward);
        extend(plan, node->aux, node->backward);
        if (scratch == 0) continue;
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

Status plan_buffers(Plan *plan, const PlanOptions *options, Diag *diag) {
    plan->buffers =
        ARENA_ARRAY(plan->arena, Buffer, (size_t)plan->node_count * NODE_BUFFERS);
    add_values(plan);
    keep_results(plan, options);
    add_work_areas(plan);
    if (plan->loss >= 0) add_gradients(plan);
    for (int i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].bytes > PTRDIFF_MAX / 2)
            return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                             "op %s needs more memory than there can be",
                             plan->nodes[plan->buffers[i].owner].op->name);
    return STATUS_OK;
}
