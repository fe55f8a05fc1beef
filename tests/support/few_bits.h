/* Storages of tests in few bits. */
#ifndef COMPRESS_TESTS_SUPPORT_FEW_BITS_H
#define COMPRESS_TESTS_SUPPORT_FEW_BITS_H

#include "ir/quantised.h"
#include "ir/storage.h"
#include "tests/support/check.h"

#include <stdlib.h>

/* Rounds a storage's weights to the nearest numbers of the type of `like` (q8_shape,
 * q4_shape; its shape does not count). */
static inline void round_storage(Storage *storage, const Tensor *like) {
    Diag *diag = diag_create();
    const Tensor *from = storage_tensor(storage);
    Tensor few = tensor_shape_like(like, from->rank, from->dim);
    assert_ok(tensor_allocate(&few, diag), diag);
    const int64_t rows = quantised_rows(&few), width = quantised_width(&few);
    float *row = malloc((size_t)width * sizeof *row);
    for (int64_t m = 0; m < rows; m++) {
        tensor_read_f32(from, m * width, width, row);
        quantised_round_row(&few, m, row);
    }
    free(row);
    storage_set_values(storage, few);
    diag_destroy(diag);
}

/* All weights of an op's operand 1 that are matrices of at least 8 rows. */
static inline void round_matrices(Graph *graph, const char *op, const Tensor *like) {
    for (Node *node = graph->first; node; node = node->next) {
        Storage *storage =
            node->in_count > 1 && node->in[1] ? node->in[1]->storage : NULL;
        if (!storage || strcmp(node->op->name, op) != 0) continue;
        const Tensor *tensor = storage_tensor(storage);
        if (tensor->rank == 2 && tensor->dim[0] >= 8 && dtype_is_real(tensor->dtype) &&
            !dtype_is_quantised(tensor->dtype))
            round_storage(storage, like);
    }
}

#endif
