/* Files: mapping, reading, and writing so that nothing is ever half written. */
#ifndef COMPRESS_IO_FILES_FILE_H
#define COMPRESS_IO_FILES_FILE_H

#include "io/files/outfile.h"
#include "io/files/path.h"
#include "ir/tensor.h"

#include <stdint.h>

/* Reports that the file at `path` cannot be read, written, ... (`what`), with the reason
 * from an errno: STATUS_MEMORY if memory ran out, else STATUS_IO. */
Status file_fail(const char *path, const char *what, int code, Diag *diag);

/* Reads the first bytes of a regular file, `most` or fewer if it is shorter, and returns
 * their number: 0 if it is not a file, or cannot be read. errno is then 0, unless the
 * system would fail for any file (file_of_system). For finding out what a file is. */
size_t file_start(void *bytes, size_t most, const char *path);

/* Whether an errno is about the system rather than the file to be read: out of memory or
 * descriptors, or a failing device. */
bool file_of_system(int code);

/* Maps a regular file read-only. Devices, sockets and directories are refused. An empty
 * file gives an empty buffer. Fails with STATUS_IO, STATUS_MEMORY. */
Status file_map(Buf **out, const char *path, Diag *diag);

/* The hash of a file's bytes (bytes_hash). Fails as file_map. */
Status file_hash(const char *path, char hash[HASH_TEXT_BYTES], Diag *diag);

/* Reads a whole regular file of at most `limit` bytes into the arena, terminated by a
 * zero byte that `length` does not count. Fails with STATUS_IO, or STATUS_FORMAT when it
 * is larger. */
Status file_read(char **text, size_t *length, Arena *arena, const char *path,
                 size_t limit, Diag *diag);

/* The open descriptor that a path names (/dev/stdin, /dev/fd/N, /proc/self/fd/N), -1 for
 * any other path. */
int file_descriptor(const char *path);

/* Makes the rest of such a descriptor, whatever it is, readable as a file: its data goes
 * into memory that replaces it, up to `limit` bytes and one more. Fails with
 * STATUS_IO. */
Status file_take_stream(int descriptor, size_t limit, const char *path, Diag *diag);

/* Makes the data of such a descriptor readable as a file, from its start and any number
 * of times, also by a program that replaces this one: the data of a pipe or socket, up
 * to `limit` bytes and one more, goes into memory that replaces it. Does nothing for a
 * file. Fails with STATUS_IO. */
Status file_keep_stream(int descriptor, size_t limit, const char *path, Diag *diag);

#endif
