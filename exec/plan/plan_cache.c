/* Plan cache: see plan_cache.h. */
#include "exec/plan/plan_cache.h"

#include <stdlib.h>

const Plan *plan_cache_find(const PlanCache *cache, int64_t samples, const Fetch *what) {
    const int64_t tokens = what ? what->tokens : 0, source = what ? what->source : 0;
    for (int i = 0; i < cache->count; i++)
        if (plan_samples(cache->plans[i]) == samples && cache->tokens[i] == tokens &&
            cache->source[i] == source)
            return cache->plans[i];
    return NULL;
}

static void reserve(PlanCache *cache) {
    if (cache->count < cache->capacity) return;
    cache->capacity = cache->capacity ? 2 * cache->capacity : 8;
    const size_t capacity = (size_t)cache->capacity;
    cache->plans = memory_grow(cache->plans, capacity, sizeof *cache->plans);
    cache->tokens = memory_grow(cache->tokens, capacity, sizeof *cache->tokens);
    cache->source = memory_grow(cache->source, capacity, sizeof *cache->source);
}

Status plan_cache_need(PlanCache *cache, int64_t samples, const Fetch *what, Diag *diag) {
    if (samples == 0 || plan_cache_find(cache, samples, what)) return STATUS_OK;
    const int64_t tokens = what ? what->tokens : 0, source = what ? what->source : 0;
    PlanOptions options = cache->options;
    options.sizes[DIM_INDEX(DIM_N)] = samples;
    if (tokens > 0) options.sizes[DIM_INDEX(DIM_T)] = tokens;
    if (tokens > 0 && cache->data && cache->data->masked)
        options.sizes[DIM_INDEX(DIM_M)] = batches_masked(cache->data, tokens);
    if (source > 0) options.sizes[DIM_INDEX(DIM_S)] = source;
    reserve(cache);
    TRY(plan_create(&cache->plans[cache->count], cache->graph, &options, diag));
    cache->tokens[cache->count] = tokens;
    cache->source[cache->count++] = source;
    return STATUS_OK;
}

const Plan *plan_cache_largest(const PlanCache *cache) {
    const Plan *largest = NULL;
    for (int i = 0; i < cache->count; i++)
        if (!largest ||
            plan_workspace_bytes(cache->plans[i]) > plan_workspace_bytes(largest))
            largest = cache->plans[i];
    return largest;
}

void plan_cache_close(PlanCache *cache) {
    for (int i = 0; i < cache->count; i++) plan_destroy(cache->plans[i]);
    free(cache->plans);
    free(cache->tokens);
    free(cache->source);
    *cache = (PlanCache){0};
}
