/* Machine: see session/bench/machine.h. */
#include "session/bench/machine.h"

#include "exec/run/ranks.h"
#include "session/bench/disk.h"
#include "session/bench/network.h"
#include "session/bench/work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Shares of the time: each kind that threads do has one on one thread and one on all, the
 * disk and the ranks have some. */
enum { OTHER_SHARES = 4, SHARES = 2 * RATE_AGREE + 2 * OTHER_SHARES };

/* Bytes of the first file, by which the size of the others is chosen. */
enum { DISK_FIRST = 1 << 20 };

static const RateRow ROWS[RATE_KINDS] = {
#define RATE(id, key, group, what, unit, divisor) {key, group, what, unit, divisor},
#include "session/bench/rates.def"
#undef RATE
};

const RateRow *rate_row(RateKind kind) {
    return &ROWS[kind];
}

/* ---- medians ---- */

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Quantile `p` of values in order. */
static double quantile(const double *values, int count, double p) {
    const double at = p * (count - 1);
    const int below = (int)at;
    const int above = below + 1 < count ? below + 1 : below;
    return values[below] + (at - below) * (values[above] - values[below]);
}

Rate rate_of(double *values, int count) {
    if (count == 0) return (Rate){0};
    qsort(values, (size_t)count, sizeof *values, ascending);
    return (Rate){.median = quantile(values, count, 0.5),
                  .low = quantile(values, count, 0.25),
                  .high = quantile(values, count, 0.75),
                  .count = count};
}

/* ---- other processes ---- */

/* Seconds that all processors worked since the machine was started; negative = unknown.
 */
static double machine_worked(void) {
    long long part[8] = {0};
    FILE *file = fopen("/proc/stat", "r");
    if (!file) return -1;
    const int got =
        fscanf(file, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &part[0], &part[1],
               &part[2], &part[3], &part[4], &part[5], &part[6], &part[7]);
    fclose(file);
    if (got < 7) return -1;
    const long long worked = part[0] + part[1] + part[2] + part[5] + part[6];
    return (double)worked / (double)sysconf(_SC_CLK_TCK); /* not idle, I/O, stolen */
}

static double process_worked(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

typedef struct Usage {
    double clock, all, own;
} Usage;

static Usage usage_now(void) {
    return (Usage){ticker_seconds(), machine_worked(), process_worked()};
}

/* Processors that others used since `start`. */
static double usage_of_others(Usage start) {
    const Usage now = usage_now();
    if (start.all < 0 || now.all < 0) return -1;
    const double others = now.all - start.all - (now.own - start.own);
    return fmax(0, others / (now.clock - start.clock));
}

/* ---- measuring ---- */

typedef struct Measuring {
    const MachineOptions *options;
    Machine *machine;
    Work *work;
    Team *team[2]; /* one thread, all */
    double share;  /* seconds of one kind */
} Measuring;

static Status check_watch(const Measuring *m, RateKind kind, Diag *diag) {
    const Watch *watch = m->options->watch;
    if (!watch) return STATUS_OK;
    if (watch->progress)
        watch->progress(watch->self, kind, RATE_KINDS, rate_row(kind)->what);
    if (!watch->cancelled || !watch->cancelled(watch->self)) return STATUS_OK;
    return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
}

/* Times a kind again and again for its share of the time. A trial is long enough for the
 * clock, and short enough that there are several. */
static Status measure_kind(Measuring *m, RateKind kind, bool all, Diag *diag) {
    const int threads = all ? m->options->threads : 1;
    const double units = work_units(m->work, kind, threads);
    Rate *rate = all ? &m->machine->together[kind] : &m->machine->alone[kind];
    double values[RATE_MOST], spent = 0;
    int count = 0;
    if (!work_has(m->work, kind, threads)) return STATUS_OK;
    work_do(m->work, kind, m->team[all], threads, 1); /* memory is touched, clocks rise */
    const double once = work_do(m->work, kind, m->team[all], threads, 1);
    const int64_t times = (int64_t)fmax(1, m->share / (2 * RATE_FEWEST) / once);
    while (count < RATE_FEWEST || (count < RATE_MOST && spent < m->share)) {
        TRY(check_watch(m, kind, diag));
        const double seconds = work_do(m->work, kind, m->team[all], threads, times);
        const double each = seconds / (double)times;
        values[count++] = kind == RATE_MEETING ? each / units : units / each;
        spent += seconds;
    }
    *rate = rate_of(values, count);
    return STATUS_OK;
}

/* Files are as large as the time allows. */
static Status measure_disk(Measuring *m, Diag *diag) {
    const MachineOptions *o = m->options;
    double write[RATE_FEWEST], read[RATE_FEWEST], first, again;
    TRY(disk_trial(o->arena, o->folder, DISK_FIRST, &first, &again, diag));
    const double each = OTHER_SHARES * m->share / RATE_FEWEST;
    const double fitting = DISK_FIRST * each / (first + again);
    const size_t bytes = (size_t)fmin((double)DISK_BYTES, fmax(DISK_FIRST, fitting));
    m->machine->bytes = (double)bytes;
    for (int i = 0; i < RATE_FEWEST; i++) {
        TRY(check_watch(m, RATE_WRITE, diag));
        TRY(disk_trial(o->arena, o->folder, bytes, &first, &again, diag));
        write[i] = (double)bytes / first;
        read[i] = (double)bytes / again;
    }
    m->machine->alone[RATE_WRITE] = rate_of(write, RATE_FEWEST);
    m->machine->alone[RATE_READ] = rate_of(read, RATE_FEWEST);
    return STATUS_OK;
}

static Status measure_all(Measuring *m, Diag *diag) {
    const bool disk = m->options->folder && ranks_number() == 0;
    const Status status = disk ? measure_disk(m, diag) : STATUS_OK;
    TRY(ranks_agree(status, diag)); /* first: the file may be refused */
    TRY(work_create(&m->work, m->options->threads, diag));
    TRY(team_create(&m->team[0], 1, diag));
    TRY(team_create(&m->team[1], m->options->threads, diag));
    const Usage start = usage_now();
    for (RateKind kind = 0; kind < RATE_AGREE; kind++) {
        TRY(measure_kind(m, kind, false, diag));
        if (m->options->threads == 1)
            m->machine->together[kind] = m->machine->alone[kind];
        else
            TRY(measure_kind(m, kind, true, diag));
    }
    m->machine->others = usage_of_others(start);
    return network_measure(m->machine, OTHER_SHARES * m->share, m->options->watch, diag);
}

Status machine_measure(Machine *out, const MachineOptions *options, Diag *diag) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (Machine){.threads = options->threads,
                     .processors = online > 0 ? (int)online : 1};
    Measuring m = {
        .options = options, .machine = out, .share = options->seconds / SHARES};
    const Status status = ranks_agree(measure_all(&m, diag), diag);
    team_destroy(m.team[0]);
    team_destroy(m.team[1]);
    work_destroy(m.work);
    return status;
}
