/* Machine: how fast the machine performs the parts of a run, measured on the spot with
 * the program's own code.
 *
 * Products are those of exec/linalg/blas.h, in bf16 and int8 our own; each thread
 * computes one of its own, as shards do. Memory is read and written by the loop that
 * adds gradients, and by the kernels of sums and gelu on the data of a small mini-batch.
 * Threads meet as in exec/run/team.h. The disk's numbers are for a file that is written,
 * made durable and renamed like models, and then read again with its pages dropped from
 * memory. In a job of several ranks all of them measure at the same time, and then how
 * fast they communicate (session/bench/network.h). */
#ifndef COMPRESS_SESSION_BENCH_MACHINE_H
#define COMPRESS_SESSION_BENCH_MACHINE_H

#include "exec/run/ticker.h"
#include "ir/arena.h"
#include "ir/status.h"

typedef enum RateKind {
#define RATE(id, ...) RATE_##id,
#include "session/bench/rates.def"
#undef RATE
    RATE_KINDS
} RateKind;

/* A row of session/bench/rates.def. */
typedef struct RateRow {
    const char *key, *group, *what, *unit;
    double divisor;
} RateRow;

/* Measurements of one kind in SI units (FLOP/s, bytes/s, seconds): the median, and the
 * quartiles, between which half of them lie. `count` is 0 if there is none. */
typedef struct Rate {
    double median, low, high;
    int count;
} Rate;

/* Fewest measurements of a rate, so that a median means something. */
enum { RATE_FEWEST = 5, RATE_MOST = 63 };

/* On one thread, and on all. For work without threads (disk) only the first. */
typedef struct Machine {
    int threads;    /* all */
    int processors; /* online */
    int ranks;      /* of the job, which measure at the same time; 1 = no job */
    double others; /* processors that other processes used meanwhile; negative: unknown */
    double bytes;  /* of the file that the disk was measured with */
    Rate alone[RATE_KINDS], together[RATE_KINDS];
} Machine;

typedef struct MachineOptions {
    int threads;
    double seconds;     /* approximate time for all measurements */
    const char *folder; /* where rank 0's file for the disk is; NULL = none is written
                         */
    Arena *arena;       /* of messages */
    const Watch *watch; /* may be NULL */
} MachineOptions;

/* Row of a kind. */
const RateRow *rate_row(RateKind kind);

/* The median and quartiles of measurements, which are put in order. A quartile is
 * interpolated between its neighbours (Hyndman and Fan, 1996, type 7). */
Rate rate_of(double *values, int count);

/* Collective, in a job of several ranks. Measures; only rank 0 measures the disk. Fails
 * with STATUS_IO if the disk's file cannot be written, STATUS_MEMORY,
 * STATUS_INTERRUPTED.
 */
Status machine_measure(Machine *out, const MachineOptions *options, Diag *diag);

#endif
