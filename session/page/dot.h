/* Dot: a graph in graphviz's language, and as drawn by graphviz. */
#ifndef COMPRESS_SESSION_PAGE_DOT_H
#define COMPRESS_SESSION_PAGE_DOT_H

#include "ir/graph.h"

/* Appends the graph: stacks and layers are clusters, a box for each node with its role,
 * op, type and the number of its own weights. Weights with several users are drawn once,
 * beside the layers. Numbers the nodes. */
void graph_dot(Text *text, Graph *graph);

/* Appends the SVG that graphviz makes from such a text. Runs `dot`, found on the PATH.
 * Fails with STATUS_IO if there is none, or if it fails. */
Status dot_svg(Text *svg, const Text *dot, Diag *diag);

#endif
