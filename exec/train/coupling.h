/* Coupling: losses that compare the samples of a mini-batch with each other (Op.couples),
 * where the mini-batch is cut into micro-batches.
 *
 * Such a loss, and its gradient by the values that it reads, is computed once, on all
 * samples: the micro-batches are run forward for these values, the loss is run on all of
 * them together, and the micro-batches, run again with the same dropout draws, receive
 * its value and their rows of its gradient (RunMode.coupled). So it does not depend on
 * how a mini-batch is cut, and every sample is compared with every other one (gradient
 * caching: Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory
 * Limited Setup", 2021). The cost is one more forward run of each micro-batch. */
#ifndef COMPRESS_EXEC_TRAIN_COUPLING_H
#define COMPRESS_EXEC_TRAIN_COUPLING_H

#include "exec/run/run.h"

typedef struct Coupling Coupling;

/* The losses among the nodes of `plan` that couple samples, with room for up to `samples`
 * of a mini-batch; NULL when there are none. Fails as plan_create does, and with
 * STATUS_MEMORY. */
Status coupling_create(Coupling **out, const Plan *plan, int64_t samples, Diag *diag);
void coupling_destroy(Coupling *coupling);

/* Bytes that coupling_create takes for values and gradients. */
size_t coupling_bytes(const Plan *plan, int64_t samples);

/* Keeps what these losses read from samples first .. first + n, which the workspace has
 * run forward. Threads may call it concurrently for their own samples. */
void coupling_take(Coupling *coupling, const Workspace *workspace, int64_t first,
                   int64_t n);

/* Collective. Gives all ranks what each has taken: samples[r] samples in rank r, in
 * order of ranks. */
Status coupling_gather(Coupling *coupling, const int64_t *samples, Diag *diag);

/* Runs the losses on the first `samples` samples, all of them taken before. Fails as
 * plan_create does. */
Status coupling_run(Coupling *coupling, int64_t samples, Diag *diag);

/* The results, for RunMode.coupled; they live as long as the coupling. */
const Coupled *coupling_result(const Coupling *coupling);

#endif
