/* Memory of a plan: its buffers, their lifetimes and places. */
#ifndef COMPRESS_EXEC_PLAN_PLAN_MEMORY_H
#define COMPRESS_EXEC_PLAN_PLAN_MEMORY_H

#include "exec/plan/plan.h"

/* Makes the buffers of a plan whose nodes, times and gradient writes are known, and
 * assigns them places in one workspace; `results` are values that live to the end. Fails
 * with STATUS_MEMORY when they take more than can exist. */
Status plan_memory(Plan *plan, Node *const *results, int count, Diag *diag);

#endif
