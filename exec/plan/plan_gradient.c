/* Which backward calls a plan has, and how each writes its operands' gradients. */
#include "exec/plan/plan_internal.h"

/* Whether the op's backward kernel has no gradient for operand `j`. */
static bool is_constant(const Op *op, int j) {
    const int last = op_operand_count(op) - 1;
    return last >= 0 && (op->operands[j < last ? j : last].flags & OPERAND_CONSTANT);
}

static void mark_depends(Plan *plan, bool input_gradients) {
    for (int i = 0; i < plan->node_count; i++) {
        PlanNode *node = &plan->nodes[i];
        if (!dtype_is_real(node->type.dtype)) continue;
        if (plan_is_param(node))
            node->depends = node->offset >= 0;
        else if (node->forward < 0)
            node->depends = input_gradients;
        for (int j = 0; j < node->in_count; j++) {
            int in = node->in[j].node;
            if (in >= 0 && plan->nodes[in].depends && !is_constant(node->op, j))
                node->depends = true;
        }
    }
}

static int count_uses(const PlanNode *user, int node) {
    int count = 0;
    for (int j = 0; j < user->in_count; j++) count += user->in[j].node == node;
    return count;
}

/* Whether the gradient of operand `j` is that of the result, so that one buffer does. */
static bool may_share(const PlanNode *user, int j, const PlanNode *operand) {
    return j == 0 && (user->op->traits & OP_PASS_GRADIENT) &&
           type_equal(&user->type, &operand->type);
}

static GradientWrite choose_write(const Plan *plan, const PlanNode *user, int j,
                                  bool written, bool share) {
    int in = user->in[j].node;
    if (in < 0 || !plan->nodes[in].depends) return GRADIENT_NONE;
    if (is_constant(user->op, j)) return GRADIENT_NONE;
    if (plan_is_param(&plan->nodes[in]) || written) return GRADIENT_ADD;
    if (count_uses(user, in) > 1) return GRADIENT_CLEAR_ADD;
    if (share && may_share(user, j, &plan->nodes[in])) return GRADIENT_SHARE;
    return GRADIENT_SET;
}

static Status fail_backward(const Node *node, Diag *diag) {
    Status status =
        diag_fail(diag, STATUS_MODEL, node->loc, NULL,
                  "op %s is on the way to the loss but has no gradient", node->op->name);
    if (node->stack)
        diag_note(diag, "it is in %s, layer %d, role %s", node->stack, node->layer,
                  role_name(node->role));
    diag_hint(diag, "freeze the weights that it depends on");
    return status;
}

Status plan_gradients(Plan *plan, bool input_gradients, bool share, Diag *diag) {
    mark_depends(plan, input_gradients);
    bool *written = ARENA_ARRAY(plan->arena, bool, (size_t)plan->node_count);
    written[plan->loss] = true;
    for (int i = plan->node_count - 1; i >= 0; i--) {
        PlanNode *user = &plan->nodes[i];
        if (!written[i] || !user->depends || user->forward < 0) continue;
        if (!user->kernel->backward) return fail_backward(user->node, diag);
        user->backward = 2 * plan->calls - 1 - user->forward;
        for (int j = 0; j < user->in_count; j++) {
            int in = user->in[j].node;
            user->in[j].write =
                choose_write(plan, user, j, in >= 0 && written[in], share);
            if (user->in[j].write != GRADIENT_NONE) written[in] = true;
        }
    }
    return STATUS_OK;
}
