/* Gradient exchange: ranks add up the gradients of their shards.
 *
 * Each rank has a contiguous range of the shards of a mini-batch, and adds up the
 * subtrees of the gradient tree that lie wholly in it (exec/train/gradient_tree.h). It
 * distributes the remaining gradients, one or a few: every rank receives the remaining
 * values of the elements that it owns (exec/train/rank_parts.h) from all ranks, and
 * continues with the tree. So each element is added in the order in which one rank would
 * add it, and if one gradient is left in each of R ranks, each rank sends (R - 1) / R of
 * a gradient. It sends as much again when the owners' results, the weights, are
 * distributed: together the least possible (Patarasuk and Yuan, "Bandwidth Optimal
 * All-reduce Algorithms for Clusters of Workstations", 2009).
 *
 * Gradients are sent in buckets (rank_parts.h), in the same order in all ranks: that in
 * which a backward run completes them. A bucket is sent when the last backward runs of
 * all shards of the rank are past it, while they continue with what lies before; what
 * has not been sent when they end is sent then. (On buckets: Li et al., "PyTorch
 * Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.) */
#ifndef COMPRESS_EXEC_TRAIN_GRADIENT_EXCHANGE_H
#define COMPRESS_EXEC_TRAIN_GRADIENT_EXCHANGE_H

#include "exec/run/run.h"
#include "exec/train/gradient_tree.h"

typedef struct GradientExchange GradientExchange;

/* The range of `shards` shards that a rank runs: contiguous, in order of ranks, in
 * numbers that differ by at most one; some ranks have none if there are fewer shards
 * than ranks. */
ShardRange gradient_exchange_range(int64_t shards, int rank);

/* For gradients of `count` elements and `shards` shards over all ranks; this rank runs
 * its shards in `lanes` lanes (exec/run/lanes.h) and adds them up with `threads`
 * threads. Buckets are sent in the order of a plan's backward run, the same in all
 * ranks; NULL = from the last elements to the first. */
GradientExchange *gradient_exchange_create(int64_t shards, int64_t count, int lanes,
                                           int threads, const Plan *order);

/* NULL is allowed. */
void gradient_exchange_destroy(GradientExchange *x);

/* Bytes that gradient_exchange_create takes for data from others. */
size_t gradient_exchange_bytes(int64_t shards, int64_t count);

/* Collective. Starts adding up gradients[shard] of this rank's shards, which are
 * overwritten. The rank's part of sum[count] receives the sum over the shards of all
 * ranks; `sum` may be the first of the gradients. Fails as collectives do; if it
 * succeeds, all ranks must call gradient_exchange_finish, whatever happens to their
 * shards. Until then everything is borrowed, `diag` included. */
Status gradient_exchange_begin(GradientExchange *x, float *const *gradients, float *sum,
                               Diag *diag);

/* The observer for a backward run by `plan`, the last one that adds to the gradient of
 * `shard`, in lane `lane`, whose threads are those of `team` (may be NULL). Lane 0 must
 * be run by the thread that called begin. The result is valid for that run. */
RunWatch gradient_exchange_follow(GradientExchange *x, int lane, int64_t shard,
                                  const Plan *plan, Team *team);

/* Ends it: the sum is complete if everything to be added was. Not within lanes. Fails
 * only if the ranks cannot communicate. */
Status gradient_exchange_finish(GradientExchange *x, Diag *diag);

#endif
