/* What ranks need from MPI, only for exec/run/ranks.c: no votes, no counting. */
#ifndef COMPRESS_EXEC_RUN_RANKS_MPI_H
#define COMPRESS_EXEC_RUN_RANKS_MPI_H

#include "exec/run/ranks.h"

/* Whether the program was built with MPI; without it, nothing else here is called. */
bool mpi_built(void);

/* Joins the job; gives the number of ranks and this one's number. Only once. */
Status mpi_open(int *count, int *number, Diag *diag);

/* Waits for all ranks to leave the job. */
void mpi_close(void);

/* Ends all ranks. */
_Noreturn void mpi_abort(int code);

/* The least of what all ranks bring, separately for each of `count` numbers. */
Status mpi_least(int *numbers, int count, Diag *diag);

/* As ranks_broadcast, ranks_gather_parts, ranks_exchange and ranks_gather_pieces. */
Status mpi_broadcast(void *data, size_t bytes, int root, Diag *diag);
Status mpi_gather(void *all, const size_t *bytes, Diag *diag);
Status mpi_exchange(const RanksMessage *send, int sends, const RanksMessage *receive,
                    int receives, Diag *diag);
Status mpi_gather_pieces(const RanksMessage *pieces, int count, Diag *diag);

/* As ranks_transfer_create and the like; mpi_transfer_wait with `done` only looks. */
typedef struct MpiTransfer MpiTransfer;
MpiTransfer *mpi_transfer_create(void);
void mpi_transfer_destroy(MpiTransfer *transfer);
Status mpi_transfer_start(MpiTransfer *transfer, const RanksMessage *messages, int count,
                          bool receive, Diag *diag);
Status mpi_transfer_wait(MpiTransfer *transfer, bool *done, Diag *diag);

#endif
