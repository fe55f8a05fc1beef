/* Layers: removing whole layers from a stack, and which of the original ones remain.
 *
 * A layer is the nodes placed in (stack, layer). It has one output, the only one of its
 * values that is used outside, and one input, the only value of the output's type that
 * its nodes read from outside (parameters, masks and integers aside; what cross-attention
 * reads is of another length). This covers norms before and norms after the residual
 * sums: only data flow counts. */
#ifndef COMPRESS_PASSES_LAYERS_H
#define COMPRESS_PASSES_LAYERS_H

#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/nodes.h"

/* The stack that an option names; "main" stands for graph_main_stack. NULL stays. */
const char *stack_named(const Graph *graph, const char *name);

/* Fails with STATUS_MODEL, at the option `stack`, when a stack has no layers. */
Status stack_check(PassContext *ctx, const Graph *graph, const char *stack, Diag *diag);

/* Fails with STATUS_MODEL, at an option that lists layers from 0, if a stack does not
 * have all of them; for all stacks (NULL) the deepest must. An empty list is fine. */
Status layers_check(PassContext *ctx, const Graph *graph, const char *stack,
                    const char *option, IntList list, Diag *diag);

/* Sorts numbers of layers or units, the smallest first. */
void sort_numbers(int64_t *items, int64_t count);

/* The input and the output of a layer; of equal type. */
typedef struct LayerEnds {
    Node *input, *output;
} LayerEnds;

/* Finds both ends of a layer. Fails with STATUS_MODEL when one is missing or not the only
 * one, naming the values, or when their types differ. */
Status layer_ends(LayerEnds *ends, PassContext *ctx, const Graph *graph,
                  const char *stack, int layer, Diag *diag);

/* Keeps layers `keep` (ascending, each below the depth) of a stack and removes the
 * others: users of a removed layer's output use its input, values and storages without
 * users are removed, and the remaining layers are numbered from 0. Storages keep their
 * names. Updates the lineage. Fails with STATUS_MODEL as layer_ends does. */
Status layers_keep(PassContext *ctx, Model *model, const char *stack, IntList keep,
                   Diag *diag);

/* Lineage of a stack of `depth` layers, in `arena`: the number that each layer had in
 * the original model, from model->provenance "layers"; 0, 1, ... if nothing has been
 * removed. Fails with STATUS_MODEL when the provenance does not fit the stack. */
Status layers_lineage(IntList *out, Arena *arena, PassContext *ctx, const Model *model,
                      const char *stack, int depth, Diag *diag);

/* A list as a tree. */
Tree *layers_tree(Arena *arena, IntList list);

#endif
