/* Plan cache: the plans of one graph for the numbers of samples and tokens that occur.
 *
 * Text makes many of them: one for each number of samples times each length of the target
 * times each of the source. Lengths come in buckets already, as data sets pad to
 * multiples of 8 (batches_pad); no coarser ones are made here, because kernels sum over
 * padded positions too: further zeros change how a sum falls into vector lanes, and with
 * that its last bits. What bounds the cache is bytes: when plans take more than it may
 * hold, those that were asked for the longest time ago go. Making one again gives the
 * same plan.
 *
 * All functions but create and destroy may be called from several threads. */
#ifndef COMPRESS_EXEC_PLAN_PLAN_CACHE_H
#define COMPRESS_EXEC_PLAN_PLAN_CACHE_H

#include "exec/plan/plan_build.h"
#include "ir/batches.h"

typedef struct PlanCache PlanCache;

/* Bytes that a cache may hold: hundreds of plans of a large model. */
#define PLAN_CACHE_BYTES ((size_t)64 << 20)

/* An empty cache that holds up to `most` bytes of plans, but always the latest. `options`
 * is copied and says everything but N; sizes of T, S and M are those of data of one
 * length. `data` gives M by T, NULL = as in options. Graph, data and what the options
 * point to are borrowed. Never NULL. */
PlanCache *plan_cache_create(Graph *graph, const Batches *data,
                             const PlanOptions *options, size_t most);

/* NULL is allowed. */
void plan_cache_destroy(PlanCache *cache);

/* The plan for so many samples (at least 1), padded as `what` is (tokens 0 = T and M,
 * source 0 = S as in options; NULL = all as in options). *out is another reference, which
 * plan_destroy drops. Fails as plan_create does. */
Status plan_cache_get(PlanCache *cache, int64_t samples, const Fetch *what, Plan **out,
                      Diag *diag);

/* Plans in the cache, and the bytes they take. */
int plan_cache_count(PlanCache *cache);
size_t plan_cache_bytes(PlanCache *cache);

#endif
