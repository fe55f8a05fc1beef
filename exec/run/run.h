/* Run: workspaces, and the two calls that execute a plan. */
#ifndef COMPRESS_EXEC_RUN_RUN_H
#define COMPRESS_EXEC_RUN_RUN_H

#include "exec/plan/plan_cache.h"
#include "exec/run/params.h"
#include "exec/run/team.h"

/* Workspace: memory for running plans, one at a time. */
typedef struct Workspace Workspace;

/* Allocates a workspace large enough for `plan` (kept and reused; it grows when a larger
 * plan is bound). Fails with STATUS_MEMORY. */
Status workspace_create(Workspace **out, Diag *diag);
Status workspace_bind(Workspace *workspace, const Plan *plan, const Params *params,
                      Diag *diag);
void workspace_destroy(Workspace *workspace);

/* Lets the threads of a team (borrowed; NULL = only the calling one) share the parts of
 * calls that are cut (exec/ops/tiles.h), each with its own scratch. Results are the
 * same. Call before anything is bound. */
void workspace_share(Workspace *workspace, Team *team);

/* Bytes of scratch that this takes for each thread except the first. */
size_t workspace_share_bytes(const Plan *plan);

/* The bound plan. */
const Plan *workspace_plan(const Workspace *workspace);

/* Binds the plan of a cache for `samples` samples padded like `what`. Fails as
 * plan_cache_get and workspace_bind do. */
Status workspace_bind_cached(Workspace *workspace, PlanCache *plans, int64_t samples,
                             const Fetch *what, const Params *params, Diag *diag);

/* Where to put an input's data: the plan's buffer of the input called `name`, float,
 * double or int32_t [its bound shape]; NULL when the plan does not use that input. */
void *workspace_input(Workspace *workspace, const char *name);

/* The plan's node for that input, NULL when it does not use it. */
const PlanNode *workspace_input_node(const Workspace *workspace, const char *name);

/* A loss that couples samples (Op.couples) over all samples of a mini-batch that is cut,
 * and its gradients by its operands' rows; NULL if an operand gets none. */
enum { COUPLED_OPERANDS = 2 };
typedef struct CoupledValue {
    float value;
    float *gradient[COUPLED_OPERANDS];
} CoupledValue;
typedef struct Coupled {
    CoupledValue **losses; /* by Node.id; NULL = no such loss */
    int64_t samples;       /* of the mini-batch */
} Coupled;

/* Observer of a backward run: called after each backward call, in order, with its time
 * (PlanNode.backward), in the running thread. */
typedef struct RunWatch {
    void (*called)(void *self, int time); /* NULL = nobody */
    void *self;
} RunWatch;

typedef struct RunMode {
    bool training;      /* stochastic ops draw */
    uint64_t key;       /* random key of the step */
    int64_t first;      /* index of the first sample within the mini-batch */
    const double *rows; /* by Node.id: Call.rows of ops with count_rows; below 0, or with
                           NULL, each call's own */
    const Coupled *coupled; /* see exec/train/coupling.h; NULL = every run computes such
                               losses on its own samples. Only in f32 */
    RunWatch watch;         /* of a backward run */
} RunMode;

/* What op->count_rows of a node returns for the currently bound inputs: before or after
 * a run. The node must be one of the plan's whose op has count_rows and whose integer
 * operands are inputs. */
double workspace_count_rows(const Workspace *workspace, const Node *node);

/* Runs all forward calls. Inputs must have been filled. */
void run_forward(Workspace *workspace, RunMode mode);

/* Runs all backward calls after run_forward with the same mode, with any recomputation
 * before them. The loss's gradient is `seed`; gradients of trainable weights are added
 * to `gradients` (REAL of the plan's precision, params_gradient_count elements, zeroed
 * by the caller at the step's start).
 */
void run_backward(Workspace *workspace, RunMode mode, double seed, void *gradients);

/* Value of a result (or the loss, or an input) after a run: REAL or int32_t. */
const void *workspace_value(const Workspace *workspace, const Node *node);

/* Its size; 0 if there is none. */
size_t workspace_value_bytes(const Workspace *workspace, const Node *node);

/* Gradient of a real input after run_backward of a plan with input_gradients. */
const void *workspace_input_gradient(const Workspace *workspace, const Node *node);

#endif
