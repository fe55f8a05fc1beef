/* Gradient pool: the gradients of the shards that a rank runs, in as few arrays as the
 * gradient tree allows.
 *
 * Each lane runs a contiguous range of shards in order. If a shard finds no free array
 * in its lane, the complete subtrees among the shards before it are added up, which
 * frees some: a lane of n shards never needs more than log2(n) + 1 arrays (64 shards in
 * one lane: 7). The order of sums is that of exec/train/gradient_tree.h whether they are
 * added here or later, so bytes do not depend on lanes. */
#ifndef COMPRESS_EXEC_TRAIN_GRADIENT_POOL_H
#define COMPRESS_EXEC_TRAIN_GRADIENT_POOL_H

#include "exec/run/team.h"
#include "exec/train/gradient_tree.h"

#include <stddef.h>

typedef struct GradientPool GradientPool;

/* Number of arrays, at least one, that the pool has for the shards of `own` in `lanes`
 * lanes; with `apart`, one for each shard. */
int64_t gradient_pool_count(const ShardRange *own, int lanes, bool apart);

/* Makes the arrays, of `count` zeros each. With `apart`, every shard keeps its array,
 * since others read them while shards run: nothing is added up here. The array of the
 * first shard, which is never added to another one in this rank, has room for `first`
 * elements. Fails with STATUS_MEMORY. */
Status gradient_pool_create(GradientPool **out, const ShardRange *own, int lanes,
                            bool apart, int64_t count, int64_t first, Diag *diag);

/* NULL is allowed. */
void gradient_pool_destroy(GradientPool *pool);

/* Call before the first shard of a mini-batch: frees all arrays, or with `apart` assigns
 * them to the shards. */
void gradient_pool_begin(GradientPool *pool);

/* An array of zeros for the next shard of a lane, which runs shards `own.first + n *
 * lane / lanes` up to the next lane's, n being their number, in order. Threads of the
 * team (NULL = the calling one) share the sums that this may require. Lanes may call it
 * concurrently.
 */
float *gradient_pool_take(GradientPool *pool, int lane, int64_t shard, Team *team);

/* By shard, for all shards: what is left to be added up; NULL if a shard has been added
 * to another one, or belongs to another rank. */
float **gradient_pool_gradients(GradientPool *pool);

/* The array of the first shard, which exists even if a rank has no shards. */
float *gradient_pool_first(GradientPool *pool);

#endif
