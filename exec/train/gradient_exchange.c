/* Gradient exchange: see exec/train/gradient_exchange.h.
 *
 * It goes in rounds, in each of which every rank receives a piece of its part: what is
 * received takes the room of a piece and not of a part. */
#include "exec/train/gradient_exchange.h"

#include "exec/run/parallel.h"
#include "exec/run/ranks.h"
#include "exec/train/rank_parts.h"
#include "ir/arena.h"

#include <stdlib.h>
#include <string.h>

/* Elements of a round's piece. */
#define PIECE ((int64_t)32 * GRADIENT_BLOCK)

struct GradientExchange {
    int64_t shards, count, longest; /* elements: of a gradient, of the longest part */
    int threads, ranks, own;
    float **pieces; /* by shard: what is left of it, from the round's piece on, or NULL */
    float *buffer;  /* what is received in a round */
    RanksMessage *send, *receive;
};

ShardRange gradient_exchange_range(int64_t shards, int rank) {
    ShardRange range = {.shards = shards};
    ranks_range(shards, rank, &range.first, &range.end);
    return range;
}

/* The piece of a rank's part in a round; empty where the part has ended. */
static void own_piece(const GradientExchange *x, int rank, int64_t round, int64_t *first,
                      int64_t *n) {
    int64_t last;
    rank_part(x->count, rank, first, &last);
    *first += round * PIECE;
    *n = last - *first < PIECE ? last - *first : PIECE;
    if (*n < 0) *n = 0;
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

static int64_t longest_part(int64_t count) {
    int64_t first, last;
    rank_part(count, 0, &first, &last);
    return last - first;
}

static int64_t piece_room(int64_t count) {
    const int64_t part = longest_part(count);
    return part < PIECE ? part : PIECE;
}

size_t gradient_exchange_bytes(int64_t shards, int64_t count) {
    return (size_t)(count_received(shards) * piece_room(count)) * sizeof(float);
}

GradientExchange *gradient_exchange_create(int64_t shards, int64_t count, int threads) {
    GradientExchange *x = memory_alloc(1, sizeof *x);
    *x = (GradientExchange){.shards = shards,
                            .count = count,
                            .longest = longest_part(count),
                            .threads = threads,
                            .ranks = ranks_count(),
                            .own = ranks_number()};
    const int64_t received = count_received(shards), others = x->ranks - 1;
    const int64_t sent = others * count_left(shards, x->own);
    x->pieces = memory_alloc((size_t)shards, sizeof *x->pieces);
    x->buffer = memory_alloc(gradient_exchange_bytes(shards, count) + 1, 1);
    x->receive = memory_alloc((size_t)received + 1, sizeof *x->receive);
    x->send = memory_alloc((size_t)sent + 1, sizeof *x->send);
    return x;
}

void gradient_exchange_destroy(GradientExchange *exchange) {
    if (!exchange) return;
    free(exchange->pieces);
    free(exchange->buffer);
    free(exchange->receive);
    free(exchange->send);
    free(exchange);
}

/* ---- adding ---- */

typedef struct AddJob {
    const ShardRange *range;
    float *const *gradients;
    int64_t count;
} AddJob;

static void add_block(void *self, int64_t block, int worker) {
    (void)worker;
    const AddJob *job = self;
    const int64_t first = block * GRADIENT_BLOCK, left = job->count - first;
    gradient_tree_add(job->range, job->gradients, first,
                      left < GRADIENT_BLOCK ? left : GRADIENT_BLOCK);
}

static void add_all(const GradientExchange *x, const ShardRange *range,
                    float *const *gradients, int64_t count) {
    AddJob job = {range, gradients, count};
    parallel_for(gradient_blocks(count), x->threads, add_block, &job);
}

/* ---- rounds ---- */

/* What is left here of the others' pieces goes to them. Returns how many messages. */
static int list_sent(const GradientExchange *x, float *const *gradients, int64_t round) {
    const ShardRange range = gradient_exchange_range(x->shards, x->own);
    int count = 0;
    for (int r = 0; r < x->ranks; r++) {
        int64_t first, n;
        own_piece(x, r, round, &first, &n);
        for (int64_t s = range.first; r != x->own && s < range.end; s++)
            if (!gradient_tree_joins(&range, s))
                x->send[count++] =
                    (RanksMessage){r, gradients[s] + first, (size_t)n * sizeof(float)};
    }
    return count;
}

/* What is left of this rank's piece, here and, when it will have come, from the others.
 * Returns how many messages that takes. */
static int list_received(GradientExchange *x, float *const *gradients, int64_t first,
                         int64_t n) {
    int count = 0;
    for (int r = 0; r < x->ranks; r++) {
        const ShardRange range = gradient_exchange_range(x->shards, r);
        for (int64_t s = range.first; s < range.end; s++) {
            x->pieces[s] = NULL;
            if (gradient_tree_joins(&range, s)) continue;
            x->pieces[s] = r == x->own ? gradients[s] + first : x->buffer + count * n;
            if (r == x->own) continue;
            x->receive[count++] =
                (RanksMessage){r, x->pieces[s], (size_t)n * sizeof(float)};
        }
    }
    return count;
}

/* This rank's piece of the sum. */
static Status add_piece(GradientExchange *x, float *const *gradients, float *sum,
                        int64_t round, Diag *diag) {
    const ShardRange all = {0, x->shards, x->shards};
    int64_t first, n;
    own_piece(x, x->own, round, &first, &n);
    const int sends = list_sent(x, gradients, round);
    const int receives = list_received(x, gradients, first, n);
    TRY(ranks_exchange(x->send, sends, x->receive, receives, diag));
    if (n == 0) return STATUS_OK;
    add_all(x, &all, x->pieces, n);
    memmove(sum + first, x->pieces[0], (size_t)n * sizeof(float));
    return STATUS_OK;
}

Status gradient_exchange_run(GradientExchange *x, float *const *gradients, float *sum,
                             Diag *diag) {
    const ShardRange own = gradient_exchange_range(x->shards, x->own);
    add_all(x, &own, gradients, x->count);
    for (int64_t round = 0; round * PIECE < x->longest; round++)
        TRY(add_piece(x, gradients, sum, round, diag));
    return STATUS_OK;
}
