/* Mapped: buffers over the pages of a file, and tensors in them, piece by piece.
 *
 * Data in such a buffer can be read from the file again at any time, so its pages need
 * not stay in memory. */
#ifndef COMPRESS_IR_MAPPED_H
#define COMPRESS_IR_MAPPED_H

#include "ir/tensor.h"

/* buf_wrap for a file's bytes that are mapped read-only: nothing was ever written to the
 * pages. */
Buf *buf_wrap_file(const void *data, size_t bytes,
                   void (*release)(void *data, size_t bytes));

/* Whether the buffer's bytes lie in a file: buf_wrap_file made it, or it is an owned one
 * that spilled (ir/resident.h). False for NULL. */
bool buf_is_file(const Buf *buf);

/* Whether the bytes [offset, offset + bytes), whose hash is kept (buf_digest), are known
 * to be finite as elements of a real type; and notes that they are, which is kept as
 * long as the hash, and has no effect without one. */
bool buf_known_finite(const Buf *buf, size_t offset, size_t bytes, DType dtype);
void buf_keep_finite(Buf *buf, size_t offset, size_t bytes, DType dtype);

/* Whether elements of a type are all finite, or not real; data need not be aligned. Not
 * for quantised types. */
bool elements_finite(DType dtype, const void *data, int64_t count);

/* Bytes [offset, offset + bytes) of a tensor's data; NULL for shape-only tensors. Code
 * that goes over all of them takes PIECE_BYTES at a time: in a file only these count as
 * used (ir/resident.h), and while there is a bound the next ones are read ahead. With 0
 * bytes, returns only the address; the caller counts the use itself. */
#define PIECE_BYTES ((size_t)4 << 20)
const void *tensor_piece(const Tensor *tensor, size_t offset, size_t bytes);

/* Whether a tensor is in a mapped file and its hash is not yet known, so that all of its
 * bytes must be read for it. */
bool tensor_is_unread(const Tensor *tensor);

/* Passes the bytes of a tensor with data to `take`, piece by piece. For a tensor in a
 * mapped file whose hash is not yet known, hash and finiteness are determined on the way
 * and kept, as by tensor_check_finite. Fails as `take` does, which is then not called
 * again. */
typedef Status PieceTaker(void *self, const void *piece, size_t bytes, Diag *diag);
Status tensor_give_pieces(const Tensor *tensor, PieceTaker *take, void *self, Diag *diag);

/* Like tensor_find_nonfinite, but keeps with the hash of the bytes that all are finite,
 * so that nothing is read if that is known. In a mapped file the hash is computed in the
 * same pass. */
int64_t tensor_check_finite(const Tensor *tensor);

/* Precomputes what tensor_check_finite needs for tensors in mapped files: reads those
 * whose hash is not yet known, two at a time with a second thread, as many as disks and
 * the kernel's copying can feed. Keeps the same as without it. */
void tensors_read_mapped(const Tensor *const *tensors, int count);

/* Whether two tensors of equal sizes in bytes hold the same bytes. If the hash of `a` is
 * kept with a mapped file, that of `b` is compared with it and `a` is not read. */
bool tensor_same_bytes(const Tensor *a, const Tensor *b);

/* Releases the memory of the whole pages within [offset, offset + bytes); later reads
 * find the same bytes, from the file. Does nothing if buf_is_file is false. Any number
 * of threads may read meanwhile. */
void buf_drop_pages(const Buf *buf, size_t offset, size_t bytes);

#endif
