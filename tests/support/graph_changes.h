/* What a recipe changed of a graph, as text.
 *
 *     encoder.0-3
 *       q = linear(norm1, @query.weight, bias=@query.bias) : f32[N, 5, 8]
 *       @query.weight = f32[8, 16] init trunc_normal(0.2)
 *       kept 0=[0-7] = @query.weight, @query.bias
 *       - mix
 *     encoder.4 gone
 *
 * Nodes stand at their place under their role (under their op's name where they have
 * none) and name their operands so: `q`, `embeddings.position`, `layer-1.residual2`.
 * Storages have an '@' in front; a layer's number in their names is counted from the
 * number in the name of the first one that the layer uses (`@layer-1.query.weight`,
 * which it shares with the layer before), and what stands in front of it is left out.
 * `own weights = layer+2` says how that number differs from the layer's place. A
 * storage is listed where it is used first. Layers of a stack that changed alike are
 * listed once. Ops, operands, attributes, types, places, initial values and lineages are
 * compared, and the form of Gaussians. */
#ifndef COMPRESS_TESTS_SUPPORT_GRAPH_CHANGES_H
#define COMPRESS_TESTS_SUPPORT_GRAPH_CHANGES_H

#include "ir/graph.h"

/* Appends what differs from `before` to `after`; nothing when they are alike. */
void graph_changes(Text *text, Graph *before, Graph *after);

#endif
