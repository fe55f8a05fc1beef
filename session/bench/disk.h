/* Disk: how fast a file is written durably, and read. */
#ifndef COMPRESS_SESSION_BENCH_DISK_H
#define COMPRESS_SESSION_BENCH_DISK_H

#include "ir/arena.h"
#include "ir/status.h"

/* Largest file that is written. */
#define DISK_BYTES ((size_t)256 << 20)

/* Writes `bytes` bytes (at most DISK_BYTES) to a new file in `folder`, makes it durable
 * (io/files/outfile.h), reads it with its pages dropped from memory, and removes it.
 * Stores the seconds of both. Messages name the file, in the arena.
 * Fails with STATUS_IO. */
Status disk_trial(Arena *arena, const char *folder, size_t bytes, double *write,
                  double *read, Diag *diag);

#endif
