/* Mapped: buffers over the pages of a file, and tensors in them, piece by piece.
 *
 * What lies in such a buffer can be read from the file again at any time, so its pages
 * need not stay in memory. */
#ifndef COMPRESS_IR_MAPPED_H
#define COMPRESS_IR_MAPPED_H

#include "ir/tensor.h"

/* buf_wrap for a file's bytes that are mapped to be read alone: nothing was ever written
 * to the pages. */
Buf *buf_wrap_file(const void *data, size_t bytes,
                   void (*release)(void *data, size_t bytes));

/* Whether the buffer's bytes lie in a file: buf_wrap_file made it, or it is an owned one
 * that spilled (ir/resident.h). False for NULL. */
bool buf_is_file(const Buf *buf);

/* Whether the bytes [offset, offset + bytes), whose hash is kept (buf_digest), are known
 * to be finite as elements of a real type; notes that they are, which is kept as long as
 * the hash, and is nothing where there is none. */
bool buf_known_finite(const Buf *buf, size_t offset, size_t bytes, DType dtype);
void buf_keep_finite(Buf *buf, size_t offset, size_t bytes, DType dtype);

/* Whether elements of a type are all finite, or not real; data need not be aligned. Not
 * for quantised types. */
bool elements_finite(DType dtype, const void *data, int64_t count);

/* Bytes [offset, offset + bytes) of a tensor's data; NULL for shape-only tensors. Whoever
 * goes over all of them takes PIECE_BYTES at a time: of a file only these count as used
 * (ir/resident.h), and while there is a bound the next ones are read ahead. With 0 bytes
 * the address alone, for who counts by himself. */
#define PIECE_BYTES ((size_t)4 << 20)
const void *tensor_piece(const Tensor *tensor, size_t offset, size_t bytes);

/* Whether a tensor lies in a mapped file and nothing of it is kept: its hash is not known
 * before all of its bytes are read. */
bool tensor_is_unread(const Tensor *tensor);

/* Gives the bytes of a tensor with data to `take`, piece by piece. Of one in a mapped
 * file of which nothing is kept yet, hash and finiteness are found on the way and kept,
 * as tensor_check_finite does. Fails as `take` does, which then gets no more. */
typedef Status PieceTaker(void *self, const void *piece, size_t bytes, Diag *diag);
Status tensor_give_pieces(const Tensor *tensor, PieceTaker *take, void *self, Diag *diag);

/* tensor_find_nonfinite that keeps with the hash of the bytes that all are finite, so
 * that nothing is read where it is known. In a mapped file the hash is taken in the same
 * go. */
int64_t tensor_check_finite(const Tensor *tensor);

/* Lets tensor_check_finite of tensors in mapped files find what it looks for: reads those
 * of which nothing is kept, two at a time by a thread of its own, which is what disks and
 * the kernel's copies leave time for. The same is kept as without it. */
void tensors_read_mapped(const Tensor *const *tensors, int count);

/* Whether two tensors of equal sizes in bytes hold the same bytes. Where the hash of `a`
 * is kept with a mapped file, that of `b` is compared with it and `a` is not read. */
bool tensor_same_bytes(const Tensor *a, const Tensor *b);

/* Gives the memory of the whole pages within [offset, offset + bytes) back; who reads
 * them later finds the same bytes, from the file. Nothing where buf_is_file says no. Any
 * number of threads may read meanwhile. */
void buf_drop_pages(const Buf *buf, size_t offset, size_t bytes);

#endif
