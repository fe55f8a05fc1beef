/* What feeding data needs of workspaces beyond exec/run/run.h. */
#ifndef COMPRESS_EXEC_PLAN_WORKSPACE_H
#define COMPRESS_EXEC_PLAN_WORKSPACE_H

#include "exec/plan/plan_internal.h"
#include "exec/run/run.h"

/* The plan's node of the input called `name`, NULL when the plan does not use it. */
const PlanNode *workspace_input_node(const Workspace *workspace, const char *name);

#endif
