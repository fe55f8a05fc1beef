/* Files: mapping, reading, and writing so that nothing is ever half written. */
#ifndef COMPRESS_IO_FILES_FILE_H
#define COMPRESS_IO_FILES_FILE_H

#include "io/files/outfile.h"
#include "io/files/path.h"
#include "ir/tensor.h"

#include <stdint.h>

/* Tells that the file at `path` cannot be read, written, ... (`what`), for the reason of
 * an errno: STATUS_MEMORY where memory ran out, else STATUS_IO. */
Status file_fail(const char *path, const char *what, int code, Diag *diag);

/* Reads the first bytes of a regular file, `most` or all that there are, and returns
 * their number: 0 for what is no file, or cannot be read. errno is 0 then, unless the
 * system stands in the way of any file (file_of_system). For looking what a file is. */
size_t file_start(void *bytes, size_t most, const char *path);

/* Whether an errno says nothing of the file that was to be read, but of the system: out
 * of memory or descriptors, or a device that fails. */
bool file_of_system(int code);

/* Maps a regular file read-only. Devices, sockets and directories are refused. An empty
 * file gives an empty buffer. Fails with STATUS_IO, STATUS_MEMORY. */
Status file_map(Buf **out, const char *path, Diag *diag);

/* Reads a whole regular file of at most `limit` bytes into the arena, terminated by a
 * zero byte that `length` does not count. Fails with STATUS_IO, or STATUS_FORMAT when it
 * is larger. */
Status file_read(char **text, size_t *length, Arena *arena, const char *path,
                 size_t limit, Diag *diag);

/* The open descriptor that a path names (/dev/stdin, /dev/fd/N, /proc/self/fd/N), -1 for
 * any other path. */
int file_descriptor(const char *path);

/* Lets what is left of such a descriptor, whatever it is, be read as a file: it goes into
 * memory that takes its place, up to `limit` bytes and one more. Fails with STATUS_IO. */
Status file_take_stream(int descriptor, size_t limit, const char *path, Diag *diag);

/* Lets what comes through such a descriptor be read as a file, from its start and as
 * often as need be, also by a program that takes this one's place: what a pipe or socket
 * gives, up to `limit` bytes and one more, goes into memory that takes its place. Nothing
 * for a file. Fails with STATUS_IO. */
Status file_keep_stream(int descriptor, size_t limit, const char *path, Diag *diag);

#endif
