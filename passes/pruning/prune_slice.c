/* Slicing of parameters, and sums over slices: see prune.h. */
#include "passes/pruning/prune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Copies the kept entries; a tensor is [outer, dim, inner] around the axis. */
static Status slice_data(Tensor *out, const Tensor *in, int axis, const int64_t *keep,
                         int64_t count, Diag *diag) {
    void *data = NULL;
    TRY(tensor_create(out, in->dtype, out->rank, out->dim, diag));
    TRY(tensor_writable(out, &data, diag));
    size_t outer = 1, inner = dtype_bytes(in->dtype);
    for (int i = 0; i < axis; i++) outer *= (size_t)in->dim[i];
    for (int i = axis + 1; i < in->rank; i++) inner *= (size_t)in->dim[i];
    const char *from = tensor_data(in);
    char *to = data;
    for (size_t o = 0; o < outer; o++) {
        const char *block = from + o * (size_t)in->dim[axis] * inner;
        for (int64_t k = 0; k < count; k++, to += inner)
            memcpy(to, block + (size_t)keep[k] * inner, inner);
    }
    return STATUS_OK;
}

Status prune_axis(Graph *graph, Node *leaf, int axis, const int64_t *keep, int64_t count,
                  Diag *diag) {
    Storage *storage = leaf->storage;
    Tensor old = storage->tensor;
    Tensor cut = tensor_shape(old.dtype, old.rank, old.dim);
    cut.dim[axis] = count;
    if (old.buf) TRY(slice_data(&cut, &old, axis, keep, count, diag));
    if (storage->gaussian) {
        const Status status = gaussian_keep(storage->gaussian, axis, keep, count, diag);
        if (status != STATUS_OK) {
            tensor_release(&cut);
            return status;
        }
    }
    tensor_release(&storage->tensor);
    storage->tensor = cut;
    storage->kept[axis] = lineage_keep(graph->arena, &storage->kept[axis], keep, count);
    leaf->type.dim[axis] = count;
    return STATUS_OK;
}

/* Adds one row of a matrix to the sums. */
static void sum_row(const PruneSlot *slot, int64_t row, int64_t columns, const double *w,
                    const float *g, bool absolute, double *sums) {
    for (int64_t c = 0; c < columns; c++) {
        const double product = g ? w[c] * (double)g[c] : w[c];
        sums[(slot->axis == 0 ? row : c) / slot->width] +=
            absolute ? fabs(product) : product;
    }
}

void prune_sum(const PruneSlot *slot, const float *gradient, bool absolute,
               double *sums) {
    const Tensor *tensor = &slot->leaf->storage->tensor;
    const int64_t rows = tensor->dim[0], columns = tensor->dim[1];
    double *w = memory_alloc((size_t)columns, sizeof *w);
    for (int64_t row = 0; row < rows; row++) {
        tensor_read_f64(tensor, row * columns, columns, w);
        sum_row(slot, row, columns, w, gradient ? gradient + row * columns : NULL,
                absolute, sums);
    }
    free(w);
}
