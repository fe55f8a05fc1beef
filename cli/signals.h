/* Signals: SIGINT, SIGTERM and SIGHUP ask for an orderly end where the program asks about
 * one, as it does from the first step of a recipe on; before, in commands that never ask,
 * when a second one comes, and a minute after the first, the program ends at once,
 * without the files that it was writing. A mapped file that was truncated ends with a
 * message (io/files/guard.h). */
#ifndef COMPRESS_CLI_SIGNALS_H
#define COMPRESS_CLI_SIGNALS_H

#include <stdbool.h>

/* Installs the handlers; signals that were ignored from the start stay ignored. */
void signals_install(void);

/* Whether an end was asked for; from now on one signal alone does no more. `self` is not
 * used (fits Watch.cancelled). */
bool signals_interrupted(void *self);

/* The same, asked for the last time: from now on a signal ends the program at once. For
 * what is not cut short by asking, as writing results is. */
bool signals_interrupted_before(void);

/* From now on writing to a pipe that nobody reads fails, and does not end the program. */
void signals_ignore_pipe(void);

/* From now on signals do nothing: the program ends by itself, and knows its exit code.
 * mpirun sends one to the other ranks when the first of them has failed. */
void signals_end(void);

#endif
