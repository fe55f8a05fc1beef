/* Plan cache: the plans of one graph for the numbers of samples and tokens that occur.
 *
 * Text needs many of them: one for each combination of number of samples, target length
 * and source length. Lengths already come in buckets, as data sets pad to multiples of 8
 * (batches_pad); no coarser ones are made here, because kernels also sum over padded
 * positions: further zeros change how a sum falls into vector lanes, and so its last
 * bits. The cache is bounded by bytes: when plans take more than it may hold, the least
 * recently used are dropped. Making one again gives the same plan.
 *
 * All functions except create and destroy may be called from several threads. */
#ifndef COMPRESS_EXEC_PLAN_PLAN_CACHE_H
#define COMPRESS_EXEC_PLAN_PLAN_CACHE_H

#include "exec/plan/plan_build.h"
#include "ir/batches.h"

typedef struct PlanCache PlanCache;

/* Bytes that a cache may hold: hundreds of plans of a large model. */
#define PLAN_CACHE_BYTES ((size_t)64 << 20)

/* An empty cache that holds up to `most` bytes of plans, but always the latest one.
 * `options` is copied and gives everything except N; its sizes of T, S and M are for
 * data of one length. `data` gives M by T, NULL = as in options. Graph, data and what
 * the options point to are borrowed. Never NULL. */
PlanCache *plan_cache_create(Graph *graph, const Batches *data,
                             const PlanOptions *options, size_t most);

/* NULL is allowed. */
void plan_cache_destroy(PlanCache *cache);

/* The plan for `samples` samples (at least 1), padded like `what` (tokens 0 = T and M,
 * source 0 = S as in options; NULL = all as in options). *out is another reference,
 * which plan_destroy drops. Fails as plan_create does. */
Status plan_cache_get(PlanCache *cache, int64_t samples, const Fetch *what, Plan **out,
                      Diag *diag);

/* Number of plans in the cache, and the bytes they take. */
int plan_cache_count(PlanCache *cache);
size_t plan_cache_bytes(PlanCache *cache);

#endif
