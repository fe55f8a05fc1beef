/* Files: mapping, reading, and writing so that nothing is ever half written. */
#ifndef COMPRESS_IO_FILES_FILE_H
#define COMPRESS_IO_FILES_FILE_H

#include "ir/arena.h"
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

/* What a path is. */
bool path_is_folder(const char *path);
bool path_is_file(const char *path);

/* `folder/name` in the arena; `name` alone when it is absolute. */
const char *path_join(Arena *arena, const char *folder, const char *name);

/* Folder part of a path in the arena, "." when it has none. */
const char *path_folder(Arena *arena, const char *path);

/* Checks that a file found in a folder really lies in it: symbolic links must not lead
 * out, except into the blobs of the Hugging Face cache that the folder is a snapshot of.
 * Fails with STATUS_FORMAT, or STATUS_IO when there is no such file. */
Status path_check_inside(const char *folder, const char *path, Diag *diag);

/* Output: a file being written under a temporary name beside its target. */
typedef struct OutFile OutFile;

/* Starts writing `path`: makes a temporary file in the same folder (O_EXCL) and first
 * removes stale ones that dead processes left there for the same target.
 * `temporary` (may be NULL) receives its name (valid until the end). Fails with
 * STATUS_IO. */
Status outfile_open(OutFile **out, const char **temporary, const char *path, Diag *diag);

/* Appends bytes; for writers that do not open the temporary file themselves. Fails with
 * STATUS_IO. */
Status outfile_write(OutFile *file, const void *data, size_t length, Diag *diag);

/* Makes the data durable and puts it in place: fsync, rename, fsync of the folder.
 * The target holds either its old content or all of the new. Frees `file` either way; on
 * failure the temporary file is removed. Fails with STATUS_IO. */
Status outfile_commit(OutFile *file, Diag *diag);

/* Gives up: removes the temporary file. NULL is allowed. */
void outfile_abandon(OutFile *file);

/* Removes the temporary files of every OutFile still open; async-signal-safe, for signal
 * handlers that are about to end the process. */
void outfile_abandon_all(void);

/* Writes a whole small file through an OutFile. */
Status file_write(const char *path, const void *data, size_t length, Diag *diag);

#endif
