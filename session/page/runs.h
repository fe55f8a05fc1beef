/* Runs: the subject of pages, read from reports of runs and from model files.
 *
 * Both may hold anything: a key that is missing, unknown or of the wrong kind is
 * ignored. */
#ifndef COMPRESS_SESSION_PAGE_RUNS_H
#define COMPRESS_SESSION_PAGE_RUNS_H

#include "ir/tree.h"
#include "session/report/metric_change.h"

#define RUNS_MAX      64
#define RUN_STEPS_MAX 1000 /* further steps of a run are ignored */
#define RUN_TEXT_MOST 200  /* characters of a name or message that are shown */

/* Size of a model; NAN = not known. */
typedef struct RunSize {
    double parameters, bytes, flops;
} RunSize;

typedef struct RunStep {
    const char *title;            /* "distill", "distill (slim)" */
    const char *pass;             /* "?" if not known */
    bool measures;                /* the pass may leave the model unchanged */
    RunSize size;                 /* of the model after the step */
    double seconds;               /* NAN = not known */
    bool failed;                  /* it ended the run: a gate that did not hold */
    bool reused;                  /* taken from an earlier run */
    const Tree *options, *record; /* maps or NULL */
    const Tree *structure; /* after the step (session/structure.h), NULL = unchanged, or
                              not known */
} RunStep;

typedef struct Run {
    const char *file;     /* as it was given */
    const char *name;     /* its last part without the ending; unique among the runs */
    const Tree *document; /* the whole report; for a model file its provenance */
    bool is_model;        /* a model file */
    const char *status;   /* "done", "gate", "error", "interrupted"; "" = not known */
    RunSize before, after;
    double file_before, file_after; /* bytes on disk; NAN = not known */
    double seconds;                 /* seconds that the steps took; NAN = not known */
    const Tree *structure;          /* of the input; NULL = not known */
    RunStep *steps;
    int count;
} Run;

/* Reads `count` files, each a report or a model, into `runs`. Everything is in the arena.
 * Fails with STATUS_IO, STATUS_FORMAT, and as model_load does. */
Status runs_read(Run *runs, Arena *arena, const char *const *files, int count,
                 Diag *diag);

/* The run of a report, without a name; it borrows from the document. */
void run_of_report(Run *run, Arena *arena, const char *file, const Tree *document);

/* Number under a key, NAN when there is none. */
double run_number(const Tree *map, const char *key);

/* List under a key, NULL when there is none. */
const Tree *run_list(const Tree *map, const char *key);

/* ---- metrics ---- */

/* A number of evaluate's records. */
typedef struct RunMetricKind {
    const char *key, *title;
    bool lower; /* less is better */
    bool percent;
} RunMetricKind;

/* All kinds, in the order in which they are shown; the last one has no key. */
extern const RunMetricKind run_metric_kinds[];

/* The kind with this key, which may be NULL; NULL = there is none. */
const RunMetricKind *run_metric_kind(const char *key);

/* Value of a kind that a step measured; NAN = none. Stores the data set's name if
 * requested. */
double run_step_metric(const RunStep *step, const RunMetricKind *kind, const char **data);

/* Whether the run measured on several data sets. */
bool run_measures_several(const Run *run);

/* A kind on one data set, over all steps. */
typedef struct RunMetric {
    const RunMetricKind *kind;
    const char *data;
    MetricChange change;
} RunMetric;

/* Everything that a run measured, at most 200; in the arena. */
RunMetric *run_metrics(const Run *run, Arena *arena, int *count);

/* The main kind of a run: that of its gate, else that of the last step that names one,
 * else the first in the order of kinds. NULL = it measured none. */
const RunMetricKind *run_main_metric(const Run *run);

/* FLOPs per sample as measured by a step's evaluation, fewer than the model's if samples
 * leave early; NAN = not known. */
double run_step_flops(const RunStep *step);

#endif
