/* Recompute: activation checkpointing by layers (Chen et al., Training Deep Nets with
 * Sublinear Memory Cost, 2016). What a layer computes is dropped after the forward run
 * but for what later layers read, and computed again right before the layer's backward
 * calls.
 *
 * A layer is what ir/graph.h calls one (Node.stack, Node.layer); a node of no layer
 * belongs to that of its readers where they are all of one, as embeddings do to the first
 * layer. A value is kept where a result is asked of it, where a backward call outside of
 * its layer reads it, or a call outside that is made again. All of the last layer is
 * kept, too: its backward calls come first. What else a layer's backward calls need is
 * computed again, in the order and with the random keys of the forward run, so that every
 * byte of the gradients is what it would have been. */
#ifndef COMPRESS_EXEC_PLAN_RECOMPUTE_H
#define COMPRESS_EXEC_PLAN_RECOMPUTE_H

#include "exec/plan/plan.h"

/* Sets PlanNode.again of a plan whose backward calls are known, and numbers its calls
 * anew: PlanNode.backward and Plan.end. `results` are values that must be readable after
 * a run; the loss counts. Nothing of a plan without a loss. */
void plan_recompute(Plan *plan, Node *const *results, int count);

/* Whether the backward kernel of an op reads its operand `i`. */
bool plan_reads_operand(const Op *op, int i);

#endif
