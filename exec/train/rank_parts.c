/* Rank parts: see exec/train/rank_parts.h. */
#include "exec/train/rank_parts.h"

#include "exec/run/ranks.h"
#include "exec/train/gradient_tree.h"
#include "ir/arena.h"

#include <stdlib.h>
#include <string.h>

/* Blocks that a rank owns of a bucket, at most: what comes from others waits in room for
 * some such parts. And buckets that there should be, if there are blocks for them: the
 * first one is sent when about the last of so many parts of a gradient is complete. */
enum { PART_BLOCKS = 8, BUCKETS_WANTED = 8 };

/* How an array is cut. */
typedef struct Cut {
    int64_t each;  /* blocks of a rank in a bucket that is full */
    int64_t full;  /* such buckets */
    int64_t start; /* the first block behind them */
    int64_t rest;  /* blocks from there on: the last bucket, if there are any */
} Cut;

static Cut cut_of(int64_t count) {
    const int64_t blocks = gradient_blocks(count), ranks = ranks_count();
    int64_t each = blocks / (ranks * BUCKETS_WANTED);
    each = each < 1 ? 1 : each < PART_BLOCKS ? each : PART_BLOCKS;
    Cut cut = {.each = each, .full = blocks / (ranks * each)};
    cut.start = cut.full * ranks * each;
    cut.rest = blocks - cut.start;
    return cut;
}

int64_t rank_bucket_count(int64_t count) {
    const Cut cut = cut_of(count);
    return cut.full + (cut.rest > 0);
}

int64_t rank_bucket_elements(int64_t count) {
    return cut_of(count).each * ranks_count() * GRADIENT_BLOCK;
}

int64_t rank_bucket_part_most(int64_t count) {
    const int64_t most = cut_of(count).each * GRADIENT_BLOCK;
    return most < count ? most : count;
}

/* Blocks [*first, *last) of a bucket that a rank owns. */
static void part_of(const Cut *cut, int64_t bucket, int rank, int64_t *first,
                    int64_t *last) {
    if (bucket < cut->full) {
        *first = (bucket * ranks_count() + rank) * cut->each;
        *last = *first + cut->each;
    } else {
        ranks_range(cut->rest, rank, first, last);
        *first += cut->start;
        *last += cut->start;
    }
}

void rank_bucket_part(int64_t count, int64_t bucket, int rank, int64_t *first,
                      int64_t *last) {
    const Cut cut = cut_of(count);
    part_of(&cut, bucket, rank, first, last);
    *first *= GRADIENT_BLOCK;
    *last *= GRADIENT_BLOCK;
    if (*first > count) *first = count;
    if (*last > count) *last = count;
}

int64_t rank_part_blocks(int64_t count) {
    const Cut cut = cut_of(count);
    int64_t first, last;
    ranks_range(cut.rest, ranks_number(), &first, &last);
    return cut.full * cut.each + last - first;
}

int64_t rank_part_block(int64_t count, int64_t i) {
    const Cut cut = cut_of(count);
    const int64_t bucket = i / cut.each;
    int64_t first, last;
    part_of(&cut, bucket, ranks_number(), &first, &last);
    return first + i - bucket * cut.each;
}

int64_t rank_part_count(int64_t count) {
    int64_t elements = 0;
    for (int64_t b = 0; b < rank_bucket_count(count); b++) {
        int64_t first, last;
        rank_bucket_part(count, b, ranks_number(), &first, &last);
        elements += last - first;
    }
    return elements;
}

/* ---- handing round ---- */

/* The parts of all ranks of an array (NULL = sizes alone), of elements of `size` bytes:
 * by bucket, then by rank. To be freed. */
static RanksMessage *list_parts(void *all, int64_t count, size_t size, int *parts) {
    const int64_t buckets = rank_bucket_count(count);
    const int ranks = ranks_count();
    RanksMessage *list = memory_alloc((size_t)(buckets * ranks) + 1, sizeof *list);
    for (int i = 0; i < buckets * ranks; i++) {
        int64_t first, last;
        rank_bucket_part(count, i / ranks, i % ranks, &first, &last);
        list[i] =
            (RanksMessage){i % ranks, all ? (char *)all + (size_t)first * size : NULL,
                           (size_t)(last - first) * size};
    }
    *parts = (int)(buckets * ranks);
    return list;
}

Status rank_parts_gather(float *all, int64_t count, Diag *diag) {
    int parts;
    if (ranks_count() == 1) return STATUS_OK;
    RanksMessage *list = list_parts(all, count, sizeof *all, &parts);
    const Status status = ranks_gather_pieces(list, parts, diag);
    free(list);
    return status;
}

/* Copies what a rank owns of all[] to or from `packed`, where it lies in one piece.
 * Returns the bytes. */
static size_t pack_blocks(char *all, int64_t count, size_t bytes, int rank, char *packed,
                          bool unpack) {
    const Cut cut = cut_of(count);
    char *at = packed;
    for (int64_t b = 0; b < rank_bucket_count(count); b++) {
        int64_t first, last;
        part_of(&cut, b, rank, &first, &last);
        const size_t n = (size_t)(last - first) * bytes;
        char *blocks = all + (size_t)first * bytes;
        memcpy(unpack ? blocks : at, unpack ? at : blocks, n);
        at += n;
    }
    return (size_t)(at - packed);
}

/* In one piece for each rank: there are few bytes of a block, and many blocks. */
Status rank_parts_gather_blocks(void *all, int64_t count, size_t bytes, Diag *diag) {
    const int ranks = ranks_count();
    if (ranks == 1) return STATUS_OK;
    const size_t total = (size_t)gradient_blocks(count) * bytes;
    char *packed = memory_alloc(total + 1, 1), *at = packed;
    size_t *parts = memory_alloc((size_t)ranks, sizeof *parts);
    for (int r = 0; r < ranks; at += parts[r++])
        parts[r] = pack_blocks(all, count, bytes, r, at, false);
    const Status status = ranks_gather_parts(packed, parts, diag);
    at = packed;
    for (int r = 0; r < ranks && status == STATUS_OK; r++)
        at += pack_blocks(all, count, bytes, r, at, true);
    free(packed);
    free(parts);
    return status;
}

Status rank_parts_collect(void *all, const void *part, int64_t count, size_t size,
                          Diag *diag) {
    const bool collects = ranks_number() == 0;
    const char *next = part;
    int parts, messages = 0;
    RanksMessage *list = list_parts(all, count, size, &parts);
    for (int i = 0; i < parts; i++) {
        RanksMessage m = list[i];
        const bool own = m.rank == ranks_number();
        if (own && collects) memcpy(m.data, next, m.bytes);
        if (own && !collects) m = (RanksMessage){0, (void *)(uintptr_t)next, m.bytes};
        if (own) next += m.bytes;
        if (own != collects) list[messages++] = m;
    }
    const Status status = collects ? ranks_exchange(NULL, 0, list, messages, diag)
                                   : ranks_exchange(list, messages, NULL, 0, diag);
    free(list);
    return status;
}
