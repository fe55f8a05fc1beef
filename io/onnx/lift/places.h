/* Places: which node of a lifted graph is what part of which layer.
 *
 * A layer is found by its residual sums: the branch of one holds attention, or two
 * projections with an activation between. Norms stand before the branch, behind the sum
 * or on the branch. What stands before the first layer are embeddings, what comes after
 * the last one the head. */
#ifndef COMPRESS_IO_ONNX_LIFT_PLACES_H
#define COMPRESS_IO_ONNX_LIFT_PLACES_H

#include "ir/model.h"

/* Sets place and role of all nodes, puts the residual stream first among the operands of
 * its sums, shares the head's matrix with the embeddings where they are equal, adds the
 * output of states where it is none yet, and says what the model is for. `decoder`: its
 * attention is causal. Returns the number of layers. */
int places_find(Graph *graph, bool decoder);

#endif
