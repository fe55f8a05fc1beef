/* What feeding data needs of workspaces beyond exec/run.h. */
#ifndef COMPRESS_EXEC_WORKSPACE_H
#define COMPRESS_EXEC_WORKSPACE_H

#include "exec/plan_internal.h"
#include "exec/run.h"

/* The plan's node of the input called `name`, NULL when the plan does not use it. */
const PlanNode *workspace_input_node(const Workspace *workspace, const char *name);

/* Index of the first value outside of [0, limit), -1 when there is none. */
int64_t labels_find_bad(const int32_t *data, int64_t count, int64_t limit);

/* Reports a label outside of [0, limit). */
Status labels_fail(int64_t sample, int32_t value, int64_t limit, const char *name,
                   Diag *diag);

#endif
