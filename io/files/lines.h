/* Lines of text files that are small enough to be held: prompts, JSON Lines. */
#ifndef COMPRESS_IO_FILES_LINES_H
#define COMPRESS_IO_FILES_LINES_H

#include "ir/arena.h"
#include "ir/status.h"
#include "ir/text.h"

/* A line without its end; it may hold NUL. */
typedef struct Line {
    TextSpan text;
    Loc at; /* column 1 */
} Line;

/* Reads the lines of a file of at most `limit` bytes into the arena, where `path` must
 * be, too: those that hold more than blanks; the number of all of them in *all, where
 * that is not NULL. A line ends in LF or CR LF; a mark of UTF-8 at the start of the file
 * is left out. Fails as file_read (io/files/file.h) and text_start_check do. */
Status lines_read(Line **out, int *count, int *all, Arena *arena, const char *path,
                  size_t limit, Diag *diag);

#endif
