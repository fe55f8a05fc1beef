/* Signals: SIGINT, SIGTERM and SIGHUP request an orderly end if the program checks for
 * one, as it does from the first step of a recipe on. Before that, in commands that
 * never check, at a second signal, and a minute after the first, the program ends at
 * once, without the files that it was writing. A mapped file that was truncated ends
 * with a message (io/files/guard.h). */
#ifndef COMPRESS_CLI_SIGNALS_H
#define COMPRESS_CLI_SIGNALS_H

#include <stdbool.h>

/* Installs the handlers; signals that were ignored from the start stay ignored. */
void signals_install(void);

/* Whether an end was requested; from now on a single signal only makes the request.
 * `self` is not used (fits Watch.cancelled). */
bool signals_interrupted(void *self);

/* The same, called for the last time: from now on a signal ends the program at once. For
 * work that does not check, such as writing results. */
bool signals_interrupted_before(void);

/* From now on, writing to a pipe without a reader fails instead of ending the
 * program. */
void signals_ignore_pipe(void);

/* From now on signals do nothing: the program ends by itself, with its own exit code.
 * mpirun sends a signal to the other ranks when the first rank has failed. */
void signals_end(void);

#endif
