/* Narrow: values of which later calls read only the first tokens are computed only for
 * those. A classifier that reads the first token of its encoder needs the last layer's
 * queries, products and norms for one token of each sample; keys and values, and all
 * layers before, it needs for every token.
 *
 * Numbers of tokens are passed up from readers to what they read: unchanged by an op
 * that works row by row, to its queries by attention, as the token's place by a selected
 * token. All other ops read all tokens, and a requested result is computed in full. If a
 * value of all tokens meets a call on the first of them, a call is inserted that takes
 * those; its node belongs to the plan, not to any graph. Every remaining element is the
 * same sum; products with other numbers of rows may add it up in another order. */
#ifndef COMPRESS_EXEC_PLAN_NARROW_H
#define COMPRESS_EXEC_PLAN_NARROW_H

#include "exec/plan/plan.h"

/* Narrows the nodes of a plan of which only operands, types and forward calls are known.
 * `results` are values that must be fully readable after a run; a loss always is.
 * Plan.flops remains that of the unreduced graph. */
void plan_narrow(Plan *plan, Node *const *results, int count);

#endif
