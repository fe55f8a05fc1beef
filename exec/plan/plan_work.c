/* Work: see exec/plan/plan_work.h. */
#include "exec/plan/plan_work.h"

#include <stdlib.h>

/* Operands that are matrices or more, and those of them with a gradient. */
static void count_operands(const Plan *plan, const PlanNode *node, int *all,
                           int *wanted) {
    *all = *wanted = 0;
    for (int i = 0; i < node->in_count; i++) {
        const PlanNode *in = node->in[i].node < 0 ? NULL : &plan->nodes[node->in[i].node];
        if (!in || in->type.dtype != DTYPE_F32 || in->type.rank < 2) continue;
        ++*all;
        *wanted += node->backward >= 0 && node->in[i].write != GRADIENT_NONE;
    }
}

/* Length of the sums, or of the rows of results, whichever is less. */
static int64_t product_width(const Plan *plan, const PlanNode *node) {
    const PlanNode *in = &plan->nodes[node->in[0].node];
    const int64_t sums = in->type.rank ? in->type.dim[in->type.rank - 1] : 1;
    const int64_t rows = node->type.rank ? node->type.dim[node->type.rank - 1] : 1;
    return sums < rows ? sums : rows;
}

static void add_product(PlanWork *work, const Plan *plan, const PlanNode *node,
                        double flops) {
    const bool projection = node->op->traits & OP_PROJECTION;
    const double again = node->op->traits & OP_ATTENTION ? 2.5 : 2;
    int all, wanted;
    count_operands(plan, node, &all, &wanted);
    if (all > 0) flops *= 1 + again * wanted / all;
    if (projection && plan->bf16)
        work->rounded += flops;
    else if (projection && product_width(plan, node) >= WORK_NARROW)
        work->wide += flops;
    else
        work->narrow += flops;
}

static void add_bytes(PlanWork *work, const Plan *plan, const PlanNode *node) {
    work->bytes += (double)node->count * sizeof(float);
    for (int i = 0; i < node->in_count; i++) {
        if (node->in[i].node < 0) continue;
        const PlanNode *in = &plan->nodes[node->in[i].node];
        /* of a table of embeddings no more is read than is written */
        const int64_t count =
            in->count < node->count || !plan_is_param(in) ? in->count : node->count;
        const bool wanted = node->backward >= 0 && node->in[i].write != GRADIENT_NONE;
        work->bytes += (wanted ? 4.0 : 1.0) * (double)count * sizeof(float);
    }
}

PlanWork plan_work(const Plan *plan) {
    PlanWork work = {0};
    for (int i = 0; i < plan->node_count; i++) {
        const PlanNode *node = &plan->nodes[i];
        if (node->forward < 0) continue;
        View *in = memory_alloc((size_t)node->in_count + 1, sizeof *in);
        Call call;
        plan_call(&call, in, plan, node);
        const double flops = node->op->flops ? node->op->flops(&call) : 0;
        free(in);
        if (flops > 0)
            add_product(&work, plan, node, flops);
        else
            add_bytes(&work, plan, node);
    }
    return work;
}

PlanWork plan_work_times(PlanWork work, double times) {
    return (PlanWork){.wide = times * work.wide,
                      .narrow = times * work.narrow,
                      .rounded = times * work.rounded,
                      .bytes = times * work.bytes};
}

double plan_work_flops(const PlanWork *work) {
    return work->wide + work->narrow + work->rounded;
}
