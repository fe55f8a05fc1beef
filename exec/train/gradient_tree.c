/* Gradient tree: see exec/train/gradient_tree.h.
 *
 * Shard s is the first one of the right half of exactly one sum: that of the level whose
 * halves have as many shards as the lowest bit of s says. */
#include "exec/train/gradient_tree.h"

#include "exec/loops/loops.h"

bool gradient_tree_joins(const ShardRange *range, int64_t shard) {
    const int64_t half = shard & -shard, whole = shard + half;
    const int64_t end = whole < range->shards ? whole : range->shards;
    return shard > 0 && shard - half >= range->first && end <= range->end;
}

void gradient_tree_add(const ShardRange *range, float *const *gradients, int64_t from,
                       int64_t n) {
    const Loops *loops = loops_here();
    for (int64_t half = 1; half < range->shards; half *= 2)
        for (int64_t s = half; s < range->end; s += 2 * half)
            if (gradient_tree_joins(range, s) && gradients[s])
                loops->add_floats(gradients[s - half] + from, gradients[s] + from, n);
}

void gradient_tree_add_block(const TreeBlocks *blocks, int64_t block) {
    const int64_t from = block * GRADIENT_BLOCK, left = blocks->elements - from;
    gradient_tree_add(blocks->range, blocks->gradients, from,
                      left < GRADIENT_BLOCK ? left : GRADIENT_BLOCK);
}

typedef struct Shares {
    const TreeBlocks *blocks;
    int threads;
} Shares;

static void add_share(void *self, int me) {
    const Shares *shares = self;
    const TreeBlocks *blocks = shares->blocks;
    for (int64_t b = blocks->first + me * blocks->step; b < blocks->end;
         b += shares->threads * blocks->step)
        gradient_tree_add_block(blocks, b);
}

void gradient_tree_add_blocks(const TreeBlocks *blocks, Team *team) {
    Shares shares = {blocks, team ? team_threads(team) : 1};
    if (team)
        team_run(team, add_share, &shares);
    else
        add_share(&shares, 0);
}
