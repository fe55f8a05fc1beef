/* Checks of outputs before long work starts. */
#ifndef COMPRESS_SESSION_OUTPUT_FILES_H
#define COMPRESS_SESSION_OUTPUT_FILES_H

#include "io/formats/save.h"

/* Checks that a file can be written at `path`: its folder exists and is writable, and
 * anything there now is a regular file. `what` names the flag or key in the message.
 * NULL is fine. Fails with STATUS_IO. */
Status output_check(Arena *arena, const char *what, const char *path, Diag *diag);

/* The same for a model's output, which may be a folder: "name/". */
Status output_path_check(Arena *arena, const char *what, const ModelOutput *output,
                         Diag *diag);

/* The folder, in the arena, into which a model's output is put. */
const char *output_folder(Arena *arena, const ModelOutput *output);

/* What kind of file is written. Files are known by their content: that a file is JSON
 * does not make it a report. */
typedef enum OutputKind {
    OUTPUT_MODEL,      /* in any format, file or folder */
    OUTPUT_TENSORS,    /* outputs of models, in safetensors */
    OUTPUT_REPORT,     /* of a run, or its events */
    OUTPUT_GENERATED,  /* texts that were generated, in JSON Lines */
    OUTPUT_VOCABULARY, /* a tokenizer of whole words */
    OUTPUT_ISSUES,     /* errors and warnings for gitlab */
    OUTPUT_PAGE,       /* of `compress report` */
    OUTPUT_DRAWING,    /* SVG */
    OUTPUT_TEXT        /* plain text, which might be anyone's: none is replaced */
} OutputKind;

/* Whether two paths name one file: the same existing file, or the same name in one
 * folder. */
bool same_file(const char *a, const char *b);

/* Whether `path` is `other`, or is inside it: a folder, which need not exist yet. */
bool output_overlaps(Arena *arena, const char *path, const char *other);

/* Checks that writing `path` loses nothing: anything there now is empty or of the same
 * kind, and is none of the files in `read` nor, for a folder, contains one; NULLs among
 * them are ignored. `path` NULL is fine. Fails with STATUS_IO. */
Status output_replace_check(const char *what, const char *path, OutputKind kind,
                            const StringList *read, Diag *diag);

/* The output for a model that failed a gate: under another name, NAME.failed.h5 for
 * NAME.h5, in the arena. */
ModelOutput output_of_failed(Arena *arena, const ModelOutput *output);

/* Makes sure that a folder exists and is writable; makes it when its parent exists.
 * Fails with STATUS_IO. */
Status folder_check(const char *what, const char *path, Diag *diag);

#endif
