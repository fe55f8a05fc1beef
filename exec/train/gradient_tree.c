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
            if (gradients[s] && gradient_tree_joins(range, s))
                loops->add_floats(gradients[s - half] + from, gradients[s] + from, n);
}
