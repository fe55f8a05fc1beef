/* Making a plan: see exec/plan/plan_build.h.
 *
 *     collect_nodes     what the loss and the results depend on
 *     ask_ops           which sizes an op refuses, what integer inputs may hold
 *     plan_narrow       tokens that nobody reads: exec/plan/narrow.c
 *     plan_gradients    the backward calls, how each writes its operands' gradients
 *     plan_recompute    what is computed again: exec/plan/recompute.c
 *     plan_memory       buffers, lifetimes, places: exec/plan/plan_memory.c */
#include "exec/plan/plan_build.h"

#include "exec/plan/narrow.h"
#include "exec/plan/plan_memory.h"
#include "exec/plan/recompute.h"
#include "exec/plan/weight_layout.h"

#include <stdlib.h>
#include <string.h>

void plan_mark(const Graph *graph, bool *mark) {
    for (const Node *node = graph->last; node; node = node->prev)
        for (int i = 0; mark[node->id] && i < node->in_count; i++)
            if (node->in[i]) mark[node->in[i]->id] = true;
}

/* ---- collecting ---- */

static Status fail_node(const Node *node, Diag *diag, const char *what) {
    Text type = {0};
    type_print(&type, &node->type);
    Status status = diag_fail(diag, STATUS_MODEL, node->loc, node->name, "%s: %s %s",
                              node->op->name, what, type.data);
    text_free(&type);
    return status;
}

static Status bind_node(PlanNode *out, const PlanOptions *options, Diag *diag) {
    const Node *node = out->node;
    for (int i = 0; i < node->type.rank; i++) {
        const int64_t dim = node->type.dim[i];
        int64_t size;
        if (!dim_bind(dim, options->sizes, &size) || size <= 0)
            return fail_node(node, diag,
                             dim < 0 ? "expected a size for every symbol of"
                                     : "expected dimensions above 0, found");
    }
    if (!type_bind(&node->type, options->sizes, &out->type) ||
        type_count(&out->type) > PTRDIFF_MAX / 64)
        return fail_node(node, diag, "at these sizes too large for memory:");
    out->count = type_count(&out->type);
    return STATUS_OK;
}

/* The marked nodes with bound types, kernels and operands as indices. `offset`: by
 * storage of the graph. */
static Status collect_nodes(Plan *plan, const PlanOptions *options, const bool *mark,
                            const int64_t *offset, Diag *diag) {
    const Graph *graph = plan->graph;
    for (Node *node = graph->first; node; node = node->next) {
        plan->index[node->id] = -1;
        if (!mark[node->id]) continue;
        PlanNode *out = &plan->nodes[plan->node_count];
        *out = plan_node(plan, node);
        for (int i = 0; node->storage && i < graph->storage_count; i++)
            if (graph->storages[i] == node->storage) out->offset = offset[i];
        TRY(bind_node(out, options, diag));
        if (!node_is_leaf(node) && !out->kernel->forward)
            return diag_fail(diag, STATUS_INTERNAL, node->loc, NULL,
                             "no kernel for op %s", node->op->name);
        const int declared = op_operand_count(node->op);
        out->in_count = node->in_count > declared ? node->in_count : declared;
        out->in = ARENA_ARRAY(plan->arena, PlanOperand, (size_t)out->in_count);
        for (int i = 0; i < out->in_count; i++)
            out->in[i].node = node_has(node, i) ? plan->index[node->in[i]->id] : -1;
        if (!node_is_leaf(node)) out->forward = plan->calls++;
        plan->index[node->id] = plan->node_count++;
    }
    return STATUS_OK;
}

/* A forward call of a node for questions to its op. */
static Call describe_call(Plan *plan, const PlanNode *node) {
    Call call;
    View *in = ARENA_ARRAY(plan->arena, View, (size_t)node->in_count);
    plan_call(&call, in, plan, node);
    return call;
}

/* The strictest of an integer input's users counts. */
static Status limit_input(PlanNode *input, int64_t limit, bool skip, const Node *user,
                          Diag *diag) {
    if (limit <= 0) return STATUS_OK;
    if (plan_is_param(input)) /* only inputs are checked before they are read */
        return fail_node(user, diag, "indices must be an input, found weights, to give");
    const bool first = input->index_limit == 0;
    input->index_skip = skip && (first || input->index_skip);
    if (first || limit < input->index_limit) input->index_limit = limit;
    return STATUS_OK;
}

/* Which sizes an op refuses; then, as all of them fit, what integer inputs may hold and
 * what the calls cost. */
static Status ask_ops(Plan *plan, Diag *diag) {
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *node = &plan->nodes[i];
        if (!node->op->check) continue;
        const Call call = describe_call(plan, node);
        TRY(node->op->check(&call, diag));
    }
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *user = &plan->nodes[i];
        const Operand *operand = user->op->operands;
        if (!user->op->index_limit && !user->op->flops) continue;
        const Call call = describe_call(plan, user);
        for (int j = 0; user->op->index_limit && operand[j].name; j++)
            if ((operand[j].flags & OPERAND_INTEGER) && user->in[j].node >= 0)
                TRY(limit_input(&plan->nodes[user->in[j].node],
                                user->op->index_limit(&call, j),
                                operand[j].flags & OPERAND_SKIP, user->node, diag));
        if (user->op->flops) plan->flops += user->op->flops(&call);
    }
    return STATUS_OK;
}

