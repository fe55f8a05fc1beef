/* Lanes: see exec/run/lanes.h. */
#include "exec/run/lanes.h"

#include "exec/run/parallel.h"
#include "ir/arena.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct Lane {
    Diag *diag;
    Status status;  /* of the last item it did in this round */
    int64_t failed; /* that item, where the status is a failure */
    Fetch what;     /* of a sweep: its chunk */
} Lane;

struct Lanes {
    Lane *lanes;
    int count;
    Ticker ticker;
    atomic_bool stop;
};

Lanes *lanes_create(int64_t threads, int64_t items, const Watch *watch) {
    Lanes *lanes = memory_alloc(1, sizeof *lanes);
    const int64_t most = threads < items ? threads : items;
    lanes->count = most > 1 ? (int)most : 1;
    lanes->lanes = memory_alloc((size_t)lanes->count, sizeof *lanes->lanes);
    for (int i = 0; i < lanes->count; i++) lanes->lanes[i].diag = diag_create();
    lanes->ticker = (Ticker){.watch = watch, .used = lanes->count};
    lanes->ticker.threads = threads < INT_MAX ? (int)threads : INT_MAX;
    atomic_init(&lanes->stop, false);
    return lanes;
}

void lanes_destroy(Lanes *lanes) {
    if (!lanes) return;
    for (int i = 0; i < lanes->count; i++) diag_destroy(lanes->lanes[i].diag);
    free(lanes->lanes);
    free(lanes);
}

int lanes_count(const Lanes *lanes) {
    return lanes->count;
}

/* ---- a round ---- */

typedef struct Round {
    Lanes *lanes;
    int64_t items;
    int used; /* lanes */
    LaneWork *work;
    void *self;
} Round;

static void run_lane(void *self, int64_t i, int thread) {
    (void)thread; /* what a lane does depends on its number alone */
    const Round *round = self;
    Lane *lane = &round->lanes->lanes[i];
    lane->status = STATUS_OK;
    const int64_t last = round->items * (i + 1) / round->used;
    for (int64_t item = round->items * i / round->used;
         item < last && lane->status == STATUS_OK; item++) {
        lane->status = round->work(round->self, item, (int)i, lane->diag);
        lane->failed = item;
    }
}

/* Runs a round. Returns the first lane that failed, the number of lanes when none did. As
 * ranges are in order, so are the failures. */
static int run_round(Lanes *lanes, int64_t items, LaneWork *work, void *self) {
    Round round = {.lanes = lanes, .items = items, .work = work, .self = self};
    round.used = items < lanes->count ? (int)items : lanes->count;
    parallel_for(round.used, round.used, run_lane, &round);
    for (int i = 0; i < round.used; i++)
        if (lanes->lanes[i].status != STATUS_OK) return i;
    return lanes->count;
}

/* Hands the message of lane `failed` over; those of later lanes are dropped. */
static Status report(Lanes *lanes, int failed, Diag *diag) {
    if (failed == lanes->count) return STATUS_OK;
    diag_take(diag, lanes->lanes[failed].diag);
    for (int i = failed + 1; i < lanes->count; i++) diag_clear(lanes->lanes[i].diag);
    return lanes->lanes[failed].status;
}

Status lanes_run(Lanes *lanes, int64_t items, LaneWork *work, void *self, Diag *diag) {
    return report(lanes, run_round(lanes, items, work, self), diag);
}

bool lanes_cancelled(Lanes *lanes, int lane) {
    if (lane == 0 && ticker_cancelled(&lanes->ticker)) atomic_store(&lanes->stop, true);
    return atomic_load(&lanes->stop);
}

void lanes_progress(Lanes *lanes, int64_t done, int64_t total, double loss) {
    ticker_progress(&lanes->ticker, done, total, loss, done == total);
}

/* ---- sweeps ---- */

int64_t lanes_chunks(int64_t total, int64_t chunk) {
    return (total + chunk - 1) / chunk;
}

typedef struct Sweeping {
    const LaneSweep *sweep;
    Lanes *lanes;
    int64_t *order; /* of the samples */
} Sweeping;

static Status run_chunk(void *self, int64_t item, int lane, Diag *diag) {
    const Sweeping *s = self;
    return s->sweep->run(s->sweep->self, &s->lanes->lanes[item].what, lane, diag);
}

/* Gives each lane a chunk, from sample *first on; returns how many there are. */
static int give_chunks(const Sweeping *s, int64_t *first) {
    const LaneSweep *sweep = s->sweep;
    int count = 0;
    for (; count < s->lanes->count && *first < sweep->total; count++) {
        Fetch *what = &s->lanes->lanes[count].what;
        const int64_t left = sweep->total - *first;
        *what = (Fetch){.index = s->order + *first,
                        .n = left < sweep->chunk ? left : sweep->chunk};
        batches_pad(sweep->data, what);
        if (!what->tokens) what->tokens = sweep->tokens;
        if (!what->source) what->source = sweep->source;
        *first += what->n;
    }
    return count;
}

static Status sweep_all(const Sweeping *s, Diag *diag) {
    const LaneSweep *sweep = s->sweep;
    const int64_t total = sweep->total;
    for (int64_t first = 0; first < total;) {
        if (lanes_cancelled(s->lanes, 0))
            return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                             "stopped after %lld of %lld samples", (long long)first,
                             (long long)total);
        const int count = give_chunks(s, &first);
        const int failed = run_round(s->lanes, count, run_chunk, (void *)(uintptr_t)s);
        for (int i = 0; i < count && i < failed && sweep->deliver; i++)
            TRY(sweep->deliver(sweep->self, &s->lanes->lanes[i].what, i, diag));
        TRY(report(s->lanes, failed, diag));
        lanes_progress(s->lanes, first, total, NAN);
    }
    return STATUS_OK;
}

Status lanes_sweep(Lanes *lanes, const LaneSweep *sweep, Diag *diag) {
    Sweeping s = {.sweep = sweep, .lanes = lanes};
    s.order = memory_alloc((size_t)sweep->total, sizeof *s.order);
    for (int64_t i = 0; i < sweep->total; i++) s.order[i] = i;
    if (sweep->by_length) batches_sort(sweep->data, s.order, sweep->total);
    const Status status = sweep_all(&s, diag);
    free(s.order);
    return status;
}
