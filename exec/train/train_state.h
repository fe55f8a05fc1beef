/* Training state: what a training run leaves so that another process can continue it,
 * and the keeper that stores it.
 *
 * A run that is stopped after step k and continues from its state ends with the same
 * bytes as one that was never stopped: weights, report and curve. The state holds
 *
 *     weights that are trained (in variational inference the means), the optimiser's
 *     moments, averaged weights, log variances; the best weights on a development set and
 * what is known about its measurements; sums and curve of the report; what a hook of the
 *     pass gathers (TrainHook); the step.
 *
 * The position in the data and the state of all random numbers follow from seed and
 * step: an epoch's order, a step's draws and augmentation are counted (ir/random.h),
 * never consumed. Priors are those of the model before the step, which the new process
 * has. A teacher's remembered answers are computed again. The identity of the run (seed,
 * options, data) is not in the state: the keeper returns it only for the same run.
 *
 * A state that is read comes from a file, which may hold anything: training checks every
 * name, dtype, shape and number before it takes over the first one. */
#ifndef COMPRESS_EXEC_TRAIN_TRAIN_STATE_H
#define COMPRESS_EXEC_TRAIN_TRAIN_STATE_H

#include "ir/tensor.h"
#include "ir/tree.h"

/* Names are unique within a state, and begin with what the tensor is: "weight/",
 * "first/", "second/", "average/", "history/", ... */
typedef struct TrainTensor {
    const char *name;
    Tensor tensor;
    bool taken; /* found by train_state_find */
} TrainTensor;

typedef struct TrainState {
    Arena *arena; /* of the list, names and numbers */
    TrainTensor *tensors;
    int tensor_count, tensor_room;
    int next;      /* where train_state_find looks first */
    Tree *numbers; /* map of whole and real numbers: step, total, serial, ... */
} TrainState;

/* An empty state. */
TrainState *train_state_create(void);

/* Drops the tensors and frees the state. NULL is allowed. */
void train_state_destroy(TrainState *state);

/* Adds a tensor under the name prefix + name, and takes over its reference. */
void train_state_add(TrainState *state, const char *prefix, const char *name,
                     Tensor tensor);

/* Adds a view of numbers that must outlive the state. The shape must pass shape_size. */
void train_state_view(TrainState *state, const char *prefix, const char *name,
                      DType dtype, int rank, const int64_t *dim, const void *data);

/* The tensor called prefix + name: it has this dtype and shape, complete data, and is
 * finite. Fails with STATUS_MODEL if it is missing or different. Borrowed. */
Status train_state_find(const Tensor **out, TrainState *state, const char *prefix,
                        const char *name, DType dtype, int rank, const int64_t *dim,
                        Diag *diag);

/* A whole number of `numbers` from least to most; a finite real one. Fail with
 * STATUS_MODEL if it is missing or different. */
Status train_state_int(int64_t *out, const TrainState *state, const char *name,
                       int64_t least, int64_t most, Diag *diag);
Status train_state_real(double *out, const TrainState *state, const char *name,
                        Diag *diag);

/* Fails with STATUS_MODEL if a tensor has not been looked up: it belongs to another run.
 */
Status train_state_all_found(const TrainState *state, Diag *diag);

/* A place where a training run leaves its state and finds it again; set by the code that
 * runs a recipe, not an option of recipes. Members may be NULL.
 *
 * A step has several training runs if its pass trains several models; they are numbered
 * from 0 as numbers.serial, and their states are all kept until the step is done. The
 * state of such a run is also saved when it ends, so that it is not run again: a state
 * whose step equals the total is that of a finished run.
 *
 * With several ranks (exec/run/ranks.h), all have one with the same functions: `due` and
 * `save` are called in rank 0, which then has the whole state; `load` is collective, and
 * gives every rank the state, whatever the number of ranks that left it. */
typedef struct TrainKeeper {
    void *self;
    /* Whether to keep the state now, after `done` of `total` steps. */
    bool (*due)(void *self, int64_t done, int64_t total);
    /* Takes the state, replacing an older one of the same serial. Its tensors are views
     * that are valid during the call. A failure ends the training. Called when it is
     * due, and, whatever `due` says, when training is interrupted, or ends and its step
     * continues with the next serial. */
    Status (*save)(void *self, const TrainState *state, Diag *diag);
    /* Returns the state that an earlier run of the same step left, to be destroyed by
     * the caller; NULL when there is none. */
    Status (*load)(void *self, int serial, TrainState **state, Diag *diag);
} TrainKeeper;

#endif
