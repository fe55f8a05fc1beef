/* The one file that includes mpi.h: see exec/run/ranks_mpi.h.
 *
 * MPI 3 counts with int, and what goes over the wire may be larger: it goes in pieces. */
#include "exec/run/ranks_mpi.h"

#ifdef COMPRESS_HAVE_MPI

#include "ir/arena.h"

#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

/* Bytes of a piece. */
#define PIECE ((size_t)4 << 20)

/* Up to so many bytes MPI's own gather, which takes few steps; above it a ring, whose
 * steps are as large as a rank's part, and in which nothing goes over the wire twice. */
#define SMALL ((size_t)1 << 16)

#define TAG 1

/* A rank that waits asks again at once, then lets others have its processor, then sleeps
 * in between: ranks may be more than processors are, and threads of a rank go on. */
enum { ASKED_AT_ONCE = 200, ASKED_IN_TURN = 2000, SLEEP_NS = 50000 };

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

/* ---- waiting ---- */

static void rest(int64_t asked) {
    const struct timespec sleep = {0, SLEEP_NS};
    if (asked >= ASKED_IN_TURN)
        nanosleep(&sleep, NULL);
    else if (asked >= ASKED_AT_ONCE)
        sched_yield();
}

/* Until all requests are done. */
static Status wait_for_all(int count, MPI_Request *requests, MPI_Status *statuses,
                           Diag *diag) {
    for (int64_t asked = 0;; asked++) {
        int done = 0;
        TRY(check(MPI_Testall(count, requests, &done, statuses), diag));
        if (done) return STATUS_OK;
        rest(asked);
    }
}

/* The end of something that all ranks do together, and began with `code`. */
static Status wait_for(int code, MPI_Request *request, Diag *diag) {
    MPI_Status status;
    TRY(check(code, diag));
    return wait_for_all(1, request, &status, diag);
}

Status mpi_least(int *numbers, int count, Diag *diag) {
    MPI_Request request;
    const int code = MPI_Iallreduce(MPI_IN_PLACE, numbers, count, MPI_INT, MPI_MIN,
                                    MPI_COMM_WORLD, &request);
    return wait_for(code, &request, diag);
}

static int piece_of(size_t left) {
    return (int)(left < PIECE ? left : PIECE);
}

Status mpi_broadcast(void *data, size_t bytes, int root, Diag *diag) {
    for (size_t at = 0; at < bytes; at += PIECE) {
        MPI_Request request;
        const int code = MPI_Ibcast((char *)data + at, piece_of(bytes - at), MPI_BYTE,
                                    root, MPI_COMM_WORLD, &request);
        TRY(wait_for(code, &request, diag));
    }
    return STATUS_OK;
}

/* ---- messages under way ---- */

struct MpiTransfer {
    MPI_Request *requests; /* one for each piece */
    int *finished;         /* room for what MPI says of them: which are done, and how */
    MPI_Status *statuses;  /* (gcc warns of MPICH's way to ignore them) */
    int count, room;
};

MpiTransfer *mpi_transfer_create(void) {
    return memory_alloc(1, sizeof(MpiTransfer));
}

void mpi_transfer_destroy(MpiTransfer *transfer) {
    free(transfer->requests);
    free(transfer->finished);
    free(transfer->statuses);
    free(transfer);
}

/* Room for one more piece. */
static MPI_Request *add_request(MpiTransfer *transfer) {
    if (transfer->count == transfer->room) {
        const size_t room = 2 * (size_t)transfer->room + 16;
        transfer->requests =
            memory_grow(transfer->requests, room, sizeof *transfer->requests);
        transfer->finished =
            memory_grow(transfer->finished, room, sizeof *transfer->finished);
        transfer->statuses =
            memory_grow(transfer->statuses, room, sizeof *transfer->statuses);
        transfer->room = (int)room;
    }
    return &transfer->requests[transfer->count];
}

Status mpi_transfer_start(MpiTransfer *transfer, const RanksMessage *messages, int count,
                          bool receive, Diag *diag) {
    for (int i = 0; i < count; i++) {
        const RanksMessage *m = &messages[i];
        for (size_t at = 0; at < m->bytes; at += PIECE) {
            char *data = (char *)m->data + at;
            const int bytes = piece_of(m->bytes - at);
            MPI_Request *request = add_request(transfer);
            TRY(check(receive ? MPI_Irecv(data, bytes, MPI_BYTE, m->rank, TAG,
                                          MPI_COMM_WORLD, request)
                              : MPI_Isend(data, bytes, MPI_BYTE, m->rank, TAG,
                                          MPI_COMM_WORLD, request),
                      diag));
            transfer->count++;
        }
    }
    return STATUS_OK;
}

