/* Gradient exchange: ranks add up the gradients of their shards.
 *
 * Each rank has shards of a mini-batch, a contiguous range, and adds what the gradient
 * tree has whole in it (exec/train/gradient_tree.h). What is left then, one gradient or a
 * few, it hands out: every rank receives what is left of the elements that it owns
 * (exec/train/rank_parts.h) anywhere, and goes on with the tree. So each element is
 * added in the order in which one rank would add it, and where one gradient is left in
 * each of R ranks, (R - 1) / R of a gradient leave it. As much leaves it again when what
 * the owners make of it, the weights, is handed round: together the least that there is
 * (Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
 * Workstations", 2009).
 *
 * Gradients go in buckets (rank_parts.h), in one order in all ranks: that in which a
 * backward run completes them. A bucket leaves a rank when the last backward runs of all
 * of its shards are past it, while they go on with what lies before; what is not away
 * when they end goes then. (Li et al., "PyTorch Distributed: Experiences on Accelerating
 * Data Parallel Training", VLDB 2020, of buckets.) */
#ifndef COMPRESS_EXEC_TRAIN_GRADIENT_EXCHANGE_H
#define COMPRESS_EXEC_TRAIN_GRADIENT_EXCHANGE_H

#include "exec/run/run.h"
#include "exec/train/gradient_tree.h"

typedef struct GradientExchange GradientExchange;

/* The shards, of so many, that a rank runs: contiguous, in order of ranks, in numbers
 * that differ by one at most; none where there are fewer shards than ranks. */
ShardRange gradient_exchange_range(int64_t shards, int rank);

/* For gradients of `count` elements and so many shards of all ranks, which this one runs
 * in so many lanes (exec/run/lanes.h) and adds up with so many threads. Buckets go in the
 * order of a plan's backward run, which is the same one in all ranks; NULL = from the
 * last elements to the first. */
GradientExchange *gradient_exchange_create(int64_t shards, int64_t count, int lanes,
                                           int threads, const Plan *order);

/* NULL is allowed. */
void gradient_exchange_destroy(GradientExchange *x);

/* Bytes that gradient_exchange_create takes for what comes from others. */
size_t gradient_exchange_bytes(int64_t shards, int64_t count);

/* Collective. Begins to add up gradients[shard] of this rank's shards, which are used up.
 * The rank's part of sum[count] is to receive the sum over the shards of all ranks; `sum`
 * may be the first of the gradients. Fails as collectives do; where it goes well, all
 * ranks come to gradient_exchange_finish, whatever comes of their shards. Until then all
 * is borrowed, `diag` too. */
Status gradient_exchange_begin(GradientExchange *x, float *const *gradients, float *sum,
                               Diag *diag);

/* Who is to hear of a backward run by `plan`, the last one that adds to the gradient of
 * `shard`, in lane `lane`, whose threads are those of `team` (may be NULL). Lane 0 is run
 * by the thread that began. What it returns is good for that run. */
RunWatch gradient_exchange_follow(GradientExchange *x, int lane, int64_t shard,
                                  const Plan *plan, Team *team);

/* Ends it: the sum is there, if all that was to be added was. Not within lanes. Fails
 * only where the ranks cannot talk. */
Status gradient_exchange_finish(GradientExchange *x, Diag *diag);

#endif
