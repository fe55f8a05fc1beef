/* Trials: recipes that a search runs, each in its own process, several at a time, and
 * what their reports say. */
#ifndef COMPRESS_SESSION_SEARCH_TRIAL_H
#define COMPRESS_SESSION_SEARCH_TRIAL_H

#include "exec/run/ticker.h"
#include "ir/field.h"

typedef enum TrialStatus {
    TRIAL_WAITS,  /* was not run yet */
    TRIAL_DONE,   /* ran to its end */
    TRIAL_GATE,   /* a gate of its recipe failed */
    TRIAL_FAILED, /* an error: see the message */
} TrialStatus;

/* What a report says about a run. */
typedef struct TrialResult {
    TrialStatus status;
    const char *message; /* of the gate or the error; NULL = none */
    const char *metric;  /* in the last evaluate step; NULL = none */
    double value;        /* of the metric; NaN = none */
    double flops; /* of the final model, times flops_share if exits are evaluated */
    int64_t parameters;
    double seconds;
} TrialResult;

/* One process to be run. */
typedef struct Trial {
    const char *recipe; /* file; exists */
    const char *report; /* file that the process writes */
    const char *log;    /* file for its output */
    const char *output; /* model; NULL = nowhere */
    TrialResult result; /* filled when it ends, or if its report already exists */
} Trial;

/* How trials are run. */
typedef struct TrialRunner {
    const char *program; /* `compress` */
    const char *cache;   /* folder for finished steps; NULL = none */
    StringList flags;    /* further ones, passed to every process */
    int jobs;            /* processes at a time */
    int threads;         /* of each */
    const char *metric;  /* metric to read; NULL = the gate's, else the task's */
    Arena *arena;        /* for messages */
    const Watch *watch;  /* called after each trial; may be NULL */
} TrialRunner;

/* Runs the trials that have no report of a finished run, `jobs` at a time, and reads the
 * reports of all. A process's failure is its result. Fails with STATUS_IO if none can be
 * started, and with STATUS_INTERRUPTED, after running ones have ended, if the watch says
 * so: reports of finished trials stay, and another call continues. */
Status trials_run(const TrialRunner *runner, Trial *trials, int count, Diag *diag);

/* Reads a report; any other file leaves the status TRIAL_WAITS. `metric` as above.
 */
void trial_read(TrialResult *out, Arena *arena, const char *report, const char *metric);

#endif
