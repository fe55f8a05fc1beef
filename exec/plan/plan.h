/* Plan: a graph made ready to run at given sizes.
 *
 * A plan fixes the order of calls and the place of every value, gradient, saved statistic
 * and scratch area in one workspace, from their lifetimes alone: inference reuses memory
 * as soon as the last reader is done, training keeps only what a backward kernel reads.
 * Plans are immutable and may be shared by threads; each thread runs one in a workspace
 * of its own. */
#ifndef COMPRESS_EXEC_PLAN_PLAN_H
#define COMPRESS_EXEC_PLAN_PLAN_H

#include "exec/ops.h"
#include "ir/graph.h"

typedef struct PlanOptions {
    int64_t sizes[DIM_SYMBOLS]; /* by DIM_INDEX; N must be set, others when used */
    Precision precision;
    Node *loss;           /* scalar to differentiate; NULL = inference */
    Node *const *results; /* values that must be readable after a run; the loss counts */
    int result_count;
    bool input_gradients; /* also compute gradients of real inputs (checks, saliency) */
} PlanOptions;

typedef struct Plan Plan;

/* Plans the part of the graph that the loss and results depend on. The graph must
 * outlive the plan and keep its shape. Trainable are the storages that are not frozen.
 * Fails with STATUS_MODEL: symbol without a size, loss not scalar, an op that does not
 * take these sizes, an op on the way to the loss that is not differentiable (named). */
Status plan_create(Plan **out, Graph *graph, const PlanOptions *options, Diag *diag);

/* Halves the sizes of T and S until `results` can be planned with one sample (a position
 * table may be short), at most down to 1: for estimates that no data gives sizes to. */
void plan_fit_sizes(Graph *graph, Node *const *results, int count,
                    int64_t sizes[DIM_SYMBOLS]);

/* Frees the plan. NULL is allowed. */
void plan_destroy(Plan *plan);

/* Bytes of one workspace: activations, gradients, saved statistics, scratch; without
 * weights, weight gradients and optimiser state. */
size_t plan_workspace_bytes(const Plan *plan);

/* FLOPs of one forward run over the planned nodes (one multiply-add = 2), for all N
 * samples. */
double plan_flops(const Plan *plan);

/* Values of an integer input must lie in [0, result); 0 = they may be any. */
int64_t plan_index_limit(const Plan *plan, const Node *input);

/* Samples per run (the N it was planned for). */
int64_t plan_samples(const Plan *plan);

/* Appends a table for people: each call with its buffers' offsets and lifetimes. */
void plan_print(Text *text, const Plan *plan);

#endif
