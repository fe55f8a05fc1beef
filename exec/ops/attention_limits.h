/* Which keys a query of attention sees, as numbers that are added to its scores: 0, or
 * -inf for a key that is masked, out of reach or, if causal, later. In shifted windows,
 * which hold tokens from both ends of the grid, keys of another region than the query's
 * lose 100 instead (Liu et al., 2021).
 *
 * Rows have room for a multiple of LANE_COUNT keys; what is beyond the keys counts as
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

    REAL *by_key;               /* [padded]: of all queries */
    REAL *by_query;             /* [padded]: of one query, if causal or with a reach */
    REAL *by_region;            /* [LIMIT_REGIONS, padded]; with a shift */
    bool last_row, last_column; /* this window is one of a last row or column that holds
                                   tokens from both ends of the grid */
} AttentionLimits;

/* Fills in the limits of one sample; a window counts as one. */
void REAL_FN(limits_start)(AttentionLimits *limits, int64_t sample);

/* Those of one query, [padded]; valid until the next call. */
const REAL *REAL_FN(limits_of)(const AttentionLimits *limits, int64_t query);

#endif
