/* Rank parts: see exec/train/rank_parts.h. */
#include "exec/train/rank_parts.h"

#include "exec/run/ranks.h"
#include "exec/train/gradient_tree.h"
#include "ir/arena.h"

#include <stdlib.h>
#include <string.h>

void rank_part(int64_t count, int rank, int64_t *first, int64_t *last) {
    ranks_range(gradient_blocks(count), rank, first, last);
    *first *= GRADIENT_BLOCK;
    *last *= GRADIENT_BLOCK;
    if (*first > count) *first = count;
    if (*last > count) *last = count;
}

Status rank_parts_gather(float *all, int64_t count, Diag *diag) {
    if (ranks_count() == 1) return STATUS_OK;
    size_t *bytes = memory_alloc((size_t)ranks_count(), sizeof *bytes);
    for (int r = 0; r < ranks_count(); r++) {
        int64_t first, last;
        rank_part(count, r, &first, &last);
        bytes[r] = (size_t)(last - first) * sizeof(float);
    }
    const Status status = ranks_gather_parts(all, bytes, diag);
    free(bytes);
    return status;
}

Status rank_parts_collect(float *all, const float *part, int64_t count, Diag *diag) {
    const bool collects = ranks_number() == 0;
    RanksMessage *messages = memory_alloc((size_t)ranks_count(), sizeof *messages);
    int64_t first, last;
    for (int r = 1; r < ranks_count() && collects; r++) {
        rank_part(count, r, &first, &last);
        messages[r - 1] =
            (RanksMessage){r, all + first, (size_t)(last - first) * sizeof(float)};
    }
    rank_part(count, ranks_number(), &first, &last);
    const size_t bytes = (size_t)(last - first) * sizeof(float);
    if (collects)
        memcpy(all + first, part, bytes);
    else
        messages[0] = (RanksMessage){0, (void *)(uintptr_t)part, bytes};
    const int others = ranks_count() - 1;
    const Status status = collects ? ranks_exchange(NULL, 0, messages, others, diag)
                                   : ranks_exchange(messages, 1, NULL, 0, diag);
    free(messages);
    return status;
}
