/* Resident: models larger than memory. Bounds how much of mapped buffers stays in memory,
 * and lets new large buffers lie in files.
 *
 * Pages of a mapped file can be given back at any time: who reads them again finds the
 * same bytes. While a bound is set, every use of a tensor's bytes in such a buffer is
 * counted, and when what was used since the last time goes beyond the bound, the pages of
 * all of them are given back. The two largest pieces in use always fit, so that a tensor
 * can be read and another one written; what stays in memory is therefore at most the
 * bound and twice the largest tensor, whatever the size of the model.
 *
 * With a folder to spill to, owned buffers are mapped from files without a name in it
 * once others take more than the bound; they are counted and given back in the same way.
 * Bytes and results are the same as without.
 *
 * State is of the process. Setting it up is for one thread; using it, for any. */
#ifndef COMPRESS_IR_RESIDENT_H
#define COMPRESS_IR_RESIDENT_H

#include "ir/status.h"

#include <stddef.h>

/* Bytes that are kept where nobody says otherwise. */
#define RESIDENT_BYTES ((size_t)32 << 20)

/* Bounds what stays in memory to `bytes` (0: no longer), and lets buffers that are made
 * from now on spill to `folder` (NULL: none do). The folder's name is copied. */
void resident_bound(size_t bytes, const char *folder);

/* Lets new buffers stay in memory (true), or spill again: for what is worked with and
 * soon gone, and used by its address. Calls nest. */
void resident_hold(bool hold);

/* The bound, 0 = none. */
size_t resident_bounded(void);

/* ---- for buffers (ir/tensor.c) and for who reads their bytes by address ---- */

/* Tells of a mapping of a file from its start, and of its end. */
void resident_add(const void *data, size_t bytes);
void resident_remove(const void *data);

/* Counts [data, data + bytes) as used from now on; a little costs nothing twice. */
void resident_use(const void *data, size_t bytes);

/* Lets the kernel read these bytes of a mapped file, which are wanted soon, while others
 * are worked on; nothing without a bound. */
void resident_ahead(const void *data, size_t bytes);

/* Counts bytes of owned buffers that are made and freed. */
void resident_own(size_t bytes);
void resident_disown(size_t bytes);

/* Whether a new buffer of this size is to lie in a file. */
bool resident_spills(size_t bytes);

/* Zeroed pages of a new file without a name in the folder, whose disk space is taken
 * before anything is written. Freed by munmap. Fails with STATUS_MEMORY: the disk is
 * full, the folder cannot be written to. */
Status resident_spill(void **out, size_t bytes, Diag *diag);

#endif
