/* Memory: the most resident memory that a run takes, foretold from its plan.
 *
 * What counts at a step is what is alive at once: the program; the data sets; the weights
 * of the input, of the model before and after the step, and of snapshots, each counted
 * whole although they share what no step changed; other models that the step reads; and
 * what the step works with: workspaces, gradients, moments, Gram matrices, packed weights
 * (train_bytes, run_bytes), two models in double precision where outputs are compared.
 * Pages of mapped files count, as the kernel counts them. Of models that are streamed
 * (ir/resident.h) only the bound and the largest tensors count.
 *
 * It is meant to be no less than what getrusage finds afterwards: docs/streaming.md has
 * both for shipped recipes. */
#ifndef COMPRESS_SESSION_MEMORY_H
#define COMPRESS_SESSION_MEMORY_H

#include "session/session.h"

/* Whether steps use tensors one by one, so that the model need not fit into memory: those
 * that read a data set go over it layer by layer (PASS_STREAMS). */
bool memory_streams(const Session *session);

/* Fills `memory` of all steps of session->planned and of the report, for the steps that
 * were planned. */
void memory_foretell(Session *session);

/* Whether what was foretold keeps to options.memory. Fails with STATUS_MEMORY at the step
 * that takes the most. */
Status memory_check(const Session *session, Diag *diag);

#endif
