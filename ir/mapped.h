/* Mapped: buffers over the pages of a file.
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

/* Gives the memory of the whole pages within [offset, offset + bytes) back; who reads
 * them later finds the same bytes, from the file. Nothing where buf_is_file says no. Any
 * number of threads may read meanwhile. */
void buf_drop_pages(const Buf *buf, size_t offset, size_t bytes);

#endif
