/* Gradient tree: the one order in which the gradients of a mini-batch's shards are added.
 *
 * A binary tree over shard numbers, whose shape depends on how many there are and on
 * nothing else: at level l the sum of shards [k 2^l, (k + 1) 2^l), or of those of them
 * that there are, is that of its two halves, left + right. Whoever has the gradients of a
 * contiguous range of shards adds what lies in the range as a whole, and what is left of
 * all ranges adds up to the same bytes as one range of all shards does. (1, 2 and 3
 * shards are added one after the other.) */
#ifndef COMPRESS_EXEC_TRAIN_GRADIENT_TREE_H
#define COMPRESS_EXEC_TRAIN_GRADIENT_TREE_H

#include "exec/run/team.h"

#include <stdbool.h>
#include <stdint.h>

/* Elements of a block, which one thread works on at a time: they stay in its second-level
 * cache. */
#define GRADIENT_BLOCK ((int64_t)8192)

/* Blocks of so many elements. */
static inline int64_t gradient_blocks(int64_t count) {
    return (count + GRADIENT_BLOCK - 1) / GRADIENT_BLOCK;
}

/* A range of shards, of `shards` that there are; all = {0, shards, shards}. */
typedef struct ShardRange {
    int64_t first, end; /* end is exclusive */
    int64_t shards;
} ShardRange;

/* Whether who has the shards of the range adds the gradient of `shard`, one of them, to
 * that of another one. The others are what is left of the range. */
bool gradient_tree_joins(const ShardRange *range, int64_t shard);

/* Adds the gradients of the range's shards up, elements [from, from + n) of each:
 * gradients[shard] of those left receive the sums, the others stay as they come in or
 * receive sums of their part. NULL = has been added to another one by who had a range
 * within this one. */
void gradient_tree_add(const ShardRange *range, float *const *gradients, int64_t from,
                       int64_t n);

/* Blocks of the gradients of a range's shards, which have `elements` elements each:
 * first, first + step, ... below `end`. */
typedef struct TreeBlocks {
    const ShardRange *range;
    float *const *gradients;
    int64_t elements, first, end, step;
} TreeBlocks;

/* gradient_tree_add of one block, whichever `blocks` names. */
void gradient_tree_add_block(const TreeBlocks *blocks, int64_t block);

/* The same of all that it names, shared out among the threads of a team; NULL = by the
 * calling one. */
void gradient_tree_add_blocks(const TreeBlocks *blocks, Team *team);

#endif
