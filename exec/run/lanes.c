/* Lanes: see exec/run/lanes.h. */
#include "exec/run/lanes.h"

#include "exec/run/parallel.h"
#include "exec/run/ranks.h"
#include "ir/arena.h"
#include "ir/memory_array.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct Lane {
    Diag *diag;
    Team *team;    /* NULL = none */
    Status status; /* of the last item it did in this round */
    Fetch what;    /* of a sweep: its chunk */
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

int lanes_threads(int64_t threads, int64_t lanes) {
    enum { MOST = 64 };
    const int64_t each = threads / lanes;
    return each > MOST ? MOST : each > 1 ? (int)each : 1;
}

int64_t lanes_used(int64_t threads, int64_t items) {
    const int64_t lanes = threads < items ? threads : items;
    return lanes * lanes_threads(threads, lanes);
}

Status lanes_share(Lanes *lanes, Diag *diag) {
    const int each = lanes_threads(lanes->ticker.threads, lanes->count);
    for (int i = 0; each > 1 && i < lanes->count; i++)
        TRY(team_create(&lanes->lanes[i].team, each, diag));
    lanes->ticker.used = lanes->count * each;
    return STATUS_OK;
}

Team *lanes_team(const Lanes *lanes, int lane) {
    return lanes->lanes[lane].team;
}

void lanes_destroy(Lanes *lanes) {
    if (!lanes) return;
    for (int i = 0; i < lanes->count; i++) {
        diag_destroy(lanes->lanes[i].diag);
        team_destroy(lanes->lanes[i].team);
    }
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
         item < last && lane->status == STATUS_OK; item++)
        lane->status = round->work(round->self, item, (int)i, lane->diag);
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

/* Hands the message of lane `failed` over, and warnings of those before it; what later
 * ones said is dropped. */
static Status report(Lanes *lanes, int failed, Diag *diag) {
    for (int i = 0; i < lanes->count && i <= failed; i++)
        diag_take(diag, lanes->lanes[i].diag);
    if (failed == lanes->count) return STATUS_OK;
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

LaneSweep lanes_sweep_of(const Batches *data, int64_t limit, int64_t batch_size) {
    LaneSweep sweep = {.data = data,
                       .total = limit > 0 && limit < data->count ? limit : data->count,
                       .chunk = batch_size > 0 ? batch_size : 1,
                       .by_length = true};
    if (sweep.chunk > sweep.total) sweep.chunk = sweep.total;
    return sweep;
}

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

/* The samples of chunk `chunk`. */
static Fetch chunk_samples(const Sweeping *s, int64_t chunk) {
    const LaneSweep *sweep = s->sweep;
    const int64_t first = chunk * sweep->chunk, left = sweep->total - first;
    Fetch what = {.index = s->order + first,
                  .n = left < sweep->chunk ? left : sweep->chunk};
    batches_pad(sweep->data, &what);
    if (!what.tokens) what.tokens = sweep->tokens;
    if (!what.source) what.source = sweep->source;
    return what;
}

/* Gives chunks [first, end) to the lanes, one to each while there are lanes; returns how
 * many were given. */
static int give_chunks(const Sweeping *s, int64_t first, int64_t end) {
    int count = 0;
    for (; count < s->lanes->count && first + count < end; count++)
        s->lanes->lanes[count].what = chunk_samples(s, first + count);
    return count;
}

static Status check_cancelled(const Sweeping *s, int64_t chunk, Diag *diag) {
    const LaneSweep *sweep = s->sweep;
    if (!lanes_cancelled(s->lanes, 0)) return STATUS_OK;
    return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL,
                     "stopped after %lld of %lld samples",
                     (long long)(sweep->done + chunk * sweep->chunk),
                     (long long)(sweep->all ? sweep->all : sweep->total));
}

