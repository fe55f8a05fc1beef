/* Lanes: work on samples, shared out among threads in rounds.
 *
 * A lane is the place of one thread: its user keeps a workspace for each, and the lane
 * has a list of diagnostics of its own. The items of a round (chunks of samples, shards
 * of a mini-batch) are cut into as many ranges as there are lanes, in order; a lane does
 * its range one item after the other and stops at the first that fails. So the first item
 * that fails in order is always reached, and it is the one that is reported, with its
 * message, once: at any number of lanes the same. Nothing is done again to hear a
 * message. */
#ifndef COMPRESS_EXEC_RUN_LANES_H
#define COMPRESS_EXEC_RUN_LANES_H

#include "exec/run/team.h"
#include "exec/run/ticker.h"
#include "ir/batches.h"
#include "ir/text.h"

typedef struct Lanes Lanes;

/* As many lanes as threads, but no more than there are items at a time, and at least one.
 * `watch` may be NULL; it is asked and told by the calling thread alone. */
Lanes *lanes_create(int64_t threads, int64_t items, const Watch *watch);

/* Shares the threads there are evenly among the lanes: those beyond one for each work
 * inside an item (lanes_team). Fails with STATUS_MEMORY when the system gives none. */
Status lanes_share(Lanes *lanes, Diag *diag);

/* The threads of a lane, for workspace_share; NULL = its own alone. */
Team *lanes_team(const Lanes *lanes, int lane);

/* Threads that each of so many lanes gets of so many: as many as all can have, from 1 to
 * 64, which is the most parts that a call is cut into. */
int lanes_threads(int64_t threads, int64_t lanes);

/* Threads at work, of so many, where so many items are run at a time and lanes share. */
int64_t lanes_used(int64_t threads, int64_t items);

/* NULL is allowed. */
void lanes_destroy(Lanes *lanes);

/* Lanes there are, at least 1. */
int lanes_count(const Lanes *lanes);

/* Does item `item` in lane `lane`; what fails is told to `diag`, which is the lane's,
 * and so are warnings. */
typedef Status LaneWork(void *self, int64_t item, int lane, Diag *diag);

/* Does `work` for items 0 .. items - 1. With no more items than lanes, item i is done in
 * lane i. Fails as the first item in order that failed. */
Status lanes_run(Lanes *lanes, int64_t items, LaneWork *work, void *self, Diag *diag);

/* Within LaneWork: whether the caller wants the work to stop. Lane 0 asks the watch, the
 * others hear of it; once said it stays so. */
bool lanes_cancelled(Lanes *lanes, int lane);

/* Tells the watch, as ticker_progress does. Not within LaneWork. */
void lanes_progress(Lanes *lanes, int64_t done, int64_t total, double loss);

/* ---- samples of a data set ---- */

/* Something with the samples of `what` in lane `lane`. */
typedef Status LaneSamples(void *self, const Fetch *what, int lane, Diag *diag);

/* What `run` left of a chunk in lane `lane`, as bytes added to `out`. */
typedef void LanePack(void *self, const Fetch *what, int lane, Text *out);

/* Leaves in lane `lane` what LanePack took from a lane, here or in another rank. The
 * bytes are there until the chunk is delivered. In the lane's thread. */
typedef Status LaneUnpack(void *self, const Fetch *what, int lane, const char *bytes,
                          Diag *diag);

/* As `deliver`, of a chunk that rank `rank` has run, in its lane `lane`. All ranks are
 * called for all chunks in order, and may call collectives. */
typedef Status LaneReceive(void *self, const Fetch *what, int rank, int lane, Diag *diag);

typedef struct LaneSweep {
    const Batches *data;
    int64_t total, chunk; /* the first so many samples, at most so many at a time */
    int64_t *order;       /* they are these [total]; NULL = those of the data set */
    bool by_length;       /* where samples have lengths those of a chunk are about equally
                             long; else they come in the order of the data set */
    int64_t tokens, source; /* Fetch.tokens and .source of data of one length */
    LaneSamples *run;       /* in the lane's thread */
    LaneSamples
        *deliver;       /* in the calling thread, chunk by chunk in order; NULL = none */
    LanePack *pack;     /* with both, or with `receive`, ranks share the sweep; else */
    LaneUnpack *unpack; /* each of them does all of it */
    LaneReceive *receive; /* in place of `deliver` where several ranks share it */
    int64_t done, all;    /* for the progress: samples done before, of so many; all = 0:
                             there are `total` */
    void *self;
} LaneSweep;

/* Goes over the samples in rounds of one chunk for each lane. What a lane's run leaves in
 * its memory is there until it is delivered. Chunks before the first that fails are
 * delivered, that and later ones are not. Fails as `run` and `deliver` do, and with
 * STATUS_INTERRUPTED when the watch says so between two rounds.
 *
 * Collective where ranks share it (exec/run/ranks.h): a round has chunks for the lanes of
 * all ranks, each runs its range of them, and then every rank has all and delivers all,
 * in the same order as one rank would. With `receive` what a chunk leaves stays in the
 * rank that ran it, which is the same one in every sweep of as many chunks with as many
 * lanes. Of a round in which a chunk fails none is delivered then. */
Status lanes_sweep(Lanes *lanes, const LaneSweep *sweep, Diag *diag);

/* Chunks that a sweep of so many samples has. */
int64_t lanes_chunks(int64_t total, int64_t chunk);

#endif
