/* Paths: what they refer to, and joining them. */
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

/* The identity of a file, folder or link, independent of its path. */
typedef struct FileIdentity {
    dev_t device;
    ino_t inode;
} FileIdentity;

/* What is at `path`; false, with zeros, if nothing is. */
bool path_identify(FileIdentity *identity, const char *path);

/* Whether that one is at `path`. */
bool path_same(const char *path, const FileIdentity *identity);

/* `folder/name` in the arena; `name` alone when it is absolute. */
const char *path_join(Arena *arena, const char *folder, const char *name);

/* Folder part of a path in the arena, "." when it has none. */
const char *path_folder(Arena *arena, const char *path);

/* The path in the arena without trailing slashes; "/" stays. */
const char *path_trim(Arena *arena, const char *path);

/* Last part of a path in the arena, without trailing slashes: "bert" of "a/bert/"; for
 * "." and "..", the folder's name. */
const char *path_base(Arena *arena, const char *path);

/* A file or folder and its content, as far as can be determined without reading it. */
typedef struct FileState {
    FileIdentity identity;
    off_t bytes;
    struct timespec
        modified; /* for a folder, when its own entries were added or removed */
} FileState;

/* What is at a path, to find out later whether somebody wrote there; zeros: nothing. */
FileState path_state(const char *path);

/* Whether both are the same. */
bool file_state_same(const FileState *a, const FileState *b);

/* Makes a folder if there is none, and those above it. Fails with STATUS_IO. */
Status path_make_folder(const char *path, Diag *diag);

/* Checks that a file found in a folder really lies in it: symbolic links must not lead
 * out, except into the blobs of the Hugging Face cache if the folder is a snapshot in
 * it. Fails with STATUS_FORMAT, or STATUS_IO when there is no such file. */
Status path_check_inside(const char *folder, const char *path, Diag *diag);

#endif
