/* Folder: files by name, on disk or in memory, for readers that need several files from
 * one place. */
#ifndef COMPRESS_IO_FILES_FOLDER_H
#define COMPRESS_IO_FILES_FOLDER_H

#include "ir/model.h"

typedef struct Folder {
    const char *path; /* of the folder; for files in memory, their name in messages */
    const ModelAsset *files; /* in memory; NULL = they are in the folder at `path` */
    int file_count;
    const char *given; /* path of a file in it named by the user, possibly a link that
                          leads elsewhere; NULL = none */
} Folder;

/* Path of a file, existing or not, for messages; in the arena. */
const char *folder_file(const Folder *folder, Arena *arena, const char *name);

/* Whether there is a file of this name. */
bool folder_has(const Folder *folder, const char *name);

/* Reads a file of at most `limit` bytes into the arena, terminated by a zero byte that
 * `length` does not count. Links that lead out of the folder are refused. Fails with
 * STATUS_IO, STATUS_FORMAT. */
Status folder_read(char **text, size_t *length, const Folder *folder, Arena *arena,
                   const char *name, size_t limit, Diag *diag);

/* The same, parsed as JSON. */
Status folder_read_json(Tree **out, const Folder *folder, Arena *arena, const char *name,
                        size_t limit, Diag *diag);

/* The contents of a folder on disk, sorted by bytes, in the arena; names that begin with
 * a dot are left out. Fails with STATUS_IO. */
Status folder_names(const char ***names, int64_t *count, Arena *arena, const char *path,
                    Diag *diag);

#endif
