/* Network: see session/bench/network.h. */
#include "session/bench/network.h"

#include "exec/loops/loops.h"
#include "exec/run/ranks.h"
#include "ir/arena.h"
#include "ir/tensor.h"

#include <math.h>
#include <stdlib.h>

typedef struct Network {
    const Watch *watch;
    int ranks, own;
    int64_t part;   /* floats of a rank's part */
    float *all;     /* ranks parts */
    float *arrived; /* ranks - 1 parts of others */
    RanksMessage *send, *receive;
} Network;

static Status open_arrays(Network *n, Buf **buf, Diag *diag) {
    const size_t floats = 2 * (size_t)n->ranks * (size_t)n->part;
    TRY(buf_create(buf, floats * sizeof(float), diag));
    n->all = (float *)(uintptr_t)buf_data(*buf);
    n->arrived = n->all + (int64_t)n->ranks * n->part;
    for (int r = 0, k = 0; r < n->ranks; r++) {
        if (r == n->own) continue;
        const size_t bytes = (size_t)n->part * sizeof(float);
        n->send[k] = (RanksMessage){r, n->all + r * n->part, bytes};
        n->receive[k] = (RanksMessage){r, n->arrived + k * n->part, bytes};
        k++;
    }
    return STATUS_OK;
}

static Status stopped(const Network *n, Diag *diag) {
    const Watch *watch = n->watch;
    if (!watch || !watch->cancelled || !watch->cancelled(watch->self)) return STATUS_OK;
    return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
}

/* This rank's part of everybody's sum. */
static Status sum_parts(const Network *n, Diag *diag) {
    float *own = n->all + n->own * n->part;
    TRY(ranks_exchange(n->send, n->ranks - 1, n->receive, n->ranks - 1, diag));
    for (int k = 0; k < n->ranks - 1; k++)
        loops_here()->add_floats(own, n->arrived + k * n->part, n->part);
    return STATUS_OK;
}

static Status talk(const Network *n, RateKind kind, Diag *diag) {
    switch (kind) {
    case RATE_AGREE: return ranks_agree(STATUS_OK, diag);
    case RATE_GATHER:
        return ranks_gather(n->all, n->ranks, (size_t)n->part * sizeof(float), diag);
    default: return sum_parts(n, diag);
    }
}

/* Seconds of one time, the ranks having met before. */
static Status time_talk(const Network *n, RateKind kind, int times, double *seconds,
                        Diag *diag) {
    TRY(ranks_agree(stopped(n, diag), diag));
    const double start = ticker_seconds();
    for (int i = 0; i < times; i++) TRY(talk(n, kind, diag));
    *seconds = (ticker_seconds() - start) / times;
    return STATUS_OK;
}

/* Rank 0 says how many measurements there is time for: all must do as many. */
static Status measure_talk(const Network *n, RateKind kind, double seconds, Rate *out,
                           Diag *diag) {
    const double sent = (double)(n->ranks - 1) * (double)n->part * (double)sizeof(float);
    const int times = kind == RATE_AGREE ? 100 : 1;
    double values[RATE_MOST], each;
    int32_t count;
    TRY(time_talk(n, kind, times, &each, diag)); /* memory is touched, links are made */
    TRY(time_talk(n, kind, times, &each, diag));
    count = (int32_t)fmin(RATE_MOST, fmax(RATE_FEWEST, seconds / (each * times)));
    TRY(ranks_broadcast(&count, sizeof count, 0, diag));
    for (int i = 0; i < count; i++) {
        TRY(time_talk(n, kind, times, &each, diag));
        values[i] = kind == RATE_AGREE ? each : sent / each;
    }
    *out = rate_of(values, count);
    return STATUS_OK;
}

static Status measure_all(Network *n, Machine *out, double seconds, Diag *diag) {
    Buf *buf = NULL;
    Status status = open_arrays(n, &buf, diag);
    for (RateKind kind = RATE_AGREE; kind <= RATE_SUM && status == STATUS_OK; kind++)
        status = measure_talk(n, kind, seconds / 3, &out->alone[kind], diag);
    buf_release(buf);
    return status;
}

Status network_measure(Machine *out, double seconds, const Watch *watch, Diag *diag) {
    Network n = {.watch = watch, .ranks = ranks_count(), .own = ranks_number()};
    out->ranks = n.ranks;
    if (n.ranks == 1) return STATUS_OK;
    n.part = (int64_t)(NETWORK_BYTES / sizeof(float)) / n.ranks;
    n.send = memory_alloc((size_t)n.ranks, sizeof *n.send);
    n.receive = memory_alloc((size_t)n.ranks, sizeof *n.receive);
    const Status status = measure_all(&n, out, seconds, diag);
    free(n.send);
    free(n.receive);
    return status;
}

bool network_fit(RankCluster *out, const Machine *machine) {
    const double gather = machine->alone[RATE_GATHER].median;
    const double sum = machine->alone[RATE_SUM].median;
    if (machine->ranks < 2 || !(gather > 0) || !(sum > 0)) return false;
    out->bandwidth = 2 / (1 / gather + 1 / sum);
    out->latency = machine->alone[RATE_AGREE].median / (2 * ceil(log2(machine->ranks)));
    return true;
}
