/* The context of a step: what it is told, what it may ask for, and where it leaves its
 * record. */
#ifndef COMPRESS_PASSES_CONTEXT_H
#define COMPRESS_PASSES_CONTEXT_H

#include "exec/train/train.h"
#include "ir/model.h"
#include "passes/step_source.h"

typedef struct Snapshot Snapshot;
typedef struct DataRanges DataRanges;

/* Another model that a step runs over its data set beside the one that it gets. */
typedef struct TeacherUse {
    const char *data; /* name of the data set */
    const char *path; /* that the recipe gives the teacher; NULL = the input model */
    const Model *model, *teacher;
    bool predictions; /* both predict, and that is compared: their classes are the same */
    bool trains;      /* the model learns from it */
} TeacherUse;

/* The data sets and models that the steps of a recipe may ask for. One value goes from
 * whoever runs the recipe to every pass; passes ask with the functions below. */
typedef struct Resources Resources;
struct Resources {
    /* Data set by its name under `data:`, checked against what is known of `model`, which
     * will read it (its vocabulary, the names of its classes). NULL in *out: there is
     * nothing to look at, because the recipe is planned without its data. Borrowed. */
    Status (*data)(Resources *self, const char *name, const Model *model, Loc at,
                   Batches **out, Diag *diag);
    /* Model by its path, or with NULL the recipe's input model as it was before the first
     * pass; `shapes`: without weights. Borrowed, not to be changed. */
    Status (*model)(Resources *self, const char *path, bool shapes, Loc at, Model **out,
                    Diag *diag);
    /* Checks a teacher against what is known of the model that learns from it and of the
     * data set. NULL: nothing is known. */
    Status (*teacher)(Resources *self, const TeacherUse *use, Loc at, Diag *diag);
    Arena *arena; /* lives as long as the data sets; NULL: nothing is kept about them */

    Snapshot *snapshots; /* of the run: see resources_drop_snapshots */
    DataRanges *ranges;  /* what is known of the data sets' integers */
};

/* A gate that does not hold: what it is about, the option that bounds it, and the two
 * numbers. */
typedef struct GateFault {
    const char *metric; /* "accuracy", "flops_share" */
    const char *bound;  /* the option: "min", "max_flops" */
    double expected, found;
    bool whole;         /* numbers of things, printed without a fraction */
    const char *detail; /* what is put behind the numbers; NULL = nothing */
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
    int index;         /* of the step in the run: so many steps of it ran before, whose
                          records are the last ones of the provenance's "steps" */
    Tree *record;      /* this step's record: a map; ends up in the provenance and in
                          --report; numbers must be reproducible, so no times */
    Tree *times;       /* a map for what no two runs measure alike (seconds, samples per
                          second): in --report only, never in the model */
    Tree *uses; /* a list of what the step has asked for so far, as maps: {data: NAME},
                   {model: PATH}, {snapshot: NAME}, {input: true}, {step: INDEX} for the
                   record of a step before, {clock: true}; NULL = not wanted */
    GuessedShape **guesses; /* planning: weights whose shapes are guessed; NULL = they are
                               not noted */
    const Watch *watch;
    const TrainKeeper *keeper; /* of the state of trainings; NULL = nobody keeps it */

    /* Set by the pass. */
    bool exact;         /* this run should preserve the model's outputs: check it */
    bool unsure;        /* planning: a run may change what this plan leaves as it is */
    bool stays;         /* planning: weights that the step leaves are bytes it got */
    bool guessed;       /* planning: the sizes that the plan has so far, this step's too,
                           are guesses, and a run may give others */
    size_t train_bytes; /* memory that training takes beside the weights (planning) */
    size_t run_bytes;   /* the same of what else goes over data (planning):
                           passes/run_memory.h */
    int64_t train_shards; /* parts that training does at a time: more threads than these
                             have nothing to do; 0 = nothing is trained (planning) */
    TrainWork train_work; /* of an optimiser step (planning) */

    const GateFault *gate; /* the one that did not hold (step_fail_gate), NULL = none */

    Model *model;         /* the one that the step gets */
    Resources *resources; /* what else it may ask for */
} PassContext;

/* What a step reads of a data set. */
typedef struct DataUse {
    Graph *graph;
    Node *const *roots; /* values of the graph that are computed from it */
    int root_count;
    const char *option; /* of the step, which names the data set; NULL = data */
    const char *labels; /* column of labels that are read beside the graph's inputs, where
                           the data set has it; NULL = none */
    int64_t classes;    /* they are below it */
    int64_t batch; /* samples of a run of the roots, whose memory the plan then knows;
                      0 = the step tells it */
    bool gradient; /* such a run goes backward from the root, too */
    bool mean;     /* and the mean of the gradients is wanted (exec/run/gradients.h) */
} DataUse;

/* The data set that the step's option `data` (or use->option) names, and all that can be
 * said of it before any work: every input that the roots depend on has a column of its
 * name, type and shape, the longest sample fits, and all ids and labels of all samples
 * are within tables and classes. `use` NULL: nothing is checked yet. The same when
 * planning, so that what is wrong with the last step's data is said before the first step
 * runs. NULL in *out: the recipe is planned without data. Fails with STATUS_MODEL, naming
 * the data set, at the option's place. */
Status step_data(PassContext *ctx, const char *name, const DataUse *use, Batches **out,
                 Diag *diag);

/* What stands before the name of a snapshot where a model is named; the name in
 * "snapshot:NAME", NULL when `model` (may be NULL) is something else. */
#define SNAPSHOT_PREFIX "snapshot:"
const char *snapshot_name(const char *model);

/* The model that the step's option `teacher` names: a path, "snapshot:NAME" for the one
 * that a `snapshot` step kept, NULL for the input model. When planning it has no weights.
 * Fails as the reading of a model does. */
Status step_teacher(PassContext *ctx, const char *path, Model **out, Diag *diag);

/* Checks a model of step_teacher, `path` its name, that runs over data set `data` beside
 * the step's model: the names and order of their classes where `predictions` are
 * compared. Warns of images prepared otherwise than it wants them. Fails with
 * STATUS_MODEL at the option's place. */
Status step_check_teacher(PassContext *ctx, const char *path, const Model *teacher,
                          const char *data, bool predictions, Diag *diag);

/* Notes that what comes of the step depends on the record of step `index` of the run,
 * from 0, and on no other: whoever keeps what steps gave must know. */
void step_uses_record(PassContext *ctx, int index);

/* Notes that what comes of the step depends on how fast the machine is: no other run may
 * take it over. */
void step_uses_clock(PassContext *ctx);

/* Keeps a copy of a model as "snapshot:NAME", in place of one of that name: binding a
 * recipe refuses names that two steps give, and a later round of a repeat takes the place
 * of the one before. */
void step_snapshot(PassContext *ctx, const char *name, const Model *model);

/* Frees the snapshots. */
void resources_drop_snapshots(Resources *resources);

#endif
