/* Checkpoints: what a run keeps in its own folder, so that it can continue after it was
 * stopped, and end with the same bytes.
 *
 * - checkpoint.lock: held while a run uses the folder, and there as long as it is one
 * - run.json: keys of the steps so far, in order, with their parts; seconds that the last
 *   checkpoints took
 * - steps/, models/: a step store of them (session/reuse/step_store.h): the latest model,
 *   and the snapshots that later steps name
 * - training/KEY-N.state: state of the N-th training within the step that was running
 *
 * Keys (session/reuse/step_key.h) decide what can be used. How often: after as many
 * steps, or minutes of training, as the recipe says; by default when writing is expected
 * to take at most 1 % of the time since the last one, so that short runs keep nothing.
 * An interrupted run saves its state, unless that is only a few seconds' work.
 *
 * Failures to save are reported once, as a warning, and do not end the run. */
#ifndef COMPRESS_SESSION_REUSE_RUN_CHECKPOINT_H
#define COMPRESS_SESSION_REUSE_RUN_CHECKPOINT_H

#include "passes/pipeline/pipeline.h"
#include "session/reuse/step_store.h"

typedef struct RunCheckpoint RunCheckpoint;

typedef struct RunCheckpointOptions {
    const char *folder;   /* made with the first checkpoint */
    bool resume;          /* use what is there; otherwise the first new one replaces it */
    bool never;           /* nothing is written */
    const char *ended;    /* with `resume`: a possible output of an earlier finished run,
                             named in warnings; NULL = none */
    const Recipe *recipe; /* borrowed, like everything below */
    const Watch *watch;   /* NULL = never interrupted */
    Diag *diag;           /* where warnings go */

    /* Called after each checkpoint, with the seconds it took: of step `index`, or with
     * `training` of the state within it. May be NULL. */
    void *self;
    void (*kept)(void *self, int index, bool training, double seconds);
} RunCheckpointOptions;

/* Opens the checkpoint of a run. Warns about an unexpected or a missing checkpoint.
 * Fails with STATUS_IO if the folder holds other things, or if another run uses what is
 * to be resumed. */
Status run_checkpoint_open(RunCheckpoint **out, const RunCheckpointOptions *options);

/* Whether a folder is a run's checkpoint. */
bool run_checkpoint_is_folder(const char *path);

/* NULL is allowed. With `done` the folder is removed: the run's outputs are written. */
void run_checkpoint_close(RunCheckpoint *checkpoint, bool done);

/* Whether something of this run is kept. */
bool run_checkpoint_exists(const RunCheckpoint *checkpoint);
const char *run_checkpoint_folder(const RunCheckpoint *checkpoint);

/* What is stored of a step, its trees in the arena; and the model of a state, owned by
 * the caller. False and NULL: nothing. */
bool run_checkpoint_find(RunCheckpoint *checkpoint, const char *key, Arena *arena,
                         StepEntry *entry);
Model *run_checkpoint_model(RunCheckpoint *checkpoint, const char *state,
                            const OpTable *ops);

/* The files of such a model, and of a training within the current step, whether or not
 * they exist; in the arena. NULL: nothing is kept. */
const char *run_checkpoint_model_path(const RunCheckpoint *checkpoint, Arena *arena,
                                      const char *state);
const char *run_checkpoint_train_path(const RunCheckpoint *checkpoint, Arena *arena,
                                      int64_t serial);

/* Records a finished step; key, parts and entry are copied. Only the latest record of an
 * index counts. */
void run_checkpoint_note(RunCheckpoint *checkpoint, int index, const char *key,
                         const Tree *parts, const StepEntry *entry);

/* Step `index` begins, with a model of this many bytes. Fails with STATUS_USAGE if the
 * first step of a run to be resumed is not the one of this checkpoint, saying what
 * differs. */
Status run_checkpoint_begin(RunCheckpoint *checkpoint, int index, const char *key,
                            const Tree *parts, int64_t bytes);

/* Step `index`, which was recorded, has left `model`: stores it if it is time to. */
void run_checkpoint_step(RunCheckpoint *checkpoint, int index, Model *model);

/* Stores the state of training within the current step. */
const TrainKeeper *run_checkpoint_train_keeper(const RunCheckpoint *checkpoint);

#endif
