/* Judges: how the predictions of a task are compared with the labels of a data set, one
 * record for each task (METRIC_ names: passes/evaluate/metric.h). Models that classify
 * samples or predict tokens of a vocabulary are evaluated by tallies, with their exits
 * (evaluation.h); every other task by its judge here. */
#ifndef COMPRESS_PASSES_EVALUATE_JUDGE_H
#define COMPRESS_PASSES_EVALUATE_JUDGE_H

#include "ir/batches.h"
#include "ir/model_parts.h"
#include "ir/tree.h"
#include "passes/evaluate/metric.h"

struct Evaluation;

/* A metric's place in Judge.metrics. */
#define JUDGE_KNOWS(metric) (1u << (metric))

typedef struct Judge {
    Task task;
    const char *output;     /* the graph's output that is judged */
    const char *columns[4]; /* of the data set, which are required, ended by NULL; indices
                               into `columns` of `add` are those of batches_column */
    bool exits;             /* early exits have such outputs too: exits: each */
    unsigned metrics;       /* JUDGE_KNOWS of those it can compute */
    Metric usual;           /* metric: auto */
    size_t size;            /* bytes of its state, which starts as zeros */

    /* Checks the data set's columns (types, shapes) against the model and allocates in
     * e->ctx->arena. Also called when planning with data, but then nothing else is.
     * Fails at the step. NULL = nothing to do. */
    Status (*begin)(void *self, struct Evaluation *e, Diag *diag);

    /* Adds the samples of one run: what->n predictions, one after another, padded as
     * `what` says, and the data as fetched. Runs come in the order of the data set, or
     * by length; see what->index. Fails at the data set or the step. */
    Status (*add)(void *self, struct Evaluation *e, const Fetch *what,
                  const float *predictions, const void *const *columns, Diag *diag);

    /* After the last sample: computes the metrics and puts them into `record`. */
    Status (*end)(void *self, struct Evaluation *e, Tree *record, Diag *diag);

    /* One of `metrics`, after `end`. */
    double (*metric)(const void *self, Metric metric);

    /* Frees what `begin` allocated besides the arena's memory, whatever failed in
     * between. NULL = nothing. */
    void (*close)(void *self);
} Judge;

/* The judge of a task; NULL = there is none. */
const Judge *judge_find(Task task);

/* All judges, in evaluate_judged.c, each at the end of its file. */
extern const Judge judge_choice, judge_embed, judge_follow, judge_labels, judge_probe,
    judge_regress, judge_span, judge_tokens;

#endif
