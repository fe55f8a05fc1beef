/* Relative positions of keys in a grid.
 *
 * Contextual ones: the 7 x 7 buckets of Wu et al. (iRPE).
 * Patches i and j of a grid, dy rows and dx columns apart (i minus j), belong to bucket
 * (rho(dy) + 3) * 7 + rho(dx) + 3 with rho(t) = t while |t| <= 1.9, else
 * sign(t) * min(3, round(1.9 + 1.9 ln(|t| / 1.9) / ln(15.2 / 1.9))). */
#ifndef COMPRESS_EXEC_OPS_RELATIVE_POSITION_H
#define COMPRESS_EXEC_OPS_RELATIVE_POSITION_H

#include "exec/ops/kernel.h"

enum { RELATIVE_STEPS = 7, RELATIVE_BUCKETS = RELATIVE_STEPS * RELATIVE_STEPS };

/* The grid that the tokens after the first `skip` form, and work space for one call. */
typedef struct RelativeGrid {
    int64_t height, width, skip;
    int32_t *column_step; /* [2 * width - 1]: step of column distance width - 1 - k */
    REAL *row_sums;       /* [RELATIVE_STEPS, width] */
} RelativeGrid;

/* rho(distance) + 3 for a whole number of rows or columns. */
int REAL_FN(relative_step)(int64_t distance);

/* Fills grid->column_step. */
void REAL_FN(relative_prepare)(const RelativeGrid *grid);

/* scores[j] += by_bucket[bucket(query, j)] for every key j after the first `skip`;
 * nothing for a query among the first `skip`. */
void REAL_FN(relative_spread)(const RelativeGrid *grid, int64_t query,
                              const REAL *by_bucket, REAL *scores);

/* The transpose: by_bucket[b] = sum of scores[j] over the keys j in bucket b. */
void REAL_FN(relative_collect)(const RelativeGrid *grid, int64_t query,
                               const REAL *scores, REAL *by_bucket);

/* --- a bias for every offset: a table [(2 height - 1) (2 width - 1), heads] --- */

/* maps[h, i, j] += table[offset of i and j, h] for the tokens i and j of the grid and the
 * heads first <= h < end; a map covers all tokens, including those before the grid. */
void REAL_FN(relative_bias_spread)(const RelativeGrid *grid, int64_t heads, int64_t first,
                                   int64_t end, const REAL *table, REAL *maps);

/* The transpose: table[offset, h] += maps[h, i, j]. */
void REAL_FN(relative_bias_collect)(const RelativeGrid *grid, int64_t heads,
                                    int64_t first, int64_t end, const REAL *maps,
                                    REAL *table);

#endif
