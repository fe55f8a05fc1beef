/* Plan cache: the plans of one graph for the numbers of samples and tokens that occur. */
#ifndef COMPRESS_EXEC_PLAN_PLAN_CACHE_H
#define COMPRESS_EXEC_PLAN_PLAN_CACHE_H

#include "exec/plan/plan.h"
#include "ir/batches.h"

typedef struct PlanCache {
    Graph *graph;
    const Batches *data; /* gives M by T; NULL = as in options */
    PlanOptions options; /* of every plan, N, T, S and M aside; sizes' T is the longest */
    Plan **plans;
    int64_t *tokens, *source; /* by plan: T and S asked for, 0 = as in options */
    int count, capacity;
} PlanCache;

/* Plan for so many samples, padded as `what` is (tokens 0 = T and M, source 0 = S as in
 * options; NULL = all as in options), NULL when there is none yet. */
const Plan *plan_cache_find(const PlanCache *cache, int64_t samples, const Fetch *what);

/* Makes that plan unless it is there; nothing for 0 samples. Not while other threads use
 * the cache or the graph. Fails as plan_create does. */
Status plan_cache_need(PlanCache *cache, int64_t samples, const Fetch *what, Diag *diag);

/* Plan with the largest workspace, NULL when the cache is empty. */
const Plan *plan_cache_largest(const PlanCache *cache);

/* Drops all plans. */
void plan_cache_close(PlanCache *cache);

#endif
