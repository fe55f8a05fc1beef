/* Lineage: which indices of the original model remain along a pruned axis.
 *
 * Kept as increasing ranges, so that it takes little room in memory and in IR text. */
#ifndef COMPRESS_IR_LINEAGE_H
#define COMPRESS_IR_LINEAGE_H

#include "ir/arena.h"
#include "ir/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct IndexRange {
    int64_t first, last; /* both included */
} IndexRange;

typedef struct Lineage {
    const IndexRange *ranges; /* in an arena; increasing, with gaps between them */
    int count;                /* 0 = the axis was never pruned */
    bool lost; /* none of its entries are the original's, nor will any part of it be;
                  there are no ranges */
} Lineage;

/* Whether there is anything to record: the axis was pruned, or its lineage is lost. */
static inline bool lineage_is_told(const Lineage *lineage) {
    return lineage->count > 0 || lineage->lost;
}

/* Whether ranges are not negative, increasing and apart from each other, and there are
 * none if the lineage is lost. */
bool lineage_is_valid(const Lineage *lineage);

/* Number of indices of a valid lineage with at least one range; INT64_MAX when it does
 * not fit. */
int64_t lineage_size(const Lineage *lineage);

/* Index in the original model of entry `i` of the axis; `i` itself when the axis was
 * never pruned, or its lineage is lost. `i` must lie on the axis. */
int64_t lineage_index(const Lineage *lineage, int64_t i);

/* Lineage of an axis of which entries keep[0..count), increasing, remain: composed with
 * earlier pruning. A lost lineage stays lost. */
Lineage lineage_keep(Arena *arena, const Lineage *before, const int64_t *keep,
                     int64_t count);

/* Deep copy into another arena. */
Lineage lineage_copy(Arena *arena, const Lineage *lineage);

/* Appends "[0-63, 70, 128-191]"; "[]" if it is lost. */
void lineage_print(Text *text, const Lineage *lineage);

#endif
