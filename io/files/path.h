/* Paths: what they are, and putting them together. */
#ifndef COMPRESS_IO_FILES_PATH_H
#define COMPRESS_IO_FILES_PATH_H

#include "ir/arena.h"
#include "ir/status.h"

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

/* What a path is. */
bool path_is_folder(const char *path);
bool path_is_file(const char *path);

/* Whether a name ends so, in letters of either case; ".jsonl" and ".ndjson" are files of
 * JSON Lines. */
bool path_has_ending(const char *path, const char *ending);
bool path_is_json_lines(const char *path);

/* Which file, folder or link something is, whatever path it has. */
typedef struct FileIdentity {
    dev_t device;
    ino_t inode;
} FileIdentity;

/* What is at `path`; false, with zeros, where nothing is. */
bool path_identify(FileIdentity *identity, const char *path);

/* Whether that is at `path`. */
bool path_same(const char *path, const FileIdentity *identity);

/* `folder/name` in the arena; `name` alone when it is absolute. */
const char *path_join(Arena *arena, const char *folder, const char *name);

/* Folder part of a path in the arena, "." when it has none. */
const char *path_folder(Arena *arena, const char *path);

/* The path in the arena without slashes behind it; "/" stays. */
const char *path_trim(Arena *arena, const char *path);

/* Last part of a path in the arena, without slashes behind it: "bert" of "a/bert/"; of
 * "." and ".." that of the folder. */
const char *path_base(Arena *arena, const char *path);

/* A file or folder and its content, as far as can be told without reading it. */
typedef struct FileState {
    FileIdentity identity;
    off_t bytes;
    struct timespec modified; /* of a folder when entries of its own came or went */
} FileState;

/* What is at a path, to see later whether somebody wrote there; zeros: nothing is. */
FileState path_state(const char *path);

/* Whether both are the same. */
bool file_state_same(const FileState *a, const FileState *b);

/* Makes a folder where there is none, and those above it. Fails with STATUS_IO. */
Status path_make_folder(const char *path, Diag *diag);

/* Checks that a file found in a folder really lies in it: symbolic links must not lead
 * out, except into the blobs of the Hugging Face cache that the folder is a snapshot of.
 * Fails with STATUS_FORMAT, or STATUS_IO when there is no such file. */
Status path_check_inside(const char *folder, const char *path, Diag *diag);

#endif