/* ---- gradients ---- */

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

static GradientWrite choose_write(const Plan *plan, const PlanNode *user, int j,
                                  bool written, bool share) {
    int in = user->in[j].node;
    if (in < 0 || !plan->nodes[in].depends) return GRADIENT_NONE;
    if (is_constant(user->op, j)) return GRADIENT_NONE;
    if (plan_is_param(&plan->nodes[in]) || written) return GRADIENT_ADD;
    int uses = 0;
    for (int k = 0; k < user->in_count; k++) uses += user->in[k].node == in;
    if (uses > 1) return GRADIENT_CLEAR_ADD;
    /* Where the operand's gradient is that of the result, one buffer does. */
    const bool same = j == 0 && (user->op->traits & OP_PASS_GRADIENT) &&
                      type_equal(&user->type, &plan->nodes[in].type);
    return share && same ? GRADIENT_SHARE : GRADIENT_SET;
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

static Status plan_gradients(Plan *plan, bool input_gradients, bool share, Diag *diag) {
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

/* ---- creating ---- */

static Status check_options(const PlanOptions *options, Diag *diag) {
    for (int i = 0; i < options->result_count; i++)
        if (!options->results[i])
            return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                             "result %d of a plan is missing", i);
    const Node *loss = options->loss;
    if (!loss) return STATUS_OK;
    if (loss->type.rank != 0 || !dtype_is_real(loss->type.dtype))
        return fail_node(loss, diag, "expected a scalar (rank 0) as loss, found");
    if (node_is_leaf(loss))
        return fail_node(loss, diag, "expected a loss to compute, found");
    return STATUS_OK;
}

static Status plan_fill(Plan *plan, const PlanOptions *options, bool share, Diag *diag) {
    TRY(check_options(options, diag));
    Graph *graph = plan->graph;
    size_t count = (size_t)graph_number(graph);
    bool *mark = ARENA_ARRAY(plan->arena, bool, count);
    for (int i = 0; i < options->result_count; i++) mark[options->results[i]->id] = true;
    if (options->loss) mark[options->loss->id] = true;
    plan_mark(graph, mark);
    int64_t *offset = ARENA_ARRAY(plan->arena, int64_t, (size_t)graph->storage_count);
    params_layout(graph, offset);
    size_t marked = 0;
    for (size_t i = 0; i < count; i++) marked += mark[i];
    plan->nodes = ARENA_ARRAY(plan->arena, PlanNode, marked);
    plan->index = ARENA_ARRAY(plan->arena, int, count);
    plan->index_count = (int)count;
    TRY(collect_nodes(plan, options, mark, offset, diag));
    TRY(ask_ops(plan, diag));
    if (!options->whole) plan_narrow(plan, options->results, options->result_count);
    plan->end = options->loss ? 2 * plan->calls : plan->calls;
    if (options->loss) {
        plan->loss = plan_find(plan, options->loss);
        TRY(plan_gradients(plan, options->input_gradients, share, diag));
        if (options->recompute)
            plan_recompute(plan, options->results, options->result_count);
    }
    return plan_memory(plan, options->results, options->result_count, diag);
}

Status plan_build(Plan **out, Graph *graph, const PlanOptions *options, bool share,
                  Diag *diag) {
    Plan *plan = memory_alloc(1, sizeof *plan);
    atomic_init(&plan->references, 1);
    plan->arena = arena_create();
    plan->graph = graph;
    plan->precision = options->precision;
    plan->bf16 = options->bf16;
    plan->kernels = kernels_for(options->precision);
    plan->samples = options->sizes[DIM_INDEX(DIM_N)];
    plan->loss = -1;
    Status status = plan_fill(plan, options, share, diag);
    if (status == STATUS_OK)
        *out = plan;
    else
        plan_destroy(plan);
    return status;
}

Status plan_create(Plan **out, Graph *graph, const PlanOptions *options, Diag *diag) {
    return plan_build(out, graph, options, true, diag);
}

void plan_fit_sizes(Graph *graph, Node *const *results, int count,
                    int64_t sizes[DIM_SYMBOLS]) {
    int64_t *tokens = &sizes[DIM_INDEX(DIM_T)], *source = &sizes[DIM_INDEX(DIM_S)];
    PlanOptions options = {.results = results, .result_count = count};
    memcpy(options.sizes, sizes, sizeof options.sizes);
    options.sizes[DIM_INDEX(DIM_N)] = 1;
    for (;;) { /* a plan is the only one to know what fits */
        Plan *plan = NULL;
        Diag *diag = diag_create();
        const bool fit = plan_create(&plan, graph, &options, diag) == STATUS_OK;
        plan_destroy(plan);
        diag_destroy(diag);
        if (fit || (*tokens <= 1 && *source <= 1)) return;
        if (*tokens > 1) *tokens /= 2;
        if (*source > 1) *source /= 2;
        options.sizes[DIM_INDEX(DIM_T)] = *tokens;
        options.sizes[DIM_INDEX(DIM_S)] = *source;
    }
}
