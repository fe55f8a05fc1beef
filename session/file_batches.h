/* Inputs of `compress run`: named tensors from a file, checked against a graph's inputs
 * and served as samples. */
#ifndef COMPRESS_SESSION_FILE_BATCHES_H
#define COMPRESS_SESSION_FILE_BATCHES_H

#include "io/formats/safetensors.h"
#include "ir/batches.h"
#include "ir/graph.h"

/* Samples over the tensors of `inputs`, which must outlive them. Every input of the graph
 * needs a tensor of its name, of a fitting kind, rank and size; N and the other symbols
 * must be the same everywhere and are returned in `sizes`. A mask may be left out
 * (input_is_mask), and so may token types, which are 0 then. Tensors with other names are
 * ignored unless `strict`, except those that are inputs of other models, are named like
 * masks, or almost like an input that has no tensor. Fails with STATUS_MODEL, naming the
 * tensor. */
Status file_batches_create(Batches **out, Arena *arena, const Graph *graph,
                           const Checkpoint *inputs, bool strict,
                           int64_t sizes[DIM_SYMBOLS], Diag *diag);

#endif
