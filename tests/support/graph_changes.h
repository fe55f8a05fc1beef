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
 * `weights of` is what the names of a place's storages have in common; what is left of a
 * name stands behind '@'. A storage is listed where it is used first. Neighbouring layers
 * that changed alike are listed once. Everything that IR text has is compared: ops,
 * operands, attributes, types, places, initial values, lineages; and the form of
 * Gaussians. */
#ifndef COMPRESS_TESTS_SUPPORT_GRAPH_CHANGES_H
#define COMPRESS_TESTS_SUPPORT_GRAPH_CHANGES_H

#include "ir/graph.h"

/* Appends what differs from `before` to `after`; nothing when they are alike. */
void graph_changes(Text *text, Graph *before, Graph *after);

#endif
