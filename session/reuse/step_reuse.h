/* Step reuse: provides a session's pipeline with finished steps, from the run's own
 * checkpoint and from a cache that runs share. */
#ifndef COMPRESS_SESSION_REUSE_STEP_REUSE_H
#define COMPRESS_SESSION_REUSE_STEP_REUSE_H

#include "session/session.h"

/* Default limit of a cache: 10 GiB. */
#define CACHE_LIMIT ((int64_t)10 << 30)

typedef struct StepReuse StepReuse;

/* Opens what the session's options and recipe ask for, for a session that is planned and
 * connected to its data sets. NULL in *out: nothing is stored or reused. `diag` receives
 * warnings while the steps run. Fails with STATUS_USAGE, STATUS_IO. */
Status step_reuse_open(StepReuse **out, Session *session, Diag *diag);

/* The place of the run's checkpoint: the recipe's folder, or one beside the first
 * output; NULL = there is no place for one, or none is wanted. */
const char *step_reuse_checkpoint(const Session *session);

/* For PipelineOptions; NULL if `reuse` is. */
const StepKeeper *step_reuse_keeper(const StepReuse *reuse);
const TrainKeeper *step_reuse_train_keeper(const StepReuse *reuse);

/* Files of the model last returned by the keeper, and of the state with this serial
 * returned by the train keeper; borrowed until the next call. */
const char *step_reuse_model_path(const StepReuse *reuse);
const char *step_reuse_train_path(const StepReuse *reuse, int serial);

/* Adds to an error that ended the run how it can be continued, if it can. */
void step_reuse_hint(const StepReuse *reuse, Diag *diag);

/* Frees it; NULL is allowed. With `done` the run's checkpoint is removed. */
void step_reuse_close(StepReuse *reuse, bool done);

#endif
