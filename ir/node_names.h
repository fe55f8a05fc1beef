/* Names of nodes: what a node is called by where it stands and what it is, so that it
 * keeps its name when others come and go. */
#ifndef COMPRESS_IR_NODE_NAMES_H
#define COMPRESS_IR_NODE_NAMES_H

#include "ir/graph.h"

/* Names by Node.id, which this numbers; in the arena. A leaf has that of its storage or
 * input. Any other node has its place and its role, "encoder.3.q"; without a role its
 * op's name stands there, "encoder.3.linear", and without a place that alone. A name that
 * an earlier node has gets a number: "encoder.3.linear.2". No two nodes that are not
 * leaves have one name. */
const char **graph_node_names(Arena *arena, Graph *graph);

#endif
