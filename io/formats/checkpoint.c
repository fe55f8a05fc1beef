/* Checkpoint: see checkpoint.h. */
#include "io/formats/checkpoint.h"

#include <stdlib.h>
#include <string.h>

Checkpoint *checkpoint_create(const char *path, int capacity) {
    Arena *arena = arena_create();
    Checkpoint *checkpoint = ARENA_NEW(arena, Checkpoint);
    *checkpoint = (Checkpoint){.arena = arena, .path = arena_strdup(arena, path)};
    checkpoint->tensors = ARENA_ARRAY(arena, NamedTensor, (size_t)capacity);
    return checkpoint;
}

static int tensor_by_name(const void *a, const void *b) {
    return strcmp(((const NamedTensor *)a)->name, ((const NamedTensor *)b)->name);
}

void checkpoint_sort(Checkpoint *checkpoint) {
    if (checkpoint->count > 0)
        qsort(checkpoint->tensors, (size_t)checkpoint->count, sizeof(NamedTensor),
              tensor_by_name);
}

void checkpoint_destroy(Checkpoint *checkpoint) {
    if (!checkpoint) return;
    for (int i = 0; i < checkpoint->count; i++)
        tensor_release(&checkpoint->tensors[i].tensor);
    arena_destroy(checkpoint->arena);
}

const Tensor *checkpoint_find(const Checkpoint *checkpoint, const char *name) {
    NamedTensor wanted = {.name = name};
    if (checkpoint->count == 0) return NULL;
    const NamedTensor *found =
        bsearch(&wanted, checkpoint->tensors, (size_t)checkpoint->count, sizeof wanted,
                tensor_by_name);
    return found ? &found->tensor : NULL;
}

Status checkpoint_view(Tensor *out, Buf *file, size_t offset, DType dtype, int rank,
                       const int64_t *dim, Diag *diag) {
    *out = tensor_shape(dtype, rank, dim);
    const size_t bytes = tensor_bytes(out);
    const char *data = (const char *)buf_data(file) + (bytes ? offset : 0);
    if (bytes && (uintptr_t)data % dtype_bytes(dtype) != 0) {
        void *copy;
        TRY(tensor_create(out, dtype, rank, dim, diag));
        TRY(tensor_writable(out, &copy, diag));
        memcpy(copy, data, bytes);
        return STATUS_OK;
    }
    out->buf = buf_retain(file);
    out->offset = bytes ? offset : 0;
    return STATUS_OK;
}

void checkpoint_gather(void *to, const void *from, size_t size, int rank,
                       const int64_t *dim, const int64_t *stride) {
    int64_t index[RANK_MAX] = {0}, count = 1;
    const char *element = from;
    for (int i = 0; i < rank; i++) count *= dim[i];
    for (int64_t done = 0; done < count; done++) {
        memcpy((char *)to + (size_t)done * size, element, size);
        int axis = rank - 1;
        while (axis >= 0 && ++index[axis] == dim[axis]) {
            element -= (dim[axis] - 1) * stride[axis] * (int64_t)size;
            index[axis--] = 0;
        }
        if (axis >= 0) element += stride[axis] * (int64_t)size;
    }
}

Tensor checkpoint_rows(const Tensor *whole, int64_t first, int64_t rows) {
    Tensor out = tensor_retain(whole);
    out.dim[0] = 1;
    out.offset += (size_t)first * tensor_bytes(&out);
    out.dim[0] = rows;
    return out;
}

Status checkpoint_slice(Tensor *out, const Tensor *whole, int part, int parts,
                        Diag *diag) {
    int64_t dim[RANK_MAX];
    void *data;
    memcpy(dim, whole->dim, sizeof dim);
    dim[whole->rank - 1] /= parts;
    TRY(tensor_create(out, whole->dtype, whole->rank, dim, diag));
    TRY(tensor_writable(out, &data, diag));
    const size_t row = (size_t)dim[whole->rank - 1] * dtype_bytes(whole->dtype);
    const size_t rows = row ? tensor_bytes(out) / row : 0;
    const char *from = (const char *)tensor_data(whole) + (size_t)part * row;
    for (size_t r = 0; r < rows; r++)
        memcpy((char *)data + r * row, from + r * (size_t)parts * row, row);
    return STATUS_OK;
}
