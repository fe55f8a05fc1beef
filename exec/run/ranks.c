/* Ranks: see exec/run/ranks.h.
 *
 * A vote is the least of one number per rank: its own number where it failed, the number
 * of ranks where it has closed, one more where all is well. Below the number of ranks it
 * is the rank whose message the others get next. */
#include "exec/run/ranks.h"

#include "exec/run/ranks_mpi.h"
#include "exec/run/ticker.h"
#include "ir/arena.h"

#include <stdlib.h>
#include <string.h>

/* The process's place in its job, which is one for the process as MPI's is. */
static struct {
    bool joined;
    int count, number; /* 0 before ranks_open: there is one rank */
    Status failed;     /* what all ranks know of */
    bool interrupted;  /* all ranks know of that, too */
    bool broken;       /* MPI failed: there is no talking any more */
    RanksTraffic traffic;
} job;

int ranks_count(void) {
    return job.count > 1 ? job.count : 1;
}

int ranks_number(void) {
    return job.number;
}

RanksTraffic ranks_traffic(void) {
    return job.traffic;
}

void ranks_range(int64_t items, int rank, int64_t *first, int64_t *last) {
    const int64_t ranks = ranks_count(), each = items / ranks, rest = items % ranks;
    *first = each * rank + (rank < rest ? rank : rest);
    *last = *first + each + (rank < rest);
}

/* ---- joining and leaving ---- */

/* A number that a launcher has put into the environment; `otherwise` where it has not. */
static long launched(const char *variable, long otherwise) {
    const char *text = getenv(variable);
    char *end = NULL;
    if (!text || !*text) return otherwise;
    const long number = strtol(text, &end, 10);
    return *end ? otherwise : number;
}

/* Processes that the launcher has started: Open MPI's and PRRTE's, MPICH's and Slurm's
 * by PMI, any by PMIx, which gives the rank alone. */
long ranks_launched(void) {
    long count = launched("OMPI_COMM_WORLD_SIZE", 0);
    if (count == 0) count = launched("PMI_SIZE", 0);
    if (count == 0 && getenv("PMIX_RANK")) {
        count = launched("PMIX_RANK", 0) + 1;
        const long tasks = launched("SLURM_STEP_NUM_TASKS", 1);
        if (tasks > count) count = tasks;
    }
    return count;
}

long ranks_launched_number(void) {
    const long pmi = launched("PMI_RANK", launched("PMIX_RANK", 0));
    return launched("OMPI_COMM_WORLD_RANK", pmi);
}

static Status refuse(long launched_count, const char *why, Diag *diag) {
    diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL,
              "started as one of %ld ranks, expected a program built with %s",
              launched_count, why);
    diag_hint(diag, "build with -DCOMPRESS_MPI=ON and that MPI's development files, or "
                    "start without mpirun");
    return STATUS_USAGE;
}

Status ranks_open(Diag *diag) {
    const long count = ranks_launched();
    if (job.joined || count == 0) return STATUS_OK;
    if (!mpi_built()) return count > 1 ? refuse(count, "MPI", diag) : STATUS_OK;
    int number = 0;
    TRY(mpi_open(&job.count, &number, diag));
    job.number = number;
    job.joined = true;
    if (job.count == 1 && count > 1) {
        mpi_close();
        job.joined = false;
        return refuse(count, "the MPI of the launcher", diag);
    }
    return STATUS_OK;
}

_Noreturn void ranks_abort(int code) {
    if (job.joined) mpi_abort(code);
    _Exit(code);
}

/* ---- what failed ---- */

/* Puts an error, note or hint into a text: what it is, its place and its strings. */
static void pack_entry(void *self, const DiagEntry *entry) {
    const char *strings[] = {entry->at.file, entry->key, entry->message};
    const int numbers[] = {(int)entry->kind, entry->at.line, entry->at.column};
    if (entry->kind == DIAG_WARNING) return;
    fwrite(numbers, sizeof numbers, 1, self);
    for (int i = 0; i < 3; i++) fprintf(self, "%s%c", strings[i] ? strings[i] : "", 0);
}

