/* The one file that includes mpi.h: see exec/run/ranks_mpi.h.
 *
 * MPI 3 counts with int, and what goes over the wire may be larger: it goes in pieces. */
#include "exec/run/ranks_mpi.h"

#ifdef COMPRESS_HAVE_MPI

#include "ir/arena.h"

#include <mpi.h>
#include <stdlib.h>

/* Bytes of a piece. */
#define PIECE ((size_t)4 << 20)

/* Up to so many bytes MPI's own gather, which takes few steps; above it a ring, whose
 * steps are as large as a rank's part, and in which nothing goes over the wire twice. */
#define SMALL ((size_t)1 << 16)

#define TAG 1

bool mpi_built(void) {
    return true;
}

/* Fails for a code of MPI's that is no success. */
static Status check(int code, Diag *diag) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) return STATUS_OK;
    MPI_Error_string(code, text, &length);
    return diag_fail(diag, STATUS_IO, LOC_NONE, NULL, "ranks cannot talk by MPI: %s",
                     text);
}

Status mpi_open(int *count, int *number, Diag *diag) {
    int level = 0;
    TRY(check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), diag));
    TRY(check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), diag));
    TRY(check(MPI_Comm_size(MPI_COMM_WORLD, count), diag));
    return check(MPI_Comm_rank(MPI_COMM_WORLD, number), diag);
}

void mpi_close(void) {
    MPI_Finalize();
}

_Noreturn void mpi_abort(int code) {
    MPI_Abort(MPI_COMM_WORLD, code);
    _Exit(code);
}

Status mpi_least(int *numbers, int count, Diag *diag) {
    return check(
        MPI_Allreduce(MPI_IN_PLACE, numbers, count, MPI_INT, MPI_MIN, MPI_COMM_WORLD),
        diag);
}

static int piece_of(size_t left) {
    return (int)(left < PIECE ? left : PIECE);
}

Status mpi_broadcast(void *data, size_t bytes, int root, Diag *diag) {
    for (size_t at = 0; at < bytes; at += PIECE)
        TRY(check(MPI_Bcast((char *)data + at, piece_of(bytes - at), MPI_BYTE, root,
                            MPI_COMM_WORLD),
                  diag));
    return STATUS_OK;
}

/* Pieces of a list of messages. */
static size_t count_pieces(const RanksMessage *messages, int count) {
    size_t pieces = 0;
    for (int i = 0; i < count; i++) pieces += (messages[i].bytes + PIECE - 1) / PIECE;
    return pieces;
}

/* Begins to send or receive a list of messages, piece by piece. */
static Status start(const RanksMessage *messages, int count, bool receive,
                    MPI_Request *requests, int *started, Diag *diag) {
    for (int i = 0; i < count; i++) {
        const RanksMessage *m = &messages[i];
        for (size_t at = 0; at < m->bytes; at += PIECE) {
            char *data = (char *)m->data + at;
            const int bytes = piece_of(m->bytes - at);
            MPI_Request *request = &requests[*started];
            TRY(check(receive ? MPI_Irecv(data, bytes, MPI_BYTE, m->rank, TAG,
                                          MPI_COMM_WORLD, request)
                              : MPI_Isend(data, bytes, MPI_BYTE, m->rank, TAG,
                                          MPI_COMM_WORLD, request),
                      diag));
            ++*started;
        }
    }
    return STATUS_OK;
}

Status mpi_exchange(const RanksMessage *send, int sends, const RanksMessage *receive,
                    int receives, Diag *diag) {
    const size_t pieces = count_pieces(send, sends) + count_pieces(receive, receives);
    MPI_Request *requests = memory_alloc(pieces + 1, sizeof *requests);
    int started = 0;
    Status status = start(receive, receives, true, requests, &started, diag);
    if (status == STATUS_OK) status = start(send, sends, false, requests, &started, diag);
    if (status == STATUS_OK)
        status = check(MPI_Waitall(started, requests, MPI_STATUSES_IGNORE), diag);
    free(requests);
    return status;
}

/* By MPI's own gather. */
static Status gather_small(void *all, const size_t *bytes, int ranks, Diag *diag) {
    int *counts = memory_alloc(2 * (size_t)ranks, sizeof *counts);
    int *places = counts + ranks;
    for (int r = 0; r < ranks; r++) {
        counts[r] = (int)bytes[r];
        places[r] = r > 0 ? places[r - 1] + counts[r - 1] : 0;
    }
    const int code = MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all, counts, places,
                                    MPI_BYTE, MPI_COMM_WORLD);
    free(counts);
    return check(code, diag);
}

/* Each rank hands its part to the next one, then the part that came, and so on. */
static Status gather_ring(void *all, const size_t *bytes, int ranks, int me, Diag *diag) {
    RanksMessage *parts = memory_alloc((size_t)ranks, sizeof *parts);
    size_t at = 0;
    Status status = STATUS_OK;
    for (int r = 0; r < ranks; at += bytes[r++])
        parts[r] = (RanksMessage){.data = (char *)all + at, .bytes = bytes[r]};
    for (int step = 0; step + 1 < ranks && status == STATUS_OK; step++) {
        RanksMessage out = parts[(me - step + ranks) % ranks];
        RanksMessage in = parts[(me - step - 1 + ranks) % ranks];
        out.rank = (me + 1) % ranks;
        in.rank = (me - 1 + ranks) % ranks;
        status = mpi_exchange(&out, 1, &in, 1, diag);
    }
    free(parts);
    return status;
}

Status mpi_gather(void *all, const size_t *bytes, Diag *diag) {
    int ranks = 1, me = 0;
    size_t total = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    for (int r = 0; r < ranks; r++) total += bytes[r];
    return total <= SMALL ? gather_small(all, bytes, ranks, diag)
                          : gather_ring(all, bytes, ranks, me, diag);
}

#else

#include <stdlib.h>

/* Nothing of this is reached: ranks_open joins no job. */

bool mpi_built(void) {
    return false;
}

Status mpi_open(int *count, int *number, Diag *diag) {
    (void)count, (void)number, (void)diag;
    return STATUS_INTERNAL;
}

void mpi_close(void) {}

_Noreturn void mpi_abort(int code) {
    _Exit(code);
}

Status mpi_least(int *numbers, int count, Diag *diag) {
    (void)numbers, (void)count, (void)diag;
    return STATUS_INTERNAL;
}

Status mpi_broadcast(void *data, size_t bytes, int root, Diag *diag) {
    (void)data, (void)bytes, (void)root, (void)diag;
    return STATUS_INTERNAL;
}

Status mpi_gather(void *all, const size_t *bytes, Diag *diag) {
    (void)all, (void)bytes, (void)diag;
    return STATUS_INTERNAL;
}

Status mpi_exchange(const RanksMessage *send, int sends, const RanksMessage *receive,
                    int receives, Diag *diag) {
    (void)send, (void)sends, (void)receive, (void)receives, (void)diag;
    return STATUS_INTERNAL;
}

#endif
