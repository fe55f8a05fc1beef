/* Gradient exchange: see exec/train/gradient_exchange.h.
 *
 * The way of a bucket, by its place in the order:
 *
 * - complete in a shard: the shard's lane tells (follow_call);
 * - added, what the tree has whole in this rank's shards: each lane adds blocks of its
 * own of a bucket that is complete in all shards (add_own);
 * - sent, what is left, to the ranks that own it: by lane 0, which talks (send_bucket);
 * - received from the others, into one of a few arrivals (expect_bucket);
 * - summed, the part that this rank owns (sum_bucket).
 *
 * Lanes write counts of their own, so that nobody waits. */
#include "exec/train/gradient_exchange.h"

#include "exec/run/parallel.h"
#include "exec/run/ranks.h"
#include "exec/train/rank_parts.h"
#include "ir/arena.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Buckets that are received at a time. */
enum { ARRIVALS = 4 };

typedef struct Arrival {
    float *data; /* what is left in the others, in order of shards */
    RanksTransfer *transfer;
} Arrival;

/* A backward run that a lane tells of. */
typedef struct Follow {
    GradientExchange *exchange;
    int lane;
    int64_t shard;    /* among this rank's */
    int *last;        /* by bucket: plan_last_writes */
    int64_t complete; /* buckets in order */
    Team *team;
} Follow;

struct GradientExchange {
    int64_t shards, count, buckets;
    int lanes, threads;
    ShardRange own; /* this rank's shards */
    int64_t *order; /* buckets, the first one that is sent first */
    int64_t *place; /* by bucket: where it stands there */
    Follow *follows;
    float *const *gradients;
    float *sum;
    Diag *diag;
    Status status; /* of talking */
    /* How many buckets have come so far, in order: */
    atomic_llong *complete; /* by own shard */
    atomic_llong *added;    /* by lane: its blocks of them */
    int64_t sent, expected, summed;
    Arrival arrivals[ARRIVALS]; /* by place, modulo their number */
    RanksTransfer *sending;
    RanksMessage *messages; /* of a bucket, while they are begun */
    float **pieces;         /* by shard: what is left of it of a part, or NULL */
};

ShardRange gradient_exchange_range(int64_t shards, int rank) {
    ShardRange range = {.shards = shards};
    ranks_range(shards, rank, &range.first, &range.end);
    return range;
}

/* Gradients that are left in a rank. */
static int64_t count_left(int64_t shards, int rank) {
    const ShardRange range = gradient_exchange_range(shards, rank);
    int64_t left = 0;
    for (int64_t s = range.first; s < range.end; s++)
        left += !gradient_tree_joins(&range, s);
    return left;
}

/* Those that are left in the other ranks. */
static int64_t count_received(int64_t shards) {
    int64_t left = 0;
    for (int r = 0; r < ranks_count(); r++)
        if (r != ranks_number()) left += count_left(shards, r);
    return left;
}

/* Bytes of an arrival. */
static size_t arrival_bytes(int64_t shards, int64_t count) {
    return (size_t)(count_received(shards) * rank_bucket_part_most(count)) *
           sizeof(float);
}

size_t gradient_exchange_bytes(int64_t shards, int64_t count) {
    return ARRIVALS * arrival_bytes(shards, count);
}

/* A bucket and the time at which a plan completes it. */
typedef struct Completed {
    int time;
    int64_t bucket;
} Completed;

/* Those of one time from the last to the first: a graph's first weights come last. */
static int compare_completed(const void *one, const void *other) {
    const Completed *a = one, *b = other;
    if (a->time != b->time) return a->time < b->time ? -1 : 1;
    return (a->bucket < b->bucket) - (a->bucket > b->bucket);
}

static void sort_buckets(GradientExchange *x, const Plan *plan) {
    int *last = memory_alloc((size_t)x->buckets + 1, sizeof *last);
    Completed *all = memory_alloc((size_t)x->buckets + 1, sizeof *all);
    if (plan) plan_last_writes(plan, rank_bucket_elements(x->count), x->buckets, last);
    for (int64_t b = 0; b < x->buckets; b++) all[b] = (Completed){last[b], b};
    qsort(all, (size_t)x->buckets, sizeof *all, compare_completed);
    for (int64_t i = 0; i < x->buckets; i++) {
        x->order[i] = all[i].bucket;
        x->place[all[i].bucket] = i;
    }
    free(last);
    free(all);
}