/* Records what pack_entry has packed. */
static void unpack_entries(const char *text, size_t bytes, int rank, Status status,
                           Diag *diag) {
    for (const char *at = text, *end = text + bytes; at < end;) {
        int numbers[3];
        const char *strings[3];
        memcpy(numbers, at, sizeof numbers);
        at += sizeof numbers;
        for (int i = 0; i < 3; i++, at += strlen(at) + 1) strings[i] = at;
        const Loc loc = {*strings[0] ? strings[0] : NULL, numbers[1], numbers[2]};
        if (numbers[0] == DIAG_ERROR)
            diag_fail(diag, status, loc, *strings[1] ? strings[1] : NULL, "rank %d: %s",
                      rank, strings[2]);
        else if (numbers[0] == DIAG_NOTE)
            diag_note(diag, "%s", strings[2]);
        else
            diag_hint(diag, "%s", strings[2]);
    }
}

/* Rank `root`, which failed with `mine`, tells the others. */
static Status share_failure(Status *status, int root, Status mine, Diag *diag) {
    char *text = NULL;
    size_t bytes = 0;
    if (root == job.number) {
        FILE *out = open_memstream(&text, &bytes);
        if (out) diag_visit(diag, pack_entry, out);
        if (!out || fclose(out) != 0) bytes = 0;
    }
    uint64_t head[] = {(uint64_t)mine, bytes};
    TRY(mpi_broadcast(head, sizeof head, root, diag));
    *status = (Status)head[0];
    if (root != job.number) text = memory_alloc((size_t)head[1] + 1, 1);
    const Status sent = mpi_broadcast(text, (size_t)head[1], root, diag);
    if (root != job.number && sent == STATUS_OK)
        unpack_entries(text, (size_t)head[1], root, *status, diag);
    free(text);
    return sent;
}

/* MPI has failed. */
static Status break_off(Status status) {
    job.broken = true;
    job.failed = status;
    return status;
}

/* What the vote says, whose least number is `least`. */
static Status settle(int least, Status mine, Diag *diag) {
    Status status = STATUS_OK;
    if (least > job.count) return STATUS_OK;
    if (least == job.count) {
        if (job.interrupted) return STATUS_INTERRUPTED;
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                         "another rank has ended before its work was done");
    }
    const Status sent = share_failure(&status, least, mine, diag);
    if (sent != STATUS_OK) return break_off(sent);
    if (status == STATUS_INTERRUPTED)
        job.interrupted = true;
    else
        job.failed = status;
    return status;
}

/* Brings `number` to a vote; *all says whether every rank brought the same. */
static Status vote(int number, Status mine, bool *all, Diag *diag) {
    int numbers[] = {number, -number}; /* least, and largest with its sign turned */
    const Status sent = mpi_least(numbers, 2, diag);
    if (sent != STATUS_OK) return break_off(sent);
    *all = numbers[0] == -numbers[1];
    return settle(numbers[0], mine, diag);
}

Status ranks_agree(Status mine, Diag *diag) {
    bool all;
    if (job.count <= 1) return mine;
    if (job.failed != STATUS_OK) return job.failed;
    const double began = ticker_seconds();
    const Status status =
        vote(mine == STATUS_OK ? job.count + 1 : job.number, mine, &all, diag);
    job.traffic.seconds += ticker_seconds() - began;
    return status;
}

void ranks_close(void) {
    bool all = job.count <= 1;
    Diag *aside = diag_create();
    while (job.joined && !all && !job.broken) vote(job.count, STATUS_OK, &all, aside);
    diag_destroy(aside);
    if (job.broken) mpi_abort(status_exit_code(job.failed));
    if (job.joined) mpi_close();
    job.joined = false;
    job.count = 0;
    job.number = 0;
}

/* ---- collectives ---- */

/* Begins one; false where there is nothing to do, and *status says what came of it. */
static bool enter(Status *status, double *began, Diag *diag) {
    *status = ranks_agree(STATUS_OK, diag);
    *began = ticker_seconds();
    return job.count > 1 && *status == STATUS_OK;
}

/* Ends it, in which this rank has sent so many bytes. */
static Status leave(Status status, double began, uint64_t bytes) {
    job.traffic.bytes += bytes;
    job.traffic.seconds += ticker_seconds() - began;
    return status == STATUS_OK ? STATUS_OK : break_off(status);
}

