/* Files: mapping, reading, and writing so that nothing is ever half written. */
#ifndef COMPRESS_IO_FILES_FILE_H
#define COMPRESS_IO_FILES_FILE_H

#include "io/files/outfile.h"
#include "io/files/path.h"
#include "ir/tensor.h"

#include <stdint.h>

/* Maps a regular file read-only. Devices, sockets and directories are refused. An empty
 * file gives an empty buffer. Fails with STATUS_IO. */
Status file_map(Buf **out, const char *path, Diag *diag);

/* Reads a whole regular file of at most `limit` bytes into the arena, terminated by a
 * zero byte that `length` does not count. Fails with STATUS_IO, or STATUS_FORMAT when it
 * is larger. */
Status file_read(char **text, size_t *length, Arena *arena, const char *path,
                 size_t limit, Diag *diag);

#endif
