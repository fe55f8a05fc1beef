/* Plan: what there is to ask of a finished one. See exec/plan/plan.h. */
#include "exec/plan/plan.h"

#include <stdlib.h>
#include <string.h>

size_t plan_real_bytes(const Plan *plan) {
    return plan->precision == PRECISION_F64 ? sizeof(double) : sizeof(float);
}

size_t plan_element_bytes(const Plan *plan, const PlanNode *node) {
    return dtype_is_real(node->type.dtype) ? plan_real_bytes(plan) : sizeof(int32_t);
}

bool plan_is_param(const PlanNode *node) {
    return node->node->storage != NULL;
}

PlanNode plan_node(const Plan *plan, Node *node) {
    return (PlanNode){.node = node,
                      .op = node->op,
                      .kernel = kernel_of(plan->kernels, node->op),
                      .offset = -1,
                      .forward = -1,
                      .backward = -1,
                      .again = -1,
                      .value = -1,
                      .aux = -1,
                      .gradient = -1,
                      .forward_scratch = -1,
                      .backward_scratch = -1,
                      .value_again = -1,
                      .aux_again = -1,
                      .scratch_again = -1};
}

void plan_view(View *view, const PlanNode *node) {
    *view = (View){.rank = node->type.rank, .count = node->count};
    memcpy(view->dim, node->type.dim, sizeof view->dim);
}

void plan_call(Call *call, View *in, const Plan *plan, const PlanNode *node) {
    *call = (Call){.node = node->node,
                   .attrs = node->node->attrs,
                   .in_count = node->node->in_count,
                   .in = in,
                   .bf16 = plan->bf16};
    for (int i = 0; i < node->in_count; i++) {
        in[i] = (View){0};
        if (node->in[i].node >= 0) plan_view(&in[i], &plan->nodes[node->in[i].node]);
    }
    plan_view(&call->out, node);
}

int plan_find(const Plan *plan, const Node *node) {
    if (node && node->id >= 0 && node->id < plan->index_count) {
        int i = plan->index[node->id];
        if (i >= 0 && plan->nodes[i].node == node) return i;
    }
    for (int i = 0; i < plan->node_count; i++)
        if (plan->nodes[i].node == node) return i;
    return -1;
}

Plan *plan_retain(const Plan *plan) {
    Plan *shared = (Plan *)(uintptr_t)plan; /* only the count changes */
    atomic_fetch_add_explicit(&shared->references, 1, memory_order_relaxed);
    return shared;
}

void plan_destroy(Plan *plan) {
    if (!plan) return;
    if (atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) > 1) return;
    arena_destroy(plan->arena);
    free(plan);
}

void plan_last_writes(const Plan *plan, int64_t size, int64_t count, int *last) {
    for (int64_t k = 0; k < count; k++) last[k] = -1;
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *user = &plan->nodes[i];
        for (int j = 0; user->backward >= 0 && j < user->in_count; j++) {
            if (user->in[j].write == GRADIENT_NONE) continue;
            const PlanNode *operand = &plan->nodes[user->in[j].node];
            if (!plan_is_param(operand) || operand->offset < 0) continue;
            const int64_t end = operand->offset + operand->count;
            for (int64_t k = operand->offset / size; k < count && k * size < end; k++)
                if (last[k] < user->backward) last[k] = user->backward;
        }
    }
}

size_t plan_workspace_bytes(const Plan *plan) {
    return plan->bytes;
}

double plan_flops(const Plan *plan) {
    return plan->flops;
}

double plan_flops_again(const Plan *plan) {
    return plan->flops_again;
}

int plan_late_value(const PlanNode *node) {
    return node->value_again >= 0 ? node->value_again : node->value;
}

int plan_late_aux(const PlanNode *node) {
    return node->aux_again >= 0 ? node->aux_again : node->aux;
}

int64_t plan_samples(const Plan *plan) {
    return plan->samples;
}

int64_t plan_index_limit(const Plan *plan, const Node *input) {
    const int i = plan_find(plan, input);
    return i < 0 ? 0 : plan->nodes[i].index_limit;
}

/* ---- a table for people ---- */

static void print_buffer(Text *text, const Plan *plan, const char *name, int id) {
    if (id < 0) return;
    const PlanBuffer *b = &plan->buffers[id];
    text_add(text, "  %s %zu+%zu (%d..%d)", name, b->offset, b->bytes, b->first, b->last);
}

static void print_node(Text *text, const Plan *plan, const PlanNode *node) {
    if (plan_is_param(node)) return;
    if (node->forward < 0)
        text_add(text, "   input %%%d $%s ", node->node->id, node->node->name);
    else
        text_add(text, "%8d %%%d %s ", node->forward, node->node->id, node->op->name);
    type_print(text, &node->type);
    print_buffer(text, plan, "value", node->value);
    print_buffer(text, plan, "aux", node->aux);
    print_buffer(text, plan, "scratch", node->forward_scratch);
    text_add(text, "\n");
}

static void print_again(Text *text, const Plan *plan, const PlanNode *node) {
    text_add(text, "%8d %%%d %s again", node->again, node->node->id, node->op->name);
    print_buffer(text, plan, "value", node->value_again);
    print_buffer(text, plan, "aux", node->aux_again);
    print_buffer(text, plan, "scratch", node->scratch_again);
    text_add(text, "\n");
}

static void print_backward(Text *text, const Plan *plan, const PlanNode *node) {
    static const char *const HOW[] = {"", "=", "+=", "=+=", "shared"};
    text_add(text, "%8d %%%d %s backward", node->backward, node->node->id,
             node->op->name);
    print_buffer(text, plan, "gradient", node->gradient);
    print_buffer(text, plan, "scratch", node->backward_scratch);
    for (int j = 0; j < node->in_count; j++) {
        const PlanOperand *in = &node->in[j];
        if (in->write == GRADIENT_NONE) continue;
        const PlanNode *operand = &plan->nodes[in->node];
        if (plan_is_param(operand))
            text_add(text, "  d%d %s weights at %lld", j, HOW[in->write],
                     (long long)operand->offset);
        else
            text_add(text, "  d%d %s gradient of %%%d", j, HOW[in->write],
                     operand->node->id);
    }
    text_add(text, "\n");
}

void plan_print(Text *text, const Plan *plan) {
    text_add(text, "plan for %lld samples: %d calls, %d buffers, %zu bytes, %.6g FLOPs\n",
             (long long)plan->samples, plan->calls, plan->buffer_count, plan->bytes,
             plan->flops);
    text_add(text, "    time node             buffer offset+bytes (first..last time)\n");
    for (int i = 0; i < plan->node_count; i++) print_node(text, plan, &plan->nodes[i]);
    for (int time = plan->calls; time < plan->end; time++)
        for (int i = 0; i < plan->node_count; i++) {
            if (plan->nodes[i].again == time) print_again(text, plan, &plan->nodes[i]);
            if (plan->nodes[i].backward == time)
                print_backward(text, plan, &plan->nodes[i]);
        }
}
