/* Narrow: values of which later calls read the first tokens alone are computed for those
 * alone. A classifier that reads the first token of its encoder needs the last layer's
 * queries, products and norms for one token of each sample; keys and values, and all
 * layers before, it needs for every token.
 *
 * Numbers of tokens are handed up from readers to what they read: by an op that works row
 * by row as they are, by attention to its queries, by a selected token as its place. All
 * other ops read all tokens, and who asks for a result gets all of it. Where a value of
 * all tokens meets a call on the first of them, a call is put in between that takes
 * those; its node is the plan's, in no graph. Every element that is left is the sum that
 * it was; products of other numbers of rows may add it up in another order. */
#ifndef COMPRESS_EXEC_PLAN_NARROW_H
#define COMPRESS_EXEC_PLAN_NARROW_H

#include "exec/plan/plan.h"

/* Narrows the nodes of a plan, of which operands, types and forward calls are known and
 * nothing else. `results` are values that must be readable after a run, whole; a loss is
 * so in any case. Plan.flops stays that of the graph as it is written. */
void plan_narrow(Plan *plan, Node *const *results, int count);

#endif
