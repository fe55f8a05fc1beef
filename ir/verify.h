/* Verifier: what holds for every graph between passes. */
#ifndef COMPRESS_IR_VERIFY_H
#define COMPRESS_IR_VERIFY_H

#include "ir/graph.h"

/* Checks that nodes are in topological order and belong to the list, operands are
 * present with the right kind, attributes are within their ranges, every type equals
 * what the op infers, leaves have names and storages, storages are named by exactly one
 * leaf and listed once, shapes of storages equal their leaf's type, input and output
 * names are unique, places are well formed, lineages increase and fit their axes. Fails
 * with STATUS_INTERNAL unless `status` says otherwise (STATUS_FORMAT for a graph read
 * from a file). */
Status graph_verify(Graph *graph, Status status, Diag *diag);

/* Checks that every storage has weights and that they are finite: names the storage and
 * the index of the first NaN or infinity. Fails with STATUS_MODEL. */
Status graph_verify_weights(const Graph *graph, Diag *diag);

#endif
