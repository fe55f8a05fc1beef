/* Patches: how the tokens of an image model lie. */
#ifndef COMPRESS_PASSES_PATCHES_H
#define COMPRESS_PASSES_PATCHES_H

#include "ir/graph.h"

/* Number of tokens put in front of the patches (class, distillation). */
int patches_extra_tokens(const Graph *graph);

/* Patch grid of an image model: rows and columns. False for models without patches. */
bool patches_grid(const Graph *graph, int64_t *rows, int64_t *columns);

#endif
