/* Checkpoint: named tensors from one or more files, whatever their format. */
#ifndef COMPRESS_IO_FORMATS_CHECKPOINT_H
#define COMPRESS_IO_FORMATS_CHECKPOINT_H

#include "ir/tensor.h"
#include "ir/tree.h"

typedef struct NamedTensor {
    const char *name;
    Tensor tensor; /* a view of the mapped file if its layout allows */
} NamedTensor;

/* Named tensors, sorted by name. */
typedef struct Checkpoint {
    Arena *arena;
    const char *path;
    NamedTensor *tensors;
    int count;
    int64_t file_bytes; /* of the files that it was read from; 0 = none */
    const Tree
        *metadata; /* of a safetensors file: a map of strings; NULL = it has none */
} Checkpoint;

/* An empty checkpoint with room for `capacity` tensors; never NULL. The path is copied.
 */
Checkpoint *checkpoint_create(const char *path, int capacity);

/* Sorts the tensors by name, as checkpoint_find needs them; names must be unique. */
void checkpoint_sort(Checkpoint *checkpoint);

/* Frees the checkpoint; tensors retained elsewhere keep the mapping alive. */
void checkpoint_destroy(Checkpoint *checkpoint);

/* Tensor by name, NULL when absent. */
const Tensor *checkpoint_find(const Checkpoint *checkpoint, const char *name);

/* Contiguous elements at `offset` of a mapped file: a view, or a copy if the data is not
 * aligned to its type. The shape must pass shape_size and the range lie in the buffer.
 * Fails with STATUS_MEMORY. */
Status checkpoint_view(Tensor *out, Buf *file, size_t offset, DType dtype, int rank,
                       const int64_t *dim, Diag *diag);

/* Copies elements of `size` bytes, `stride` elements (>= 0) apart from `from` on, one
 * after another to `to`. Both ranges must exist. */
void checkpoint_gather(void *to, const void *from, size_t size, int rank,
                       const int64_t *dim, const int64_t *stride);

/* Rows first .. first + rows - 1 of the first axis, which must exist: a view of the same
 * bytes. */
Tensor checkpoint_rows(const Tensor *whole, int64_t first, int64_t rows);

/* A copy of slice `part` of `parts` along the last axis, whose size they divide. Fails
 * with STATUS_MEMORY. */
Status checkpoint_slice(Tensor *out, const Tensor *whole, int part, int parts,
                        Diag *diag);

#endif
