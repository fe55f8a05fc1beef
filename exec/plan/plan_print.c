/* A plan as a table for people. */
#include "exec/plan/plan_internal.h"

static void print_buffer(Text *text, const Plan *plan, const char *name, int id) {
    if (id < 0) return;
    const Buffer *b = &plan->buffers[id];
    text_add(text, "  %s %zu+%zu (%d..%d)", name, b->offset, b->bytes, b->first, b->last);
}

static void print_gradients(Text *text, const Plan *plan, const PlanNode *node) {
    static const char *const HOW[] = {"", "=", "+=", "=+=", "shared"};
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

static void print_backward(Text *text, const Plan *plan, const PlanNode *node) {
    if (node->backward < 0) return;
    text_add(text, "%8d %%%d %s backward", node->backward, node->node->id,
             node->op->name);
    print_buffer(text, plan, "gradient", node->gradient);
    print_buffer(text, plan, "scratch", node->backward_scratch);
    print_gradients(text, plan, node);
    text_add(text, "\n");
}

void plan_print(Text *text, const Plan *plan) {
    text_add(text, "plan for %lld samples: %d calls, %d buffers, %zu bytes, %.6g FLOPs\n",
             (long long)plan->samples, plan->calls, plan->buffer_count, plan->bytes,
             plan->flops);
    text_add(text, "    time node             buffer offset+bytes (first..last time)\n");
    for (int i = 0; i < plan->node_count; i++) print_node(text, plan, &plan->nodes[i]);
    for (int i = plan->node_count - 1; i >= 0; i--)
        print_backward(text, plan, &plan->nodes[i]);
}