/* Hands over what the first lanes have, up to the one that failed. */
static Status deliver_chunks(const Sweeping *s, int count, int failed, Diag *diag) {
    const LaneSweep *sweep = s->sweep;
    for (int i = 0; i < count && i < failed && sweep->deliver; i++)
        TRY(sweep->deliver(sweep->self, &s->lanes->lanes[i].what, i, diag));
    return report(s->lanes, failed, diag);
}

static void tell_progress(const Sweeping *s, int64_t chunks) {
    const int64_t done = chunks * s->sweep->chunk, total = s->sweep->total;
    lanes_progress(s->lanes, s->sweep->done + (done < total ? done : total),
                   s->sweep->all ? s->sweep->all : total, NAN);
}

static Status sweep_all(Sweeping *s, Diag *diag) {
    const int64_t chunks = lanes_chunks(s->sweep->total, s->sweep->chunk);
    for (int64_t first = 0; first < chunks;) {
        TRY(check_cancelled(s, first, diag));
        const int count = give_chunks(s, first, chunks);
        const int failed = run_round(s->lanes, count, run_chunk, s);
        TRY(deliver_chunks(s, count, failed, diag));
        tell_progress(s, first += count);
    }
    return STATUS_OK;
}

/* ---- sweeps that ranks share ---- */

/* A round of all ranks: chunks [first, first + count), of which this one runs its range.
 */
typedef struct Shared {
    Sweeping *s;
    int64_t first, count;
    int64_t own, own_end; /* the range, from 0 */
    int64_t *bytes;       /* of each chunk, packed */
    char *packed;         /* all of them, one after the other */
    const char **at;      /* each of them, for the lanes that unpack them */
} Shared;

/* Runs this rank's chunks and packs what they leave, where that goes round. */
static Status run_own(const Shared *shared, Text *packed, Diag *diag) {
    Sweeping *s = shared->s;
    const int64_t first = shared->first;
    TRY(check_cancelled(s, first, diag));
    const int count = give_chunks(s, first + shared->own, first + shared->own_end);
    TRY(report(s->lanes, run_round(s->lanes, count, run_chunk, s), diag));
    for (int i = 0; i < count && !s->sweep->receive; i++) {
        const size_t before = packed->length;
        s->sweep->pack(s->sweep->self, &s->lanes->lanes[i].what, i, packed);
        shared->bytes[shared->own + i] = (int64_t)(packed->length - before);
    }
    return STATUS_OK;
}

/* Gives all ranks what each of them has packed. */
static Status exchange(Shared *shared, const Text *own, Diag *diag) {
    TRY(ranks_gather(shared->bytes, shared->count, sizeof *shared->bytes, diag));
    size_t *parts = memory_alloc((size_t)ranks_count(), sizeof *parts);
    size_t total = 0, before = 0;
    for (int r = 0; r < ranks_count(); r++) {
        int64_t chunk, end;
        ranks_range(shared->count, r, &chunk, &end);
        for (; chunk < end; chunk++) parts[r] += (size_t)shared->bytes[chunk];
        if (r < ranks_number()) before += parts[r];
        total += parts[r];
    }
    Status status = MEMORY_ARRAY(&shared->packed, total, "what ranks exchange", diag);
    if (status == STATUS_OK && own->length)
        memcpy(shared->packed + before, own->data, own->length);
    /* which begins with such a vote */
    status = status == STATUS_OK ? ranks_gather_parts(shared->packed, parts, diag)
                                 : ranks_agree(status, diag);
    free(parts);
    return status;
}

static Status unpack_chunk(void *self, int64_t item, int lane, Diag *diag) {
    const Shared *shared = self;
    const Sweeping *s = shared->s;
    return s->sweep->unpack(s->sweep->self, &s->lanes->lanes[item].what, lane,
                            shared->at[item], diag);
}

