/* Places: which part of which layer each node of a lifted graph is.
 *
 * A layer is found by its residual sums: the branch of one holds attention, or two
 * projections with an activation between. Norms come before the branch, after the sum or
 * on the branch. Everything before the first layer belongs to the embeddings, everything
 * after the last one to the head. */
#ifndef COMPRESS_IO_ONNX_LIFT_PLACES_H
#define COMPRESS_IO_ONNX_LIFT_PLACES_H

#include "ir/model.h"

/* Sets place and role of all nodes, puts the residual stream first among the operands of
 * its sums, shares the head's matrix with the embeddings if they are equal, adds the
 * output of states if it is missing, and sets the model's task. `decoder`: its attention
 * is causal. Returns the number of layers. */
int places_find(Graph *graph, bool decoder);

#endif
