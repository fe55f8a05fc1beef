/* Pipeline: runs or plans a recipe's steps over a model.
 *
 * After every step: verify, check finiteness, measure, check exactness where it is
 * claimed, record in the provenance, dump when asked. */
#ifndef COMPRESS_PASSES_PIPELINE_PIPELINE_H
#define COMPRESS_PASSES_PIPELINE_PIPELINE_H

#include "passes/measure.h"
#include "passes/pipeline/recipe.h"

typedef enum DumpWhen {
    DUMP_NEVER,
    DUMP_BEFORE,
    DUMP_AFTER,
    DUMP_CHANGE,
    DUMP_FAILURE
} DumpWhen;

/* What a step that succeeded gave; the trees are the pipeline's. */
typedef struct StepResult {
    Measure measure;      /* of the model after the step */
    const Tree *record;   /* as in the provenance */
    const Tree *times;    /* see PassContext.times */
    size_t train_bytes;   /* memory that training takes beside the weights */
    int64_t train_shards; /* see PassContext.train_shards */
    int threads;          /* that the step was given */
    double seconds;       /* that the step took */
} StepResult;

/* What the caller wants to know while the pipeline runs. Members may be NULL. */
typedef struct PipelineHooks {
    void *self;
    void (*step_begin)(void *self, const Recipe *recipe, int index);
    /* After a step that succeeded. */
    void (*step_end)(void *self, const Recipe *recipe, int index,
                     const StepResult *result);
    /* IR text to write somewhere: `when` is "before", "after" or "failure". */
    Status (*dump)(void *self, int index, const char *pass, const char *when,
                   const char *text, size_t length, Diag *diag);
} PipelineHooks;

typedef struct PipelineOptions {
    bool plan;        /* shapes only */
    DumpWhen dump;    /* which IR texts to hand to hooks->dump */
    bool dump_values; /* with what the weights are (graph_print_values) */
    int threads;
    const Watch *watch;
    PipelineHooks hooks;
    Resources *resources; /* snapshots are dropped when the run ends */
} PipelineOptions;

/* Runs all steps on `model`, which changes in place. On failure the model is whatever the
 * failing step left and must not be written. Step records are appended to
 * model->provenance "steps". A step that changed nothing fails with STATUS_RECIPE unless
 * it measures or is allowed to; a repeated one must have changed something in some round.
 */
Status pipeline_run(Model *model, const Recipe *recipe, const PipelineOptions *options,
                    Diag *diag);

#endif
