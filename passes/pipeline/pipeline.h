/* Pipeline: runs or plans a recipe's steps over a model.
 *
 * After every step: verify, check finiteness, measure, check exactness if claimed,
 * record in the provenance, dump on request.
 *
 * A step that was finished before, by this recipe or another one, need not run again: a
 * StepKeeper returns its result, and the run continues after it as if it had run. */
#ifndef COMPRESS_PASSES_PIPELINE_PIPELINE_H
#define COMPRESS_PASSES_PIPELINE_PIPELINE_H

#include "passes/measure.h"
#include "passes/pipeline/recipe.h"
#include "passes/pipeline/step_entry.h"

typedef enum DumpWhen {
    DUMP_NEVER,
    DUMP_BEFORE,
    DUMP_AFTER,
    DUMP_CHANGE,
    DUMP_FAILURE
} DumpWhen;

/* The result of a step that succeeded; the trees belong to the pipeline. */
typedef struct StepResult {
    Measure measure;      /* of the model after the step */
    const Tree *record;   /* as in the provenance */
    const Tree *times;    /* see PassContext.times */
    size_t train_bytes;   /* memory that training takes in addition to the weights */
    size_t run_bytes;     /* see PassContext.run_bytes */
    bool guessed;         /* see PassContext.guessed */
    bool stays;           /* see PassContext.stays */
    int64_t train_shards; /* see PassContext.train_shards */
    TrainWork train_work; /* see PassContext.train_work */
    int threads;          /* that the step was given */
    double seconds;       /* that the step took */
    bool reused;          /* it was not run: a StepKeeper had it */
    const Tree *uses;     /* see PassContext.uses; NULL for a step that was not run */
} StepResult;

/* What is known about a step that failed; everything belongs to the pipeline. */
typedef struct StepFailure {
    Status status;
    const Tree *record, *times; /* as far as the pass got */
    const GateFault *gate;      /* the gate that failed, NULL = not a gate */
    Model *before;              /* the model that the step received; NULL = not kept */
    double seconds;             /* that the step took */
} StepFailure;

/* What the pipeline tells its caller while it runs. Members may be NULL. */
typedef struct PipelineHooks {
    void *self;
    void (*step_begin)(void *self, const Recipe *recipe, int index);
    /* After a step that succeeded. */
    void (*step_end)(void *self, const Recipe *recipe, int index,
                     const StepResult *result);
    /* After a step that failed; its errors are in `diag`, to which more may be added. */
    void (*step_failed)(void *self, const Recipe *recipe, int index,
                        const StepFailure *failure, Diag *diag);
    /* IR text to write somewhere: `when` is "before", "after" or "failure". */
    Status (*dump)(void *self, int index, const char *pass, const char *when,
                   const char *text, size_t length, Diag *diag);
} PipelineHooks;

/* Where finished steps are kept and found again. `state` is the model_state_hash of the
 * model that the step receives. Failures to keep a step are reported as warnings and do
 * not end the run. */
typedef struct StepKeeper {
    void *self;
    /* What is kept of step `index` for such a model, its trees in the arena. False:
     * nothing is kept. */
    bool (*find)(void *self, int index, const char *state, Arena *arena, StepEntry *entry,
                 Diag *diag);
    /* The model of this state, owned by the caller. NULL: it is not kept. */
    Model *(*model)(void *self, const char *state, const OpTable *ops, Diag *diag);
    /* Step `index` begins, since it was not found. A failure ends the run: the state to
     * resume belongs to another run. */
    Status (*begin)(void *self, int index, const char *state, Diag *diag);
    /* Step `index` ran and left `model`, whose state is entry->state. */
    void (*keep)(void *self, int index, const char *state, const StepEntry *entry,
                 Model *model, Diag *diag);
} StepKeeper;

typedef struct PipelineOptions {
    bool plan;        /* shapes only */
    DumpWhen dump;    /* which IR texts to hand to hooks->dump */
    bool dump_values; /* with the values of weights (graph_print_named) */
    int only;         /* number of the only step to run, from 1; 0 = run all */
    int threads;
    const Watch *watch;
    PipelineHooks hooks;
    Resources *resources;            /* snapshots are dropped when the run ends */
    const StepKeeper *keeper;        /* NULL = every step runs; not asked when planning */
    const TrainKeeper *train_keeper; /* for the state within steps; NULL = none is kept */
} PipelineOptions;

/* Seed of step `index`: the recipe's, mixed with the index. */
uint64_t pipeline_step_seed(const Recipe *recipe, int index);

/* Runs all steps on `model`, which changes in place. On failure the model is in whatever
 * state the failing step left it and must not be written. Step records are appended to
 * model->provenance "steps". A step that changed nothing fails with STATUS_RECIPE unless
 * it measures or is allowed to; a repeated one must have changed something in some
 * round.
 */
Status pipeline_run(Model *model, const Recipe *recipe, const PipelineOptions *options,
                    Diag *diag);

#endif
