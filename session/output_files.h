/* Checks of outputs before long work starts. */
#ifndef COMPRESS_SESSION_OUTPUT_FILES_H
#define COMPRESS_SESSION_OUTPUT_FILES_H

#include "io/formats/save.h"

/* Checks that a file can be written at `path`: its folder exists and is writable, and
 * what is there now, if anything, is a regular file. `what` names the flag or key in the
 * message. NULL is fine. Fails with STATUS_IO. */
Status output_check(Arena *arena, const char *what, const char *path, Diag *diag);

/* The same for a model's output, which may be a folder: "name/". */
Status output_path_check(Arena *arena, const char *what, const ModelOutput *output,
                         Diag *diag);

/* The output as it is where its model has failed a gate: under another name,
 * NAME.failed.h5 for NAME.h5, in the arena. */
ModelOutput output_of_failed(Arena *arena, const ModelOutput *output);

/* Makes sure that a folder exists and is writable; makes it when its parent exists.
 * Fails with STATUS_IO. */
Status folder_check(const char *what, const char *path, Diag *diag);

#endif
