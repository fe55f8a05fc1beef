/* Buckets of distances between tokens: see buckets.h. */
#include "ir/buckets.h"

#include <math.h>

static int64_t of_side(const Buckets *b) {
    return b->both_sides ? b->count / 2 : b->count;
}

int64_t buckets_exact(const Buckets *b) {
    return of_side(b) / 2;
}

bool buckets_sane(const Buckets *b) {
    return b->count <= INT32_MAX && buckets_exact(b) >= 1 &&
           b->distance > buckets_exact(b);
}

/* The smallest distance of a bucket. Published code takes logarithms of distances in
 * float32, where those that begin a range (8 * 16^(2/8) = 16) come out exact; here the
 * factor below 1 keeps them from falling to the next integer. */
static double start_of(const Buckets *b, int64_t bucket) {
    const double exact = (double)buckets_exact(b), ranges = (double)of_side(b) - exact;
    const double part = ((double)bucket - exact) / ranges;
    if (part <= 0) return (double)bucket;
    return ceil(exact * pow((double)b->distance / exact, part) * (1 - 1e-12));
}

void buckets_fill(const Buckets *b, int64_t before, int64_t after, int32_t *row) {
    const int64_t side = of_side(b), most = before > after ? before : after;
    const int64_t later = b->both_sides ? side : 0;
    int64_t bucket = 0;
    double next = start_of(b, 1);
    for (int64_t d = 0; d <= most; d++) {
        for (; bucket + 1 < side && next <= (double)d; next = start_of(b, bucket + 1))
            bucket++;
        if (d <= before) row[before - d] = (int32_t)bucket;
        if (d > 0 && d <= after) row[before + d] = (int32_t)(later ? later + bucket : 0);
    }
}