/* Delivers the chunks of all ranks in order, as many at a time as there are lanes. */
static Status deliver_all(Shared *shared, Diag *diag) {
    Sweeping *s = shared->s;
    const char *at = shared->packed;
    for (int64_t done = 0; done < shared->count;) {
        const int count =
            give_chunks(s, shared->first + done, shared->first + shared->count);
        for (int i = 0; i < count; at += shared->bytes[done + i++]) shared->at[i] = at;
        const int failed = run_round(s->lanes, count, unpack_chunk, shared);
        TRY(deliver_chunks(s, count, failed, diag));
        done += count;
    }
    return STATUS_OK;
}

/* Delivers the chunks of all ranks in order from where they are. */
static Status receive_all(const Shared *shared, Diag *diag) {
    const Sweeping *s = shared->s;
    for (int r = 0; r < ranks_count(); r++) {
        int64_t first, end;
        ranks_range(shared->count, r, &first, &end);
        for (int64_t chunk = first; chunk < end; chunk++) {
            const Fetch what = chunk_samples(s, shared->first + chunk);
            TRY(s->sweep->receive(s->sweep->self, &what, r, (int)(chunk - first), diag));
        }
    }
    return STATUS_OK;
}

static Status share_round(Shared *shared, Diag *diag) {
    const bool receives = shared->s->sweep->receive;
    Text own = {0};
    const Status mine = run_own(shared, &own, diag);
    Status status = mine == STATUS_OK && !receives ? exchange(shared, &own, diag)
                                                   : ranks_agree(mine, diag);
    text_free(&own);
    if (status == STATUS_OK)
        status = receives ? receive_all(shared, diag) : deliver_all(shared, diag);
    free(shared->packed);
    shared->packed = NULL;
    return status;
}

/* As many chunks of a round for each rank as the rank with the fewest lanes has. */
static Status fewest_lanes(const Lanes *lanes, int64_t *fewest, Diag *diag) {
    const int ranks = ranks_count();
    int *counts = memory_alloc((size_t)ranks, sizeof *counts);
    counts[ranks_number()] = lanes->count;
    const Status status = ranks_gather(counts, ranks, sizeof *counts, diag);
    *fewest = lanes->count;
    for (int r = 0; r < ranks; r++)
        if (counts[r] < *fewest) *fewest = counts[r];
    free(counts);
    return status;
}

static Status sweep_shared(Sweeping *s, Diag *diag) {
    const int64_t chunks = lanes_chunks(s->sweep->total, s->sweep->chunk);
    int64_t each;
    Status status = fewest_lanes(s->lanes, &each, diag);
    if (status != STATUS_OK) return status;
    const int64_t most = each * ranks_count();
    Shared shared = {.s = s};
    shared.bytes = memory_alloc((size_t)most, sizeof *shared.bytes);
    shared.at = memory_alloc((size_t)s->lanes->count, sizeof *shared.at);
    for (int64_t first = 0; first < chunks && status == STATUS_OK; first += most) {
        shared.first = first;
        shared.count = chunks - first < most ? chunks - first : most;
        ranks_range(shared.count, ranks_number(), &shared.own, &shared.own_end);
        status = share_round(&shared, diag);
        if (status == STATUS_OK) tell_progress(s, first + shared.count);
    }
    free(shared.bytes);
    free(shared.at);
    return status;
}

Status lanes_sweep(Lanes *lanes, const LaneSweep *sweep, Diag *diag) {
    Sweeping s = {.sweep = sweep, .lanes = lanes, .order = sweep->order};
    if (!s.order) s.order = memory_alloc((size_t)sweep->total, sizeof *s.order);
    for (int64_t i = 0; i < sweep->total && !sweep->order; i++) s.order[i] = i;
    if (sweep->by_length) batches_sort(sweep->data, s.order, sweep->total);
    const bool shares = sweep->receive || (sweep->pack && sweep->unpack);
    const Status status =
        shares && ranks_count() > 1 ? sweep_shared(&s, diag) : sweep_all(&s, diag);
    if (!sweep->order) free(s.order);
    return status;
}
