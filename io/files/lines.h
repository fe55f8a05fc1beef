/* Lines of text files small enough to hold in memory: prompts, JSON Lines. */
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

/* Reads the lines of a file of at most `limit` bytes into the arena, which must also
 * hold `path`: those that contain more than blanks; *all, unless NULL, receives the
 * number of all lines. A line ends in LF or CR LF; a byte order mark at the start of the
 * file is left out. Fails as file_read (io/files/file.h) and text_start_check do. */
Status lines_read(Line **out, int *count, int *all, Arena *arena, const char *path,
                  size_t limit, Diag *diag);

#endif
