/* Plan cache: see plan_cache.h. */
#include "exec/plan/plan_cache.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct CachedPlan {
    Plan *plan;
    int64_t tokens, source; /* T and S asked for, 0 = as in options */
    size_t bytes;
    uint64_t used; /* when it was asked for last, by PlanCache.clock */
} CachedPlan;

struct PlanCache {
    Graph *graph;
    const Batches *data;
    PlanOptions options;
    size_t most, bytes;
    CachedPlan *plans;
    int count, capacity;
    uint64_t clock;
    pthread_mutex_t lock; /* also while a plan is made: another may want the same */
};

PlanCache *plan_cache_create(Graph *graph, const Batches *data,
                             const PlanOptions *options, size_t most) {
    PlanCache *cache = memory_alloc(1, sizeof *cache);
    *cache = (PlanCache){.graph = graph, .data = data, .options = *options, .most = most};
    pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

void plan_cache_destroy(PlanCache *cache) {
    if (!cache) return;
    for (int i = 0; i < cache->count; i++) plan_destroy(cache->plans[i].plan);
    free(cache->plans);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static Status make_plan(PlanCache *cache, int64_t samples, int64_t tokens, int64_t source,
                        Plan **out, Diag *diag) {
    PlanOptions options = cache->options;
    options.sizes[DIM_INDEX(DIM_N)] = samples;
    if (tokens > 0) options.sizes[DIM_INDEX(DIM_T)] = tokens;
    if (tokens > 0 && cache->data && cache->data->masked)
        options.sizes[DIM_INDEX(DIM_M)] = batches_masked(cache->data, tokens);
    if (source > 0) options.sizes[DIM_INDEX(DIM_S)] = source;
    TRY(plan_create(out, cache->graph, &options, diag));
    if (cache->count == cache->capacity) {
        cache->capacity = cache->capacity ? 2 * cache->capacity : 8;
        cache->plans =
            memory_grow(cache->plans, (size_t)cache->capacity, sizeof *cache->plans);
    }
    const CachedPlan made = {.plan = *out,
                             .tokens = tokens,
                             .source = source,
                             .bytes = arena_bytes((*out)->arena),
                             .used = ++cache->clock};
    cache->plans[cache->count++] = made;
    cache->bytes += made.bytes;
    /* The plans asked for the longest time ago go, but never the last one. */
    while (cache->bytes > cache->most && cache->count > 1) {
        CachedPlan *oldest = cache->plans;
        for (int i = 1; i < cache->count; i++)
            if (cache->plans[i].used < oldest->used) oldest = &cache->plans[i];
        cache->bytes -= oldest->bytes;
        plan_destroy(oldest->plan);
        *oldest = cache->plans[--cache->count];
    }
    return STATUS_OK;
}

static Plan *find_plan(PlanCache *cache, int64_t samples, int64_t tokens,
                       int64_t source) {
    for (int i = 0; i < cache->count; i++) {
        CachedPlan *cached = &cache->plans[i];
        if (cached->plan->samples != samples || cached->tokens != tokens ||
            cached->source != source)
            continue;
        cached->used = ++cache->clock;
        return cached->plan;
    }
    return NULL;
}

Status plan_cache_get(PlanCache *cache, int64_t samples, const Fetch *what, Plan **out,
                      Diag *diag) {
    const int64_t tokens = what ? what->tokens : 0, source = what ? what->source : 0;
    Status status = STATUS_OK;
    pthread_mutex_lock(&cache->lock);
    *out = find_plan(cache, samples, tokens, source);
    if (!*out) status = make_plan(cache, samples, tokens, source, out, diag);
    if (status == STATUS_OK) plan_retain(*out);
    pthread_mutex_unlock(&cache->lock);
    return status;
}

int plan_cache_count(PlanCache *cache) {
    pthread_mutex_lock(&cache->lock);
    const int count = cache->count;
    pthread_mutex_unlock(&cache->lock);
    return count;
}

size_t plan_cache_bytes(PlanCache *cache) {
    pthread_mutex_lock(&cache->lock);
    const size_t bytes = cache->bytes;
    pthread_mutex_unlock(&cache->lock);
    return bytes;
}
