/* Ranks: the processes of one job, which share the work of a run.
 *
 * Under `mpirun -n R compress ...`, R processes run the same recipe step by step. Work
 * that walks a data set is distributed among them (exec/run/lanes.h,
 * exec/train/shards.h); each does everything else itself, with the same bytes. Only rank
 * 0 writes files and messages. In a program without MPI, or one not started by mpirun,
 * there is one rank, and the functions below do nothing that costs time.
 *
 * Every collective call begins with a vote: each rank says whether it continues. A rank
 * that failed elsewhere votes in ranks_agree, wherever the others are, so that none of
 * them waits for it: their collective returns the failure with the message of the lowest
 * rank that failed. After such a failure all ranks leave the run: later collectives
 * return it at once, without communication. Only STATUS_INTERRUPTED leaves all ranks at
 * the same place, so that they can still save their work together. A rank that closes
 * early keeps voting until all close; ranks that need it are told so.
 *
 * Collectives are called only by the main thread, in the same order by all ranks. MPI
 * Forum, MPI: A Message-Passing Interface Standard 3.1, 2015. The only file that
 * includes mpi.h is exec/run/ranks_mpi.c. */
#ifndef COMPRESS_EXEC_RUN_RANKS_H
#define COMPRESS_EXEC_RUN_RANKS_H

#include "ir/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Joins the job of the mpirun that started this process, if any. Fails with STATUS_USAGE
 * in a program that was started as one of several ranks, but was built without MPI or
 * with a different one: each rank would do all of the work and write the same files. */
Status ranks_open(Diag *diag);

/* Leaves the job: waits for the other ranks to do so too. Nothing if it was not opened.
 */
void ranks_close(void);

/* Number of processes that mpirun or the like has started, including this one, also
 * before ranks_open; 0 = not started that way. */
long ranks_launched(void);

/* This process's number among them, from 0, also before ranks_open. */
long ranks_launched_number(void);

/* Ends all ranks at once with an exit code, from anywhere but a signal handler. */
_Noreturn void ranks_abort(int code);

/* Number of ranks, at least 1; and this process's rank, from 0. */
int ranks_count(void);
int ranks_number(void);

/* Items [*first, *last) of `items` that rank `rank` does: contiguous, in order of ranks.
 */
void ranks_range(int64_t items, int rank, int64_t *first, int64_t *last);

/* Collective. All ranks bring the status of their own work; returns STATUS_OK if all
 * bring that, else the status of the lowest rank that failed. The others then have its
 * errors, notes and hints in `diag`, after its number ("rank 2: ..."); rank 0, which
 * reports, has no errors of its own unless it is the one. */
Status ranks_agree(Status mine, Diag *diag);

/* Collective. All ranks receive rank `root`'s bytes. */
Status ranks_broadcast(void *data, size_t bytes, int root, Diag *diag);

/* Collective. `all` has room for `items` items of `bytes` each, of which every rank has
 * filled its ranks_range; afterwards every rank has all of them. */
Status ranks_gather(void *all, int64_t items, size_t bytes, Diag *diag);

/* Collective. As ranks_gather, for parts of any size: rank r brings bytes[r] at all +
 * the sum of those before it. */
Status ranks_gather_parts(void *all, const size_t *bytes, Diag *diag);

/* A message to another rank, or from it. */
typedef struct RanksMessage {
    int rank;
    void *data;
    size_t bytes;
} RanksMessage;

/* Collective. Each piece is brought by its rank and received by all: the same pieces, in
 * the same order, in every rank. */
Status ranks_gather_pieces(const RanksMessage *pieces, int count, Diag *diag);

/* Collective. Sends and receives messages of any number and size. Messages from one rank
 * to another arrive in the order given; both ranks give the same sizes. */
Status ranks_exchange(const RanksMessage *send, int sends, const RanksMessage *receive,
                      int receives, Diag *diag);

/* Messages that are under way while the rank does something else. A transfer outside a
 * collective has no vote: it is started after a vote in which all ranks succeeded, and
 * from then on each sends and receives its part whatever happens to its own work, whose
 * status it brings to the next vote. So nothing waits for ever. */
typedef struct RanksTransfer RanksTransfer;

/* Creates a transfer with nothing under way. */
RanksTransfer *ranks_transfer_create(void);

/* No message may be under way unless the transfer has failed. NULL is allowed. */
void ranks_transfer_destroy(RanksTransfer *transfer);

/* Starts sending messages, or receiving them, in the order of ranks_exchange; `data` is
 * in use until they have arrived. */
Status ranks_transfer_send(RanksTransfer *transfer, const RanksMessage *messages,
                           int count, Diag *diag);
Status ranks_transfer_receive(RanksTransfer *transfer, const RanksMessage *messages,
                              int count, Diag *diag);

/* Whether everything that the transfer has started is done; calling this also makes
 * progress. */
Status ranks_transfer_done(RanksTransfer *transfer, bool *done, Diag *diag);

/* Waits until it is. */
Status ranks_transfer_wait(RanksTransfer *transfer, Diag *diag);

/* Bytes of data that this rank has sent to others in collectives (those of a broadcast
 * counted once per receiver) and in transfers; and seconds it spent there, including
 * waiting. */
typedef struct RanksTraffic {
    uint64_t bytes;
    double seconds;
} RanksTraffic;
RanksTraffic ranks_traffic(void);

#endif
