/* Ranks: the processes of one job, which share the work of a run.
 *
 * Under `mpirun -n R compress ...` R processes run the same recipe step by step. What
 * walks a data set is dealt out among them (exec/run/lanes.h, exec/train/shards.h); all
 * else each of them does for itself, and comes to the same bytes. Rank 0 alone writes and
 * talks. In a program without MPI, or one that was not started by mpirun, there is one
 * rank, and the functions below do nothing that costs time.
 *
 * Every collective call begins with a vote: each rank says whether it goes on. A rank
 * that failed elsewhere votes in ranks_agree, wherever the others are, so that none of
 * them waits for it: their collective returns the failure with the message of the lowest
 * rank that failed. After such a failure all ranks leave the run: collectives that follow
 * return it at once, without a word to the others. STATUS_INTERRUPTED alone leaves all
 * ranks at the same place, so that they may still keep together what they have done. A
 * rank that closes early goes on voting until all close; who needs it is told so.
 *
 * Collectives are called by the main thread alone, in the same order by all ranks. MPI
 * Forum, MPI: A Message-Passing Interface Standard 3.1, 2015. The one file that includes
 * mpi.h is exec/run/ranks_mpi.c. */
#ifndef COMPRESS_EXEC_RUN_RANKS_H
#define COMPRESS_EXEC_RUN_RANKS_H

#include "ir/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Joins the job of the mpirun that started this process, if one did. Fails with
 * STATUS_USAGE in a program that was started as one of several ranks, but was built
 * without MPI or with another one: each of them would do all of the work and write the
 * same files. */
Status ranks_open(Diag *diag);

/* Leaves the job: waits for the other ranks to do so too. Nothing if it was not opened.
 */
void ranks_close(void);

/* Processes that mpirun or the like has started with this one, also before ranks_open; 0
 * = it was not. */
long ranks_launched(void);

/* Which of them this one is, from 0, also before ranks_open. */
long ranks_launched_number(void);

/* Ends all ranks at once with an exit code, from anywhere but a signal handler. */
_Noreturn void ranks_abort(int code);

/* Number of ranks, at least 1, and this process's own, from 0. */
int ranks_count(void);
int ranks_number(void);

/* Items [*first, *last) of `items` that rank `rank` does: contiguous, in order of ranks.
 */
void ranks_range(int64_t items, int rank, int64_t *first, int64_t *last);

/* Collective. All ranks bring the status of what they did alone; STATUS_OK comes out if
 * all bring that, and else the status of the lowest rank that failed. The others then
 * have its errors, notes and hints in `diag`, behind its number ("rank 2: ..."); rank 0,
 * which talks, has no errors of its own unless it is the one. */
Status ranks_agree(Status mine, Diag *diag);

/* Collective. Rank `root`'s bytes come to all. */
Status ranks_broadcast(void *data, size_t bytes, int root, Diag *diag);

/* Collective. `all` has room for `items` things of `bytes` each, of which every rank has
 * filled its ranks_range; afterwards every rank has all of them. */
Status ranks_gather(void *all, int64_t items, size_t bytes, Diag *diag);

/* Collective. As ranks_gather, of parts of any size: rank r brings bytes[r] at
 * all + the sum of those before it. */
Status ranks_gather_parts(void *all, const size_t *bytes, Diag *diag);

/* What goes to another rank, or comes from it. */
typedef struct RanksMessage {
    int rank;
    void *data;
    size_t bytes;
} RanksMessage;

/* Collective. Each of the pieces, which its rank brings, comes to all: the same pieces,
 * in the same order, in every rank. */
Status ranks_gather_pieces(const RanksMessage *pieces, int count, Diag *diag);

/* Collective. Sends and receives messages of any number and size. Those from one rank to
 * another arrive in the order in which they were given; both have the same sizes. */
Status ranks_exchange(const RanksMessage *send, int sends, const RanksMessage *receive,
                      int receives, Diag *diag);

/* Messages that are under way while the rank does something else. What begins outside of
 * a collective has no vote: it is begun after one that all ranks have come well out of,
 * and from there on each of them sends and receives its part, whatever comes of its own
 * work, which it brings to the next vote. Nothing waits for ever then. */
typedef struct RanksTransfer RanksTransfer;

/* With nothing under way. */
RanksTransfer *ranks_transfer_create(void);

/* Of what has not failed nothing may be under way. NULL is allowed. */
void ranks_transfer_destroy(RanksTransfer *transfer);

/* Begins to send messages, or to receive them, in the order of ranks_exchange; `data` is
 * in use until they have arrived. */
Status ranks_transfer_send(RanksTransfer *transfer, const RanksMessage *messages,
                           int count, Diag *diag);
Status ranks_transfer_receive(RanksTransfer *transfer, const RanksMessage *messages,
                              int count, Diag *diag);

/* Whether all that the transfer has begun is done, which gets a push by asking. */
Status ranks_transfer_done(RanksTransfer *transfer, bool *done, Diag *diag);

/* Waits until it is. */
Status ranks_transfer_wait(RanksTransfer *transfer, Diag *diag);

/* Bytes of data that this rank has sent to others in collectives, those of a broadcast
 * counted once for each of them, and in transfers; and seconds it spent there, waiting
 * included. */
typedef struct RanksTraffic {
    uint64_t bytes;
    double seconds;
} RanksTraffic;
RanksTraffic ranks_traffic(void);

#endif