GradientExchange *gradient_exchange_create(int64_t shards, int64_t count, int lanes,
                                           int threads, const Plan *order) {
    GradientExchange *x = memory_alloc(1, sizeof *x);
    *x = (GradientExchange){.shards = shards,
                            .count = count,
                            .buckets = rank_bucket_count(count),
                            .lanes = lanes,
                            .threads = threads,
                            .own = gradient_exchange_range(shards, ranks_number())};
    const size_t buckets = (size_t)x->buckets + 1;
    const int64_t sent = (ranks_count() - 1) * count_left(shards, ranks_number());
    const int64_t received = count_received(shards);
    x->order = memory_alloc(buckets, sizeof *x->order);
    x->place = memory_alloc(buckets, sizeof *x->place);
    x->follows = memory_alloc((size_t)lanes, sizeof *x->follows);
    x->added = memory_alloc((size_t)lanes, sizeof *x->added);
    x->complete = memory_alloc((size_t)shards, sizeof *x->complete);
    x->pieces = memory_alloc((size_t)shards, sizeof *x->pieces);
    x->messages = memory_alloc((size_t)(sent > received ? sent : received) + 1,
                               sizeof *x->messages);
    for (int i = 0; i < lanes; i++)
        x->follows[i] = (Follow){
            .exchange = x, .lane = i, .last = memory_alloc(buckets, sizeof(int))};
    for (int i = 0; i < ARRIVALS; i++)
        x->arrivals[i] = (Arrival){memory_alloc(arrival_bytes(shards, count) + 1, 1),
                                   ranks_transfer_create()};
    x->sending = ranks_transfer_create();
    sort_buckets(x, order);
    return x;
}

void gradient_exchange_destroy(GradientExchange *x) {
    if (!x) return;
    for (int i = 0; i < x->lanes; i++) free(x->follows[i].last);
    for (int i = 0; i < ARRIVALS; i++) {
        free(x->arrivals[i].data);
        ranks_transfer_destroy(x->arrivals[i].transfer);
    }
    ranks_transfer_destroy(x->sending);
    free(x->order);
    free(x->place);
    free(x->follows);
    free(x->added);
    free(x->complete);
    free(x->pieces);
    free(x->messages);
    free(x);
}

/* ---- adding ---- */

static int64_t bucket_blocks(const GradientExchange *x) {
    return rank_bucket_elements(x->count) / GRADIENT_BLOCK;
}

/* Adds what the tree has whole here of a lane's blocks of a bucket: those whose number,
 * modulo that of the lanes, is the lane's. */
static void add_own(const GradientExchange *x, int lane, int64_t bucket, Team *team) {
    const int64_t start = bucket * bucket_blocks(x), all = gradient_blocks(x->count);
    const int64_t end = start + bucket_blocks(x);
    const int64_t skipped = ((lane - start) % x->lanes + x->lanes) % x->lanes;
    if (x->own.end - x->own.first < 2) return;
    gradient_tree_add_blocks(&(TreeBlocks){.range = &x->own,
                                           .gradients = x->gradients,
                                           .elements = x->count,
                                           .first = start + skipped,
                                           .end = end < all ? end : all,
                                           .step = x->lanes},
                             team);
}

/* A block that no lane has added yet. */
static void add_left(void *self, int64_t block, int worker) {
    const GradientExchange *x = self;
    (void)worker;
    const TreeBlocks blocks = {
        .range = &x->own, .gradients = x->gradients, .elements = x->count};
    if (x->place[block / bucket_blocks(x)] >= atomic_load(&x->added[block % x->lanes]))
        gradient_tree_add_block(&blocks, block);
}

static int64_t least(atomic_llong *counts, int64_t n, int64_t most) {
    for (int64_t i = 0; i < n; i++) {
        const int64_t count = atomic_load(&counts[i]);
        if (count < most) most = count;
    }
    return most;
}

/* ---- talking: in the thread that began ---- */

/* The elements of a bucket that a rank owns. */
static int64_t bucket_part(const GradientExchange *x, int64_t at, int rank,
                           int64_t *first) {
    int64_t last;
    rank_bucket_part(x->count, x->order[at], rank, first, &last);
    return last - *first;
}

/* What is left here of the others' parts goes to them. */
static Status send_bucket(GradientExchange *x, int64_t at) {
    int count = 0;
    for (int r = 0; r < ranks_count(); r++) {
        int64_t first, n = bucket_part(x, at, r, &first);
        for (int64_t s = x->own.first; r != ranks_number() && s < x->own.end; s++)
            if (!gradient_tree_joins(&x->own, s))
                x->messages[count++] =
                    (RanksMessage){r, x->gradients[s] + first, (size_t)n * sizeof(float)};
    }
    return ranks_transfer_send(x->sending, x->messages, count, x->diag);
}

/* What is left in the others of this rank's part will come, if there is such a bucket. */
static Status expect_bucket(GradientExchange *x, int64_t at) {
    const Arrival *arrival = &x->arrivals[at % ARRIVALS];
    int64_t first, count = 0;
    if (at >= x->buckets) return STATUS_OK;
    const int64_t n = bucket_part(x, at, ranks_number(), &first);
    for (int r = 0; r < ranks_count(); r++)
        for (int64_t i = 0; r != ranks_number() && i < count_left(x->shards, r); i++) {
            x->messages[count] =
                (RanksMessage){r, arrival->data + count * n, (size_t)n * sizeof(float)};
            count++;
        }
    return ranks_transfer_receive(arrival->transfer, x->messages, (int)count, x->diag);
}

