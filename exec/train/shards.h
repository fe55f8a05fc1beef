/* Shards: the gradient of a mini-batch, computed by lanes with their own gradients
 * (exec/train/gradient_pool.h).
 *
 * A mini-batch is cut into shards of whole samples, or whole groups (Batches.group). A
 * shard is run in order, one micro-batch after another, into its own gradient. Lanes
 * only decide which thread runs which shard, so bytes depend on the number of shards and
 * the size of micro-batches, never on the number of threads. Threads beyond the number
 * of shards share the work inside them (lanes_share), equally for every shard. With
 * several ranks, each runs a contiguous range of the shards
 * (exec/train/gradient_exchange.h); the number of shards, the bytes and the messages
 * stay the same.
 *
 * A loss with Op.count_rows is the mean over the W rows of the mini-batch that count, W
 * being counted before the first run. A micro-batch of n of the N samples divides its sum
 * over rows by W n / N; as its gradient is seeded with n / N, the total is the sum over
 * all rows divided by W, however the mini-batch is cut. Rows that depend on integers
 * computed by the graph are not known ahead; such a loss is a mean of the micro-batches'
 * means, each sample counting 1. */
#ifndef COMPRESS_EXEC_TRAIN_SHARDS_H
#define COMPRESS_EXEC_TRAIN_SHARDS_H

#include "exec/run/run.h"
#include "exec/run/ticker.h"

typedef struct Shards Shards;

/* How many of a rank's `threads` are busy when a mini-batch has `shards` shards; 0 =
 * none of them is this rank's. */
int64_t shards_threads(int64_t threads, int64_t shards, int rank);

/* What is differentiated, over which samples. Everything is borrowed. */
typedef struct ShardsOptions {
    Graph *graph;
    Node *loss;
    Node *const *parts; /* further scalars whose means are needed */
    int part_count;
    const Batches *data;        /* NULL while only sizes are needed */
    int64_t sizes[DIM_SYMBOLS]; /* of the symbols other than N, of the longest samples */
    int64_t samples;            /* of the data set */
    int64_t batch;              /* most samples of a mini-batch */
    int64_t shards; /* of a mini-batch with this many samples; 0 = chosen only from the
                       size of a gradient */
    int64_t micro_batch; /* samples; 0 = chosen from the shape */
    int threads;
    bool bf16;          /* PlanOptions.bf16 */
    bool recompute;     /* PlanOptions.recompute */
    const Watch *watch; /* may be NULL */
} ShardsOptions;

/* Chooses sizes and plans for the longest samples. Fails as plan_create does. */
Status shards_create(Shards **out, const ShardsOptions *options, Diag *diag);
void shards_destroy(Shards *shards);

/* Shards of a full mini-batch. */
int64_t shards_count(const Shards *shards);

/* The plan that needs the largest workspace. */
const Plan *shards_plan(const Shards *shards);

/* Bytes that shards_open takes in this rank for gradients of `count` elements,
 * workspaces, and what losses over all samples keep; with `bf16`, also rounded
 * weights. */
size_t shards_bytes(const Shards *shards, int64_t count);

/* Allocates workspaces and gradients; the first of shards_gradients has room for `first`
 * elements (at least those of the weights), which the optimiser uses. `params`, of the
 * same graph, must outlive the shards. Fails with STATUS_MEMORY. */
Status shards_open(Shards *shards, Params *params, int64_t first, Diag *diag);

/* Samples samples[0 .. count) of the data set, with the step's random key and that of
 * augmentation, 0 = none. */
typedef struct MiniBatch {
    const int64_t *samples;
    int64_t count;
    uint64_t key, augment;
} MiniBatch;

/* Collective. Runs all shards of a mini-batch, forward and backward. losses[0] receives
 * the mean of the loss, losses[1 + i] that of part i. Fails as the first sample in order
 * that cannot be fetched does; with STATUS_INTERRUPTED, without a message, when a watch
 * says so. */
Status shards_run(Shards *shards, const MiniBatch *batch, double *losses, Diag *diag);

/* The gradients of the mean loss that are still to be added, by weights as in
 * params_gradient_count: *count of them, those of the shards (NULL = has been added to
 * another one), or, with several ranks, the single sum, of which each rank has its part
 * (exec/train/rank_parts.h). */
float *const *shards_gradients(Shards *shards, int64_t *count);

/* Tells the watch. */
void shards_progress(Shards *shards, int64_t done, int64_t total, double loss);

#endif
