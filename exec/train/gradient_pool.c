/* Gradient pool: see exec/train/gradient_pool.h. */
#include "exec/train/gradient_pool.h"

#include "ir/arena.h"
#include "ir/tensor.h"

#include <stdlib.h>
#include <string.h>

/* One lane's shards, and its arrays that are free: a stack. */
typedef struct PoolLane {
    ShardRange range;
    float **arrays, **free;
    int64_t count, free_count;
} PoolLane;

struct GradientPool {
    int lanes;
    bool apart; /* an array for each shard */
    PoolLane *lane;
    Buf **memory; /* by array, those of lane 0 first */
    int64_t memory_count;
    int64_t count, first; /* elements of an array; of the first one */
    float **gradients;    /* by shard */
};

/* The shards of a lane: as exec/run/lanes.h deals items out. */
static ShardRange lane_range(const ShardRange *own, int lane, int lanes) {
    const int64_t n = own->end - own->first;
    return (ShardRange){.first = own->first + n * lane / lanes,
                        .end = own->first + n * (lane + 1) / lanes,
                        .shards = own->shards};
}

/* Arrays of a lane: one for each sum that is left before a shard, and its own. */
static int64_t lane_count(const ShardRange *range, bool apart) {
    int64_t most = 0;
    if (apart) return range->end - range->first;
    for (int64_t shard = range->first; shard < range->end; shard++) {
        const ShardRange done = {range->first, shard, range->shards};
        int64_t left = 1;
        for (int64_t s = done.first; s < shard; s++)
            left += !gradient_tree_joins(&done, s);
        if (left > most) most = left;
    }
    return most;
}

int64_t gradient_pool_count(const ShardRange *own, int lanes, bool apart) {
    int64_t count = 0;
    for (int i = 0; i < lanes; i++) {
        const ShardRange range = lane_range(own, i, lanes);
        count += lane_count(&range, apart);
    }
    return count > 0 ? count : 1; /* of a rank without shards */
}

static Status add_arrays(GradientPool *pool, Diag *diag) {
    int64_t next = 0;
    for (int i = 0; i < pool->lanes; i++) {
        PoolLane *lane = &pool->lane[i];
        lane->arrays = memory_alloc((size_t)lane->count + 1, sizeof *lane->arrays);
        lane->free = memory_alloc((size_t)lane->count + 1, sizeof *lane->free);
        for (int64_t k = 0; k < lane->count; k++, next++) {
            const int64_t elements = next == 0 ? pool->first : pool->count;
            TRY(buf_create(&pool->memory[next], (size_t)elements * sizeof(float), diag));
            lane->arrays[k] = (float *)(uintptr_t)buf_data(pool->memory[next]);
        }
    }
    return STATUS_OK;
}

Status gradient_pool_create(GradientPool **out, const ShardRange *own, int lanes,
                            bool apart, int64_t count, int64_t first, Diag *diag) {
    GradientPool *pool = memory_alloc(1, sizeof *pool);
    *pool =
        (GradientPool){.lanes = lanes, .apart = apart, .count = count, .first = first};
    pool->lane = memory_alloc((size_t)lanes, sizeof *pool->lane);
    for (int i = 0; i < lanes; i++) {
        pool->lane[i].range = lane_range(own, i, lanes);
        pool->lane[i].count = lane_count(&pool->lane[i].range, apart);
    }
    pool->memory_count = gradient_pool_count(own, lanes, apart);
    if (own->end == own->first) pool->lane[0].count = 1;
    pool->memory = memory_alloc((size_t)pool->memory_count, sizeof(Buf *));
    pool->gradients = memory_alloc((size_t)own->shards, sizeof(float *));
    const Status status = add_arrays(pool, diag);
    if (status == STATUS_OK)
        *out = pool;
    else
        gradient_pool_destroy(pool);
    return status;
}

void gradient_pool_destroy(GradientPool *pool) {
    if (!pool) return;
    for (int64_t i = 0; i < pool->memory_count; i++) buf_release(pool->memory[i]);
    for (int i = 0; i < pool->lanes; i++) {
        free(pool->lane[i].arrays);
        free(pool->lane[i].free);
    }
    free(pool->lane);
    free(pool->memory);
    free(pool->gradients);
    free(pool);
}

void gradient_pool_begin(GradientPool *pool) {
    for (int i = 0; i < pool->lanes; i++) {
        PoolLane *lane = &pool->lane[i];
        for (int64_t s = lane->range.first; s < lane->range.end; s++)
            pool->gradients[s] = pool->apart ? lane->arrays[s - lane->range.first] : NULL;
        lane->free_count = lane->count;
        /* the first array on top: it is the one of the first shard */
        for (int64_t k = 0; k < lane->count; k++)
            lane->free[lane->count - 1 - k] = lane->arrays[k];
    }
}

/* ---- adding up ---- */

/* Adds up what the tree has whole in the shards of a lane before `shard`. */
static void add_done(GradientPool *pool, PoolLane *lane, int64_t shard, Team *team) {
    const ShardRange done = {lane->range.first, shard, lane->range.shards};
    gradient_tree_add_blocks(&(TreeBlocks){.range = &done,
                                           .gradients = pool->gradients,
                                           .elements = pool->count,
                                           .end = gradient_blocks(pool->count),
                                           .step = 1},
                             team);
    for (int64_t s = done.first; s < shard; s++) {
        if (!pool->gradients[s] || !gradient_tree_joins(&done, s)) continue;
        lane->free[lane->free_count++] = pool->gradients[s];
        pool->gradients[s] = NULL;
    }
}

float *gradient_pool_take(GradientPool *pool, int lane, int64_t shard, Team *team) {
    PoolLane *own = &pool->lane[lane];
    if (!pool->apart && own->free_count == 0) add_done(pool, own, shard, team);
    float *gradient = pool->apart ? pool->gradients[shard] : own->free[--own->free_count];
    const bool first = gradient == gradient_pool_first(pool);
    memset(gradient, 0, (size_t)(first ? pool->first : pool->count) * sizeof *gradient);
    return pool->gradients[shard] = gradient;
}

float **gradient_pool_gradients(GradientPool *pool) {
    return pool->gradients;
}

float *gradient_pool_first(GradientPool *pool) {
    return pool->lane[0].arrays[0];
}
