/* The program's name: packages may install it under another one, as Debian has another
 * `compress`. What it prints about itself then names the one that was started. */
#ifndef COMPRESS_CLI_PROGRAM_H
#define COMPRESS_CLI_PROGRAM_H

#include <stdio.h>

/* Takes the name from argv[0], which is borrowed; "compress" until then and where there
 * is none that can stand in a command line. */
void program_take_name(const char *argument);

/* The name. */
const char *program_name(void);

/* Prints text in which `compress` begins command lines, at the start of a line or behind
 * a backquote, a parenthesis or spaces of a line's start, by the program's name. */
void program_print(const char *text, FILE *out);

/* Has `print` print `what`, and that printed in the same way; to `out` itself if the name
 * is its own or there is no memory for the text. */
void program_tell(FILE *out, void (*print)(const void *what, FILE *out),
                  const void *what);

#endif
