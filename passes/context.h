/* The context of a step: its input, what it may request, and where it leaves its
 * record. */
#ifndef COMPRESS_PASSES_CONTEXT_H
#define COMPRESS_PASSES_CONTEXT_H

#include "exec/train/train.h"
#include "ir/model.h"
#include "passes/step_source.h"

typedef struct Snapshot Snapshot;
typedef struct DataRanges DataRanges;

/* Another model that a step runs over its data set besides its own. */
typedef struct TeacherUse {
    const char *data; /* name of the data set */
    const char *path; /* given by the recipe for the teacher; NULL = the input model */
    const Model *model, *teacher;
    bool predictions; /* the predictions of both are compared: their classes must be the
                         same */
    bool trains;      /* the model learns from it */
} TeacherUse;

/* The data sets and models that the steps of a recipe may request. One value is passed
 * from the code that runs the recipe to every pass; passes use the functions below. */
typedef struct Resources Resources;
struct Resources {
    /* Data set by its name under `data:`, checked against what is known about `model`,
     * which will read it (its vocabulary, its class names). NULL in *out: the recipe is
     * planned without its data. Borrowed. */
    Status (*data)(Resources *self, const char *name, const Model *model, Loc at,
                   Batches **out, Diag *diag);
    /* Model by its path, or with NULL the recipe's input model as it was before the first
     * pass; `shapes`: without weights. Borrowed, not to be changed. */
    Status (*model)(Resources *self, const char *path, bool shapes, Loc at, Model **out,
                    Diag *diag);
    /* Checks a teacher against what is known about the model that learns from it and
     * about the data set. NULL: nothing is known. */
    Status (*teacher)(Resources *self, const TeacherUse *use, Loc at, Diag *diag);
    Arena *arena; /* lives as long as the data sets; NULL: nothing is kept about them */

    Snapshot *snapshots; /* of the run: see resources_drop_snapshots */
    DataRanges *ranges;  /* what is known about the data sets' integers */
};

/* A gate that does not hold: its metric, the option that bounds it, and the two
 * numbers. */
typedef struct GateFault {
    const char *metric; /* "accuracy", "flops_share" */
    const char *bound;  /* the option: "min", "max_flops" */
    double expected, found;
    bool whole;         /* numbers of things, printed without a fraction */
    const char *detail; /* suffix of the numbers; NULL = none */
} GateFault;

typedef struct GuessedShape GuessedShape; /* passes/guess.h */

typedef struct PassContext {
    const struct Pass *pass; /* of the step */
    const OpTable *ops;
    Arena *arena;  /* lives as long as the whole run */
    bool plan;     /* shapes only */
    uint64_t seed; /* of this step: recipe seed and step index mixed */
    int threads;
    StepSource source; /* the step in the recipe */
    int index; /* of the step in the run: the number of steps before it, whose records are
                  the last ones of the provenance's "steps" */
    Tree *record; /* this step's record: a map; ends up in the provenance and in
                     --report; numbers must be reproducible, so no times */
    Tree *times;  /* a map for measurements that differ from run to run (seconds, samples
                     per second): only in --report, never in the model */
    Tree *uses;   /* a list of what the step has requested so far, as maps: {data: NAME},
                     {model: PATH}, {snapshot: NAME}, {input: true}, {step: INDEX} for the
                     record of an earlier step, {clock: true}; NULL = not needed */
    GuessedShape *
        *guesses; /* planning: weights whose shapes are estimates; NULL = not tracked */
    const Watch *watch;
    const TrainKeeper *keeper; /* of training states; NULL = they are not kept */

    /* Set by the pass. */
    bool exact;           /* this run should preserve the model's outputs: check it */
    bool unsure;          /* planning: a run may change what this plan leaves unchanged */
    bool stays;           /* planning: the step leaves the bytes of weights unchanged */
    bool guessed;         /* planning: the plan's sizes so far, including this step's, are
                             estimates, and a run may give others */
    size_t train_bytes;   /* memory that training takes in addition to the weights
                             (planning) */
    size_t run_bytes;     /* the same for other work that goes over data (planning):
                             passes/run_memory.h */
    int64_t train_shards; /* parts that training runs at the same time: further threads
                             have nothing to do; 0 = nothing is trained (planning) */
    TrainWork train_work; /* of an optimiser step (planning) */

    const GateFault *gate; /* the one that did not hold (step_fail_gate), NULL = none */

    Model *model;         /* the one that the step gets */
    Resources *resources; /* what else it may request */
} PassContext;

/* What a step reads from a data set. */
typedef struct DataUse {
    Graph *graph;
    Node *const *roots; /* values of the graph to compute from it */
    int root_count;
    const char *option; /* of the step, which names the data set; NULL = data */
    const char *labels; /* column of labels to read in addition to the graph's inputs, if
                           the data set has it; NULL = none */
    int64_t classes;    /* they are below it */
    int64_t batch;      /* samples per run of the roots, from which the plan computes the
                           memory; 0 = the step does that itself */
    bool gradient;      /* such a run also goes backward from the root */
    bool mean; /* and the mean of the gradients is needed (exec/run/gradients.h) */
} DataUse;

/* The data set that the step's option `data` (or use->option) names, with all checks
 * that are possible before any work: every input that the roots depend on has a column
 * of its name, type and shape, the longest sample fits, and all ids and labels of all
 * samples are within tables and classes. `use` NULL: nothing is checked yet. The same
 * when planning, so that problems with the last step's data are reported before the
 * first step runs. NULL in *out: the recipe is planned without data. Fails with
 * STATUS_MODEL, naming the data set, at the option's place. */
Status step_data(PassContext *ctx, const char *name, const DataUse *use, Batches **out,
                 Diag *diag);

/* The prefix that marks a snapshot where a model is named; and the name in
 * "snapshot:NAME", NULL if `model` (may be NULL) is something else. */
#define SNAPSHOT_PREFIX "snapshot:"
const char *snapshot_name(const char *model);

/* The model that the step's option `teacher` names: a path, "snapshot:NAME" for one kept
 * by a `snapshot` step, NULL for the input model. When planning it has no weights. Fails
 * as the reading of a model does. */
Status step_teacher(PassContext *ctx, const char *path, Model **out, Diag *diag);

/* Checks a model of step_teacher, `path` its name, that runs over data set `data` beside
 * the step's model: the names and order of their classes if `predictions` are compared.
 * Warns about images prepared differently from what it expects. Fails with STATUS_MODEL
 * at the option's place. */
Status step_check_teacher(PassContext *ctx, const char *path, const Model *teacher,
                          const char *data, bool predictions, Diag *diag);

/* Notes that the step's result depends on the record of step `index` of the run, from 0,
 * and on no other; code that stores results of steps must know this. */
void step_uses_record(PassContext *ctx, int index);

/* Notes that the step's result depends on the speed of the machine: no other run may
 * reuse it. */
void step_uses_clock(PassContext *ctx);

/* Keeps a copy of a model as "snapshot:NAME", replacing any of that name: binding a
 * recipe refuses a name used by two steps, and a later round of a repeat replaces the
 * snapshot of the previous one. */
void step_snapshot(PassContext *ctx, const char *name, const Model *model);

/* Frees the snapshots. */
void resources_drop_snapshots(Resources *resources);

#endif
