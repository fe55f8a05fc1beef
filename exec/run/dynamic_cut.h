/* Cut: a graph split after its exits, for exec/run/dynamic.c.
 *
 * Node v belongs to the stage of the first exit that depends on it. If a later stage
 * reads v, it reads an input in its place (a carry), which the runner fills from the
 * stage before. All stages lie in one copy of the graph and so share one Params; a plan
 * for a stage's results stops at the carries. Values that depend only on parameters have
 * no rows to carry: every stage that reads them computes them. */
#ifndef COMPRESS_EXEC_RUN_DYNAMIC_CUT_H
#define COMPRESS_EXEC_RUN_DYNAMIC_CUT_H

#include "exec/plan/plan_cache.h"

/* A value that a stage takes over, row by row: `from` in the stage before, `to`, an
 * input, in this one. A plain input is both. */
typedef struct Carry {
    Node *from, *to;
} Carry;

typedef struct Stage {
    Node *logits;   /* of its exit */
    Carry *carries; /* none in stage 0 */
    int carry_count;
    Node **results; /* logits, and what the next stage takes over */
    int result_count;
    PlanCache *plans; /* made by cut_plan */
} Stage;

typedef struct Cut {
    Arena *arena;
    Graph *graph; /* the copy */
    Stage *stages;
    int count;
    int64_t classes;
} Cut;

/* Cuts a copy of the graph. exits[] are logits [N, classes] by depth. Fails with
 * STATUS_MODEL when they do not lie one after another, or a value that crosses a cut has
 * no row for each sample. Call cut_close in any case. */
Status cut_open(Cut *cut, Graph *graph, Node *const *exits, int exit_count, Diag *diag);

/* Gives every stage a new cache of plans, for samples of `data` (NULL = none) and symbol
 * sizes as in PlanCache, replacing any earlier one. Call after cut_open. */
void cut_plan(Cut *cut, const Batches *data, const int64_t sizes[DIM_SYMBOLS]);

/* Frees what the two functions above made. */
void cut_close(Cut *cut);

#endif
