/* Where weights lie: see exec/plan/weight_layout.h. */
#include "exec/plan/weight_layout.h"

/* Trainable storages start at multiples of this many elements: 64 bytes of float. */
#define OFFSET_UNIT ((int64_t)16)

int64_t params_room(const Storage *storage) {
    const int64_t count = tensor_count(&storage->tensor);
    return (count + OFFSET_UNIT - 1) / OFFSET_UNIT * OFFSET_UNIT;
}

int64_t params_layout(const Graph *graph, int64_t *offset) {
    int64_t total = 0;
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *storage = graph->storages[i];
        const bool trainable = !storage->frozen && dtype_is_real(storage->tensor.dtype);
        if (offset) offset[i] = trainable ? total : -1;
        if (trainable) total += params_room(storage);
    }
    return total;
}
