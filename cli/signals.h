/* Signals: SIGINT, SIGTERM and SIGHUP ask for an orderly end, a second one ends at once;
 * a mapped file that was truncated ends with a message (io/files/guard.h). */
#ifndef COMPRESS_CLI_SIGNALS_H
#define COMPRESS_CLI_SIGNALS_H

#include <stdbool.h>

/* Installs the handlers; signals that were ignored from the start stay ignored. */
void signals_install(void);

/* Whether an end was asked for; `self` is not used (fits Watch.cancelled). */
bool signals_interrupted(void *self);

#endif
