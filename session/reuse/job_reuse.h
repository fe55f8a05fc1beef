/* Finished steps in a job of several ranks: rank 0 stores and finds them, and sends them
 * to the others, which need not see its folders. */
#ifndef COMPRESS_SESSION_REUSE_JOB_REUSE_H
#define COMPRESS_SESSION_REUSE_JOB_REUSE_H

#include "session/reuse/step_reuse.h"

typedef struct JobReuse JobReuse;

/* Collective. `reuse` is rank 0's, NULL on the others; it and the arena must outlive the
 * result. NULL in *out: rank 0 stores nothing. Fails as the other ranks do. */
Status job_reuse_open(JobReuse **out, Arena *arena, StepReuse *reuse, Diag *diag);

/* For PipelineOptions; NULL if `reuse` is, or if training states are not kept. */
const StepKeeper *job_reuse_keeper(const JobReuse *reuse);
const TrainKeeper *job_reuse_train_keeper(const JobReuse *reuse);

#endif