/* Drops the requests that are done. */
static Status drop_finished(MpiTransfer *transfer, Diag *diag) {
    int finished = 0, left = 0;
    TRY(check(MPI_Testsome(transfer->count, transfer->requests, &finished,
                           transfer->finished, transfer->statuses),
              diag));
    if (finished == 0 || finished == MPI_UNDEFINED) return STATUS_OK;
    for (int i = 0; i < transfer->count; i++)
        if (transfer->requests[i] != MPI_REQUEST_NULL)
            transfer->requests[left++] = transfer->requests[i];
    transfer->count = left;
    return STATUS_OK;
}

Status mpi_transfer_wait(MpiTransfer *transfer, bool *done, Diag *diag) {
    if (done) {
        TRY(drop_finished(transfer, diag));
        *done = transfer->count == 0;
        return STATUS_OK;
    }
    const int count = transfer->count;
    transfer->count = 0;
    return wait_for_all(count, transfer->requests, transfer->statuses, diag);
}

Status mpi_exchange(const RanksMessage *send, int sends, const RanksMessage *receive,
                    int receives, Diag *diag) {
    MpiTransfer *transfer = mpi_transfer_create();
    Status status = mpi_transfer_start(transfer, receive, receives, true, diag);
    if (status == STATUS_OK)
        status = mpi_transfer_start(transfer, send, sends, false, diag);
    if (status == STATUS_OK) status = mpi_transfer_wait(transfer, NULL, diag);
    mpi_transfer_destroy(transfer);
    return status;
}

/* ---- gathering ---- */

/* By MPI's own gather. */
static Status gather_small(void *all, const size_t *bytes, int ranks, Diag *diag) {
    int *counts = memory_alloc(2 * (size_t)ranks, sizeof *counts);
    int *places = counts + ranks;
    for (int r = 0; r < ranks; r++) {
        counts[r] = (int)bytes[r];
        places[r] = r > 0 ? places[r - 1] + counts[r - 1] : 0;
    }
    MPI_Request request;
    const int code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all, counts, places,
                                     MPI_BYTE, MPI_COMM_WORLD, &request);
    const Status status = wait_for(code, &request, diag);
    free(counts); /* MPI reads them until then */
    return status;
}

/* The pieces of one rank, as messages to or from another. Returns how many. */
static int pieces_of(int owner, const RanksMessage *pieces, int count, int other,
                     RanksMessage *out) {
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (pieces[i].rank != owner) continue;
        out[found] = pieces[i];
        out[found++].rank = other;
    }
    return found;
}

/* A ring: each rank hands its pieces to the next one, then those that came, and so on. */
Status mpi_gather_pieces(const RanksMessage *pieces, int count, Diag *diag) {
    int ranks = 1, me = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    RanksMessage *out = memory_alloc((size_t)count + 1, sizeof *out);
    RanksMessage *in = memory_alloc((size_t)count + 1, sizeof *in);
    const int next = (me + 1) % ranks, before = (me - 1 + ranks) % ranks;
    Status status = STATUS_OK;
    for (int step = 0; step + 1 < ranks && status == STATUS_OK; step++) {
        const int from = (me - step + ranks) % ranks;
        const int sends = pieces_of(from, pieces, count, next, out);
        const int receives =
            pieces_of((from - 1 + ranks) % ranks, pieces, count, before, in);
        status = mpi_exchange(out, sends, in, receives, diag);
    }
    free(out);
    free(in);
    return status;
}

/* Large parts go round as pieces. */
static Status gather_ring(void *all, const size_t *bytes, int ranks, Diag *diag) {
    RanksMessage *parts = memory_alloc((size_t)ranks, sizeof *parts);
    size_t at = 0;
    for (int r = 0; r < ranks; at += bytes[r++])
        parts[r] = (RanksMessage){r, (char *)all + at, bytes[r]};
    const Status status = mpi_gather_pieces(parts, ranks, diag);
    free(parts);
    return status;
}

Status mpi_gather(void *all, const size_t *bytes, Diag *diag) {
    int ranks = 1;
    size_t total = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int r = 0; r < ranks; r++) total += bytes[r];
    return total <= SMALL ? gather_small(all, bytes, ranks, diag)
                          : gather_ring(all, bytes, ranks, diag);
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

Status mpi_gather_pieces(const RanksMessage *pieces, int count, Diag *diag) {
    (void)pieces, (void)count, (void)diag;
    return STATUS_INTERNAL;
}

MpiTransfer *mpi_transfer_create(void) {
    return NULL;
}

void mpi_transfer_destroy(MpiTransfer *transfer) {
    (void)transfer;
}

Status mpi_transfer_start(MpiTransfer *transfer, const RanksMessage *messages, int count,
                          bool receive, Diag *diag) {
    (void)transfer, (void)messages, (void)count, (void)receive, (void)diag;
    return STATUS_INTERNAL;
}

Status mpi_transfer_wait(MpiTransfer *transfer, bool *done, Diag *diag) {
    (void)transfer, (void)done, (void)diag;
    return STATUS_INTERNAL;
}

#endif
