/* Which keys a query of attention sees: see attention_limits.h. */
#include "exec/ops/attention_limits.h"

#include "exec/ops/lanes.h"

#include <math.h>

enum { BETWEEN_REGIONS = 100 };

/* Which of the up to four parts of the turned grid a token of a window belongs to: in the
 * last row of windows the lower `shift` rows come from the top of the grid, in the last
 * column the right `shift` columns from its left end. */
static int region_of(const AttentionLimits *l, int64_t token) {
    const int64_t first = l->window - l->shift;
    return 2 * (l->last_row && token / l->window >= first) +
           (l->last_column && token % l->window >= first);
}

void REAL_FN(limits_start)(AttentionLimits *l, int64_t sample) {
    REAL *limit = l->by_key;
    for (int64_t j = 0; j < l->padded; j++) limit[j] = j < l->keys ? 0 : -INFINITY;
    const int32_t *mask = l->mask ? l->mask + sample * l->keys : NULL;
    for (int64_t j = 0; mask && j < l->keys; j++) limit[j] = mask[j] ? 0 : -INFINITY;
    l->first = 0;
    l->end = l->keys;
    while (mask && l->end > 0 && !mask[l->end - 1]) l->end--;
    while (mask && l->first < l->end && !mask[l->first]) l->first++;
    if (l->shift == 0) return;
    const int64_t window = sample % (l->down * l->across);
    l->last_row = window / l->across == l->down - 1;
    l->last_column = window % l->across == l->across - 1;
    for (int64_t j = 0; (l->last_row || l->last_column) && j < l->padded; j++) {
        const int region = j < l->keys ? region_of(l, j) : 0;
        for (int r = 0; r < LIMIT_REGIONS; r++)
            l->by_region[r * l->padded + j] =
                limit[j] - (r == region ? 0 : BETWEEN_REGIONS);
    }
}

/* First key that a query may see by its distance, and the one behind the last. */
static int64_t first_in_reach(const AttentionLimits *l, int64_t query) {
    return l->reach ? query - l->reach + 1 : 0;
}
static int64_t end_of_reach(const AttentionLimits *l, int64_t query) {
    if (l->causal) return query + 1;
    return l->reach ? query + l->reach : l->keys;
}

KeyRange REAL_FN(limits_range)(const AttentionLimits *l, int64_t row, int64_t rows) {
    int64_t first = l->first, end = l->end;
    const int64_t nearest = first_in_reach(l, row),
                  last = end_of_reach(l, row + rows - 1);
    if (nearest > first) first = nearest;
    if (last < end) end = last;
    if (l->whole) first = 0, end = l->keys;
    if (first >= end) return (KeyRange){0};
    first = first / LANE_COUNT * LANE_COUNT;
    return (KeyRange){first, end - first, LANES_ROUND_UP(end - first)};
}

const REAL *REAL_FN(limits_of)(const AttentionLimits *l, int64_t query, KeyRange range) {
    if (l->last_row || l->last_column)
        return l->by_region + region_of(l, query) * l->padded + range.first;
    if (!l->causal && !l->reach) return l->by_key + range.first;
    const REAL *restrict key = l->by_key + range.first;
    REAL *restrict row = l->by_query;
    const int64_t first = first_in_reach(l, query) - range.first;
    const int64_t end = end_of_reach(l, query) - range.first;
    for (int64_t j = 0; j < range.columns; j++)
        row[j] = j >= first && j < end ? key[j] : -INFINITY;
    return row;
}
