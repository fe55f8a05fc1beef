/* Where weights and their gradients lie in one flat array: trainable storages one after
 * another, in graph order. */
#ifndef COMPRESS_EXEC_PLAN_WEIGHT_LAYOUT_H
#define COMPRESS_EXEC_PLAN_WEIGHT_LAYOUT_H

#include "ir/graph.h"

/* Elements that a storage takes when storages follow each other, rounded up so that each
 * begins on a cache line. */
int64_t params_room(const Storage *storage);

/* Offsets of the trainable storages (-1 for others) in graph order; `offset` has room for
 * graph->storage_count; NULL = not wanted. Returns the total, in elements. */
int64_t params_layout(const Graph *graph, int64_t *offset);

#endif
