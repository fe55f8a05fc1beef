/* Recompute: activation checkpointing by layers (Chen et al., Training Deep Nets with
 * Sublinear Memory Cost, 2016). What a layer computes is dropped after the forward run,
 * except what later layers read, and recomputed right before the layer's backward calls.
 *
 * A layer is what ir/graph.h calls one (Node.stack, Node.layer); a node outside all
 * layers belongs to the layer of its readers if they share one, as embeddings belong to
 * the first layer. A value is kept if it is a requested result, or read by a backward
 * call outside its layer or by a recomputed call outside it. The whole last layer is
 * kept as well: its backward calls come first. Everything else that a layer's backward
 * calls need is recomputed, in the order and with the random keys of the forward run, so
 * that every byte of the gradients is the same as without recomputing. */
#ifndef COMPRESS_EXEC_PLAN_RECOMPUTE_H
#define COMPRESS_EXEC_PLAN_RECOMPUTE_H

#include "exec/plan/plan.h"

/* Sets PlanNode.again in a plan whose backward calls are known, and renumbers its calls:
 * PlanNode.backward and Plan.end. `results` are values that must be readable after a
 * run; the loss counts. Does nothing for a plan without a loss. */
void plan_recompute(Plan *plan, Node *const *results, int count);

/* Whether the backward kernel of an op reads its operand `i`. */
bool plan_reads_operand(const Op *op, int i);

#endif
