/* Gradient pool: the gradients of the shards that a rank runs, in as few arrays as the
 * gradient tree allows.
 *
 * Each lane runs a contiguous range of shards in order. Where a shard finds no array free
 * in its lane, what the tree has whole among the shards before it is added up, which
 * frees some: of n shards of a lane there are never more than log2(n) + 1 (64 shards in
 * one lane: 7). The order of sums is that of exec/train/gradient_tree.h whatever is added
 * here or later, so bytes do not depend on lanes. */
#ifndef COMPRESS_EXEC_TRAIN_GRADIENT_POOL_H
#define COMPRESS_EXEC_TRAIN_GRADIENT_POOL_H

#include "exec/run/team.h"
#include "exec/train/gradient_tree.h"

#include <stddef.h>

typedef struct GradientPool GradientPool;

/* Arrays that the pool has for the shards of `own` in so many lanes, at least one; with
 * `apart` one for each shard. */
int64_t gradient_pool_count(const ShardRange *own, int lanes, bool apart);

/* Makes the arrays, of `count` elements each, zeros. With `apart` every shard keeps its
 * array, since others read them while shards run: nothing is added up here. That of the
 * first shard, which is never added to another one in this rank, has room for `first`
 * elements. Fails with STATUS_MEMORY. */
Status gradient_pool_create(GradientPool **out, const ShardRange *own, int lanes,
                            bool apart, int64_t count, int64_t first, Diag *diag);

/* NULL is allowed. */
void gradient_pool_destroy(GradientPool *pool);

/* Before the first shard of a mini-batch: all arrays are free, or, apart, what each shard
 * will take. */
void gradient_pool_begin(GradientPool *pool);

/* An array of zeros for the next shard of a lane, which runs shards `own.first + n * lane
 * / lanes` up to the next lane's, n being their number, in order. Threads of the team
 * (NULL = the calling one) share the sums that this may take. Lanes may call it at once.
 */
float *gradient_pool_take(GradientPool *pool, int lane, int64_t shard, Team *team);

/* By shard, of all that there are: what is left to be added up; NULL where a shard has
 * been added to another one, or is another rank's. */
float **gradient_pool_gradients(GradientPool *pool);

/* The array of the first shard, which is there also where a rank has no shards. */
float *gradient_pool_first(GradientPool *pool);

#endif
