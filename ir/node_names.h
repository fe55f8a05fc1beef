/* Names of nodes, made from their place and role, so that a node keeps its name when
 * others are added or removed. */
#ifndef COMPRESS_IR_NODE_NAMES_H
#define COMPRESS_IR_NODE_NAMES_H

#include "ir/graph.h"

/* Names by Node.id, which this numbers; in the arena. A leaf has the name of its storage
 * or input. Any other node has its place and role, "encoder.3.q"; without a role its
 * op's name, "encoder.3.linear", and without a place only that. A name already used by
 * an earlier node gets a number: "encoder.3.linear.2". No two nodes other than leaves
 * share a name. */
const char **graph_node_names(Arena *arena, Graph *graph);

#endif