Status ranks_broadcast(void *data, size_t bytes, int root, Diag *diag) {
    Status status;
    double began;
    if (!enter(&status, &began, diag)) return status;
    const uint64_t others = root == job.number ? (uint64_t)job.count - 1 : 0;
    return leave(mpi_broadcast(data, bytes, root, diag), began, others * bytes);
}

Status ranks_gather_parts(void *all, const size_t *bytes, Diag *diag) {
    Status status;
    double began;
    uint64_t sent = 0;
    if (!enter(&status, &began, diag)) return status;
    for (int r = 0; r < job.count; r++)
        if (r != (job.number + 1) % job.count) sent += bytes[r]; /* its own part is not */
    return leave(mpi_gather(all, bytes, diag), began, sent);
}

Status ranks_gather(void *all, int64_t items, size_t bytes, Diag *diag) {
    if (job.count <= 1) return STATUS_OK;
    size_t *parts = memory_alloc((size_t)job.count, sizeof *parts);
    for (int r = 0; r < job.count; r++) {
        int64_t first, last;
        ranks_range(items, r, &first, &last);
        parts[r] = (size_t)(last - first) * bytes;
    }
    const Status status = ranks_gather_parts(all, parts, diag);
    free(parts);
    return status;
}

Status ranks_exchange(const RanksMessage *send, int sends, const RanksMessage *receive,
                      int receives, Diag *diag) {
    Status status;
    double began;
    uint64_t sent = 0;
    if (!enter(&status, &began, diag)) return status;
    for (int i = 0; i < sends; i++) sent += send[i].bytes;
    return leave(mpi_exchange(send, sends, receive, receives, diag), began, sent);
}

Status ranks_gather_pieces(const RanksMessage *pieces, int count, Diag *diag) {
    Status status;
    double began;
    uint64_t sent = 0;
    if (!enter(&status, &began, diag)) return status;
    for (int i = 0; i < count; i++)
        if (pieces[i].rank != (job.number + 1) % job.count) sent += pieces[i].bytes;
    return leave(mpi_gather_pieces(pieces, count, diag), began, sent);
}

/* ---- transfers ---- */

struct RanksTransfer {
    MpiTransfer *messages;
};

RanksTransfer *ranks_transfer_create(void) {
    RanksTransfer *transfer = memory_alloc(1, sizeof *transfer);
    if (job.joined) transfer->messages = mpi_transfer_create();
    return transfer;
}

void ranks_transfer_destroy(RanksTransfer *transfer) {
    if (!transfer) return;
    if (transfer->messages) mpi_transfer_destroy(transfer->messages);
    free(transfer);
}

static Status transfer_start(RanksTransfer *transfer, const RanksMessage *messages,
                             int count, bool receive, Diag *diag) {
    const double began = ticker_seconds();
    uint64_t sent = 0;
    if (job.failed != STATUS_OK || count == 0) return job.failed;
    for (int i = 0; i < count && !receive; i++) sent += messages[i].bytes;
    return leave(mpi_transfer_start(transfer->messages, messages, count, receive, diag),
                 began, sent);
}

Status ranks_transfer_send(RanksTransfer *transfer, const RanksMessage *messages,
                           int count, Diag *diag) {
    return transfer_start(transfer, messages, count, false, diag);
}

Status ranks_transfer_receive(RanksTransfer *transfer, const RanksMessage *messages,
                              int count, Diag *diag) {
    return transfer_start(transfer, messages, count, true, diag);
}

Status ranks_transfer_done(RanksTransfer *transfer, bool *done, Diag *diag) {
    const double began = ticker_seconds();
    *done = true;
    if (job.failed != STATUS_OK || !transfer->messages) return job.failed;
    return leave(mpi_transfer_wait(transfer->messages, done, diag), began, 0);
}

Status ranks_transfer_wait(RanksTransfer *transfer, Diag *diag) {
    const double began = ticker_seconds();
    if (job.failed != STATUS_OK || !transfer->messages) return job.failed;
    return leave(mpi_transfer_wait(transfer->messages, NULL, diag), began, 0);
}