static void add_numbered(void *self, int64_t block, int worker) {
    (void)worker;
    gradient_tree_add_block(self, block);
}

/* This rank's part of the sum, of a bucket that has come. */
static void sum_bucket(const GradientExchange *x, int64_t at, Team *team, int threads) {
    float *next = x->arrivals[at % ARRIVALS].data;
    int64_t first;
    const int64_t n = bucket_part(x, at, ranks_number(), &first);
    for (int r = 0; r < ranks_count(); r++) {
        const ShardRange range = gradient_exchange_range(x->shards, r);
        for (int64_t s = range.first; s < range.end; s++) {
            x->pieces[s] = NULL;
            if (gradient_tree_joins(&range, s)) continue;
            x->pieces[s] = r == ranks_number() ? x->gradients[s] + first : next;
            if (r != ranks_number()) next += n;
        }
    }
    if (n == 0) return;
    const ShardRange all = {0, x->shards, x->shards};
    TreeBlocks blocks = {.range = &all,
                         .gradients = x->pieces,
                         .elements = n,
                         .end = gradient_blocks(n),
                         .step = 1};
    if (threads > 1)
        parallel_for(blocks.end, threads, add_numbered, &blocks);
    else
        gradient_tree_add_blocks(&blocks, team);
    memmove(x->sum + first, x->pieces[0], (size_t)n * sizeof(float));
}

/* Sends what all lanes have added, and takes what has come, by the threads of a team. */
static Status push(GradientExchange *x, Team *team) {
    const int64_t added = least(x->added, x->lanes, x->buckets);
    while (x->sent < added) TRY(send_bucket(x, x->sent++));
    while (x->summed < x->sent) {
        bool here;
        TRY(ranks_transfer_done(x->arrivals[x->summed % ARRIVALS].transfer, &here,
                                x->diag));
        if (!here) return STATUS_OK;
        sum_bucket(x, x->summed++, team, 1);
        TRY(expect_bucket(x, x->expected++));
    }
    return STATUS_OK;
}

/* ---- during backward runs ---- */

/* RunWatch: what a call leaves complete. */
static void follow_call(void *self, int time) {
    Follow *f = self;
    GradientExchange *x = f->exchange;
    while (f->complete < x->buckets && f->last[x->order[f->complete]] <= time)
        f->complete++;
    atomic_store(&x->complete[f->shard], f->complete);
    const int64_t complete = least(x->complete, x->own.end - x->own.first, f->complete);
    int64_t added = atomic_load(&x->added[f->lane]);
    for (; added < complete; added++) add_own(x, f->lane, x->order[added], f->team);
    atomic_store(&x->added[f->lane], added);
    if (f->lane == 0 && x->status == STATUS_OK) x->status = push(x, f->team);
}

RunWatch gradient_exchange_follow(GradientExchange *x, int lane, int64_t shard,
                                  const Plan *plan, Team *team) {
    Follow *f = &x->follows[lane];
    f->shard = shard - x->own.first;
    f->complete = 0;
    f->team = team;
    plan_last_writes(plan, rank_bucket_elements(x->count), x->buckets, f->last);
    return (RunWatch){follow_call, f};
}

/* ---- before and after them ---- */

Status gradient_exchange_begin(GradientExchange *x, float *const *gradients, float *sum,
                               Diag *diag) {
    TRY(ranks_agree(STATUS_OK, diag));
    x->gradients = gradients;
    x->sum = sum;
    x->diag = diag;
    x->status = STATUS_OK;
    x->sent = x->expected = x->summed = 0;
    for (int64_t i = 0; i < x->own.end - x->own.first; i++)
        atomic_store(&x->complete[i], 0);
    for (int i = 0; i < x->lanes; i++) atomic_store(&x->added[i], 0);
    while (x->expected < ARRIVALS && x->status == STATUS_OK)
        x->status = expect_bucket(x, x->expected++);
    return STATUS_OK;
}

/* The rest of the way of all buckets. */
static Status finish(GradientExchange *x) {
    if (x->own.end - x->own.first > 1)
        parallel_for(gradient_blocks(x->count), x->threads, add_left, x);
    while (x->sent < x->buckets) TRY(send_bucket(x, x->sent++));
    while (x->summed < x->buckets) {
        TRY(ranks_transfer_wait(x->arrivals[x->summed % ARRIVALS].transfer, x->diag));
        sum_bucket(x, x->summed++, NULL, x->threads);
        TRY(expect_bucket(x, x->expected++));
    }
    return ranks_transfer_wait(x->sending, x->diag);
}

Status gradient_exchange_finish(GradientExchange *x, Diag *diag) {
    x->diag = diag;
    return x->status == STATUS_OK ? finish(x) : x->status;
}
