/* Resident: models larger than memory. Bounds how much of mapped buffers stays in memory,
 * and lets new large buffers be kept in files.
 *
 * Pages of a mapped file can be released at any time: reading them again gives the same
 * bytes. While a bound is set, every use of a tensor's bytes in such a buffer is
 * counted, and when the use since the last time exceeds the bound, the pages of all of
 * them are released. The two largest pieces in use always fit, so that a tensor can be
 * read and another one written; what stays in memory is therefore at most the bound plus
 * twice the largest tensor, whatever the size of the model.
 *
 * With a folder to spill to, owned buffers are mapped from unnamed files in it once
 * others take more than the bound; they are counted and released in the same way. Bytes
 * and results are the same as without.
 *
 * The state is process-wide. Only one thread may set it up; any may use it. */
#ifndef COMPRESS_IR_RESIDENT_H
#define COMPRESS_IR_RESIDENT_H

#include "ir/status.h"

#include <stddef.h>

/* Bytes that are kept by default. */
#define RESIDENT_BYTES ((size_t)32 << 20)

/* Limits what stays in memory to `bytes` (0: no limit), and lets new buffers spill to
 * `folder` (NULL: no spilling). The folder's name is copied. */
void resident_bound(size_t bytes, const char *folder);

/* Lets new buffers stay in memory (true), or spill again: for short-lived working memory
 * that is used by its address. Calls nest. */
void resident_hold(bool hold);

/* The bound, 0 = none. */
size_t resident_bounded(void);

/* ---- for buffers (ir/tensor.c) and for code that reads their bytes by address ---- */

/* Announces the start and the end of a file mapping. */
void resident_add(const void *data, size_t bytes);
void resident_remove(const void *data);

/* Counts [data, data + bytes) as used from now on; repeated small uses are counted
 * once. */
void resident_use(const void *data, size_t bytes);

/* Lets the kernel read these bytes of a mapped file, which are needed soon, while others
 * are processed; does nothing without a bound. */
void resident_ahead(const void *data, size_t bytes);

/* Counts bytes of owned buffers as they are made and freed. */
void resident_own(size_t bytes);
void resident_disown(size_t bytes);

/* Whether a new buffer of this size is to be kept in a file. */
bool resident_spills(size_t bytes);

/* Zeroed pages of a new unnamed file in the folder, whose disk space is allocated before
 * anything is written. Freed by munmap. Fails with STATUS_MEMORY if the disk is full or
 * the folder cannot be written to. */
Status resident_spill(void **out, size_t bytes, Diag *diag);

#endif
