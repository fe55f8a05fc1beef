/* Dot: a graph in graphviz's language, and drawn by it. */
#ifndef COMPRESS_SESSION_PAGE_DOT_H
#define COMPRESS_SESSION_PAGE_DOT_H

#include "ir/graph.h"

/* Appends the graph: stacks and layers are clusters, a box for each node with its role,
 * op, type and the number of weights that are its own. Weights with several users are
 * drawn once, beside the layers. Numbers the nodes. */
void graph_dot(Text *text, Graph *graph);

/* Appends what graphviz makes of such a text: SVG. Runs `dot`, found on the PATH. Fails
 * with STATUS_IO where there is none, or where it fails. */
Status dot_svg(Text *svg, const Text *dot, Diag *diag);

#endif
