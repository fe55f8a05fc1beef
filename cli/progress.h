/* Progress on stderr: on a terminal, one line that is rewritten; elsewhere, as in logs,
 * a line when a step begins, one at every heartbeat of a long step, and one when it
 * ends. */
#ifndef COMPRESS_CLI_PROGRESS_H
#define COMPRESS_CLI_PROGRESS_H

#include "exec/train/train.h"

/* Seconds between two lines about one step if the line is not rewritten. */
#define HEARTBEAT_SECONDS 30.0

typedef struct Progress {
    bool live;  /* rewrite the line: a terminal, not --quiet, not CI */
    bool quiet; /* say nothing */
    bool shown; /* an unfinished line is on the screen */
    const char *name;
    int step, steps;     /* see progress_begin */
    double start;        /* of the step, in seconds */
    double heartbeat;    /* seconds between lines if not live */
    double told;         /* time of the latest of these lines */
    int64_t done, total; /* what the step last reported; total 0 = nothing yet */
    int64_t first;     /* done when the step told first, and when that was: where a run */
    double first_time; /* is resumed, that much was done before */
    char text[96];
} Progress;

/* Decides how to show progress. */
Progress progress_create(bool quiet);

/* Starts step `step` (from 0) of `steps`; with 0 steps, work in one piece, which gets a
 * line in a log only if it takes long. */
void progress_begin(Progress *progress, int step, int steps, const char *name);

/* Ends the step with a line of text (printf format). */
void progress_end(Progress *progress, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Removes an unfinished line, so that other text can follow. */
void progress_clear(Progress *progress);

/* Fits diag_on_warning: prints a warning's line when it arises, in place of an
 * unfinished line. `self` is the Progress, or NULL if there is none. */
void progress_warn(void *self, const char *line);

/* Fits Watch.progress; `self` is the Progress. */
void progress_update(void *self, int64_t done, int64_t total, const char *text);

/* Watch that shows progress and stops on signals. */
Watch progress_watch(Progress *progress);

#endif
