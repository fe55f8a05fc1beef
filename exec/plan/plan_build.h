/* Making plans: see exec/plan/plan.h for what they are. */
#ifndef COMPRESS_EXEC_PLAN_PLAN_BUILD_H
#define COMPRESS_EXEC_PLAN_PLAN_BUILD_H

#include "exec/plan/plan.h"

typedef struct PlanOptions {
    int64_t sizes[DIM_SYMBOLS]; /* by DIM_INDEX; N must be set, others when used */
    Precision precision;
    bool bf16;            /* linears multiply operands rounded to bfloat16, only in f32 */
    Node *loss;           /* scalar to differentiate; NULL = inference */
    Node *const *results; /* values that must be readable after a run; the loss counts */
    int result_count;
    bool whole;           /* all tokens of every value, for comparison: no plan_narrow */
    bool recompute;       /* see exec/plan/recompute.h */
    bool input_gradients; /* also compute gradients of real inputs (checks, saliency) */
} PlanOptions;

/* Plans the part of the graph that the loss and results depend on. The graph must
 * outlive the plan and keep its shape. Storages that are not frozen are trainable. Fails
 * with STATUS_MODEL: symbol without a size, loss not scalar, an op that does not take
 * these sizes, an op on the way to the loss that is not differentiable (named). */
Status plan_create(Plan **out, Graph *graph, const PlanOptions *options, Diag *diag);

/* Halves the sizes of T and S, at most down to 1, until `results` can be planned with
 * one sample (a position table may be short): for estimates without data to give
 * sizes. */
void plan_fit_sizes(Graph *graph, Node *const *results, int count,
                    int64_t sizes[DIM_SYMBOLS]);

/* plan_create with the sharing of gradient buffers on or off. */
Status plan_build(Plan **out, Graph *graph, const PlanOptions *options, bool share,
                  Diag *diag);

/* Marks by Node.id what the roots depend on, themselves included. `mark` has room for
 * graph_number(graph) entries, all false. */
void plan_mark(const Graph *graph, bool *mark);

#endif
