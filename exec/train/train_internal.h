/* Inside of training: the state of a run, set up in train_setup.c, stepped in
 * train_step.c with the rows counted in train_rows.c, driven by train.c. */
#ifndef COMPRESS_EXEC_TRAIN_TRAIN_INTERNAL_H
#define COMPRESS_EXEC_TRAIN_TRAIN_INTERNAL_H

#include "exec/plan/plan_cache.h"
#include "exec/plan/plan_internal.h"
#include "exec/run/feed.h"
#include "exec/run/ticker.h"
#include "exec/train/optimizer.h"

#include <stdatomic.h>

/* One thread's means of running samples. */
typedef struct Worker {
    Workspace *workspace;
    Feed feed;
    Diag *diag;   /* faults are found again by the main thread, which reports them */
    double *rows; /* RunMode.rows of the micro-batch it runs */
} Worker;

/* One shard of the current step. */
typedef struct Shard {
    Buf *buf;
    double *loss; /* sums of the loss and the parts, each sample counting 1 */
    double *rows; /* by counted node: rows of the shard that count */
    Status status;
} Shard;

/* One micro-batch of the current step. */
typedef struct Micro {
    Fetch what;         /* what.n samples; 0 after the shard's last one */
    int64_t first, end; /* its first sample within the step, and where the shard ends */
} Micro;

typedef struct Trainer {
    Graph *graph;
    Node *loss;
    Node *const *parts;
    int part_count;
    const Batches *data; /* NULL while only sizes are asked for */
    const TrainOptions *options;
    int64_t count; /* samples of the data set */
    int64_t batch; /* samples of a full step */
    int64_t shard_count, micro;
    int threads, worker_count;

    PlanCache plans;
    Params *params;
    Optimizer *optimizer;
    Worker *workers;
    Shard *shards;
    float **gradients; /* by shard */
    double *losses;    /* of the step: the loss, then the parts; means */
    double prior;      /* of the step: what priors add to the loss */
    Ticker ticker;
    atomic_bool stop; /* cancelled: workers leave at the next micro-batch */

    /* the current step */
    const int64_t *samples; /* its samples' indices */
    int64_t sample_count;
    uint64_t key, augment;

    /* losses that are means over rows: see train_rows.c */
    const Node **counted; /* those whose rows are counted before a step runs */
    int counted_count;
    double *rows; /* by Node.id: rows of the step that count; below 0 = not counted */
    int id_count; /* length of rows */
} Trainer;

/* Samples of shard s when `count` samples are cut into shards, and the first of them. */
int64_t shard_samples(const Trainer *trainer, int64_t count, int64_t s);
int64_t shard_first(const Trainer *trainer, int64_t count, int64_t s);

/* Chooses the sizes and makes the plans. Options, graph, loss, parts, data, count and
 * threads are set; `sizes` are those of the symbols other than N. */
Status trainer_plan(Trainer *trainer, const int64_t sizes[DIM_SYMBOLS], Diag *diag);

/* Makes the plans that the current step's samples need, before its shards run. */
Status trainer_plan_step(Trainer *trainer, Diag *diag);

/* The micro-batches of shard s of the current step, in order. */
Micro micro_first(const Trainer *trainer, int64_t s);
Micro micro_next(const Trainer *trainer, const Micro *micro);

/* Binds a worker's workspace to the plan of a micro-batch. */
Status micro_bind(const Trainer *trainer, Worker *worker, const Micro *micro, Diag *diag);

/* Allocates weights, workspaces, gradients and optimiser state. */
Status trainer_allocate(Trainer *trainer, Diag *diag);

/* Bytes that trainer_allocate takes beside the weights. */
size_t trainer_bytes(const Trainer *trainer);

/* Frees what trainer_allocate and the setup made. */
void trainer_close(Trainer *trainer);

/* Does `work` for every shard of the current step, in parallel, each on one worker, and
 * reports the first failure. The order of shards, not the threads, must decide what comes
 * of it. */
typedef Status ShardWork(Trainer *trainer, int64_t s, int worker, Diag *diag);
Status trainer_each_shard(Trainer *trainer, ShardWork *work, Diag *diag);

/* Finds the losses whose rows are counted; the plans have been made. */
void trainer_find_rows(Trainer *trainer);

/* Counts the rows of the current step; nothing when no loss needs it. */
Status trainer_count_rows(Trainer *trainer, Diag *diag);

/* RunMode.rows for n samples of the current step; NULL when no loss needs it. */
const double *trainer_share_rows(const Trainer *trainer, Worker *worker, int64_t n);

/* Runs all shards of the current step. Then gradients[0] holds the sum, losses the means
 * and `norm` the gradient's norm, priors included. STATUS_INTERRUPTED when cancelled. */
Status trainer_gradient(Trainer *trainer, double *norm, Diag *diag);

/* Freezes storages as the options say; `was` receives what Storage.frozen was. */
void freeze_storages(Graph *graph, const TrainOptions *options, bool *was);
void restore_frozen(Graph *graph, const bool *was);

#endif
