/* Which keys an attention query sees: their range, and numbers to add to their scores:
 * 0, or -inf for a key that is masked, out of reach or, if causal, later. In shifted
 * windows, which hold tokens from both ends of the grid, keys of another region than the
 * query's lose 100 instead (Liu et al., 2021).
 *
 * Rows have room for a multiple of LANE_COUNT keys; anything beyond the keys counts as
 * masked. */
#ifndef COMPRESS_EXEC_OPS_ATTENTION_LIMITS_H
#define COMPRESS_EXEC_OPS_ATTENTION_LIMITS_H

#include "exec/ops/kernel.h"

enum { LIMIT_REGIONS = 4 };

/* What limits the keys of a call, and rows in its scratch. */
typedef struct AttentionLimits {
    int64_t keys, padded; /* keys of a sample, or of a window; elements of a row */
    bool causal;
    int64_t reach;       /* distance from which on keys are not seen; 0: none */
    const int32_t *mask; /* [samples, keys]; NULL = none */
    int64_t window, shift, down, across; /* windows of a sample; 0: none */
    bool whole; /* rows of all keys are needed, whatever the queries see */

    int64_t first, end; /* keys of the sample from the first to the last that counts */
    REAL *by_key;       /* [padded]: of all queries */
    REAL *by_query;     /* [padded]: of one query, if causal or with a reach */
    REAL *by_region;    /* [LIMIT_REGIONS, padded]; with a shift */
    bool last_row, last_column; /* this window is in a last row or column and holds tokens
                                   from both ends of the grid */
} AttentionLimits;

/* The keys that some queries see: others can be skipped. */
typedef struct KeyRange {
    int64_t first;   /* a multiple of LANE_COUNT */
    int64_t count;   /* of keys; 0 = they see none */
    int64_t columns; /* rounded up to a multiple of LANE_COUNT */
} KeyRange;

/* Fills in the limits of one sample; a window counts as one. */
void REAL_FN(limits_start)(AttentionLimits *limits, int64_t sample);

/* The keys from the first to the last that any of queries row .. row + rows - 1 sees. */
KeyRange REAL_FN(limits_range)(const AttentionLimits *limits, int64_t row, int64_t rows);

/* Limits of one query for the keys of a range, [columns]; valid until the next call. */
const REAL *REAL_FN(limits_of)(const AttentionLimits *limits, int64_t query,
                               KeyRange range);

#endif
