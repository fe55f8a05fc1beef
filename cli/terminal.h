/* Lines for people: how wide they may be, and breaking them. */
#ifndef COMPRESS_CLI_TERMINAL_H
#define COMPRESS_CLI_TERMINAL_H

#include "ir/status.h"

#include <stdio.h>

/* Columns of the screen that shows a stream: $COLUMNS, else the terminal's, else 80;
 * between 40 and 200. */
int terminal_columns(FILE *out);

/* Bytes of the longest part at the start of a text that `columns` hold, in whole
 * characters. */
int terminal_fit(const char *text, int columns);

/* Prints words after a line's first `used` columns, and ends the line. Lines hold
 * `columns`; further ones begin after `indent` spaces. Words are never cut. */
void terminal_wrap(FILE *out, const char *words, int used, int indent, int columns);

/* Prints lines, breaking those wider than the terminal after spaces, with a deeper
 * indent; unchanged if there is neither a terminal nor $COLUMNS. */
void terminal_print(FILE *out, const char *lines);

/* Flushes what was printed to a stream, standard output or its substitute. Fails with
 * STATUS_IO, also for earlier failures. */
Status terminal_flush(FILE *out, Diag *diag);

#endif
