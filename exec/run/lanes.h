/* Lanes: work on samples, distributed among threads in rounds.
 *
 * A lane is the place of one thread: the caller keeps a workspace for each, and the lane
 * has its own list of diagnostics. The items of a round (chunks of samples, shards of a
 * mini-batch) are cut into one range per lane, in order; a lane does its range one item
 * after another and stops at the first that fails. So the first failing item in order is
 * always reached, and it is the one that is reported, with its message, once: the same
 * for any number of lanes. Nothing is rerun to obtain a message. */
#ifndef COMPRESS_EXEC_RUN_LANES_H
#define COMPRESS_EXEC_RUN_LANES_H

#include "exec/run/team.h"
#include "exec/run/ticker.h"
#include "ir/batches.h"
#include "ir/text.h"

typedef struct Lanes Lanes;

/* One lane per thread, but no more than there are items at a time, and at least one.
 * `watch` may be NULL; only the calling thread uses it. */
Lanes *lanes_create(int64_t threads, int64_t items, const Watch *watch);

/* Divides the available threads evenly among the lanes: those beyond one per lane work
 * inside an item (lanes_team). Fails with STATUS_MEMORY when the system gives none. */
Status lanes_share(Lanes *lanes, Diag *diag);

/* The threads of a lane, for workspace_share; NULL = only its own. */
Team *lanes_team(const Lanes *lanes, int lane);

/* Threads per lane when `threads` are divided evenly among `lanes`, from 1 to 64, which
 * is the most parts that a call is cut into. */
int lanes_threads(int64_t threads, int64_t lanes);

/* How many of `threads` threads are busy when `items` items are run at a time and lanes
 * share. */
int64_t lanes_used(int64_t threads, int64_t items);

/* NULL is allowed. */
void lanes_destroy(Lanes *lanes);

/* Number of lanes, at least 1. */
int lanes_count(const Lanes *lanes);

/* Does item `item` in lane `lane`; errors and warnings go to `diag`, which is the
 * lane's. */
typedef Status LaneWork(void *self, int64_t item, int lane, Diag *diag);

/* Does `work` for items 0 .. items - 1. With no more items than lanes, item i is done in
 * lane i. Fails as the first failing item in order did. */
Status lanes_run(Lanes *lanes, int64_t items, LaneWork *work, void *self, Diag *diag);

/* Within LaneWork: whether the caller wants the work to stop. Lane 0 checks the watch,
 * the others learn of it; once true it stays so. */
bool lanes_cancelled(Lanes *lanes, int lane);

/* Reports to the watch, as ticker_progress does. Not within LaneWork. */
void lanes_progress(Lanes *lanes, int64_t done, int64_t total, double loss);

/* ---- samples of a data set ---- */

/* Processes the samples of `what` in lane `lane`. */
typedef Status LaneSamples(void *self, const Fetch *what, int lane, Diag *diag);

/* Appends to `out`, as bytes, what `run` left for a chunk in lane `lane`. */
typedef void LanePack(void *self, const Fetch *what, int lane, Text *out);

/* Puts into lane `lane` what LanePack took from a lane, here or in another rank. The
 * bytes stay until the chunk is delivered. In the lane's thread. */
typedef Status LaneUnpack(void *self, const Fetch *what, int lane, const char *bytes,
                          Diag *diag);

/* As `deliver`, for a chunk that rank `rank` has run, in its lane `lane`. Called in all
 * ranks for all chunks in order; may call collectives. */
typedef Status LaneReceive(void *self, const Fetch *what, int rank, int lane, Diag *diag);

typedef struct LaneSweep {
    const Batches *data;
    int64_t total,
        chunk;      /* the number of samples, from the first, and the most at a time */
    int64_t *order; /* they are these [total]; NULL = those of the data set */
    bool by_length; /* if samples have lengths, those of a chunk are about equally long;
                       else they come in the order of the data set */
    int64_t tokens, source; /* Fetch.tokens and .source for data of one length */
    LaneSamples *run;       /* in the lane's thread */
    LaneSamples
        *deliver;       /* in the calling thread, chunk by chunk in order; NULL = none */
    LanePack *pack;     /* with both, or with `receive`, ranks share the sweep; else */
    LaneUnpack *unpack; /* each of them does all of it */
    LaneReceive *receive; /* instead of `deliver` if several ranks share the sweep */
    int64_t done, all;    /* for the progress: samples done before, out of `all`; all = 0:
                             out of `total` */
    void *self;
} LaneSweep;

/* A sweep of the first `limit` samples (0 = all), chunks of `batch_size`, by length; what
 * is done with them is left to be set. */
LaneSweep lanes_sweep_of(const Batches *data, int64_t limit, int64_t batch_size);

/* Goes over the samples in rounds of one chunk for each lane. What a lane's run leaves
 * in its memory stays there until it is delivered. Chunks before the first that fails
 * are delivered; that one and later ones are not. Fails as `run` and `deliver` do, and
 * with STATUS_INTERRUPTED when the watch says so between two rounds.
 *
 * Collective if ranks share it (exec/run/ranks.h): a round has chunks for the lanes of
 * all ranks, each runs its range of them, and then every rank has all and delivers all,
 * in the same order as one rank would. With `receive`, what a chunk leaves stays in the
 * rank that ran it, which is the same one in every sweep with the same number of chunks
 * and lanes. If a chunk fails, no chunk of its round is delivered then. */
Status lanes_sweep(Lanes *lanes, const LaneSweep *sweep, Diag *diag);

/* Number of chunks in a sweep of this many samples. */
int64_t lanes_chunks(int64_t total, int64_t chunk);

#endif
