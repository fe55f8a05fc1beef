/* Gradient tree: the fixed order in which the gradients of a mini-batch's shards are
 * added.
 *
 * A binary tree over shard numbers, whose shape depends only on their number: at level
 * l, the sum of shards [k 2^l, (k + 1) 2^l), or of those that exist, is the sum of its
 * two halves, left + right. The holder of a contiguous range of shards adds up the
 * subtrees that lie wholly in the range, and what is left of all ranges adds up to the
 * same bytes as one range of all shards. (1, 2 and 3 shards are added one after the
 * other.) */
#ifndef COMPRESS_EXEC_TRAIN_GRADIENT_TREE_H
#define COMPRESS_EXEC_TRAIN_GRADIENT_TREE_H

#include "exec/run/team.h"

#include <stdbool.h>
#include <stdint.h>

/* Elements of a block, the unit of work of one thread: they stay in its second-level
 * cache. */
#define GRADIENT_BLOCK ((int64_t)8192)

/* Number of blocks in `count` elements. */
static inline int64_t gradient_blocks(int64_t count) {
    return (count + GRADIENT_BLOCK - 1) / GRADIENT_BLOCK;
}

/* A range of shards, out of `shards`; all = {0, shards, shards}. */
typedef struct ShardRange {
    int64_t first, end; /* end is exclusive */
    int64_t shards;
} ShardRange;

/* Whether the holder of the range adds the gradient of `shard`, one of its shards, to
 * that of another one. The others are what is left of the range. */
bool gradient_tree_joins(const ShardRange *range, int64_t shard);

/* Adds up the gradients of the range's shards, elements [from, from + n) of each:
 * gradients[shard] of those left receive the sums, the others are unchanged or receive
 * partial sums. NULL = has been added to another one by the holder of a range within
 * this one. */
void gradient_tree_add(const ShardRange *range, float *const *gradients, int64_t from,
                       int64_t n);

/* Blocks of the gradients of a range's shards, which have `elements` elements each:
 * first, first + step, ... below `end`. */
typedef struct TreeBlocks {
    const ShardRange *range;
    float *const *gradients;
    int64_t elements, first, end, step;
} TreeBlocks;

/* gradient_tree_add for one of the blocks that `blocks` names. */
void gradient_tree_add_block(const TreeBlocks *blocks, int64_t block);

/* The same for all of them, distributed among the threads of a team; NULL = by the
 * calling one. */
void gradient_tree_add_blocks(const TreeBlocks *blocks, Team *team);

#endif
