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
 * Workstations", 2009). */
#ifndef COMPRESS_EXEC_TRAIN_GRADIENT_EXCHANGE_H
#define COMPRESS_EXEC_TRAIN_GRADIENT_EXCHANGE_H

#include "exec/train/gradient_tree.h"
#include "ir/status.h"

#include <stddef.h>

typedef struct GradientExchange GradientExchange;

/* The shards, of so many, that a rank runs: contiguous, in order of ranks, in numbers
 * that differ by one at most; none where there are fewer shards than ranks. */
ShardRange gradient_exchange_range(int64_t shards, int rank);

/* For gradients of `count` elements and so many shards of all ranks. */
GradientExchange *gradient_exchange_create(int64_t shards, int64_t count, int threads);

/* NULL is allowed. */
void gradient_exchange_destroy(GradientExchange *exchange);

/* Bytes that gradient_exchange_create takes. */
size_t gradient_exchange_bytes(int64_t shards, int64_t count);

/* Collective. The rank's part of sum[count] receives the sum over the shards of all
 * ranks: gradients[shard] are those of this rank's, which are used up, and of which the
 * first may be `sum`. */
Status gradient_exchange_run(GradientExchange *exchange, float *const *gradients,
                             float *sum, Diag *diag);

#endif
