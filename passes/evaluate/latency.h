/* Latency: how long a model takes for one sample. */
#ifndef COMPRESS_PASSES_EVALUATE_LATENCY_H
#define COMPRESS_PASSES_EVALUATE_LATENCY_H

#include "exec/run/ticker.h"
#include "ir/model.h"

/* The time that one thread takes to compute all outputs of the model for one sample of
 * the sizes of model_measure, in float32, by the same calls as any inference: the median
 * of `runs` runs after one that is not counted. Inputs are synthetic: real ones normal,
 * integers 1, or 0 if only that is valid, so nothing is masked. Collective: rank 0
 * measures while the others wait, and all get its time. Fails with STATUS_MODEL,
 * STATUS_MEMORY and, when the watch says so, STATUS_INTERRUPTED. */
Status model_latency(double *milliseconds, Model *model, int64_t runs, const Watch *watch,
                     Diag *diag);

#endif
