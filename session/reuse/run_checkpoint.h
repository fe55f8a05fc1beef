/* Checkpoints: what a run keeps in a folder of its own, so that it can go on after it was
 * stopped, and end in the same bytes.
 *
 * - checkpoint.lock: held while a run uses the folder, and there as long as it is one
 * - run.json: keys of the steps so far, in order, with their parts; seconds that the last
 *   checkpoints took
 * - steps/, models/: a step store of them (session/reuse/step_store.h): the latest model,
 *   and the snapshots that later steps name
 * - training/KEY-N.state: state of the N-th training within the step that was running
 *
 * Keys (session/reuse/step_key.h) decide what can be used. How often: after as many
 * steps, or minutes of training, as the recipe says; else when writing is expected to
 * take at most 1 % of the time since the last one, so that short runs keep nothing. A run
 * that is interrupted keeps what it has then, unless that is a few seconds' work.
 *
 * What goes wrong with keeping is told once, as a warning, and ends no run. */
#ifndef COMPRESS_SESSION_REUSE_RUN_CHECKPOINT_H
#define COMPRESS_SESSION_REUSE_RUN_CHECKPOINT_H

#include "passes/pipeline/pipeline.h"
#include "session/reuse/step_store.h"

typedef struct RunCheckpoint RunCheckpoint;

typedef struct RunCheckpointOptions {
    const char *folder; /* made with the first checkpoint */
    bool resume;        /* use what is there; else the first new one replaces it */
    bool never;         /* nothing is written */
    const char *ended;  /* with `resume`: a file that an earlier run may have ended with,
                           which warnings name; NULL = none */
    const Recipe *recipe; /* borrowed, as is all below */
    const Watch *watch;   /* NULL = never interrupted */
    Diag *diag;           /* where warnings go */

    /* After each checkpoint, which took so many seconds: of step `index`, or with
     * `training` of the state within it. May be NULL. */
    void *self;
    void (*kept)(void *self, int index, bool training, double seconds);
} RunCheckpointOptions;

/* Opens the checkpoint of a run. What is there and not wanted, and what is wanted and not
 * there, is told as a warning. Fails with STATUS_IO where the folder holds other things,
 * or where another run uses what is to be resumed. */
Status run_checkpoint_open(RunCheckpoint **out, const RunCheckpointOptions *options);

/* Whether a folder is one of a run's checkpoints. */
bool run_checkpoint_is_folder(const char *path);

/* NULL is allowed. With `done` the folder goes: the run's outputs are written. */
void run_checkpoint_close(RunCheckpoint *checkpoint, bool done);

/* Whether something of this run is kept. */
bool run_checkpoint_exists(const RunCheckpoint *checkpoint);
const char *run_checkpoint_folder(const RunCheckpoint *checkpoint);

/* What is kept of a step, its trees in the arena; the model of a state, owned by the
 * caller. False and NULL: nothing. */
bool run_checkpoint_find(RunCheckpoint *checkpoint, const char *key, Arena *arena,
                         StepEntry *entry);
Model *run_checkpoint_model(RunCheckpoint *checkpoint, const char *state,
                            const OpTable *ops);

/* The files of such a model, and of a training within the step that has begun, whether or
 * not they are there; the arena's. NULL: nothing is kept. */
const char *run_checkpoint_model_path(const RunCheckpoint *checkpoint, Arena *arena,
                                      const char *state);
const char *run_checkpoint_train_path(const RunCheckpoint *checkpoint, Arena *arena,
                                      int64_t serial);

/* Notes a step that is done: of key, parts and entry copies are made. Only the latest
 * note of an index counts. */
void run_checkpoint_note(RunCheckpoint *checkpoint, int index, const char *key,
                         const Tree *parts, const StepEntry *entry);

/* Step `index`, of a model of so many bytes, begins. Fails with STATUS_USAGE where the
 * first step of a run that was to be resumed is not the one whose checkpoint this is,
 * saying what differs. */
Status run_checkpoint_begin(RunCheckpoint *checkpoint, int index, const char *key,
                            const Tree *parts, int64_t bytes);

/* Step `index`, which was noted, has left `model`: keeps it where it is time for it. */
void run_checkpoint_step(RunCheckpoint *checkpoint, int index, Model *model);

/* Keeps the state of training within the step that has begun. */
const TrainKeeper *run_checkpoint_train_keeper(const RunCheckpoint *checkpoint);

#endif
