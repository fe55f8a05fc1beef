/* Trials: recipes that a search runs, each in a process of its own, several at a time,
 * and what their reports say of them. */
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

/* What a report says of a run. */
typedef struct TrialResult {
    TrialStatus status;
    const char *message; /* of the gate or the error; NULL = none */
    const char *metric;  /* in the last evaluate step; NULL = none */
    double value;        /* of the metric; NaN = none */
    double flops;        /* of the model at the end, times flops_share where exits are
                            evaluated */
    int64_t parameters;
    double seconds;
} TrialResult;

/* One process to be run. */
typedef struct Trial {
    const char *recipe; /* file; exists */
    const char *report; /* file that the process writes */
    const char *log;    /* file for what it says */
    const char *output; /* model; NULL = nowhere */
    TrialResult result; /* filled when it ends, or when its report is there already */
} Trial;

/* How trials are run. */
typedef struct TrialRunner {
    const char *program; /* `compress` */
    const char *cache;   /* folder for finished steps; NULL = none */
    StringList flags;    /* further ones, given to every process as they are */
    int jobs;            /* processes at a time */
    int threads;         /* of each */
    const char *metric;  /* whose value is wanted; NULL = the gate's, else the task's */
    Arena *arena;        /* for messages */
    const Watch *watch;  /* told after each trial; may be NULL */
} TrialRunner;

/* Runs the trials that have no report of a run that came to an end, `jobs` at a time, and
 * reads the reports of all. What a process fails with is its result. Fails with STATUS_IO
 * when none can be started, and with STATUS_INTERRUPTED, after the end of those that run,
 * when the watch says so: reports of finished trials stay, and another call goes on. */
Status trials_run(const TrialRunner *runner, Trial *trials, int count, Diag *diag);

/* Reads a report; a file that is none leaves the status TRIAL_WAITS. `metric` as above.
 */
void trial_read(TrialResult *out, Arena *arena, const char *report, const char *metric);

#endif
