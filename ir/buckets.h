/* Buckets of distances between tokens: relative positions, in which near distances are
 * distinguished and far ones grouped (Raffel et al., 2020, section 2.1).
 *
 * Of B buckets the first half is for one distance each, the second for ranges that grow
 * geometrically up to `distance`; the last one holds everything farther away. If keys on
 * both sides of the query count, each side has B/2 of them, later keys the second B/2;
 * otherwise a later key is treated as one at distance 0. */
#ifndef COMPRESS_IR_BUCKETS_H
#define COMPRESS_IR_BUCKETS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Buckets {
    int64_t count;    /* B: at least 2, or 4 with both sides */
    int64_t distance; /* above the number of buckets that have one distance each */
    bool both_sides;
} Buckets;

/* Buckets that have one distance each, on one side. */
int64_t buckets_exact(const Buckets *b);

/* Whether the numbers are as above. */
bool buckets_sane(const Buckets *b);

/* row[before + o] = bucket of a key o tokens after its query, for o from -before to
 * after; all below B. */
void buckets_fill(const Buckets *b, int64_t before, int64_t after, int32_t *row);

#endif
