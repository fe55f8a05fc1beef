/* Memory: the peak resident memory of a run, predicted from its plan.
 *
 * What counts at a step is everything alive at the same time: the program; the data
 * sets; the weights of the input, of the model before and after the step, and of
 * snapshots, each counted in full although they share what no step changed; other models
 * that the step reads; and the working memory of the step: workspaces, gradients,
 * moments, Gram matrices, packed weights (train_bytes, run_bytes), two models in double
 * precision if outputs are compared. Pages of mapped files count, as the kernel counts
 * them. For streamed models (ir/resident.h) only the bound and the largest tensors
 * count.
 *
 * It should be no less than what getrusage reports afterwards: docs/streaming.md has
 * both for shipped recipes. */
#ifndef COMPRESS_SESSION_MEMORY_H
#define COMPRESS_SESSION_MEMORY_H

#include "session/session.h"

/* Whether steps use tensors one by one, so that the model need not fit into memory:
 * steps that read a data set go through the model layer by layer (PASS_STREAMS). */
bool memory_streams(const Session *session);

/* Fills `memory` of all steps of session->planned and of the report, for the steps that
 * were planned. */
void memory_foretell(Session *session);

/* Checks the prediction against options.memory. Fails with STATUS_MEMORY at the step
 * that takes the most. */
Status memory_check(const Session *session, Diag *diag);

#endif
