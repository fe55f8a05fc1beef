/* Events: what happens in a run as JSON Lines, for programs that follow it.
 * docs/report.md lists them. Every line is available to readers as soon as it is
 * written.
 */
#ifndef COMPRESS_SESSION_REPORT_EVENTS_H
#define COMPRESS_SESSION_REPORT_EVENTS_H

#include "ir/tree.h"

typedef struct Events Events;

/* Starts writing events to a file, which is truncated, or to standard output, "-". Fails
 * with STATUS_IO. */
Status events_open(Events **out, const char *path, Diag *diag);

/* Fails with STATUS_IO, once, if a line could not be written; no further line is tried.
 * NULL events, here and below: does nothing. */
Status events_check(Events *events, Diag *diag);

/* Ends the writing. */
void events_close(Events *events);

/* Writes one event: its name, the time, and the contents of `values`, a map or NULL. */
void events_put(Events *events, const char *name, const Tree *values);

/* Writes a warning that arose, without the end of its line. */
void events_warning(Events *events, const char *line);

/* Writes the progress of step `step`, from 1: `done` of `total`, after `seconds`, with a
 * line of text or NULL; at most once a second. */
void events_progress(Events *events, int step, int64_t done, int64_t total,
                     const char *text, double seconds);

#endif
